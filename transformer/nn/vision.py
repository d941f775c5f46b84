"""The Vision Transformer: an encoder that reads patches of an image (Dosovitskiy et al. 2021)."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from transformer.config import Config, ConfigError, Model
from transformer.config.tasks import Images
from transformer.nn.layers import Dropout, linear
from transformer.nn.positions import InputPositions
from transformer.nn.stacks import Stack
from transformer.tokens import Batch


def patches(images: UInt8[Array, 'B h w c'], size: int) -> Float[Array, 'B S P']:
    """Cuts images into patches, row by row, each a vector of pixels from -1 to 1 (§3.1, eq. 1)."""
    batch, height, width, channels = images.shape
    grid = images.reshape(batch, height // size, size, width // size, size, channels)
    vectors = grid.swapaxes(2, 3).reshape(batch, -1, size * size * channels)
    return vectors.astype(jnp.float32) / 127.5 - 1.0


class VisionTransformer(nn.Module):
    """Classifies images by the encoder's output for a class token before the patches (§3.1)."""

    model: Model
    images: Images

    @classmethod
    def of(cls, config: Config) -> 'VisionTransformer':
        """Returns the model that a config describes; ConfigError if its number of classes is unknown."""
        if config.images.classes is None:
            raise ConfigError('images.classes: missing; it is known once the data is read')
        return cls(config.model, config.images)

    @classmethod
    def blank(cls, config: Config, rows: int, length: int) -> Batch:
        """Returns black images."""
        del length
        size, channels = config.images.size, config.images.channels
        return {'image': np.zeros((rows, size, size, channels), np.uint8)}

    def setup(self):
        m = self.model
        self.patch = linear(m, m.d_model)
        self.class_token = self.param('class_token', nn.initializers.normal(0.02), (m.d_model,))
        self.positions = InputPositions(m)
        self.dropout = Dropout(m.P_drop_embedding)
        self.encoder = Stack(m, m.N, causal=False)
        self.head = linear(m, self.images.classes)

    def __call__(self, batch: Batch, *, train: bool) -> Float[Array, 'B K']:
        """The logits of the classes."""
        return self.head(self.outputs(batch, train=train)[:, 0]).astype(jnp.float32)

    def outputs(self, batch: Batch, *, train: bool = False) -> Float[Array, 'B S D']:
        """The encoder's output for the class token, then for every patch."""
        x = self.patch(patches(batch['image'], self.images.patch))
        first = jnp.broadcast_to(self.class_token.astype(x.dtype), (len(x), 1, x.shape[-1]))
        x = jnp.concatenate([first, x], axis=1)
        places: Int[Array, 'B S'] = jnp.broadcast_to(jnp.arange(x.shape[1]), x.shape[:2])
        x = self.dropout(self.positions(x, places, x.shape[1]), train=train)
        # No place is padding: one segment.
        return self.encoder(x, jnp.ones_like(places), places, None, train=train)
