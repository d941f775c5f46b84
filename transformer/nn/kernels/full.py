"""Softmax attention to every key (§3.2.1)."""

import jax
import jax.numpy as jnp
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
    """Every query's mean of the values of its segment; with a reverse derivative only."""
    return _means(query, key, value, mask_of(queries, keys, causal=causal), bias, drop)


@jax.custom_vjp
def _means(query, key, value, mask, bias, drop):
    return _means_forward(query, key, value, mask, bias, drop)[0]


def _means_forward(query, key, value, mask, bias, drop):
    logits = k.attention_logits(query, key, mask, bias)
    # Softmax as jax.nn.softmax computes it. The n² weights, in float32, are not kept: with these two numbers
    # for each query, the backward pass has them again in one pass over the logits.
    highest = jnp.max(logits, axis=-1, keepdims=True)
    total = jnp.sum(jnp.exp(logits - highest), axis=-1, keepdims=True)
    means = k.weighted_sum(drop(jnp.exp(logits - highest) / total), value)
    return means, (query, key, value, mask, bias, drop, highest, total, means)


def _means_backward(saved, gradient):
    query, key, value, mask, bias, drop, highest, total, means = saved
    # Without this, the compiler sees that the logits were computed before, and keeps them.
    query, key = jax.lax.optimization_barrier((query, key))
    weights = jnp.exp(k.attention_logits(query, key, mask, bias) - highest) / total
    of_value = jnp.einsum('BHQK,BQHE->BKHE', drop(weights).astype(value.dtype), gradient)
    of_weights = drop(jnp.einsum('BQHE,BKHE->BHQK', gradient, value, preferred_element_type=jnp.float32))
    # Each query's sum of weights times of_weights, without a pass over them (Dao et al. 2022, appendix B.2).
    # In bfloat16 it has the rounding of the outputs, as FlashAttention's has.
    sums = jnp.sum(gradient.astype(jnp.float32) * means, axis=-1).swapaxes(1, 2)[..., None]
    of_logits = jnp.where(mask, weights * (of_weights - sums), 0.0) * query.shape[-1] ** -0.5
    rounded = of_logits.astype(query.dtype)
    of_query = k.weighted_sum(rounded, key)
    of_key = jnp.einsum('BHQK,BQHC->BKHC', rounded, query)
    of_bias = None if bias is None else of_logits.astype(bias.dtype)
    return of_query, of_key, of_value, None, of_bias, None


_means.defvjp(_means_forward, _means_backward)


def attend_one(
    query: Float[Array, 'R 1 H C'],
    key: Float[Array, 'R 1 H C'],
    value: Float[Array, 'R 1 H E'],
    state: State,
    position: Int[Array, 'R'],
    bias: Float[Array, 'R H 1 L'] | None,
) -> tuple[Float[Array, 'R 1 H E'], State]:
    """Adds a key and a value to the state, then attends to all keys in it."""
    state = k.add_to_cache(state, position, key, value)
    mask = masks.prefix_mask(position, state['writers'].shape[1])
    return k.over_cache(query, state, mask, bias), state


FULL = Kernel(attend, k.empty_cache, attend_one, weights)
