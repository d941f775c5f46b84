"""Positions in the logits of attention, and rotated pairs, recomputed by hand or in numpy."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import programs
import pytest

from transformer.config import config_dict, resolve
from transformer.nn import models, positions
from transformer.nn.attention import MultiHeadAttention
from transformer.tokens import Tokens

MODEL = resolve(
    config_dict({'model.d_model': 12, 'model.h': 4, 'model.d_k': 6, 'model.d_v': 3, 'data.pieces': 300})
).model
# The least distances of T5's buckets beyond those of one distance each: 8 · 16^(k/8), 16 · 8^(k/16).
ENCODER = [8, 12, 16, 23, 32, 46, 64, 91]
DECODER = [16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]


def test_sinusoids_of_a_grid():
    """[sin xω, cos xω, sin yω, cos yω] with ω from 1 to 1/10000, row by row, here for 3 x 3 and d = 8."""
    found = positions.grid_sinusoid(3, 8)
    rates = [1.0, 1e-4]
    for place, vector in enumerate(found):
        y, x = divmod(place, 3)
        expected = [wave(at * rate) for at in (x, y) for wave in (np.sin, np.cos) for rate in rates]
        np.testing.assert_allclose(vector, expected, atol=1e-6)


@pytest.mark.parametrize(('old', 'new'), [(2, 4), (4, 2), (3, 5), (8, 3), (3, 3)])
def test_resized_grids(old, new):
    """Each vector lies between those of the nearest cells; jax's own resize without a filter agrees."""
    table = np.random.default_rng(old * new).normal(size=(old**2, 3)).astype(np.float32)
    found = positions.resize_grid(table, new)
    grid = table.reshape(old, old, 3)
    for i, j in np.ndindex(new, new):
        y, x = (np.clip((at + 0.5) * old / new - 0.5, 0, old - 1) for at in (i, j))
        top, left = int(y), int(x)
        bottom, right = min(top + 1, old - 1), min(left + 1, old - 1)
        dy, dx = y - top, x - left
        above = (1 - dx) * grid[top, left] + dx * grid[top, right]
        below = (1 - dx) * grid[bottom, left] + dx * grid[bottom, right]
        np.testing.assert_allclose(found[i * new + j], (1 - dy) * above + dy * below, atol=1e-6)
    theirs = jax.image.resize(grid, (new, new, 3), 'bilinear', antialias=False)
    np.testing.assert_allclose(found.reshape(new, new, 3), theirs, atol=1e-5)


def test_buckets_of_an_encoder():
    left = [min(n, 7) + sum(n >= start for start in ENCODER) for n in range(200)]
    assert [positions.bucket_of(-n, causal=False) for n in range(200)] == left
    assert [positions.bucket_of(n, causal=False) for n in range(1, 200)] == [16 + n for n in left[1:]]


def test_buckets_of_a_decoder():
    left = [min(n, 15) + sum(n >= start for start in DECODER) for n in range(200)]
    assert [positions.bucket_of(-n, causal=True) for n in range(200)] == left
    assert left[-1] == positions.BUCKETS - 1


def bias_of(kind: str, causal: bool, table: np.ndarray | None = None, *arguments) -> np.ndarray:
    """The bias of a stack in the logits, after the division by sqrt(d_k)."""
    stack = positions.StackPositions(dataclasses.replace(MODEL, positions=kind), causal)
    params = {} if table is None else {'table': jnp.asarray(table)}
    return np.asarray(stack.apply({'params': params}, *arguments)) / np.sqrt(6.0)


@pytest.mark.parametrize('causal', [False, True])
def test_the_bias_of_buckets(causal):
    table = np.random.default_rng(0).normal(size=(32, 4)).astype('f')
    found = bias_of('buckets', causal, table, 150)
    assert found.shape == (1, 4, 150, 150)
    for query, key in ((0, 0), (9, 2), (2, 9), (149, 0), (0, 149), (140, 100)):
        bucket = positions.bucket_of(key - query, causal=causal)
        np.testing.assert_allclose(found[0, :, query, key], table[bucket], rtol=1e-5)
    # One query of a search, for each of two hypotheses.
    stepped = bias_of('buckets', causal, table, 150, jnp.array([[9], [140]]))
    np.testing.assert_allclose(stepped[:, :, 0], found[0][:, [9, 140]].swapaxes(0, 1), rtol=1e-6)


def test_the_bias_of_alibi():
    # 2^(-8i/4) for the heads i = 1 to 4.
    slopes = np.array([1 / 4, 1 / 16, 1 / 64, 1 / 256])
    distance = np.abs(np.arange(5)[:, None] - np.arange(5))
    found = bias_of('alibi', True, None, 5)
    np.testing.assert_allclose(found[0], -slopes[:, None, None] * distance, rtol=1e-5)


