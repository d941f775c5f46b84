"""Prints a table with the paper's numbers and ours, or a table of any runs.

A sweep's sweep.json and the result.json of each run are enough; significance over
sentences needs the translations and references too, and learning curves the metrics.
"""

import json
import math
import pathlib
import statistics
import sys
from collections.abc import Callable, Sequence

from absl import flags

from experiments.rendering import formats
from experiments.rendering.formats import Column
from experiments.reports import differences, numbers, results, sensitivity
from experiments.reports.differences import Difference
from experiments.reports.numbers import Tests
from experiments.reports.results import Comparison, Measured
from experiments.sweeps import runs
from experiments.tables import rows as tables
from experiments.tables import scales, user_files
from transformer import config as configs
from transformer import files
from transformer.cli.flags import Call, Command, Flag, Program
from transformer.cli.main import run_program
from transformer.config import ConfigError


def columns(comparison: Comparison, tests: Tests) -> list[Column]:
    """The columns of the table, without those that are empty and those of options that no row changes.

    Args:
      tests: as `differences.over_sentences` gives them.
    """
    found = [Column('row', 'row', [row.row.name for row in comparison.rows]), *_options(comparison)]
    for measure in comparison.table.measures:
        found += _measured(comparison, measure, tests)
    found += _costs(comparison)
    return [column for column in found if any(column.texts)]


def _options(comparison: Comparison) -> list[Column]:
    names = _short(comparison.options)
    base = comparison.base_row() or comparison.rows[0]
    found = []
    for key in comparison.options:
        texts = [_option(row, base, key) for row in comparison.rows]
        changed = any(text for row, text in zip(comparison.rows, texts, strict=True) if row is not base)
        if changed and set(texts) != {tables.NONE}:
            found.append(Column(names[key], 'option', texts))
    others = [_others(row, comparison.options) for row in comparison.rows]
    return [*found, Column('other', 'option', others)]


def _short(keys: Sequence[str]) -> dict[str, str]:
    """The names of options without their group, where that is clear."""
    short = [key.partition('.')[2] for key in keys]
    return {key: name if short.count(name) == 1 else key for key, name in zip(keys, short, strict=True)}


def _option(row: Measured, base: Measured, key: str) -> str:
    """An option as the row is written and what it became at this scale.

    It is empty where it is base's, and a dash where it means nothing for the row's model.
    """
    written, of_base = (configs.flatten(config)[key] for config in (row.written, base.written))
    ours, theirs = (tables.value_of(config, key) for config in (row.config, base.config))
    if ours is None:
        return tables.NONE
    if row is not base and written == of_base and theirs is not None:
        return ''
    shown = tables.shown(key, written)
    return shown if written == ours else f'{shown} → {tables.shown(key, ours)}'


def _others(row: Measured, options: Sequence[str]) -> str:
    """What a row changes besides the options that have columns."""
    return ', '.join(f'{k.partition(".")[2]}={v}' for k, v in row.changed.items() if k not in options)


def _measured(comparison: Comparison, measure: tables.Measure, tests: Tests) -> list[Column]:
    """The columns of a measure: the paper's number and ours, and their differences from base."""
    rows, split = comparison.rows, comparison.table.split
    ours, papers = f'.{measure.decimals}f', f'.{measure.paper_decimals}f'
    different = differences.differences(comparison, measure)
    of_row = [different.get(row.row.name, Difference(None, None)) for row in rows]
    seeds = [pair.over_seeds for pair in of_row]
    values = [list(row.scores(split, measure.path).values()) for row in rows]
    name, mine = measure.name, ' ours' if comparison.several else ''
    found = [
        Column(name, 'score', [_number(differences.paper(row.row, measure), papers) for row in rows]),
        Column(
            f'{name}{mine}',
            'score',
            [_spread(row, some, ours) for row, some in zip(rows, values, strict=True)],
            [len(some) if comparison.several else 0 for some in values],
        ),
        Column(f'Δ{name}', 'score', [_number(pair.paper, f'+{papers}') for pair in of_row]),
        Column(f'Δ{name}{mine}', 'score', [_difference(pair, f'+{ours}') for pair in of_row]),
        Column(f'Δ{name} 95%', 'score', [_interval(test, f'+{ours}') for test in seeds]),
    ]
    if not measure.significance:
        return found
    tested = [tests.get(row.row.name, ()) for row in rows]
    counts = [len(some) if comparison.several else 0 for some in tested]
    return [
        *found,
        Column('p seeds', 'score', [_p(test.p) if test else '' for test in seeds]),
        Column('p sentences', 'score', [_agreement(some) if some else '' for some in tested], counts),
    ]


