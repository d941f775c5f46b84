"""Linear attention (Katharopoulos et al. 2020): phi(q)·phi(k) instead of exp(q·k), phi(x) = elu(x) + 1.

Sums over keys then fit in one matrix [C E] per head, so the cost is n·d_k·d_v.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.config import Model
from transformer.nn import masks
from transformer.nn.kernels import kernel as k
from transformer.nn.kernels.kernel import AttentionInputs, AttentionState, Kernel, Token
from transformer.nn.matmul import sum_type


def feature(x: Float[Array, '...']) -> Float[Array, '...']:
    """Computes phi(x) = elu(x) + 1, which is positive, in float32."""
    x = x.astype(sum_type(x))
    # elu itself computes exp(x) - 1, which loses the digits of exp(x) if x is far below 0.
    return jnp.where(x > 0, x + 1.0, jnp.exp(jnp.minimum(x, 0.0)))


def weights(rows: AttentionInputs, *, causal: bool) -> Float[Array, 'B H Q K']:
    """Computes the quadratic form phi(q)·phi(k), normalised over the keys of a query's segment."""
    products = jnp.einsum('BQHC,BKHC->BHQK', feature(rows.query), feature(rows.key))
    masked = jnp.where(rows.mask(causal=causal), products, 0.0)
    total = masked.sum(axis=-1, keepdims=True)
    return masked / jnp.where(total > 0, total, 1.0)


# Plain definition: nn/plain.py: linear_attention.
def attend(rows: AttentionInputs, *, causal: bool, chunk: int) -> Float[Array, 'B T H E']:
    """Scans chunks from left to right and, unless causal, from right to left, without bias and dropout."""
    query, key, value, *_ = rows
    inputs = feature(query), feature(key), value.astype(sum_type(value)), rows.key_segments
    total, norm = _prefix_sums(*inputs, chunk, strict=False)
    if not causal:
        mirrored = _prefix_sums(*(jnp.flip(x, axis=1) for x in inputs), chunk, strict=True)
        total, norm = total + jnp.flip(mirrored[0], axis=1), norm + jnp.flip(mirrored[1], axis=1)
    norm = jnp.where(norm > 0, norm, 1.0)[..., None]
    # Both are divided by the same number first, because a gradient has the square of the norm.
    scale = jax.lax.stop_gradient(norm)
    return ((total / scale) / (norm / scale)).astype(rows.value.dtype)


def _prefix_sums(
    query: Float[Array, 'B T H C'],
    key: Float[Array, 'B T H C'],
    value: Float[Array, 'B T H E'],
    segments: Int[Array, 'B T'],
    chunk: int,
    *,
    strict: bool,
) -> tuple[Float[Array, 'B T H E'], Float[Array, 'B T H']]:
    """Sums (q_i·k_j) v_j, and q_i·k_j, over all j <= i (j < i if strict) in i's segment.

    The cost is quadratic within a chunk. From earlier chunks only the sums over the segment of this chunk's
    first position matter, because segments are contiguous.
    """
    length = query.shape[1]
    blocks = [jnp.moveaxis(k.into_blocks(x, min(chunk, length)), 1, 0) for x in (query, key, value, segments)]
    place = jnp.arange(blocks[0].shape[2])
    earlier = place[:, None] > place[None, :] if strict else place[:, None] >= place[None, :]

    def add_chunk(before, block):
        q, key, value, segment = block
        matrix, vector, carried = before
        mask = masks.segment_mask(segment, segment)[:, 0] & earlier[None]
        inner = jnp.where(mask[:, None], jnp.einsum('BQHC,BKHC->BHQK', q, key), 0.0)
        # The carried sums belong to one segment.
        same = jnp.where((segment == carried[:, None])[:, :, None, None], q, 0.0)
        total = jnp.einsum('BHQK,BKHE->BQHE', inner, value) + jnp.einsum('BQHC,BHCE->BQHE', same, matrix)
        norm = inner.sum(axis=-1).swapaxes(1, 2) + jnp.einsum('BQHC,BHC->BQH', same, vector)
        last = segment[:, -1]
        continues = ((last == carried) & (last > 0))[:, None, None]
        added = jnp.where(((segment == last[:, None]) & (last > 0)[:, None])[:, :, None, None], key, 0.0)
        matrix = jnp.where(continues[..., None], matrix, 0.0) + jnp.einsum('BKHC,BKHE->BHCE', added, value)
        vector = jnp.where(continues, vector, 0.0) + added.sum(axis=1)
        return (matrix, vector, last), (total, norm)

    rows, _, heads, c = query.shape
    sums = jnp.zeros((rows, heads, c, value.shape[-1])), jnp.zeros((rows, heads, c))
    totals, norms = jax.lax.scan(add_chunk, (*sums, jnp.zeros(rows, segments.dtype)), tuple(blocks))[1]
    return tuple(k.out_of_blocks(jnp.moveaxis(x, 0, 1), length) for x in (totals, norms))


def empty(model: Model, rows: int, length: int) -> AttentionState:
    """Returns zero sums of phi(k) v^T [B H C E] and of phi(k) [B H C], for any length."""
    del length
    return {
        'matrix': jnp.zeros((rows, model.h, model.d_k, model.d_v)),
        'vector': jnp.zeros((rows, model.h, model.d_k)),
    }


def attend_one(token: Token, state: AttentionState) -> tuple[Float[Array, 'R 1 H E'], AttentionState]:
    """Adds the token's key and value to the sums, then applies them to its query."""
    key, query, value = feature(token.key)[:, 0], feature(token.query)[:, 0], token.value
    added = jnp.einsum('BHC,BHE->BHCE', key, value[:, 0].astype(sum_type(value)))
    state = {'matrix': state['matrix'] + added, 'vector': state['vector'] + key}
    total = jnp.einsum('BHC,BHCE->BHE', query, state['matrix'])
    norm = jnp.einsum('BHC,BHC->BH', query, state['vector'])
    return (total / jnp.where(norm > 0, norm, 1.0)[..., None]).astype(value.dtype)[:, None], state


def kernel(model: Model) -> Kernel:
    """Returns linear attention with a model's options."""
    return Kernel(functools.partial(attend, chunk=model.attention_chunk), empty, attend_one, weights)
