"""Whole models with one contract, so that search, evaluation and figures never ask what a model is.

    model(batch, train) -> logits                             every model
    encode(source: Tokens) -> memory                          models that generate
    start(memory, max_len) -> (constants, state)
    step(constants, state, tokens [B]) -> (logits [B V], state)

`constants` is what all hypotheses of a sentence share; `state` is what each owns: a pytree of plain
arrays with first axis B. A step may have W hypotheses of every sentence, in rows b·W + w of tokens and
state. The first token of a hypothesis is `START`.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from transformer.config import Config, Model
from transformer.nn.kernels import State as LayerState
from transformer.nn.layers import Dropout, Embedding
from transformer.nn.positions import InputPositions
from transformer.nn.stacks import Decoder, Encoder, Memory
from transformer.symbols import EOS, START, Batch, Tokens

Params = dict[str, object]


class DecoderState(NamedTuple):
    """What a hypothesis of the Transformer owns: the number of its tokens, and its layers' states."""

    position: Int[Array, 'B']
    layers: list[LayerState]


class PromptedState(NamedTuple):
    """What a continuation of a prompt owns; `pending` is the prompt's last token, not yet read."""

    position: Int[Array, 'B']
    pending: Int[Array, 'B']
    layers: list[LayerState]


def shift_right(tokens: Int[Array, 'B T'], segments: Int[Array, 'B T']) -> Int[Array, 'B T']:
    """The token before each position in its own segment, `START` where there is none."""
    before = jnp.pad(tokens, ((0, 0), (1, 0)))[:, :-1]
    same = segments == jnp.pad(segments, ((0, 0), (1, 0)))[:, :-1]
    return jnp.where(same, before, START)


class EncoderDecoder(nn.Module):
    """The Transformer (§3)."""

    model: Model
    FIELDS = ('source', 'target')

    def setup(self):
        m = self.model
        self.encoder, self.decoder = Encoder(m), Decoder(m, m.N_decoder, cross=True)
        self.source_positions, self.target_positions = InputPositions(m), InputPositions(m)
        self.dropout = Dropout(m.P_drop_embedding)
        if m.tie_embeddings == 'all':
            self.embedding = Embedding(m)
        else:
            self.source_embedding, self.target_embedding = Embedding(m), Embedding(m)
        if m.tie_embeddings == 'none':
            self.softmax = Embedding(m)

    def _tables(self) -> tuple[Embedding, Embedding, Embedding]:
        """The embeddings of the source, of the target, and of the softmax."""
        if self.model.tie_embeddings == 'all':
            return self.embedding, self.embedding, self.embedding
        softmax = self.target_embedding if self.model.tie_embeddings == 'decoder' else self.softmax
        return self.source_embedding, self.target_embedding, softmax

    def __call__(self, batch: Batch, *, train: bool) -> Float[Array, 'B T V']:
        """The logits of every target token, given the source and the earlier tokens of its segment."""
        _, embedding, softmax = self._tables()
        memory = self.encode(batch['source'], train=train)
        tokens, segments, positions = batch['target']
        x = embedding(shift_right(tokens, segments))
        x = self.target_positions(x, positions, tokens.shape[1])
        x = self.decoder(self.dropout(x, train=train), segments, positions, memory, train=train)
        return softmax.logits(x)

    def encode(self, source: Tokens, *, train: bool = False) -> Memory:
        """The encoder's output."""
        embedding, _, _ = self._tables()
        x = self.source_positions(embedding(source.tokens), source.positions, source.tokens.shape[1])
        x = self.dropout(x, train=train)
        return Memory(self.encoder(x, source.segments, source.positions, train=train), source.segments)

    def start(self, memory: Memory, max_len: int) -> tuple[dict[str, object], DecoderState]:
        """The decoder before its first token, with room for `max_len` of them."""
        rows = memory.segments.shape[0]
        constants = {'places': jnp.arange(max_len), 'memory': self.decoder.project(memory)}
        return constants, DecoderState(jnp.zeros(rows, jnp.int32), self.decoder.empty(rows, max_len))

    def step(
        self, constants: dict[str, object], state: DecoderState, tokens: Int[Array, 'B']
    ) -> tuple[Float[Array, 'B V'], DecoderState]:
        """The logits of the token that follows `tokens`."""
        _, embedding, softmax = self._tables()
        places = constants['places']
        x = self.target_positions(embedding(tokens[:, None]), state.position[:, None], places.shape[0])
        x, layers = self.decoder.step(x, state.layers, state.position, places, constants['memory'])
        return softmax.logits(x[:, 0]), DecoderState(state.position + 1, layers)


