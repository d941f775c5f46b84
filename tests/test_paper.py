"""Numbers and rules of the paper, recomputed by hand or in numpy."""

import dataclasses
import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import programs
import pytest

from transformer.config import config_dict, resolve
from transformer.nn import cost, decoders, layers, masks, matmul, models, positions
from transformer.nn.initializers import glorot_uniform
from transformer.nn.kernels.full import attention_weights
from transformer.nn.layers import Dropout, Embedding
from transformer.tokens import Tokens
from transformer.training import losses, optim

DECODER = {'model.kind': 'decoder', 'train.task': 'language', 'data.source': 'text'}

# Table 3: the difference from base, and the printed parameters in millions.
PRINTED = {
    'base': ({}, 65),
    'B1': ({'model.d_k': 16}, 58),
    'B2': ({'model.d_k': 32}, 60),
    'C1': ({'model.N': 2}, 36),
    'C2': ({'model.N': 4}, 50),
    'C3': ({'model.N': 8}, 80),
    'C4': ({'model.d_model': 256, 'model.d_k': 32, 'model.d_v': 32}, 28),
    'C5': ({'model.d_model': 1024, 'model.d_k': 128, 'model.d_v': 128}, 168),
    'C6': ({'model.d_ff': 1024}, 53),
    'C7': ({'model.d_ff': 4096}, 90),
}


@pytest.mark.parametrize('row', PRINTED)
def test_parameters_of_table_3(row):
    changes, printed = PRINTED[row]
    count = cost.parameters(models.parameter_shapes(resolve(config_dict(changes))))
    assert round(count / 1e6) == printed


def test_parameters_of_the_big_row_deviate():
    big = {'model.d_model': 1024, 'model.d_ff': 4096, 'model.h': 16}
    count = cost.parameters(models.parameter_shapes(resolve(config_dict(big))))
    assert count == 218_300_416  # the paper prints 213 million


def test_parameters_by_hand():
    d, f, v, n = 512, 2048, 40960, 6
    attention = 4 * (d * d + d)
    ffn = d * f + f + f * d + d
    encoder, decoder = attention + ffn + 2 * 2 * d, 2 * attention + ffn + 3 * 2 * d
    shapes = models.parameter_shapes(resolve(config_dict()))
    assert cost.parameters(shapes) == v * d + n * (encoder + decoder)


@pytest.mark.parametrize(
    ('changes', 'pieces', 'rows'),
    [
        ({}, 37_000, 40_960),
        ({'data.pieces': 1000}, 1000, 1000),
        ({'model.vocab_size': 38_000}, 37_000, 38_000),
        ({'data.tokenizer': 'bytes'}, 259, 259),
        ({'data.pieces': 300, 'model.vocab_size': 304}, 300, 304),
    ],
)
def test_the_embedding_has_a_row_for_each_piece(changes, pieces, rows):
    """The paper's alone has more, as in the released code."""
    config = resolve(config_dict(changes))
    assert (config.data.pieces, config.model.vocab_size) == (pieces, rows)


