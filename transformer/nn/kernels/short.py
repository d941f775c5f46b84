"""Full attention in rows of 128 positions: a forward and a backward Pallas kernel for TPUs (§3.2.1).

A register of a TPU holds 8 x 128 numbers of 32 bits. Arrays have their positions last, as the projections
around attention write them on TPUs: 64 features would be padded to 128, and a head's features are whole
registers. Logits are computed as keys by queries, because sums over the first axis exchange nothing between
lanes.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.nn.kernels.kernel import LOWEST, AttentionInputs

_LANES = 128
# TPUs whose kernels have no products of bfloat16.
UNSUITED = 'TPU v2', 'TPU v3'


def fits(rows: AttentionInputs) -> bool:
    """Returns whether the kernel computes these rows: in bfloat16, without bias and dropout of weights."""
    (_, queries, _, width), (_, keys, _, value_width) = rows.query.shape, rows.value.shape
    # Sixteen rows of bfloat16 fill a register.
    sizes = queries == keys == _LANES and width == value_width and width % 16 == 0
    device = jax.devices()[0].device_kind not in UNSUITED
    return sizes and rows.is_plain and rows.query.dtype == jnp.bfloat16 and device


# Plain definition: nn/plain.py: attention.
def attend(rows: AttentionInputs, *, causal: bool, interpret: bool = False) -> Float[Array, 'B Q H C']:
    """Computes each query's weighted mean of the values in its segment.

    Args:
      interpret: whether to run the kernel's Python code on any device, slowly, instead of compiling it.
    """
    arrays = rows.query, rows.key, rows.value
    return _run(_means, rows, arrays, arrays[:1], causal=causal, interpret=interpret)[0]


def gradients(
    rows: AttentionInputs, gradient: Float[Array, 'B Q H C'], *, causal: bool, interpret: bool = False
) -> list[Float[Array, 'B _ H C']]:
    """Computes the gradients of queries, keys and values from the outputs' gradient.

    Where a query has no key (padding), `gradient` must be zero; no output there is used.
    """
    arrays = rows.query, rows.key, rows.value
    return _run(_gradients, rows, (*arrays, gradient), arrays, causal=causal, interpret=interpret)


# Traced once for all layers, because platforms without the kernel trace it, too.
@functools.partial(jax.jit, static_argnums=(0,), static_argnames=('causal', 'interpret'), inline=True)
def _run(
    kernel: Callable,
    rows: AttentionInputs,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    *,
    causal: bool,
    interpret: bool,
) -> list[Array]:
    """Runs a kernel on one row of the batch at a time; the outputs have the shapes of `outputs`."""
    from jax.experimental import pallas

    positions_last = lambda x: x.transpose(0, 2, 3, 1).reshape(x.shape[0], -1, x.shape[1])
    segments = [x[:, None] for x in (rows.key_segments, rows.query_segments)]
    arrays = [*segments, *map(positions_last, inputs)]
    batch, _, heads, width = rows.query.shape
    shapes = [jax.ShapeDtypeStruct((batch, heads * width, _LANES), x.dtype) for x in outputs]
    row = lambda x: pallas.BlockSpec((1, *x.shape[1:]), lambda i: (i, 0, 0))
    results = pallas.pallas_call(
        functools.partial(kernel, causal=causal, width=width),
        grid=(batch,),
        in_specs=[*map(row, arrays)],
        out_specs=[*map(row, shapes)],
        out_shape=shapes,
        name=f'short_attention{kernel.__name__}',
        interpret=interpret,
    )(*arrays)
    return [x.reshape(batch, heads, width, _LANES).transpose(0, 3, 1, 2) for x in results]


def _means(key_segments, query_segments, query, key, value, means, *, causal: bool, width: int) -> None:
    """Writes the weighted means of one row's values."""
    mask = _mask(key_segments[0], query_segments[0], causal=causal)
    products = lambda head: [_product(key[head], query[head], 0, 0)]
    for head, logits in _heads(query.shape[1], width, products, early=1):
        weights = _softmax(logits, mask, width)
        means[head] = _product(value[head], weights.astype(value.dtype), 1, 0).astype(means.dtype)


def _gradients(
    key_segments, query_segments, query, key, value, gradient, d_query, d_key, d_value, *, causal, width
) -> None:
    """Writes the gradients of one row's queries, keys and values; computes the weights again."""
    mask = _mask(key_segments[0], query_segments[0], causal=causal)
    products = lambda head: [_product(x[head], y[head], 0, 0) for x, y in ((key, query), (value, gradient))]
    for head, logits, d_weights in _heads(query.shape[1], width, products, early=2):
        weights = _softmax(logits, mask, width)
        sums = jnp.sum(weights * d_weights, axis=0, keepdims=True)
        d_logits = (weights * (d_weights - sums) * width**-0.5).astype(query.dtype)
        d_query[head] = _product(key[head], d_logits, 1, 0).astype(d_query.dtype)
        d_key[head] = _product(query[head], d_logits, 1, 1).astype(d_key.dtype)
        d_value[head] = _product(gradient[head], weights.astype(value.dtype), 1, 1).astype(d_value.dtype)


def _heads(features: int, width: int, products: Callable, early: int) -> Iterator[tuple]:
    """Yields the index of each head's features in a row, and the head's products.

    Products are in the program `early` heads before they are used, so that the matrix unit computes them
    during a softmax. The compiler keeps the order.
    """
    heads = [(0, slice(first, first + width)) for first in range(0, features, width)]
    ready = [products(head) for head in heads[:early]]
    for head, following in itertools.zip_longest(heads, heads[early:]):
        if following:
            ready.append(products(following))
        yield head, *ready.pop(0)


def _mask(key_segments: Int[Array, '1 K'], query_segments: Int[Array, '1 Q'], *, causal: bool) -> Array:
    """Returns [K Q]: 0 where a query can attend to a key, the lowest number elsewhere."""
    by_key = jnp.broadcast_to(key_segments, (_LANES, _LANES)).T
    mask = (by_key == query_segments) & (by_key > 0)
    if causal:
        place = functools.partial(jax.lax.broadcasted_iota, jnp.int32, mask.shape)
        mask &= place(0) <= place(1)
    return jnp.where(mask, 0.0, LOWEST)


def _softmax(logits: Float[Array, 'K Q'], mask: Float[Array, 'K Q'], width: int) -> Float[Array, 'K Q']:
    """Computes the weights of the keys by powers of two, from the products of keys and queries."""
    logits = logits * (width**-0.5 * math.log2(math.e)) + mask
    powers = jnp.exp2(logits - jnp.max(logits, axis=0, keepdims=True))
    return powers * (1.0 / jnp.sum(powers, axis=0, keepdims=True))


def _product(x: Array, y: Array, x_axis: int, y_axis: int) -> Float[Array, '_ _']:
    """Contracts an axis of each matrix, with sums in float32."""
    contracted = ((x_axis,), (y_axis,)), ((), ())
    # Products of bfloat16 have one precision. A kernel refuses `train.matmul_precision`'s others.
    one = jax.lax.Precision.DEFAULT
    return jax.lax.dot_general(x, y, contracted, precision=one, preferred_element_type=jnp.float32)
