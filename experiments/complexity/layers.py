"""The layer types of Table 1 and the attention kernels, each as a function of its parameters and inputs.

They compute what the paper counts. Self-attention multiplies queries, keys and values, without the
projections, which cost 8·n·d² more. Recurrence is one layer of Elman cells: n·d² for its inputs and n·d² for
its states. A convolution is one product per tap. Heads are d_k = 64 wide, as in the paper. The input is one
row of one segment; a position sees both sides, as in the encoder, unless the layer is causal.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from transformer.config import Model
from transformer.nn import cells
from transformer.nn.kernels.kernel import AttentionInputs
from transformer.nn.kernels.table import self_attention

D_K = 64


@dataclasses.dataclass(frozen=True, eq=False)
class SizedLayer:
    """A layer of one size."""

    apply: Callable  # (arrays, segments [1 T]) -> outputs
    arrays: Any  # the shapes of its parameters and inputs
    length: int  # T


# Cached, so that a layer shared by Table 1 and the kernels is measured once.
@functools.cache
def attention(n: int, d: int, kernel: str, *, d_k: int = D_K, causal: bool = False, **options) -> SizedLayer:
    """Makes attention by a kernel of `model.attention`; `options` lack the prefix `attention_`."""
    named = {f'attention_{key}': value for key, value in options.items()}
    attend = self_attention(Model(attention=kernel, **named)).attend

    def apply(arrays, segments):
        heads = (array.reshape(1, n, -1, d_k) for array in arrays)
        return attend(AttentionInputs(*heads, segments, segments), causal=causal).reshape(1, n, d)

    return SizedLayer(apply, [_shape(1, n, d)] * 3, n)


def recurrent(n: int, d: int) -> SizedLayer:
    """Makes a layer of Elman cells that reads from left to right."""
    layer = cells.RecurrentLayer(Model(kind='recurrent', cell='rnn_tanh', d_model=d), d)
    read = functools.partial(layer.apply, initial=None, reverse=False, train=False)

    def apply(arrays, segments):
        params, x = arrays
        return read(params, x, segments.swapaxes(0, 1))[1]

    x, segments = _shape(n, 1, d), jax.ShapeDtypeStruct((n, 1), jnp.int32)
    initialize = functools.partial(layer.init, initial=None, reverse=False, train=False)
    return SizedLayer(apply, [jax.eval_shape(initialize, jax.random.key(0), x, segments), x], n)


def convolution(n: int, d: int, *, taps: int, dilation: int = 1, causal: bool = False) -> SizedLayer:
    """Makes a convolution centred on each position or, if causal, over it and the positions to its left."""
    reach = dilation * (taps - 1)
    padding = (reach, 0) if causal else (reach // 2, reach // 2)

    def apply(arrays, segments):
        del segments
        kernel, x = arrays
        return jax.lax.conv_general_dilated(
            x, kernel, (1,), [padding], rhs_dilation=(dilation,), dimension_numbers=('NWC', 'WIO', 'NWC')
        )

    return SizedLayer(apply, [_shape(taps, d, d), _shape(1, n, d)], n)


def recurrent_step(d: int) -> Callable[[Float[Array, 'T D'], Float[Array, 'T D']], Float[Array, 'T D']]:
    """Returns one step of Elman cells at all positions: `(inputs, states before) -> states after`."""
    kernels = random(recurrent(1, d).arrays)[0]['params']
    weights = cells.Weights(kernels['inputs'], kernels['bias'], kernels['recurrent'], None)

    def step(x, states):
        # Each position continues from the state of the previous one.
        carry = (jnp.concatenate([jnp.zeros_like(states[:1]), states[:-1]]),)
        (state,), _ = cells.advance('rnn_tanh', weights.recurrent, cells.project(weights, x), carry, None)
        return state

    return step


def random(shapes: Any) -> Any:
    """Draws normal arrays with variance 1 / width, which keeps recurrent states from saturating."""
    draw = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: jnp.asarray(draw.standard_normal(x.shape, np.float32) / x.shape[-1] ** 0.5), shapes
    )


def forward(layer: SizedLayer) -> Callable:
    """Returns the forward pass, which ignores the gradient."""
    return lambda arrays, segments, gradient: layer.apply(arrays, segments)


def both(layer: SizedLayer) -> Callable:
    """Returns both passes: the outputs, and the gradients of all arrays given the outputs' gradient."""

    def passes(arrays, segments, gradient):
        outputs, pull = jax.vjp(lambda arrays: layer.apply(arrays, segments), arrays)
        return outputs, pull(gradient)[0]

    return passes


PASSES = {'forward': forward, 'both': both}


def _shape(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


class Type(NamedTuple):
    """A layer type of Table 1, with the paper's entries; the path of a contiguous convolution is from §4."""

    name: str
    build: Callable[..., SizedLayer]  # (n, d) -> Layer, or (n, d, size) -> Layer with taps or neighbours
    complexity: str
    steps: str
    path: str
    exponents: dict[str, int]  # of each symbol in the complexity
    symbol: str = ''  # the symbol of the size
    sizes: tuple[int, ...] = ()  # the sizes measured, the usual one first


TAPS, DILATION, WINDOW = 3, 3, 64
_full = lambda n, d: attention(n, d, 'full')
_local = lambda n, d, r: attention(n, d, 'local', window=r)
_taps = lambda n, d, k: convolution(n, d, taps=k)
_dilated = lambda n, d, k: convolution(n, d, taps=k, dilation=DILATION)
TYPES = (
    Type('self-attention', _full, 'O(n²·d)', 'O(1)', 'O(1)', {'n': 2, 'd': 1}),
    Type('recurrent', recurrent, 'O(n·d²)', 'O(n)', 'O(n)', {'n': 1, 'd': 2}),
    Type('convolutional', _taps, 'O(k·n·d²)', 'O(1)', 'O(n/k)', {'k': 1, 'n': 1, 'd': 2}, 'k', (TAPS, 5, 9)),
    Type(
        'convolutional, dilated', _dilated, 'O(k·n·d²)', 'O(1)', 'O(log_k n)', {'k': 1, 'n': 1, 'd': 2},
        'k', (TAPS, 5, 9),
    ),
    Type(
        'self-attention, restricted', _local, 'O(r·n·d)', 'O(1)', 'O(n/r)', {'r': 1, 'n': 1, 'd': 1},
        'r', (WINDOW, 16, 32),
    ),
)  # fmt: skip


class KernelCosts(NamedTuple):
    """A kernel of `model.attention`, and the expected exponents of n in its costs."""

    name: str
    options: Callable[[int], dict[str, int]]  # by n
    flops: float
    memory: float


KERNELS = (
    KernelCosts('full', lambda n: {}, 2, 2),
    KernelCosts('local', lambda n: {'window': WINDOW}, 1, 1),
    KernelCosts('sparse', lambda n: {'stride': math.isqrt(n)}, 1.5, 1.5),
    KernelCosts('linear', lambda n: {'chunk': 128}, 1, 1),
    KernelCosts('chunked', lambda n: {'chunk': 128}, 2, 1),
)
