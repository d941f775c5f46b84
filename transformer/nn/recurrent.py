"""Recurrent encoders and decoders.

Translation without attention follows Sutskever et al. 2014: a segment of the target begins with the
encoder's state at the end of the source segment with the same number. Translation with attention follows
Bahdanau et al. 2015 (score `additive`) or Luong et al. 2015 (`dot`, `general`, `concat`).
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.config import Model
from transformer.nn import alignment, cells, matmul
from transformer.nn.alignment import Aligned, Alignment, AlignmentWeights
from transformer.nn.cache import choose_rows
from transformer.nn.cells import Carry, Factors, RecurrentLayer, SegmentDropout, Weights
from transformer.tokens import Tokens


class RecurrentMemory(NamedTuple):
    """The results of a recurrent encoder for a source."""

    outputs: Float[Array, 'B S D']
    segments: Int[Array, 'B S']
    carries: list[dict[str, Carry]]  # [S B U] after every position, per layer and direction


class RecurrentState(NamedTuple):
    """A decoder's state: each layer's carry and, with input feeding, the last attentional vector."""

    layers: list[Carry]
    fed: Float[Array, 'B D'] | None


class DecoderWeights(NamedTuple):
    """The parameters of a decoder's layers and of its attention, if any."""

    layers: list[Weights]
    alignment: AlignmentWeights | None


class Stepped(NamedTuple):
    """The results of a step: output, context, attention weights, and the input fed to the next step."""

    output: Float[Array, '*B D']
    context: Float[Array, '*B D'] | None
    attention: Float[Array, '*B S'] | None
    fed: Float[Array, '*B D'] | None


