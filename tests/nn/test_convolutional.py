"""Convolutional models, recomputed in numpy sentence by sentence; their windows, start and cost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_models import rows_of

from transformer.config import Config, config_dict, resolve
from transformer.inference import attention
from transformer.nn import convolutional, cost, models
from transformer.nn.positions import sinusoid
from transformer.tokens import Batch

SMALL = {
    'model.kind': 'convolutional',
    'model.N': 2,
    'model.d_model': 6,
    'model.vocab_size': 270,
    'data.pieces': 270,
}
LANGUAGE = {'train.task': 'language', 'data.source': 'text'}
# Pairs that share a row; its last positions are padding.
SOURCES, TARGETS = [[5, 9, 4, 8, 1], [6, 1]], [[7, 6, 3, 1], [4, 4, 9, 8, 5, 1]]
WIDTH = 13


def config_of(task: dict[str, str] | None = None, **changes) -> Config:
    options = {f'model.{key}': value for key, value in changes.items()}
    return resolve(config_dict({**SMALL, **(task or {}), **options}))


def random_params(config: Config) -> dict:
    """Parameters with which every term of the equations can be seen in the logits."""
    rng = np.random.default_rng(1)

    def draw(path, leaf):
        size = 1.0 if 'table' in jax.tree_util.keystr(path) else leaf.shape[0] ** -0.5
        return size * rng.normal(size=leaf.shape).astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, models.parameter_shapes(config))


def linear(p: dict, x: np.ndarray) -> np.ndarray:
    return x @ p['kernel'] + p['bias']


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def embed(config: Config, params: dict, side: str, tokens: list[int]) -> np.ndarray:
    """Computes 0.1 times the shared code's embeddings, plus positions."""
    m, table = config.model, params['embedding']['table']
    x = np.array([0.1 * np.sqrt(m.d_model) * table[t] * (t > 0) for t in tokens])
    if m.positions == 'learned':
        return x + params[side]['positions']['table'][: len(tokens)]
    return x + 0.1 * sinusoid(len(tokens), m.d_model, m.sinusoid) if m.positions == 'sinusoidal' else x


def block(config: Config, p: dict, x: np.ndarray, first: int) -> np.ndarray:
    """Computes a gated convolution and its residual; windows begin `first` positions from each position."""
    m, outputs = config.model, []
    kernel = p['kernel'].reshape(m.kernel_width, m.d_model, 2 * m.d_model)
    for i in range(len(x)):
        y = p['bias'].copy()
        for tap in range(m.kernel_width):
            if 0 <= i + first + tap < len(x):
                y += x[i + first + tap] @ kernel[tap]
        a, b = y[: m.d_model], y[m.d_model :]
        outputs.append((a / (1 + np.exp(-b)) + x[i]) * np.sqrt(0.5))
    return np.array(outputs)


