"""Prints a table with the paper's numbers and ours, or a table of any runs.

It reads a sweep's sweep.json and the result.json of each run. Significance over
sentences also needs the runs' outputs and texts; learning curves need the metrics.
"""

import pathlib
import re
import sys
from collections.abc import Callable, Sequence

from absl import flags

from experiments.rendering import curves, formats, page
from experiments.rendering.formats import Column
from experiments.reports import columns, differences, family, notes, results, sensitivity
from experiments.reports.results import Comparison
from experiments.sweeps import runs
from experiments.tables import scales, user_files
from transformer import files
from transformer.cli.flags import Call, Command, Flag, Program
from transformer.cli.main import run_program
from transformer.config import ConfigError
from transformer.runs import metrics_file

FAMILY = 'family'  # the table of all models, which is no sweep's


def print_report(call: Call) -> None:
    """Prints a report, or writes it to a file."""
    values = call.flags
    if values.format != 'latex':
        _refuse(values, ('caption', 'label'), 'for --format=latex only')
    if not re.fullmatch(r'[\w:.-]+', values.label or 'none'):
        raise ConfigError(f'--label={values.label}: use letters, digits and - _ : . only')
    if values.columns is not None and values.format in ('csv', 'json'):
        raise ConfigError(
            f'--columns: not with --format={values.format}, which has the numbers of all columns'
        )
    if values.table == FAMILY:
        text = _family_text(call)
    else:
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
    comparison, form = _of_runs(call) if call.words else _sweep(call)[1], call.flags.format
    tests, untested = {}, []
    try:
        tests = differences.sentence_tests(comparison)
    except ConfigError as error:
        # Named without the folder, which is one machine's.
        reason = str(error).replace(f'{pathlib.Path(call.flags.workdir or ".").resolve()}/', '')
        untested = [f'No p over sentences, which needs the outputs and texts of the runs: {reason}.']
    table = formats.choose(columns.columns(comparison, tests), call.flags.columns)
    lines = [*notes.notes(comparison, table), *untested]
    if form == 'csv':
        return formats.csv_text(columns.row_records(comparison, tests))
    if form == 'json':
        about = {'title': comparison.title, 'split': comparison.table.split, 'base': comparison.base}
        rows, each_run = columns.row_records(comparison, tests), columns.run_records(comparison)
        return formats.json_text({**about, 'rows': rows, 'runs': each_run, 'notes': lines})
    if form == 'html':
        pictures = curves.learning_curves(_curves(comparison), comparison.base)
        return page.document(comparison.title, table, lines, pictures)
    return _render(call, table, lines)


def _family_text(call: Call) -> str:
    """Shows the main models that were trained here, each beside a public number."""
    values = call.flags
    _refuse(values, ('workdir', 'scale', 'sensitivity', 'base', 'split'), f'not with --table={FAMILY}')
    if call.words:
        raise ConfigError(f'{call.words[0]}: --table={FAMILY} reads the committed results alone')
    if values.format == 'csv':
        return formats.csv_text(family.records())
    if values.format == 'json':
        return formats.json_text({'title': FAMILY, 'rows': family.records(), 'notes': family.NOTES})
    if values.format == 'html':
        return page.document(FAMILY, formats.choose(family.columns(), values.columns), family.NOTES, '')
    return _render(call, formats.choose(family.columns(), values.columns), family.NOTES)


def _render(call: Call, table: Sequence[Column], lines: Sequence[str]) -> str:
    """Renders a table as text."""
    values = call.flags
    if values.format == 'latex':
        return formats.latex(table, lines, values.caption, values.label)
    return FORMATS[values.format](table, lines)


def _of_runs(call: Call) -> Comparison:
    _refuse(call.flags, ('workdir', 'table', 'scale'), 'for the report of a sweep only, not with RUN...')
    return results.of_runs(call.words, call.flags.base, call.flags.split)


def _sweep(call: Call) -> tuple[runs.Sweep, Comparison, pathlib.Path]:
    """Reads the sweep that a call names. Returns it, the comparison of its rows, and its folder."""
    values = call.flags
    _refuse(values, ('base', 'split'), 'for a report of RUN... only; the table of a sweep decides it')
    if values.workdir is None and values.table is None:
        raise ConfigError('--workdir: missing; report needs the folder of a sweep, or the folders of runs')
    table = user_files.stored_name(values.table) if values.table else None
    scale = scales.stored_name(values.scale) if values.scale else None
    folder = pathlib.Path(values.workdir or runs.folder(table, scale or scales.default_scale(table)))
    sweep = runs.read_sweep(folder, table=table, scale=scale)
    return sweep, results.of_sweep(sweep, folder), folder


