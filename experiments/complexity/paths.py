"""Measures maximum path lengths: the layers, or recurrent steps, until outputs depend on all inputs before.

The sparsity of a layer's Jacobian shows which positions it connects. Layers are stacked until every output
depends on every input at or before its position. All layers are causal, as in a decoder, because a
recurrence is, and because the ends of the row then cut no path. (In a dilated convolution that sees both
sides, paths through positions beyond the ends are missing, and some pairs stay unconnected.)
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from experiments.complexity import layers
from experiments.complexity.layers import Layer

# Wide enough for a dependence to show.
D = 2


class Kind(NamedTuple):
    """A layer type whose paths are measured."""

    name: str
    dependences: Callable[[int], Iterable[Bool[np.ndarray, 'T T']]]  # the argument of `longest`, by n
    formula: Callable[[int], int]  # the length by n
    written: str


def kinds(taps: int, window: int) -> list[Kind]:
    """The layer types of Table 1: k taps are a position and the k - 1 before it, a window the r before it."""
    local = lambda n: itertools.repeat(_attended(n, 'local', window=window))
    contiguous = lambda n: itertools.repeat(_convolved(n, taps, 1))
    dilated = lambda n: (_convolved(n, taps, taps**below) for below in itertools.count())
    logarithm = lambda n: next(power for power in itertools.count() if taps**power >= n)
    return [
        Kind('self-attention', lambda n: itertools.repeat(_attended(n, 'full')), lambda n: 1, '1'),
        Kind('recurrent', recurrent_dependences, lambda n: n, 'n'),
        Kind('convolutional', contiguous, lambda n: -(-(n - 1) // (taps - 1)), f'⌈(n-1)/{taps - 1}⌉'),
        Kind('convolutional, dilated', dilated, logarithm, f'⌈log_{taps} n⌉'),
        Kind('self-attention, restricted', local, lambda n: -(-(n - 1) // window), f'⌈(n-1)/{window}⌉'),
    ]


def longest(dependences: Iterable[Bool[np.ndarray, 'T T']]) -> int:
    """The longest of the shortest paths to outputs, from each layer's dependences, from the ground up."""
    reached = None
    for count, found in enumerate(dependences, 1):
        # An input once reached stays reached: a later input reaches a state in fewer steps.
        reached = found if reached is None else reached | found @ reached
        if np.tril(reached).sum() == np.tri(len(reached)).sum():
            return count
        if count == len(reached):
            raise ValueError(f'{count} layers leave some of as many positions unconnected')
    raise ValueError('there are too few layers')


def dependence(function: Callable, n: int) -> Bool[np.ndarray, 'T T']:
    """Whether each output of a function of n positions depends on each input."""
    x = layers.random(jax.ShapeDtypeStruct((n, D), jnp.float32))
    return np.asarray(jax.jit(jax.jacrev(function))(x) != 0).any(axis=(1, 3))


def recurrent_dependences(n: int) -> Iterator[Bool[np.ndarray, 'T T']]:
    """Of the first step on the inputs, and of each later one on the states before it."""
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


def _row(layer: Layer, arrays) -> Float[Array, 'T D']:
    return layer.apply(arrays, jnp.ones((1, layer.length), jnp.int32))[0]
