"""Encoders: turn texts or images into vectors, which a head reads."""

from collections.abc import Callable
from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt8

from transformer.config import Model
from transformer.config.tasks import Images
from transformer.nn.layers import Embedding, broadcast_like, linear
from transformer.tokens import Batch, Tokens


class TextEncoder(nn.Module):
    """An encoder that turns each piece into a vector that depends on its whole segment (Devlin et al. 2019).

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
        return self.encoder(self.embedding(text.tokens), text, train=train).outputs

    def __call__(self, batch: Batch, *, train: bool) -> Float[Array, 'B *T K']:
        """Computes the head's logits from the vectors."""
        return self.answer(self.outputs(batch, train=train), batch)

    def factors(self, batch: Batch, *, train: bool) -> tuple[Float[Array, 'B T _'], Float[Array, 'V _']]:
        """Returns the vectors and the matrix whose product is the logits of hidden pieces."""
        return self.answer.factors(self.outputs(batch, train=train), batch)


def patches(images: UInt8[Array, '*B h w c'], size: int) -> Float[Array, '*B S P']:
    """Cuts images into patches, row by row, each a vector of pixels from -1 to 1 (§3.1, eq. 1)."""
    *batch, height, width, channels = images.shape
    grid = images.reshape(*batch, height // size, size, width // size, size, channels)
    vectors = grid.swapaxes(-3, -4).reshape(*batch, -1, size * size * channels)
    return vectors.astype(jnp.float32) / 127.5 - 1.0


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
        self.patch = linear(m, m.d_model)
        if self.images.pool == 'token':
            zeros = self.images.begin == 'zeros'
            initialize = nn.initializers.zeros if zeros else nn.initializers.normal(0.02)
            self.class_token = self.param('class_token', initialize, (m.d_model,))
        self.encoder = self.make_encoder(m)
        if self.make_head:
            self.answer = self.make_head(None)
            nn.share_scope(self, self.answer)

    def embed(self, images: UInt8[Array, 'B E h w c']) -> tuple[Float[Array, 'B S D'], Tokens]:
        """Computes what the encoder reads of rows of images, each a segment of its row.

        An image has a vector for the class token, if there is one, then one for every patch.
        """
        x = self.patch(patches(images, self.images.patch))
        if self.images.pool == 'token':
            x = jnp.concatenate([broadcast_like(self.class_token, x[:, :, :1]), x], axis=2)
        rows, count, size, width = x.shape
        segments, positions = jnp.divmod(jnp.arange(count * size), size)
        spread = lambda numbers: jnp.broadcast_to(numbers[None], (rows, count * size))
        # No padding. The encoder does not read the tokens.
        text = Tokens(spread(positions), spread(segments + 1), spread(positions))
        return x.reshape(rows, count * size, width), text

    def outputs(self, batch: Batch, *, train: bool = False) -> Float[Array, 'B S D']:
        """Computes a vector for the class token, if there is one, then one for every patch."""
        return self.encoder(*self.embed(batch['image'][:, None]), train=train).outputs

    def __call__(self, batch: Batch, *, train: bool) -> Float[Array, 'B K']:
        """Computes the head's logits from the vectors."""
        return self.answer(self.outputs(batch, train=train), batch)