def _difference(pair: Difference, form: str) -> str:
    """Our difference from base, marked where the seeds cannot tell it from none."""
    unclear = pair.over_seeds is not None and not pair.over_seeds.is_told
    return _number(pair.ours, form) + (' ≈' if unclear else '')


def _interval(test: differences.SeedTest | None, form: str) -> str:
    return f'[{test.low:{form}}, {test.high:{form}}]' if test else ''


def _agreement(tests: Sequence[tuple[float, float]]) -> str:
    """What differences and their p say together."""
    return 'mixed' if differences.disagree(tests) else _p(max(p for _, p in tests))


def _p(value: float) -> str:
    return f'{value:.3f}' if value >= 0.001 else '<0.001'


def _costs(comparison: Comparison) -> list[Column]:
    rows, ours = comparison.rows, ' ours' if comparison.several else ''
    speeds = [_number(numbers.speed(row), ',.0f') for row in rows] if comparison.table.speed else []
    return [
        Column('params', 'cost', [_number(row.row.paper.get('params'), 'g', 'M') for row in rows]),
        Column(
            f'params{ours}',
            'cost',
            [f'{row.done[0].result["params"] / 1e6:.2f}M' if row.done else '' for row in rows],
        ),
        Column('FLOPs', 'cost', [_number(row.row.paper.get('FLOPs'), '.1e') for row in rows]),
        Column(f'FLOPs{ours}', 'cost', [_number(numbers.flops(row), '.2e') for row in rows]),
        Column('tokens/s', 'cost', speeds),
        Column('hours', 'cost', [_number(numbers.hours(row), '.3g') for row in rows]),
    ]


def _number(value: float | None, form: str, unit: str = '') -> str:
    return '' if value is None else f'{value:{form}}{unit}'


def _spread(row: Measured, values: list[float], form: str) -> str:
    """Mean and standard deviation over seeds; without results, why there are none."""
    if not values and row.done:
        return ''
    if not values:
        states = [state.state for state in row.missing]
        return states[0] if states[0] != 'done' else 'missing'
    several = len(values) > 1 and all(map(math.isfinite, values))
    deviation = f' ±{statistics.stdev(values):{form}}' if several else ''
    return f'{statistics.mean(values):{form}}{deviation}{"*" if row.is_unlike else ""}'


def notes(comparison: Comparison, tests: Tests) -> list[str]:
    """What stands below the table: what its numbers are, how they agree with the paper's, what is missing.

    Args:
      tests: as `differences.over_sentences` gives them.
    """
    found = [_caption(comparison, tests), *filter(None, [comparison.scale]), *_same_everywhere(comparison)]
    for measure in comparison.table.measures:
        pairs = differences.differences(comparison, measure).values()
        if any(pair.paper is not None for pair in pairs):
            told = _correlation(differences.correlation(pairs))
            found.append(f"Rank correlation of the Δ{measure.name} with the paper's: {told}")
    found += differences.told(comparison)
    base = comparison.base_row()
    if same := [row.row.name for row in comparison.rows if differences.is_base(row, base)]:
        where = 'at this scale' if comparison.several else 'but for its results'
        found.append(f'The same as {comparison.base} {where}: {", ".join(same)}')
    found += [*_scored_otherwise(comparison), *differences.other_pieces(comparison)]
    missing = [state for row in comparison.rows for state in row.missing]
    found += [f'{s.run.name}: {s.state} at step {s.step}: {s.error}' for s in missing if s.error]
    for name in runs.STATES:
        if these := [state.run.name for state in missing if state.state == name and not state.error]:
            found.append(f'{name}: {", ".join(these)}')
    if comparison.left_out:
        found.append(f'Rows of the table that were not chosen: {", ".join(comparison.left_out)}')
    hardware = {json.dumps(run.result['hardware']) for row in comparison.rows for run in row.done}
    for text in sorted(hardware):
        one = json.loads(text)
        cores = f'{one["cpus"]} CPU core{"s" if one["cpus"] > 1 else ""}'
        found.append(f'Trained on {one["devices"]} x {one["device"]} ({cores}).')
    return found


