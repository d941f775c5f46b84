"""Feed-forward layers, dropout, normalisation and embeddings (§3.1, §3.3, §3.4)."""

import functools
import math
from collections.abc import Callable
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.config import Model
from transformer.nn import initializers, matmul
from transformer.nn.kernels.kernel import KEEP_ALL
from transformer.tokens import PAD


class Linear(nn.Module):
    """A linear map of the last axes of x, in the model's dtype.

    Attributes:
      features: the axes that take the place of the last axes of x.
      axes: the number of axes of x that are mapped.
      kernel_init: initialises the kernel as a matrix, if not as the model does.
    """

    model: Model
    features: tuple[int, ...]
    axes: int = 1
    use_bias: bool = True
    kernel_init: nn.initializers.Initializer | None = None

    @nn.compact
    def __call__(self, x: Float[Array, '*B']) -> Float[Array, '*F']:
        mapped = x.shape[-self.axes :]
        matrix = math.prod(mapped), math.prod(self.features)
        kernel_init = self.kernel_init or initializers.kernel(self.model)
        initialize = lambda key: kernel_init(key, matrix).reshape(*mapped, *self.features)
        kernel = self.param('kernel', initialize)
        bias = self.param('bias', nn.initializers.zeros, self.features) if self.use_bias else None
        arrays = jax.tree.map(lambda array: array.astype(self.model.dtype), (x, kernel, bias))
        return matmul.affine(*arrays, self.axes)


def linear(model: Model, width: int, *, use_bias: bool = True) -> Linear:
    """Returns a linear map of the last axis."""
    return Linear(model, (width,), use_bias=use_bias)


def broadcast_like(x: Float[Array, '...'], y: Float[Array, '...']) -> Float[Array, '...']:
    """Broadcasts x to y's shape, then casts it to y's type: float32 sums the gradients of the copies."""
    return jnp.broadcast_to(x.astype(matmul.sum_type(x)), y.shape).astype(y.dtype)


class Dropout(nn.Module):
    """Dropout: zeroes entries with probability `rate`, in steps of 2^-16, and divides the rest by 1 - rate.

    It draws 16 random bits per entry, half as many as flax, because drawing masks takes a large part of a
    small model's update time.
    """

    rate: float

    def __call__(self, x: Float[Array, '*B D'], *, train: bool) -> Float[Array, '*B D']:
        return self.draw(train=train)(x)

    def draw(self, *, train: bool) -> Callable[[Float[Array, '*B D']], Float[Array, '*B D']]:
        """Draws a key, and returns dropout as a pure function, which gives the same mask each time."""
        if not train or self.rate == 0.0:
            return KEEP_ALL
        return jax.tree_util.Partial(functools.partial(_dropped, self.rate), self.make_rng('dropout'))


