"""Encoders: turn texts or images into vectors, which a head reads, and compare both in one space."""

import functools
import math
from collections.abc import Callable
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8

from transformer.config import Model
from transformer.config.tasks import Images
from transformer.nn import matmul
from transformer.nn.layers import ACTIVATIONS, Embedding, broadcast_like, linear
from transformer.nn.positions import grid_sinusoid
from transformer.tokens import EOS, Batch, Tokens


class TextEncoder(nn.Module):
    """An encoder that turns each piece into a vector, by its segment (Devlin et al. 2019) or what is before.

    Attributes:
      make_encoder: makes the encoder of a kind of model.
      make_head: makes the head from the embedding.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ('text',)
    model: Model
    make_encoder: Callable[[Model], Callable]
    make_head: Callable[[Embedding], nn.Module]

    def setup(self):
        self.embedding = Embedding(self.model)
        self.encoder = self.make_encoder(self.model)
        self.answer = self.make_head(self.embedding)
        nn.share_scope(self, self.answer)

    def outputs(self, batch: Batch, *, train: bool = False) -> Float[Array, 'B S D']:
        """Computes a vector for every piece."""
        text = batch['text']
        types = {'types': batch['types']} if 'types' in batch else {}
        if self.model.text_types:
            types = {'types': text_types(text, self.model.token_types)}
        return self.encoder(self.embedding(text.tokens), text, **types, train=train).outputs

    def __call__(self, batch: Batch, *, train: bool) -> Float[Array, 'B *T K']:
        """Computes the head's logits from the vectors."""
        return self.answer(self.outputs(batch, train=train), batch)

    def factors(self, batch: Batch, *, train: bool) -> tuple[Float[Array, 'B T _'], Float[Array, 'V _']]:
        """Returns the vectors and the matrix whose product is the logits of hidden pieces."""
        return self.answer.factors(self.outputs(batch, train=train), batch)

    def factors_and_classes(
        self, batch: Batch, *, train: bool
    ) -> tuple[tuple[Float[Array, 'B T _'], Float[Array, 'V _']], Float[Array, 'B K']]:
        """Returns `factors`, and the logits of each row's class, of a head that has both."""
        x = self.outputs(batch, train=train)
        return self.answer.factors(x, batch), self.answer.classes(x)


def text_types(text: Tokens, count: int) -> Int[Array, 'B S']:
    """Returns the number of each piece's text among those of its segment, from 0, below `count`.

    A text ends in EOS.
    """
    ends = (text.tokens == EOS).astype(jnp.int32)
    before = jnp.cumsum(ends, axis=1) - ends
    before_segment = jax.lax.cummax(jnp.where(text.positions == 0, before, 0), axis=1)
    return jnp.minimum(before - before_segment, count - 1)