def _caption(comparison: Comparison, tests: Tests) -> str:
    """What the numbers of a table are."""
    table, several = comparison.table, comparison.several
    known = [
        pair
        for measure in table.measures
        for pair in differences.differences(comparison, measure).values()
        if (pair.paper, pair.ours) != (None, None)
    ]
    *first, last = (measure.meaning for measure in table.measures)
    meanings = f'{", ".join(first)} and {last}' if first else last
    greatest = ', the greatest of those seeds (how many), mixed where some are better and some worse'
    explained = (
        ' 95%, p seeds: by a t-test of the differences, one for each seed; ≈: the interval holds 0, so the '
        f'row cannot be told from {comparison.base} (of twenty rows just like it, one is expected to differ '
        'by chance).'
    )
    explained = explained if any(pair.over_seeds for pair in known) else ''
    explained += ''.join(
        f' p sentences: of the {measure.name} difference by paired bootstrap over the sentences, which knows '
        f'nothing of seeds{greatest if several else ""}.'
        for measure in table.measures
        if measure.significance and tests
    )
    deviation = ' ± standard deviation' if any(len(row.done) > 1 for row in comparison.rows) else ''
    ours = f' Ours: mean{deviation} (seeds).' if several else ''
    shared = ', ours over the seeds that both have' if several else ''
    base = f' Δ: difference from {comparison.base}{shared}.' if known else ''
    papers = any(row.row.paper for row in comparison.rows) and table.citation
    cited = f' Numbers that are not ours: {table.citation}.' if papers else ''
    about = f'{comparison.subject}: {meanings} on {table.split}.'
    speed = ' tokens/s: target tokens, the median of what a training reported.' if table.speed else ''
    return f'{about}{ours}{base}{explained}{speed} hours: of training.{cited}'


def _same_everywhere(comparison: Comparison) -> list[str]:
    """The options of the table that no row changes, and so have no column."""
    base = comparison.base_row() or comparison.rows[0]
    names = _short(comparison.options)
    texts = {key: [_option(row, base, key) for row in comparison.rows if row is not base] for key in names}
    known = [key for key in names if not any(texts[key]) and tables.value_of(base.config, key) is not None]
    same = [f'{names[key]} {_option(base, base, key)}' for key in known]
    return [f'In every row: {", ".join(same)}'] if same else []


def _scored_otherwise(comparison: Comparison) -> list[str]:
    """Which runs are not compared, and why."""
    unlike = [run for row in comparison.rows for run in row.done if run.unlike]
    if not unlike:
        return []
    told = '; '.join(f'{run.name}: {run.unlike}' for run in unlike)
    marked = ' (*)' if any(row.is_unlike for row in comparison.rows) else ''
    return [f'Not scored as {comparison.base} and so left out of the differences{marked}: {told}']


def _correlation(found: differences.Correlation | None) -> str:
    if found is None:
        return 'needs three rows that differ'
    resampled = ''
    if found.low is not None:
        # See `differences.Correlation`.
        resampled = (
            f'; middle 95 % over {found.seeds} resampled seeds, usually narrower than a confidence interval: '
            f'[{found.low:.2f}, {found.high:.2f}]'
        )
    return f'{found.value:.2f} (Spearman, {found.rows} rows, p {found.p:.2g}{resampled})'


def print_report(call: Call) -> None:
    """Prints a report, or writes it to a file."""
    values = call.flags
    text = _agreement_by_option(call) if values.sensitivity else _report(call)
    if values.output:
        try:
            files.write_text(pathlib.Path(values.output), text)
        except OSError as error:
            raise ConfigError(f'--output={values.output}: {error.strerror}') from None
        print(values.output)
    else:
        print(text, end='')


def _report(call: Call) -> str:
    comparison = _compared(call)
    tests, untested = {}, []
    try:
        tests = differences.over_sentences(comparison)
    except ConfigError as error:
        untested = [
            f'There is no p over sentences, which needs the translations and references of the runs: {error}.'
        ]
    told = [*notes(comparison, tests), *untested]
    return _rendered(comparison, tests, told, call.flags.format)


def _agreement_by_option(call: Call) -> str:
    """How the table's agreement with the paper changes with what the sweeps differ in."""
    values = call.flags
    if call.words:
        raise ConfigError('--sensitivity: for the report of a sweep only, not with RUN...')
    if FORMATS[values.format] is None:
        able = ', '.join(name for name, renderer in FORMATS.items() if renderer)
        raise ConfigError(f'--format={values.format}: with --sensitivity choose one of {able}')
    folders = [_folder(call), *map(pathlib.Path, values.sensitivity)]
    for i, folder in enumerate(folders):
        if folder.resolve() in [other.resolve() for other in folders[:i]]:
            raise ConfigError(f'--sensitivity={folder}: named twice')
    sweeps = {str(folder): runs.read_sweep(folder) for folder in folders}
    compared = {name: (sweep, results.of_sweep(sweep, pathlib.Path(name))) for name, sweep in sweeps.items()}
    return FORMATS[values.format](*sensitivity.columns(compared))