def test_the_bias_of_relative_positions():
    """query · a[key position - query position], the same beyond 16 (Shaw et al. 2018, eq. 4)."""
    rng = np.random.default_rng(0)
    table, query = rng.normal(size=(33, 6)).astype('f'), rng.normal(size=(1, 3, 4, 6)).astype('f')
    queries, keys = np.array([0, 5, 40]), np.arange(41)
    relative = positions.AttentionPositions(dataclasses.replace(MODEL, positions='relative'))
    arrays = map(jnp.asarray, (query, queries[None], keys[None]))
    found = relative.apply({'params': {'table': jnp.asarray(table)}}, *arrays, method='bias')
    nearest = np.clip(keys - queries[:, None], -16, 16)
    expected = np.einsum('QHC,QKC->HQK', query[0], table[16 + nearest])
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5)


def test_other_positions_have_no_bias_of_a_stack():
    stack = positions.StackPositions(dataclasses.replace(MODEL, positions='relative'), True)
    assert stack.apply({}, 5) is None


@pytest.mark.parametrize(('pairs', 'first'), [('halves', (0, 3)), ('interleaved', (0, 1))])
def test_rotated_pairs(pairs, first):
    model = dataclasses.replace(MODEL, positions='rotary', rotary_pairs=pairs)
    x = np.random.default_rng(0).normal(size=(1, 7, 2, 6)).astype('f')
    place = np.arange(7)[None]
    found = positions.AttentionPositions(model).apply(
        {}, jnp.asarray(x), jnp.asarray(place), 7, method='rotate'
    )
    step = first[1] - first[0]
    for pair in range(3):
        i = pair if pairs == 'halves' else 2 * pair
        angle = place[0] * 10000.0 ** (-2 * pair / 6)
        turned = (x[0, ..., i] + 1j * x[0, ..., i + step]) * np.exp(1j * angle)[:, None]
        np.testing.assert_allclose(found[0, ..., i], turned.real, atol=1e-5)
        np.testing.assert_allclose(found[0, ..., i + step], turned.imag, atol=1e-5)


@pytest.mark.parametrize('scale', ['sqrt_d_k', 'none'])
def test_attention_with_a_bias_of_the_stack(scale):
    """softmax(QK^T / sqrt(d_k) + bias) V, or without the division (T5)."""
    rng = np.random.default_rng(0)
    model = dataclasses.replace(MODEL, positions='alibi', attention_scale=scale, biases='none')
    shapes = {'query': (12, 4, 6), 'key': (12, 4, 6), 'value': (12, 4, 3), 'output': (4, 3, 12)}
    params = {name: {'kernel': rng.normal(size=shape).astype('f') / 3} for name, shape in shapes.items()}
    x, places = rng.normal(size=(1, 5, 12)).astype('f'), jnp.arange(5)[None]
    bias = positions.StackPositions(model, True).apply({}, 5)
    found = MultiHeadAttention(model, 'self').apply(
        {'params': jax.tree.map(jnp.asarray, params)},
        jnp.asarray(x),
        Tokens(places, jnp.ones_like(places), places),
        bias,
        causal=True,
        train=False,
    )
    q, k, v = (np.einsum('TD,DHC->HTC', x[0], params[name]['kernel']) for name in ('query', 'key', 'value'))
    logits = np.einsum('HQC,HKC->HQK', q, k) / (np.sqrt(6) if scale == 'sqrt_d_k' else 1.0)
    logits -= np.array([1 / 4, 1 / 16, 1 / 64, 1 / 256])[:, None, None] * (
        np.arange(5)[:, None] - np.arange(5)
    )
    weights = np.tril(np.exp(logits))
    weights /= weights.sum(-1, keepdims=True)
    expected = np.einsum('HQK,HKE,HED->QD', weights, v, params['output']['kernel'])
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5)


def test_the_gradient_of_the_buckets_of_both_stacks():
    """As finite differences say, also where layers are recomputed."""
    sizes = {'model.N': 2, 'model.d_model': 8, 'model.d_ff': 8, 'model.h': 2, 'model.P_drop': 0.0}
    config = resolve(config_dict({**sizes, 'model.positions': 'buckets', 'data.pieces': 300}))
    batch = jax.tree.map(jnp.asarray, models.blank(config, 2, 6))
    text = Tokens(jnp.arange(12).reshape(2, 6) + 3, *batch['source'][1:])
    batch = dict.fromkeys(batch, text)
    params = programs.initialize(config, jax.random.key(0))

    @functools.partial(jax.jit, static_argnums=1)
    def loss(params, remat):
        recomputing = dataclasses.replace(config, model=dataclasses.replace(config.model, remat=remat))
        logits = models.build(recomputing).apply({'params': params}, batch, train=True)
        return jnp.sum(jnp.sin(jnp.arange(logits.size).reshape(logits.shape)) * logits)

    gradient = jax.jit(jax.grad(loss), static_argnums=1)
    gradients = [gradient(params, remat) for remat in (False, True)]
    for side in ('encoder', 'decoder'):
        first, again = (np.asarray(gradient[side]['positions']['table']) for gradient in gradients)
        np.testing.assert_allclose(again, first, rtol=1e-4, atol=1e-5)
        moved = lambda size, side=side, first=first: {
            **params,
            side: {**params[side], 'positions': {'table': params[side]['positions']['table'] + size * first}},
        }
        size = 0.01 / np.abs(first).max()
        slope = (loss(moved(size), False) - loss(moved(-size), False)) / (2 * size)
        assert float(slope) == pytest.approx((first**2).sum(), rel=0.02)
