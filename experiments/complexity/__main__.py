"""Measures the paper's Table 1: self-attention, recurrent, convolutional and restricted layers.

It prints FLOPs against n and d with fitted exponents, sequential operations, path lengths, seconds and
memory, each beside the paper's entry, and the same costs for the kernels of `model.attention`.
"""

import datetime
import pathlib
import sys
import time
from collections.abc import Mapping, Sequence

from experiments.complexity import charts, layers, measure, tables
from experiments.complexity.measure import GIB, Scope
from experiments.sweeps import runs
from transformer import files
from transformer.cli.flags import Call, Command, Flag, Program
from transformer.cli.main import run_program
from transformer.config import ConfigError
from transformer.runs import process

RESULT = 'complexity.json'
KEYS = ('date', 'seconds', 'environment', 'd_model', 'limit', 'layers', 'paths', 'kernels')


def complexity(call: Call) -> None:
    """Measures, or reads an earlier result; prints the tables and writes them with pictures and a page."""
    folder = pathlib.Path(call.flags.output)
    scope = Scope(call.flags.d_model, call.flags.longest, int(call.flags.memory_gib * GIB))
    if scope.d % (2 * layers.D_K):
        raise ConfigError(f'--d_model={scope.d}: must be a multiple of {2 * layers.D_K}')
    earlier = None if call.flags.result is None else _read(call.flags.result)
    # Before the minutes of measuring, whose result would be lost without a folder.
    folder.mkdir(parents=True, exist_ok=True)
    found = earlier or _measured(scope)
    files.write_json(folder / RESULT, found)
    files.write_text(folder / 'table.md', tables.markdown(found))
    charts.write(found, folder)
    print(tables.terminal(found))
    print(folder)


def _measured(scope: Scope) -> dict[str, object]:
    start = time.perf_counter()
    found = measure.everything(scope)
    took = round(time.perf_counter() - start, 1)
    today = datetime.date.today().isoformat()
    return {'date': today, 'seconds': took, 'environment': process.environment()} | found


def _read(file: str) -> Mapping:
    path = pathlib.Path(file)
    if not path.is_file():
        raise ConfigError(f'--result={file}: no such file')
    return runs.read_json(path, KEYS)


COMMANDS = {
    '': Command(
        "Measures the paper's Table 1, prints it beside the paper's entries, and writes tables, pictures "
        'and a page.',
        complexity,
        ('output', 'd_model', 'longest', 'memory_gib', 'result'),
        examples=('{}', '{} --longest=1024 --d_model=128'),
    )
}
FLAGS = {
    'output': Flag(str, 'runs/complexity', 'the folder to write to', 'FOLDER'),
    'd_model': Flag(int, 512, 'the width of the layers', 'D', least=128),
    'longest': Flag(int, 16384, 'the most positions of a kernel; layers get a quarter', 'N', least=1024),
    'memory_gib': Flag(float, 8.0, 'programs that need more memory than this are not run', 'GIB', least=0),
    'result': Flag(str, None, f'an earlier {RESULT} to print instead of measuring', 'FILE'),
}


def main(argv: Sequence[str]) -> int:
    """Runs the command. Returns the exit status."""
    return run_program(argv, Program('python -m experiments.complexity', __doc__, COMMANDS, FLAGS))


if __name__ == '__main__':
    sys.exit(main(sys.argv))
