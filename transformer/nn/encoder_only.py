"""The Transformer's encoder alone, which predicts hidden pieces of a text (BERT, Devlin et al. 2019)."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from transformer.nn import matmul
from transformer.nn.layers import Dropout, Embedding, Norm, glorot_uniform
from transformer.nn.positions import InputPositions
from transformer.nn.stacks import Stack
from transformer.nn.text_models import Pieces
from transformer.tokens import Batch

exact_gelu = functools.partial(jax.nn.gelu, approximate=False)


class EncoderOnly(Pieces):
    """Every piece sees all pieces of its segment.

    The softmax reads Norm(activation(W x)) of the encoder's output x: BERT's head for masked words, here
    without a bias of the logits, as in all models (§3.4).
    """

    FIELDS = ('text',)

    def setup(self):
        m = self.model
        self.embedding = Embedding(m)
        if m.tie_embeddings == 'none':
            self.softmax = Embedding(m)
        self.positions = InputPositions(m)
        self.dropout = Dropout(m.P_drop_embedding)
        self.encoder = Stack(m, m.N, causal=False)
        self.head = nn.Dense(
            m.d_model,
            dtype=jnp.dtype(m.dtype),
            kernel_init=glorot_uniform(),
            dot_general=matmul.dot_general,
        )
        self.activate = jax.nn.relu if m.activation == 'relu' else exact_gelu
        self.head_norm = Norm(m)

    def outputs(self, batch: Batch, *, train: bool = False) -> Float[Array, 'B S D']:
        """The encoder's output for every piece."""
        tokens, segments, positions = batch['text']
        x = self.positions(self.embedding(tokens), positions, tokens.shape[1])
        return self.encoder(self.dropout(x, train=train), segments, positions, train=train)

    def vectors(self, batch: Batch, *, train: bool) -> Float[Array, 'B T D']:
        """The vectors that the softmax reads: of every piece, or of those at the batch's `places`."""
        x = self.outputs(batch, train=train)
        if 'places' in batch:
            x = jnp.take_along_axis(x, batch['places'][..., None], axis=1)
        return self.head_norm(self.activate(self.head(x)))

    def _softmax(self) -> Embedding:
        return self.softmax if self.model.tie_embeddings == 'none' else self.embedding
