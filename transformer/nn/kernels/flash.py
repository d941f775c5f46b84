"""Full attention by the device's fused kernel: cuDNN's on a GPU, Pallas's on a TPU."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from transformer.config import ConfigError
from transformer.nn.kernels import full
from transformer.nn.kernels import kernel as k
from transformer.nn.kernels.kernel import AttentionInputs

# The TPU's kernel takes multiples of _TPU_LANES as row lengths, in blocks of at most _TPU_BLOCK positions,
# and computes at most _TPU_PART queries (forward) or keys of a block at a time.
_TPU_LANES, _TPU_BLOCK, _TPU_PART = 128, 1024, 512


def attend(rows: AttentionInputs, *, causal: bool) -> Float[Array, 'B T H C']:
    """Computes each query's weighted mean of the values in its segment, without bias and dropout.

    The TPU's kernel takes segments. cuDNN's takes a mask with an entry for each query and key.
    """
    # `config.check_platform` refuses all other devices.
    return (_cudnn if jax.default_backend() == 'gpu' else splash)(rows, causal=causal)


def _cudnn(rows: AttentionInputs, *, causal: bool) -> Float[Array, 'B T H C']:
    # With a mask the kernel has gradients of even lengths alone.
    length = rows.query.shape[1]
    rows = AttentionInputs(*(k.pad(x, 2) for x in rows[:5]))
    # Padding attends to itself, because a row of the mask without True gives NaN.
    mask = rows.mask(causal=causal) | jnp.eye(rows.query.shape[1], dtype=bool)[None, None]
    outputs = jax.nn.dot_product_attention(*rows[:3], mask=mask, implementation='cudnn')
    return outputs[:, :length]


def splash(rows: AttentionInputs, *, causal: bool, interpret: bool = False) -> Float[Array, 'B T H C']:
    """Runs JAX's splash attention for TPUs, which keeps one number per query, not its weights.

    Args:
      interpret: whether to run the kernel's Python code on any device, slowly, instead of compiling it.

    Raises:
      ConfigError: JAX has no such kernel.
    """
    try:
        from jax.experimental.pallas.ops.tpu import splash_attention as pallas
    except ImportError as error:
        raise ConfigError(
            f"model.attention='flash': jax {jax.__version__} has no such kernel for TPUs; 'chunked' computes "
            'the same'
        ) from error
    query, key, value, query_segments, key_segments = (k.pad(x, _TPU_LANES) for x in rows[:5])
    length, heads, width = query.shape[1:]
    block = _largest(length, _TPU_BLOCK)
    part = _largest(block, _TPU_PART)
    sizes = {'block_q': part, 'block_kv': block, 'block_kv_compute': part}
    # One kernel computes all gradients, with the softmax once.
    backward = {'block_q_dkv': block, 'block_kv_dkv': block, 'block_kv_dkv_compute': part}
    # With features last, arrays of 64 features would be padded to 128.
    layouts = dict.fromkeys(('q_layout', 'k_layout', 'v_layout'), pallas.QKVLayout.SEQ_MINOR)
    mask = (pallas.CausalMask if causal else pallas.FullMask)((length, length))
    kernel = pallas.make_splash_mha_single_device(
        mask=pallas.MultiHeadMask([mask] * heads),
        block_sizes=pallas.BlockSizes(**sizes, **backward, **layouts, use_fused_bwd_kernel=True),
        interpret=interpret,
    )
    heads_first = lambda x: x.swapaxes(1, 2)
    inputs = map(heads_first, (query * width**-0.5, key, value))
    segments = pallas.SegmentIds(query_segments, key_segments)
    return _without_padding(kernel, segments, *inputs)[:, : rows.query.shape[1]]


def _largest(length: int, most: int) -> int:
    """Returns the most lanes that divide a length, up to `most`."""
    return max(size for size in range(_TPU_LANES, most + 1, _TPU_LANES) if length % size == 0)


# Plain definition: nn/plain.py: attention.
@jax.custom_vjp
def _without_padding(kernel: Callable, segments, *inputs: Float[Array, 'B H T C']) -> Float[Array, 'B T H C']:
    """Returns the kernel's outputs, and keeps less for the backward pass than the kernel itself.

    The kernel writes outputs of 64 features and each query's sum of exponentials in 128 lanes. Barriers
    make the compiler keep compact copies instead of these padded arrays.
    """
    return _run(kernel, segments, *inputs).swapaxes(1, 2)


def _run(kernel, segments, *inputs):
    return jax.vmap(kernel)(*inputs, segment_ids=segments)


def _forward(kernel, segments, *inputs):
    outputs, pullback = jax.vjp(functools.partial(_run, kernel, segments), *inputs)
    kept, tree = jax.tree.flatten(pullback)
    batch, heads, length, width = outputs.shape
    flat = outputs.swapaxes(1, 2).reshape(batch, length, heads * width)
    sums = {i: x.reshape(batch, -1) for i, x in enumerate(kept) if x.shape == outputs.shape[:3]}
    # One barrier, so that the sums are copied before the outputs are used.
    flat, sums = jax.lax.optimization_barrier((flat, sums))
    copies = sums | {i: flat for i, x in enumerate(kept) if x is outputs}

    def pull(kept, copies, gradient):
        whole = {
            i: x.reshape(batch, heads, length)
            if i in sums
            else x.reshape(batch, length, heads, width).swapaxes(1, 2)
            for i, x in jax.lax.optimization_barrier(copies).items()
        }
        leaves = [whole.get(i, x) for i, x in enumerate(kept)]
        return jax.tree.unflatten(tree, leaves)(gradient.swapaxes(1, 2))

    others = [None if i in copies else x for i, x in enumerate(kept)]
    return flat.reshape(batch, length, heads, width), jax.tree_util.Partial(pull, others, copies)


_without_padding.defvjp(_forward, lambda saved, gradient: (None, None, *saved(gradient)))


FLASH = full.FULL._replace(attend=attend)
