"""Recurrent cells, and a layer of cells that reads rows of several segments.

Rows are time-major here, [T B ...], because a scan runs over the first axis. A layer multiplies all its
inputs at once, before the scan. Only products with the state are inside the scan.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.config import Model
from transformer.nn import matmul
from transformer.nn.cache import choose_rows
from transformer.nn.initializers import glorot_uniform
from transformer.nn.layers import Dropout, broadcast_like

# A cell's state: float32 arrays with last axis U. The first is the output.
Carry = tuple[Float[Array, '...'], ...]
# The input of each part of a recurrent kernel, keyed by the range of its gates, (first, stop).
Multiplied = dict[tuple[int, int], Float[Array, '*B U']]


class Cell(NamedTuple):
    """A recurrent cell.

    `advance` is `(gates, carry, previous [B U]) -> carry`. `gates(x, first, stop)` returns the gates `first`
    to `stop - 1`, each [B U]: the projected inputs plus the product of x and the gates' part of the recurrent
    kernel. `previous` is the previous output after dropout.
    """

    blocks: int  # gates of width U, so that G = blocks·U
    arrays: int  # in the carry
    advance: Callable


def _elman(activation, gates, carry, previous):
    """Computes h_t = activation(W x_t + U h_{t-1} + b) (Elman 1990)."""
    del carry
    (inner,) = gates(previous, 0, 1)
    return (activation(inner),)


def _lstm(gates, carry, previous):
    """Computes c_t = f∘c_{t-1} + i∘tanh(g) and h_t = o∘tanh(c_t) (Hochreiter and Schmidhuber 1997).

    The forget gate f is from Gers et al. 2000. The kernels hold the gates in the order i, f, g, o.
    """
    i, f, g, o = gates(previous, 0, 4)
    memory = jax.nn.sigmoid(f) * carry[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(memory), memory


def _gru(gates, carry, previous):
    """Computes h_t = (1 - z)∘h_{t-1} + z∘tanh(W x_t + U (r∘h_{t-1}) + b) (Bahdanau et al. 2015, A.1.1).

    The reset gate r is applied before the product, as in Cho et al. 2014; cuDNN applies it after. The
    kernels hold the gates in the order z, r, candidate.
    """
    update, reset = map(jax.nn.sigmoid, gates(previous, 0, 2))
    (candidate,) = gates(reset * previous, 2, 3)
    return ((1.0 - update) * carry[0] + update * jnp.tanh(candidate),)


CELLS = {
    'rnn_tanh': Cell(1, 1, functools.partial(_elman, jnp.tanh)),
    'rnn_relu': Cell(1, 1, functools.partial(_elman, jax.nn.relu)),
    'lstm': Cell(4, 2, _lstm),
    'gru': Cell(3, 1, _gru),
}


class Weights(NamedTuple):
    """The parameters of a layer. `fed` multiplies a second input, if there is one."""

    inputs: Float[Array, 'D G']
    bias: Float[Array, 'G']
    recurrent: Float[Array, 'U G']
    fed: Float[Array, 'D G'] | None


class Factors(NamedTuple):
    """Dropout factors for a layer's output and its recurrent state; None means no dropout."""

    outputs: Float[Array, '*B U'] | None = None
    recurrent: Float[Array, '*B U'] | None = None


def drop(x: Float[Array, '*B U'], factors: Float[Array, '*B U'] | None) -> Float[Array, '*B U']:
    """Multiplies x by dropout factors."""
    return x if factors is None else (x * factors).astype(x.dtype)


def project(weights: Weights, x: Float[Array, '*B D']) -> Float[Array, '*B G']:
    """Computes W x + b, the part of a cell's products that does not depend on the state."""
    products = matmul.product(x, weights.inputs)
    return products + broadcast_like(weights.bias, products)


