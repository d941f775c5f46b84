"""Attention to the r neighbours on each side, "restricted self-attention" (§4): cost n·r instead of n²."""

import functools

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.config import Model
from transformer.nn.kernels import full
from transformer.nn.kernels import kernel as k
from transformer.nn.kernels.kernel import Kernel, State


def weights(query, key, queries, keys, bias, *, causal: bool, window: int) -> Float[Array, 'B H Q K']:
    """Softmax over the keys of a query's segment that are at most `window` positions away."""
    place = jnp.arange(queries.shape[1])
    near = (jnp.abs(place[:, None] - place[None, :]) <= window)[None, None]
    return k.attention_weights(query, key, full.mask_of(queries, keys, causal=causal) & near, bias)


def near_logits(
    query: Float[Array, 'B N Q H C'],
    key: Float[Array, 'B N Q H C'],
    queries: Int[Array, 'B N Q'],
    keys: Int[Array, 'B N Q'],
    *,
    causal: bool,
    window: int,
) -> tuple[Float[Array, 'B N H Q K'], Bool[Array, 'B N 1 Q K']]:
    """Logits of the queries of each block with the keys of the block and of those beside it, and a mask.

    Args:
      window: how far a key may be away, at most the size of a block.
    """
    size = query.shape[2]
    around = k.with_neighbours(key, causal=causal)
    logits = jnp.einsum('BNQHC,BNKHC->BNHQK', query, around, preferred_element_type=jnp.float32)
    segments = k.with_neighbours(keys, causal=causal)
    # How far left of the query a key is; the first key is that of the block before.
    distance = jnp.arange(size)[:, None] + size - jnp.arange(around.shape[2])[None, :]
    near = ((distance <= window) & (distance >= (0 if causal else -window)))[None, None]
    same = queries[..., :, None] == segments[..., None, :]
    return logits * query.shape[-1] ** -0.5, (same & near & (segments > 0)[..., None, :])[:, :, None]


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
    window: int,
) -> Float[Array, 'B T H E']:
    """Blocks of `window` queries, each with the keys of three blocks (two if causal)."""
    length = query.shape[1]
    if window >= length:
        return full.attend(query, key, value, queries, keys, bias, drop, causal=causal)
    blocks = functools.partial(k.into_blocks, size=window)
    logits, mask = near_logits(
        blocks(query), blocks(key), blocks(queries), blocks(keys), causal=causal, window=window
    )
    found = drop(k.masked_softmax(logits, mask)).astype(value.dtype)
    around = k.with_neighbours(blocks(value), causal=causal)
    return k.out_of_blocks(k.weighted_sum(found, around), length)


def empty(model: Model, rows: int, length: int) -> State:
    """Room for the last `attention_window` positions and the present one."""
    return k.empty_cache(model, rows, min(length, model.attention_window + 1))


def attend_one(
    query: Float[Array, 'R 1 H C'],
    key: Float[Array, 'R 1 H C'],
    value: Float[Array, 'R 1 H E'],
    state: State,
    position: Int[Array, 'R'],
    bias: None,
) -> tuple[Float[Array, 'R 1 H E'], State]:
    """Overwrites the oldest position of the state, then attends to all in it."""
    del bias
    room = state['writers'].shape[1]
    state = k.add_to_cache(state, position % room, key, value)
    # Places fill up from the left, and are all in use from the time that they are written anew.
    mask = (jnp.arange(room)[None, :] <= position[:, None])[:, None, None, :]
    return k.over_cache(query, state, mask), state


def kernel(model: Model) -> Kernel:
    """Local attention with the window of a model."""
    window = {'window': model.attention_window}
    return Kernel(
        functools.partial(attend, **window), empty, attend_one, functools.partial(weights, **window)
    )
