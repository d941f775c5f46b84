"""Strided attention (Child et al. 2019): the last `stride` keys, and every stride-th one: cost n·sqrt(n)."""

import functools

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.config import Model
from transformer.nn.kernels import full, local
from transformer.nn.kernels import kernel as k
from transformer.nn.kernels.kernel import Kernel, State


def reached(distance: Int[Array, '...'], stride: int) -> Bool[Array, '...']:
    """Whether a key at this distance is attended to: it is near, or a multiple of the stride away.

    All heads have both kinds of keys, in one softmax (their eq. 7, "merged heads").
    """
    return (jnp.abs(distance) < stride) | (distance % stride == 0)


def weights(query, key, queries, keys, bias, *, causal: bool, stride: int) -> Float[Array, 'B H Q K']:
    """Softmax over the keys of a query's segment that are reached."""
    place = jnp.arange(queries.shape[1])
    far = reached(place[:, None] - place[None, :], stride)[None, None]
    return k.attention_weights(query, key, full.mask_of(queries, keys, causal=causal) & far, bias)


def attend(
    query: Float[Array, 'B T H C'],
    key: Float[Array, 'B T H C'],
    value: Float[Array, 'B T H E'],
    queries: Int[Array, 'B T'],
    keys: Int[Array, 'B T'],
    bias: None,
    drop: k.Drop,
    *,
    causal: bool,
    stride: int,
) -> Float[Array, 'B T H E']:
    """Blocks of `stride` positions: near keys are in a block or beside it, far ones in all others."""
    length = query.shape[1]
    if stride >= length:
        return full.attend(query, key, value, queries, keys, bias, drop, causal=causal)
    query, key, value, queries, keys = (k.into_blocks(x, stride) for x in (query, key, value, queries, keys))
    near, near_mask = local.near_logits(query, key, queries, keys, causal=causal, window=stride - 1)
    far, far_mask = _far_logits(query, key, queries, keys, causal=causal)
    logits, mask = jnp.concatenate([near, far], axis=-1), jnp.concatenate([near_mask, far_mask], axis=-1)
    found = drop(k.masked_softmax(logits, mask)).astype(value.dtype)
    around = k.with_neighbours(value, causal=causal)
    near_weights, far_weights = jnp.split(found, [around.shape[2]], axis=-1)
    outputs = k.weighted_sum(near_weights, around)
    outputs += jnp.einsum('BNHQM,BMQHE->BNQHE', far_weights, value)
    return k.out_of_blocks(outputs, length)


def _far_logits(
    query: Float[Array, 'B N Q H C'],
    key: Float[Array, 'B N Q H C'],
    queries: Int[Array, 'B N Q'],
    keys: Int[Array, 'B N Q'],
    *,
    causal: bool,
) -> tuple[Float[Array, 'B N H Q M'], Bool[Array, 'B N 1 Q M']]:
    """Logits of every query with the keys at its own place in the other blocks, M = N of them, and a mask."""
    logits = jnp.einsum('BNQHC,BMQHC->BNHQM', query, key, preferred_element_type=jnp.float32)
    block = jnp.arange(query.shape[1])
    other = block[None, :] < block[:, None] if causal else block[None, :] != block[:, None]
    # [B N Q M]: the segments of the keys at place Q of block M.
    segments = keys.transpose(0, 2, 1)[:, None]
    same = (queries[..., None] == segments) & (segments > 0) & other[None, :, None, :]
    return logits * query.shape[-1] ** -0.5, same[:, :, None]


def attend_one(
    query: Float[Array, 'R 1 H C'],
    key: Float[Array, 'R 1 H C'],
    value: Float[Array, 'R 1 H E'],
    state: State,
    position: Int[Array, 'R'],
    bias: None,
    *,
    stride: int,
) -> tuple[Float[Array, 'R 1 H E'], State]:
    """Adds a key and a value to the state, then attends to those keys in it that are reached."""
    del bias
    state = k.add_to_cache(state, position, key, value)
    distance = position[:, None] - jnp.arange(state['writers'].shape[1])[None, :]
    mask = ((distance >= 0) & reached(distance, stride))[:, None, None, :]
    return k.over_cache(query, state, mask), state


def kernel(model: Model) -> Kernel:
    """Strided attention with the stride of a model."""
    stride = {'stride': model.attention_stride}
    return Kernel(
        functools.partial(attend, **stride),
        k.empty_cache,
        functools.partial(attend_one, **stride),
        functools.partial(weights, **stride),
    )