class EncoderLayer(nn.Module):
    """One layer that reads left to right, right to left (a reversed source), or half the width each way."""

    model: Model

    @nn.compact
    def __call__(
        self, x: Float[Array, 'S B D'], segments: Int[Array, 'S B'], *, train: bool
    ) -> tuple[dict[str, Carry], Float[Array, 'S B D']]:
        m, read = self.model, {}
        single = ('backward',) if m.reverse_source else ('forward',)
        names = ('forward', 'backward') if m.bidirectional else single
        for name in names:
            layer = RecurrentLayer(m, m.d_model // len(names), name=name)
            read[name] = layer(x, segments, None, reverse=name == 'backward', train=train)
        carries = {name: carries for name, (carries, _) in read.items()}
        return carries, jnp.concatenate([outputs for _, outputs in read.values()], axis=-1)


class RecurrentEncoder(nn.Module):
    """Dropout of embeddings, and a stack of N encoder layers, which need no positions."""

    model: Model
    dropout: SegmentDropout

    @nn.compact
    def __call__(self, x: Float[Array, 'B S D'], text: Tokens, *, train: bool) -> RecurrentMemory:
        x, segments, carries = x.swapaxes(0, 1), text.segments, []
        x = cells.drop(x, self.dropout(x, segments.T, train=train))
        for i in range(self.model.N):
            carry, y = EncoderLayer(self.model, name=f'layer_{i}')(x, segments.T, train=train)
            x = x + y if self.model.residual and i else y
            carries.append(carry)
        return RecurrentMemory(x.swapaxes(0, 1), segments, carries)


def last_carry(carries: dict[str, Carry], source: Int[Array, 'S B'], target: Int[Array, 'T B']) -> Carry:
    """Looks up the carry [T B D] at the end of the source segment of each target position."""
    same = source[None] == target[:, None]
    place = jnp.arange(source.shape[0])[None, :, None]
    ends = {
        'forward': jnp.max(jnp.where(same, place, 0), axis=1),
        'backward': jnp.min(jnp.where(same, place, source.shape[0] - 1), axis=1),
    }
    ends_of = [
        [jnp.take_along_axis(array, ends[name][:, :, None], axis=0) for array in carry]
        for name, carry in carries.items()
    ]
    return tuple(jnp.concatenate(parts, axis=-1) for parts in zip(*ends_of, strict=True))


class RecurrentDecoder(nn.Module):
    """Dropout of embeddings, and a stack of `depth` layers, which need no positions.

    With `cross` it continues an encoder's last carries and can attend to its outputs.
    The additive score compares the keys with the first layer's output before a step, and the context
    enters that layer alone (in Wu et al. 2016, who compare with this output, too, all layers). The other
    scores use the last layer's output after the step. With any score, tanh(W_c [c; h]) predicts the next
    piece.
    """

    model: Model
    depth: int
    cross: bool
    dropout: SegmentDropout

    def setup(self):
        m = self.model
        self.aligns = self.cross and m.alignment != 'none'
        self.looks_first = self.aligns and m.alignment == 'additive'
        self.feeds = self.aligns and m.input_feeding
        self.layers = [
            RecurrentLayer(m, m.d_model, i == 0 and (self.looks_first or self.feeds), name=f'layer_{i}')
            for i in range(self.depth)
        ]
        if self.aligns:
            self.cross_attention = Alignment(m)
        self.output_dropout = SegmentDropout(m.P_drop, m.variational_dropout)

    def _weights(self) -> DecoderWeights:
        aligned = self.cross_attention.weights() if self.aligns else None
        return DecoderWeights([layer.weights() for layer in self.layers], aligned)

    def _initial(self, memory: RecurrentMemory | None, segments: Int[Array, 'T B']) -> list[Carry | None]:
        """Computes each layer's carry at the start of a segment, for every position. None means zeros.

        The last layer continues the encoder's last layer, and so on down. Any layers that remain continue
        the encoder's first layer.
        """
        if not self.cross:
            return [None] * self.depth
        layers = [max(0, len(memory.carries) - self.depth + i) for i in range(self.depth)]
        carries = {i: last_carry(memory.carries[i], memory.segments.T, segments) for i in set(layers)}
        return [carries[i] for i in layers]

    def _project(self, memory: RecurrentMemory | None) -> Aligned | None:
        """Computes the attention's keys from the encoder's outputs, if there is attention."""
        return self.cross_attention.project(memory.outputs, memory.segments) if self.aligns else None

    def __call__(
        self, x: Float[Array, 'B T D'], text: Tokens, memory: RecurrentMemory | None, *, train: bool
    ) -> Float[Array, 'B T D']:
        m, x, rows = self.model, x.swapaxes(0, 1), text.segments.T
        x = cells.drop(x, self.dropout(x, rows, train=train))
        aligned, weights, initial = self._project(memory), self._weights(), self._initial(memory, rows)
        # The number of layers that need the attention's result at each step.
        inside = self.depth if self.feeds else 1 if self.looks_first else 0
        stepped = Stepped(x, None, None, None)
        if inside:
            factors = [layer.factors(x, rows, train=train) for layer in self.layers[:inside]]
            stepped = _read_rows(m, weights, aligned, x, rows, initial[:inside], factors)
        _, x = self._read(stepped.output, rows, initial, inside, train=train)
        if not self.aligns:
            return x.swapaxes(0, 1)
        x = self._attentional(weights.alignment, aligned, stepped._replace(output=x), rows)
        return cells.drop(x, self.output_dropout(x, rows, train=train)).swapaxes(0, 1)

    def _read(
        self,
        x: Float[Array, 'T B D'],
        segments: Int[Array, 'T B'],
        initial: list[Carry | None],
        first: int,
        *,
        train: bool,
    ) -> tuple[list[Carry], Float[Array, 'T B D']]:
        """Runs whole rows through the layers from `first` on. Returns their carries, and the last output."""
        carries = []
        for i, layer in list(enumerate(self.layers))[first:]:
            carry, y = layer(x, segments, initial[i], reverse=False, train=train)
            x = x + y if self.model.residual and i else y
            carries.append(carry)
        return carries, x

    def read_on(
        self, x: Float[Array, 'B T D'], text: Tokens, state: RecurrentState, *, train: bool
    ) -> tuple[Float[Array, 'B T D'], RecurrentState]:
        """Computes the vectors of rows that begin with a state, and the state at their ends."""
        x, rows = x.swapaxes(0, 1), text.segments.T
        x = cells.drop(x, self.dropout(x, rows, train=train))
        everywhere = lambda carry: jnp.broadcast_to(carry, (len(rows), *carry.shape))
        carries, x = self._read(x, rows, jax.tree.map(everywhere, state.layers), 0, train=train)
        return x.swapaxes(0, 1), state._replace(layers=jax.tree.map(lambda carry: carry[-1], carries))

    def _attentional(
        self, weights: AlignmentWeights, aligned: Aligned, stepped: Stepped, segments: Int[Array, 'T B']
    ) -> Float[Array, 'T B D']:
        """Computes the attentional vectors of all positions at once, unless the scan has computed them."""
        context, attention = stepped.context, stepped.attention
        if context is None:
            flat = lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:])
            unfold = lambda x: x.reshape(*segments.T.shape, -1).swapaxes(0, 1)
            looked = alignment.look_up(weights, aligned, flat(stepped.output), flat(segments))
            context, attention = map(unfold, looked)
        # Figures show it as one head.
        self.cross_attention.sow('intermediates', 'weights', attention.swapaxes(0, 1)[:, None])
        return alignment.attentional(weights, context, stepped.output) if stepped.fed is None else stepped.fed

    def start(
        self, memory: RecurrentMemory | None, rows: int, length: int
    ) -> tuple[Aligned | None, RecurrentState]:
        """Returns the constants of all steps, if there is attention, and the state before the first step."""
        del length
        m = self.model
        layers = [cells.empty_carry(m.cell, rows, m.d_model)] * self.depth
        if self.cross:
            initial = self._initial(memory, jnp.ones((1, rows), jnp.int32))
            layers = jax.tree.map(lambda x: x[0], initial)
        fed = jnp.zeros((rows, m.d_model), m.dtype) if self.feeds else None
        return self._project(memory), RecurrentState(layers, fed)

    def step(
        self, x: Float[Array, 'R D'], state: RecurrentState, aligned: Aligned | None
    ) -> tuple[Float[Array, 'R D'], RecurrentState]:
        """Runs one token of every hypothesis through all layers."""
        weights, factors = self._weights(), [Factors()] * self.depth
        projected, segments = cells.project(weights.layers[0], x), jnp.ones(x.shape[:1], jnp.int32)
        state, stepped = advance(self.model, weights, aligned, state, projected, segments, factors)
        if self.feeds:
            return stepped.fed, state
        if not self.aligns:
            return stepped.output, state
        return alignment.attentional(weights.alignment, stepped.context, stepped.output), state