def test_sinusoid_of_the_text():
    d = 6
    expected = np.zeros((40, d))
    for pos in range(40):
        for i in range(d // 2):
            angle = pos / 10000 ** (2 * i / d)
            expected[pos, 2 * i], expected[pos, 2 * i + 1] = math.sin(angle), math.cos(angle)
    np.testing.assert_allclose(positions.sinusoid(40, d, 'paper'), expected, atol=1e-6)


def test_sinusoid_of_the_released_code():
    found = positions.sinusoid(40, 6, 't2t')
    for i, timescale in enumerate((1.0, 100.0, 10000.0)):
        np.testing.assert_allclose(found[:, i], np.sin(np.arange(40) / timescale), atol=1e-6)
        np.testing.assert_allclose(found[:, 3 + i], np.cos(np.arange(40) / timescale), atol=1e-6)


def test_sinusoid_in_halves():
    paper, halves = (positions.sinusoid(40, 6, kind) for kind in ('paper', 'halves'))
    np.testing.assert_array_equal(halves, paper[:, [0, 2, 4, 1, 3, 5]])


def test_what_is_added_to_embeddings():
    rng = np.random.default_rng(0)
    x, place = rng.normal(size=(2, 4, 6)).astype('f'), np.array([[0, 1, 2, 3], [0, 1, 0, 1]])
    small = {'model.vocab_size': 300, 'data.pieces': 300, 'model.d_model': 6, 'model.h': 2}
    model = lambda **options: (
        resolve(config_dict(small | {f'model.{k}': v for k, v in options.items()})).model
    )
    added = lambda m, params: positions.InputPositions(m).apply(
        {'params': params}, jnp.asarray(x), jnp.asarray(place), 4
    )
    one_on = positions.sinusoid(5, 6, 't2t')[1:][place]
    later = added(model(first_position=1, sinusoid='t2t'), {})
    np.testing.assert_allclose(later, x + one_on, atol=1e-6)
    # As BERT's embeddings.
    bert = {**small, 'train.task': 'masked', 'data.language': 'de', 'model.positions': 'learned'}
    bert = resolve(
        config_dict(bert | {'model.token_types': 2, 'model.norm_embedding': True, 'model.norm_epsilon': 0.1})
    ).model
    table, types = (rng.normal(size=(rows, 6)).astype('f') for rows in (bert.max_len, 2))
    scale, bias = rng.normal(size=(2, 6)).astype('f')
    params = {'table': table, 'token_types': types, 'norm': {'layer': {'scale': scale, 'bias': bias}}}
    total = x + table[place] + types[0]
    unit = (total - total.mean(-1, keepdims=True)) / np.sqrt(total.var(-1, keepdims=True) + 0.1)
    np.testing.assert_allclose(added(bert, params), unit * scale + bias, atol=1e-5)


def test_learning_rate():
    config = resolve(config_dict())
    peak = 512**-0.5 * 4000**-0.5
    for step, expected in ((1, 512**-0.5 * 4000**-1.5), (2000, peak / 2), (4000, peak), (16000, peak / 2)):
        assert float(optim.learning_rate(config, step)) == pytest.approx(expected, rel=1e-5)


def test_adam_and_its_schedule_in_numpy():
    config = resolve(config_dict({'train.warmup_steps': 3}))
    optimizer = optim.optimizer(config)
    params = {'w': jnp.array([1.0, -2.0, 0.0])}
    state = optimizer.init(params)
    w, m, v = np.array([1.0, -2.0, 0.0]), np.zeros(3), np.zeros(3)
    for step in range(1, 6):
        # The last is so small that epsilon matters.
        gradient = np.array([0.3 * step, -0.1 / step, 1e-9 * step])
        updates, state = optimizer.update({'w': jnp.asarray(gradient, jnp.float32)}, state, params)
        params = {'w': params['w'] + updates['w']}
        m, v = 0.9 * m + 0.1 * gradient, 0.98 * v + 0.02 * gradient**2
        rate = 512**-0.5 * min(step**-0.5, step * 3**-1.5)
        w = w - rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.98**step)) + 1e-9)
        np.testing.assert_allclose(params['w'], w, rtol=1e-5)


def test_weights_count_not_the_token():
    logits = jnp.asarray([[[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]])
    target, weights = jnp.asarray([[0, 2]]), jnp.asarray([[1.0, 0.5]])
    sums = losses.cross_entropy_sums(logits, target, weights, 0.0)
    nll = math.log(sum(math.exp(x) for x in (0, 1, 2))) - 0.0
    assert float(sums['loss']) == pytest.approx(1.5 * nll, rel=1e-6)
    assert float(sums['weight']) == 1.5 and float(sums['correct']) == 0.0


def test_perplexity_overflows_to_infinity():
    assert losses.perplexity(math.log(7)) == pytest.approx(7)
    assert losses.perplexity(1e4) == math.inf
    assert losses.perplexity(705.0) < math.inf and math.isnan(losses.perplexity(math.nan))
    assert losses.means({'loss': 4.0, 'weight': 2.0}) == {'loss': 2.0}


@pytest.mark.parametrize('eps_ls', [0.0, 0.1])
def test_label_smoothing(eps_ls):
    rng = np.random.default_rng(0)
    logits, target = rng.normal(size=(2, 3, 5)), np.array([[3, 1, 0], [4, 2, 1]])
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    weights = jnp.asarray(target != 0, jnp.float32)
    sums = losses.cross_entropy_sums(jnp.asarray(logits, jnp.float32), jnp.asarray(target), weights, eps_ls)
    loss = nll = correct = 0.0
    for b, t in np.argwhere(target != 0):
        label = np.full(5, eps_ls / 4)
        label[target[b, t]] = 1 - eps_ls
        loss += -(label * logp[b, t]).sum() + sum(p * math.log(p) for p in label if p > 0)
        nll -= logp[b, t, target[b, t]]
        correct += logp[b, t].argmax() == target[b, t]
    expected = {'loss': loss, 'nll': nll, 'correct': correct, 'weight': 5}
    assert {k: float(v) for k, v in sums.items()} == pytest.approx(expected, rel=1e-5)


def test_scaled_dot_product_attention():
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(1, 2, 1, 4)), rng.normal(size=(1, 3, 1, 4))
    mask = np.array([[[[True, True, False], [True, True, True]]]])
    logits = q[0, :, 0] @ k[0, :, 0].T / 2.0
    weights = np.where(mask[0, 0], np.exp(logits), 0.0)
    weights = weights / weights.sum(-1, keepdims=True)
    found = attention_weights(jnp.asarray(q, jnp.float32), jnp.asarray(k, jnp.float32), jnp.asarray(mask))
    np.testing.assert_allclose(found[0, 0], weights, rtol=1e-5)


