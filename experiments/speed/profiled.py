"""Where the time of updates goes: a trace of them, and what the instructions in it take."""

import collections
import gzip
import json
import pathlib
import re

import jax

from experiments.compiled import hlo, lower
from experiments.compiled.hlo import Instruction, Program
from experiments.speed import updates
from transformer import parallel
from transformer.config import Config, ConfigError
from transformer.tokens import Batch

# What contains the time of other instructions.
AROUND = ('while', 'call', 'conditional')
PRODUCTS = ('dot', 'convolution')
STACKS = ('encoder', 'decoder')
# Words in the place of an instruction that name no part of a model.
NOT_PARTS = ('while', 'body', 'closed_call', 'checkpoint', 'rematted_computation')
MOST = 10  # costs that are told


def trace(config: Config, batch: Batch, folder: pathlib.Path, count: int) -> dict[str, float]:
    """Traces updates, for TensorBoard or Perfetto, and sums up what they took.

    Args:
      folder: gets the trace.
      count: of updates.

    Returns:
      Seconds of an update, all threads together, by what takes them; greatest first. `products` are those
      of matrices, with what is fused into them; all else has its place in the layers of the model, or the
      name of its operation.

    Raises:
      ConfigError: the trace has no time of any instruction, as on some devices.
    """
    run = updates.of(config, [batch])
    with jax.default_matmul_precision(config.train.matmul_precision):
        run(1)
        with jax.profiler.trace(folder):
            run(count)
    files = folder.glob('plugins/profile/*/*.trace.json.gz')
    with gzip.open(max(files, key=lambda path: path.stat().st_mtime)) as stream:
        events = json.load(stream)['traceEvents']
    names = places(hlo.parse(lower.update(config, parallel.devices(), batch).compile().as_text()))
    took = collections.Counter()
    for event in events:
        if event.get('ph') == 'X' and event['name'] in names:
            took[names[event['name']]] += event['dur'] / 1e6 / count
    if not took:
        raise ConfigError(f'--profile={folder}: the trace names no instruction of the program')
    return dict(took.most_common())


def places(program: Program) -> dict[str, str]:
    """What takes the time of each instruction of a program, by the instruction's name."""
    found = {}
    for instructions in program.computations.values():
        for name, each in instructions.items():
            if each.operation in AROUND:
                continue
            inside = [i for called in each.called for i in program.computations[called].values()]
            if any(i.operation in PRODUCTS for i in (each, *inside)):
                found[name] = 'products'
            else:
                found[name] = _place(each)
    return found


def _place(instruction: Instruction) -> str:
    *path, operation = instruction.source.split('/')
    words = [word.partition('.')[0] for word in path]
    first = max((i for i, word in enumerate(words) if word in STACKS), default=len(words))
    parts = [word for word in words[first:] if re.fullmatch('[a-z_]+', word) and word not in NOT_PARTS]
    if not parts:
        return operation or instruction.operation
    backward = 'backward ' if 'transpose(' in instruction.source else ''
    return backward + '/'.join(dict.fromkeys(parts))


def lines(took: dict[str, float]) -> list[str]:
    """What products take, and the largest other costs, one a line."""
    whole, others = sum(took.values()), {place: s for place, s in took.items() if place != 'products'}
    of = lambda seconds: f'{1000 * seconds:8.1f} ms {seconds / whole:5.1%}'
    return [
        f'{of(took.get("products", 0.0))}  products of matrices, of {1000 * whole:.1f} ms of all threads',
        *(f'{of(seconds)}  {place}' for place, seconds in list(others.items())[:MOST]),
    ]
