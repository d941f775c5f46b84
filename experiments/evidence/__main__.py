"""Measures the paper's noise, predicts its perplexities, and prices omissions.

    python -m experiments.evidence noise
    python -m experiments.evidence predict
    python -m experiments.evidence omissions

These print tables, by default from committed results, in about ten seconds.
"""

import functools
import pathlib
import sys
from collections.abc import Callable, Sequence

from experiments.evidence import noise_tables, omissions, prediction_tables, sealed, sections, trainings
from experiments.evidence.sections import Section
from experiments.rendering import formats
from transformer import files
from transformer.cli.flags import Call, Command, Flag, Program
from transformer.cli.main import run_program
from transformer.config import ConfigError

_FORMATS = {'terminal': (formats.terminal, ''), 'markdown': (formats.markdown, '### ')}


def print_omissions(call: Call) -> None:
    """Prints what omissions cost; with --count it first counts BLEU of the outputs by other rules."""
    folder = pathlib.Path(call.flags.workdir or omissions.COMMITTED)
    if call.flags.count:
        if not call.flags.workdir:
            raise ConfigError('--count: needs --workdir, a sweep of yours; the committed one has no outputs')
        omissions.count(folder)
    _print(call, functools.partial(omissions.sections, folder))


def _print(call: Call, make: Callable[[], list[Section]]) -> None:
    print(sections.text(make(), *_FORMATS[call.flags.format]), end='')


def _output(call: Call) -> pathlib.Path:
    path = pathlib.Path(call.flags.output)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def collect(call: Call) -> None:
    """Extracts the final scores of public trainings from their evaluations."""
    (folder,) = call.words
    final = trainings.collect(pathlib.Path(folder))
    files.write_json(_output(call), final)
    print(call.flags.output)


def seal(call: Call) -> None:
    """Writes predictions to a new file, with a date."""
    if call.flags.date is None:
        raise ConfigError('--date: missing; name the day on which the predictions are made')
    sealed.write(_output(call), call.flags.date)
    print(call.flags.output)


COMMANDS = {
    'noise': Command(
        "Print the deviation of public trainings over seeds, which differences of the paper's Tables 2 "
        'and 3 are beyond it, and the ceiling that it sets to the rank correlation with Table 3.',
        lambda call: _print(call, noise_tables.sections),
        ('format',),
        examples=('{} noise', '{} noise --format=markdown'),
    ),
    'predict': Command(
        "Print the perplexities of the paper's rows as small trainings predict them, each by the other "
        'rows, and the sealed predictions.',
        lambda call: _print(call, prediction_tables.sections),
        ('format',),
        examples=('{} predict',),
    ),
    'omissions': Command(
        'Print what it costs to omit one thing in training (the rows of the table omissions), in averaging '
        "or search (later evaluations of base's runs), or in counting BLEU.",
        print_omissions,
        ('workdir', 'count', 'format'),
        examples=('{} omissions', '{} omissions --workdir=runs/omissions --count'),
    ),
    'collect': Command(
        'Extract the final scores of public trainings from the lines of FOLDER/runs.tsv, one an evaluation.',
        collect,
        ('output',),
        examples=('{} collect FOLDER --output=FILE',),
        words=('FOLDER',),
    ),
    'seal': Command(
        'Write predictions of rows that nobody has printed to a new file.',
        seal,
        ('output', 'date'),
        examples=('{} seal --date=2026-11-27 --output=FILE',),
    ),
}
FLAGS = {
    'format': Flag(str, 'terminal', 'the format of the tables', 'NAME', choices=tuple(_FORMATS)),
    'workdir': Flag(str, None, 'the folder of a sweep (default: the committed one)', 'FOLDER'),
    'count': Flag(bool, False, 'count BLEU of the outputs of base by other rules, too, and keep it there'),
    'output': Flag(str, 'runs/evidence.json', 'the file to write', 'FILE'),
    'date': Flag(str, None, 'the day on which the predictions are made, such as 2026-11-27', 'DATE'),
}


def main(argv: Sequence[str]) -> int:
    """Runs a command. Returns the exit status."""
    return run_program(argv, Program('python -m experiments.evidence', __doc__, COMMANDS, FLAGS))


if __name__ == '__main__':
    sys.exit(main(sys.argv))
