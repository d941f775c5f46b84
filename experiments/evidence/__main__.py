"""Measures how sure the paper's numbers are, and predicts its perplexities.

    python -m experiments.evidence noise
    python -m experiments.evidence predict

Both print tables from committed results within a minute.
"""

import pathlib
import sys
from collections.abc import Callable, Sequence

from experiments.evidence import noise_tables, prediction_tables, sealed, sections, trainings
from experiments.evidence.sections import Section
from experiments.rendering import formats
from transformer import files
from transformer.cli.flags import Call, Command, Flag, Program
from transformer.cli.main import run_program
from transformer.config import ConfigError

_FORMATS = {'terminal': (formats.terminal, ''), 'markdown': (formats.markdown, '### ')}


def print_noise(call: Call) -> None:
    """Prints the noise of single trainings, and the differences in the paper's Tables 2 and 3 beyond it."""
    _print(call, noise_tables.sections)


def print_predictions(call: Call) -> None:
    """Prints the paper's perplexities as small trainings predict them, and the sealed predictions."""
    _print(call, prediction_tables.sections)


def _print(call: Call, make: Callable[[], list[Section]]) -> None:
    print(sections.text(make(), *_FORMATS[call.flags.format]), end='')


def collect(call: Call) -> None:
    """Extracts the final scores of public trainings from their evaluations."""
    (folder,) = call.words
    files.write_json(pathlib.Path(call.flags.output), trainings.collect(pathlib.Path(folder)))
    print(call.flags.output)


def seal(call: Call) -> None:
    """Writes predictions to a new file, with a date."""
    if call.flags.date is None:
        raise ConfigError('--date: missing; name the day on which the predictions are made')
    sealed.write(pathlib.Path(call.flags.output), call.flags.date)
    print(call.flags.output)


COMMANDS = {
    'noise': Command(
        "Prints the deviation of public trainings over seeds, which differences of the paper's Tables 2 "
        'and 3 are beyond it, and the ceiling that it sets to the rank correlation with Table 3.',
        print_noise,
        ('format',),
        examples=('{}', '{} --format=markdown'),
    ),
    'predict': Command(
        "Prints the perplexities of the paper's rows as small trainings predict them, each by the other "
        'rows, and the sealed predictions.',
        print_predictions,
        ('format',),
        examples=('{}',),
    ),
    'collect': Command(
        'Extracts the final scores of public trainings from the lines of FOLDER/runs.tsv, one an evaluation.',
        collect,
        ('output',),
        examples=('{} FOLDER --output=FILE',),
        words=('FOLDER',),
    ),
    'seal': Command(
        'Writes predictions of rows that nobody has printed to a new file.',
        seal,
        ('output', 'date'),
        examples=('{} --date=2026-11-27 --output=FILE',),
    ),
}
FLAGS = {
    'format': Flag(str, 'terminal', 'the format of the tables', 'NAME', choices=tuple(_FORMATS)),
    'output': Flag(str, 'runs/evidence.json', 'the file to write', 'FILE'),
    'date': Flag(str, None, 'the day on which the predictions are made, such as 2026-11-27', 'DATE'),
}


def main(argv: Sequence[str]) -> int:
    """Runs a command. Returns the exit status."""
    return run_program(argv, Program('python -m experiments.evidence', __doc__, COMMANDS, FLAGS))


if __name__ == '__main__':
    sys.exit(main(sys.argv))
