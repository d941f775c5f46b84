"""Measures the costs of every layer type and kernel, and fits exponents to them."""

import datetime
import functools
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from experiments.compiled import hlo
from experiments.complexity import layers, paths
from experiments.complexity.layers import SizedLayer
from transformer.runs import process

# The costs of one pass of one layer at one size, with its name, size and pass.
Record = dict[str, str | int | float | None]
GIB = 2**30
# The neighbours r of restricted self-attention for path lengths: few, so that paths are long.
NEAR = 4
PATH_LENGTHS = (8, 27, 28, 128)


def everything(d: int, longest: int, limit: int) -> dict[str, object]:
    """Makes all measurements, and returns JSON.

    Args:
      d: the width of the layers.
      longest: the most positions for kernels; Table 1's layers get a quarter.
      limit: the bytes of memory above which a program is not run.
    """
    start = time.perf_counter()
    measured = {
        'd_model': d,
        'longest': longest,
        'limit': limit,
        'layers': list(_layers(d, longest, limit)),
        'kernels': list(_kernels(d, longest, limit)),
        'paths': list(_paths()),
    }
    seconds, today = round(time.perf_counter() - start, 1), datetime.date.today().isoformat()
    return {'date': today, 'seconds': seconds, 'environment': process.environment()} | measured


def _layers(d: int, longest: int, limit: int) -> Iterable[Record]:
    """Measures each layer type by n, with seconds, and by d and its own size, without seconds."""
    lengths = [2**power for power in range(7, 32) if 2**power <= longest // 4]
    widths = [width for width in (d // 8, d // 4, d // 2) if width and width % layers.D_K == 0]
    middle = min(1024, lengths[-1])
    for kind in layers.TYPES:
        usual, others = kind.sizes[:1], kind.sizes[1:]
        points = [(n, d, usual, True) for n in lengths]
        points += [(middle, width, usual, False) for width in widths]
        points += [(middle, d, (size,), False) for size in others]
        if not kind.sizes:
            # Around n = d, where the curves of self-attention and recurrence cross.
            near = [(n, width) for width in widths for n in (width // 2, width, 2 * width)]
            points += [(n, width, usual, False) for n, width in near if n != middle]
        for n, width, size, timed in points:
            named = {'name': kind.name, 'n': n, 'd': width} | ({kind.symbol: size[0]} if size else {})
            yield from _records(named, kind.build(n, width, *size), limit, timed=timed)


def _kernels(d: int, longest: int, limit: int) -> Iterable[Record]:
    """Measures each kernel by n; each n is a square, because the sparse kernel's stride is its root."""
    for kernel in layers.KERNELS:
        for n in (4**power for power in range(4, 16) if 4**power <= longest):
            options = kernel.options(n)
            layer = layers.attention(n, d, kernel.name, **options)
            yield from _records({'name': kernel.name, 'n': n, 'd': d, **options}, layer, limit, timed=True)


def _paths() -> Iterable[Record]:
    """Measures the path lengths of each layer type, beside the formula's lengths."""
    for kind in paths.kinds(layers.TAPS, NEAR):
        for n in PATH_LENGTHS:
            formula = {'formula': kind.formula(n), 'written': kind.written}
            yield {'name': kind.name, 'n': n, 'length': paths.longest(kind.dependences(n)), **formula}


def _records(named: Record, layer: SizedLayer, limit: int, *, timed: bool) -> Iterable[Record]:
    """Measures each pass of a layer."""
    start = time.perf_counter()
    costs = _costs(layer, limit, timed)
    sizes = ', '.join(f'{key} = {value:,}' for key, value in named.items() if key != 'name')
    print(f'{named["name"]}, {sizes}: {time.perf_counter() - start:.1f} s', file=sys.stderr)
    return [named | {'pass': name} | of_pass for name, of_pass in costs.items()]


@functools.cache
def _costs(layer: SizedLayer, limit: int, timed: bool) -> dict[str, Record]:
    """Measures each pass of a layer, without seconds (None) for a program that needs more than the limit."""
    segments = jax.ShapeDtypeStruct((1, layer.length), jnp.int32)
    outputs = jax.eval_shape(layer.apply, layer.arrays, segments)
    costs = {}
    for name, passes in layers.PASSES.items():
        program = jax.jit(passes(layer)).lower(layer.arrays, segments, outputs).compile()
        parsed, memory = hlo.parse(program.as_text()), program.memory_analysis()
        temporary = memory.temp_size_in_bytes
        needed = temporary + memory.argument_size_in_bytes + memory.output_size_in_bytes
        costs[name] = {
            'flops': hlo.flops(parsed),
            'steps': hlo.steps(parsed),
            'temporary': temporary,
            'needed': needed,
        }
        if timed and needed <= limit:
            arrays, gradient = layers.random((layer.arrays, outputs))
            ones = jnp.ones((1, layer.length), jnp.int32)
            costs[name]['seconds'] = hlo.seconds(program, arrays, ones, gradient)
        elif timed:
            costs[name]['seconds'] = None
    return costs


def exponents(records: Sequence[Mapping], symbols: Sequence[str], key: str) -> dict[str, float]:
    """Fits the powers of symbols whose product is closest to a cost, by least squares of the logarithms.

    Records without the cost, such as of temporary memory, are left out.
    """
    records = [record for record in records if record[key] > 0]
    logs = [[1.0, *(math.log(record[symbol]) for symbol in symbols)] for record in records]
    fit = np.linalg.lstsq(np.array(logs), np.log([record[key] for record in records]), rcond=None)
    return dict(zip(symbols, fit[0][1:].tolist(), strict=True))


def crossing(one: Mapping[int, float], other: Mapping[int, float]) -> float | None:
    """Returns the n, or None, at which `one` rises above `other`, interpolated in logarithms."""
    shared = sorted(set(one) & set(other))
    above = [math.log(one[n] / other[n]) for n in shared]
    for left, right, before, after in zip(shared, shared[1:], above, above[1:], strict=False):
        if before <= 0 < after:
            return left * (right / left) ** (before / (before - after))
    return None