def test_masks():
    segments = jnp.array([[1, 1, 2, 0]])
    within = [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    np.testing.assert_array_equal(masks.segment_mask(segments, segments)[0, 0], within)
    np.testing.assert_array_equal(masks.causal_mask(3)[0, 0], [[1, 0, 0], [1, 1, 0], [1, 1, 1]])
    np.testing.assert_array_equal(masks.prefix_mask(jnp.array([1]), 3)[0, 0, 0], [1, 1, 0])


def test_shift_right_starts_every_segment_anew():
    tokens = jnp.array([[5, 6, 1, 7, 1, 0]])
    segments = jnp.array([[1, 1, 1, 2, 2, 0]])
    np.testing.assert_array_equal(decoders.shift_right(tokens, segments), [[0, 5, 6, 0, 7, 0]])


@pytest.mark.parametrize(('path', 'fused'), [
    (('self_attention', 'query'), 3 * 512), (('cross_attention', 'query'), 512),
    (('cross_attention', 'value'), 2 * 512), (('self_attention', 'output'), 512),
])  # fmt: skip
def test_initialisation_of_the_fused_kernels(path, fused):
    config = resolve(config_dict({'model.N': 1, 'model.vocab_size': 300, 'data.pieces': 300}))
    params = jax.jit(lambda key: models.initialize(config, key))(jax.random.key(0))
    kernel = params['decoder']['layer_0'][path[0]][path[1]]['kernel']
    limit = math.sqrt(6 / (512 + fused))
    assert float(jnp.abs(kernel).max()) == pytest.approx(limit, rel=1e-3)
    assert float(kernel.std()) == pytest.approx(limit / math.sqrt(3), rel=1e-2)
    assert float(params['embedding']['table'].std()) == pytest.approx(512**-0.5, rel=1e-2)


def test_xavier_uses_the_kernel_alone():
    kernel = glorot_uniform()(jax.random.key(0), (40, 60))
    assert float(jnp.abs(kernel).max()) == pytest.approx(math.sqrt(6 / 100), rel=1e-2)


@pytest.mark.parametrize('added', ['sinusoidal', 'none'])
def test_embedding_scales_and_blanks_padding(added):
    changes = {'model.vocab_size': 300, 'data.pieces': 300, 'model.d_model': 16, 'model.positions': added}
    config = resolve(config_dict(changes))
    embedding = Embedding(config.model)
    table = jax.random.normal(jax.random.key(0), (300, 16))
    found = embedding.apply({'params': {'table': table}}, jnp.array([[0, 7]]))
    np.testing.assert_array_equal(found[0, 0], np.zeros(16))
    np.testing.assert_allclose(found[0, 1], 4.0 * table[7], rtol=1e-6)
    plain = dataclasses.replace(config.model, scale_embeddings=False, start='learned')
    found = Embedding(plain).apply({'params': {'table': table}}, jnp.array([[0, 7]]))
    np.testing.assert_array_equal(found[0], table[jnp.array([0, 7])])


def test_a_bias_of_the_softmax():
    changes = {'model.vocab_size': 300, 'data.pieces': 300, 'model.d_model': 16, 'model.N': 1}
    config, biased = (
        resolve(config_dict({**changes, 'model.d_ff': 8, 'model.softmax_bias': bias}))
        for bias in (False, True)
    )
    params = programs.initialize(config, jax.random.key(0))
    bias = jax.random.normal(jax.random.key(1), (300,))
    batch = jax.tree.map(jnp.asarray, models.blank(config, 2, 5))
    plain = programs.apply(config, params, batch)
    found = programs.apply(biased, params | {'softmax_bias': bias}, batch)
    np.testing.assert_allclose(found, plain + bias[None, None], atol=1e-5)


@pytest.mark.parametrize('tie', ['all', 'inputs', 'decoder', 'none'])
def test_logits_by_tied_embeddings(tie):
    """The logits are d_model^-0.5 x E^T + b, where E is the target's embedding or a matrix of its own."""
    changes = {'model.d_model': 16, 'model.scale_logits': True, 'model.softmax_bias': True}
    m = resolve(config_dict({**changes, 'data.pieces': 300, 'model.tie_embeddings': tie})).model
    rng = np.random.default_rng(0)
    x, bias = rng.normal(size=(2, 16)).astype('f'), rng.normal(size=300).astype('f')
    embedding, own = rng.normal(size=(2, 300, 16)).astype('f')

    class Model(nn.Module):
        def setup(self):
            self.embedding = Embedding(m)
            self.logits = layers.Softmax(m, self.embedding)

        def __call__(self, x):
            return self.logits(x)

    has_matrix = tie in ('inputs', 'none')
    softmax = {'softmax_bias': bias} | ({'softmax': {'table': own}} if has_matrix else {})
    params = {'logits': softmax} | ({} if has_matrix else {'embedding': {'table': embedding}})
    found = Model().apply({'params': jax.tree.map(jnp.asarray, params)}, jnp.asarray(x))
    matrix = own if has_matrix else embedding
    np.testing.assert_allclose(found, x @ matrix.T / 4 + bias, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('norm', ['post', 'pre'])
def test_the_last_normalisation(norm):
    changes = {
        'model.vocab_size': 300,
        'data.pieces': 300,
        'model.d_model': 16,
        'model.N': 1,
        'model.d_ff': 8,
    }
    plain, final = (
        resolve(config_dict({**changes, 'model.norm': norm, 'model.norm_final': last}))
        for last in (False, True)
    )
    params = programs.initialize(plain, jax.random.key(0))
    rng = np.random.default_rng(0)
    parts = {name: jnp.asarray(rng.normal(size=16), jnp.float32) for name in ('scale', 'bias')}
    last = {side: {**params[side], 'final': {'norm': {'layer': parts}}} for side in ('encoder', 'decoder')}
    batch = jax.tree.map(jnp.asarray, models.blank(plain, 2, 5))
    encode = lambda config, params: programs.apply(config, params, batch['source'], 'encode').outputs
    x, found = encode(plain, params), encode(final, {**params, **last})
    unit = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(
        found, unit * parts['scale'][None, None] + parts['bias'][None, None], atol=1e-5
    )
    # By default with pre-norm alone.
    assert resolve(config_dict({**changes, 'model.norm': norm})).model.norm_final == (norm == 'pre')


def test_activations():
    x = np.linspace(-8, 8, 17)
    swish, gelu = layers.ACTIVATIONS['swish'](x), layers.ACTIVATIONS['gelu_tanh'](x)
    np.testing.assert_allclose(swish, x / (1 + np.exp(-x)), atol=1e-6)
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    np.testing.assert_allclose(gelu, x / 2 * (1 + np.tanh(inner)), atol=1e-6)
    np.testing.assert_array_equal(layers.ACTIVATIONS['relu'](x), np.maximum(0, x))
    quick = layers.ACTIVATIONS['quick_gelu'](x)
    np.testing.assert_allclose(quick, x / (1 + np.exp(-1.702 * x)), atol=1e-6)


def test_a_gate_with_gelu():
    config = resolve(config_dict({'model.d_model': 8, 'model.d_ff': 6, 'model.activation': 'geglu'}))
    rng = np.random.default_rng(0)
    x, shapes = rng.normal(size=(3, 8)).astype('f'), {'inner': (8, 6), 'gate': (8, 6), 'outer': (6, 8)}
    draw = lambda *shape: rng.normal(size=shape).astype('f')
    params = {name: {'kernel': draw(*shape), 'bias': draw(shape[1])} for name, shape in shapes.items()}
    linear = lambda name, x: x @ params[name]['kernel'] + params[name]['bias']
    inner = linear('inner', x)
    tanh = np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3))
    expected = linear('outer', inner / 2 * (1 + tanh) * linear('gate', x))
    params = jax.tree.map(jnp.asarray, params)
    found = layers.FeedForward(config.model).apply({'params': params}, jnp.asarray(x), train=False)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_dropout_keeps_the_mean():
    x = jnp.ones((1000, 101))
    found = Dropout(0.3).apply({}, x, train=True, rngs={'dropout': jax.random.key(0)})
    assert set(np.unique(found)) == {np.float32(0.0), np.float32(1 / 0.7)}
    assert float((found == 0).mean()) == pytest.approx(0.3, abs=0.006)
    # Neighbours, which share a random word, fall out independently.
    gone = np.asarray(found == 0).reshape(-1)
    assert float((gone[:-1:2] & gone[1::2]).mean()) == pytest.approx(0.09, abs=0.005)


