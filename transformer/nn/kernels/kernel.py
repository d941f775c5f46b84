"""The interface of attention kernels, and the functions that several kernels share."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.nn import masks
from transformer.nn.cache import Cache

# One layer's record of earlier positions: caches, and arrays whose first axis R counts hypotheses.
AttentionState = dict[str, Array | Cache]
# Dropout of attention weights, whose last axis is the keys: zeroes or scales each weight.
# It is a jax.tree_util.Partial, so that its random key can be traced.
Drop = Callable[[Float[Array, '...']], Float[Array, '...']]
KEEP_ALL: Drop = jax.tree_util.Partial(lambda weights: weights)
LOWEST = jnp.finfo(jnp.float32).min


class AttentionInputs(NamedTuple):
    """The inputs of attention over whole rows, or over their N blocks. `bias` is added to QK^T."""

    query: Float[Array, 'B *N Q H C']
    key: Float[Array, 'B *N K H C']
    value: Float[Array, 'B *N K H E']
    query_segments: Int[Array, 'B *N Q']
    key_segments: Int[Array, 'B *N K']
    bias: Float[Array, 'B H Q K'] | None = None
    drop: Drop = KEEP_ALL

    def mask(self, *, causal: bool) -> Bool[Array, 'B 1 Q K']:
        """Marks the keys that a query can attend to: in its segment and, if causal, not to its right.

        If there are fewer queries than keys, they have the last positions.
        """
        mask = masks.segment_mask(self.query_segments, self.key_segments)
        queries, keys = mask.shape[2:]
        return masks.causal_mask(keys)[:, :, keys - queries :] & mask if causal else mask

    @property
    def is_plain(self) -> bool:
        """Whether there is neither a bias nor dropout of weights."""
        # A Partial that a transformation rebuilt keeps its function.
        return self.bias is None and self.drop.func is KEEP_ALL.func

    def part(self, start: int, end: int) -> 'AttentionInputs':
        """Returns the queries from `start` to `end`, and all keys before `end`, without bias and dropout."""
        query, query_segments = self.query[:, start:end], self.query_segments[:, start:end]
        key, value, key_segments = self.key[:, :end], self.value[:, :end], self.key_segments[:, :end]
        return AttentionInputs(query, key, value, query_segments, key_segments)


class Token(NamedTuple):
    """The inputs of one step of self-attention: one position of every row."""

    query: Float[Array, 'R 1 H C']
    key: Float[Array, 'R 1 H C']
    value: Float[Array, 'R 1 H E']
    position: Int[Array, 'R']
    bias: Float[Array, 'R H 1 L'] | None = None


class Kernel(NamedTuple):
    """Self-attention over whole rows, step by step, and as a matrix of weights.

    A query attends to keys of its own segment and, if causal, not to keys on its right. One step attends to
    the positions 0 to `position`, and its new state includes the token. `weights` defines the kernel for
    figures and tests, and takes n x n memory.
    """

    attend: Callable  # (rows, causal=...) -> outputs [B Q H E]
    empty: Callable  # (model, rows, length) -> state with room for `length` positions
    attend_one: Callable  # (token, state) -> (outputs [R 1 H E], state)
    weights: Callable  # (rows, causal=...) -> weights [B H Q K]


def masked_softmax(logits: Float[Array, '...'], mask: Bool[Array, '...']) -> Float[Array, '...']:
    """Computes the softmax over the last axis where `mask` is True, uniform if it is nowhere True."""
    # XLA for CPUs adds a mask faster than it selects by one.
    return jax.nn.softmax(logits + jnp.where(mask, 0.0, LOWEST), axis=-1)


def weighted_sum(
    weights: Float[Array, '*B H Q K'], value: Float[Array, '*B K H E']
) -> Float[Array, '*B Q H E']:
    """Sums the values, weighted by each query's weights."""
    # jnp.einsum would swap the factors, and then XLA transposes the weights (CPU only).
    rows = tuple(range(value.ndim - 3))
    first, second, third = range(value.ndim - 3, value.ndim)
    dimensions = ((third,), (first,)), ((*rows, first), (*rows, second))
    return jax.lax.dot_general(weights.astype(value.dtype), value, dimensions).swapaxes(first, second)


def blocks_of(rows: AttentionInputs, size: int) -> AttentionInputs:
    """Cuts rows into blocks of positions, without bias and dropout."""
    return AttentionInputs(*(into_blocks(x, size) for x in rows[:5]))


def places_apart(rows: AttentionInputs) -> Int[Array, 'T T']:
    """Returns q - k for each query place q and key place k of a row."""
    place = jnp.arange(rows.query.shape[1])
    return place[:, None] - place[None, :]


def pad(x: Array, size: int) -> Array:
    """Pads x [B T ...] with zeros to a multiple of `size` positions."""
    return jnp.pad(x, ((0, 0), (0, -x.shape[1] % size), *[(0, 0)] * (x.ndim - 2)))


def into_blocks(x: Array, size: int) -> Array:
    """Cuts x [B T ...] into blocks [B N size ...] of positions, and pads the last with zeros."""
    return pad(x, size).reshape(x.shape[0], -1, size, *x.shape[2:])


def out_of_blocks(blocks: Array, length: int) -> Array:
    """Joins blocks [B N size ...] to rows [B T ...] of `length` positions."""
    return blocks.reshape(blocks.shape[0], -1, *blocks.shape[3:])[:, :length]


def with_neighbours(blocks: Array, *, causal: bool) -> Array:
    """Joins every block to the one before it and, unless causal, the one after it.

    Returns:
      [B N 2·size or 3·size ...], with zeros beyond the ends of a row.
    """
    zeros = jnp.zeros_like(blocks[:, :1])
    before = jnp.concatenate([zeros, blocks[:, :-1]], axis=1)
    after = [] if causal else [jnp.concatenate([blocks[:, 1:], zeros], axis=1)]
    return jnp.concatenate([before, blocks, *after], axis=2)
