"""Every attention kernel against its definition: outputs, gradients, borders, memory."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from transformer import config as configs
from transformer.config import ConfigError, Model, config_dict, resolve
from transformer.nn import cache, cost, layers
from transformer.nn.kernels import chunked, flash, full, local, sparse
from transformer.nn.kernels.kernel import KEEP_ALL
from transformer.nn.kernels.table import KERNELS, self_attention

H, C, E = 2, 4, 3
# Two rows of two and three segments; the first ends in padding.
SEGMENTS = np.array([[1] * 4 + [2] * 5 + [0] * 2, [1] * 1 + [2] * 3 + [3] * 7], np.int32)
T = SEGMENTS.shape[1]
REAL = SEGMENTS > 0
# No size divides the length of a row.
MODELS = [
    Model(attention='full'),
    Model(attention='local', attention_window=1),
    Model(attention='local', attention_window=4),
    Model(attention='sparse', attention_stride=2),
    Model(attention='sparse', attention_stride=4),
    Model(attention='linear', attention_chunk=3),
    Model(attention='linear', attention_chunk=100),
    Model(attention='chunked', attention_chunk=3),
    Model(attention='chunked', attention_chunk=4),
]


def name(model: Model) -> str:
    window, stride, chunk = model.attention_window, model.attention_stride, model.attention_chunk
    return f'{model.attention}-{window}-{stride}-{chunk}'


def arrays(length: int = T, rows: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return tuple(rng.normal(size=(rows, length, H, d)).astype(np.float32) for d in (C, C, E))


def defined(model: Model, query, key, value, *, causal: bool) -> np.ndarray:
    """Attention one query at a time, from the definition of each kernel."""
    found = np.zeros((*query.shape[:3], E))
    for b, i, h in np.ndindex(*query.shape[:3]):
        distance = i - np.arange(T)
        seen = SEGMENTS[b] == SEGMENTS[b, i]
        if causal:
            seen &= distance >= 0
        if model.attention == 'local':
            seen &= abs(distance) <= model.attention_window
        if model.attention == 'sparse':
            seen &= (abs(distance) < model.attention_stride) | (distance % model.attention_stride == 0)
        if model.attention == 'linear':
            phi = lambda x: np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))
            weights = phi(query[b, i, h]) @ phi(key[b, :, h]).T * seen
        else:
            weights = np.exp(query[b, i, h] @ key[b, :, h].T / np.sqrt(C)) * seen
        found[b, i, h] = weights / weights.sum() @ value[b, :, h]
    return found


@functools.partial(jax.jit, static_argnums=(0, 4))
def outputs_and_gradients(kernel, query, key, value, causal):
    """The outputs, and the gradients of a function of those that are not padding."""

    segments = jnp.asarray(SEGMENTS)

    def score(query, key, value):
        found = kernel.attend(query, key, value, segments, segments, None, KEEP_ALL, causal=causal)
        return jnp.sum(jnp.sin(found) * REAL[:, :, None, None]), found

    (_, found), gradients = jax.value_and_grad(score, argnums=(0, 1, 2), has_aux=True)(query, key, value)
    return found, gradients


def by_definition(kernel):
    """The kernel with all its weights in memory."""

    def attend(query, key, value, queries, keys, bias, drop, *, causal):
        del drop
        weights = kernel.weights(query, key, queries, keys, bias, causal=causal)
        return jnp.einsum('BHQK,BKHE->BQHE', weights, value)

    return kernel._replace(attend=attend)


@pytest.mark.parametrize('causal', [True, False])
@pytest.mark.parametrize('model', MODELS, ids=name)
def test_outputs_and_gradients_are_those_of_the_definition(model, causal):
    kernel, inputs = self_attention(model), arrays()
    found, gradients = outputs_and_gradients(kernel, *inputs, causal)
    expected = defined(model, *inputs, causal=causal)
    np.testing.assert_allclose(np.asarray(found)[REAL], expected[REAL], rtol=1e-5, atol=1e-5)
    quadratic, of_quadratic = outputs_and_gradients(by_definition(kernel), *inputs, causal)
    np.testing.assert_allclose(np.asarray(quadratic)[REAL], expected[REAL], rtol=1e-5, atol=1e-5)
    for mine, other in zip(gradients, of_quadratic, strict=True):
        assert np.abs(other).max() > 0.1
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


def test_full_attention_has_the_gradient_of_dropped_weights_and_a_bias():
    """Of all outputs: also of queries whose segment has no key."""
    query, key, value = map(jnp.asarray, arrays())
    bias = jax.random.normal(jax.random.key(1), (2, H, T, T))
    queries = jnp.asarray(SEGMENTS).at[0, 1].set(9)

    def gradients(attend):
        score = lambda *given: jnp.sum(jnp.sin(attend(*given)))
        return jax.jit(jax.grad(score, argnums=(0, 1, 2, 3)))(query, key, value, bias)

    def defined(query, key, value, bias):
        weights = full.weights(query, key, queries, jnp.asarray(SEGMENTS), bias, causal=True)
        return jnp.einsum('BHQK,BKHE->BQHE', drop(weights), value)

    def attended(query, key, value, bias):
        return full.attend(query, key, value, queries, jnp.asarray(SEGMENTS), bias, drop, causal=True)

    dropout = layers.Dropout(0.4)
    drop = dropout.bind({}, rngs={'dropout': jax.random.key(2)}).drawn(train=True)
    found, expected = gradients(attended), gradients(defined)
    for mine, other in zip(found, expected, strict=True):
        assert np.abs(other).max() > 0.1
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize('scale, most', [(1.0, 0.005), (3.0, 0.011)])
def test_gradients_of_full_attention_in_bfloat16(scale, most):
    """Against float32: the norm of the error, of flat and of sharp weights with dropout."""
    draw = np.random.default_rng(0)
    heads = [jnp.asarray(draw.normal(size=(2, 64, 4, 32)), jnp.bfloat16) for _ in range(4)]
    query, key, value, back = scale * heads[0], scale * heads[1], *heads[2:]
    segments = jnp.ones((2, 64), jnp.int32)
    drop = layers.Dropout(0.1).bind({}, rngs={'dropout': jax.random.key(0)}).drawn(train=True)

    @jax.jit
    def gradients(query, key, value, back):
        attend = lambda *given: full.attend(*given, segments, segments, None, drop, causal=True)
        return jax.vjp(attend, query, key, value)[1](back)

    found = gradients(query, key, value, back)
    expected = gradients(*(x.astype(jnp.float32) for x in (query, key, value, back)))
    for mine, exact in zip(found, expected, strict=True):
        assert mine.dtype == jnp.bfloat16
        error = np.linalg.norm(np.asarray(mine, np.float32) - exact) / np.linalg.norm(exact)
        assert 0 < error < most


@pytest.mark.parametrize('causal', [True, False])
@pytest.mark.parametrize(
    'model',
    [
        Model(attention='local', attention_window=T),
        Model(attention='local', attention_window=T - 1),
        Model(attention='sparse', attention_stride=T),
        Model(attention='chunked', attention_chunk=3),
    ],
    ids=name,
)
def test_what_reaches_everything_is_full_attention(model, causal):
    found, gradients = outputs_and_gradients(self_attention(model), *arrays(), causal)
    expected, of_full = outputs_and_gradients(full.FULL, *arrays(), causal)
    np.testing.assert_allclose(np.asarray(found)[REAL], np.asarray(expected)[REAL], rtol=1e-5, atol=1e-5)
    for mine, other in zip(gradients, of_full, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('model', MODELS, ids=name)
def test_steps_give_what_a_causal_row_gives(model):
    model = Model(**{**model.__dict__, 'h': H, 'd_k': C, 'd_v': E})
    kernel, (query, key, value) = self_attention(model), arrays()
    segments = jnp.ones((2, T), jnp.int32)

    @jax.jit
    def both(query, key, value):
        row = kernel.attend(query, key, value, segments, segments, None, KEEP_ALL, causal=True)
        state, found = kernel.empty(model, 2, T), []
        for i in range(T):
            one = (x[:, i : i + 1] for x in (query, key, value))
            output, state = kernel.attend_one(*one, state, jnp.full(2, i), None)
            found.append(output)
        return row, jnp.concatenate(found, axis=1), state

    row, steps, state = both(query, key, value)
    np.testing.assert_allclose(steps, row, rtol=1e-5, atol=1e-5)
    if model.attention == 'local':
        assert state['cache'].key.shape[3] == model.attention_window + 1
    if model.attention == 'linear':
        assert state['matrix'].shape == (2, H, C, E)


def test_hypotheses_of_a_sentence_share_a_cache():
    state = cache.spread(full.FULL.empty(Model(h=H, d_k=C, d_v=E), 2, T), 3)
    assert [x.shape for x in state['cache']] == [(2, H, C, 3 * T), (2, H, 3 * T, E)]
    assert state['writers'].shape == (6, T)
    # Nothing is moved when others go on.
    assert cache.continued(state, jnp.array([1, 1, 0, 5, 4, 4]))['cache'] is state['cache']


def test_dropout_reaches_the_weights_of_local_and_sparse_attention():
    for model in (
        Model(attention='local', attention_window=2),
        Model(attention='sparse', attention_stride=2),
    ):
        query, key, value, segments = map(jnp.asarray, (*arrays(), SEGMENTS))
        attend = functools.partial(self_attention(model).attend, query, key, value, segments, segments, None)
        assert not np.any(attend(jnp.zeros_like, causal=True))
        doubled = attend(jax.tree_util.Partial(lambda weights: 2 * weights), causal=True)
        np.testing.assert_allclose(doubled, 2 * attend(KEEP_ALL, causal=True), rtol=1e-5)


def temporaries(kernel, length: int) -> int:
    """Bytes that XLA allocates beside inputs and outputs for a forward and backward pass."""

    def score(query, key, value):
        segments = jnp.ones((1, length), jnp.int32)
        return kernel.attend(query, key, value, segments, segments, None, KEEP_ALL, causal=True).sum()

    shapes = [jax.ShapeDtypeStruct((1, length, 1, 64), jnp.float32)] * 3
    compiled = jax.jit(jax.grad(score, argnums=(0, 1, 2))).lower(*shapes).compile()
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize(
    'model',
    [
        Model(attention='local', attention_window=64),
        Model(attention='sparse', attention_stride=64),
        Model(attention='linear', attention_chunk=64),
        Model(attention='chunked', attention_chunk=64),
    ],
    ids=name,
)
def test_memory_does_not_grow_with_the_square_of_the_length(model):
    length = 4096
    assert temporaries(self_attention(model), length) < 4 * length**2 / 2 < temporaries(full.FULL, length)


def test_flash_lowers_for_a_tpu():
    shapes = [jax.ShapeDtypeStruct((2, 200, 2, 64), jnp.float32)] * 3
    segments = jnp.ones((2, 200), jnp.int32)

    def score(query, key, value):
        return flash.FLASH.attend(query, key, value, segments, segments, None, KEEP_ALL, causal=True).sum()

    lowered = jax.jit(jax.grad(score, argnums=(0, 1, 2))).trace(*shapes).lower(lowering_platforms=('tpu',))
    assert 'tpu_custom_call' in lowered.as_text()


def test_the_table_has_every_choice():
    choices = configs.options.choices(configs.OPTIONS['model.attention'])
    assert set(KERNELS) == set(choices)
    assert {chunked.attend, local.attend, sparse.attend}.isdisjoint({full.attend})


@pytest.mark.parametrize(
    ('changes', 'said'),
    [
        ({'model.attention': 'local', 'model.positions': 'relative'}, "'local': positions='relative'"),
        ({'model.attention': 'linear', 'model.P_drop_attention': 0.1}, 'P_drop_attention=0.1'),
        ({'model.attention': 'chunked', 'model.P_drop_attention': 0.1}, 'P_drop_attention=0.1'),
        ({'model.attention': 'flash', 'model.d_v': 32}, 'model.d_k=64'),
        ({'model.attention_window': 8}, "means nothing with model.attention='full'"),
        ({'model.attention': 'local', 'model.attention_stride': 8}, 'means nothing with model.attention'),
    ],
)
def test_what_a_kernel_cannot_have_is_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        resolve(config_dict(changes))


def test_flash_is_refused_where_no_device_has_it():
    config = resolve(config_dict({'model.attention': 'flash'}))
    configs.check_platform(config, 'tpu')
    with pytest.raises(ConfigError, match="'chunked' computes the same"):
        configs.check_platform(config, 'cpu')
    assert configs.portable(config, 'cpu').model.attention == 'chunked'
    assert configs.portable(config, 'tpu') == config


@pytest.mark.parametrize(
    ('changes', 'each'),
    [
        ({'model.attention': 'full'}, 128 * 128),
        ({'model.attention': 'chunked'}, 128 * 128),
        ({'model.attention': 'local', 'model.attention_window': 8}, 128 * 17),
        ({'model.attention': 'sparse', 'model.attention_stride': 8}, 128 * (15 + 16)),
    ],
)
def test_operations_of_a_layer(changes, each):
    """A query and a key, or their stand-in, cost 64 multiply-adds for the logit and 64 for the mean."""
    models = [resolve(config_dict({**changes, 'model.N': n, 'model.N_decoder': 1})).model for n in (1, 2)]
    one, two = (cost.forward_flops(model, 1, 128, 128) for model in models)
    rest = 128 * (4 * 512 * 512 + 2 * 512 * 2048)
    assert (two - one) / 2 == rest + 8 * (64 + 64) * each


def test_a_causal_query_reaches_keys_on_one_side():
    attended = lambda **changes: cost._attended(Model(h=1, d_k=64, d_v=64, **changes), 128, causal=True)
    assert attended(attention='local', attention_window=8) == 9 * (64 + 64)
    assert attended(attention='sparse', attention_stride=8) == (8 + 16) * (64 + 64)


@pytest.mark.parametrize(('causal', 'chunk'), [(True, 8), (False, 8), (True, 128)])
def test_operations_of_linear_attention_are_those_of_its_products(causal, chunk):
    """Against the products in the traced program of a whole number of chunks."""
    model = Model(attention='linear', attention_chunk=chunk)
    length, heads, c, e = 64, 3, 16, 8
    shapes = [(1, length, heads, c), (1, length, heads, c), (1, length, heads, e)]
    inputs = [jnp.ones(shape) for shape in shapes]
    segments = jnp.ones((1, length), jnp.int32)
    attend = functools.partial(self_attention(model).attend, causal=causal)
    traced = jax.make_jaxpr(lambda *x: attend(*x, segments, segments, None, KEEP_ALL))(*inputs)
    sized = dataclasses.replace(model, h=heads, d_k=c, d_v=e)
    assert products(traced.jaxpr) == length * cost._attended(sized, length, causal=causal)


def products(jaxpr) -> int:
    """Multiply-adds of the matrix products of a program, the trips of its scans counted."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == 'dot_general':
            (contracted, _), _ = equation.params['dimension_numbers']
            left = equation.invars[0].aval.shape
            total += equation.outvars[0].aval.size * math.prod(left[axis] for axis in contracted)
        trips = equation.params['length'] if equation.primitive.name == 'scan' else 1
        for inner in jaxprs_in_params(equation.params):
            total += trips * products(inner)
    return total


