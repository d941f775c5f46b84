"""Whole models by kind and form, all with one contract, so that their callers need not know the model.

    blank(config, rows, length) -> batch without content      every model, as a class method
    model(batch, train) -> logits                             every model
    encode(source: Tokens) -> memory                          models that generate
    start(memory, max_len) -> (constants, state)
    step(constants, state, tokens [R]) -> (logits [R V], state)

`constants` holds what all hypotheses of a sentence share and never changes: a pytree of arrays with first
axis B. A step may have W hypotheses of every sentence, in rows b·W + w of tokens and of the arrays of
`state`; only caches in it keep one row a sentence (nn/cache.py). The first token of a hypothesis is `START`.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.config import FORM, Config
from transformer.nn.convolutional import ConvolutionalEncoderDecoder, ConvolutionalLanguageModel
from transformer.nn.kernels.kernel import State as LayerState
from transformer.nn.layers import Dropout
from transformer.nn.positions import InputPositions
from transformer.nn.recurrent import RecurrentEncoderDecoder, RecurrentLanguageModel
from transformer.nn.stacks import Decoder, Encoder, Memory
from transformer.nn.text_models import PairPieces, TextPieces, places, shift_right
from transformer.tokens import START, Batch, Tokens

Params = dict[str, object]


class DecoderState(NamedTuple):
    """The state of the Transformer's hypotheses: how many tokens each has, and the states of the layers."""

    position: Int[Array, 'R']
    layers: list[LayerState]


class PromptedState(NamedTuple):
    """What a continuation of a prompt owns; `pending` is the prompt's last token, not yet read."""

    position: Int[Array, 'R']
    pending: Int[Array, 'R']
    layers: list[LayerState]


class EncoderDecoder(PairPieces):
    """The Transformer (§3)."""

    def setup(self):
        super().setup()
        m = self.model
        self.encoder, self.decoder = Encoder(m), Decoder(m, m.N_decoder, cross=True)
        self.source_positions, self.target_positions = InputPositions(m), InputPositions(m)
        self.dropout = Dropout(m.P_drop_embedding)

    def vectors(self, batch: Batch, *, train: bool) -> Float[Array, 'B T D']:
        """What the softmax reads for every target token: the source and the earlier tokens of its segment."""
        _, embedding, _ = self._tables()
        memory = self.encode(batch['source'], train=train)
        tokens, segments, positions = batch['target']
        x = embedding(shift_right(tokens, segments))
        x = self.target_positions(x, positions, tokens.shape[1])
        return self.decoder(self.dropout(x, train=train), segments, positions, memory, train=train)

    def encode(self, source: Tokens, *, train: bool = False) -> Memory:
        """The encoder's output."""
        embedding, _, _ = self._tables()
        x = self.source_positions(embedding(source.tokens), source.positions, source.tokens.shape[1])
        x = self.dropout(x, train=train)
        return Memory(self.encoder(x, source.segments, source.positions, train=train), source.segments)

    def start(self, memory: Memory, max_len: int) -> tuple[dict[str, object], DecoderState]:
        """The decoder before its first token, with room for `max_len` of them."""
        rows = memory.segments.shape[0]
        constants = {'places': places(rows, max_len), 'memory': self.decoder.project(memory)}
        return constants, DecoderState(jnp.zeros(rows, jnp.int32), self.decoder.empty(rows, max_len))

    def step(
        self, constants: dict[str, object], state: DecoderState, tokens: Int[Array, 'R']
    ) -> tuple[Float[Array, 'R V'], DecoderState]:
        """The logits of the token that follows `tokens`."""
        _, embedding, softmax = self._tables()
        length = constants['places'].shape[1]
        x = self.target_positions(embedding(tokens[:, None]), state.position[:, None], length)
        x, layers = self.decoder.step(x, state.layers, state.position, length, constants['memory'])
        return softmax.logits(x[:, 0]), DecoderState(state.position + 1, layers)


class DecoderOnly(TextPieces):
    """The Transformer's decoder alone, as a language model (Radford et al. 2018)."""

    def setup(self):
        super().setup()
        m = self.model
        self.decoder = Decoder(m, m.N, cross=False)
        self.positions = InputPositions(m)
        self.dropout = Dropout(m.P_drop_embedding)

    def vectors(self, batch: Batch, *, train: bool) -> Float[Array, 'B T D']:
        """What the softmax reads for every token: the earlier tokens of its segment."""
        tokens, segments, positions = batch['text']
        x = self.positions(self._embed(shift_right(tokens, segments)), positions, tokens.shape[1])
        return self.decoder(self.dropout(x, train=train), segments, positions, None, train=train)

    def start(self, memory: Tokens, max_len: int) -> tuple[dict[str, object], PromptedState]:
        """The decoder after it has read the prompt except its last token, with room for more.

        Args:
          memory: prompts of different lengths, each in one segment at the beginning of its row.
          max_len: how many tokens may follow.
        """
        rows, width = memory.tokens.shape
        constants = {'places': places(rows, width + max_len)}
        nothing = jnp.zeros(rows, jnp.int32)
        empty = PromptedState(nothing, nothing, self.decoder.empty(rows, width + max_len))
        return constants, self._read(memory, constants, empty)

    def step(
        self, constants: dict[str, object], state: PromptedState, tokens: Int[Array, 'R']
    ) -> tuple[Float[Array, 'R V'], PromptedState]:
        """The logits of the token that follows `tokens`; `START` stands for the end of the prompt."""
        length = constants['places'].shape[1]
        tokens = jnp.where(tokens == START, state.pending, tokens)
        x = self.positions(self._embed(tokens[:, None]), state.position[:, None], length)
        nothing = [None] * len(state.layers)
        x, layers = self.decoder.step(x, state.layers, state.position, length, nothing)
        return self._logits(x[:, 0]), PromptedState(state.position + 1, state.pending, layers)


# The module of each kind and form (config.options has the forms of tasks, and the kinds of forms).
MODELS = {
    ('transformer', 'pair'): EncoderDecoder,
    ('transformer', 'text'): DecoderOnly,
    ('recurrent', 'pair'): RecurrentEncoderDecoder,
    ('recurrent', 'text'): RecurrentLanguageModel,
    ('convolutional', 'pair'): ConvolutionalEncoderDecoder,
    ('convolutional', 'text'): ConvolutionalLanguageModel,
}


def _class_of(config: Config) -> type[nn.Module]:
    return MODELS[config.model.kind, FORM[config.train.task]]


def build(config: Config) -> nn.Module:
    """Returns the model that a config describes."""
    return _class_of(config)(config.model)


def blank(config: Config, rows: int = 1, length: int = 2) -> Batch:
    """Returns a batch of the fields that the model reads, without content.

    Args:
      length: positions of a row, where rows have positions.
    """
    return _class_of(config).blank(config, rows, length)


def initialize(config: Config, key: Array) -> Params:
    """Draws fresh parameters, in float32. Under jit nothing else is computed."""
    batch = jax.tree.map(jnp.asarray, blank(config))
    return build(config).init(key, batch, train=False)['params']


def parameter_shapes(config: Config) -> Params:
    """Returns the parameters' shapes and types; nothing is computed."""
    return jax.eval_shape(lambda: initialize(config, jax.random.key(0)))
