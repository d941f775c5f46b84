"""Stacks of encoder and decoder layers (§3.1), unrolled and named layer_0, layer_1, ..."""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.config import Model
from transformer.nn.attention import MultiHeadAttention
from transformer.nn.cache import DecoderState
from transformer.nn.kernels.kernel import State
from transformer.nn.layers import FeedForward, FinalNorm, Sublayer


class Memory(NamedTuple):
    """The encoder's output and its segments."""

    outputs: Float[Array, 'B S D']
    segments: Int[Array, 'B S']


class Projected(NamedTuple):
    """One layer's keys and values of the encoder's output, computed once per sentence."""

    heads: State
    segments: Int[Array, 'B S']


class Layer(nn.Module):
    """Self-attention, attention to an encoder's output (with `cross`), then the feed-forward layer."""

    model: Model
    causal: bool
    cross: bool = False

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
            return self.self_attention.over_itself(y, segments, positions, causal=self.causal, train=train)

        def look_up(y):
            return self.cross_attention.over_memory(
                y, segments, projected.heads, projected.segments, train=train
            )

        x = self.self_attention_sublayer(x, attend, train=train)
        if self.cross:
            x = self.cross_attention_sublayer(x, look_up, train=train)
        return self.feed_forward_sublayer(x, lambda y: self.feed_forward(y, train=train), train=train)

    def project(self, memory: Memory | None) -> Projected | None:
        """Computes keys and values of the encoder's output."""
        if not self.cross:
            return None
        return Projected(self.cross_attention.project_memory(memory.outputs), memory.segments)

    def step(
        self,
        x: Float[Array, 'R 1 D'],
        state: State,
        position: Int[Array, 'R'],
        length: int,
        projected: Projected | None,
    ) -> tuple[Float[Array, 'R 1 D'], State]:
        """Runs one position of R = B·W hypotheses, W per sentence of `projected`."""

        def attend(y):
            nonlocal state
            y, state = self.self_attention.over_state(y, state, position, length)
            return y

        def look_up(y):
            # A sentence's hypotheses are queries of one attention, so the sentence's keys are not copied.
            together = y.reshape(projected.segments.shape[0], -1, y.shape[-1])
            segments = jnp.ones(together.shape[:2], jnp.int32)
            attended = self.cross_attention.over_memory(
                together, segments, projected.heads, projected.segments, train=False
            )
            return attended.reshape(y.shape)

        x = self.self_attention_sublayer(x, attend, train=False)
        if self.cross:
            x = self.cross_attention_sublayer(x, look_up, train=False)
        x = self.feed_forward_sublayer(x, lambda y: self.feed_forward(y, train=False), train=False)
        return x, state


class Stack(nn.Module):
    """A stack of `depth` layers: an encoder or, with `causal`, a decoder.

    With `model.remat`, the backward pass recomputes a layer's activations instead of keeping them.
    """

    model: Model
    depth: int
    causal: bool
    cross: bool = False

    def setup(self):
        self.layers = [
            Layer(self.model, self.causal, self.cross, name=f'layer_{i}') for i in range(self.depth)
        ]
        self.final = FinalNorm(self.model)

    def __call__(
        self,
        x: Float[Array, 'B T D'],
        segments: Int[Array, 'B T'],
        positions: Int[Array, 'B T'],
        memory: Memory | None = None,
        *,
        train: bool,
    ) -> Float[Array, 'B T D']:
        call = lambda layer, x: layer(x, segments, positions, memory, train=train)
        for layer in self.layers:
            x = (nn.remat(call) if self.model.remat and train else call)(layer, x)
        return self.final(x)

    def project(self, memory: Memory | None) -> list[Projected | None]:
        """Computes each layer's keys and values of the encoder's output."""
        return [layer.project(memory) for layer in self.layers]

    def empty(self, memory: Memory | None, rows: int, length: int) -> DecoderState:
        """Returns the state before the first of `length` steps."""
        del memory
        layers = [layer.self_attention.empty(rows, length) for layer in self.layers]
        return DecoderState(jnp.zeros(rows, jnp.int32), layers)

    def step(
        self, x: Float[Array, 'R 1 D'], state: DecoderState, length: int, projected: list[Projected | None]
    ) -> tuple[Float[Array, 'R D'], DecoderState]:
        """Runs one position of every hypothesis through all layers."""
        updated = []
        for layer, before, keys_values in zip(self.layers, state.layers, projected, strict=True):
            x, after = layer.step(x, before, state.position, length, keys_values)
            updated.append(after)
        return self.final(x)[:, 0], DecoderState(state.position + 1, updated)