def patches(images: UInt8[Array, '*B h w c'], size: int) -> Float[Array, '*B S P']:
    """Cuts images into patches, row by row, each a vector from -1 to 1 (Dosovitskiy et al. 2021, eq. 1)."""
    *batch, height, width, channels = images.shape
    grid = images.reshape(*batch, height // size, size, width // size, size, channels)
    return scaled(grid.swapaxes(-3, -4).reshape(*batch, -1, size * size * channels))


def scaled(pixels: UInt8[Array, '*B']) -> Float[Array, '*B']:
    """Returns pixels as numbers from -1 to 1."""
    return pixels.astype(jnp.float32) / 127.5 - 1.0


class ConvolutionalStem(nn.Module):
    """Two strided convolutions in place of the linear map of patches (Xiao et al. 2021, without their norms).

    The windows are 2s - 1 pixels wide for a stride of s, so that neighbours overlap.
    """

    model: Model
    images: Images

    @nn.compact
    def __call__(self, images: UInt8[Array, 'B h w c']) -> Float[Array, 'B y x D']:
        m, stride = self.model, math.isqrt(self.images.patch)
        convolution = functools.partial(
            nn.Conv,
            kernel_size=(2 * stride - 1,) * 2,
            strides=stride,
            dtype=jnp.dtype(m.dtype),
            conv_general_dilated=lambda x, kernel, *_, **__: matmul.convolution(x, kernel, stride),
        )
        # With any other activation (swiglu, geglu), the stem uses gelu.
        activate = ACTIVATIONS.get(m.activation, ACTIVATIONS['gelu'])
        x = activate(convolution(m.d_model // 2, name='first')(scaled(images)))
        return convolution(m.d_model, use_bias=self.images.patch_bias, name='second')(x)


class ImageEncoder(nn.Module):
    """An encoder of an image's patches, with or without a class token (Dosovitskiy et al. 2021, §3.1).

    Attributes:
      make_encoder: makes the encoder of a kind of model.
      make_head: makes the head; None in a part of a larger model, which reads the vectors itself.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ()
    model: Model
    images: Images
    make_encoder: Callable[[Model], Callable]
    make_head: Callable[[None], nn.Module] | None

    def setup(self):
        m = self.model
        if self.images.stem == 'convolutions':
            self.stem = ConvolutionalStem(m, self.images)
        else:
            self.patch = linear(m, m.d_model, use_bias=self.images.patch_bias)
        if self.images.pool == 'token':
            std = {'zeros': 0.0, 'random': 0.02, 'scaled': m.d_model**-0.5}[self.images.begin]
            initialize = nn.initializers.normal(std)
            self.class_token = self.param('class_token', initialize, (m.d_model,))
        self.encoder = self.make_encoder(m)
        if self.make_head:
            self.answer = self.make_head(None)
            nn.share_scope(self, self.answer)

    def embed(self, images: UInt8[Array, 'B E h w c']) -> tuple[Float[Array, 'B S D'], Tokens]:
        """Computes what the encoder reads of rows of images, each a segment of its row.

        An image has a vector for the class token, if there is one, then one for every patch.
        """
        x = self._vectors(images)
        if self.images.sinusoids:
            side = self.images.size // self.images.patch
            x = x + jnp.asarray(grid_sinusoid(side, self.model.d_model), x.dtype)[None, None]
        if self.images.pool == 'token':
            x = jnp.concatenate([broadcast_like(self.class_token, x[:, :, :1]), x], axis=2)
        rows, count, size, width = x.shape
        segments, positions = jnp.divmod(jnp.arange(count * size), size)
        spread = lambda numbers: jnp.broadcast_to(numbers[None], (rows, count * size))
        # No padding. The encoder does not read the tokens.
        text = Tokens(spread(positions), spread(segments + 1), spread(positions))
        return x.reshape(rows, count * size, width), text

    def _vectors(self, images: UInt8[Array, 'B E h w c']) -> Float[Array, 'B E S D']:
        if self.images.stem == 'patches':
            return self.patch(patches(images, self.images.patch))
        rows, count, *shape = images.shape
        x = self.stem(images.reshape(-1, *shape))
        return x.reshape(rows, count, -1, self.model.d_model)

    def outputs(self, batch: Batch, *, train: bool = False) -> Float[Array, 'B S D']:
        """Computes a vector for the class token, if there is one, then one for every patch."""
        return self.encoder(*self.embed(batch['image'][:, None]), train=train).outputs

    def __call__(self, batch: Batch, *, train: bool) -> Float[Array, 'B K']:
        """Computes the head's logits from the vectors."""
        return self.answer(self.outputs(batch, train=train), batch)


# The bounds of the scale's logarithm, which each update keeps: the scale begins at 1 / 0.07, is at least 1,
# and "clipped to prevent scaling the logits by more than 100" (Radford et al. 2021, §2.5). The bounds are
# open_clip's; OpenAI's model code has none.
LOG_SCALE, LOG_SCALE_BOUNDS = -math.log(0.07), (0.0, math.log(100.0))


class TwoTowers(nn.Module):
    """An encoder of images and one of texts, with vectors of length 1 in one space (Radford et al. 2021).

    Attributes:
      make_image: makes the encoder of images, whose head maps into the space.
      make_text: makes the encoder of texts.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ('text',)
    make_image: Callable[[], ImageEncoder]
    make_text: Callable[[], TextEncoder]

    def setup(self):
        self.image, self.text = self.make_image(), self.make_text()
        self.log_scale = self.param('log_scale', nn.initializers.constant(LOG_SCALE), ())

    def images(self, batch: Batch, *, train: bool = False) -> Float[Array, 'R E D']:
        """Computes the vector of every image."""
        rows, examples, *shape = batch['image'].shape
        vectors = self.image({'image': batch['image'].reshape(-1, *shape)}, train=train)
        return _unit(vectors.reshape(rows, examples, -1))

    def texts(self, batch: Batch, *, train: bool = False) -> Float[Array, 'R E D']:
        """Computes the vector of every text: of a row's segments, of which `weight` [R E] has the number."""
        return _unit(self.text(batch, train=train))

    def factors(self, batch: Batch, *, train: bool) -> tuple[Float[Array, 'R E D'], Float[Array, 'N D']]:
        """Returns the images' vectors, times the scale, and all texts'. Their products are the logits."""
        images, texts = self.images(batch, train=train), self.texts(batch, train=train)
        return jnp.exp(self.log_scale) * images, texts.reshape(-1, texts.shape[-1])

    def __call__(self, batch: Batch, *, train: bool) -> Float[Array, 'R E N']:
        """Returns the scaled cosines of every image with all texts."""
        return matmul.logits(*self.factors(batch, train=train))


def _unit(x: Float[Array, '*B D']) -> Float[Array, '*B D']:
    """Divides vectors by their length; a row's missing examples stay zeros."""
    squares = jnp.sum(jnp.square(x), axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.maximum(squares, 1e-12))
