"""Tables of the measurements: Table 1, the attention kernels, path lengths, and every cost by length."""

from collections.abc import Callable, Mapping, Sequence

from experiments.complexity import layers, measure
from experiments.complexity.measure import GIB, Record
from experiments.rendering.formats import Column

# The ends of headings, by pass.
PASSES = {'forward': '', 'both': ', both passes'}
MIB = 2**20
# The cells of a row, by heading; the first cell names the row.
TableRow = dict[str, str]


def text(found: Mapping, form: Callable[[list[Column], list[str]], str], mark: str = '') -> str:
    """Renders all tables of the measurements in a format; each heading begins with `mark`."""
    sections = (
        ('Table 1, measured', _table_1(found), _notes(found)),
        ('Attention kernels', _kernels(found), _kernel_notes(found)),
        ('Maximum path lengths', _paths(found['paths']), _path_notes()),
        ('Layers by length', _costs(timed(found['layers'])), []),
        ('Attention kernels by length', _costs(found['kernels']), []),
    )
    parts = []
    for heading, rows, notes in sections:
        names, *others = rows[0]
        columns = [Column(names, 'row', [row[names] for row in rows])]
        columns += [Column(other, 'score', [row[other] for row in rows]) for other in others]
        parts.append(f'{mark}{heading}\n\n{form(columns, notes).rstrip()}\n')
    return '\n'.join(parts)


def of(records: Sequence[Record], name: str, passes: str) -> list[Record]:
    """Returns the records of one layer type or kernel and one pass."""
    return [record for record in records if record['name'] == name and record['pass'] == passes]


def timed(records: Sequence[Record]) -> list[Record]:
    """Returns the records with seconds."""
    return [record for record in records if 'seconds' in record]


def by_length(records: Sequence[Record], key: str) -> dict[int, float]:
    """Returns a curve over n, without the points that were not run."""
    return {record['n']: record[key] for record in records if record.get(key) is not None}


def crossings(found: Mapping) -> dict[int, float | None]:
    """Returns the n above which self-attention needs more FLOPs than recurrence, by d."""
    curve = lambda records, name: by_length(of(records, name, 'forward'), 'flops')
    crossed = {}
    for d in sorted({record['d'] for record in found['layers']}):
        records = [record for record in found['layers'] if record['d'] == d]
        crossed[d] = measure.crossing(curve(records, 'self-attention'), curve(records, 'recurrent'))
    return crossed


def _table_1(found: Mapping) -> list[TableRow]:
    rows = []
    for kind in layers.TYPES:
        flops, trips = {}, {}
        for passes, end in PASSES.items():
            records = of(found['layers'], kind.name, passes)
            powers = measure.exponents(records, list(kind.exponents), 'flops')
            flops[f'FLOPs{end}'] = ' · '.join(f'{symbol}^{power:.2f}' for symbol, power in powers.items())
            trips[f'trips{end}'] = _of_n(by_length(records, 'steps'))
        rows.append(
            {
                'layer': kind.name,
                'complexity': kind.complexity,
                **flops,
                'sequential operations': kind.steps,
                **trips,
                'maximum path length': kind.path,
                'layers on the path': next(r['written'] for r in found['paths'] if r['name'] == kind.name),
            }
        )
    return rows


def _kernels(found: Mapping) -> list[TableRow]:
    rows = []
    for kernel in layers.KERNELS:
        expected = {'expected FLOPs': f'n^{kernel.flops:g}', 'expected memory': f'n^{kernel.memory:g}'}
        row = {'model.attention': kernel.name, **expected}
        for passes, end in PASSES.items():
            records = of(found['kernels'], kernel.name, passes)
            for heading, key in (('FLOPs', 'flops'), ('memory', 'temporary')):
                row[heading + end] = f'n^{measure.exponents(records, ["n"], key)["n"]:.2f}'
            row[f'trips{end}'] = _of_n(by_length(records, 'steps'))
        rows.append(row)
    return rows


def _paths(records: Sequence[Record]) -> list[TableRow]:
    """Makes a row for each layer type; a length unlike the formula's is printed with the formula's."""
    rows = {}
    for record in records:
        name, length, formula = (record[key] for key in ('name', 'length', 'formula'))
        row = rows.setdefault(name, {'layer': name, 'formula': record['written']})
        row[f'n = {record["n"]}'] = f'{length}' if length == formula else f'{length} ≠ {formula}'
    return list(rows.values())


def _costs(records: Sequence[Record]) -> list[TableRow]:
    """Makes the rows of every cost of every layer and length, the passes side by side."""
    # Three digits, without an exponent.
    short = lambda value: f'{float(f"{value:.3g}"):,.12g}'
    rows = {}
    for record in records:
        name, n, end = record['name'], record['n'], PASSES[record['pass']]
        rows.setdefault((name, n), {'layer': name, 'n': f'{n:,}'}).update(
            {
                f'GFLOPs{end}': short(record['flops'] / 1e9),
                f'trips{end}': f'{record["steps"]:,}',
                f'MiB{end}': f'{record["temporary"] / MIB:,.1f}',
                f'seconds{end}': 'not run' if record['seconds'] is None else short(record['seconds']),
            }
        )
    return list(rows.values())


