"""Full attention by chunks of keys with a running softmax: exact, with memory n·chunk instead of n².

Milakov and Gimelshein 2018; Rabe and Staats 2021. The backward pass computes the weights of each chunk again
from the logarithm of their sum.
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
from transformer.nn.kernels.kernel import Kernel, Rows

_NEVER = float(np.finfo(np.float32).min)


def attend(rows: Rows, *, causal: bool, chunk: int) -> Float[Array, 'B Q H E']:
    """Each query's weighted mean of the values in its segment; without bias and dropout."""
    return _attend(causal, min(chunk, rows.key.shape[1]), *rows[:5])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attend(causal, chunk, query, key, value, queries, keys):
    return _forward(causal, chunk, query, key, value, queries, keys)[0]


def _forward(causal, chunk, query, key, value, queries, keys):
    blocks = _by_chunk(chunk, key, value, keys)

    def one(before, block):
        highest, norm, total = before
        logits, mask = _logits(causal, query, queries, block)
        now = jnp.maximum(highest, jnp.max(logits, axis=-1))
        kept = jnp.exp(highest - now)
        weights = jnp.where(mask, jnp.exp(logits - now[..., None]), 0.0)
        weighed = jnp.einsum('BHQK,BKHE->BHQE', weights.astype(value.dtype), block[1])
        norm = norm * kept + weights.sum(axis=-1)
        return (now, norm, total * kept[..., None] + weighed), None

    rows, length, heads, _ = query.shape
    nothing = (
        jnp.full((rows, heads, length), _NEVER),
        jnp.zeros((rows, heads, length)),
        jnp.zeros((rows, heads, length, value.shape[-1])),
    )
    highest, norm, total = jax.lax.scan(one, nothing, blocks)[0]
    # Padding has no key to attend to.
    norm = jnp.where(norm > 0, norm, 1.0)
    output = (total / norm[..., None]).astype(value.dtype).swapaxes(1, 2)
    return output, (query, key, value, queries, keys, output, highest + jnp.log(norm))


def _backward(causal, chunk, kept, gradient):
    query, key, value, queries, keys, output, log_norm = kept
    scale = query.shape[-1] ** -0.5
    gradient = gradient.astype(jnp.float32)
    shift = jnp.einsum('BQHE,BQHE->BHQ', gradient, output.astype(jnp.float32))

    def one(of_query, block):
        logits, mask = _logits(causal, query, queries, block)
        weights = jnp.where(mask, jnp.exp(logits - log_norm[..., None]), 0.0)
        of_value = jnp.einsum('BHQK,BQHE->BKHE', weights, gradient)
        of_weights = jnp.einsum('BQHE,BKHE->BHQK', gradient, block[1])
        of_logits = weights * (of_weights - shift[..., None]) * scale
        of_key = jnp.einsum('BHQK,BQHC->BKHC', of_logits, query)
        return of_query + k.weighted_sum(of_logits, block[0].astype(jnp.float32)), (of_key, of_value)

    blocks = _by_chunk(chunk, key, value, keys)
    of_query, (of_key, of_value) = jax.lax.scan(one, jnp.zeros(query.shape), blocks)
    back = lambda x, like: k.out_of_blocks(jnp.moveaxis(x, 0, 1), like.shape[1]).astype(like.dtype)
    return of_query.astype(query.dtype), back(of_key, key), back(of_value, value), None, None


_attend.defvjp(_forward, _backward)


def _by_chunk(chunk, key, value, keys) -> tuple[Array, ...]:
    """Cuts keys, values, segments and places of the keys into chunks, which become the first axis."""
    place = jnp.broadcast_to(jnp.arange(key.shape[1]), keys.shape)
    return tuple(jnp.moveaxis(k.into_blocks(x, chunk), 1, 0) for x in (key, value, keys, place))


def _logits(
    causal: bool, query: Float[Array, 'B Q H C'], queries: Int[Array, 'B Q'], block: tuple[Array, ...]
) -> tuple[Float[Array, 'B H Q K'], Bool[Array, 'B 1 Q K']]:
    """Returns the logits of all queries with the keys of a chunk, and a mask of those that count."""
    key, _, segments, place = block
    mask = masks.segment_mask(queries, segments)[:, 0]
    if causal:
        mask &= jnp.arange(query.shape[1])[None, :, None] >= place[:, None, :]
    logits = jnp.einsum('BQHC,BKHC->BHQK', query, key, preferred_element_type=jnp.float32)
    return jnp.where(mask[:, None], logits * query.shape[-1] ** -0.5, _NEVER), mask[:, None]


def kernel(model: Model) -> Kernel:
    """Chunked attention by a model's options; its steps are those of full attention."""
    return full.FULL._replace(attend=functools.partial(attend, chunk=model.attention_chunk))
