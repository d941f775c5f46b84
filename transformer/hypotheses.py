"""The state of W hypotheses of each of B sentences: in rows b·W + w, and in caches of whole sentences."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Cache(NamedTuple):
    """Keys and values of what the hypotheses of a sentence wrote, each in its own part.

    A hypothesis that continues another one reads on in the other's part, so nothing here is moved when
    a search chooses which ones go on. The axes are in the order in which products over all positions of a
    head want them; in another one XLA for CPUs copies the whole cache at each step.
    """

    key: Float[Array, 'B H C L W']
    value: Float[Array, 'B H L W E']


def spread(state: object, width: int) -> object:
    """The state of `width` equal hypotheses a sentence, from that of one."""
    wide = lambda x, axis: jnp.repeat(x, width, axis)
    return _map(lambda x: wide(x, 0), lambda cache: Cache(wide(cache.key, 4), wide(cache.value, 3)), state)


def continued(state: object, rows: Int[Array, 'R']) -> object:
    """The state in which every row continues one of its sentence's hypotheses, that of `rows`."""
    return _map(lambda x: x[rows], lambda cache: cache, state)


def of_sentences(state: object, chosen: Int[Array, 'N'], width: int) -> object:
    """The state of the chosen sentences, with `width` hypotheses each."""
    rows = (chosen[:, None] * width + jnp.arange(width)[None]).reshape(-1)
    return _map(lambda x: x[rows], lambda cache: Cache(*(x[chosen] for x in cache)), state)


def moved(state: object, room: object, width: int) -> object:
    """The state of `width` hypotheses a sentence in a larger room, which is given as that of one."""
    larger = jax.eval_shape(lambda room: spread(room, width), room)
    widths = lambda x, into: [(0, after - before) for before, after in zip(x.shape, into.shape, strict=True)]
    return jax.tree.map(lambda x, into: jnp.pad(x, widths(x, into)), state, larger)


def _map(own: Callable, shared: Callable, state: object) -> object:
    """The state with `own` of every array that has rows, and `shared` of every cache."""
    is_cache = lambda x: isinstance(x, Cache)
    return jax.tree.map(lambda x: shared(x) if is_cache(x) else own(x), state, is_leaf=is_cache)