def encode(config: Config, params: dict, source: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Computes the encoder's outputs z, and its inputs e."""
    p, e = params['encoder'], embed(config, params, 'source_inputs', source)
    z = linear(p['inlet'], e)
    for n in range(config.model.N):
        first = {1: 0, 2: 0, 3: -1, 4: -1, 5: -2}[config.model.kernel_width]
        z = block(config, p[f'layer_{n}']['convolution'], z, first)
    return linear(p['outlet'], z), e


def decode(config: Config, params: dict, source: list[int], target: list[int]):
    """Computes the logits of every target token, and each layer's alignment."""
    m, p, alignment = config.model, params['decoder'], []
    z, e = encode(config, params, source)
    g = embed(config, params, 'target_inputs', [0, *target[:-1]])
    h = linear(p['inlet'], g)
    for n in range(m.N_decoder):
        layer = p[f'layer_{n}']
        h = block(config, layer['block']['convolution'], h, 1 - m.kernel_width)
        weights = softmax((linear(layer['cross_attention']['query'], h) + g) @ z.T)
        alignment.append(weights)
        h = h + len(source) * np.sqrt(1 / len(source)) * weights @ (z + e)
    return linear(p['outlet'], h) @ params['embedding']['table'].T, np.array(alignment)


@pytest.mark.parametrize(
    'changes',
    [
        {'N': 1, 'positions': 'learned'},
        {'N': 2},
        {'N': 2, 'N_decoder': 1, 'kernel_width': 2, 'sinusoid': 't2t'},
        {'N': 1, 'N_decoder': 2, 'kernel_width': 5, 'positions': 'none'},
        {'kernel_width': 4, 'positions': 'learned'},
        {'N': 1, 'kernel_width': 1},
    ],
    ids=lambda changes: '-'.join(map(str, changes.values())),
)
def test_the_equations_in_numpy(changes):
    config = config_of(**changes)
    params = random_params(config)
    batch = jax.device_put({'source': rows_of([SOURCES], WIDTH), 'target': rows_of([TARGETS], WIDTH)})
    run = lambda params: models.build(config).apply({'params': params}, batch, train=False)
    found, shown = jax.jit(run)(params)[0], attention.attention_weights(config, params, batch)
    assert np.isfinite(found).all() and set(shown) == {'decoder/cross_attention'}
    first, first_source = 0, 0
    for source, target in zip(SOURCES, TARGETS, strict=True):
        logits, alignment = decode(config, params, source, target)
        place = slice(first, first + len(target))
        read = slice(first_source, first_source + len(source))
        np.testing.assert_allclose(found[place], logits, rtol=1e-4, atol=2e-5)
        weights = shown['decoder/cross_attention'][:, 0, place]
        np.testing.assert_allclose(weights[:, :, read], alignment, rtol=1e-4, atol=1e-6)
        assert weights.sum() == pytest.approx(alignment.sum())
        first, first_source = place.stop, read.stop


@pytest.mark.parametrize('positions', ['sinusoidal', 'learned'])
def test_the_language_model_in_numpy(positions):
    config = config_of(LANGUAGE, positions=positions)
    params = random_params(config)
    batch: Batch = {'text': jax.device_put(rows_of([TARGETS], WIDTH))}
    run = lambda params: models.build(config).apply({'params': params}, batch, train=False)
    found, first, p = jax.jit(run)(params)[0], 0, params['decoder']
    for text in TARGETS:
        h = linear(p['inlet'], embed(config, params, 'inputs', [1, *text[:-1]]))
        for n in range(2):
            h = block(config, p[f'layer_{n}']['block']['convolution'], h, -2)
        logits = linear(p['outlet'], h) @ params['embedding']['table'].T
        np.testing.assert_allclose(found[first : first + len(text)], logits, rtol=1e-4, atol=2e-5)
        first += len(text)


@pytest.mark.parametrize(
    ('width', 'causal', 'offsets'),
    [(1, False, [0]), (2, False, [0, 1]), (3, False, [-1, 0, 1]), (3, True, [-2, -1, 0]), (2, True, [-1, 0])],
)
def test_windows_end_where_a_segment_does(width, causal, offsets):
    segments = np.array([[1, 1, 1, 2, 2, 3, 0, 0]], np.int32)
    x = np.arange(1.0, 9.0, dtype=np.float32)[None, :, None]
    found = convolutional.windows(jnp.asarray(x), jnp.asarray(segments), width, causal=causal)
    for i in range(6):
        expected = [
            x[0, i + o, 0] if 0 <= i + o < 8 and segments[0, i + o] == segments[0, i] else 0 for o in offsets
        ]
        assert found[0, i].tolist() == expected


def test_initial_values():
    config = config_of(d_model=128, N=1, P_drop=0.2, P_drop_embedding=0.4, positions='learned')
    params = jax.jit(lambda key: models.initialize(config, key))(jax.random.key(0))
    expected = {
        'encoder/inlet': 0.6 / 128,
        'encoder/layer_0/convolution': 4 * 0.8 / (3 * 128),
        'encoder/outlet': 1 / 128,
        'decoder/inlet': 0.6 / 128,
        'decoder/layer_0/block/convolution': 4 * 0.8 / (3 * 128),
        'decoder/layer_0/cross_attention/query': 1 / 128,
        'decoder/outlet': 1 / 128,
    }
    for path, leaf in jax.tree_util.tree_leaves_with_path({k: params[k] for k in ('encoder', 'decoder')}):
        name, kind = jax.tree_util.keystr(path, simple=True, separator='/').rsplit('/', 1)
        assert float(leaf.std()) == pytest.approx(expected[name] ** 0.5 * (kind == 'kernel'), rel=0.03)
    embedded = convolutional.Inputs(config.model).apply(
        {'params': {'positions': {'table': jnp.zeros((512, 128))}}},
        params['embedding']['table'][None] * 128**0.5, jnp.zeros((1, 270), jnp.int32), 1, train=False,
    )  # fmt: skip
    assert float(embedded.std()) == pytest.approx(0.1, rel=0.03)


def test_dropout_is_of_what_a_convolution_takes_not_of_the_residual():
    block = convolutional.Block(config_of(P_drop=0.5).model, causal=True)
    x, segments = jnp.ones((1, 40, 6)), jnp.ones((1, 40), jnp.int32)
    kernel = jnp.zeros((18, 12)).at[12:, :6].set(jnp.eye(6))  # A is the input itself, σ(B) is 1/2

    def run(kernel):
        convolution = {'kernel': kernel, 'bias': jnp.zeros(12)}
        rngs = {'dropout': jax.random.key(0)}
        found = block.apply({'params': {'convolution': convolution}}, x, segments, train=True, rngs=rngs)
        return set(np.round(np.unique(found / np.sqrt(0.5)), 5).tolist())

    assert run(kernel) == {1.0, 2.0} and run(0 * kernel) == {1.0}


@pytest.mark.parametrize(
    ('task', 'changes'),
    [({}, {}), ({}, {'N_decoder': 3, 'kernel_width': 5}), (LANGUAGE, {'kernel_width': 2})],
)
def test_flops_are_those_of_every_matrix_at_every_position(task, changes):
    config, source, target = config_of(task, **changes), 5, 7
    m, products = config.model, 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(models.parameter_shapes(config)):
        if len(leaf.shape) == 2:
            # The embedding's one matrix is a product in the softmax.
            products += leaf.size * (source if 'encoder' in jax.tree_util.keystr(path) else target)
    products += 2 * target * source * m.d_model * (m.N_decoder or 0)
    lengths = {'source': source, 'target': target, 'text': target}
    batch = {field: models.blank(config, 3, lengths[field])[field] for field in models.blank(config)}
    assert cost.forward_cost(config, batch).flops == 2 * 3 * products
