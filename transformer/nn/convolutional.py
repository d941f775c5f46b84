"""Convolutional encoders and decoders.

The encoder-decoder follows Gehring et al. 2017, whose sections are cited here. A layer is a gated linear
unit over a window of k positions (§3.2), a step needs the last k - 1 inputs of each layer, and every
decoder layer attends to the encoder's output (§3.3). The language model is the decoder alone, as in
Dauphin et al. 2017.

Two things differ: there is no weight normalisation, and the encoder's gradients are not divided by the number
of attentions (§3.4), because Adam divides gradients by their size. All widths are d_model, but the linear
maps between embedding and convolution widths remain at both ends of both stacks, as in the released code.
"""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.config import Model
from transformer.nn import masks
from transformer.nn.cache import DecoderState, places
from transformer.nn.kernels.kernel import masked_softmax
from transformer.nn.layers import Dropout, Linear
from transformer.nn.positions import InputPositions
from transformer.tokens import Tokens

# With this factor, the sum of two terms of equal variance keeps that variance (§3.4).
HALF_VARIANCE = 0.5**0.5
# Standard deviation of fresh embeddings (§3.5). Larger ones would saturate gates and attention's weights.
EMBEDDING_SIZE = 0.1


class ConvolutionalMemory(NamedTuple):
    """The keys and values of a decoder's attention: the encoder's outputs z, and the sums z + e (§3.3)."""

    outputs: Float[Array, 'B S D']
    values: Float[Array, 'B S D']
    segments: Int[Array, 'B S']


def linear(model: Model, width: int, gain: float = 1.0) -> Linear:
    """Returns a linear map whose fresh output has `gain` times the variance of its input (§3.5)."""
    initial = nn.initializers.variance_scaling(gain, 'fan_in', 'normal')
    return Linear(model, (width,), kernel_init=initial)


def windows(
    x: Float[Array, 'B T D'], segments: Int[Array, 'B T'], width: int, *, causal: bool
) -> Float[Array, 'B T K']:
    """Joins the `width` vectors around each position, with zeros for positions outside its segment.

    A causal window ends at its position. Any other is centred on it, one longer on the right if even.
    """
    left = width - 1 if causal else (width - 1) // 2
    ends = left, width - 1 - left
    x, near = jnp.pad(x, ((0, 0), ends, (0, 0))), jnp.pad(segments, ((0, 0), ends))
    places = [slice(i, i + segments.shape[1]) for i in range(width)]
    inside = [(near[:, place] == segments)[:, :, None] for place in places]
    taps = [jnp.where(same, x[:, place], 0.0) for same, place in zip(inside, places, strict=True)]
    return jnp.concatenate(taps, axis=-1)


class Block(nn.Module):
    """sqrt(1/2) (x + A∘σ(B)) with [A; B] = W [x_{i-k/2}; ...; x_{i+k/2}] + b (§3.2)."""

    model: Model
    causal: bool

    def setup(self):
        m = self.model
        self.dropout = Dropout(m.P_drop)
        # A gated linear unit divides a small variance by 4, and dropout divides it by 1 - P_drop (§3.5).
        self.convolution = linear(m, 2 * m.d_model, 4.0 * (1.0 - m.P_drop))

    def _gated(self, x: Float[Array, '*B D'], window: Float[Array, '*B K']) -> Float[Array, '*B D']:
        return (x + nn.glu(self.convolution(window))) * HALF_VARIANCE

    def __call__(
        self, x: Float[Array, 'B T D'], segments: Int[Array, 'B T'], *, train: bool
    ) -> Float[Array, 'B T D']:
        dropped = self.dropout(x, train=train)
        return self._gated(x, windows(dropped, segments, self.model.kernel_width, causal=self.causal))

    def step(
        self, x: Float[Array, 'R D'], before: Float[Array, 'R K D']
    ) -> tuple[Float[Array, 'R D'], Float[Array, 'R K D']]:
        """Runs one position of every hypothesis from the k - 1 inputs before it."""
        window = jnp.concatenate([before, x[:, None]], axis=1)
        return self._gated(x, window.reshape(x.shape[0], -1)), window[:, 1:]


class CrossAttention(nn.Module):
    """c = sqrt(m) Σ_j softmax_j(d·z_j) (z_j + e_j) with d = W h + b + g, over m source positions (§3.3).

    The paper writes m sqrt(1/m): m undoes the mean, and the root keeps the variance of the sum (§3.4).
    The sums W h + b + g, z + e and h + c are not scaled, as in the paper's equations. Its authors' code
    scales these by sqrt(1/2), too.
    """

    model: Model

    def setup(self):
        self.query = linear(self.model, self.model.d_model)

    def __call__(
        self,
        x: Float[Array, 'B Q D'],
        embedded: Float[Array, 'B Q D'],
        segments: Int[Array, 'B Q'],
        memory: ConvolutionalMemory,
    ) -> Float[Array, 'B Q D']:
        """Computes c from the states h = x and the target embeddings g = `embedded`."""
        query = self.query(x) + embedded
        mask = masks.segment_mask(segments, memory.segments)[:, 0]
        logits = jnp.einsum('BQD,BSD->BQS', query, memory.outputs, preferred_element_type=jnp.float32)
        weights = masked_softmax(logits, mask)
        self.sow('intermediates', 'weights', weights[:, None])
        scaled = weights * jnp.sqrt(mask.sum(axis=-1, keepdims=True))
        return jnp.einsum('BQS,BSD->BQD', scaled.astype(x.dtype), memory.values)


