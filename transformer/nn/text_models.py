"""Base classes of text models: embeddings, the softmax, and reading prompts."""

from typing import ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from transformer.config import Config, Model
from transformer.nn import matmul
from transformer.nn.layers import Embedding
from transformer.tokens import EOS, START, Batch, Tokens


def shift_right(tokens: Int[Array, 'B T'], segments: Int[Array, 'B T']) -> Int[Array, 'B T']:
    """Returns each position's previous token in the same segment, or `START` if there is none."""
    before = jnp.pad(tokens, ((0, 0), (1, 0)))[:, :-1]
    same = segments == jnp.pad(segments, ((0, 0), (1, 0)))[:, :-1]
    return jnp.where(same, before, START)


def places(rows: int, length: int) -> Int[Array, 'B L']:
    """Returns 0 to length - 1 for each row; in a model's constants, its shape tells `step` the length."""
    return jnp.broadcast_to(jnp.arange(length), (rows, length))


class Pieces(nn.Module):
    """A text model, whose logits are vectors times the softmax's matrix (§3.4).

    `PairPieces` and `TextPieces` are the forms that generate. A kind of model adds to them

        decoder.project(memory)                     the keys and values that all steps share, if any
        decoder.empty(memory, rows, length)         the state before the first of `length` tokens
        _decode(x, tokens, memory, train=...)       whole rows: from embeddings x to the softmax's input
        _advance(x, state, projected, length)       one token of every row: x is [R D]; also the next state

    COUNTS says whether steps need the length, because the model has positions or caches.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ('text',)
    COUNTS: ClassVar[bool] = True
    model: Model

    def setup(self):
        self.embedding = Embedding(self.model)
        self._make_softmax()

    def _make_softmax(self) -> None:
        if self.model.tie_embeddings == 'none':
            self.softmax = Embedding(self.model)
        if self.model.softmax_bias:
            self.softmax_bias = self.param('softmax_bias', nn.initializers.zeros, (self.model.vocab_size,))

    def _softmax(self) -> Embedding:
        return self.softmax if self.model.tie_embeddings == 'none' else self.embedding

    @classmethod
    def of(cls, config: Config) -> 'Pieces':
        """Returns the model that a config describes."""
        return cls(config.model)

    @classmethod
    def blank(cls, config: Config, rows: int, length: int) -> Batch:
        """Returns full rows of piece 0 for every field, one segment per row."""
        del config
        shape = (rows, length)
        positions = np.broadcast_to(np.arange(length, dtype=np.int32), shape).copy()
        tokens = Tokens(np.zeros(shape, np.int32), np.ones(shape, np.int32), positions)
        return dict.fromkeys(cls.FIELDS, tokens)

    def __call__(self, batch: Batch, *, train: bool) -> Float[Array, 'B T V']:
        """Returns the logits of every predicted token."""
        return matmul.logits(*self.factors(batch, train=train))

    def factors(self, batch: Batch, *, train: bool) -> tuple[Float[Array, 'B T _'], Float[Array, 'V _']]:
        """Returns the vectors and the matrix whose product is the logits; a bias is its last column."""
        return self._factors(self.vectors(batch, train=train))

    def logits(self, x: Float[Array, '*B D']) -> Float[Array, '*B V']:
        """Returns the logits of what the softmax reads, in float32."""
        return matmul.logits(*self._factors(x))

    def _factors(self, x: Float[Array, '*B D']) -> tuple[Float[Array, '*B _'], Float[Array, 'V _']]:
        matrix = self._softmax().matrix()
        if not self.model.softmax_bias:
            return x, matrix
        bias = self.softmax_bias[:, None].astype(matrix.dtype)
        return jnp.concatenate([x, jnp.ones_like(x[..., :1])], -1), jnp.concatenate([matrix, bias], 1)

    def _begin(self, memory: object, rows: int, length: int) -> tuple[dict[str, object], object]:
        """Returns the constants of all steps, and the state before the first of `length` tokens."""
        constants = {'memory': self.decoder.project(memory)}
        if self.COUNTS:
            constants['places'] = places(rows, length)
        return constants, self.decoder.empty(memory, rows, length)

    def _logits(
        self, constants: dict[str, object], state: object, x: Float[Array, 'R D']
    ) -> tuple[Float[Array, 'R V'], object]:
        """Returns the logits after a token whose embedding is x, and the state after it."""
        length = constants['places'].shape[1] if self.COUNTS else 0
        x, state = self._advance(x, state, constants['memory'], length)
        return self.logits(x), state


class PairPieces(Pieces):
    """A model that reads a source and writes a target; its kind also has `encode(source, train=...)`."""

    FIELDS = ('source', 'target')

    def setup(self):
        m = self.model
        if m.tie_embeddings == 'all':
            self.embedding = Embedding(m)
        else:
            self.source_embedding, self.target_embedding = Embedding(m), Embedding(m)
        self._make_softmax()

    def _tables(self) -> tuple[Embedding, Embedding, Embedding]:
        """Returns the embeddings of the source, the target and the softmax."""
        if self.model.tie_embeddings == 'all':
            return self.embedding, self.embedding, self.embedding
        softmax = self.target_embedding if self.model.tie_embeddings == 'decoder' else self.softmax
        return self.source_embedding, self.target_embedding, softmax

    def _softmax(self) -> Embedding:
        return self._tables()[-1]

    def vectors(self, batch: Batch, *, train: bool) -> Float[Array, 'B T D']:
        """Returns the softmax's input for every target token, from the source and earlier target tokens."""
        memory = self.encode(batch['source'], train=train)
        target = batch['target']
        x = self._tables()[1](shift_right(target.tokens, target.segments))
        return self._decode(x, target, memory, train=train)

    def start(self, memory: object, max_len: int) -> tuple[dict[str, object], object]:
        """Prepares the decoder for its first token, with room for `max_len` tokens."""
        return self._begin(memory, memory.segments.shape[0], max_len)

    def step(
        self, constants: dict[str, object], state: object, tokens: Int[Array, 'R']
    ) -> tuple[Float[Array, 'R V'], object]:
        """Returns the logits of the token that follows `tokens`, and the state after them."""
        return self._logits(constants, state, self._tables()[1](tokens))


