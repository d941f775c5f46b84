"""Attention of a recurrent decoder to the encoder's outputs (Bahdanau et al. 2015; Luong et al. 2015)."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.config import Model
from transformer.nn import masks, matmul
from transformer.nn.initializers import glorot_uniform
from transformer.nn.kernels.kernel import LOWEST


class Aligned(NamedTuple):
    """The encoder's outputs for a decoder's attention: keys (computed once), values and segments."""

    keys: Float[Array, 'B S D']
    values: Float[Array, 'B S D']
    segments: Int[Array, 'B S']


class AlignmentWeights(NamedTuple):
    """W_a and v_a (additive and concat scores only), and W_c of the attentional vector."""

    query: Float[Array, 'D D'] | None
    vector: Float[Array, 'D'] | None
    combine: Float[Array, 'C D']


def scores(
    weights: AlignmentWeights, query: Float[Array, 'B Q D'], keys: Float[Array, 'B S D']
) -> Float[Array, 'B Q S']:
    """Computes v^T tanh(W_a s + U_a h) (additive, concat), s^T W_a h (general) or s^T h (dot)."""
    if weights.vector is None:
        return jnp.einsum('BQD,BSD->BQS', query, keys, preferred_element_type=jnp.float32)
    projected = matmul.product(query, weights.query)
    inner = jnp.tanh(projected[:, :, None] + keys[:, None])
    return jnp.einsum('BQSD,D->BQS', inner, weights.vector, preferred_element_type=jnp.float32)


def look_up(
    weights: AlignmentWeights, aligned: Aligned, query: Float[Array, 'R D'], segments: Int[Array, 'R']
) -> tuple[Float[Array, 'R D'], Float[Array, 'R S']]:
    """Computes the contexts and attention weights of R = B·Q queries, Q per row of `aligned`.

    A sentence's hypotheses are queries of one attention, so the sentence's keys are not copied.
    """
    rows = aligned.segments.shape[0]
    together = query.astype(aligned.keys.dtype).reshape(rows, -1, query.shape[-1])
    logits = scores(weights, together, aligned.keys)
    mask = masks.segment_mask(segments.reshape(rows, -1), aligned.segments)[:, 0]
    attention = jax.nn.softmax(jnp.where(mask, logits, LOWEST), axis=-1)
    context = jnp.einsum('BQS,BSD->BQD', attention.astype(aligned.values.dtype), aligned.values)
    return context.reshape(-1, context.shape[-1]), attention.reshape(-1, attention.shape[-1])


def attentional(
    weights: AlignmentWeights, context: Float[Array, '*B D'], state: Float[Array, '*B D']
) -> Float[Array, '*B D']:
    """Computes tanh(W_c [c; h]), which predicts the next piece (Luong et al. 2015, eq. 5)."""
    both = jnp.concatenate([context, state], axis=-1)
    return jnp.tanh(matmul.product(both, weights.combine))


class Alignment(nn.Module):
    """The parameters of the score and of the attentional vector."""

    model: Model

    def setup(self):
        d = self.model.d_model
        if self.model.alignment != 'dot':
            self.memory_kernel = self.param('memory', glorot_uniform(), (d, d))
        if self.model.alignment in ('additive', 'concat'):
            self.query_kernel = self.param('query', glorot_uniform(), (d, d))
            self.score_vector = self.param('vector', nn.initializers.normal(d**-0.5), (d,))
        self.combine_kernel = self.param('combine', glorot_uniform(), (2 * d, d))

    def weights(self) -> AlignmentWeights:
        """Returns the parameters, cast to the model's dtype."""
        cast = lambda kernel: kernel.astype(self.model.dtype)
        has_vector = self.model.alignment in ('additive', 'concat')
        query, vector = (self.query_kernel, self.score_vector) if has_vector else (None, None)
        return AlignmentWeights(*jax.tree.map(cast, (query, vector, self.combine_kernel)))

    def project(self, outputs: Float[Array, 'B S D'], segments: Int[Array, 'B S']) -> Aligned:
        """Computes the keys of the encoder's outputs."""
        if self.model.alignment == 'dot':
            return Aligned(outputs, outputs, segments)
        kernel = self.memory_kernel.astype(outputs.dtype)
        return Aligned(matmul.product(outputs, kernel), outputs, segments)
