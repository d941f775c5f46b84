"""The state of W hypotheses of each of B sentences: in rows b·W + w, and in caches of whole sentences."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Cache(NamedTuple):
    """Keys and values that W hypotheses of a sentence wrote; w's at position l are in place p = l·W + w.

    A hypothesis that continues another one goes on reading what that one wrote, so a search that drops some
    hypotheses and continues others moves nothing here. A kernel's state says who wrote what a hypothesis
    reads. The axes are in the order in which products over all places of a head want them; in another one
    XLA for CPUs copies the whole cache at each step.
    """

    key: Float[Array, 'B H C P']
    value: Float[Array, 'B H P E']


def spread(state: object, width: int) -> object:
    """The state of `width` equal hypotheses a sentence, from that of one."""
    repeat = lambda x, axis: jnp.repeat(x, width, axis)
    return _map(
        lambda x: repeat(x, 0), lambda cache: Cache(repeat(cache.key, 3), repeat(cache.value, 2)), state
    )


def continued(state: object, rows: Int[Array, 'R']) -> object:
    """The state in which every row continues the hypothesis of its sentence that was in row `rows`."""
    return _map(lambda x: x[rows], lambda cache: cache, state)


def of_sentences(state: object, chosen: Int[Array, 'N'], width: int) -> object:
    """The state of the chosen sentences, with `width` hypotheses each."""
    rows = (chosen[:, None] * width + jnp.arange(width)[None]).reshape(-1)
    return _map(lambda x: x[rows], lambda cache: Cache(*(x[chosen] for x in cache)), state)


def moved(state: object, room: object, width: int) -> object:
    """The state of `width` hypotheses a sentence with more room.

    Args:
      room: a state of one hypothesis a sentence with that room; only its shapes count.
    """
    larger = jax.eval_shape(lambda room: spread(room, width), room)
    widths = lambda x, into: [(0, after - before) for before, after in zip(x.shape, into.shape, strict=True)]
    return jax.tree.map(lambda x, into: jnp.pad(x, widths(x, into)), state, larger)


def _map(own: Callable, shared: Callable, state: object) -> object:
    """The state with `own` of every array that has rows, and `shared` of every cache."""
    is_cache = lambda x: isinstance(x, Cache)
    return jax.tree.map(lambda x: shared(x) if is_cache(x) else own(x), state, is_leaf=is_cache)