def test_linear_attention_keeps_its_digits_where_all_features_are_small():
    """elu(x) + 1 is exp(x) there; rows and steps agree, also where even that is below the least number."""
    kernel = self_attention(Model(attention='linear', attention_chunk=3))
    query, key, value = arrays()
    for shift in (12.0, 20.0, 200.0):
        low = [jnp.asarray(x - shift) for x in (query, key)]
        row = kernel.attend(
            *low, jnp.asarray(value), *[jnp.ones((2, T), jnp.int32)] * 2, None, KEEP_ALL, causal=True
        )
        state, steps = kernel.empty(Model(h=H, d_k=C, d_v=E), 2, T), []
        for i in range(T):
            one = (x[:, i : i + 1] for x in (*low, jnp.asarray(value)))
            output, state = kernel.attend_one(*one, state, jnp.full(2, i), None)
            steps.append(output)
        np.testing.assert_allclose(jnp.concatenate(steps, axis=1), row, rtol=1e-5, atol=1e-5)
        if shift < 100:
            features = [np.exp(np.asarray(x, np.float64) - shift) for x in (query, key)]
            weights = np.einsum('BQHC,BKHC->BHQK', *features) * np.tril(np.ones((T, T)))
            weights /= weights.sum(axis=-1, keepdims=True)
            expected = np.einsum('BHQK,BKHE->BQHE', weights, value)
            np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-5)
