"""Softmax attention to every key (§3.2.1)."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.config import Model
from transformer.nn import masks
from transformer.nn.cache import Cache
from transformer.nn.kernels import kernel as k
from transformer.nn.kernels import short
from transformer.nn.kernels.kernel import AttentionInputs, AttentionState, Kernel, Token
from transformer.nn.matmul import sum_type

# Queries of a part of a causal row that has at least two.
_PART = 256


def attention_weights(
    query: Float[Array, 'B Q H C'],
    key: Float[Array, 'B K H C'],
    mask: Bool[Array, '#B 1 #Q K'],
    bias: Float[Array, 'B H Q K'] | None = None,
) -> Float[Array, 'B H Q K']:
    """Computes softmax((QK^T + bias) / sqrt(d_k)), in float32 (§3.2.1).

    A query without keys to attend to (padding) gets uniform weights. Its output is never used.
    """
    logits = jnp.einsum('BQHC,BKHC->BHQK', query, key, preferred_element_type=sum_type(query))
    return _softmax(logits, query.shape[-1], mask, bias)


def _softmax(logits, d_k, mask, bias):
    if bias is not None:
        logits = logits + bias
    return jax.nn.softmax(jnp.where(mask, logits * d_k**-0.5, k.LOWEST), axis=-1)


def weights(rows: AttentionInputs, *, causal: bool) -> Float[Array, 'B H Q K']:
    """Computes the softmax over the keys of a query's segment."""
    return attention_weights(rows.query, rows.key, rows.mask(causal=causal), rows.bias)