def _rendered(comparison: Comparison, tests: Tests, told: list[str], form: str) -> str:
    """The report in a format."""
    if form == 'csv':
        return formats.csv_text(numbers.of_rows(comparison, tests))
    if form == 'json':
        about = {'title': comparison.title, 'split': comparison.table.split, 'base': comparison.base}
        rows = {'rows': numbers.of_rows(comparison, tests), 'runs': numbers.of_runs(comparison)}
        return formats.json_text({**about, **rows, 'notes': told})
    shown = columns(comparison, tests)
    if form == 'html':
        # Imported here, so that the other formats need no matplotlib.
        from experiments.rendering import page

        curves = {row.row.name: _curves(row) for row in comparison.rows}
        return page.page(comparison.title, shown, told, curves, comparison.base)
    return FORMATS[form](shown, told)


def _compared(call: Call) -> Comparison:
    """What the call names: a sweep, or runs."""
    values = call.flags
    if call.words:
        _refuse(values, ('workdir', 'table', 'scale'), 'for the report of a sweep only, not with RUN...')
        return results.of_runs(call.words, values.base, values.split)
    folder = _folder(call)
    return results.of_sweep(runs.read_sweep(folder), folder)


def _refuse(values: flags.FlagValues, names: Sequence[str], why: str) -> None:
    """Refuses the flags that do not belong to this report."""
    for name in names:
        if values[name].present:
            raise ConfigError(f'--{name}: {why}')


def _folder(call: Call) -> pathlib.Path:
    """The folder of the sweep that the call names.

    Raises:
      ConfigError: it names none, or the sweep is of another table or scale; or a flag is of other reports.
    """
    values = call.flags
    _refuse(values, ('base', 'split'), 'for a report of RUN... only; the table of a sweep decides it')
    if values.workdir is None and values.table is None:
        raise ConfigError('--workdir: missing; report needs the folder of a sweep, or the folders of runs')
    table, scale = (user_files.kept(name) if name else None for name in (values.table, values.scale))
    folder = pathlib.Path(values.workdir or runs.folder(table, scale or scales.default_scale(table)))
    sweep = runs.read_sweep(folder)
    for flag, asked, found in (('table', table, sweep.table), ('scale', scale, sweep.scale)):
        if asked not in (None, found):
            raise ConfigError(f'--{flag}={asked}: {folder} is of {flag} {found}')
    return folder


def _curves(row: Measured) -> list[list[tuple[int, float]]]:
    """The steps and perplexities on the development set, of every run."""
    found = []
    for folder in (*(run.folder for run in row.done), *(state.run.folder for state in row.missing)):
        # One too large for a number is null.
        lines = [line for line in runs.metrics(folder) if line.get('dev_perplexity') is not None]
        found.append([(line['step'], line['dev_perplexity']) for line in lines])
    return [curve for curve in found if curve]


Renderer = Callable[[Sequence[Column], Sequence[str]], str]
FORMATS: dict[str, Renderer | None] = {
    'terminal': formats.terminal,
    'markdown': formats.markdown,
    'latex': formats.latex,
    'html': None,
    'csv': None,
    'json': None,
}
FLAGS = {
    'workdir': Flag(str, None, 'folder of a sweep (default: runs/table<table>-<scale>)', 'FOLDER'),
    'table': Flag(str, None, 'the table of the sweep; a folder with another one is refused', 'NAME'),
    'scale': Flag(str, None, 'the scale of the sweep; a folder with another one is refused', 'NAME'),
    'sensitivity': Flag(
        str,
        [],
        "folder of a sweep that differs in an option: prints how the table's agreement with the paper "
        'changes with it; may be given several times',
        'FOLDER',
        many=True,
    ),
    'base': Flag(str, None, 'the RUN that the others are compared with (default: the first)', 'RUN'),
    'split': Flag(str, 'test', 'with RUN...: the split whose scores are compared', 'NAME'),
    'format': Flag(str, 'terminal', 'how to print it', 'NAME', choices=tuple(FORMATS)),
    'output': Flag(str, None, 'file to write (default: standard output)', 'FILE'),
}
COMMANDS = {
    '': Command(
        "Print a sweep's table, the paper's numbers beside ours; or, of work directories RUN... of any "
        'trainings of one task, a row each with the options in which they differ.',
        print_report,
        tuple(FLAGS),
        examples=(
            '{} --workdir=FOLDER',
            '{} --workdir=FOLDER --format=html --output=FILE',
            '{} --workdir=FOLDER --sensitivity=FOLDER',
            '{} runs/tiny runs/tiny-h=2 --base=tiny',
        ),
        words=('[RUN...]',),
    )
}


def main(argv: Sequence[str]) -> int:
    """Prints a report. Returns the exit status."""
    return run_program(argv, Program('python -m experiments.report', __doc__, COMMANDS, FLAGS))


if __name__ == '__main__':
    sys.exit(main(sys.argv))