def _dropped(rate: float, key: Array, x: Float[Array, '*B D']) -> Float[Array, '*B D']:
    *leading, width = x.shape
    words = jax.random.bits(key, (*leading, -(-width // 2)), jnp.uint32)
    # Comparing before joining keeps the joined array at one byte per entry.
    halves = [half >= round(rate * 2**16) for half in (words & 0xFFFF, words >> 16)]
    keep = jnp.concatenate(halves, axis=-1)[..., :width]
    # In float32: rounded to bfloat16, 1 - rate would change the mean.
    scaled = (x.astype(matmul.sum_type(x)) / (1.0 - rate)).astype(x.dtype)
    return jnp.where(keep, scaled, 0.0)


class LayerNorm(nn.Module):
    """LayerNorm: scales and shifts rows normalised to mean 0 and biased variance 1 (Ba et al. 2016)."""

    dtype: str
    epsilon: float

    @nn.compact
    def __call__(self, x: Float[Array, '*B D']) -> Float[Array, '*B D']:
        scale = self.param('scale', nn.initializers.ones, (x.shape[-1],))
        bias = self.param('bias', nn.initializers.zeros, (x.shape[-1],))
        return _normalised(self.dtype, self.epsilon, x, scale, bias)


# Plain definition: nn/plain.py: layer_norm.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _normalised(dtype, epsilon, x, scale, bias):
    return _normalised_forward(dtype, epsilon, x, scale, bias)[0]


def _normalised_forward(dtype, epsilon, x, scale, bias):
    scale, bias = (array.reshape(*[1] * (x.ndim - 1), -1) for array in (scale, bias))
    exact = x.astype(matmul.sum_type(x))
    mean = jnp.mean(exact, axis=-1, keepdims=True)
    variance = jax.lax.platform_dependent(exact, mean, tpu=variance_in_one_pass, default=_variance)
    factor = jax.lax.rsqrt(variance + epsilon)
    normalised = (exact - mean) * (factor * scale) + bias
    return normalised.astype(dtype), (x, scale, mean, factor)


def _variance(x, mean):
    return jnp.mean(jnp.square(x - mean), axis=-1, keepdims=True)


def variance_in_one_pass(x, mean):
    """Computes the biased variance from the mean square, which a TPU's product sums beside the mean.

    In float32, a variance of 1 is within 0.3 % beside a mean of 100, and within 0.003 % beside 10.
    """
    # Rounding can make the difference negative.
    return jnp.maximum(jnp.mean(jnp.square(x), axis=-1, keepdims=True) - jnp.square(mean), 0.0)


def _normalised_backward(dtype, epsilon, saved, gradient):
    del epsilon
    # By hand, because the derived gradient keeps more arrays and reads them more often.
    x, scale, mean, factor = saved
    unit, gradient = (x.astype(mean.dtype) - mean) * factor, gradient.astype(mean.dtype)
    rows = [*range(x.ndim - 1)]
    of_scale, of_bias = jnp.sum(gradient * unit, rows), jnp.sum(gradient, rows)
    scaled = gradient * scale
    along = lambda y: jnp.mean(y, axis=-1, keepdims=True)
    of_x = factor * (scaled - along(scaled) - unit * along(scaled * unit))
    return of_x.astype(x.dtype), of_scale, of_bias


_normalised.defvjp(_normalised_forward, _normalised_backward)


class Norm(nn.Module):
    """LayerNorm (biased variance) or RMSNorm."""

    model: Model

    @nn.compact
    def __call__(self, x: Float[Array, '*B D']) -> Float[Array, '*B D']:
        m = self.model
        if m.norm_type == 'rmsnorm':
            return nn.RMSNorm(epsilon=m.norm_epsilon, dtype=jnp.dtype(m.dtype), name='rms')(x)
        return LayerNorm(m.dtype, m.norm_epsilon, name='layer')(x)


class Sublayer(nn.Module):
    """Residual connection, dropout and normalisation around a sub-layer (§3.1, §5.4).

    A layer computes `after(x, sublayer(before(x)))`. post: LayerNorm(x + Dropout(sublayer(x))). pre:
    x + Dropout(sublayer(LayerNorm(x))).
    """

    model: Model

    def setup(self):
        self.norm = Norm(self.model)
        # Dropout's keys depend on the module's path, so the name must not change.
        self.dropout = Dropout(self.model.P_drop, name='Dropout_0')

    def before(self, x: Float[Array, '*B D']) -> Float[Array, '*B D']:
        """Returns the input of the sub-layer."""
        return self.norm(x) if self.model.norm == 'pre' else x

    def after(self, x: Float[Array, '*B D'], y: Float[Array, '*B D'], *, train: bool) -> Float[Array, '*B D']:
        """Adds the sub-layer's output y to x."""
        total = x + self.dropout(y, train=train)
        return total if self.model.norm == 'pre' else self.norm(total)


class FinalNorm(nn.Module):
    """Normalisation after the last layer. With pre-norm, no other is on the residual path."""

    model: Model

    @nn.compact
    def __call__(self, x: Float[Array, '*B D']) -> Float[Array, '*B D']:
        return Norm(self.model, name='norm')(x) if self.model.norm_final else x


ACTIVATIONS = {
    'relu': jax.nn.relu,
    'gelu': functools.partial(jax.nn.gelu, approximate=False),
    'gelu_tanh': functools.partial(jax.nn.gelu, approximate=True),
    'swish': jax.nn.silu,
    'quick_gelu': lambda x: x * jax.nn.sigmoid(1.702 * x),
}
# The activations of one of two inner layers, whose outputs are multiplied (Shazeer 2020).
GATED = {'swiglu': ACTIVATIONS['swish'], 'geglu': ACTIVATIONS['gelu_tanh']}


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (§3.3).

    gelu is exact, gelu_tanh its approximation in GPT-2, and quick_gelu that in CLIP, x sigmoid(1.702 x).
    swiglu is (swish(x W_1) * x W_3) W_2 (Shazeer 2020), and geglu, of T5 1.1, has gelu_tanh in place of
    swish. With the same d_ff they have 1.5 times the parameters.
    """

    model: Model

    @nn.compact
    def __call__(self, x: Float[Array, '*B D'], *, train: bool) -> Float[Array, '*B D']:
        m = self.model

        def through(x, width, name):
            kernel_init = initializers.kernel(m, residual=name == 'outer')
            return Linear(m, (width,), use_bias=m.biases != 'none', kernel_init=kernel_init, name=name)(x)

        inner = through(x, m.d_ff, 'inner')
        if m.activation in GATED:
            inner = GATED[m.activation](inner) * through(x, m.d_ff, 'gate')
        else:
            inner = ACTIVATIONS[m.activation](inner)
        inner = Dropout(m.P_drop_relu)(inner, train=train)
        return through(inner, m.d_model, 'outer')


class Embedding(nn.Module):
    """One V x d_model matrix, used as input embedding and as softmax (§3.4)."""

    model: Model
    content: Literal['pieces', 'softmax'] = 'pieces'

    def setup(self):
        m = self.model
        initial = initializers.table(m, self.content, m.d_model)
        self.table = self.param('table', initial, (m.vocab_size, m.d_model))

    def __call__(self, tokens: Int[Array, '*B']) -> Float[Array, '*B D']:
        """Returns each token's row, times sqrt(d_model) unless the model does not scale embeddings.

        Padding, which is also the start token, has zeros unless the model has a learned start.
        """
        # Rows are cast, not the table, so that float32 sums the gradients of the rows of a piece.
        rows = self.table[tokens].astype(self.model.dtype)
        if self.model.scale_embeddings:
            rows = rows * self.model.d_model**0.5
        return rows if self.model.start == 'learned' else jnp.where(tokens[..., None] == PAD, 0.0, rows)

    def matrix(self) -> Float[Array, 'V D']:
        """Returns the matrix, cast to the model's dtype."""
        return self.table.astype(self.model.dtype)


class Softmax(nn.Module):
    """The logits of pieces: the products of vectors and an embedding's rows, plus a bias (§3.4).

    A model shares its scope with this module, so that the parameters are the model's own.
    """

    model: Model
    embedding: Embedding  # whose matrix it shares, unless it has its own

    def setup(self):
        self.has_matrix = self.model.tie_embeddings in ('inputs', 'none')
        if self.has_matrix:
            self.softmax = Embedding(self.model, 'softmax')
        if self.model.softmax_bias:
            self.softmax_bias = self.param('softmax_bias', nn.initializers.zeros, (self.model.vocab_size,))

    def __call__(self, x: Float[Array, '*B D']) -> Float[Array, '*B V']:
        """Returns the logits, in float32."""
        return matmul.logits(*self.factors(x))

    def factors(self, x: Float[Array, '*B D']) -> tuple[Float[Array, '*B _'], Float[Array, 'V _']]:
        """Returns the vectors and the matrix whose product is the logits. A bias is its last column."""
        matrix = (self.softmax if self.has_matrix else self.embedding).matrix()
        if self.model.scale_logits:
            x = x * self.model.d_model**-0.5
        if not self.model.softmax_bias:
            return x, matrix
        bias = self.softmax_bias[:, None].astype(matrix.dtype)
        return jnp.concatenate([x, jnp.ones_like(x[..., :1])], -1), jnp.concatenate([matrix, bias], 1)
