"""Attention kernels: how queries, keys and values become outputs, for whole rows and step by step.

A kernel is three pure functions, without parameters. It gets segments and `causal` instead of a mask,
so that a kernel that needs no n x n array can be one too. Queries and keys are already rotated by their
positions; what positions add to the logits comes as `bias`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.config import Model
from transformer.nn import masks

# What one layer remembers of earlier positions: arrays with first axis B.
State = dict[str, Array]
# Applied to attention weights before they weigh the values: dropout, and keeping them for figures.
Weigh = Callable[[Float[Array, 'B H Q K']], Float[Array, 'B H Q K']]


class Kernel(NamedTuple):
    """Attention over whole rows, and the same attention step by step.

    attend: takes `(query, key, value, query segments, key segments, bias, weigh, causal=...)`, gives
      outputs [B Q H E]. A query attends to the keys of its own segment; if causal, not to those to its
      right in the row.
    empty: takes `(model, rows, length)`, gives a state with room for `length` positions.
    attend_one: takes `(query, key, value, state, position, bias, weigh)`, gives outputs [B 1 H E] and the
      state with the new position in it. The query of a row attends to its positions 0 to `position`.
    """

    attend: Callable
    empty: Callable
    attend_one: Callable


def attention_weights(
    query: Float[Array, 'B Q H C'],
    key: Float[Array, 'B K H C'],
    mask: Bool[Array, '#B 1 #Q K'],
    bias: Float[Array, 'B H Q K'] | None = None,
) -> Float[Array, 'B H Q K']:
    """softmax((QK^T + bias) / sqrt(d_k)), in float32 (§3.2.1).

    A query with nothing to attend to (padding) gets uniform weights; its output is never used.
    """
    logits = jnp.einsum('BQHC,BKHC->BHQK', query, key, preferred_element_type=jnp.float32)
    if bias is not None:
        logits = logits + bias
    logits = logits * query.shape[-1] ** -0.5
    return jax.nn.softmax(jnp.where(mask, logits, jnp.finfo(jnp.float32).min), axis=-1)


def _outputs(query, key, value, mask, bias, weigh: Weigh) -> Float[Array, 'B Q H E']:
    weights = weigh(attention_weights(query, key, mask, bias)).astype(value.dtype)
    return jnp.einsum('BHQK,BKHE->BQHE', weights, value)


def attend_full(
    query: Float[Array, 'B Q H C'],
    key: Float[Array, 'B K H C'],
    value: Float[Array, 'B K H E'],
    queries: Int[Array, 'B Q'],
    keys: Int[Array, 'B K'],
    bias: Float[Array, 'B H Q K'] | None,
    weigh: Weigh,
    *,
    causal: bool,
) -> Float[Array, 'B Q H E']:
    """Softmax attention to every key of a query's segment (§3.2.1)."""
    mask = masks.segment_mask(queries, keys)
    if causal:
        mask = masks.causal_mask(queries.shape[1]) & mask
    return _outputs(query, key, value, mask, bias, weigh)


def empty_full(model: Model, rows: int, length: int) -> State:
    """Room for the keys [B L H C] and values [B L H E] of `length` positions."""
    dtype = jnp.dtype(model.dtype)
    return {
        'key': jnp.zeros((rows, length, model.h, model.d_k), dtype),
        'value': jnp.zeros((rows, length, model.h, model.d_v), dtype),
    }


def attend_one_full(
    query: Float[Array, 'B 1 H C'],
    key: Float[Array, 'B 1 H C'],
    value: Float[Array, 'B 1 H E'],
    state: State,
    position: Int[Array, 'B'],
    bias: Float[Array, 'B H 1 L'] | None,
    weigh: Weigh,
) -> tuple[Float[Array, 'B 1 H E'], State]:
    """Adds a key and a value to the state, then attends to all keys in it."""
    rows, length = state['key'].shape[:2]
    row = jnp.arange(rows)
    state = {
        'key': state['key'].at[row, position].set(key[:, 0]),
        'value': state['value'].at[row, position].set(value[:, 0]),
    }
    mask = masks.prefix_mask(position, length)
    return _outputs(query, state['key'], state['value'], mask, bias, weigh), state


FULL = Kernel(attend_full, empty_full, attend_one_full)
