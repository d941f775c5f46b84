"""Full attention by the device's fused kernel: cuDNN's on a GPU, Pallas's on a TPU."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from transformer.config import ConfigError
from transformer.nn.kernels import full
from transformer.nn.kernels import kernel as k
from transformer.nn.kernels.kernel import Rows

# The Pallas kernel takes row lengths that are multiples of this.
_TPU_BLOCK = 128


def attend(rows: Rows, *, causal: bool) -> Float[Array, 'B T H C']:
    """Each query's weighted mean of the values in its segment; ignores bias and dropout.

    The TPU's kernel takes segments. cuDNN's takes a mask with an entry for each query and key.
    """
    # `config.check_platform` refuses all other devices.
    return (_cudnn if jax.default_backend() == 'gpu' else _pallas)(rows, causal=causal)


def _cudnn(rows: Rows, *, causal: bool) -> Float[Array, 'B T H C']:
    # Padding attends to itself, because a row of the mask without True gives NaN.
    mask = rows.mask(causal=causal) | jnp.eye(rows.query.shape[1], dtype=bool)[None, None]
    return jax.nn.dot_product_attention(*rows[:3], mask=mask, implementation='cudnn')


def _pallas(rows: Rows, *, causal: bool) -> Float[Array, 'B T H C']:
    try:
        from jax.experimental.pallas.ops.tpu import flash_attention as pallas
    except ImportError as error:
        raise ConfigError(
            f"model.attention='flash': jax {jax.__version__} has no such kernel for TPUs; 'chunked' computes "
            'the same'
        ) from error
    padded = [k.out_of_blocks(x, x.shape[1] * _TPU_BLOCK) for x in k.blocks_of(rows, _TPU_BLOCK)[:5]]
    heads_first = lambda x: x.swapaxes(1, 2)
    outputs = pallas.flash_attention(
        *map(heads_first, padded[:3]),
        segment_ids=pallas.SegmentIds(*padded[3:]),
        causal=causal,
        sm_scale=rows.query.shape[-1] ** -0.5,
    )
    return heads_first(outputs)[:, : rows.query.shape[1]]


FLASH = full.FULL._replace(attend=attend)
