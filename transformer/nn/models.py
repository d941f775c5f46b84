"""Whole models behind one contract, so that nothing else asks what a model is.

    model(batch, train) -> logits [B T V]
    encode(source) -> memory
    start(memory, max_len) -> (constants, state)
    step(constants, state, tokens [B]) -> (logits [B V], state)

`constants` is what all hypotheses of a sentence share; `state` is what each owns: a pytree of plain
arrays with first axis B. A step may have W hypotheses of every sentence, in rows b·W + w of tokens and
state. The first tokens of a sentence are padding, which embeds to zeros.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.config import Config, Model
from transformer.nn import masks
from transformer.nn.layers import Dropout, Embedding
from transformer.nn.positions import InputPositions
from transformer.nn.stacks import Decoder, Encoder

Batch = dict[str, Array]
Params = dict[str, object]


class Source(NamedTuple):
    """Source sentences: tokens, their segment (0 is padding) and their position in it."""

    tokens: Int[Array, 'B S']
    segments: Int[Array, 'B S']
    positions: Int[Array, 'B S']


class Memory(NamedTuple):
    """The encoder's output and its segments."""

    outputs: Float[Array, 'B S D']
    segments: Int[Array, 'B S']


class State(NamedTuple):
    """What a hypothesis owns: the number of its tokens and the caches of its layers."""

    position: Int[Array, 'B']
    caches: list[dict[str, Array]]


def source_of(batch: Batch) -> Source:
    """The source side of a batch."""
    return Source(batch['source'], batch['source_segments'], batch['source_positions'])


def shift_right(tokens: Int[Array, 'B T'], segments: Int[Array, 'B T']) -> Int[Array, 'B T']:
    """Each position's previous token of its own segment; padding, the start token, where none is."""
    before = jnp.pad(tokens, ((0, 0), (1, 0)))[:, :-1]
    same = segments == jnp.pad(segments, ((0, 0), (1, 0)))[:, :-1]
    return jnp.where(same, before, 0)


class EncoderDecoder(nn.Module):
    """The Transformer (§3)."""

    model: Model

    def setup(self):
        m = self.model
        self.encoder, self.decoder = Encoder(m), Decoder(m)
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
        """The logits of every target token given those before it, in its own segment."""
        _, embedding, softmax = self._tables()
        memory = self.encode(source_of(batch), train=train)
        segments, positions = batch['target_segments'], batch['target_positions']
        length = segments.shape[1]
        x = embedding(shift_right(batch['target'], segments))
        x = self.target_positions(x, positions, length)
        x = self.decoder(
            self.dropout(x, train=train),
            masks.causal_mask(length) & masks.segment_mask(segments, segments),
            positions,
            memory.outputs,
            masks.segment_mask(segments, memory.segments),
            train=train,
        )
        return softmax.logits(x)

    def encode(self, source: Source, *, train: bool = False) -> Memory:
        """The encoder's output."""
        embedding, _, _ = self._tables()
        x = self.source_positions(embedding(source.tokens), source.positions, source.tokens.shape[1])
        x = self.dropout(x, train=train)
        mask = masks.segment_mask(source.segments, source.segments)
        return Memory(self.encoder(x, mask, source.positions, train=train), source.segments)

    def start(self, memory: Memory, max_len: int) -> tuple[dict[str, object], State]:
        """The decoder before its first token, with room for `max_len` of them."""
        projected, caches = self.decoder.start(memory.outputs, max_len)
        constants = {'memory': projected, 'mask': masks.padding_mask(memory.segments)}
        return constants, State(jnp.zeros(memory.segments.shape[0], jnp.int32), caches)

    def step(
        self, constants: dict[str, object], state: State, tokens: Int[Array, 'B']
    ) -> tuple[Float[Array, 'B V'], State]:
        """The logits of the token behind `tokens`."""
        _, embedding, softmax = self._tables()
        length = state.caches[0]['key'].shape[1]
        x = self.target_positions(embedding(tokens[:, None]), state.position[:, None], length)
        x, caches = self.decoder.step(x, state.caches, state.position, constants['memory'], constants['mask'])
        return softmax.logits(x[:, 0]), State(state.position + 1, caches)


def build(config: Config) -> EncoderDecoder:
    """The model that a config describes."""
    return EncoderDecoder(config.model)


def initialize(config: Config, key: Array) -> Params:
    """Fresh parameters, in float32; under jit only the parameters are ever computed."""
    blank = jnp.zeros((1, 2), jnp.int32)
    names = ('source', 'target', 'source_segments', 'target_segments')
    batch = {name: blank for name in (*names, 'source_positions', 'target_positions')}
    return build(config).init(key, batch, train=False)['params']


def parameter_shapes(config: Config) -> Params:
    """The parameters' shapes and types, without computing any."""
    return jax.eval_shape(lambda: initialize(config, jax.random.key(0)))