class DecoderOnly(nn.Module):
    """The Transformer's decoder alone, as a language model (Radford et al. 2018)."""

    model: Model
    FIELDS = ('text',)

    def setup(self):
        m = self.model
        self.decoder = Decoder(m, m.N, cross=False)
        self.positions = InputPositions(m)
        self.dropout = Dropout(m.P_drop_embedding)
        self.embedding = Embedding(m)
        if m.tie_embeddings == 'none':
            self.softmax = Embedding(m)

    def _inputs(
        self, before: Int[Array, 'B T'], positions: Int[Array, 'B T'], length: int
    ) -> Float[Array, 'B T D']:
        # A text begins after the end of another. The zero vector that starts a translation will not do:
        # where nothing is added to it (rotary, relative, none), every norm on the way multiplies its
        # gradient by 1/sqrt(epsilon) = 1000.
        tokens = jnp.where(before == START, EOS, before)
        return self.positions(self.embedding(tokens), positions, length)

    def _logits(self, x: Float[Array, '*B D']) -> Float[Array, '*B V']:
        softmax = self.softmax if self.model.tie_embeddings == 'none' else self.embedding
        return softmax.logits(x)

    def __call__(self, batch: Batch, *, train: bool) -> Float[Array, 'B T V']:
        """The logits of every token, given the earlier tokens of its segment."""
        tokens, segments, positions = batch['text']
        x = self._inputs(shift_right(tokens, segments), positions, tokens.shape[1])
        x = self.decoder(self.dropout(x, train=train), segments, positions, None, train=train)
        return self._logits(x)

    def encode(self, source: Tokens) -> Tokens:
        """The prompt as it is: `start` reads it."""
        return source

    def start(self, memory: Tokens, max_len: int) -> tuple[dict[str, object], PromptedState]:
        """The decoder after it has read the prompt except its last token, with room for more.

        Args:
          memory: prompts of different lengths, each in one segment at the beginning of its row.
          max_len: how many tokens may follow.
        """
        rows, width = memory.tokens.shape
        lengths = jnp.sum(memory.segments > 0, axis=1)
        constants = {'places': jnp.arange(width + max_len)}
        nothing = jnp.zeros(rows, jnp.int32)
        empty = PromptedState(nothing, nothing, self.decoder.empty(rows, width + max_len))
        # A scan cannot call a bound module, so it gets the module and the parameters separately.
        module, variables = self.unbind()

        def read(state, inputs):
            tokens, place = inputs
            _, after = module.apply(variables, constants, state, tokens, method='step')
            inside = place < lengths
            keep = lambda new, old: jnp.where(jnp.expand_dims(inside, range(1, new.ndim)), new, old)
            return jax.tree.map(keep, after, state), None

        inputs = shift_right(memory.tokens, memory.segments).T, jnp.arange(width)
        state, _ = jax.lax.scan(read, empty, inputs)
        last = jnp.maximum(lengths - 1, 0)[:, None]
        pending = jnp.take_along_axis(memory.tokens, last, axis=1)[:, 0]
        return constants, state._replace(pending=pending)

    def step(
        self, constants: dict[str, object], state: PromptedState, tokens: Int[Array, 'B']
    ) -> tuple[Float[Array, 'B V'], PromptedState]:
        """The logits of the token that follows `tokens`; `START` stands for the end of the prompt."""
        places = constants['places']
        tokens = jnp.where(tokens == START, state.pending, tokens)
        x = self._inputs(tokens[:, None], state.position[:, None], places.shape[0])
        nothing = [None] * len(state.layers)
        x, layers = self.decoder.step(x, state.layers, state.position, places, nothing)
        return self._logits(x[:, 0]), PromptedState(state.position + 1, state.pending, layers)


MODELS = {'transformer': EncoderDecoder, 'decoder': DecoderOnly}


def build(config: Config) -> nn.Module:
    """The model that a config describes."""
    return MODELS[config.model.kind](config.model)


def blank(config: Config, rows: int = 1, length: int = 2) -> Batch:
    """A batch of the fields that the model takes: full rows of piece 0, one segment each."""
    shape = (rows, length)
    positions = np.broadcast_to(np.arange(length, dtype=np.int32), shape).copy()
    tokens = Tokens(np.zeros(shape, np.int32), np.ones(shape, np.int32), positions)
    return {field: tokens for field in MODELS[config.model.kind].FIELDS}


def initialize(config: Config, key: Array) -> Params:
    """Fresh parameters, in float32. Under jit nothing else is computed."""
    batch = jax.tree.map(jnp.asarray, blank(config))
    return build(config).init(key, batch, train=False)['params']


def parameter_shapes(config: Config) -> Params:
    """The parameters' shapes and types; nothing is computed."""
    return jax.eval_shape(lambda: initialize(config, jax.random.key(0)))
