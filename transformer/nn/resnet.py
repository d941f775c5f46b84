"""A residual network for images, without batch statistics: no row depends on another one of its batch.

The blocks are those of He et al. 2016b, with group normalisation (Wu and He 2018) in place of batch
normalisation, and standardised convolutions (Qiao et al. 2019), as in BiT (Kolesnikov et al. 2020), which has
32 groups and equal padding on both sides: here a group has 8 channels, and padding is XLA's SAME.
"""

import math
from collections.abc import Callable
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from transformer.config import Model
from transformer.config.tasks import GROUP, Images
from transformer.nn import matmul
from transformer.nn.encoders import scaled
from transformer.nn.layers import Dropout
from transformer.tokens import Batch

NORM_EPSILON = 1e-5
KERNEL_EPSILON = 1e-10


class Convolution(nn.Module):
    """A convolution whose kernel has mean 0 and variance 1 for each output (Qiao et al. 2019, eq. 5)."""

    model: Model
    features: int
    width: int
    stride: int = 1

    @nn.compact
    def __call__(self, x: Float[Array, 'B y x C']) -> Float[Array, 'B Y X F']:
        shape = self.width, self.width, x.shape[-1], self.features
        kernel = self.param('kernel', nn.initializers.he_normal(), shape)
        mean, variance = (f(kernel, axis=(0, 1, 2), keepdims=True) for f in (jnp.mean, jnp.var))
        kernel = (kernel - mean) * jax.lax.rsqrt(variance + KERNEL_EPSILON)
        dtype = self.model.dtype
        return matmul.convolution(x.astype(dtype), kernel.astype(dtype), self.stride)


def _norm() -> nn.GroupNorm:
    """Returns a normalisation of groups of channels over an image, computed in float32."""
    return nn.GroupNorm(num_groups=None, group_size=GROUP, epsilon=NORM_EPSILON)


class Block(nn.Module):
    """x + conv(relu(norm(conv(relu(norm(x)))))), where conv(relu(norm(x))) replaces an x of another size."""

    model: Model
    features: int
    stride: int

    def setup(self):
        m = self.model
        self.norms = [_norm(), _norm()]
        self.dropout = Dropout(m.P_drop)
        self.first = Convolution(m, self.features, m.kernel_width, self.stride)
        self.second = Convolution(m, self.features, m.kernel_width)
        self.shortcut = Convolution(m, self.features, 1, self.stride)

    def __call__(self, x: Float[Array, 'B y x C'], *, train: bool) -> Float[Array, 'B Y X F']:
        inner = nn.relu(self.norms[0](x)).astype(x.dtype)
        same = self.stride == 1 and x.shape[-1] == self.features
        x = x if same else self.shortcut(inner)
        inner = self.first(self.dropout(inner, train=train))
        inner = nn.relu(self.norms[1](inner)).astype(x.dtype)
        return x + self.second(self.dropout(inner, train=train))


class ResNet(nn.Module):
    """A residual network of `model.N` blocks, which classifies images.

    Its stages halve the sides of an image and double the width, until a vector of d_model numbers stands for
    each patch. The first convolution keeps the sides.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ()
    model: Model
    images: Images
    make_head: Callable[[None], nn.Module]

    def setup(self):
        m, stages = self.model, self.images.stages
        widths = [m.d_model >> (stages - 1 - stage) for stage in range(stages)]
        self.stem = Convolution(m, widths[0], m.kernel_width)
        self.dropout = Dropout(m.P_drop_embedding)
        self.blocks = [
            Block(m, width, 2 if stage and not i else 1, name=f'stage_{stage}_block_{i}')
            for stage, width in enumerate(widths)
            for i in range(m.N // stages)
        ]
        self.final = _norm()
        self.answer = self.make_head(None)
        nn.share_scope(self, self.answer)

    def outputs(self, batch: Batch, *, train: bool = False) -> Float[Array, 'B S D']:
        """Computes a vector for every patch, row by row."""
        x = self.dropout(self.stem(scaled(batch['image'])), train=train)
        for block in self.blocks:
            x = block(x, train=train)
        x = nn.relu(self.final(x)).astype(x.dtype)
        return x.reshape(x.shape[0], math.prod(x.shape[1:3]), x.shape[3])

    def __call__(self, batch: Batch, *, train: bool) -> Float[Array, 'B K']:
        """Computes the head's logits from the vectors."""
        return self.answer(self.outputs(batch, train=train), batch)
