"""Measures maximum path lengths: how many layers or recurrent steps connect every output to earlier inputs.

The sparsity of a layer's Jacobian shows which positions it connects. Layers are stacked until every output
depends on every input at or before its position. All layers are causal, as in a decoder, because recurrence
is causal, and because the ends of the row then cut no path. (In a dilated convolution that sees both sides,
paths through positions beyond the ends are missing, and some pairs stay unconnected.)
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from experiments.complexity import layers
from experiments.complexity.layers import SizedLayer

# Wide enough for a dependence to show.
D = 2


class LayerType(NamedTuple):
    """A layer type whose paths are measured."""

    name: str
    dependences: Callable[[int], Iterable[Bool[np.ndarray, 'T T']]]  # by n, as `longest` takes them
    formula: Callable[[int], int]  # the length by n
    written: str  # the formula for people


def kinds(taps: int, window: int) -> list[LayerType]:
    """Lists Table 1's layer types; a position sees itself and the k - 1 (taps) or r (window) before it."""
    local = lambda n: itertools.repeat(_attended(n, 'local', window=window))
    contiguous = lambda n: itertools.repeat(_convolved(n, taps, 1))
    dilated = lambda n: (_convolved(n, taps, taps**below) for below in itertools.count())
    logarithm = lambda n: next(power for power in itertools.count() if taps**power >= n)
    return [
        LayerType('self-attention', lambda n: itertools.repeat(_attended(n, 'full')), lambda n: 1, '1'),
        LayerType('recurrent', recurrent_dependences, lambda n: n, 'n'),
        LayerType('convolutional', contiguous, lambda n: -(-(n - 1) // (taps - 1)), f'⌈(n-1)/{taps - 1}⌉'),
        LayerType('convolutional, dilated', dilated, logarithm, f'⌈log_{taps} n⌉'),
        LayerType('self-attention, restricted', local, lambda n: -(-(n - 1) // window), f'⌈(n-1)/{window}⌉'),
    ]


def longest(dependences: Iterable[Bool[np.ndarray, 'T T']]) -> int:
    """Counts the layers, from the lowest up, that connect every output to all inputs at or before it."""
    connected = None
    for count, of_layer in enumerate(dependences, 1):
        # Connections are never lost: a later input needs fewer steps to a state than an earlier input.
        connected = of_layer if connected is None else connected | of_layer @ connected
        if np.tril(connected).sum() == np.tri(len(connected)).sum():
            return count
        if count == len(connected):
            raise ValueError(f'{count} layers leave some of the {count} positions unconnected')
    raise ValueError('there are too few layers')


def dependence(function: Callable, n: int) -> Bool[np.ndarray, 'T T']:
    """Marks which outputs of a function of n positions depend on which inputs."""
    x = layers.random(jax.ShapeDtypeStruct((n, D), jnp.float32))
    return np.asarray(jax.jit(jax.jacrev(function))(x) != 0).any(axis=(1, 3))


def recurrent_dependences(n: int) -> Iterator[Bool[np.ndarray, 'T T']]:
    """Yields the first step's dependence on the inputs, then each later step's on the states before it."""
    step, zeros = layers.recurrent_step(D), jnp.zeros((n, D))
    yield dependence(lambda x: step(x, zeros), n)
    yield from itertools.repeat(dependence(lambda states: step(zeros, states), n))


def _attended(n: int, kernel: str, **options) -> Bool[np.ndarray, 'T T']:
    layer = layers.attention(n, D, kernel, d_k=D, causal=True, **options)
    return dependence(lambda x: _row(layer, [x[None]] * 3), n)


def _convolved(n: int, taps: int, dilation: int) -> Bool[np.ndarray, 'T T']:
    layer = layers.convolution(n, D, taps=taps, dilation=dilation, causal=True)
    kernel, _ = layers.random(layer.arrays)
    return dependence(lambda x: _row(layer, [kernel, x[None]]), n)


def _row(layer: SizedLayer, arrays) -> Float[Array, 'T D']:
    return layer.apply(arrays, jnp.ones((1, layer.length), jnp.int32))[0]
