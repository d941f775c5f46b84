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
    """A layer type whose paths are measured.

    Attributes:
      dependences: `n -> dependences`, the argument of `longest`.
      formula: `n -> length`.
      written: the formula as text.
    """

    name: str
    dependences: Callable[[int], Iterable[Bool[np.ndarray, 'T T']]]
    formula: Callable[[int], int]
    written: str


def kinds(taps: int, window: int) -> list[Kind]:
    """The layer types of Table 1.

    Args:
      taps: k, of a convolution: a position and the k - 1 before it.
      window: r, the neighbours before a position.
    """
    contiguous = lambda n: itertools.repeat(_convolved(n, taps, 1))
    dilated = lambda n: (_convolved(n, taps, taps**below) for below in itertools.count())
    return [
        Kind('self-attention', lambda n: itertools.repeat(_attended(n)), lambda n: 1, '1'),
        Kind('recurrent', recurrent_dependences, lambda n: n, 'n'),
        Kind('convolutional', contiguous, lambda n: -(-(n - 1) // (taps - 1)), f'⌈(n-1)/{taps - 1}⌉'),
        Kind('convolutional, dilated', dilated, lambda n: _logarithm(n, taps), f'⌈log_{taps} n⌉'),
        Kind(
            'self-attention, restricted',
            lambda n: itertools.repeat(_attended(n, attention='local', window=window)),
            lambda n: -(-(n - 1) // window),
            f'⌈(n-1)/{window}⌉',
        ),
    ]


def longest(dependences: Iterable[Bool[np.ndarray, 'T T']]) -> int:
    """The length of the longest of the shortest paths from an input to an output at or after it.

    Args:
      dependences: of each layer on the one below it, from the ground up.
    """
    reached = None
    for count, found in enumerate(dependences, 1):
        # An input once reached stays reached: a later input reaches a state in fewer steps.
        reached = found if reached is None else reached | found @ reached
        if np.tril(reached).sum() == np.tri(len(reached)).sum():
            return count
        if count == len(reached):
            raise ValueError(f'{count} layers leave some of as many positions unconnected')
    raise ValueError('there are too few layers')


def dependence(
    function: Callable[[Float[Array, 'T D']], Float[Array, 'T D']], n: int
) -> Bool[np.ndarray, 'T T']:
    """Whether each output of a function of n positions depends on each input."""
    x = layers.random(jax.ShapeDtypeStruct((n, D), jnp.float32))
    return np.asarray(jax.jit(jax.jacrev(function))(x) != 0).any(axis=(1, 3))


def recurrent_dependences(n: int) -> Iterator[Bool[np.ndarray, 'T T']]:
    """Of the first step on the inputs, and of each later one on the states before it."""
    step, zeros = layers.recurrent_step(D), jnp.zeros((n, D))
    yield dependence(lambda x: step(x, zeros), n)
    yield from itertools.repeat(dependence(lambda states: step(zeros, states), n))


def _attended(n: int, **options) -> Bool[np.ndarray, 'T T']:
    layer = layers.attention(n, D, d_k=D, causal=True, **options)
    return dependence(lambda x: _row(layer, [x[None]] * 3), n)


def _convolved(n: int, taps: int, dilation: int) -> Bool[np.ndarray, 'T T']:
    layer = layers.convolution(n, D, taps=taps, dilation=dilation, causal=True)
    kernel, _ = layers.random(layer.arrays)
    return dependence(lambda x: _row(layer, [kernel, x[None]]), n)


def _row(layer: Layer, arrays) -> Float[Array, 'T D']:
    return layer.apply(arrays, jnp.ones((1, layer.length), jnp.int32))[0]


def _logarithm(n: int, base: int) -> int:
    """The logarithm of n, rounded up."""
    return next(power for power in itertools.count() if base**power >= n)
