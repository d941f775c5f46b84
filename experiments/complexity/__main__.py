"""Measures the paper's Table 1: self-attention, recurrent, convolutional and restricted layers.

It prints FLOPs with fitted exponents, sequential operations, path lengths, seconds and memory beside the
paper's entries, and the same costs for the kernels of `model.attention` but `flash`.
"""

import pathlib
import sys
from collections.abc import Sequence

from experiments.complexity import charts, layers, measure, tables
from experiments.complexity.measure import GIB
from experiments.rendering import formats
from transformer import files
from transformer.cli.flags import Call, Command, Flag, Program
from transformer.cli.main import run_program
from transformer.config import ConfigError

RESULT = 'complexity.json'
# The shape of a result.
_COSTS = {
    'name': str, 'n': files.SIZE, 'd': files.SIZE, 'pass': str, 'flops': float, 'steps': files.COUNT,
    'temporary': files.COUNT, 'needed': files.COUNT, '*': object,
}  # fmt: skip
_HARDWARE = {'device': str, 'devices': files.SIZE, 'cpus': files.SIZE, '*': object}
SHAPE = {
    'date': str,
    'seconds': float,
    'environment': {'hardware': _HARDWARE, 'versions': {'jax': str, '*': object}, '*': object},
    'd_model': files.SIZE,
    'limit': files.COUNT,
    'layers': [{**_COSTS, 'seconds?': (float, None)}],
    'paths': [{'name': str, 'n': files.SIZE, 'length': files.COUNT, 'formula': files.COUNT, 'written': str}],
    'kernels': [{**_COSTS, 'seconds': (float, None)}],
    '*': object,
}


def complexity(call: Call) -> None:
    """Measures or reads an earlier result, prints its tables, and writes tables and figures."""
    flags, folder, earlier = call.flags, pathlib.Path(call.flags.output), None
    if flags.d_model % (2 * layers.D_K):
        raise ConfigError(f'--d_model={flags.d_model}: must be a multiple of {2 * layers.D_K}')
    if flags.result is not None:
        if ignored := [name for name in ('d_model', 'longest', 'memory_gib') if flags[name].present]:
            raise ConfigError(f'--{ignored[0]}: what --result holds is measured already')
        if not pathlib.Path(flags.result).is_file():
            raise ConfigError(f'--result={flags.result}: no such file')
        earlier = files.read_json(pathlib.Path(flags.result), SHAPE)
        if empty := [key for key in ('layers', 'paths', 'kernels') if not earlier[key]]:
            raise ConfigError(f'--result={flags.result}: {empty[0]} is empty')
    # Created before measuring for minutes, so that the result cannot be lost.
    folder.mkdir(parents=True, exist_ok=True)
    found = earlier or measure.everything(flags.d_model, flags.longest, int(flags.memory_gib * GIB))
    files.write_json(folder / RESULT, found)
    files.write_text(folder / 'table.md', tables.text(found, formats.markdown, '## '))
    charts.write(found, folder)
    print(tables.text(found, formats.terminal))
    print(folder)


COMMANDS = {
    '': Command(
        "Measures the paper's Table 1, prints it beside the paper's entries, and writes tables and figures.",
        complexity,
        ('output', 'd_model', 'longest', 'memory_gib', 'result'),
        examples=('{}', '{} --longest=1024 --d_model=128'),
    )
}
FLAGS = {
    'output': Flag(str, 'runs/complexity', 'the folder to write to', 'FOLDER'),
    'd_model': Flag(int, 512, 'the width of the layers', 'D', least=128),
    'longest': Flag(int, 16384, 'the most positions for kernels; layers get a quarter', 'N', least=1024),
    'memory_gib': Flag(float, 8.0, 'programs that need more memory than this are not run', 'GIB', least=0),
    'result': Flag(str, None, f'an earlier {RESULT} to print instead of measuring', 'FILE'),
}


def main(argv: Sequence[str]) -> int:
    """Runs the command. Returns the exit status."""
    return run_program(argv, Program('python -m experiments.complexity', __doc__, COMMANDS, FLAGS))


if __name__ == '__main__':
    sys.exit(main(sys.argv))
