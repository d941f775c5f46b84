"""The state of a search: W hypotheses of each of B sentences, in rows b·W + w or in caches of sentences."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Cache(NamedTuple):
    """Keys and values of a sentence's W hypotheses; those of w at position l are in place p = l·W + w.

    A hypothesis that continues another one keeps reading what that one wrote, so a search that drops some
    hypotheses and continues others moves no entry. A kernel's state knows the writer of each entry that a
    hypothesis reads. The order of the axes suits products over all places of a head; with another order,
    XLA copies the whole cache at each step (CPU only).
    """

    key: Float[Array, 'B H C P']
    value: Float[Array, 'B H P E']


class DecoderState(NamedTuple):
    """The state of a decoder: each hypothesis's number of tokens, and the states of the layers."""

    position: Int[Array, 'R']
    layers: list


def spread(state: object, width: int) -> object:
    """Copies the state of one hypothesis a sentence to `width` equal ones."""
    repeat = lambda x, axis: jnp.repeat(x, width, axis)
    return _map(
        lambda x: repeat(x, 0), lambda cache: Cache(repeat(cache.key, 3), repeat(cache.value, 2)), state
    )


def continued(state: object, rows: Int[Array, 'R']) -> object:
    """Makes every row continue the hypothesis of its sentence that was in row `rows`."""
    return _map(lambda x: x[rows], lambda cache: cache, state)


def of_sentences(state: object, chosen: Int[Array, 'N'], width: int) -> object:
    """Selects the state of the chosen sentences, with `width` hypotheses each."""
    rows = (chosen[:, None] * width + jnp.arange(width)[None]).reshape(-1)
    return _map(lambda x: x[rows], lambda cache: Cache(*(x[chosen] for x in cache)), state)


def moved(state: object, room: object, width: int) -> object:
    """Gives the state of `width` hypotheses a sentence the room that a state of one hypothesis has."""
    larger = jax.eval_shape(lambda room: spread(room, width), room)
    widths = lambda x, into: [(0, after - before) for before, after in zip(x.shape, into.shape, strict=True)]
    return jax.tree.map(lambda x, into: jnp.pad(x, widths(x, into)), state, larger)


def _map(own: Callable, shared: Callable, state: object) -> object:
    """Applies `own` to every array that has rows, and `shared` to every cache."""
    is_cache = lambda x: isinstance(x, Cache)
    return jax.tree.map(lambda x: shared(x) if is_cache(x) else own(x), state, is_leaf=is_cache)