class PromptedState(NamedTuple):
    """The state of a prompt's continuation; `pending` is the prompt's last token, not yet read."""

    pending: Int[Array, 'R']
    decoder: object


class TextPieces(Pieces):
    """A language model, which reads and continues prompts."""

    def _embed(self, before: Int[Array, '*B']) -> Float[Array, '*B D']:
        # A text begins with EOS, as if after another text. The zero vector that starts a translation would
        # not do: if no position is added to it (rotary, relative, none), every norm multiplies its gradient
        # by 1/sqrt(epsilon) = 1000.
        return self.embedding(jnp.where(before == START, EOS, before))

    def vectors(self, batch: Batch, *, train: bool) -> Float[Array, 'B T D']:
        """Returns the softmax's input for every token, from the earlier tokens of its segment."""
        text = batch['text']
        x = self._embed(shift_right(text.tokens, text.segments))
        return self._decode(x, text, None, train=train)

    def encode(self, source: Tokens) -> Tokens:
        """Returns the prompt unchanged: `start` reads it."""
        return source

    def start(self, memory: Tokens, max_len: int) -> tuple[dict[str, object], PromptedState]:
        """Reads each prompt except its last token; a prompt is one segment at the beginning of its row."""
        rows, width = memory.tokens.shape
        constants, empty = self._begin(None, rows, width + max_len)
        return constants, self._read(memory, constants, PromptedState(jnp.zeros(rows, jnp.int32), empty))

    def step(
        self, constants: dict[str, object], state: PromptedState, tokens: Int[Array, 'R']
    ) -> tuple[Float[Array, 'R V'], PromptedState]:
        """Returns the logits after `tokens`, and the next state; `START` means the prompt's last token."""
        tokens = jnp.where(tokens == START, state.pending, tokens)
        logits, decoder = self._logits(constants, state.decoder, self._embed(tokens))
        return logits, PromptedState(state.pending, decoder)

    def _read(self, prompt: Tokens, constants: dict[str, object], empty: PromptedState) -> PromptedState:
        """Returns the state after all of the prompt but its last token, from the state `empty`."""
        width = prompt.tokens.shape[1]
        lengths = jnp.sum(prompt.segments > 0, axis=1)
        # A scan cannot call a bound module, so it gets the module and the parameters separately.
        module, variables = self.unbind()

        def read(state, inputs):
            tokens, place = inputs
            _, after = module.apply(variables, constants, state, tokens, method='step')
            inside = place < lengths
            keep = lambda new, old: jnp.where(jnp.expand_dims(inside, range(1, new.ndim)), new, old)
            return jax.tree.map(keep, after, state), None

        inputs = shift_right(prompt.tokens, prompt.segments).T, jnp.arange(width)
        state, _ = jax.lax.scan(read, empty, inputs)
        last = jnp.maximum(lengths - 1, 0)[:, None]
        return state._replace(pending=jnp.take_along_axis(prompt.tokens, last, axis=1)[:, 0])
