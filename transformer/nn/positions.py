"""Positional information (§3.5). Only this file and plain.py in nn/ read `model.positions`.

Positions enter in one of three places: they are added to the embeddings (sinusoidal, learned), they
rotate queries and keys (rotary), or they are added to the attention logits (relative; buckets and alibi,
which are the same for all layers of a stack).
"""

import math

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from transformer.config import Model
from transformer.nn import initializers
from transformer.nn.layers import Norm, broadcast_like
from transformer.nn.matmul import sum_type

# Shaw et al. 2018 see no gain from distances beyond this one (their Table 2).
RELATIVE_CLIP = 16
# T5's number of buckets, and its max_distance, at which the last bucket has begun.
BUCKETS, FARTHEST = 32, 128


def sinusoid(length: int, d_model: int, kind: str, dtype=np.float32) -> Float[np.ndarray, 'L D']:
    """Computes the sinusoidal encoding of positions 0 to length - 1 (§3.5).

    `paper`: PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same. `halves`: all sines,
    then all cosines. `t2t`: as `halves`, with exponent i / (d/2 - 1), so the last timescale is exactly 10000.
    """
    half = d_model // 2
    exponent = np.arange(half) / (max(half - 1, 1) if kind == 't2t' else half)
    angle = np.arange(length)[:, None] * 10000.0 ** -exponent[None, :]
    waves = np.stack([np.sin(angle), np.cos(angle)], axis=-1 if kind == 'paper' else 1)
    return waves.reshape(length, d_model).astype(dtype)