def advance(
    model: Model,
    weights: DecoderWeights,
    aligned: Aligned | None,
    state: RecurrentState,
    projected: Float[Array, 'R G'],
    segments: Int[Array, 'R'],
    factors: list[Factors],
) -> tuple[RecurrentState, Stepped]:
    """Runs one step of a decoder, from the projected inputs of the first layer."""
    context = attention = None
    look_up = lambda query: alignment.look_up(weights.alignment, aligned, query, segments)
    if aligned is not None and model.alignment == 'additive':
        context, attention = look_up(state.layers[0][0])
        projected = projected + jnp.einsum('RD,DG->RG', context, weights.layers[0].fed)
    if state.fed is not None:
        projected = projected + jnp.einsum('RD,DG->RG', state.fed, weights.layers[0].fed)
    layers, output = [], None
    for i, (layer, carry, dropout) in enumerate(zip(weights.layers, state.layers, factors, strict=True)):
        gates = cells.project(layer, output) if i else projected
        carry, _ = cells.advance(model.cell, layer.recurrent, gates, carry, dropout.recurrent)
        layers.append(carry)
        y = cells.drop(carry[0].astype(projected.dtype), dropout.outputs)
        output = output + y if model.residual and i else y
    if aligned is not None and context is None:
        context, attention = look_up(output)
    fed = None if state.fed is None else alignment.attentional(weights.alignment, context, output)
    return RecurrentState(layers, fed), Stepped(output, context, attention, fed)


def _read_rows(
    model: Model,
    weights: DecoderWeights,
    aligned: Aligned,
    x: Float[Array, 'T B D'],
    segments: Int[Array, 'T B'],
    initial: list[Carry],
    factors: list[Factors],
) -> Stepped:
    """Runs whole rows through the decoder's first layers, which need the attention's result at each step."""
    # A scan sums the gradients of its constants step by step and in their type, so the type is float32.
    weights = weights._replace(layers=weights.layers[: len(initial)])
    constants = weights, aligned.keys, aligned.values
    exact = jax.tree.map(lambda constant: constant.astype(matmul.sum_type(constant)), constants)
    fed = jnp.zeros_like(x[0]) if model.input_feeding else None
    empty = RecurrentState(jax.tree.map(lambda x: jnp.zeros_like(x[0]), initial), fed)

    def read(state, inputs):
        projected, segments, begin, initial, factors = inputs
        state = choose_rows(begin, RecurrentState(initial, fed), state)
        weights, *attended = jax.tree.map(lambda constant: constant.astype(x.dtype), exact)
        attended = Aligned(*attended, aligned.segments)
        return advance(model, weights, attended, state, projected, segments, factors)

    projected = cells.project(weights.layers[0], x)
    inputs = projected, segments, cells.begins(segments, reverse=False), initial, factors
    return jax.lax.scan(read, empty, inputs)[1]


def make_pair(m: Model) -> tuple[RecurrentEncoder, RecurrentDecoder]:
    """Makes an encoder, and a decoder that continues its states and can attend to its outputs."""
    source, target = (_make_dropout(m, f'{side}_dropout') for side in ('source', 'target'))
    decoder = RecurrentDecoder(m, m.N_decoder, cross=True, dropout=target, name='decoder')
    return RecurrentEncoder(m, source, name='encoder'), decoder


def make_encoder(m: Model) -> RecurrentEncoder:
    """Makes an encoder alone."""
    return RecurrentEncoder(m, _make_dropout(m, 'dropout'), name='encoder')


def make_decoder(m: Model) -> RecurrentDecoder:
    """Makes a decoder alone, as a language model (Mikolov et al. 2010)."""
    return RecurrentDecoder(m, m.N, cross=False, dropout=_make_dropout(m, 'dropout'), name='decoder')


def _make_dropout(m: Model, name: str) -> SegmentDropout:
    return SegmentDropout(m.P_drop_embedding, m.variational_dropout, name=name)
