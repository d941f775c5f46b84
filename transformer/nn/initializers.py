"""First values of parameters; the only file in nn/ that reads `model.init`."""

from typing import Literal

import jax
import jax.numpy as jnp
from flax.linen.initializers import Initializer, normal, truncated_normal

from transformer.config import Model

# With these values of `model.init`, all kernels and tables are drawn with the standard deviation
# `model.init_std`. Cutting at two of them, as BERT's code does, leaves 0.88 of it.
_EQUAL = {'normal': normal, 'truncated_normal': truncated_normal}


def glorot_uniform(fan_out: int | None = None) -> Initializer:
    """Returns an initializer, uniform in ±sqrt(6 / (fan_in + fan_out)).

    Args:
      fan_out: the kernel's own if None.
    """

    def initialize(key, shape, dtype=jnp.float32):
        limit = (6.0 / (shape[0] + (fan_out or shape[-1]))) ** 0.5
        return jax.random.uniform(key, shape, dtype, -limit, limit)

    return initialize


def kernel(
    model: Model, fused: int | None = None, divisor: float = 1.0, *, residual: bool = False
) -> Initializer:
    """Returns the initializer of a linear map's matrix.

    `clip` has the standard deviations of OpenAI's code: d^-0.5 for queries, keys and values, d^-0.5 (2N)^-0.5
    for what N layers add to the residual path, (2d)^-0.5 for the others. `torch` is uniform in ±fan_in^-0.5,
    but queries, keys and values are Glorot uniform over the fused kernel.

    Args:
      fused: the fan-out of the released code's kernel that this matrix is a part of, if it is one.
      divisor: divides the values of T5's initialisation, N(0, 1/fan_in).
      residual: whether its products are added to the residual path.
    """
    if model.init in _EQUAL:
        return _EQUAL[model.init](model.init_std)
    if model.init == 't5':
        return lambda key, shape: normal(shape[0] ** -0.5 / divisor)(key, shape)
    if model.init == 'clip':
        factor = 1.0 if fused else (2 * model.N if residual else 2) ** -0.5
        return normal(model.d_model**-0.5 * factor)
    if model.init == 'torch' and not fused:
        return lambda key, shape: jax.random.uniform(key, shape, minval=-1.0, maxval=1.0) * shape[0] ** -0.5
    return glorot_uniform(fused if model.init in ('t2t', 'torch') else None)


def table(
    model: Model, content: Literal['pieces', 'softmax', 'positions', 'token_types'], width: int
) -> Initializer:
    """Returns the initializer of a table with rows of `width` numbers: N(0, 1/width), T5's words N(0, 1).

    CLIP's words have the standard deviation 0.02, its positions 0.01. Positions can have one of their own.
    """
    std = model.init_std_positions if content == 'positions' else None
    if model.init in _EQUAL:
        return _EQUAL[model.init](model.init_std if std is None else std)
    if std is not None:
        return normal(std)
    own = {('t5', 'pieces'): 1.0, ('clip', 'pieces'): 0.02, ('clip', 'positions'): 0.01}
    return normal(own.get((model.init, content), width**-0.5))