def advance(
    cell: str,
    kernel: Float[Array, 'U G'],
    projected: Float[Array, 'B G'],
    carry: Carry,
    factors: Float[Array, 'B U'] | None,
) -> tuple[Carry, Multiplied]:
    """Runs one step of a cell. Returns the carry and the input of each part of the recurrent kernel."""
    multiplied, width = {}, kernel.shape[0]

    def gates(x, first, stop):
        columns = slice(first * width, stop * width)
        multiplied[first, stop] = x = x.astype(kernel.dtype)
        product = jnp.einsum('BU,UG->BG', x, kernel[:, columns], preferred_element_type=jnp.float32)
        return jnp.split(projected[:, columns] + product, stop - first, axis=-1)

    return CELLS[cell].advance(gates, carry, drop(carry[0], factors)), multiplied


class LayerInputs(NamedTuple):
    """The inputs of a layer."""

    projected: Float[Array, 'T B G']
    begin: Bool[Array, 'T B']
    initial: Carry | None  # the carry before a segment that begins here; None means zeros
    dropped: Float[Array, 'T B U'] | None  # dropout factors for the recurrent state


def _scan(
    cell: str, reverse: bool, kernel: Float[Array, 'U G'], row: LayerInputs
) -> tuple[Carry, Multiplied]:
    zeros = empty_carry(cell, row.begin.shape[1], kernel.shape[0])

    def read(carry, row):
        carry = choose_rows(row.begin, zeros if row.initial is None else row.initial, carry)
        carry, multiplied = advance(cell, kernel, row.projected, carry, row.dropped)
        return carry, (carry, multiplied)

    return jax.lax.scan(read, zeros, row, reverse=reverse)[1]


def read_rows(cell: str, reverse: bool, kernel: Float[Array, 'U G'], row: LayerInputs) -> Carry:
    """Computes the carry [T B U] after every position.

    Inside a scan, a kernel's gradient would be summed step by step: each step multiplies few rows and adds a
    whole matrix. So the kernel is constant in this scan. Its gradient comes from one product of all rows
    after the scan, whose value is not used.
    """
    scan = functools.partial(_scan, cell, reverse, jax.lax.stop_gradient(kernel))
    carries, backward, multiplied = jax.vjp(scan, jax.lax.stop_gradient(row), has_aux=True)
    width, parts = kernel.shape[0], []
    for (first, stop), x in sorted(multiplied.items()):
        parts.append(matmul.product(x, kernel[:, first * width : stop * width]))
    return _differentiable(carries, backward, row, jnp.concatenate(parts, axis=-1))


# Plain definition: `_scan`, with the gradient that JAX derives.
@jax.custom_vjp
def _differentiable(
    carries: Carry, backward: Callable, row: LayerInputs, products: Float[Array, 'T B G']
) -> Carry:
    """Returns `carries` unchanged, with gradients for `row` and `products`."""
    del backward, row, products
    return carries


def _forward(carries, backward, row, products):
    del row, products
    return carries, backward


def _backward(backward, cotangents):
    (row,) = backward(cotangents)
    # The products were added to the projected inputs, so both have the same gradient.
    return None, None, row, row.projected


_differentiable.defvjp(_forward, _backward)


def begins(segments: Int[Array, 'T B'], reverse: bool) -> Bool[Array, 'T B']:
    """Marks the first position of each segment that a scan reads: its last position if `reverse`."""
    other = segments[:-1] != segments[1:]
    edge = jnp.ones_like(segments[:1], bool)
    return jnp.concatenate([other, edge] if reverse else [edge, other])


class SegmentDropout(nn.Module):
    """Dropout factors, 0 or 1/(1 - rate). With `shared`, a segment shares one (Gal and Ghahramani 2016)."""

    rate: float
    shared: bool

    @nn.compact
    def __call__(
        self, like: Float[Array, 'T B D'], segments: Int[Array, 'T B'], *, train: bool
    ) -> Float[Array, 'T B D'] | None:
        if not train or self.rate == 0.0:
            return None
        # Rows first, because microbatches draw by rows.
        rows = jnp.ones(like.swapaxes(0, 1).shape, matmul.sum_type(like))
        factors = Dropout(self.rate)(rows, train=True).swapaxes(0, 1)
        if not self.shared:
            return factors
        place = jnp.arange(like.shape[0])[:, None]
        first = jax.lax.cummax(jnp.where(begins(segments, reverse=False), place, 0))
        return jnp.take_along_axis(factors, first[:, :, None], axis=0)


