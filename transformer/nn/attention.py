"""Multi-head attention with free d_k and d_v (§3.2.2): projections around one of the kernels in kernels/."""

from typing import Literal

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.config import Model
from transformer.nn import initializers
from transformer.nn.kernels.full import FULL, over_heads
from transformer.nn.kernels.kernel import AttentionInputs, AttentionState, Kernel, Token
from transformer.nn.kernels.table import self_attention
from transformer.nn.layers import Dropout, Linear
from transformer.nn.positions import AttentionPositions
from transformer.tokens import Tokens


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (§3.2.2)."""

    model: Model
    kind: Literal['self', 'cross']

    def setup(self):
        m = self.model
        keys, values = m.h * m.d_k, m.h * m.d_v
        # The released code fuses the matrices of q, k and v in self-attention, and of k and v in
        # cross-attention. The fused matrix's fan-out sets the range of the initial values.
        fused_query = 2 * keys + values if self.kind == 'self' else keys
        fused_memory = 2 * keys + values if self.kind == 'self' else keys + values
        # T5's query is smaller in place of its products with keys.
        self.query = self._projection((m.h, m.d_k), fused_query, divisor=m.d_k**0.5)
        self.key = self._projection((m.h, m.d_k), fused_memory)
        self.value = self._projection((m.h, m.d_v), fused_memory)
        self.output = self._projection((m.d_model,), None, axes=2, residual=True)
        self.dropout = Dropout(m.P_drop_attention)
        if self.kind == 'self':
            self.positions = AttentionPositions(m)

    def _projection(
        self, features: tuple[int, ...], fused: int | None, axes: int = 1, **how: float | bool
    ) -> Linear:
        m = self.model
        kernel_init = initializers.kernel(m, fused, **how)
        return Linear(m, features, axes, use_bias=m.biases == 'all', kernel_init=kernel_init)

    def _query(self, x: Float[Array, 'B Q D']) -> Float[Array, 'B Q H C']:
        """Computes queries; kernels divide their products with keys by sqrt(d_k) (§3.2.1)."""
        query = self.query(x)
        return query * self.model.d_k**0.5 if self.model.attention_scale == 'none' else query

    def __call__(
        self,
        x: Float[Array, 'B T D'],
        text: Tokens,
        shared_bias: Float[Array, '#B H T T'] | None,
        *,
        causal: bool,
        train: bool,
    ) -> Float[Array, 'B T D']:
        """Computes self-attention over whole rows, within segments; adds the stack's bias to the logits."""
        segments, positions, length = text.segments, text.positions, x.shape[1]
        query = self._query(x)
        bias = self.positions.bias(query, positions, positions)
        if shared_bias is not None:
            bias = jnp.broadcast_to(shared_bias, (x.shape[0], *shared_bias.shape[1:]))
        query = self.positions.rotate(query, positions, length)
        key = self.positions.rotate(self.key(x), positions, length)
        kernel = self_attention(self.model)
        rows = AttentionInputs(query, key, self.value(x), segments, segments, bias)
        rows = self.prepare(kernel, rows, causal=causal, train=train)
        return self.output(kernel.attend(rows, causal=causal))

    def over_memory(
        self,
        x: Float[Array, 'B Q D'],
        segments: Int[Array, 'B Q'],
        key: Float[Array, 'B H C S'],
        value: Float[Array, 'B H S E'],
        memory_segments: Int[Array, 'B S'],
        *,
        train: bool,
    ) -> Float[Array, 'B Q D']:
        """Computes cross-attention to the keys and values from `project_memory`."""
        key, value = jnp.moveaxis(key, -1, 1), value.swapaxes(1, 2)
        rows = AttentionInputs(self._query(x), key, value, segments, memory_segments)
        rows = self.prepare(FULL, rows, causal=False, train=train)
        return self.output(FULL.attend(rows, causal=False))

    def step_over_memory(
        self,
        x: Float[Array, 'B W D'],
        key: Float[Array, 'B H C S'],
        value: Float[Array, 'B H S E'],
        memory_segments: Int[Array, 'B S'],
    ) -> Float[Array, 'B W D']:
        """Computes cross-attention in a step of W hypotheses per sentence, which is one segment."""
        return self.output(over_heads(self._query(x), key, value, (memory_segments > 0)[:, None, None]))

    def prepare(self, kernel: Kernel, rows: AttentionInputs, *, causal: bool, train: bool) -> AttentionInputs:
        """Adds dropout of the weights to the rows. Records the weights if `intermediates` is mutable."""
        if self.is_mutable_collection('intermediates'):
            self.sow('intermediates', 'weights', kernel.weights(rows, causal=causal))
        return rows._replace(drop=self.dropout.draw(train=train))

    def project_memory(
        self, memory: Float[Array, 'B S D']
    ) -> tuple[Float[Array, 'B H C S'], Float[Array, 'B H S E']]:
        """Computes keys and values of the encoder's output, in a cache's axis order."""
        return jnp.moveaxis(self.key(memory), 1, -1), self.value(memory).swapaxes(1, 2)

    def over_state(
        self,
        x: Float[Array, 'R 1 D'],
        state: AttentionState,
        position: Int[Array, 'R'],
        length: int,
        shared_bias: Float[Array, 'R H 1 L'] | None,
    ) -> tuple[Float[Array, 'R 1 D'], AttentionState]:
        """Computes self-attention of the token at `position`, and the state with this token added."""
        here, places = position[:, None], jnp.arange(length)
        query = self._query(x)
        bias = self.positions.bias(query, here, jnp.broadcast_to(places, (x.shape[0], length)))
        bias = bias if shared_bias is None else shared_bias
        query = self.positions.rotate(query, here, length)
        key = self.positions.rotate(self.key(x), here, length)
        token = Token(query, key, self.value(x), position, bias)
        heads, state = self_attention(self.model).attend_one(token, state)
        return self.output(heads), state
