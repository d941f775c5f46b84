"""Multiplies rows by a matrix, always as one product of two matrices.

The matrix's gradient is then one product of two matrices, too. With several axes of rows, XLA would sum over
all of them, which may copy an array and is slower on CPUs.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def product(x: Float[Array, '*B D'], kernel: Float[Array, 'D F']) -> Float[Array, '*B F']:
    """Multiplies all rows by a matrix; has only a reverse-mode derivative."""
    return _of_matrices(x.reshape(-1, x.shape[-1]), kernel).reshape(*x.shape[:-1], -1)


@jax.custom_vjp
def _of_matrices(x: Float[Array, 'N D'], kernel: Float[Array, 'D F']) -> Float[Array, 'N F']:
    return x @ kernel


def _forward(x, kernel):
    return x @ kernel, (x, kernel)


def _backward(saved, gradient):
    x, kernel = saved
    # Without the barrier, the TPU's compiler postpones kernel gradients and keeps everything they need.
    return jax.lax.optimization_barrier((gradient @ kernel.T, x.T @ gradient))


_of_matrices.defvjp(_forward, _backward)


def dot_general(
    x: Array, kernel: Array, dimension_numbers: jax.lax.DotDimensionNumbers, **unused: object
) -> Array:
    """`product` as flax's layers call it: contracts the last axes of x with the first axes of kernel."""
    (contracted, _), _ = dimension_numbers
    free, width = x.ndim - len(contracted), math.prod(kernel.shape[: len(contracted)])
    rows = product(x.reshape(*x.shape[:free], width), kernel.reshape(width, -1))
    return rows.reshape(*x.shape[:free], *kernel.shape[len(contracted) :])


def logits(x: Float[Array, '*B D'], table: Float[Array, 'V D']) -> Float[Array, '*B V']:
    """Multiplies x by the transposed matrix, in float32."""
    rows = x.reshape(-1, x.shape[-1])
    product = jax.lax.dot_general(rows, table, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    return product.reshape(*x.shape[:-1], -1)