def _refuse(values: flags.FlagValues, names: Sequence[str], why: str) -> None:
    """Raises ConfigError if flags are given that do not belong to this report."""
    for name in names:
        if values[name].present:
            raise ConfigError(f'--{name}: {why}')


def _sensitivity_text(call: Call) -> str:
    """Shows how the table's agreement with the paper depends on the options in which sweeps differ."""
    values = call.flags
    if call.words:
        raise ConfigError('--sensitivity: for the report of a sweep only, not with RUN...')
    if FORMATS[values.format] is None:
        able = ', '.join(name for name, renderer in FORMATS.items() if renderer)
        raise ConfigError(f'--format={values.format}: with --sensitivity choose one of {able}')
    *first, folder = _sweep(call)
    compared, known = {str(folder): first}, {folder.resolve()}
    for other in map(pathlib.Path, values.sensitivity):
        if other.resolve() in known:
            raise ConfigError(f'--sensitivity={other}: named twice')
        known.add(other.resolve())
        sweep = runs.read_sweep(other)
        compared[str(other)] = sweep, results.of_sweep(sweep, other)
    table, lines = sensitivity.columns(compared)
    return _render(call, formats.choose(table, values.columns), lines)


def _curves(comparison: Comparison) -> dict[str, list[list[tuple[int, float]]]]:
    """Reads the steps and dev losses of every row's runs, recorded during training."""
    folders = {
        row.row.name: [*(run.folder for run in row.done), *(state.run.folder for state in row.missing)]
        for row in comparison.rows
    }
    return {name: list(filter(None, map(metrics_file.dev_losses, own))) for name, own in folders.items()}


FORMATS: dict[str, Callable[[Sequence[Column], Sequence[str]], str] | None] = {
    'terminal': formats.terminal,
    'markdown': formats.markdown,
    'latex': formats.latex,
    'html': None,
    'csv': None,
    'json': None,
}
FLAGS = {
    'workdir': Flag(
        str, None, 'folder of a sweep (default with --table: runs/table<table>-<scale>)', 'FOLDER'
    ),
    'table': Flag(
        str,
        None,
        'the table of the sweep; a folder with another table is refused. Or family: the main models '
        'that were trained here, each beside a public number',
        'NAME',
    ),
    'scale': Flag(str, None, 'the scale of the sweep; a folder with another scale is refused', 'NAME'),
    'sensitivity': Flag(
        str,
        [],
        "folder of a sweep that differs in an option: prints how the option changes the table's agreement "
        'with the paper; may be repeated',
        'FOLDER',
        many=True,
    ),
    'base': Flag(str, None, 'the RUN with which the others are compared (default: the first)', 'RUN'),
    'split': Flag(str, 'test', 'with RUN...: the split whose scores are compared', 'NAME'),
    'format': Flag(str, 'terminal', 'the format of the table', 'NAME', choices=tuple(FORMATS)),
    'columns': Flag(str, None, 'only these columns, by heading, separated by commas', 'NAMES'),
    'caption': Flag(str, None, 'with --format=latex: the caption, in LaTeX', 'TEXT'),
    'label': Flag(str, None, 'with --format=latex: the label, such as tab:ablation', 'NAME'),
    'output': Flag(str, None, 'file to write (default: standard output)', 'FILE'),
}
COMMANDS = {
    '': Command(
        "Print a sweep's table, the paper's numbers beside ours; or, for work directories RUN... of any "
        'trainings of one task, a table with a row for each and the options in which they differ.',
        print_report,
        tuple(FLAGS),
        examples=(
            '{} --workdir=FOLDER',
            '{} --workdir=FOLDER --format=html --output=FILE',
            '{} --workdir=FOLDER --columns="PPL,PPL ours"',
            '{} --workdir=FOLDER --sensitivity=FOLDER',
            '{} runs/tiny runs/tiny-h=2 --base=tiny',
            '{} --table=family --format=markdown',
        ),
        words=('[RUN...]',),
    )
}


def main(argv: Sequence[str]) -> int:
    """Prints a report and returns the exit status."""
    return run_program(argv, Program('python -m experiments.report', __doc__, COMMANDS, FLAGS))


if __name__ == '__main__':
    sys.exit(main(sys.argv))
