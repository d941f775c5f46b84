"""Prints a table with the paper's numbers and ours, or a table of any runs.

It reads a sweep's sweep.json and the result.json of each run. Significance over
sentences also needs the outputs and texts of the runs, learning curves the metrics.
"""

import pathlib
import sys
from collections.abc import Callable, Sequence

from absl import flags

from experiments.rendering import formats
from experiments.rendering.formats import Column
from experiments.reports import columns, differences, notes, results, sensitivity
from experiments.reports.results import Comparison, Measured
from experiments.sweeps import runs
from experiments.tables import scales, user_files
from transformer import files
from transformer.cli.flags import Call, Command, Flag, Program
from transformer.cli.main import run_program
from transformer.config import ConfigError


def print_report(call: Call) -> None:
    """Prints a report, or writes it to a file."""
    values = call.flags
    text = _sensitivity_text(call) if values.sensitivity else _report_text(call)
    if values.output:
        try:
            files.write_text(pathlib.Path(values.output), text)
        except OSError as error:
            raise ConfigError(f'--output={values.output}: {error.strerror}') from None
        print(values.output)
    else:
        print(text, end='')


def _report_text(call: Call) -> str:
    comparison, form = _comparison(call), call.flags.format
    tests, untested = {}, []
    try:
        tests = differences.test_over_sentences(comparison)
    except ConfigError as error:
        untested = [f'No p over sentences, which needs the outputs and texts of the runs: {error}.']
    lines = [*notes.notes(comparison, tests), *untested]
    if form == 'csv':
        return formats.csv_text(columns.row_records(comparison, tests))
    if form == 'json':
        about = {'title': comparison.title, 'split': comparison.table.split, 'base': comparison.base}
        rows, each_run = columns.row_records(comparison, tests), columns.run_records(comparison)
        return formats.json_text({**about, 'rows': rows, 'runs': each_run, 'notes': lines})
    table = columns.columns(comparison, tests)
    if form == 'html':
        # Imported here, so that the other formats need no matplotlib.
        from experiments.rendering import page

        return page.page(comparison.title, table, lines, *_curves(comparison), comparison.base)
    return FORMATS[form](table, lines)


def _sensitivity_text(call: Call) -> str:
    """How the table's agreement with the paper changes with the options in which sweeps differ."""
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


def _comparison(call: Call) -> Comparison:
    """The sweep or the runs that the call names."""
    values = call.flags
    if call.words:
        _refuse(values, ('workdir', 'table', 'scale'), 'for the report of a sweep only, not with RUN...')
        return results.of_runs(call.words, values.base, values.split)
    folder = _folder(call)
    return results.of_sweep(runs.read_sweep(folder), folder)


def _refuse(values: flags.FlagValues, names: Sequence[str], why: str) -> None:
    """Raises ConfigError where flags are given that do not belong to this report."""
    for name in names:
        if values[name].present:
            raise ConfigError(f'--{name}: {why}')


def _folder(call: Call) -> pathlib.Path:
    """The folder of the sweep that the call names.

    Raises:
      ConfigError: no sweep is named, the sweep has another table or scale, or a flag is for other reports.
    """
    values = call.flags
    _refuse(values, ('base', 'split'), 'for a report of RUN... only; the table of a sweep decides it')
    if values.workdir is None and values.table is None:
        raise ConfigError('--workdir: missing; report needs the folder of a sweep, or the folders of runs')
    table, scale = (user_files.stored_name(name) if name else None for name in (values.table, values.scale))
    folder = pathlib.Path(values.workdir or runs.folder(table, scale or scales.default_scale(table)))
    runs.check_named(folder, runs.read_sweep(folder), table=table, scale=scale)
    return folder


def _curves(comparison: Comparison) -> tuple[str, dict[str, list[list[tuple[int, float]]]]]:
    """The first score on dev during training that the metrics have: its meaning, and every row's curves."""
    lines = {
        row.row.name: [list(runs.metrics(folder)) for folder in _folders(row)] for row in comparison.rows
    }
    names = set().union(*(line for every in lines.values() for run in every for line in run))
    measures = [score.measure for score in comparison.scores]
    measure = next((measure for measure in measures if f'dev_{measure.name}' in names), measures[0])
    key = f'dev_{measure.name}'
    # A number that was too large is null.
    curves = {
        name: [[(line['step'], line[key]) for line in run if line.get(key) is not None] for run in every]
        for name, every in lines.items()
    }
    return measure.meaning, {name: [run for run in every if run] for name, every in curves.items()}


def _folders(row: Measured) -> list[pathlib.Path]:
    return [*(run.folder for run in row.done), *(state.run.folder for state in row.missing)]


FORMATS: dict[str, Callable[[Sequence[Column], Sequence[str]], str] | None] = {
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
        'changes with it; can be given several times',
        'FOLDER',
        many=True,
    ),
    'base': Flag(str, None, 'the RUN that the others are compared with (default: the first)', 'RUN'),
    'split': Flag(str, 'test', 'with RUN...: the split whose scores are compared', 'NAME'),
    'format': Flag(str, 'terminal', 'the format of the table', 'NAME', choices=tuple(FORMATS)),
    'output': Flag(str, None, 'file to write (default: standard output)', 'FILE'),
}
COMMANDS = {
    '': Command(
        "Print a sweep's table, the paper's numbers beside ours; or, for work directories RUN... of any "
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
    """Prints a report and returns the exit status."""
    return run_program(argv, Program('python -m experiments.report', __doc__, COMMANDS, FLAGS))


if __name__ == '__main__':
    sys.exit(main(sys.argv))