def grid_sinusoid(side: int, d_model: int) -> Float[np.ndarray, 'S D']:
    """Computes sinusoids of the columns x and rows y of a square grid, row by row (Chen et al. 2021).

    The vector of (x, y) is [sin xω, cos xω, sin yω, cos yω] with ω_i = 10000^(-i / (d/4 - 1)), i < d/4, as in
    the code of plain ViT (Beyer et al. 2022). MoCo v3's code divides i by d/4, and begins with the rows.
    """
    along = sinusoid(side, d_model // 2, 't2t', np.float64)
    y, x = np.divmod(np.arange(side**2), side)
    return np.concatenate([along[x], along[y]], axis=1).astype(np.float32)


def resize_grid(table: Float[np.ndarray, 'S D'], side: int) -> Float[np.ndarray, 'T D']:
    """Resizes the vectors of a square grid to another one, bilinearly between the middles of its cells."""
    old = math.isqrt(len(table))
    place = np.clip((np.arange(side) + 0.5) * old / side - 0.5, 0, old - 1)
    share = np.maximum(1 - np.abs(place[:, None] - np.arange(old)), 0)
    grid = table.reshape(old, old, -1).astype(np.float64)
    resized = np.einsum('yY,xX,YXD->yxD', share, share, grid)
    return resized.reshape(side**2, -1).astype(table.dtype)


class InputPositions(nn.Module):
    """A sum of each embedding and its position's encoding, if positions are sinusoidal or learned.

    A model like BERT also adds the token type, the first by default, and normalises the sum (Devlin et al.
    2019).
    """

    model: Model
    amplitude: float = 1.0  # of the sinusoids

    @nn.compact
    def __call__(
        self,
        x: Float[Array, 'B T D'],
        positions: Int[Array, 'B T'],
        length: int,
        types: Int[Array, 'B T'] | None = None,
    ) -> Float[Array, 'B T D']:
        """Adds positions, which are below `length`, to the embeddings x."""
        m = self.model
        if m.positions == 'sinusoidal':
            waves = sinusoid(m.first_position + length, m.d_model, m.sinusoid, sum_type(x))
            x = x + jnp.asarray(self.amplitude * waves[m.first_position :], x.dtype)[positions]
        elif m.positions == 'learned':
            # Rows are cast, not the table, so that float32 sums the gradients of a position.
            x = x + self._table('table', m.max_len)[positions].astype(x.dtype)
        if m.token_types:
            table = self._table('token_types', m.token_types)
            # As with positions, float32 sums the gradients.
            x = x + (broadcast_like(table[:1, None], x) if types is None else table[types].astype(x.dtype))
        return Norm(m, name='norm')(x) if m.norm_embedding else x

    def _table(self, name: str, rows: int) -> Float[Array, 'L D']:
        width = self.model.d_model
        content = 'positions' if name == 'table' else name
        return jnp.asarray(self.param(name, initializers.table(self.model, content, width), (rows, width)))


class AttentionPositions(nn.Module):
    """Positions in attention: rotations of queries and keys, or a bias of the logits, or neither."""

    model: Model

    def setup(self):
        if self.model.positions == 'relative':
            initial = initializers.table(self.model, 'positions', self.model.d_k)
            self.table = self.param('table', initial, (2 * RELATIVE_CLIP + 1, self.model.d_k))

    def rotate(
        self, x: Float[Array, 'B T H C'], positions: Int[Array, 'B T'], length: int
    ) -> Float[Array, 'B T H C']:
        """Rotates queries or keys by positions below `length` (Su et al. 2021).

        The pairs that are rotated are (2i, 2i + 1), as in the paper, or (i, i + C/2).
        """
        if self.model.positions != 'rotary':
            return x
        half = self.model.d_k // 2
        angle = np.arange(length)[:, None] * 10000.0 ** -(np.arange(half) / half)[None, :]
        cos = jnp.asarray(np.cos(angle), x.dtype)[positions][:, :, None, :]
        sin = jnp.asarray(np.sin(angle), x.dtype)[positions][:, :, None, :]
        if self.model.rotary_pairs == 'interleaved':
            left, right = x[..., ::2], x[..., 1::2]
            rotated = [left * cos - right * sin, left * sin + right * cos]
            return jnp.stack(rotated, axis=-1).reshape(x.shape)
        left, right = x[..., :half], x[..., half:]
        return jnp.concatenate([left * cos - right * sin, left * sin + right * cos], axis=-1)

    def bias(
        self,
        query: Float[Array, 'B Q H C'],
        query_positions: Int[Array, 'B Q'],
        key_positions: Int[Array, 'B K'],
    ) -> Float[Array, 'B H Q K'] | None:
        """Computes query · a[clip(key position - query position)] (Shaw et al. 2018, eq. 4).

        There is no term for values, which brings no gain in their Table 3.
        """
        if self.model.positions != 'relative':
            return None
        table = self.table.astype(query.dtype)
        by_distance = jnp.einsum('BQHC,RC->BHQR', query, table, preferred_element_type=jnp.float32)
        distance = key_positions[:, None, None, :] - query_positions[:, None, :, None]
        index = jnp.clip(distance, -RELATIVE_CLIP, RELATIVE_CLIP) + RELATIVE_CLIP
        return jnp.take_along_axis(by_distance, index, axis=-1)


def bucket_of(distance: int, *, causal: bool) -> int:
    """Returns the bucket of a distance, key position - query position (Raffel et al. 2020, §2.1).

    Half of the buckets are one distance wide, the others get wider as its logarithm. An encoder has buckets
    for keys on the left, then as many for keys on the right; a decoder has all for the left.
    """
    count = BUCKETS if causal else BUCKETS // 2
    exact, away = count // 2, max(-distance, 0) if causal else abs(distance)
    if away >= exact:
        share = math.log(away / exact) / math.log(FARTHEST / exact)
        away = min(exact + int(share * (count - exact)), count - 1)
    return away + (count if distance > 0 and not causal else 0)


def slopes(heads: int) -> Float[np.ndarray, 'H']:
    """Returns 2^(-8i/n) for the heads i = 1 to n (Press et al. 2022, §3)."""
    return 2.0 ** (-8.0 * np.arange(1, heads + 1, dtype=np.float32) / heads)


class StackPositions(nn.Module):
    """Computes what all layers of a stack add to the logits of self-attention (buckets, alibi).

    - buckets: a number for each head and bucket of distances (Raffel et al. 2020).
    - alibi: minus the distance times a slope for each head (Press et al. 2022); in encoders on both sides.
    """

    model: Model
    causal: bool

    def setup(self):
        if self.model.positions == 'buckets':
            # Glorot uniform, by TensorFlow's default in T5's code.
            self.table = self.param('table', initializers.glorot_uniform(), (BUCKETS, self.model.h))

    def __call__(
        self, length: int, queries: Int[Array, 'B Q'] | None = None
    ) -> Float[Array, 'B H Q K'] | None:
        """Computes the bias of queries, by default one at each of `length` positions, for all positions.

        Returns:
          The bias times sqrt(d_k), by which kernels divide the logits; None if positions enter elsewhere.
        """
        m = self.model
        if m.positions not in ('buckets', 'alibi'):
            return None
        places = jnp.arange(length)
        queries = places[None] if queries is None else queries
        distance = places[None, None] - queries[..., None]
        if m.positions == 'alibi':
            bias = -jnp.abs(distance)[..., None] * slopes(m.h)[None, None, None]
        else:
            distances = range(-FARTHEST, FARTHEST + 1)
            buckets = jnp.array([bucket_of(distance, causal=self.causal) for distance in distances])
            bias = self.table[buckets[jnp.clip(distance, -FARTHEST, FARTHEST) + FARTHEST]]
        return jnp.moveaxis(bias, -1, 1) * m.d_k**0.5