def dropout_of(changes: dict[str, object]) -> list[tuple[str, float]]:
    """Lists the places of dropout in a model of one layer, and their rates."""
    small = {'model.N': 1, 'model.d_model': 16, 'data.pieces': 300}
    config, found = resolve(config_dict(small | changes)), []

    def record(call, args, kwargs, context):
        module = context.module
        if isinstance(module, Dropout) and context.method_name == Dropout.draw.__name__ and module.rate:
            found.append(('/'.join(module.path), module.rate))
        return call(*args, **kwargs)

    params, batch = models.parameter_shapes(config), jax.tree.map(jnp.asarray, models.blank(config))
    keys = {'dropout': jax.random.key(0)}
    apply = functools.partial(models.build(config).apply, train=True, rngs=keys)
    with nn.intercept_methods(record):
        jax.eval_shape(apply, {'params': params}, batch)
    return sorted(found)


SUBLAYERS = {
    'encoder': ('self_attention', 'feed_forward'),
    'decoder': ('self_attention', 'cross_attention', 'feed_forward'),
}


def test_where_dropout_is():
    """On each sub-layer's output, and on both sums of embeddings and positions (§5.4)."""
    expected = [f'{side}/layer_0/{name}_sublayer/Dropout_0' for side in SUBLAYERS for name in SUBLAYERS[side]]
    assert dropout_of({'model.h': 2}) == sorted((name, 0.1) for name in [*expected, 'dropout', 'dropout'])


