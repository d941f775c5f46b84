"""From pieces to vectors and back, and how a prompt is read: what models of every kind share."""

from collections.abc import Mapping
from typing import ClassVar

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
    """The token before each position in its own segment, `START` where there is none."""
    before = jnp.pad(tokens, ((0, 0), (1, 0)))[:, :-1]
    same = segments == jnp.pad(segments, ((0, 0), (1, 0)))[:, :-1]
    return jnp.where(same, before, START)


def places(rows: int, length: int) -> Int[Array, 'B L']:
    """0 to length - 1 for each row: how a model's constants tell `step` how much room there is."""
    return jnp.broadcast_to(jnp.arange(length), (rows, length))


class Pieces(nn.Module):
    """What is the same in all models: the logits are vectors times the matrix of the softmax (§3.4).

    A subclass has `FIELDS`, the fields of text that it reads, `vectors(batch, train=...)`, and `_softmax()`,
    the embedding whose matrix is that of the softmax.
    """

    FIELDS: ClassVar[tuple[str, ...]]
    model: Model

    @classmethod
    def blank(cls, config: Config, rows: int, length: int) -> Batch:
        """Returns full rows of piece 0, one segment each, of every field."""
        del config
        shape = (rows, length)
        positions = np.broadcast_to(np.arange(length, dtype=np.int32), shape).copy()
        tokens = Tokens(np.zeros(shape, np.int32), np.ones(shape, np.int32), positions)
        return dict.fromkeys(cls.FIELDS, tokens)

    def __call__(self, batch: Batch, *, train: bool) -> Float[Array, 'B T V']:
        """The logits of every token that is predicted, given the earlier tokens of its segment."""
        return matmul.logits(*self.factors(batch, train=train))

    def factors(self, batch: Batch, *, train: bool) -> tuple[Float[Array, 'B T D'], Float[Array, 'V D']]:
        """The vectors and the matrix whose product the logits are."""
        return self.vectors(batch, train=train), self._softmax().matrix()


class PairPieces(Pieces):
    """The embeddings of a model that reads a source and writes a target (§3.4)."""

    FIELDS = ('source', 'target')

    def setup(self):
        m = self.model
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

    def _softmax(self) -> Embedding:
        return self._tables()[-1]


class TextPieces(Pieces):
    """The embeddings of a language model, and how it reads prompts.

    A subclass that uses `_read` has a NamedTuple as its state, with `pending`, the prompt's last token, which
    is not yet read.
    """

    FIELDS = ('text',)

    def setup(self):
        self.embedding = Embedding(self.model)
        if self.model.tie_embeddings == 'none':
            self.softmax = Embedding(self.model)

    def _embed(self, before: Int[Array, '*B']) -> Float[Array, '*B D']:
        # A text begins after the end of another. The zero vector that starts a translation will not do:
        # where nothing is added to it (rotary, relative, none), every norm on the way multiplies its
        # gradient by 1/sqrt(epsilon) = 1000.
        return self.embedding(jnp.where(before == START, EOS, before))

    def _softmax(self) -> Embedding:
        return self.softmax if self.model.tie_embeddings == 'none' else self.embedding

    def _logits(self, x: Float[Array, '*B D']) -> Float[Array, '*B V']:
        return self._softmax().logits(x)

    def encode(self, source: Tokens) -> Tokens:
        """The prompt as it is: `start` reads it."""
        return source

    def _read(self, prompt: Tokens, constants: Mapping[str, object], empty: object) -> object:
        """The state after all of the prompt but its last token, from the state `empty`."""
        rows, width = prompt.tokens.shape
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
