"""Models that write text: an encoder and a decoder, or a decoder alone, of any kind of layers.

Each kind has an encoder and a decoder, which read embeddings x instead of the pieces of a text:

    encoder(x [B S D], text, train) -> memory                      with `outputs` [B S D] and `segments`
    decoder(x [B T D], text, memory, train) -> vectors             whole rows
    decoder.start(memory, rows, length) -> (constants, state)      before the first of `length` tokens
    decoder.step(x [R D], state, constants) -> (vectors, state)    one token of every row
    decoder.read_on(x [B T D], text, state, train) -> (vectors, state)     rows after a state (recurrent only)
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8

from transformer.config import Model
from transformer.nn import matmul
from transformer.nn.cache import choose_rows
from transformer.nn.encoders import ImageEncoder
from transformer.nn.layers import Embedding, Softmax
from transformer.tokens import EOS, START, Batch, Tokens


def shift_right(tokens: Int[Array, 'B T'], segments: Int[Array, 'B T']) -> Int[Array, 'B T']:
    """Returns each position's previous token in the same segment, or `START` if there is none."""
    before = jnp.pad(tokens, ((0, 0), (1, 0)))[:, :-1]
    same = segments == jnp.pad(segments, ((0, 0), (1, 0)))[:, :-1]
    return jnp.where(same, before, START)


class EncoderDecoder(nn.Module):
    """A model that writes a target for a source (§3). `make_pair` makes the encoder and the decoder."""

    FIELDS: ClassVar[tuple[str, ...]] = ('source', 'target')
    model: Model
    make_pair: Callable[[Model], tuple[Callable, Callable]]

    def setup(self):
        m = self.model
        if m.tie_embeddings in ('all', 'inputs'):
            self.source_embedding = self.target_embedding = Embedding(m, name='embedding')
        else:
            self.source_embedding, self.target_embedding = Embedding(m), Embedding(m)
        self.encoder, self.decoder = self.make_pair(m)
        self.logits = Softmax(m, self.target_embedding)
        nn.share_scope(self, self.logits)

    def __call__(self, batch: Batch, *, train: bool) -> Float[Array, 'B T V']:
        """Returns the logits of every target token."""
        return matmul.logits(*self.factors(batch, train=train))

    def factors(self, batch: Batch, *, train: bool) -> tuple[Float[Array, 'B T _'], Float[Array, 'V _']]:
        """Returns the vectors and the matrix whose product is the logits."""
        source, target = batch['source'], batch['target']
        memory = self.encoder(self.source_embedding(source.tokens), source, train=train)
        x = self.target_embedding(shift_right(target.tokens, target.segments))
        return self.logits.factors(self.decoder(x, target, memory, train=train))

    def encode(self, source: Tokens) -> object:
        """Computes the encoder's output."""
        return self.encoder(self.source_embedding(source.tokens), source, train=False)

    def start(self, memory: object, max_len: int) -> tuple[object, object]:
        """Prepares the decoder for its first token, with room for `max_len` tokens."""
        return self.decoder.start(memory, memory.segments.shape[0], max_len)

    def step(
        self, constants: object, state: object, tokens: Int[Array, 'R']
    ) -> tuple[Float[Array, 'R V'], object]:
        """Returns the logits of the token that follows `tokens`, and the state after them."""
        x, state = self.decoder.step(self.target_embedding(tokens), state, constants)
        return self.logits(x), state


class ImageWriter(nn.Module):
    """A model that writes a text for an image, from an encoder of its patches (Vinyals et al. 2015).

    Attributes:
      make_image: makes the image's encoder.
      make_pair: makes the decoder, beside an encoder that is not used.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ('text',)
    model: Model
    make_image: Callable[[], ImageEncoder]
    make_pair: Callable[[Model], tuple[Callable, Callable]]

    def setup(self):
        self.image = self.make_image()
        self.embedding = Embedding(self.model)
        _, self.decoder = self.make_pair(self.model)
        self.logits = Softmax(self.model, self.embedding)
        nn.share_scope(self, self.logits)

    def __call__(self, batch: Batch, *, train: bool) -> Float[Array, 'B T V']:
        """Returns the logits of every token."""
        return matmul.logits(*self.factors(batch, train=train))

    def factors(self, batch: Batch, *, train: bool) -> tuple[Float[Array, 'B T _'], Float[Array, 'V _']]:
        """Returns the vectors and the matrix whose product is the logits."""
        text = batch['text']
        memory = self.image.encoder(*self.image.embed(batch['image']), train=train)
        x = self.embedding(shift_right(text.tokens, text.segments))
        return self.logits.factors(self.decoder(x, text, memory, train=train))

    def encode(self, source: UInt8[Array, 'B h w c']) -> object:
        """Computes the memory of each image."""
        return self.image.encoder(*self.image.embed(source[:, None]), train=False)

    def start(self, memory: object, max_len: int) -> tuple[object, object]:
        """Prepares the decoder for its first token, with room for `max_len` tokens."""
        return self.decoder.start(memory, memory.segments.shape[0], max_len)

    def step(
        self, constants: object, state: object, tokens: Int[Array, 'R']
    ) -> tuple[Float[Array, 'R V'], object]:
        """Returns the logits of the token that follows `tokens`, and the state after them."""
        x, state = self.decoder.step(self.embedding(tokens), state, constants)
        return self.logits(x), state


class PromptedState(NamedTuple):
    """The state after a text. `pending` is the text's last token, not yet read."""

    pending: Int[Array, 'R']
    decoder: object


