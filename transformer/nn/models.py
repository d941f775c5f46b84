"""Whole models by kind and form, all with one contract, so that callers need not know the model.

    blank(config, rows, length) -> batch without content      every model, as a class method
    model(batch, train) -> logits                             every model
    encode(source: Tokens) -> memory                          models that generate
    start(memory, max_len) -> (constants, state)
    step(constants, state, tokens [R]) -> (logits [R V], state)

`constants` never changes, and all hypotheses of a sentence share it: a pytree of arrays with first axis B. A
step may run W hypotheses per sentence, in rows b·W + w of `tokens` and of the arrays in `state`; only the
caches in `state` have one row per sentence (nn/cache.py). The first token of a hypothesis is `START`.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.config import Config, form_of
from transformer.nn.cache import DecoderState
from transformer.nn.convolutional import ConvolutionalEncoderDecoder, ConvolutionalLanguageModel
from transformer.nn.encoder_only import EncoderOnly
from transformer.nn.layers import Dropout
from transformer.nn.positions import InputPositions
from transformer.nn.recurrent import RecurrentEncoderDecoder, RecurrentLanguageModel
from transformer.nn.stacks import Memory, Projected, Stack
from transformer.nn.text_models import PairPieces, TextPieces
from transformer.nn.vision import VisionTransformer
from transformer.tokens import Batch, Tokens

Params = dict[str, object]


class TransformerSteps:
    """Runs the Transformer's decoder, in pair and text models; `positions` adds positions to embeddings."""

    def _enter(
        self, x: Float[Array, 'B T D'], positions: Int[Array, 'B T'], length: int, *, train: bool
    ) -> Float[Array, 'B T D']:
        return self.dropout(self.positions(x, positions, length), train=train)

    def _decode(
        self, x: Float[Array, 'B T D'], tokens: Tokens, memory: Memory | None, *, train: bool
    ) -> Float[Array, 'B T D']:
        x = self._enter(x, tokens.positions, x.shape[1], train=train)
        return self.decoder(x, tokens.segments, tokens.positions, memory, train=train)

    def _advance(
        self, x: Float[Array, 'R D'], state: DecoderState, memory: list[Projected | None], length: int
    ) -> tuple[Float[Array, 'R D'], DecoderState]:
        x = self._enter(x[:, None], state.position[:, None], length, train=False)
        return self.decoder.step(x, state, length, memory)


class EncoderDecoder(TransformerSteps, PairPieces):
    """The Transformer (§3)."""

    def setup(self):
        super().setup()
        m = self.model
        self.encoder = Stack(m, m.N, causal=False)
        self.decoder = Stack(m, m.N_decoder, causal=True, cross=True)
        self.source_positions, self.target_positions = InputPositions(m), InputPositions(m)
        self.positions = self.target_positions
        self.dropout = Dropout(m.P_drop_embedding)

    def encode(self, source: Tokens, *, train: bool = False) -> Memory:
        """Computes the encoder's output."""
        embedding, _, _ = self._tables()
        x = self.source_positions(embedding(source.tokens), source.positions, source.tokens.shape[1])
        x = self.dropout(x, train=train)
        return Memory(self.encoder(x, source.segments, source.positions, train=train), source.segments)


class DecoderOnly(TransformerSteps, TextPieces):
    """The Transformer's decoder alone, as a language model (Radford et al. 2018)."""

    def setup(self):
        super().setup()
        m = self.model
        self.decoder = Stack(m, m.N, causal=True)
        self.positions = InputPositions(m)
        self.dropout = Dropout(m.P_drop_embedding)


# The module of each kind and form (config/tasks.py lists them).
MODELS = {
    ('transformer', 'pair'): EncoderDecoder,
    ('transformer', 'text'): DecoderOnly,
    ('recurrent', 'pair'): RecurrentEncoderDecoder,
    ('recurrent', 'text'): RecurrentLanguageModel,
    ('convolutional', 'pair'): ConvolutionalEncoderDecoder,
    ('convolutional', 'text'): ConvolutionalLanguageModel,
    ('transformer', 'pieces'): EncoderOnly,
    ('transformer', 'image_classes'): VisionTransformer,
}


def _class_of(config: Config) -> type[nn.Module]:
    return MODELS[config.model.kind, form_of(config)]


def build(config: Config) -> nn.Module:
    """Returns the model that a config describes."""
    return _class_of(config).of(config)


def fields(config: Config) -> tuple[str, ...]:
    """The fields that a config's model reads; it predicts the last one."""
    return _class_of(config).FIELDS


def blank(config: Config, rows: int = 1, length: int = 2) -> Batch:
    """Returns a batch of the fields that the model reads, without content."""
    return _class_of(config).blank(config, rows, length)


def initialize(config: Config, key: Array) -> Params:
    """Draws fresh parameters, in float32. Under jit nothing else is computed."""
    batch = jax.tree.map(jnp.asarray, blank(config))
    return build(config).init(key, batch, train=False)['params']


def parameter_shapes(config: Config) -> Params:
    """Returns the parameters' shapes and types, without computing anything."""
    return jax.eval_shape(lambda: initialize(config, jax.random.key(0)))
