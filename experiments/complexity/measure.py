"""Measures the costs of every layer type and kernel, and fits exponents to them."""

import functools
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Compiled

from experiments.compiled import hlo
from experiments.complexity import layers, paths
from experiments.complexity.layers import Layer

# The costs of one pass of one layer at one size, with its name, size and pass.
Record = dict[str, str | int | float | None]
GIB = 2**30
# The neighbours r of restricted self-attention in path lengths: few, so that paths are long.
NEAR = 4
PATH_LENGTHS = (8, 27, 28, 128)


class Scope(NamedTuple):
    """The scope of the measurements: d_model, a kernel's longest row, and a program's memory limit."""

    d: int
    longest: int
    limit: int

    def lengths(self) -> list[int]:
        """The lengths of Table 1's layers."""
        return [n for n in _powers(2) if 128 <= n <= self.longest // 4]

    def kernel_lengths(self) -> list[int]:
        """The lengths of the kernels: squares, because their square root is a stride."""
        return [n for n in _powers(4) if 256 <= n <= self.longest]

    def widths(self) -> list[int]:
        """Smaller values of d."""
        return [d for d in (self.d // 8, self.d // 4, self.d // 2) if d and d % layers.D_K == 0]


def _powers(base: int) -> list[int]:
    return [base**power for power in range(32)]


def everything(scope: Scope) -> dict[str, object]:
    """All measurements, as JSON."""
    return {
        'd_model': scope.d,
        'longest': scope.longest,
        'limit': scope.limit,
        'layers': list(_layers(scope)),
        'kernels': list(_kernels(scope)),
        'paths': list(_paths()),
    }


def _layers(scope: Scope) -> Iterable[Record]:
    """Measures each layer type against n, with seconds, and against d and its own size, without."""
    lengths, middle = scope.lengths(), min(1024, scope.lengths()[-1])
    for kind in layers.TYPES:
        usual, others = kind.sizes[:1], kind.sizes[1:]
        points = [(n, scope.d, usual, True) for n in lengths]
        points += [(middle, d, usual, False) for d in scope.widths()]
        points += [(middle, scope.d, (size,), False) for size in others]
        if not kind.sizes:
            # Around n = d, where the curves of self-attention and recurrence cross.
            near = [(n, d) for d in scope.widths() for n in (d // 2, d, 2 * d)]
            points += [(n, d, usual, False) for n, d in near if n != middle]
        for n, d, size, timed in points:
            named = {'name': kind.name, 'n': n, 'd': d} | ({kind.symbol: size[0]} if size else {})
            yield from _records(named, kind.build(n, d, *size), scope.limit, timed=timed)


def _kernels(scope: Scope) -> Iterable[Record]:
    """Measures each kernel against n."""
    for kernel in layers.KERNELS:
        for n in scope.kernel_lengths():
            named = {'name': kernel.name, 'n': n, 'd': scope.d, **kernel.options(n)}
            layer = layers.attention(n, scope.d, attention=kernel.name, **kernel.options(n))
            yield from _records(named, layer, scope.limit, timed=True)


def _paths() -> Iterable[Record]:
    """Measures the path lengths of each layer type, beside the formula's."""
    for kind in paths.kinds(layers.TAPS, NEAR):
        for n in PATH_LENGTHS:
            length = paths.longest(kind.dependences(n))
            formula = {'formula': kind.formula(n), 'written': kind.written}
            yield {'name': kind.name, 'n': n, 'length': length, **formula}


def _records(named: Record, layer: Layer, limit: int, *, timed: bool) -> Iterable[Record]:
    """A record of each pass of a layer."""
    start = time.perf_counter()
    costs = _costs(layer, limit, timed)
    sizes = ', '.join(f'{key} = {value:,}' for key, value in named.items() if key != 'name')
    print(f'{named["name"]}, {sizes}: {time.perf_counter() - start:.1f} s', file=sys.stderr)
    return [named | {'pass': name} | found for name, found in costs.items()]


@functools.cache
def _costs(layer: Layer, limit: int, timed: bool) -> dict[str, Record]:
    """The costs of each pass of a layer; seconds are null for a program that needs more than the limit."""
    segments = jax.ShapeDtypeStruct((1, layer.length), jnp.int32)
    outputs = jax.eval_shape(layer.apply, layer.arrays, segments)
    costs = {}
    for name, passes in layers.PASSES.items():
        program = jax.jit(passes(layer)).lower(layer.arrays, segments, outputs).compile()
        found, memory = hlo.parse(program.as_text()), program.memory_analysis()
        temporary = memory.temp_size_in_bytes
        needed = temporary + memory.argument_size_in_bytes + memory.output_size_in_bytes
        costs[name] = {
            'flops': hlo.flops(found),
            'steps': hlo.steps(found),
            'temporary': temporary,
            'needed': needed,
        }
        if timed:
            costs[name]['seconds'] = _seconds(program, layer, outputs) if needed <= limit else None
    return costs


def _seconds(program: Compiled, layer: Layer, outputs: jax.ShapeDtypeStruct) -> float:
    arrays, gradient = layers.random((layer.arrays, outputs))
    return hlo.seconds(program, arrays, jnp.ones((1, layer.length), jnp.int32), gradient)


def exponents(records: Sequence[Mapping], symbols: Sequence[str], key: str) -> dict[str, float]:
    """The powers of the symbols whose product fits best, by least squares of the logarithms."""
    logs = [[1.0, *(math.log(record[symbol]) for symbol in symbols)] for record in records]
    found = np.linalg.lstsq(np.array(logs), np.log([record[key] for record in records]), rcond=None)
    return dict(zip(symbols, found[0][1:].tolist(), strict=True))


def crossing(one: Mapping[int, float], other: Mapping[int, float]) -> float | None:
    """The n at which one curve rises above the other, interpolated in logarithms; None if it does not."""
    shared = sorted(set(one) & set(other))
    above = [math.log(one[n] / other[n]) for n in shared]
    for left, right, before, after in zip(shared, shared[1:], above, above[1:], strict=False):
        if before <= 0 < after:
            return left * (right / left) ** (before / (before - after))
    return None
