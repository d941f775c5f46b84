"""A decoder's state in a search: W hypotheses per sentence, in rows b·W + w or in one cache per sentence."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Cache(NamedTuple):
    """Keys and values of a sentence's W hypotheses; position l of hypothesis w is at place p = l·W + w.

    A hypothesis that continues another keeps reading the entries that the other wrote, so no entry moves when
    a search drops some hypotheses and continues others. A kernel's state records the writer of each entry
    that a hypothesis reads.

    The axis order of a cache by heads suits products over all places of a head; with any other order, XLA
    copies the whole cache at each step on CPUs. In bfloat16 heads are side by side: an accelerator writes one
    row for each place, and 64 features would be padded to the 128 of a TPU's register.
    """

    key: Float[Array, 'B H C P'] | Float[Array, 'B P HC']
    value: Float[Array, 'B H P E'] | Float[Array, 'B P HE']

    @property
    def by_heads(self) -> bool:
        """Returns whether heads have an axis."""
        return self.key.ndim == 4


class DecoderState(NamedTuple):
    """A decoder's state: the number of tokens in each hypothesis, and the state of each layer."""

    position: Int[Array, 'R']
    layers: list


def places(rows: int, length: int) -> Int[Array, 'B L']:
    """Returns 0 to length - 1 for each row. A step reads the length from its shape in the constants."""
    return jnp.broadcast_to(jnp.arange(length), (rows, length))


def spread(state: object, width: int) -> object:
    """Copies the state of one hypothesis per sentence to `width` equal hypotheses."""

    def of_cache(cache: Cache) -> Cache:
        axes = (3, 2) if cache.by_heads else (1, 1)
        return Cache(*(jnp.repeat(x, width, axis) for x, axis in zip(cache, axes, strict=True)))

    return _map(lambda x: jnp.repeat(x, width, 0), of_cache, state)


def follow(state: object, rows: Int[Array, 'R']) -> object:
    """Makes each row r continue the hypothesis in row `rows[r]`, which belongs to the same sentence."""
    return _map(lambda x: x[rows], lambda cache: cache, state)


def of_sentences(state: object, chosen: Int[Array, 'N'], width: int) -> object:
    """Selects the state of the chosen sentences, with `width` hypotheses each."""
    rows = (chosen[:, None] * width + jnp.arange(width)[None]).reshape(-1)
    return _map(lambda x: x[rows], lambda cache: Cache(*(x[chosen] for x in cache)), state)


def enlarge(state: object, room: object, width: int) -> object:
    """Zero-pads a state of `width` hypotheses per sentence to the length of `room`, a state of one."""
    larger = jax.eval_shape(lambda room: spread(room, width), room)
    widths = lambda x, into: [(0, after - before) for before, after in zip(x.shape, into.shape, strict=True)]
    return jax.tree.map(lambda x, into: jnp.pad(x, widths(x, into)), state, larger)


def choose_rows(mask: Bool[Array, 'R'], new: object, old: object) -> object:
    """Returns the rows of `new` where the mask is True, and of `old` elsewhere, for trees of arrays.

    Caches are taken from `new`: what it wrote for the other rows is overwritten by their next tokens.
    """
    choose = lambda new, old: jnp.where(jnp.expand_dims(mask, range(1, new.ndim)), new, old)
    return _map(choose, lambda new, old: new, new, old)


def _map(per_row: Callable, per_cache: Callable, *states: object) -> object:
    """Applies `per_row` to every array of rows, and `per_cache` to every cache."""
    is_cache = lambda x: isinstance(x, Cache)
    apply = lambda x, *others: (per_cache if is_cache(x) else per_row)(x, *others)
    return jax.tree.map(apply, *states, is_leaf=is_cache)
