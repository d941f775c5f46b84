"""Attention masks, True where a query can attend to a key. They come from segments, never from tokens."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int


def segment_mask(queries: Int[Array, 'B Q'], keys: Int[Array, 'B K']) -> Bool[Array, 'B 1 Q K']:
    """Allows attention within one segment, but none to segment 0, which is padding."""
    same = queries[:, :, None] == keys[:, None, :]
    return (same & (keys > 0)[:, None, :])[:, None]


def causal_mask(length: int) -> Bool[Array, '1 1 Q K']:
    """Allows attention to a position itself and to positions left of it in the row (§3.2.3)."""
    return jnp.tril(jnp.ones((1, 1, length, length), bool))


def prefix_mask(position: Int[Array, 'B'], length: int) -> Bool[Array, 'B 1 1 K']:
    """Allows one query at `position` to attend to the keys 0 to `position` of a cache of `length`."""
    return (jnp.arange(length)[None, :] <= position[:, None])[:, None, None, :]