OTHER_RATES = {'model.P_drop_attention': 0.2, 'model.P_drop_relu': 0.3, 'model.P_drop_embedding': 0.4}
RECURRENT = {'model.kind': 'recurrent', 'model.alignment': 'dot', 'model.P_drop_embedding': 0.4}
OF_RECURRENT = [
    ('decoder/layer_0/dropout/Dropout_0', 0.1),
    ('decoder/output_dropout/Dropout_0', 0.1),
    ('encoder/layer_0/forward/dropout/Dropout_0', 0.1),
    ('source_dropout/Dropout_0', 0.4),
    ('target_dropout/Dropout_0', 0.4),
]


@pytest.mark.parametrize(
    ('changes', 'expected'),
    [
        (
            DECODER | OTHER_RATES | {'model.h': 2},
            [
                ('decoder/layer_0/feed_forward/Dropout_0', 0.3),
                ('decoder/layer_0/feed_forward_sublayer/Dropout_0', 0.1),
                ('decoder/layer_0/self_attention/dropout', 0.2),
                ('decoder/layer_0/self_attention_sublayer/Dropout_0', 0.1),
                ('dropout', 0.4),
            ],
        ),
        (RECURRENT, OF_RECURRENT),
        (
            RECURRENT | {'model.variational_dropout': True},
            [
                ('decoder/layer_0/recurrent_dropout/Dropout_0', 0.1),
                ('encoder/layer_0/forward/recurrent_dropout/Dropout_0', 0.1),
                *OF_RECURRENT,
            ],
        ),
        (
            {'model.kind': 'convolutional', 'model.P_drop_embedding': 0.4},
            [
                ('decoder/dropout', 0.1),
                ('decoder/layer_0/block/dropout', 0.1),
                ('encoder/layer_0/dropout', 0.1),
                ('source_inputs/dropout', 0.4),
                ('target_inputs/dropout', 0.4),
            ],
        ),
    ],
    ids=['language', 'recurrent', 'variational', 'convolutional'],
)
def test_every_rate_of_dropout_has_its_places(changes, expected):
    assert dropout_of(changes) == sorted(expected)


