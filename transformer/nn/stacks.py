"""Encoder and decoder stacks (§3.1): layers unrolled and named layer_0, layer_1, ..."""

import flax.linen as nn
from jaxtyping import Array, Bool, Float, Int

from transformer.config import Model
from transformer.nn.attention import Cache, MultiHeadAttention
from transformer.nn.layers import FeedForward, FinalNorm, Sublayer


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
        mask: Bool[Array, '#B 1 S S'],
        positions: Int[Array, 'B S'],
        *,
        train: bool,
    ) -> Float[Array, 'B S D']:
        def attend(y):
            return self.self_attention.over_itself(y, mask, positions, train=train)

        x = self.self_attention_sublayer(x, attend, train=train)
        return self.feed_forward_sublayer(x, lambda y: self.feed_forward(y, train=train), train=train)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the encoder's output, then the feed-forward layer."""

    model: Model

    def setup(self):
        self.self_attention = MultiHeadAttention(self.model, 'self')
        self.self_attention_sublayer = Sublayer(self.model)
        self.cross_attention = MultiHeadAttention(self.model, 'cross')
        self.cross_attention_sublayer = Sublayer(self.model)
        self.feed_forward = FeedForward(self.model)
        self.feed_forward_sublayer = Sublayer(self.model)

    def __call__(
        self,
        x: Float[Array, 'B T D'],
        mask: Bool[Array, '#B 1 T T'],
        positions: Int[Array, 'B T'],
        memory: Float[Array, 'B S D'],
        memory_mask: Bool[Array, 'B 1 T S'],
        *,
        train: bool,
    ) -> Float[Array, 'B T D']:
        projected = self.cross_attention.project_memory(memory)

        def attend(y):
            return self.self_attention.over_itself(y, mask, positions, train=train)

        def look_up(y):
            return self.cross_attention.over_memory(y, projected, memory_mask, train=train)

        x = self.self_attention_sublayer(x, attend, train=train)
        x = self.cross_attention_sublayer(x, look_up, train=train)
        return self.feed_forward_sublayer(x, lambda y: self.feed_forward(y, train=train), train=train)

    def project_memory(self, memory: Float[Array, 'B S D']) -> Cache:
        """Keys and values of the encoder's output, computed once a sentence."""
        return self.cross_attention.project_memory(memory)

    def empty_cache(self, rows: int, length: int) -> Cache:
        """Room for the keys and values of `length` steps."""
        return self.self_attention.empty_cache(rows, length)

    def step(
        self,
        x: Float[Array, 'R 1 D'],
        cache: Cache,
        position: Int[Array, 'R'],
        projected: Cache,
        memory_mask: Bool[Array, 'B 1 1 S'],
    ) -> tuple[Float[Array, 'R 1 D'], Cache]:
        """One position of R = B·W hypotheses, W to each of the B sentences of `projected`."""
        sentences = projected['key'].shape[0]

        def attend(y):
            nonlocal cache
            y, cache = self.self_attention.over_cache(y, cache, position)
            return y

        def look_up(y):
            # The hypotheses of a sentence are queries of one attention: its keys are not copied.
            together = y.reshape(sentences, -1, y.shape[-1])
            found = self.cross_attention.over_memory(together, projected, memory_mask, train=False)
            return found.reshape(y.shape)

        x = self.self_attention_sublayer(x, attend, train=False)
        x = self.cross_attention_sublayer(x, look_up, train=False)
        x = self.feed_forward_sublayer(x, lambda y: self.feed_forward(y, train=False), train=False)
        return x, cache


class Encoder(nn.Module):
    """N layers."""

    model: Model

    @nn.compact
    def __call__(
        self,
        x: Float[Array, 'B S D'],
        mask: Bool[Array, '#B 1 S S'],
        positions: Int[Array, 'B S'],
        *,
        train: bool,
    ) -> Float[Array, 'B S D']:
        for i in range(self.model.N):
            x = EncoderLayer(self.model, name=f'layer_{i}')(x, mask, positions, train=train)
        return FinalNorm(self.model, name='final')(x)


class Decoder(nn.Module):
    """N_decoder layers."""

    model: Model

    def setup(self):
        count = self.model.N_decoder
        self.layers = [DecoderLayer(self.model, name=f'layer_{i}') for i in range(count)]
        self.final = FinalNorm(self.model)

    def __call__(
        self,
        x: Float[Array, 'B T D'],
        mask: Bool[Array, '#B 1 T T'],
        positions: Int[Array, 'B T'],
        memory: Float[Array, 'B S D'],
        memory_mask: Bool[Array, 'B 1 T S'],
        *,
        train: bool,
    ) -> Float[Array, 'B T D']:
        for layer in self.layers:
            x = layer(x, mask, positions, memory, memory_mask, train=train)
        return self.final(x)

    def start(self, memory: Float[Array, 'B S D'], length: int) -> tuple[list[Cache], list[Cache]]:
        """Of each layer the projected memory, and an empty cache of `length` steps."""
        projected = [layer.project_memory(memory) for layer in self.layers]
        return projected, [layer.empty_cache(memory.shape[0], length) for layer in self.layers]

    def step(
        self,
        x: Float[Array, 'R 1 D'],
        caches: list[Cache],
        position: Int[Array, 'R'],
        projected: list[Cache],
        memory_mask: Bool[Array, 'B 1 1 S'],
    ) -> tuple[Float[Array, 'R 1 D'], list[Cache]]:
        """One position of every hypothesis through all layers."""
        updated = []
        for layer, cache, keys_values in zip(self.layers, caches, projected, strict=True):
            x, cache = layer.step(x, cache, position, keys_values, memory_mask)
            updated.append(cache)
        return self.final(x), updated
