"""Full attention by chunks of keys with a running softmax: exact, with memory n·chunk instead of n².

Milakov and Gimelshein 2018; Rabe and Staats 2021. The backward pass recomputes each chunk's weights
from the logarithm of the softmax's denominator.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from transformer.config import Model
from transformer.nn import masks
from transformer.nn.kernels import full
from transformer.nn.kernels import kernel as k
from transformer.nn.kernels.kernel import AttentionInputs, Kernel
from transformer.nn.matmul import sum_type

_NEVER = float(np.finfo(np.float32).min)


def attend(rows: AttentionInputs, *, causal: bool, chunk: int) -> Float[Array, 'B Q H E']:
    """Computes each query's weighted mean of the values in its segment, without bias and dropout."""
    return _attend(causal, min(chunk, rows.key.shape[1]), *rows[:5])


# Plain definition: nn/plain.py: attention.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attend(causal, chunk, query, key, value, queries, keys):
    return _forward(causal, chunk, query, key, value, queries, keys)[0]


def _forward(causal, chunk, query, key, value, queries, keys):
    blocks = _by_chunk(chunk, key, value, keys)

    def add_chunk(before, block):
        highest, norm, total = before
        logits, mask = _logits(causal, query, queries, block)
        now = jnp.maximum(highest, jnp.max(logits, axis=-1))
        rescale = jnp.exp(highest - now)
        weights = jnp.where(mask, jnp.exp(logits - now[..., None]), 0.0)
        weighted = jnp.einsum(
            'BHQK,BKHE->BHQE', weights.astype(value.dtype), block[1], preferred_element_type=sum_type(value)
        )
        norm = norm * rescale + weights.sum(axis=-1)
        return (now, norm, total * rescale[..., None] + weighted), None

    rows, length, heads, _ = query.shape
    initial = (
        jnp.full((rows, heads, length), _NEVER),
        jnp.zeros((rows, heads, length)),
        jnp.zeros((rows, heads, length, value.shape[-1])),
    )
    highest, norm, total = jax.lax.scan(add_chunk, initial, blocks)[0]
    # Padding attends to no key, so its norm is 0.
    norm = jnp.where(norm > 0, norm, 1.0)
    output = (total / norm[..., None]).astype(value.dtype).swapaxes(1, 2)
    return output, (query, key, value, queries, keys, output, highest + jnp.log(norm))


def _backward(causal, chunk, saved, gradient):
    query, key, value, queries, keys, output, log_norm = saved
    scale = query.shape[-1] ** -0.5
    gradient = gradient.astype(log_norm.dtype)
    shift = jnp.einsum('BQHE,BQHE->BHQ', gradient, output.astype(log_norm.dtype))

    def add_gradients(d_query, block):
        logits, mask = _logits(causal, query, queries, block)
        weights = jnp.where(mask, jnp.exp(logits - log_norm[..., None]), 0.0)
        d_value = jnp.einsum('BHQK,BQHE->BKHE', weights, gradient)
        d_weights = jnp.einsum('BQHE,BKHE->BHQK', gradient, block[1])
        d_logits = weights * (d_weights - shift[..., None]) * scale
        d_key = jnp.einsum('BHQK,BQHC->BKHC', d_logits, query)
        return d_query + k.weighted_sum(d_logits, block[0].astype(log_norm.dtype)), (d_key, d_value)

    blocks = _by_chunk(chunk, key, value, keys)
    d_query, (d_key, d_value) = jax.lax.scan(add_gradients, jnp.zeros(query.shape), blocks)
    back = lambda x, like: k.out_of_blocks(jnp.moveaxis(x, 0, 1), like.shape[1]).astype(like.dtype)
    return d_query.astype(query.dtype), back(d_key, key), back(d_value, value), None, None


_attend.defvjp(_forward, _backward)


def _by_chunk(chunk, key, value, keys) -> tuple[Array, ...]:
    """Cuts keys, values, and the keys' segments and places into chunks, along a new first axis."""
    place = jnp.broadcast_to(jnp.arange(key.shape[1]), keys.shape)
    return tuple(jnp.moveaxis(k.into_blocks(x, chunk), 1, 0) for x in (key, value, keys, place))


def _logits(
    causal: bool, query: Float[Array, 'B Q H C'], queries: Int[Array, 'B Q'], block: tuple[Array, ...]
) -> tuple[Float[Array, 'B H Q K'], Bool[Array, 'B 1 Q K']]:
    """Returns the logits of all queries with the keys of a chunk, and their mask."""
    key, _, segments, place = block
    mask = masks.segment_mask(queries, segments)[:, 0]
    if causal:
        mask &= jnp.arange(query.shape[1])[None, :, None] >= place[:, None, :]
    logits = jnp.einsum('BQHC,BKHC->BHQK', query, key, preferred_element_type=sum_type(query))
    return jnp.where(mask[:, None], logits * query.shape[-1] ** -0.5, _NEVER), mask[:, None]


def kernel(model: Model) -> Kernel:
    """Returns chunked attention with a model's options, and with full attention's single steps."""
    return full.FULL._replace(attend=functools.partial(attend, chunk=model.attention_chunk))
