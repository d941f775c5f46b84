"""Tables of the measurements: Table 1, the attention kernels, path lengths, and every cost by length."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from experiments.complexity import layers, measure
from experiments.complexity.measure import GIB, Record
from experiments.rendering import formats
from experiments.rendering.formats import Column

# The end of a heading, by pass.
PASSES = {'forward': '', 'both': ', both passes'}
MIB = 2**20


class Section(NamedTuple):
    """A table with its heading and notes."""

    heading: str
    columns: list[Column]
    notes: list[str]


def sections(found: Mapping) -> list[Section]:
    """All tables of the measurements that `measure.everything` made."""
    return [
        Section('Table 1, measured', _table_1(found), _notes(found)),
        Section('Attention kernels', _kernels(found), _kernel_notes(found)),
        Section('Maximum path lengths', _paths(found['paths']), _path_notes()),
        Section('Layers by length', _costs(_timed(found['layers'])), []),
        Section('Attention kernels by length', _costs(found['kernels']), []),
    ]


def terminal(found: Mapping) -> str:
    """The tables for a terminal."""
    return _pages(found, '', formats.terminal)


def markdown(found: Mapping) -> str:
    """The tables as Markdown."""
    return _pages(found, '## ', formats.markdown)


def _pages(found: Mapping, mark: str, shown: Callable[[list[Column], list[str]], str]) -> str:
    parts = (f'{mark}{s.heading}\n\n{shown(s.columns, s.notes).rstrip()}\n' for s in sections(found))
    return '\n'.join(parts)


def of(records: Sequence[Record], name: str, passes: str) -> list[Record]:
    """The records of one layer type or kernel and one pass."""
    return [record for record in records if record['name'] == name and record['pass'] == passes]


def by_length(records: Sequence[Record], key: str) -> dict[int, float]:
    """A curve over n, without the points that were not run."""
    return {record['n']: record[key] for record in records if record.get(key) is not None}


def crossings(found: Mapping) -> dict[int, float | None]:
    """The n at which self-attention comes to need more FLOPs than recurrence, by d."""
    curve = lambda name, d: by_length(
        [r for r in of(found['layers'], name, 'forward') if r['d'] == d], 'flops'
    )
    widths = sorted({record['d'] for record in found['layers']})
    return {d: measure.crossing(curve('self-attention', d), curve('recurrent', d)) for d in widths}


def _table_1(found: Mapping) -> list[Column]:
    rows = []
    for kind in layers.TYPES:
        records = {passes: of(found['layers'], kind.name, passes) for passes in PASSES}
        powers = {p: measure.exponents(records[p], list(kind.exponents), 'flops') for p in PASSES}
        product = lambda powers: ' · '.join(f'{symbol}^{power:.2f}' for symbol, power in powers.items())
        rows.append(
            {
                'layer': kind.name,
                'complexity': kind.complexity,
                **{f'FLOPs{end}': product(powers[p]) for p, end in PASSES.items()},
                'sequential operations': kind.steps,
                **{f'trips{end}': _of_n(by_length(records[p], 'steps')) for p, end in PASSES.items()},
                'maximum path length': kind.path,
                'layers on the path': next(r['written'] for r in found['paths'] if r['name'] == kind.name),
            }
        )
    return _columns(rows)


def _kernels(found: Mapping) -> list[Column]:
    rows = []
    for kernel in layers.KERNELS:
        row = {
            'model.attention': kernel.name,
            'expected FLOPs': f'n^{kernel.flops:g}',
            'expected memory': f'n^{kernel.memory:g}',
        }
        for passes, end in PASSES.items():
            records = of(found['kernels'], kernel.name, passes)
            power = lambda key, records=records: f'n^{measure.exponents(records, ["n"], key)["n"]:.2f}'
            row |= {f'FLOPs{end}': power('flops'), f'memory{end}': power('temporary')}
            row[f'trips{end}'] = _of_n(by_length(records, 'steps'))
        rows.append(row)
    return _columns(rows)


def _paths(records: Sequence[Record]) -> list[Column]:
    names = list(dict.fromkeys(record['name'] for record in records))
    lengths = sorted({record['n'] for record in records})
    at = {(record['name'], record['n']): record for record in records}

    def text(record: Record) -> str:
        """The length, and the formula's where it differs."""
        agrees = record['length'] == record['formula']
        return str(record['length']) if agrees else f'{record["length"]} ≠ {record["formula"]}'

    return _columns(
        [
            {'layer': name, 'formula': at[name, lengths[0]]['written']}
            | {f'n = {n}': text(at[name, n]) for n in lengths}
            for name in names
        ]
    )


