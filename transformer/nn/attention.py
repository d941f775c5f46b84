"""Multi-head attention with free d_k and d_v (§3.2.2); kernels.py has the attention itself."""

from typing import Literal

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.config import Model
from transformer.nn import kernels
from transformer.nn.kernels import State
from transformer.nn.layers import Dropout, glorot_uniform
from transformer.nn.positions import AttentionPositions


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (§3.2.2)."""

    model: Model
    kind: Literal['self', 'cross']

    def setup(self):
        m = self.model
        keys, values = m.h * m.d_k, m.h * m.d_v
        # The released code has one fused kernel for q, k and v of self-attention, and one for k and v of
        # cross-attention. The fan-out of the fused kernel sets the range of the initial values.
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

    def _weigh(self, train: bool) -> kernels.Weigh:
        """The dropout of attention weights, which also keeps them for figures."""

        def weigh(weights):
            self.sow('intermediates', 'weights', weights)
            return self.dropout(weights, train=train)

        return weigh

    def over_itself(
        self,
        x: Float[Array, 'B T D'],
        segments: Int[Array, 'B T'],
        positions: Int[Array, 'B T'],
        *,
        causal: bool,
        train: bool,
    ) -> Float[Array, 'B T D']:
        """Self-attention of whole rows, within their segments."""
        length = x.shape[1]
        query = self.query(x)
        bias = self.positions.bias(query, positions, positions)
        query = self.positions.rotate(query, positions, length)
        key = self.positions.rotate(self.key(x), positions, length)
        heads = kernels.FULL.attend(
            query, key, self.value(x), segments, segments, bias, self._weigh(train), causal=causal
        )
        return self.output(heads)

    def over_memory(
        self,
        x: Float[Array, 'B Q D'],
        segments: Int[Array, 'B Q'],
        memory: State,
        memory_segments: Int[Array, 'B S'],
        *,
        train: bool,
    ) -> Float[Array, 'B Q D']:
        """Cross-attention to the keys and values of `project_memory`."""
        key, value = memory['key'], memory['value']
        heads = kernels.FULL.attend(
            self.query(x), key, value, segments, memory_segments, None, self._weigh(train), causal=False
        )
        return self.output(heads)

    def project_memory(self, memory: Float[Array, 'B S D']) -> State:
        """Keys [B S H C] and values [B S H E] of the encoder's output."""
        return {'key': self.key(memory), 'value': self.value(memory)}

    def empty(self, rows: int, length: int) -> State:
        """The state of self-attention before the first of `length` steps."""
        return kernels.FULL.empty(self.model, rows, length)

    def over_state(
        self, x: Float[Array, 'B 1 D'], state: State, position: Int[Array, 'B'], places: Int[Array, 'L']
    ) -> tuple[Float[Array, 'B 1 D'], State]:
        """Self-attention of the token at `position` to itself and all before it.

        Args:
          places: 0 to L - 1, the positions that the state has room for.

        Returns:
          The output, and the state with the token in it.
        """
        length, here = places.shape[0], position[:, None]
        query = self.query(x)
        bias = self.positions.bias(query, here, jnp.broadcast_to(places, (x.shape[0], length)))
        query = self.positions.rotate(query, here, length)
        key = self.positions.rotate(self.key(x), here, length)
        heads, state = kernels.FULL.attend_one(
            query, key, self.value(x), state, position, bias, self._weigh(train=False)
        )
        return self.output(heads), state
