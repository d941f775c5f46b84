"""Softmax attention to every key (§3.2.1)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from transformer.nn import masks
from transformer.nn.kernels import kernel as k
from transformer.nn.kernels.kernel import Kernel, Rows, State, Token


def weights(rows: Rows, *, causal: bool) -> Float[Array, 'B H Q K']:
    """Softmax over the keys of a query's segment."""
    return k.attention_weights(rows.query, rows.key, rows.mask(causal=causal), rows.bias)


def attend(rows: Rows, *, causal: bool) -> Float[Array, 'B Q H E']:
    """Each query's weighted mean of the values in its segment; has only a reverse-mode derivative."""
    mask = rows.mask(causal=causal)
    return _means(rows.query, rows.key, rows.value, mask, rows.bias, rows.drop)


# Plain definition: nn/plain.py: attention.
@jax.custom_vjp
def _means(query, key, value, mask, bias, drop):
    return _means_forward(query, key, value, mask, bias, drop)[0]


def _means_forward(query, key, value, mask, bias, drop):
    weights = k.attention_weights(query, key, mask, bias)
    means = k.weighted_sum(drop(weights), value)
    # Nothing else is kept: to keep two numbers per query, the largest logit and the sum of exponentials, the
    # TPU's compiler would read the n² logits once more.
    return means, (query, key, value, mask, bias, drop, means)


def _means_backward(saved, gradient):
    query, key, value, mask, bias, drop, means = saved
    # Without this, the compiler sees that the logits were computed before, and keeps them.
    query, key = jax.lax.optimization_barrier((query, key))
    weights = k.attention_weights(query, key, mask, bias)
    d_value = jnp.einsum('BHQK,BQHE->BKHE', drop(weights).astype(value.dtype), gradient)
    d_weights = drop(jnp.einsum('BQHE,BKHE->BHQK', gradient, value, preferred_element_type=weights.dtype))
    # Each query's sum of weights times d_weights, without a pass over them (Dao et al. 2022, appendix B.2).
    # In bfloat16 this sum is rounded as the outputs are, as in FlashAttention.
    sums = jnp.sum(gradient.astype(weights.dtype) * means, axis=-1).swapaxes(1, 2)[..., None]
    d_logits = jnp.where(mask, weights * (d_weights - sums), 0.0) * query.shape[-1] ** -0.5
    rounded = d_logits.astype(query.dtype)
    d_query = k.weighted_sum(rounded, key)
    d_key = jnp.einsum('BHQK,BQHC->BKHC', rounded, query)
    d_bias = None if bias is None else d_logits.astype(bias.dtype)
    return d_query, d_key, d_value, None, d_bias, None


_means.defvjp(_means_forward, _means_backward)


def attend_one(token: Token, state: State) -> tuple[Float[Array, 'R 1 H E'], State]:
    """Adds the token to the state, then attends to all keys in it."""
    state = k.add_to_cache(state, token.position, token)
    mask = masks.prefix_mask(token.position, state['writers'].shape[1])
    return k.over_cache(token.query, state, mask, token.bias), state


FULL = Kernel(attend, k.empty_cache, attend_one, weights)
