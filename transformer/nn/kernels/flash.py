"""Full attention by the fused kernel of the device: cuDNN's on a GPU, Pallas' on a TPU."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.nn.kernels import full
from transformer.nn.kernels import kernel as k

# The Pallas kernel takes rows of a multiple of this length.
_TPU_BLOCK = 128


def attend(
    query: Float[Array, 'B T H C'],
    key: Float[Array, 'B T H C'],
    value: Float[Array, 'B T H C'],
    queries: Int[Array, 'B T'],
    keys: Int[Array, 'B T'],
    bias: None,
    drop: k.Drop,
    *,
    causal: bool,
) -> Float[Array, 'B T H C']:
    """Every query's mean of the values of its segment.

    The TPU's kernel takes segments itself. cuDNN gets them as a mask with one bit for each query and key.
    """
    del bias, drop
    # `config.check_platform` lets no other device come here.
    fused = _cudnn if jax.default_backend() == 'gpu' else _pallas
    return fused(query, key, value, queries, keys, causal=causal)


def _cudnn(query, key, value, queries, keys, *, causal: bool):
    mask = full.mask_of(queries, keys, causal=causal)
    # Padding attends to itself, because a row of the mask without True gives NaN.
    mask |= jnp.eye(query.shape[1], dtype=bool)[None, None]
    return jax.nn.dot_product_attention(query, key, value, mask=mask, implementation='cudnn')


def _pallas(query, key, value, queries, keys, *, causal: bool):
    from jax.experimental.pallas.ops.tpu import flash_attention as pallas

    length = query.shape[1]
    query, key, value, queries, keys = (
        k.out_of_blocks(blocks, blocks.shape[1] * _TPU_BLOCK)
        for blocks in (k.into_blocks(x, _TPU_BLOCK) for x in (query, key, value, queries, keys))
    )
    heads_first = lambda x: x.swapaxes(1, 2)
    found = pallas.flash_attention(
        *map(heads_first, (query, key, value)),
        segment_ids=pallas.SegmentIds(queries, keys),
        causal=causal,
        sm_scale=query.shape[-1] ** -0.5,
    )
    return heads_first(found)[:, :length]


FLASH = full.FULL._replace(attend=attend)