def _costs(records: Sequence[Record]) -> list[Column]:
    """Every cost of every layer and length, the passes side by side."""
    at = {(record['name'], record['n'], record['pass']): record for record in records}
    rows = []
    for name, n in dict.fromkeys((record['name'], record['n']) for record in records):
        row = {'layer': name, 'n': f'{n:,}'}
        for passes, end in PASSES.items():
            record = at[name, n, passes]
            row |= {
                f'GFLOPs{end}': _short(record['flops'] / 1e9),
                f'trips{end}': f'{record["steps"]:,}',
                f'MiB{end}': f'{record["temporary"] / MIB:,.1f}',
                f'seconds{end}': 'not run' if record['seconds'] is None else _short(record['seconds']),
            }
        rows.append(row)
    return _columns(rows)


def _short(value: float) -> str:
    """Three digits, without an exponent."""
    return f'{float(f"{value:.3g}"):,.12g}'


def _columns(rows: Sequence[Mapping[str, str]]) -> list[Column]:
    """A column for each heading; the first one names the rows."""
    kinds = {heading: 'row' if i == 0 else 'score' for i, heading in enumerate(rows[0])}
    return [Column(heading, kind, [row[heading] for row in rows]) for heading, kind in kinds.items()]


def _timed(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if 'seconds' in record]


def _of_n(curve: Mapping[int, float]) -> str:
    """The number if it is constant, its multiple of n if it is proportional to n, else all numbers."""
    if len(set(curve.values())) == 1 and len(curve) > 1:
        return f'{next(iter(curve.values())):,}'
    shares = {value / n for n, value in curve.items()}
    if len(shares) > 1:
        return ', '.join(f'{value:,}' for value in curve.values())
    (share,) = shares
    if share < 1:
        return f'n/{1 / share:g}'
    return 'n' if share == 1 else f'{share:g}n'


def _notes(found: Mapping) -> list[str]:
    timed = _timed(found['layers'])
    lengths = [record['n'] for record in timed]
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
        curves = [by_length(of(timed, name, passes), 'seconds') for name in ('self-attention', 'recurrent')]
        if set.intersection(*map(set, curves)):
            slower.append(f'{_where_above(*curves)}{end or ", forward"}')
    if slower:
        notes.append(f'Self-attention takes more seconds than recurrence {"; ".join(slower)}.')
    return [*notes, _where_measured(found)]


def _where_above(one: Mapping[int, float], other: Mapping[int, float]) -> str:
    """Where the first curve over n lies above the second, in words."""
    up, down = measure.crossing(one, other), measure.crossing(other, one)
    if up is not None:
        return f'above n = {up:,.0f}'
    if down is not None:
        return f'below n = {down:,.0f}'
    always = all(one[n] > other[n] for n in set(one) & set(other))
    return 'at every n that was measured' if always else 'at no n that was measured'


def _kernel_notes(found: Mapping) -> list[str]:
    notes = _restricted(found)
    limit = f'{found["limit"] / GIB:g} GiB'
    left_out = [record for record in found['kernels'] if record['seconds'] is None]
    for record in left_out:
        notes.append(f'Not run, because it needs more than {limit}: {_needs(record)}.')
    for record in left_out:
        chunked = of(found['kernels'], 'chunked', record['pass'])
        notes += [
            f'{_needs(other)}.' for other in chunked if other['n'] == record['n'] and other not in left_out
        ]
    return notes


def _needs(record: Record) -> str:
    passes = PASSES[record['pass']] or ', forward'
    return f'{record["name"]} at n = {record["n"]:,}{passes}, needs {record["needed"] / GIB:.3g} GiB'


def _restricted(found: Mapping) -> list[str]:
    """How much local attention saves at the greatest length at which full attention ran, if it did."""
    ran = by_length(of(found['kernels'], 'full', 'both'), 'seconds')
    if not ran:
        return []
    n = max(ran)
    saved = []
    for passes, end in PASSES.items():
        full, local = (
            next(record for record in of(found['kernels'], name, passes) if record['n'] == n)
            for name in ('full', 'local')
        )
        faster, smaller = (full[key] / local[key] for key in ('seconds', 'temporary'))
        saved.append(f'{faster:.1f} times as fast in 1/{smaller:.1f} of the memory{end or ", forward"}')
    return [f'Local attention, r = {layers.WINDOW}, against full at n = {n:,}: {"; ".join(saved)}.']


def _path_notes() -> list[str]:
    return [
        'Layers, or recurrent steps, until every output depends on every input at or before its position, by '
        "the sparsity of each layer's Jacobian. All are causal: convolutions of "
        f'k = {layers.TAPS} taps, which if dilated are {layers.TAPS} times as far apart in each layer, and '
        f'self-attention restricted to the r = {measure.NEAR} positions before.'
    ]


def _where_measured(found: Mapping) -> str:
    """When and on what hardware the measurements were made."""
    hardware, versions = found['environment']['hardware'], found['environment']['versions']
    return (
        f'Measured on {found["date"]} in {found["seconds"]:.0f} s with {hardware["devices"]} x '
        f'{hardware["device"]} ({hardware["cpus"]} CPU cores) and jax {versions["jax"]}.'
    )
