"""The Transformer's encoder and decoder (§3.1): stacks of layers, unrolled and named layer_0, layer_1, ..."""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.config import Model
from transformer.nn.attention import MultiHeadAttention
from transformer.nn.cache import DecoderState, places
from transformer.nn.kernels.kernel import AttentionState
from transformer.nn.kernels.table import self_attention
from transformer.nn.layers import Dropout, FeedForward, FinalNorm, Sublayer
from transformer.nn.positions import InputPositions, StackPositions
from transformer.tokens import Tokens


class Memory(NamedTuple):
    """The encoder's output and its segments."""

    outputs: Float[Array, 'B S D']
    segments: Int[Array, 'B S']


class Projected(NamedTuple):
    """One layer's keys and values of the encoder's output, computed once per sentence."""

    key: Float[Array, 'B H C S']
    value: Float[Array, 'B H S E']
    segments: Int[Array, 'B S']


class Layer(nn.Module):
    """Self-attention, attention to an encoder's output (with `cross`), then a feed-forward network."""

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
        text: Tokens,
        memory: Memory | None = None,
        bias: Float[Array, '1 H T T'] | None = None,
        *,
        train: bool,
    ) -> Float[Array, 'B T D']:
        """Runs whole rows; `bias` is what all layers add to the logits of self-attention."""
        projected, around = self.project(memory), self.self_attention_sublayer
        y = self.self_attention(around.before(x), text, bias, causal=self.causal, train=train)
        x = around.after(x, y, train=train)
        if self.cross:
            around = self.cross_attention_sublayer
            y = self.cross_attention.over_memory(around.before(x), text.segments, *projected, train=train)
            x = around.after(x, y, train=train)
        return self._feed_forward(x, train=train)

    def _feed_forward(self, x: Float[Array, 'B T D'], *, train: bool) -> Float[Array, 'B T D']:
        around = self.feed_forward_sublayer
        return around.after(x, self.feed_forward(around.before(x), train=train), train=train)

    def project(self, memory: Memory | None) -> Projected | None:
        """Computes keys and values of the encoder's output."""
        if not self.cross:
            return None
        return Projected(*self.cross_attention.project_memory(memory.outputs), memory.segments)

    def step(
        self,
        x: Float[Array, 'R 1 D'],
        state: AttentionState,
        position: Int[Array, 'R'],
        length: int,
        projected: Projected | None,
        bias: Float[Array, 'R H 1 L'] | None,
    ) -> tuple[Float[Array, 'R 1 D'], AttentionState]:
        """Runs one position of R = B·W hypotheses, W per sentence of `projected`."""
        around = self.self_attention_sublayer
        y, state = self.self_attention.over_state(around.before(x), state, position, length, bias)
        x = around.after(x, y, train=False)
        if self.cross:
            around = self.cross_attention_sublayer
            # A sentence's hypotheses are queries of one attention, so the sentence's keys are not copied.
            together = around.before(x).reshape(projected.segments.shape[0], -1, x.shape[-1])
            y = self.cross_attention.step_over_memory(together, *projected)
            x = around.after(x, y.reshape(x.shape), train=False)
        return self._feed_forward(x, train=False), state


