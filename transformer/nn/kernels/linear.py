"""Linear attention (Katharopoulos et al. 2020): phi(q)·phi(k) instead of exp(q·k), phi(x) = elu(x) + 1.

Sums over keys can then be kept as a matrix [C E] a head, so that the cost is n·d_k·d_v.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.config import Model
from transformer.nn.kernels import full
from transformer.nn.kernels import kernel as k
from transformer.nn.kernels.kernel import Kernel, State


def feature(x: Float[Array, '...']) -> Float[Array, '...']:
    """phi(x) = elu(x) + 1, which is positive; in float32."""
    x = x.astype(jnp.float32)
    # Not by elu itself, whose exp(x) - 1 has lost the digits of exp(x) where x is far below 0.
    return jnp.where(x > 0, x + 1.0, jnp.exp(jnp.minimum(x, 0.0)))


def weights(query, key, queries, keys, bias, *, causal: bool) -> Float[Array, 'B H Q K']:
    """phi(q)·phi(k), normalised over the keys of a query's segment: the quadratic form."""
    del bias
    mask = full.mask_of(queries, keys, causal=causal)
    found = jnp.where(mask, jnp.einsum('BQHC,BKHC->BHQK', feature(query), feature(key)), 0.0)
    total = found.sum(axis=-1, keepdims=True)
    return found / jnp.where(total > 0, total, 1.0)


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
    chunk: int,
) -> Float[Array, 'B T H E']:
    """A scan over chunks from left to right and, unless causal, another one for the keys to the right."""
    del queries, bias, drop
    inputs = (feature(query), feature(key), value.astype(jnp.float32), keys)
    total, norm = _prefix_sums(*inputs, chunk, strict=False)
    if not causal:
        mirrored = _prefix_sums(*(jnp.flip(x, axis=1) for x in inputs), chunk, strict=True)
        total, norm = total + jnp.flip(mirrored[0], axis=1), norm + jnp.flip(mirrored[1], axis=1)
    return (total / jnp.where(norm > 0, norm, 1.0)[..., None]).astype(value.dtype)


def _prefix_sums(
    query: Float[Array, 'B T H C'],
    key: Float[Array, 'B T H C'],
    value: Float[Array, 'B T H E'],
    segments: Int[Array, 'B T'],
    chunk: int,
    *,
    strict: bool,
) -> tuple[Float[Array, 'B T H E'], Float[Array, 'B T H']]:
    """Sums over j <= i (j < i if strict) of i's segment of (q_i·k_j) v_j, and of q_i·k_j.

    A chunk is quadratic in itself. Of everything before it, it needs the sums over its first position's
    segment alone, because segments are contiguous.
    """
    length = query.shape[1]
    blocks = [jnp.moveaxis(k.into_blocks(x, min(chunk, length)), 1, 0) for x in (query, key, value, segments)]
    place = jnp.arange(blocks[0].shape[2])
    earlier = place[:, None] > place[None, :] if strict else place[:, None] >= place[None, :]

    def one(before, block):
        q, key, value, segment = block
        matrix, vector, carried = before
        mask = (segment[:, :, None] == segment[:, None, :]) & (segment > 0)[:, None, :] & earlier[None]
        inner = jnp.where(mask[:, None], jnp.einsum('BQHC,BKHC->BHQK', q, key), 0.0)
        # What is carried belongs to one segment.
        mine = jnp.where((segment == carried[:, None])[:, :, None, None], q, 0.0)
        total = jnp.einsum('BHQK,BKHE->BQHE', inner, value) + jnp.einsum('BQHC,BHCE->BQHE', mine, matrix)
        norm = inner.sum(axis=-1).swapaxes(1, 2) + jnp.einsum('BQHC,BHC->BQH', mine, vector)
        last = segment[:, -1]
        goes_on = (last == carried) & (last > 0)
        added = jnp.where(
            (segment == last[:, None])[:, :, None, None] & (last > 0)[:, None, None, None], key, 0.0
        )
        matrix = jnp.where(goes_on[:, None, None, None], matrix, 0.0) + jnp.einsum(
            'BKHC,BKHE->BHCE', added, value
        )
        vector = jnp.where(goes_on[:, None, None], vector, 0.0) + added.sum(axis=1)
        return (matrix, vector, last), (total, norm)

    rows, _, heads, c = query.shape
    nothing = (
        jnp.zeros((rows, heads, c, value.shape[-1])),
        jnp.zeros((rows, heads, c)),
        jnp.zeros(rows, segments.dtype),
    )
    totals, norms = jax.lax.scan(one, nothing, tuple(blocks))[1]
    return tuple(k.out_of_blocks(jnp.moveaxis(x, 0, 1), length) for x in (totals, norms))


def empty(model: Model, rows: int, length: int) -> State:
    """The sums of phi(k) v^T [B H C E] and of phi(k) [B H C], whatever the length."""
    del length
    return {
        'matrix': jnp.zeros((rows, model.h, model.d_k, model.d_v)),
        'vector': jnp.zeros((rows, model.h, model.d_k)),
    }


def attend_one(
    query: Float[Array, 'R 1 H C'],
    key: Float[Array, 'R 1 H C'],
    value: Float[Array, 'R 1 H E'],
    state: State,
    position: Int[Array, 'R'],
    bias: None,
) -> tuple[Float[Array, 'R 1 H E'], State]:
    """Adds a key and a value to the sums, then reads them."""
    del position, bias
    mine, q = feature(key)[:, 0], feature(query)[:, 0]
    added = jnp.einsum('BHC,BHE->BHCE', mine, value[:, 0].astype(jnp.float32))
    state = {'matrix': state['matrix'] + added, 'vector': state['vector'] + mine}
    total = jnp.einsum('BHC,BHCE->BHE', q, state['matrix'])
    norm = jnp.einsum('BHC,BHC->BH', q, state['vector'])
    return (total / jnp.where(norm > 0, norm, 1.0)[..., None]).astype(value.dtype)[:, None], state


def kernel(model: Model) -> Kernel:
    """Linear attention with the chunk of a model."""
    return Kernel(functools.partial(attend, chunk=model.attention_chunk), empty, attend_one, weights)