class RecurrentLayer(nn.Module):
    """One layer of cells in one direction.

    Input kernels are Glorot uniform and recurrent kernels orthogonal (Saxe et al. 2014), gate by gate.
    Biases are 0, but 1 for an LSTM's forget gate (Jozefowicz et al. 2015).
    """

    model: Model
    width: int  # U
    fed: bool = False  # whether there is a second input

    def setup(self):
        m, blocks = self.model, CELLS[self.model.cell].blocks

        def kernel(name, initialize, height):
            return self.param(name, _by_block(initialize, blocks), (height, blocks * self.width))

        self.input_kernel = kernel('inputs', glorot_uniform(), m.d_model)
        self.recurrent_kernel = kernel('recurrent', nn.initializers.orthogonal(), self.width)
        self.bias = self.param('bias', self._initial_bias, (blocks * self.width,))
        if self.fed:
            self.fed_kernel = kernel('fed', glorot_uniform(), m.d_model)
        self.dropout = SegmentDropout(m.P_drop, m.variational_dropout)
        self.recurrent_dropout = SegmentDropout(m.P_drop, shared=True)

    def _initial_bias(self, key: Array, shape: tuple[int]) -> Float[Array, 'G']:
        del key
        forget = (jnp.arange(shape[0]) // self.width == 1) & (self.model.cell == 'lstm')
        return forget.astype(jnp.float32)

    def weights(self) -> Weights:
        """Returns the parameters, cast to the model's dtype."""
        cast = lambda kernel: kernel.astype(self.model.dtype)
        fed = cast(self.fed_kernel) if self.fed else None
        return Weights(cast(self.input_kernel), cast(self.bias), cast(self.recurrent_kernel), fed)

    def factors(self, x: Float[Array, 'T B D'], segments: Int[Array, 'T B'], *, train: bool) -> Factors:
        """Draws the dropout factors of whole rows."""
        like, variational = x[..., : self.width], self.model.variational_dropout
        recurrent = self.recurrent_dropout(like, segments, train=train) if variational else None
        return Factors(self.dropout(like, segments, train=train), recurrent)

    def __call__(
        self,
        x: Float[Array, 'T B D'],
        segments: Int[Array, 'T B'],
        initial: Carry | None,
        *,
        reverse: bool,
        train: bool,
    ) -> tuple[Carry, Float[Array, 'T B U']]:
        """Computes all carries, and the outputs after dropout. Each segment starts from `initial`."""
        model, weights = self.model, self.weights()
        factors = self.factors(x, segments, train=train)
        row = LayerInputs(project(weights, x), begins(segments, reverse), initial, factors.recurrent)
        carries = read_rows(model.cell, reverse, weights.recurrent, row)
        return carries, drop(carries[0].astype(x.dtype), factors.outputs)


def empty_carry(cell: str, rows: int, width: int) -> Carry:
    """Returns the carry before the first position."""
    return (jnp.zeros((rows, width), jnp.float32),) * CELLS[cell].arrays


def _by_block(initialize: nn.initializers.Initializer, blocks: int) -> nn.initializers.Initializer:
    """Initialises each gate's kernel separately."""

    def initialize_all(key, shape):
        # Not by vmap: batched QR decompositions wait for threads that they occupy themselves, and deadlock
        # with few threads (CPU only).
        block = (shape[0], shape[1] // blocks)
        parts = [initialize(key, block) for key in jax.random.split(key, blocks)]
        return jnp.concatenate(parts, axis=1)

    return initialize_all
