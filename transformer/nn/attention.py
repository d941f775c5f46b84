"""Scaled dot-product and multi-head attention with free d_k and d_v (§3.2)."""

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.config import Model
from transformer.nn import masks
from transformer.nn.layers import Dropout, glorot_uniform
from transformer.nn.positions import AttentionPositions

Cache = dict[str, Array]


def attention_weights(
    query: Float[Array, 'B Q H C'],
    key: Float[Array, 'B K H C'],
    mask: Bool[Array, '#B 1 #Q K'],
    bias: Float[Array, 'B H Q K'] | None = None,
) -> Float[Array, 'B H Q K']:
    """softmax((QK^T + bias) / sqrt(d_k)), in float32 (§3.2.1).

    A query with nothing to attend to (padding) gets uniform weights; its output is never used.
    """
    logits = jnp.einsum('BQHC,BKHC->BHQK', query, key, preferred_element_type=jnp.float32)
    if bias is not None:
        logits = logits + bias
    logits = logits * query.shape[-1] ** -0.5
    return jax.nn.softmax(jnp.where(mask, logits, jnp.finfo(jnp.float32).min), axis=-1)


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (§3.2.2)."""

    model: Model
    kind: Literal['self', 'cross']

    def setup(self):
        m = self.model
        keys, values = m.h * m.d_k, m.h * m.d_v
        # The released code multiplies by one matrix for q, k and v of self-attention and by one for
        # k and v of cross-attention; its fan-out sets the range that their kernels start in.
        fused_query = 2 * keys + values if self.kind == 'self' else keys
        fused_memory = 2 * keys + values if self.kind == 'self' else keys + values
        self.query = self._projection(m.d_k, fused_query)
        self.key = self._projection(m.d_k, fused_memory)
        self.value = self._projection(m.d_v, fused_memory)
        self.output = nn.DenseGeneral(
            m.d_model,
            axis=(-2, -1),
            use_bias=m.biases == 'all',
            dtype=jnp.dtype(m.dtype),
            kernel_init=glorot_uniform(),
        )
        self.dropout = Dropout(m.P_drop_attention)
        if self.kind == 'self':
            self.positions = AttentionPositions(m)

    def _projection(self, width: int, fused: int) -> nn.DenseGeneral:
        m = self.model
        return nn.DenseGeneral(
            (m.h, width),
            use_bias=m.biases == 'all',
            dtype=jnp.dtype(m.dtype),
            kernel_init=glorot_uniform(fused if m.init == 't2t' else None),
        )

    def _attend(self, query, key, value, mask, bias, train):
        weights = attention_weights(query, key, mask, bias)
        self.sow('intermediates', 'weights', weights)
        weights = self.dropout(weights, train=train).astype(value.dtype)
        return self.output(jnp.einsum('BHQK,BKHE->BQHE', weights, value))

    def over_itself(
        self,
        x: Float[Array, 'B T D'],
        mask: Bool[Array, '#B 1 T T'],
        positions: Int[Array, 'B T'],
        *,
        train: bool,
    ) -> Float[Array, 'B T D']:
        """Self-attention of a whole row."""
        length = x.shape[1]
        query = self.query(x)
        bias = self.positions.bias(query, positions, positions)
        query = self.positions.rotate(query, positions, length)
        key = self.positions.rotate(self.key(x), positions, length)
        return self._attend(query, key, self.value(x), mask, bias, train)

    def over_memory(
        self,
        x: Float[Array, 'B Q D'],
        memory: Cache,
        mask: Bool[Array, 'B 1 #Q S'],
        *,
        train: bool,
    ) -> Float[Array, 'B Q D']:
        """Cross-attention to the keys and values of `project_memory`."""
        return self._attend(self.query(x), memory['key'], memory['value'], mask, None, train)

    def project_memory(self, memory: Float[Array, 'B S D']) -> Cache:
        """Keys [B S H C] and values [B S H E] of the encoder's output."""
        return {'key': self.key(memory), 'value': self.value(memory)}

    def empty_cache(self, rows: int, length: int) -> Cache:
        """Room for the keys and values of `length` steps."""
        m, dtype = self.model, jnp.dtype(self.model.dtype)
        return {
            'key': jnp.zeros((rows, length, m.h, m.d_k), dtype),
            'value': jnp.zeros((rows, length, m.h, m.d_v), dtype),
        }

    def over_cache(
        self, x: Float[Array, 'B 1 D'], cache: Cache, position: Int[Array, 'B']
    ) -> tuple[Float[Array, 'B 1 D'], Cache]:
        """Self-attention of the token at `position` to all before it; the cache with it added."""
        rows, length = cache['key'].shape[:2]
        query, here = self.query(x), position[:, None]
        everywhere = jnp.broadcast_to(jnp.arange(length), (rows, length))
        bias = self.positions.bias(query, here, everywhere)
        query = self.positions.rotate(query, here, length)
        key = self.positions.rotate(self.key(x), here, length)
        row = jnp.arange(rows)
        cache = {
            'key': cache['key'].at[row, position].set(key[:, 0]),
            'value': cache['value'].at[row, position].set(self.value(x)[:, 0]),
        }
        mask = masks.prefix_mask(position, length)
        return self._attend(query, cache['key'], cache['value'], mask, bias, False), cache