def _of_n(curve: Mapping[int, float]) -> str:
    """Formats a constant as one number, a multiple of n as such, and any other curve as all its numbers."""
    values, shares = set(curve.values()), {value / n for n, value in curve.items()}
    if len(shares) > 1:
        return ', '.join(f'{value:,}' for value in (values if len(values) == 1 else curve.values()))
    [share] = shares
    if share < 1:
        return f'n/{1 / share:g}'
    return 'n' if share == 1 else f'{share:g}n'


def _notes(found: Mapping) -> list[str]:
    records = timed(found['layers'])
    lengths = [record['n'] for record in records]
    notes = [
        f'Float32, one row of {min(lengths):,} to {max(lengths):,} positions, d = {found["d_model"]} and '
        f'less, d_k = {layers.D_K}. k = {layers.TAPS} and more, dilated by {layers.DILATION}; '
        f'r = {layers.WINDOW} and less on each side. Both passes: forward and backward.',
        "FLOPs: XLA's count for the compiled program, with loop bodies as often as they run; the powers that "
        'fit best by least squares between logarithms. As in the paper, self-attention is without its '
        'projections, which cost 8·n·d² more. The recurrent layer has Elman cells; LSTM cells need four '
        'times as many.',
        'Trips: runs of loop bodies that must follow each other in the compiled program; 1 without a loop.',
    ]
    at = [f'{n:,.0f} at d = {d}' for d, n in crossings(found).items() if n is not None]
    if at:
        notes.append(f'Self-attention needs more FLOPs than recurrence above n = {", ".join(at)}.')
    slower = []
    for passes, end in PASSES.items():
        curves = [by_length(of(records, name, passes), 'seconds') for name in ('self-attention', 'recurrent')]
        if set.intersection(*map(set, curves)):
            slower.append(f'{_where_above(*curves)}{end or ", forward"}')
    if slower:
        notes.append(f'Self-attention takes more seconds than recurrence {"; ".join(slower)}.')
    hardware, versions = found['environment']['hardware'], found['environment']['versions']
    notes.append(
        f'Measured on {found["date"]} in {found["seconds"]:.0f} s with {hardware["devices"]} x '
        f'{hardware["device"]} ({hardware["cpus"]} CPU cores) and jax {versions["jax"]}.'
    )
    return notes


def _where_above(one: Mapping[int, float], other: Mapping[int, float]) -> str:
    """Describes where the first curve over n is above the second."""
    up, down = measure.crossing(one, other), measure.crossing(other, one)
    if up is not None:
        return f'above n = {up:,.0f}'
    if down is not None:
        return f'below n = {down:,.0f}'
    always = all(one[n] > other[n] for n in set(one) & set(other))
    return 'at every n that was measured' if always else 'at no n that was measured'


def _kernel_notes(found: Mapping) -> list[str]:
    def needs(record: Record) -> str:
        passes = PASSES[record['pass']] or ', forward'
        return f'{record["name"]} at n = {record["n"]:,}{passes}, needs {record["needed"] / GIB:.3g} GiB'

    at = {(record['name'], record['n'], record['pass']): record for record in found['kernels']}
    notes, ran = [], by_length(of(found['kernels'], 'full', 'both'), 'seconds')
    if ran:
        saved = []
        for passes, end in PASSES.items():
            full, local = (at[name, max(ran), passes] for name in ('full', 'local'))
            faster, smaller = (full[key] / local[key] for key in ('seconds', 'temporary'))
            saved.append(f'{faster:.1f} times as fast in 1/{smaller:.1f} of the memory{end or ", forward"}')
        against = f'Local attention, r = {layers.WINDOW}, against full at n = {max(ran):,}'
        notes.append(f'{against}: {"; ".join(saved)}.')
    left_out = [record for record in found['kernels'] if record['seconds'] is None]
    limit = f'{found["limit"] / GIB:g} GiB'
    notes += [f'Not run, because it needs more than {limit}: {needs(record)}.' for record in left_out]
    chunked = [at['chunked', record['n'], record['pass']] for record in left_out]
    beside = [f'{needs(record)}.' for record in chunked if record['seconds'] is not None]
    return [*notes, *dict.fromkeys(beside)]


def _path_notes() -> list[str]:
    return [
        'Layers, or recurrent steps, until every output depends on every input at or before its position, by '
        "the sparsity of each layer's Jacobian. All are causal: convolutions of "
        f'k = {layers.TAPS} taps, which if dilated are {layers.TAPS} times as far apart in each layer, and '
        f'self-attention restricted to the r = {measure.NEAR} positions before.'
    ]
