"""Linear maps with their own gradients, which are better programs for TPUs and CPUs than the derived ones."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def sum_type(x: Array) -> jnp.dtype:
    """Returns the type of sums over entries of x: float32, or float64 in tests that have float64."""
    return jnp.promote_types(x.dtype, jnp.float32)


def product(x: Float[Array, '*B D'], kernel: Float[Array, 'D F']) -> Float[Array, '*B F']:
    """Multiplies all rows by a matrix. It has only a reverse-mode derivative."""
    return affine(x, kernel, None, 1)


# Plain definition: nn/plain.py: linear.
@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def affine(
    x: Float[Array, '...'], kernel: Float[Array, '...'], bias: Float[Array, '...'] | None, axes: int
) -> Float[Array, '...']:
    """Contracts the last `axes` of x with the first axes of a kernel, and adds a bias if there is one.

    Heads stay an axis of their own, so that the TPU's compiler chooses a layout that suits attention. It has
    only a reverse-mode derivative.
    """
    mapped = jnp.tensordot(x, kernel, axes)
    return mapped if bias is None else mapped + jnp.broadcast_to(bias, mapped.shape)


def _forward(x, kernel, bias, axes):
    return affine(x, kernel, bias, axes), (x, kernel, bias is not None)


def _backward(axes, saved, gradient):
    x, kernel, has_bias = saved
    rows = [*range(x.ndim - axes)]
    features = [*range(len(rows), gradient.ndim)], [*range(axes, kernel.ndim)]
    of_bias = _sum_over(gradient, len(rows)) if has_bias else None
    parts = jnp.tensordot(gradient, kernel, features), jnp.tensordot(x, gradient, (rows, rows)), of_bias
    # Without the barrier, the TPU's compiler postpones kernel gradients and keeps all their inputs.
    return jax.lax.optimization_barrier(parts)


affine.defvjp(_forward, _backward)


def _sum_over(x: Array, axes: int) -> Array:
    """Sums over the first axes of an array."""
    # A TPU's matrix unit sums while it waits for memory. Its vector unit takes as long as a product does.
    by_product = functools.partial(sum_by_product, axes=axes)
    return jax.lax.platform_dependent(x, tpu=by_product, default=lambda x: jnp.sum(x, [*range(axes)]))


def sum_by_product(x: Float[Array, '...'], axes: int) -> Float[Array, '...']:
    """Sums over the first axes of an array by a product with ones."""
    # Eight rows of ones are the smallest matrix that a TPU multiplies.
    ones = jnp.ones((8, *x.shape[:axes]), x.dtype)
    return jnp.tensordot(ones, x, axes)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def convolution(
    x: Float[Array, 'B y x C'], kernel: Float[Array, 'h w C F'], stride: int
) -> Float[Array, 'B Y X F']:
    """Computes a convolution with XLA's SAME padding. It has only a reverse-mode derivative.

    Within a loop, such as that over microbatches, XLA computes only this order of axes quickly on a CPU. The
    gradients that JAX derives have other orders, and take 20 to 40 times as long there.
    """
    return _channels_last(x, kernel, 'SAME', window_strides=(stride,) * 2)


def _channels_last(x, kernel, padding, *, window_strides=(1, 1), **options):
    axes = 'NHWC', 'HWIO', 'NHWC'
    return jax.lax.conv_general_dilated(x, kernel, window_strides, padding, dimension_numbers=axes, **options)


def _convolution_forward(x, kernel, stride):
    return convolution(x, kernel, stride), (x, kernel)


def _convolution_backward(stride, saved, gradient):
    x, kernel = saved
    sides, widths, strides = x.shape[1:3], kernel.shape[:2], (stride,) * 2
    # Zeros before the image, and the outputs' span when they stand `stride` pixels apart, on each axis.
    zeros = [before for before, _ in jax.lax.padtype_to_pads(sides, widths, strides, 'SAME')]
    spans = [(outputs - 1) * stride + 1 for outputs in gradient.shape[1:3]]
    axes = [*zip(sides, widths, zeros, spans, strict=True)]
    around = [(width - 1 - before, side - span + before) for side, width, before, span in axes]
    flipped = jnp.flip(kernel, (0, 1)).swapaxes(2, 3)
    of_x = _channels_last(gradient, flipped, around, lhs_dilation=strides)
    around = [(before, span + width - 1 - side - before) for side, width, before, span in axes]
    images, outputs = x.transpose(3, 1, 2, 0), gradient.transpose(1, 2, 0, 3)
    of_kernel = _channels_last(images, outputs, around, rhs_dilation=strides)
    return of_x, of_kernel.transpose(1, 2, 0, 3)


convolution.defvjp(_convolution_forward, _convolution_backward)


def logits(x: Float[Array, '*B D'], table: Float[Array, 'V D']) -> Float[Array, '*B V']:
    """Multiplies x by the transposed matrix, in float32."""
    rows = x.reshape(-1, x.shape[-1])
    products = jnp.einsum('ND,VD->NV', rows, table, preferred_element_type=sum_type(x))
    return products.reshape(*x.shape[:-1], -1)