@pytest.mark.parametrize(
    'changes', [{}, {'model.d_k': 8, 'model.d_v': 24, 'model.activation': 'swiglu'}, DECODER], ids=str
)
def test_flops_as_xla_counts_them(changes):
    sizes = {'model.N': 2, 'model.d_model': 64, 'model.d_ff': 256, 'model.h': 4}
    if changes is not DECODER:
        sizes['model.N_decoder'] = 3
    config = resolve(config_dict({**sizes, 'model.vocab_size': 400, 'data.pieces': 400, **changes}))
    rows, source, target = 4, 24, 32
    lengths = {'source': source, 'target': target, 'text': target}
    batch = {
        field: Tokens(*[jnp.zeros((rows, lengths[field]), jnp.int32)] * 3)
        for field in models.build(config).FIELDS
    }
    model, params = models.build(config), models.parameter_shapes(config)

    def loss(params, batch):
        # Not linear, or the gradient would not need the last product forward.
        return jnp.square(model.apply({'params': params}, batch, train=False)).sum()

    forward = cost.forward_cost(config, batch).flops
    for function, formula in ((loss, forward), (jax.grad(loss), 3 * forward)):
        counted = jax.jit(function).lower(params, batch).cost_analysis()['flops']
        # XLA counts elementwise work too, which is much in a model this small.
        assert 0.98 * formula < counted < 1.15 * formula


