"""The Transformer's encoder alone, which predicts hidden pieces of a text (BERT, Devlin et al. 2019)."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from transformer.nn.layers import ACTIVATIONS, Dropout, Norm, linear
from transformer.nn.positions import InputPositions
from transformer.nn.stacks import Stack
from transformer.nn.text_models import Pieces
from transformer.tokens import Batch


class EncoderOnly(Pieces):
    """Every piece attends to all pieces of its segment.

    The softmax reads Norm(activation(W x + b)) of the encoder's output x. With `model.softmax_bias` this is
    BERT's head for masked words.
    """

    def setup(self):
        super().setup()
        m = self.model
        self.positions = InputPositions(m)
        self.dropout = Dropout(m.P_drop_embedding)
        self.encoder = Stack(m, m.N, causal=False)
        self.head = linear(m, m.d_model)
        self.head_norm = Norm(m)

    def outputs(self, batch: Batch, *, train: bool = False) -> Float[Array, 'B S D']:
        """The encoder's output for every piece."""
        tokens, segments, positions = batch['text']
        x = self.positions(self.embedding(tokens), positions, tokens.shape[1])
        return self.encoder(self.dropout(x, train=train), segments, positions, None, train=train)

    def vectors(self, batch: Batch, *, train: bool) -> Float[Array, 'B T D']:
        """The vectors that the softmax reads, at every piece or only at the batch's `places`."""
        x = self.outputs(batch, train=train)
        if 'places' in batch:
            x = jnp.take_along_axis(x, batch['places'][..., None], axis=1)
        # With any other activation (swiglu), the head uses gelu.
        activate = ACTIVATIONS.get(self.model.activation, ACTIVATIONS['gelu'])
        return self.head_norm(activate(self.head(x)))