class LanguageModel(nn.Module):
    """A model that predicts each piece from earlier ones, and continues prompts (Radford et al. 2018)."""

    FIELDS: ClassVar[tuple[str, ...]] = ('text',)
    model: Model
    make_decoder: Callable[[Model], Callable]

    def setup(self):
        self.embedding = Embedding(self.model)
        self.decoder = self.make_decoder(self.model)
        self.logits = Softmax(self.model, self.embedding)
        nn.share_scope(self, self.logits)

    def _embed(self, before: Int[Array, '*B']) -> Float[Array, '*B D']:
        # A text begins with EOS, as if after another text. The zero vector that starts a translation would
        # not do: if no position is added to it (rotary, relative, none), every norm multiplies its gradient
        # by 1/sqrt(epsilon) = 1000.
        return self.embedding(jnp.where(before == START, EOS, before))

    def __call__(self, batch: Batch, *, train: bool) -> Float[Array, 'B T V']:
        """Returns the logits of every token."""
        return matmul.logits(*self.factors(batch, train=train))

    def factors(self, batch: Batch, *, train: bool) -> tuple[Float[Array, 'B T _'], Float[Array, 'V _']]:
        """Returns the vectors and the matrix whose product is the logits."""
        text = batch['text']
        x = self._embed(shift_right(text.tokens, text.segments))
        return self.logits.factors(self.decoder(x, text, None, train=train))

    def read_on(
        self, batch: Batch, *, train: bool
    ) -> tuple[tuple[Float[Array, 'B T _'], Float[Array, 'V _']], PromptedState]:
        """Computes `factors` of rows that continue earlier rows, and the state after them.

        Each row begins with the state of the batch's `carried`, but one at position 0 of its segment with the
        empty state.
        """
        text = batch['text']
        state = choose_rows(text.positions[:, 0] > 0, batch['carried'], self.empty(len(text.tokens)))
        before = shift_right(text.tokens, text.segments).at[:, 0].set(state.pending)
        x, decoder = self.decoder.read_on(self._embed(before), text, state.decoder, train=train)
        return self.logits.factors(x), PromptedState(text.tokens[:, -1], decoder)

    def empty(self, rows: int) -> PromptedState:
        """Returns the state of rows that continue no others. Their last token is `START`."""
        return PromptedState(jnp.full(rows, START, jnp.int32), self.decoder.start(None, rows, 1)[1])

    def encode(self, source: Tokens) -> Tokens:
        """Returns the prompt unchanged: `start` reads it."""
        return source

    def start(self, memory: Tokens, max_len: int) -> tuple[object, PromptedState]:
        """Reads each prompt, one segment at the beginning of its row, except for its last token."""
        rows, width = memory.tokens.shape
        constants, decoder = self.decoder.start(None, rows, width + max_len)
        lengths = jnp.sum(memory.segments > 0, axis=1)
        # A loop cannot call a bound module, so it gets the module and the parameters separately.
        module, variables = self.unbind()

        def read(place, state):
            _, after = module.apply(variables, constants, state, before[:, place], method='step')
            return choose_rows(place < lengths, after, state)

        empty = PromptedState(jnp.full(rows, START, jnp.int32), decoder)
        before = shift_right(memory.tokens, memory.segments)
        state = jax.lax.fori_loop(0, jnp.max(lengths), read, empty)
        last = jnp.maximum(lengths - 1, 0)[:, None]
        pending = jnp.take_along_axis(memory.tokens, last, axis=1)[:, 0]
        return constants, state._replace(pending=pending)

    def step(
        self, constants: object, state: PromptedState, tokens: Int[Array, 'R']
    ) -> tuple[Float[Array, 'R V'], PromptedState]:
        """Returns the logits after `tokens`, and the next state. `START` means the prompt's last token."""
        tokens = jnp.where(tokens == START, state.pending, tokens)
        x, decoder = self.decoder.step(self._embed(tokens), state.decoder, constants)
        return self.logits(x), PromptedState(state.pending, decoder)
