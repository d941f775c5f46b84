"""Strided attention (Child et al. 2019) to near keys and every s-th key: cost n·(s + n/s) instead of n²."""

import functools

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.config import Model
from transformer.nn.kernels import full, local
from transformer.nn.kernels import kernel as k
from transformer.nn.kernels.kernel import AttentionInputs, AttentionState, Kernel, Token
from transformer.nn.matmul import sum_type


def is_visible(distance: Int[Array, '...'], stride: int) -> Bool[Array, '...']:
    """Returns whether a key is visible: nearer than the stride, or a multiple of the stride away.

    Each head attends to both kinds of keys in one softmax ("merged heads", Child et al. 2019, eq. 7).
    """
    return (jnp.abs(distance) < stride) | (distance % stride == 0)


def weights(rows: AttentionInputs, *, causal: bool, stride: int) -> Float[Array, 'B H Q K']:
    """Computes the softmax over the visible keys of a query's segment."""
    visible = is_visible(k.places_apart(rows), stride)[None, None]
    return full.attention_weights(rows.query, rows.key, rows.mask(causal=causal) & visible, rows.bias)


# Plain definition: nn/plain.py: attention, with is_visible.
def attend(rows: AttentionInputs, *, causal: bool, stride: int) -> Float[Array, 'B T H E']:
    """Cuts rows into blocks of `stride`. Far keys are at the query's place in the other blocks."""
    length = rows.query.shape[1]
    if stride >= length:
        return full.attend(rows, causal=causal)
    blocks = k.blocks_of(rows, stride)
    near, near_mask = local.near_logits(blocks, causal=causal, window=stride - 1)
    far, far_mask = _far_logits(blocks, causal=causal)
    logits, mask = jnp.concatenate([near, far], axis=-1), jnp.concatenate([near_mask, far_mask], axis=-1)
    dropped = rows.drop(k.masked_softmax(logits, mask)).astype(rows.value.dtype)
    around = k.with_neighbours(blocks.value, causal=causal)
    near_weights, far_weights = jnp.split(dropped, [around.shape[2]], axis=-1)
    outputs = k.weighted_sum(near_weights, around)
    outputs += jnp.einsum('BNHQM,BMQHE->BNQHE', far_weights, blocks.value)
    return k.out_of_blocks(outputs, length)


def _far_logits(
    blocks: AttentionInputs, *, causal: bool
) -> tuple[Float[Array, 'B N H Q M'], Bool[Array, 'B N 1 Q M']]:
    """Returns the logits of each query with the keys at its place in all M = N blocks, and their mask."""
    query, key = blocks.query, blocks.key
    logits = jnp.einsum('BNQHC,BMQHC->BNHQM', query, key, preferred_element_type=sum_type(query))
    block = jnp.arange(query.shape[1])
    other = block[None, :] < block[:, None] if causal else block[None, :] != block[:, None]
    # [B 1 Q M]: the segments of the keys at place Q of block M.
    segments = blocks.key_segments.transpose(0, 2, 1)[:, None]
    same = (blocks.query_segments[..., None] == segments) & (segments > 0) & other[None, :, None, :]
    return logits * query.shape[-1] ** -0.5, same[:, :, None]


def attend_one(
    token: Token, state: AttentionState, *, stride: int
) -> tuple[Float[Array, 'R 1 H E'], AttentionState]:
    """Adds the token to the state, then attends to the state's visible keys."""
    state = full.add_to_cache(state, token.position, token)
    distance = token.position[:, None] - jnp.arange(state['writers'].shape[1])[None, :]
    mask = ((distance >= 0) & is_visible(distance, stride))[:, None, None, :]
    return full.over_cache(token.query, state, mask), state


def kernel(model: Model) -> Kernel:
    """Returns strided attention with a model's options."""
    stride = {'stride': model.attention_stride}
    return Kernel(
        functools.partial(attend, **stride),
        full.empty_cache,
        functools.partial(attend_one, **stride),
        functools.partial(weights, **stride),
    )