class Inputs(nn.Module):
    """Scales embeddings to a size that suits convolutions, and adds positions (§3.1)."""

    model: Model

    def setup(self):
        self.positions = InputPositions(self.model, EMBEDDING_SIZE)
        self.dropout = Dropout(self.model.P_drop_embedding)

    def __call__(
        self, x: Float[Array, 'B T D'], positions: Int[Array, 'B T'], length: int, *, train: bool
    ) -> Float[Array, 'B T D']:
        return self.dropout(self.positions(x * EMBEDDING_SIZE, positions, length), train=train)


class ConvolutionalEncoder(nn.Module):
    """A stack of N blocks between two linear maps."""

    model: Model
    inputs: Inputs

    def setup(self):
        m = self.model
        self.inlet = linear(m, m.d_model, 1.0 - m.P_drop_embedding)
        self.layers = [Block(m, causal=False, name=f'layer_{i}') for i in range(m.N)]
        self.outlet = linear(m, m.d_model)

    def __call__(self, x: Float[Array, 'B S D'], text: Tokens, *, train: bool) -> ConvolutionalMemory:
        _, segments, positions = text
        embedded = self.inputs(x, positions, x.shape[1], train=train)
        x = self.inlet(embedded)
        for layer in self.layers:
            x = layer(x, segments, train=train)
        x = self.outlet(x)
        return ConvolutionalMemory(x, x + embedded, segments)


class DecoderLayer(nn.Module):
    """A causal block. With `cross`, attention to the source is added to its output (§3.3)."""

    model: Model
    cross: bool

    def setup(self):
        self.block = Block(self.model, causal=True)
        if self.cross:
            self.cross_attention = CrossAttention(self.model)

    def __call__(
        self,
        x: Float[Array, 'B T D'],
        embedded: Float[Array, 'B T D'],
        segments: Int[Array, 'B T'],
        memory: ConvolutionalMemory | None,
        *,
        train: bool,
    ) -> Float[Array, 'B T D']:
        x = self.block(x, segments, train=train)
        return x + self.cross_attention(x, embedded, segments, memory) if self.cross else x

    def step(
        self,
        x: Float[Array, 'R D'],
        before: Float[Array, 'R K D'],
        embedded: Float[Array, 'R D'],
        memory: ConvolutionalMemory | None,
    ) -> tuple[Float[Array, 'R D'], Float[Array, 'R K D']]:
        """Runs one position of R = B·W hypotheses, W per sentence of `memory`."""
        x, before = self.block.step(x, before)
        if not self.cross:
            return x, before
        # A sentence's hypotheses are queries of one attention, so the sentence's keys are not copied.
        together = lambda x: x.reshape(memory.segments.shape[0], -1, x.shape[-1])
        segments = jnp.ones(together(x).shape[:2], jnp.int32)
        attended = self.cross_attention(together(x), together(embedded), segments, memory)
        return x + attended.reshape(x.shape), before


class ConvolutionalDecoder(nn.Module):
    """A stack of `depth` layers between two linear maps. With `cross` they attend to an encoder's output."""

    model: Model
    depth: int
    cross: bool
    inputs: Inputs

    def setup(self):
        m = self.model
        self.inlet = linear(m, m.d_model, 1.0 - m.P_drop_embedding)
        self.layers = [DecoderLayer(m, self.cross, name=f'layer_{i}') for i in range(self.depth)]
        self.outlet = linear(m, m.d_model)
        self.dropout = Dropout(m.P_drop)

    def __call__(
        self, x: Float[Array, 'B T D'], text: Tokens, memory: ConvolutionalMemory | None, *, train: bool
    ) -> Float[Array, 'B T D']:
        _, segments, positions = text
        embedded = self.inputs(x, positions, x.shape[1], train=train)
        x = self.inlet(embedded)
        for layer in self.layers:
            x = layer(x, embedded, segments, memory, train=train)
        return self.dropout(self.outlet(x), train=train)

    def start(
        self, memory: ConvolutionalMemory | None, rows: int, length: int
    ) -> tuple[dict[str, object], DecoderState]:
        """Returns the steps' constants, and the state before the first, with zeros for earlier inputs."""
        m = self.model
        zeros = jnp.zeros((rows, m.kernel_width - 1, m.d_model), m.dtype)
        state = DecoderState(jnp.zeros(rows, jnp.int32), [zeros] * self.depth)
        return {'memory': memory, 'places': places(rows, length)}, state

    def step(
        self, x: Float[Array, 'R D'], state: DecoderState, constants: dict[str, object]
    ) -> tuple[Float[Array, 'R D'], DecoderState]:
        """Runs one token of every hypothesis through all layers."""
        length = constants['places'].shape[1]
        embedded = self.inputs(x[:, None], state.position[:, None], length, train=False)[:, 0]
        x, updated = self.inlet(embedded), []
        for layer, before in zip(self.layers, state.layers, strict=True):
            x, before = layer.step(x, before, embedded, constants['memory'])
            updated.append(before)
        return self.outlet(x), DecoderState(state.position + 1, updated)


def make_pair(m: Model) -> tuple[ConvolutionalEncoder, ConvolutionalDecoder]:
    """Makes an encoder, and a decoder whose every layer attends to its output (Gehring et al. 2017)."""
    source, target = (Inputs(m, name=f'{side}_inputs') for side in ('source', 'target'))
    decoder = ConvolutionalDecoder(m, m.N_decoder, cross=True, inputs=target, name='decoder')
    return ConvolutionalEncoder(m, source, name='encoder'), decoder


def make_encoder(m: Model) -> ConvolutionalEncoder:
    """Makes an encoder alone."""
    return ConvolutionalEncoder(m, Inputs(m, name='inputs'), name='encoder')


def make_decoder(m: Model) -> ConvolutionalDecoder:
    """Makes a decoder alone, as a language model (Dauphin et al. 2017)."""
    return ConvolutionalDecoder(m, m.N, cross=False, inputs=Inputs(m, name='inputs'), name='decoder')
