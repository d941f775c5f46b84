"""The models against the paper's equations in nn/plain.py: the loss, and the gradient of every parameter.

Both sides are in float64, so that a difference larger than its rounding is a mistake.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config import Config, config_dict, resolve
from transformer.nn import ensemble, models, plain
from transformer.nn.kernels import flash, linear
from transformer.nn.kernels.kernel import AttentionInputs
from transformer.tokens import Batch, Tokens
from transformer.training import losses

V = 19
# The norms' epsilon is so large that its place in the equation matters.
SMALL = {
    'model.N': 1,
    'model.d_model': 12,
    'model.d_ff': 10,
    'model.h': 2,
    'model.d_k': 4,
    'model.d_v': 3,
    'model.P_drop': 0.0,
    'model.norm_epsilon': 0.1,
    'model.vocab_size': V,
    'data.pieces': V,
    'data.max_len': 8,
    'data.row_len': 8,
    'data.batch_tokens': 64,
}
TEXT = {'train.task': 'language', 'data.source': 'text'}
MASKED = {'train.task': 'masked', 'data.language': 'de'}
PRE, LEARNED = {'model.norm': 'pre'}, {'model.positions': 'learned'}
CHUNKED = {'model.attention': 'chunked', 'model.attention_chunk': 3}
LOCAL = {'model.attention': 'local', 'model.attention_window': 1}
SPARSE = {'model.attention': 'sparse', 'model.attention_stride': 2}
UNSMOOTHED = {'train.eps_ls': 0.0}
CASES = {
    'paper': {},
    'pair': PRE | LEARNED | CHUNKED | UNSMOOTHED,
    'text': TEXT | CHUNKED | {'model.N': 2, 'model.norm_type': 'rmsnorm', 'model.biases': 'ffn'},
    'local text': TEXT | PRE | LOCAL | UNSMOOTHED | {'model.activation': 'swiglu', 'model.remat': True},
    'masked': MASKED | UNSMOOTHED | {'model.softmax_bias': True, 'model.norm_final': True},
    'sparse masked': MASKED | PRE | LEARNED | SPARSE | {'model.biases': 'none'},
}
# The cases whose loss has all logits in memory; the others' logits are computed by chunks.
ALL_LOGITS = ('pair', 'local text', 'sparse masked')
PREDICT = {'translation': plain.encoder_decoder, 'language': plain.decoder_only, 'masked': plain.encoder_only}
# Rows of several sentences, with and without padding, and an empty row.
SOURCE = [[1, 1, 1, 2, 2, 0, 0], [1, 2, 2, 3, 3, 3, 3], [0] * 7]
TARGET = [[1, 1, 2, 2, 2, 2, 0, 0], [1, 1, 2, 2, 3, 3, 3, 0], [0] * 8]
PLACES = [[0, 1, 4], [1, 5, 6], [0, 0, 0]]


def config_of(case: str) -> Config:
    return resolve(config_dict(SMALL | CASES[case]))


def text_of(segments: list[list[int]], rng: np.random.Generator) -> Tokens:
    """Draws random pieces, also in padding, because masks come from segments."""
    positions = [[row[:i].count(segment) for i, segment in enumerate(row)] for row in segments]
    tokens = rng.integers(1, V, np.shape(segments), np.int32)
    return Tokens(tokens, np.array(segments, np.int32), np.array(positions, np.int32))


def data_of(config: Config) -> tuple[Batch, np.ndarray, np.ndarray]:
    """Makes a batch, the pieces to predict, and their weights."""
    rng = np.random.default_rng(0)
    source, target = text_of(SOURCE, rng), text_of(TARGET, rng)
    if config.train.task == 'masked':
        batch = {'text': target, 'places': np.array(PLACES, np.int32)}
        weights = np.array([[1.0, 1.0, 0.5], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
        return batch, rng.integers(1, V, weights.shape, np.int32), weights
    pair = config.train.task == 'translation'
    batch = {'source': source, 'target': target} if pair else {'text': target}
    return batch, target.tokens, rng.uniform(0.5, 2.0, target.tokens.shape) * (target.segments > 0)


def random_parameters(config: Config) -> models.Params:
    """Draws random values for every parameter, also biases and norms."""
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda leaf: 0.7 * rng.normal(size=leaf.shape), models.parameter_shapes(config))


@functools.cache
def defined(case: str) -> tuple:
    """Computes the loss and its gradients by the equations, in float64."""
    config = config_of(case)
    with jax.enable_x64(True):
        batch, target, weights = jax.tree.map(jnp.asarray, data_of(config))
        labels, predict = (target, weights, config.train.eps_ls), PREDICT[config.train.task]
        loss = lambda params: plain.loss(predict, params, batch, labels, config.model)
        return jax.device_get(jax.jit(jax.value_and_grad(loss))(random_parameters(config)))


def trained(case: str, dtype: str) -> tuple:
    """Computes the loss and its gradients as in training."""
    config = config_of(case)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, dtype=dtype))

    def loss(params, batch, target, weights):
        key = jax.random.key(0)
        if case in ALL_LOGITS:
            logits = ensemble.logits(config, params, batch, key)
            sums = losses.cross_entropy_sums(logits, target, weights, config.train.eps_ls)
        else:
            sums = losses.model_sums(config, params, batch, key, target, weights)
        return sums['loss'] / sums['weight']

    with jax.enable_x64(dtype == 'float64'):
        batch, target, weights = jax.tree.map(jnp.asarray, data_of(config))
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), random_parameters(config))
        gradients = jax.jit(jax.value_and_grad(loss))(params, batch, target, weights.astype(dtype))
        return jax.device_get(gradients)


def assert_equal(found, expected, most: float) -> None:
    """Compares arrays by the norm of their difference, relative to the norm."""
    size = lambda x: np.linalg.norm(np.asarray(x, np.float64))
    whole = np.linalg.norm([size(x) for x in jax.tree.leaves(expected)])
    paths = jax.tree_util.tree_leaves_with_path(found)
    for (path, ours), theirs in zip(paths, jax.tree.leaves(expected), strict=True):
        name, error = jax.tree_util.keystr(path, simple=True, separator='/'), size(ours - theirs)
        if name.endswith('key/bias'):
            # It adds the same to all logits of a query, which softmax ignores: the gradient is 0.
            assert error <= most * whole, (name, error / whole)
        else:
            assert size(theirs) > 1e-6 * whole, (name, size(theirs) / whole)
            assert error <= most * size(theirs), (name, error / size(theirs))


@pytest.mark.parametrize('case', CASES)
def test_loss_and_gradients(case, monkeypatch):
    monkeypatch.setattr(losses, 'CHUNK_LOGITS', 6 * V)
    assert_equal(trained(case, 'float64'), defined(case), 1e-12)


def test_loss_and_gradients_in_float32():
    """As they are in training; rounding changes the small gradients of queries and keys most, by 1e-5."""
    assert_equal(trained('paper', 'float32'), defined('paper'), 1e-4)


def sums_of_product(sums_of, x, table, target, weights):
    """Computes the sums, and the gradients of the loss with respect to x and table."""

    def loss(x, table):
        sums = sums_of(x, table, target, weights)
        return sums['loss'], sums

    gradients, sums = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(x, table)
    return sums, gradients


def by_definition(eps_ls: float, *arrays) -> tuple:
    sums_of = lambda x, table, *labels: plain.sums(x @ table.T, *labels, eps_ls)
    return sums_of_product(sums_of, *arrays)


@jax.jit(static_argnums=0)
def as_on_tpus(eps_ls: float, x, table, target, weights) -> tuple:
    shifts = losses.shifts(4, x, table)
    return losses.sums_and_gradients(eps_ls, 4, shifts, x, table, target, weights)


def random_product(length: float, towards: float) -> list[np.ndarray]:
    """Returns x and table with rows of this length, partly in one direction, and targets and weights."""
    rng = np.random.default_rng(0)
    direction = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    x = rng.normal(size=(12, 5)) + towards * direction
    table = rng.normal(size=(V, 5)) + abs(towards) * direction
    x, table = (length * rows / np.linalg.norm(rows, axis=-1, keepdims=True) for rows in (x, table))
    target = rng.integers(V, size=12)
    # Some predictions are right.
    target[:3] = np.argmax(x[:3] @ table.T, axis=1)
    return [x, table, target, rng.uniform(size=12)]


@pytest.mark.parametrize('eps_ls', [0.0, 0.1])
def test_sums_of_the_loss(eps_ls, monkeypatch):
    monkeypatch.setattr(losses, 'CHUNK_LOGITS', 4 * V)
    with jax.enable_x64(True):
        arrays = [jnp.asarray(array) for array in random_product(2.0, 0.0)]
        expected = by_definition(eps_ls, *arrays)
        in_rows = [arrays[0].reshape(3, 4, 5), arrays[1], *(label.reshape(3, 4) for label in arrays[2:])]
        sums_of = lambda *arrays: losses.cross_entropy_sums_of_product(*arrays, eps_ls)
        sums, (of_x, of_table) = sums_of_product(sums_of, *in_rows)
        assert_equal((sums, (of_x.reshape(12, 5), of_table)), expected, 1e-12)


# The length of all vectors and their common direction: logits of any sign, all near their lower bound, whose
# exponentials are almost 0, and all near their upper bound; then as many that are too far from the bound.
PRODUCTS = {
    'small': (2.0, 0.0),
    'low': (7.5, -100.0),
    'high': (7.5, 100.0),
    'too low': (9.0, -100.0),
    'logits of 1e4': (100.0, 0.0),
    'norms of 500': (500.0, 0.0),
}


@pytest.mark.parametrize('eps_ls', [0.0, 0.1])
@pytest.mark.parametrize('case', PRODUCTS)
def test_sums_of_the_loss_on_tpus(case, eps_ls):
    arrays = random_product(*PRODUCTS[case])
    with jax.enable_x64(True):
        expected = jax.device_get(by_definition(eps_ls, *map(jnp.asarray, arrays)))
        double = jax.device_get(as_on_tpus(eps_ls, *map(jnp.asarray, arrays)))
    single = as_on_tpus(
        eps_ls, *(jnp.asarray(array, jnp.float32 if array.dtype == float else jnp.int32) for array in arrays)
    )
    # Logits of 250,000 are rounded to multiples of 1/64.
    most = 1e-5 if PRODUCTS[case][0] < 100 else 0.05
    # Each array alone: the loss of the longest vectors is a million times another sum.
    jax.tree.map(functools.partial(assert_equal, most=1e-11), double, expected)
    jax.tree.map(functools.partial(assert_equal, most=most), jax.device_get(single), expected)


@pytest.mark.parametrize('case', PRODUCTS)
def test_shifts_of_the_loss(case):
    length, towards = PRODUCTS[case]
    x, table, *_ = random_product(length, towards)
    largest, bound = (x @ table.T).max(axis=1), length**2
    shifts = np.asarray(losses.shifts(4, jnp.asarray(x, jnp.float32), jnp.asarray(table, jnp.float32)))
    near = case in ('small', 'low', 'high')
    np.testing.assert_allclose(shifts, np.full(12, bound - 60) if near else largest, rtol=1e-5, atol=1e-4)
    assert (abs(largest - shifts) < 61).all()


def random_heads(length: int, width: int, dtype: str) -> list[jax.Array]:
    """Draws queries, keys and values of two rows and two heads."""
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(size=(2, length, 2, width)), dtype) for _ in range(3)]


def assert_equal_attention(attend, function, heads: list[jax.Array], *, causal: bool, most: float) -> None:
    """Compares a kernel with a function of one row and head: outputs at real positions, and gradients."""
    length = heads[0].shape[1]
    segments = np.ones((2, length), np.int32)
    segments[:, length // 3 :], segments[1, -length // 4 :] = 2, 0
    of_heads = jax.vmap(jax.vmap(function, (1, 1, 1, None), 1))

    def by_definition(rows):
        mask = jax.vmap(plain.same_segment)(rows.query_segments, rows.key_segments)
        return of_heads(*rows[:3], mask & jnp.tril(jnp.ones_like(mask)) if causal else mask)

    def score(attend, query, key, value):
        rows = AttentionInputs(query, key, value, jnp.asarray(segments), jnp.asarray(segments))
        outputs = jnp.where(segments[..., None, None] > 0, attend(rows), 0.0)
        return jnp.sum(jnp.sin(outputs)), outputs

    found, expected = (
        jax.jit(jax.value_and_grad(functools.partial(score, compute), (0, 1, 2), has_aux=True))(*heads)
        for compute in (functools.partial(attend, causal=causal), by_definition)
    )
    assert_equal(found, expected, most)


def test_linear_attention():
    attend = functools.partial(linear.attend, chunk=3)
    with jax.enable_x64(True):
        heads = random_heads(11, 4, 'float64')
        assert_equal_attention(attend, plain.linear_attention, heads, causal=False, most=1e-12)


def test_flash_attention_of_tpus():
    """In float32, because the kernel has no float64; interpreted."""
    attend = functools.partial(flash.splash, interpret=True)
    heads = random_heads(128, 8, 'float32')
    assert_equal_attention(attend, plain.attention, heads, causal=True, most=1e-5)