def test_the_gradient_of_a_product():
    rng = np.random.default_rng(0)
    x, kernel, back = (rng.normal(size=shape) for shape in ((2, 3, 5), (5, 7), (2, 3, 7)))
    found, gradient = jax.vjp(matmul.product, jnp.asarray(x), jnp.asarray(kernel))
    of_x, of_kernel = gradient(jnp.asarray(back))
    np.testing.assert_allclose(found, x @ kernel, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(of_x, back @ kernel.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(of_kernel, np.einsum('BTD,BTF->DF', x, back), rtol=1e-5, atol=1e-6)


def test_the_gradient_of_an_affine_map_from_and_to_heads():
    rng = np.random.default_rng(0)
    x, kernel, bias = (rng.normal(size=shape) for shape in ((2, 3, 4, 5), (4, 5, 6, 7), (6, 7)))
    back = rng.normal(size=(2, 3, 6, 7))
    mapped = lambda *arrays: matmul.affine(*arrays, 2)
    found, gradient = jax.vjp(mapped, *map(jnp.asarray, (x, kernel, bias)))
    np.testing.assert_allclose(found, np.einsum('BTHC,HCKE->BTKE', x, kernel) + bias, rtol=1e-5, atol=1e-5)
    expected = (
        np.einsum('BTKE,HCKE->BTHC', back, kernel),
        np.einsum('BTHC,BTKE->HCKE', x, back),
        back.sum((0, 1)),
    )
    for ours, theirs in zip(gradient(jnp.asarray(back)), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    # On a TPU a product sums the rows.
    np.testing.assert_allclose(matmul.sum_by_product(jnp.asarray(back), 2), expected[2], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('epsilon', [1e-6, 0.1])
@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_the_gradient_of_layer_norm(dtype, epsilon):
    rng = np.random.default_rng(0)
    x = jnp.asarray(3 + 2 * rng.normal(size=(2, 3, 8)), dtype)
    back = jnp.asarray(rng.normal(size=(2, 3, 8)), dtype)
    parameters = {name: jnp.asarray(rng.normal(size=8), jnp.float32) for name in ('scale', 'bias')}
    flax = nn.LayerNorm(epsilon=epsilon, dtype=jnp.dtype(dtype), use_fast_variance=False)
    results = []
    for module in (layers.LayerNorm(dtype, epsilon), flax):
        normalise = lambda parameters, x: module.apply({'params': parameters}, x)
        found, gradient = jax.vjp(normalise, parameters, x)
        assert found.dtype == x.dtype
        results.append((found, *gradient(back)))
    tolerance = {'float32': 1e-5, 'bfloat16': 2e-2}[dtype]
    for ours, theirs in zip(*map(jax.tree.leaves, results), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(*(np.asarray(a, np.float32) for a in (ours, theirs)), tolerance, tolerance)


@pytest.mark.parametrize(('offset', 'most'), [(0.0, 1e-6), (1.0, 1e-6), (10.0, 3e-5), (100.0, 3e-3)])
def test_what_a_variance_in_one_pass_loses(offset, most):
    """Of float32 rows of deviation 1, with a mean up to 100 times the deviation."""
    x = (offset + np.random.default_rng(0).normal(size=(64, 512))).astype(np.float32)
    found = layers.variance_in_one_pass(x, jnp.mean(x, axis=-1, keepdims=True))[:, 0]
    expected = x.astype(np.float64).var(axis=-1)
    assert (abs(found - expected) <= most * expected).all()


def test_the_variance_of_equal_numbers_is_not_negative():
    x = jnp.asarray(np.random.default_rng(0).uniform(1, 1000, size=(256, 1)), jnp.float32)
    x = jnp.broadcast_to(x, (256, 48))
    found = layers.variance_in_one_pass(x, jnp.mean(x, axis=-1, keepdims=True))
    assert (found >= 0).all()


@pytest.mark.parametrize('eps_ls', [0.0, 0.1])
@pytest.mark.parametrize('known', [False, True])
@pytest.mark.parametrize('most', [1, 3, 6, 10**6])
def test_the_gradients_of_the_loss_by_chunks(eps_ls, known, most):
    """With the largest logits found among them and, as on a TPU, with shifts that are known before."""
    rng = np.random.default_rng(0)
    # One logit is so large that its exponential is infinite.
    x, table = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((12, 5), (7, 5)))
    x = x.at[0].mul(100.0)
    target, weights = (
        jnp.asarray(rng.integers(7, size=12)),
        jnp.asarray(rng.integers(3, size=12), jnp.float32),
    )

    def loss(x, table):
        sums = losses.cross_entropy_sums(x @ table.T, target, weights, eps_ls)
        return sums['loss'], sums

    (_, expected), gradients = jax.value_and_grad(loss, (0, 1), has_aux=True)(x, table)
    shift = losses.shifts(most, x, table) if known else None
    found, ours = losses.sums_and_gradients(eps_ls, most, shift, x, table, target, weights)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5)
    for mine, theirs in zip(ours, gradients, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('eps_ls', [0.0, 0.1])
@pytest.mark.parametrize('most', [7, 3 * 7, 6 * 7, 10**6])
def test_the_loss_by_chunks_is_that_of_all_logits(monkeypatch, eps_ls, most):
    monkeypatch.setattr(losses, 'CHUNK_LOGITS', most)
    rng = np.random.default_rng(0)
    x, table = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((4, 3, 5), (7, 5)))
    target = jnp.asarray(rng.integers(7, size=(4, 3)))
    weights = jnp.asarray(rng.integers(2, size=(4, 3)), jnp.float32)

    def whole(x, table):
        return losses.cross_entropy_sums(jnp.einsum('BTD,VD->BTV', x, table), target, weights, eps_ls)

    def by_chunks(x, table):
        return losses.cross_entropy_sums_of_product(x, table, target, weights, eps_ls)

    for name, expected in whole(x, table).items():
        np.testing.assert_allclose(by_chunks(x, table)[name], expected, rtol=1e-5)
    loss = lambda function: lambda *factors: 3.0 * function(*factors)['loss']
    (expected, gradient), (found, ours) = (
        jax.value_and_grad(loss(function), (0, 1))(x, table) for function in (whole, by_chunks)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for mine, theirs in zip(ours, gradient, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_the_loss_never_holds_all_logits(monkeypatch):
    monkeypatch.setattr(losses, 'CHUNK_LOGITS', 64 * 1000)
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((64, 16, 8), (1000, 8))]
    labels = jnp.zeros((64, 16), jnp.int32), jnp.ones((64, 16))
    loss = lambda x, table: losses.cross_entropy_sums_of_product(x, table, *labels, 0.1)['loss']
    found = jax.jit(jax.grad(loss, (0, 1))).lower(*shapes).compile().memory_analysis()
    # Of 16 chunks, with what softmax needs besides.
    assert found.temp_size_in_bytes < 4 * 64 * 16 * 1000 / 4
