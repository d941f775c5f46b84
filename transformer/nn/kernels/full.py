"""Softmax attention to every key (§3.2.1)."""

import jax
from jaxtyping import Array, Bool, Float, Int

from transformer.nn import masks
from transformer.nn.kernels import kernel as k
from transformer.nn.kernels.kernel import Kernel, State


def mask_of(queries: Int[Array, 'B Q'], keys: Int[Array, 'B K'], *, causal: bool) -> Bool[Array, 'B 1 Q K']:
    """Which keys a query may attend to: those of its segment, and of its past if causal."""
    mask = masks.segment_mask(queries, keys)
    return masks.causal_mask(queries.shape[1]) & mask if causal else mask


def weights(query, key, queries, keys, bias, *, causal: bool) -> Float[Array, 'B H Q K']:
    """Softmax over the keys of a query's segment."""
    return k.attention_weights(query, key, mask_of(queries, keys, causal=causal), bias)


def attend(
    query: Float[Array, 'B Q H C'],
    key: Float[Array, 'B K H C'],
    value: Float[Array, 'B K H E'],
    queries: Int[Array, 'B Q'],
    keys: Int[Array, 'B K'],
    bias: Float[Array, 'B H Q K'] | None,
    drop: k.Drop,
    *,
    causal: bool,
) -> Float[Array, 'B Q H E']:
    """Every query's mean of the values of its segment.

    The backward pass computes the weights again: there are n² of them, in float32.
    """

    @jax.checkpoint
    def means(query, key, value, bias):
        return k.weighted_sum(drop(weights(query, key, queries, keys, bias, causal=causal)), value)

    return means(query, key, value, bias)


def attend_one(
    query: Float[Array, 'B 1 H C'],
    key: Float[Array, 'B 1 H C'],
    value: Float[Array, 'B 1 H E'],
    state: State,
    position: Int[Array, 'B'],
    bias: Float[Array, 'B H 1 L'] | None,
) -> tuple[Float[Array, 'B 1 H E'], State]:
    """Adds a key and a value to the state, then attends to all keys in it."""
    state = k.add_to_cache(state, position, key, value)
    mask = masks.prefix_mask(position, state['key'].shape[2])
    return k.over_cache(query, state, mask, bias), state


FULL = Kernel(attend, k.empty_cache, attend_one, weights)