class Stack(nn.Module):
    """A stack of `depth` layers: an encoder's or, with `causal`, a decoder's.

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
        self.positions = StackPositions(self.model, self.causal)
        self.final = FinalNorm(self.model)

    def __call__(
        self, x: Float[Array, 'B T D'], text: Tokens, memory: Memory | None = None, *, train: bool
    ) -> Float[Array, 'B T D']:
        # Within a segment, positions differ as places in the row do.
        bias = self.positions(x.shape[1])
        recomputed = nn.remat(lambda layer, x: layer(x, text, memory, bias, train=True))
        for layer in self.layers:
            recomputes = self.model.remat and train
            x = recomputed(layer, x) if recomputes else layer(x, text, memory, bias, train=train)
        return self.final(x)

    def project(self, memory: Memory | None) -> list[Projected | None]:
        """Computes each layer's keys and values of the encoder's output."""
        return [layer.project(memory) for layer in self.layers]

    def empty(self, rows: int, length: int) -> DecoderState:
        """Returns the state before the first of `length` steps."""
        layers = [self_attention(self.model).empty(self.model, rows, length) for _ in self.layers]
        return DecoderState(jnp.zeros(rows, jnp.int32), layers)

    def step(
        self, x: Float[Array, 'R 1 D'], state: DecoderState, length: int, projected: list[Projected | None]
    ) -> tuple[Float[Array, 'R D'], DecoderState]:
        """Runs one position of every hypothesis through all layers."""
        updated, bias = [], self.positions(length, state.position[:, None])
        for layer, before, keys_values in zip(self.layers, state.layers, projected, strict=True):
            x, after = layer.step(x, before, state.position, length, keys_values, bias)
            updated.append(after)
        return self.final(x)[:, 0], DecoderState(state.position + 1, updated)


class Encoder(NamedTuple):
    """A sum of embeddings and positions, and a stack, causal or not, for whole rows."""

    stack: Stack
    positions: InputPositions
    dropout: Dropout

    def __call__(
        self, x: Float[Array, 'B S D'], text: Tokens, types: Int[Array, 'B S'] | None = None, *, train: bool
    ) -> Memory:
        x = self.dropout(self.positions(x, text.positions, x.shape[1], types), train=train)
        return Memory(self.stack(x, text, train=train), text.segments)


class Decoder(NamedTuple):
    """A sum of embeddings and positions, and a causal stack for whole rows or single tokens."""

    stack: Stack
    positions: InputPositions
    dropout: Dropout

    def __call__(
        self, x: Float[Array, 'B T D'], text: Tokens, memory: Memory | None, *, train: bool
    ) -> Float[Array, 'B T D']:
        x = self.dropout(self.positions(x, text.positions, x.shape[1]), train=train)
        return self.stack(x, text, memory, train=train)

    def start(self, memory: Memory | None, rows: int, length: int) -> tuple[dict[str, object], DecoderState]:
        """Returns the constants of all steps, and the state before the first of `length` steps."""
        constants = {'memory': self.stack.project(memory), 'places': places(rows, length)}
        return constants, self.stack.empty(rows, length)

    def step(
        self, x: Float[Array, 'R D'], state: DecoderState, constants: dict[str, object]
    ) -> tuple[Float[Array, 'R D'], DecoderState]:
        """Runs one token of every hypothesis."""
        length = constants['places'].shape[1]
        x = self.positions(x[:, None], state.position[:, None], length)
        return self.stack.step(x, state, length, constants['memory'])


# A module that calls one of these in its `setup` owns the parameters.


def make_pair(m: Model) -> tuple[Encoder, Decoder]:
    """Makes an encoder, and a decoder that attends to its output."""
    dropout = Dropout(m.P_drop_embedding, name='dropout')
    source, target = (InputPositions(m, name=f'{side}_positions') for side in ('source', 'target'))
    encoder = Stack(m, m.N, causal=False, name='encoder')
    decoder = Stack(m, m.N_decoder, causal=True, cross=True, name='decoder')
    return Encoder(encoder, source, dropout), Decoder(decoder, target, dropout)


def make_encoder(m: Model, *, causal: bool = False) -> Encoder:
    """Makes an encoder alone; `causal` if a token sees none after it."""
    return Encoder(Stack(m, m.N, causal=causal, name='encoder'), *_make_inputs(m))


def make_decoder(m: Model) -> Decoder:
    """Makes a decoder alone."""
    return Decoder(Stack(m, m.N, causal=True, name='decoder'), *_make_inputs(m))


def _make_inputs(m: Model) -> tuple[InputPositions, Dropout]:
    return InputPositions(m, name='positions'), Dropout(m.P_drop_embedding, name='dropout')