# Plain definition: nn/plain.py: attention.
def attend(rows: AttentionInputs, causal: bool) -> Float[Array, 'B Q H E']:
    """Computes the weighted means of values in a segment. It has only a reverse-mode derivative."""
    length = rows.query.shape[1]
    if not causal or length < 2 * _PART or not rows.is_plain:
        return _attend(rows, causal)
    # No query of a part attends to a key beyond the part's end.
    parts = [rows.part(start, start + _PART) for start in range(0, length, _PART)]
    return jnp.concatenate([_attend(part, causal) for part in parts], axis=1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _attend(rows: AttentionInputs, causal: bool) -> Float[Array, 'B Q H E']:
    if short.fits(rows):
        return _forward(rows, causal)[0]
    # As `_means`, but written out for readers.
    logits = jnp.einsum('BQHC,BKHC->BHQK', rows.query, rows.key, preferred_element_type=sum_type(rows.query))
    weights = _softmax(logits, rows.query.shape[-1], rows.mask(causal=causal), rows.bias)
    return k.weighted_sum(rows.drop(weights), rows.value)


def _forward(rows, causal):
    mask = rows.mask(causal=causal)
    on_tpu = lambda rows, mask: short.attend(rows, causal=causal)
    means = _on_platform(rows, on_tpu, _means, rows, mask)
    # The backward pass computes the weights again. To keep two numbers per query, the largest logit and the
    # sum of exponentials, the TPU's compiler would read the n² logits once more.
    return means, (rows, mask, means)


def _on_platform(rows, on_tpu, elsewhere, *arguments):
    """Calls `on_tpu` on a TPU whose kernel fits the rows, and `elsewhere` on all others."""
    if not short.fits(rows):
        return elsewhere(*arguments)
    return jax.lax.platform_dependent(*arguments, tpu=on_tpu, default=elsewhere)


def _means(rows, mask):
    weights = attention_weights(rows.query, rows.key, mask, rows.bias)
    return k.weighted_sum(rows.drop(weights), rows.value)


def _backward(causal, saved, gradient):
    on_tpu = lambda saved, gradient: (*short.gradients(saved[0], gradient, causal=causal), None)
    parts = _on_platform(saved[0], on_tpu, _gradients, saved, gradient)
    return (AttentionInputs(*parts[:3], None, None, parts[3], None),)


def _gradients(saved, gradient):
    rows, mask, means = saved
    value, bias, drop = rows.value, rows.bias, rows.drop
    # Without this barrier, the compiler sees that the logits were computed before, and keeps them.
    query, key = jax.lax.optimization_barrier((rows.query, rows.key))
    weights = attention_weights(query, key, mask, bias)
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
    return d_query, d_key, d_value, d_bias


_attend.defvjp(_forward, _backward)


def empty_cache(model: Model, rows: int, length: int) -> AttentionState:
    """Returns an empty cache of `length` positions, and the writer of the entry that each row reads there."""
    dtype, h, d_k, d_v = jnp.dtype(model.dtype), model.h, model.d_k, model.d_v
    by_heads = (rows, h, d_k, length), (rows, h, length, d_v)
    together = (rows, length, h * d_k), (rows, length, h * d_v)
    shapes = together if dtype == jnp.bfloat16 else by_heads
    cache = Cache(*(jnp.zeros(shape, dtype) for shape in shapes))
    return {'cache': cache, 'writers': jnp.zeros((rows, length), jnp.int32)}


def add_to_cache(state: AttentionState, place: Int[Array, 'R'], token: Token) -> AttentionState:
    """Adds the token's key and value at `place`, which is the same for all rows of a sentence."""
    (keys, values), row = state['cache'], jnp.arange(place.shape[0])
    sentences = keys.shape[0]
    width = place.shape[0] // sentences
    together = lambda x: x.reshape(sentences, width, *x.shape[1:])
    sentence, places = jnp.arange(sentences)[:, None], together(place * width + row % width)
    if state['cache'].by_heads:
        keys = keys.at[sentence, :, :, places].set(together(token.key)[:, :, 0])
        values = values.at[sentence, :, places].set(together(token.value)[:, :, 0])
    else:
        flat = lambda x: x.reshape(sentences, width, -1)
        keys = keys.at[sentence, places].set(flat(token.key))
        values = values.at[sentence, places].set(flat(token.value))
    return {'cache': Cache(keys, values), 'writers': state['writers'].at[row, place].set(row % width)}


def over_heads(
    query: Float[Array, 'B Q H C'],
    key: Float[Array, 'B H C K'],
    value: Float[Array, 'B H K E'],
    mask: Bool[Array, '#B 1 #Q K'],
    bias: Float[Array, 'B H Q K'] | None = None,
) -> Float[Array, 'B Q H E']:
    """Attends to keys and values in a cache's axis order, in which XLA for CPUs multiplies them.

    If another order came between, XLA would make it before a search's loop, and undo it in each step.
    """
    logits = jnp.einsum('BQHC,BHCK->BHQK', query, key, preferred_element_type=sum_type(query))
    weights = _softmax(logits, query.shape[-1], mask, bias)
    return jnp.matmul(weights.astype(value.dtype), value).swapaxes(1, 2)


def over_cache(
    query: Float[Array, 'R 1 H C'],
    state: AttentionState,
    mask: Bool[Array, 'R 1 1 L'],
    bias: Float[Array, 'R H 1 L'] | None = None,
) -> Float[Array, 'R 1 H E']:
    """Attends to the places of a cache where `mask` is True.

    A sentence's hypotheses are queries of one attention to all entries that any of them wrote. At each
    position, a query sees only the key written by the hypothesis that it descends from.
    """
    key, value = state['cache']
    sentences, heads = value.shape[0], query.shape[2]
    width = query.shape[0] // sentences
    together = lambda x: x.reshape(sentences, width, *x.shape[1:])
    writers, mask = together(state['writers'])[..., None], together(mask)[:, :, 0, 0, :, None]
    mask = mask & (writers == jnp.arange(width)[None, None, None])
    mask = mask.reshape(sentences, 1, width, -1)
    if bias is not None:
        bias = jnp.repeat(together(bias)[:, :, :, 0].swapaxes(1, 2), width, axis=-1)
    query = together(query)[:, :, 0]
    if state['cache'].by_heads:
        means = over_heads(query, key, value, mask, bias)
        return means.reshape(-1, 1, *means.shape[2:])
    # All heads in one product: a head's query is zero at the features of others, and its mean is the part of
    # its own features.
    own = jnp.eye(heads, dtype=query.dtype)[None, None, :, :, None]
    apart = (own * query[:, :, :, None]).reshape(sentences, width * heads, -1)
    logits = jnp.einsum('BQX,BPX->BQP', apart, key, preferred_element_type=sum_type(query))
    # Heads before the last axis: often 8 or 16, which a TPU need not pad.
    logits = logits.reshape(sentences, width, heads, -1)
    bias = None if bias is None else bias.swapaxes(1, 2)
    weights = _softmax(logits, query.shape[-1], mask.swapaxes(1, 2), bias).astype(value.dtype)
    means = jnp.einsum('BQP,BPX->BQX', weights.reshape(sentences, width * heads, -1), value)
    means = means.reshape(sentences, width, heads, heads, -1)
    return jnp.einsum('BQHHE->BQHE', means).reshape(-1, 1, heads, means.shape[-1])


def attend_one(token: Token, state: AttentionState) -> tuple[Float[Array, 'R 1 H E'], AttentionState]:
    """Adds the token to the state, then attends to all keys in it."""
    state = add_to_cache(state, token.position, token)
    mask = masks.prefix_mask(token.position, state['writers'].shape[1])
    return over_cache(token.query, state, mask, token.bias), state


FULL = Kernel(attend, empty_cache, attend_one, weights)
