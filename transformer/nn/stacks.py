"""Encoder and decoder stacks (§3.1): layers unrolled and named layer_0, layer_1, ..."""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.config import Model
from transformer.nn.attention import MultiHeadAttention
from transformer.nn.kernels.kernel import State
from transformer.nn.layers import FeedForward, FinalNorm, Sublayer


class Memory(NamedTuple):
    """The encoder's output and its segments."""

    outputs: Float[Array, 'B S D']
    segments: Int[Array, 'B S']


class Projected(NamedTuple):
    """What the cross-attention of one layer needs of the encoder's output, computed once a sentence."""

    heads: State
    segments: Int[Array, 'B S']


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward layer."""

    model: Model

    def setup(self):
        self.self_attention = MultiHeadAttention(self.model, 'self')
        self.self_attention_sublayer = Sublayer(self.model)
        self.feed_forward = FeedForward(self.model)
        self.feed_forward_sublayer = Sublayer(self.model)

    def __call__(
        self,
        x: Float[Array, 'B S D'],
        segments: Int[Array, 'B S'],
        positions: Int[Array, 'B S'],
        *,
        train: bool,
    ) -> Float[Array, 'B S D']:
        def attend(y):
            return self.self_attention.over_itself(y, segments, positions, causal=False, train=train)

        x = self.self_attention_sublayer(x, attend, train=train)
        return self.feed_forward_sublayer(x, lambda y: self.feed_forward(y, train=train), train=train)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the encoder's output (with `cross`), the feed-forward layer."""

    model: Model
    cross: bool

    def setup(self):
        self.self_attention = MultiHeadAttention(self.model, 'self')
        self.self_attention_sublayer = Sublayer(self.model)
        if self.cross:
            self.cross_attention = MultiHeadAttention(self.model, 'cross')
            self.cross_attention_sublayer = Sublayer(self.model)
        self.feed_forward = FeedForward(self.model)
        self.feed_forward_sublayer = Sublayer(self.model)

    def __call__(
        self,
        x: Float[Array, 'B T D'],
        segments: Int[Array, 'B T'],
        positions: Int[Array, 'B T'],
        memory: Memory | None,
        *,
        train: bool,
    ) -> Float[Array, 'B T D']:
        projected = self.project(memory)

        def attend(y):
            return self.self_attention.over_itself(y, segments, positions, causal=True, train=train)

        def look_up(y):
            return self.cross_attention.over_memory(
                y, segments, projected.heads, projected.segments, train=train
            )

        x = self.self_attention_sublayer(x, attend, train=train)
        if self.cross:
            x = self.cross_attention_sublayer(x, look_up, train=train)
        return self.feed_forward_sublayer(x, lambda y: self.feed_forward(y, train=train), train=train)

    def project(self, memory: Memory | None) -> Projected | None:
        """Keys and values of the encoder's output."""
        if not self.cross:
            return None
        return Projected(self.cross_attention.project_memory(memory.outputs), memory.segments)

    def empty(self, rows: int, length: int) -> State:
        """The state before the first of `length` steps."""
        return self.self_attention.empty(rows, length)

    def step(
        self,
        x: Float[Array, 'R 1 D'],
        state: State,
        position: Int[Array, 'R'],
        length: int,
        projected: Projected | None,
    ) -> tuple[Float[Array, 'R 1 D'], State]:
        """One position of R = B·W hypotheses, W for each of the B sentences of `projected`."""

        def attend(y):
            nonlocal state
            y, state = self.self_attention.over_state(y, state, position, length)
            return y

        def look_up(y):
            # The hypotheses of a sentence are queries of one attention, so its keys are not copied.
            together = y.reshape(projected.segments.shape[0], -1, y.shape[-1])
            segments = jnp.ones(together.shape[:2], jnp.int32)
            found = self.cross_attention.over_memory(
                together, segments, projected.heads, projected.segments, train=False
            )
            return found.reshape(y.shape)

        x = self.self_attention_sublayer(x, attend, train=False)
        if self.cross:
            x = self.cross_attention_sublayer(x, look_up, train=False)
        x = self.feed_forward_sublayer(x, lambda y: self.feed_forward(y, train=False), train=False)
        return x, state


def _apply(
    model: Model, layer: EncoderLayer | DecoderLayer, x: Float[Array, 'B S D'], *others, train: bool
) -> Float[Array, 'B S D']:
    """A layer's output; with `remat` what is computed inside is not kept for the backward pass."""
    call = lambda layer, x: layer(x, *others, train=train)
    return (nn.remat(call) if model.remat and train else call)(layer, x)


class Encoder(nn.Module):
    """A stack of N layers."""

    model: Model

    @nn.compact
    def __call__(
        self,
        x: Float[Array, 'B S D'],
        segments: Int[Array, 'B S'],
        positions: Int[Array, 'B S'],
        *,
        train: bool,
    ) -> Float[Array, 'B S D']:
        for i in range(self.model.N):
            layer = EncoderLayer(self.model, name=f'layer_{i}')
            x = _apply(self.model, layer, x, segments, positions, train=train)
        return FinalNorm(self.model, name='final')(x)


class Decoder(nn.Module):
    """A stack of `depth` layers; with `cross` they also attend to an encoder's output."""

    model: Model
    depth: int
    cross: bool

    def setup(self):
        self.layers = [DecoderLayer(self.model, self.cross, name=f'layer_{i}') for i in range(self.depth)]
        self.final = FinalNorm(self.model)

    def __call__(
        self,
        x: Float[Array, 'B T D'],
        segments: Int[Array, 'B T'],
        positions: Int[Array, 'B T'],
        memory: Memory | None,
        *,
        train: bool,
    ) -> Float[Array, 'B T D']:
        for layer in self.layers:
            x = _apply(self.model, layer, x, segments, positions, memory, train=train)
        return self.final(x)

    def project(self, memory: Memory | None) -> list[Projected | None]:
        """What each layer needs of the encoder's output."""
        return [layer.project(memory) for layer in self.layers]

    def empty(self, rows: int, length: int) -> list[State]:
        """The state of each layer before the first of `length` steps."""
        return [layer.empty(rows, length) for layer in self.layers]

    def step(
        self,
        x: Float[Array, 'R 1 D'],
        states: list[State],
        position: Int[Array, 'R'],
        length: int,
        projected: list[Projected | None],
    ) -> tuple[Float[Array, 'R 1 D'], list[State]]:
        """One position of every hypothesis through all layers."""
        updated = []
        for layer, state, keys_values in zip(self.layers, states, projected, strict=True):
            x, state = layer.step(x, state, position, length, keys_values)
            updated.append(state)
        return self.final(x), updated
