"""Attention to the r neighbours on each side, "restricted self-attention" (§4): cost n·r instead of n²."""

import functools

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from transformer.config import Model
from transformer.nn import masks
from transformer.nn.kernels import full
from transformer.nn.kernels import kernel as k
from transformer.nn.kernels.kernel import AttentionInputs, AttentionState, Kernel, Token
from transformer.nn.matmul import sum_type


def weights(rows: AttentionInputs, *, causal: bool, window: int) -> Float[Array, 'B H Q K']:
    """Computes the softmax over the keys of a query's segment that are at most `window` positions away."""
    near = (jnp.abs(k.places_apart(rows)) <= window)[None, None]
    return full.attention_weights(rows.query, rows.key, rows.mask(causal=causal) & near, rows.bias)


def near_logits(
    blocks: AttentionInputs, *, causal: bool, window: int
) -> tuple[Float[Array, 'B N H Q K'], Bool[Array, 'B N 1 Q K']]:
    """Returns the logits of each block's queries with its and its neighbours' keys, and their mask."""
    query, size = blocks.query, blocks.query.shape[2]
    around = k.with_neighbours(blocks.key, causal=causal)
    logits = jnp.einsum('BNQHC,BNKHC->BNHQK', query, around, preferred_element_type=sum_type(query))
    segments = k.with_neighbours(blocks.key_segments, causal=causal)
    # The distance of a key to the left of the query. The first key belongs to the block before.
    distance = jnp.arange(size)[:, None] + size - jnp.arange(around.shape[2])[None, :]
    near = ((distance <= window) & (distance >= (0 if causal else -window)))[None, None]
    same = blocks.query_segments[..., :, None] == segments[..., None, :]
    return logits * query.shape[-1] ** -0.5, (same & near & (segments > 0)[..., None, :])[:, :, None]


# Plain definition: nn/plain.py: attention, with is_visible.
def attend(rows: AttentionInputs, *, causal: bool, window: int) -> Float[Array, 'B T H E']:
    """Cuts rows into blocks of `window` queries, each with the keys of three blocks (two if causal)."""
    length = rows.query.shape[1]
    if window >= length:
        return full.attend(rows, causal=causal)
    blocks = k.blocks_of(rows, window)
    logits, mask = near_logits(blocks, causal=causal, window=window)
    dropped = rows.drop(k.masked_softmax(logits, mask)).astype(rows.value.dtype)
    around = k.with_neighbours(blocks.value, causal=causal)
    return k.out_of_blocks(k.weighted_sum(dropped, around), length)


def empty(model: Model, rows: int, length: int) -> AttentionState:
    """Returns an empty cache for the last `attention_window` positions and the present one."""
    return full.empty_cache(model, rows, min(length, model.attention_window + 1))


def attend_one(token: Token, state: AttentionState) -> tuple[Float[Array, 'R 1 H E'], AttentionState]:
    """Overwrites the oldest position in the state, then attends to all positions in the state."""
    size = state['writers'].shape[1]
    state = full.add_to_cache(state, token.position % size, token)
    # Places fill up from the left. Once the first is overwritten, all are in use.
    return full.over_cache(token.query, state, masks.prefix_mask(token.position, size)), state


def kernel(model: Model) -> Kernel:
    """Returns local attention with a model's options."""
    window = {'window': model.attention_window}
    return Kernel(
        functools.partial(attend, **window), empty, attend_one, functools.partial(weights, **window)
    )
