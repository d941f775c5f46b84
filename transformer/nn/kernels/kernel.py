"""What an attention kernel is, and the pieces that several kernels share."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.config import Model
from transformer.nn.cache import Cache

# What one layer remembers of earlier positions: arrays with first axis R, that of hypotheses, and caches.
State = dict[str, Array | Cache]
# The dropout of attention weights, the last axis that of the keys: multiplies each by a number of its own.
# A jax.tree_util.Partial, so that a random key in it may be traced.
Drop = Callable[[Float[Array, '...']], Float[Array, '...']]
KEEP_ALL: Drop = jax.tree_util.Partial(lambda weights: weights)
_LOWEST = jnp.finfo(jnp.float32).min


class Kernel(NamedTuple):
    """Self-attention over whole rows, the same step by step, and as a picture.

    attend: takes `(query, key, value, query segments, key segments, bias, drop, causal=...)`, gives
      outputs [B Q H E]. A query attends to keys of its own segment; if causal, not to those to its
      right in the row.
    empty: takes `(model, rows, length)`, gives a state with room for `length` positions.
    attend_one: takes `(query, key, value, state, position, bias)`, gives outputs [R 1 H E] and the
      state with the new position in it. The query of a row attends to its positions 0 to `position`.
    weights: takes what `attend` takes except values and `drop`, gives the weight of every key [B H Q K]
      by the definition. It takes n x n memory: figures and tests use it.
    """

    attend: Callable
    empty: Callable
    attend_one: Callable
    weights: Callable


def attention_weights(
    query: Float[Array, 'B Q H C'],
    key: Float[Array, 'B K H C'],
    mask: Bool[Array, '#B 1 #Q K'],
    bias: Float[Array, 'B H Q K'] | None = None,
) -> Float[Array, 'B H Q K']:
    """softmax((QK^T + bias) / sqrt(d_k)), in float32 (§3.2.1).

    A query with nothing to attend to (padding) gets uniform weights; its output is never used.
    """
    return jax.nn.softmax(attention_logits(query, key, mask, bias), axis=-1)


def attention_logits(
    query: Float[Array, 'B Q H C'],
    key: Float[Array, 'B K H C'],
    mask: Bool[Array, '#B 1 #Q K'],
    bias: Float[Array, 'B H Q K'] | None = None,
) -> Float[Array, 'B H Q K']:
    """(QK^T + bias) / sqrt(d_k), in float32; its lowest number where `mask` is False."""
    logits = jnp.einsum('BQHC,BKHC->BHQK', query, key, preferred_element_type=jnp.float32)
    if bias is not None:
        logits = logits + bias
    return jnp.where(mask, logits * query.shape[-1] ** -0.5, _LOWEST)


def masked_softmax(logits: Float[Array, '...'], mask: Bool[Array, '...']) -> Float[Array, '...']:
    """Softmax over the last axis where `mask` is True; uniform where it is nowhere True."""
    # XLA for CPUs is faster where the mask is added than where it selects.
    return jax.nn.softmax(logits + jnp.where(mask, 0.0, _LOWEST), axis=-1)


def weighted_sum(
    weights: Float[Array, '*B H Q K'], value: Float[Array, '*B K H E']
) -> Float[Array, '*B Q H E']:
    """Every query's sum of the values by its weights."""
    # jnp.einsum would multiply the other way round, for which XLA transposes the weights on CPUs.
    rows = tuple(range(value.ndim - 3))
    first, second, third = range(value.ndim - 3, value.ndim)
    dimensions = ((third,), (first,)), ((*rows, first), (*rows, second))
    return jax.lax.dot_general(weights.astype(value.dtype), value, dimensions).swapaxes(first, second)


def empty_cache(model: Model, rows: int, length: int) -> State:
    """Room for keys and values of `length` positions, and for who wrote what a row reads at each of them."""
    dtype = jnp.dtype(model.dtype)
    key = jnp.zeros((rows, model.h, model.d_k, length), dtype)
    value = jnp.zeros((rows, model.h, length, model.d_v), dtype)
    return {'cache': Cache(key, value), 'writers': jnp.zeros((rows, length), jnp.int32)}


def add_to_cache(
    state: State, place: Int[Array, 'R'], key: Float[Array, 'R 1 H C'], value: Float[Array, 'R 1 H E']
) -> State:
    """The state with a key and a value of each row at `place`, the same place for all rows of a sentence."""
    (keys, values), row = state['cache'], jnp.arange(place.shape[0])
    sentences = keys.shape[0]
    width = place.shape[0] // sentences
    together = lambda x: x.reshape(sentences, width, *x.shape[1:])
    sentence, own = jnp.arange(sentences)[:, None], together(place * width + row % width)
    keys = keys.at[sentence, :, :, own].set(together(key)[:, :, 0])
    values = values.at[sentence, :, own].set(together(value)[:, :, 0])
    return {'cache': Cache(keys, values), 'writers': state['writers'].at[row, place].set(row % width)}


def over_cache(
    query: Float[Array, 'R 1 H C'],
    state: State,
    mask: Bool[Array, 'R 1 1 L'],
    bias: Float[Array, 'R H 1 L'] | None = None,
) -> Float[Array, 'R 1 H E']:
    """Attention to those places of a cache where `mask` is True.

    The hypotheses of a sentence are queries of one attention to all that any of them wrote. At each position
    a query sees only the key of the hypothesis that it descends from.
    """
    key, value = state['cache']
    sentences, heads, places, features = value.shape
    width = query.shape[0] // sentences
    together = lambda x: x.reshape(sentences, width, *x.shape[1:])
    writers, mask = together(state['writers'])[..., None], together(mask)[:, :, 0, 0, :, None]
    mask = mask & (writers == jnp.arange(width)[None, None, None])
    mask = mask.reshape(sentences, 1, width, places)
    if bias is not None:
        bias = jnp.repeat(together(bias)[:, :, :, 0].swapaxes(1, 2), width, axis=-1)
    key, value = jnp.moveaxis(key, -1, 1), value.swapaxes(1, 2)
    weights = attention_weights(together(query)[:, :, 0], key, mask, bias)
    return weighted_sum(weights, value).reshape(-1, 1, heads, features)


def into_blocks(x: Array, size: int) -> Array:
    """x [B T ...] as blocks [B N size ...] of positions; the last one is filled up with zeros."""
    missing = -x.shape[1] % size
    padded = jnp.pad(x, ((0, 0), (0, missing)) + ((0, 0),) * (x.ndim - 2))
    return padded.reshape(x.shape[0], -1, size, *x.shape[2:])


def out_of_blocks(blocks: Array, length: int) -> Array:
    """The first `length` positions [B T ...] of blocks [B N size ...]."""
    return blocks.reshape(blocks.shape[0], -1, *blocks.shape[3:])[:, :length]


def with_neighbours(blocks: Array, *, causal: bool) -> Array:
    """Every block between the one before it and, unless causal, the one after it: [B N 2·size or 3·size ...].

    Beyond the ends of the row are zeros.
    """
    nothing = jnp.zeros_like(blocks[:, :1])
    before = jnp.concatenate([nothing, blocks[:, :-1]], axis=1)
    after = [] if causal else [jnp.concatenate([blocks[:, 1:], nothing], axis=1)]
    return jnp.concatenate([before, blocks, *after], axis=2)
