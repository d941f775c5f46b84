"""Every attention kernel against its definition: outputs, gradients, borders, memory."""

import functools
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer import config as configs
from transformer.config import ConfigError, Model, config_dict, declare, resolve
from transformer.nn import cache, cost, layers, models
from transformer.nn.kernels import chunked, flash, full, local, short, sparse
from transformer.nn.kernels.kernel import KEEP_ALL, AttentionInputs, Token
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
    """Computes attention one query at a time, from the definition of each kernel."""
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
    """Computes the outputs, and the gradients of a function of the outputs that are not padding."""

    segments = jnp.asarray(SEGMENTS)

    def score(query, key, value):
        found = kernel.attend(AttentionInputs(query, key, value, segments, segments), causal=causal)
        return jnp.sum(jnp.sin(found) * REAL[:, :, None, None]), found

    (_, found), gradients = jax.value_and_grad(score, argnums=(0, 1, 2), has_aux=True)(query, key, value)
    return found, gradients


def by_definition(kernel):
    """Returns the kernel with all its weights in memory."""

    def attend(rows, *, causal):
        return jnp.einsum('BHQK,BKHE->BQHE', kernel.weights(rows, causal=causal), rows.value)

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


@pytest.mark.parametrize('size', [1, 3, 5])
def test_parts_of_causal_rows_are_attended_to_as_the_whole(size, monkeypatch):
    """The last part is shorter, unless the parts have one position."""
    inputs = arrays()
    whole, of_whole = outputs_and_gradients(by_definition(full.FULL), *inputs, True)
    monkeypatch.setattr(full, '_PART', size)
    # Another kernel for jit, which has kept the program of the usual size.
    in_parts = full.FULL._replace(attend=lambda rows, causal: full.attend(rows, causal))
    found, gradients = outputs_and_gradients(in_parts, *inputs, True)
    np.testing.assert_allclose(np.asarray(found)[REAL], np.asarray(whole)[REAL], rtol=1e-5, atol=1e-5)
    for mine, other in zip(gradients, of_whole, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ('length', 'changes', 'keys'),
    [
        (512, {}, [256, 512]),
        (600, {}, [256, 512, 600]),
        (511, {}, [511]),
        (512, {'causal': False}, [512]),
        (512, {'bias': True}, [512]),
        (512, {'drop': jax.tree_util.Partial(lambda x: 2.0 * x)}, [512]),
    ],
    ids=['two parts', 'a shorter part', 'short', 'both directions', 'bias', 'dropout'],
)
def test_a_part_of_a_long_causal_row_reads_no_key_beyond_it(length, changes, keys):
    segments = jnp.ones((1, length), jnp.int32)
    bias = jnp.zeros((1, 2, length, length)) if changes.get('bias') else None
    rows = AttentionInputs(*[jnp.zeros((1, length, 2, 8))] * 3, segments, segments, bias)
    rows = rows._replace(drop=changes.get('drop', KEEP_ALL))
    traced = jax.make_jaxpr(lambda rows: full.attend(rows, changes.get('causal', True)))(rows)
    attentions = [e for e in traced.eqns if e.primitive.name == 'custom_vjp_call']
    assert [e.invars[1].aval.shape[1] for e in attentions] == keys


def test_full_attention_has_the_gradient_of_dropped_weights_and_a_bias():
    """Of all outputs: also of queries whose segment has no key."""
    query, key, value = map(jnp.asarray, arrays())
    bias = jax.random.normal(jax.random.key(1), (2, H, T, T))
    queries = jnp.asarray(SEGMENTS).at[0, 1].set(9)

    def gradients(attend):
        score = lambda *given: jnp.sum(jnp.sin(attend(*given)))
        return jax.jit(jax.grad(score, argnums=(0, 1, 2, 3)))(query, key, value, bias)

    def defined(query, key, value, bias):
        weights = full.weights(
            AttentionInputs(query, key, value, queries, jnp.asarray(SEGMENTS), bias), causal=True
        )
        return jnp.einsum('BHQK,BKHE->BQHE', drop(weights), value)

    def attended(query, key, value, bias):
        return full.attend(
            AttentionInputs(query, key, value, queries, jnp.asarray(SEGMENTS), bias, drop), causal=True
        )

    dropout = layers.Dropout(0.4)
    drop = dropout.bind({}, rngs={'dropout': jax.random.key(2)}).draw(train=True)
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
    drop = layers.Dropout(0.1).bind({}, rngs={'dropout': jax.random.key(0)}).draw(train=True)

    @jax.jit
    def gradients(query, key, value, back):
        attend = lambda *heads: full.attend(
            AttentionInputs(*heads, segments, segments, None, drop), causal=True
        )
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
        row = kernel.attend(AttentionInputs(query, key, value, segments, segments), causal=True)
        state, found = kernel.empty(model, 2, T), []
        for i in range(T):
            one = (x[:, i : i + 1] for x in (query, key, value))
            output, state = kernel.attend_one(Token(*one, jnp.full(2, i)), state)
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
    assert cache.follow(state, jnp.array([1, 1, 0, 5, 4, 4]))['cache'] is state['cache']


@pytest.mark.parametrize('with_bias', [False, True])
def test_heads_side_by_side_attend_as_heads_apart(with_bias):
    """A cache in bfloat16 has another order of axes than one in float32."""
    model = Model(h=H, d_k=C, d_v=E, dtype='bfloat16')
    together = cache.spread(full.FULL.empty(model, 2, T), 3)
    assert [x.shape for x in together['cache']] == [(2, 3 * T, H * C), (2, 3 * T, H * E)]
    # In float32 here, to compare closely.
    together = jax.tree.map(lambda x: x if x.dtype == jnp.int32 else x.astype(jnp.float32), together)
    apart = cache.spread(full.FULL.empty(Model(h=H, d_k=C, d_v=E), 2, T), 3)
    rng, step = np.random.default_rng(0), jax.jit(full.FULL.attend_one)
    for i in range(5):
        bias = jnp.asarray(rng.normal(size=(6, H, 1, T)), jnp.float32) if with_bias else None
        token = Token(*(x[:, i : i + 1] for x in arrays(rows=6)), jnp.full(6, i), bias)
        found, together = step(token, together)
        expected, apart = step(token, apart)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        rows = jnp.array([1, 1, 0, 5, 4, 4])
        together, apart = cache.follow(together, rows), cache.follow(apart, rows)
    for flat, by_heads, axis in zip(together['cache'], apart['cache'], (3, 2), strict=True):
        in_order = jnp.moveaxis(by_heads, axis, 1).reshape(flat.shape)
        np.testing.assert_array_equal(flat, in_order)


@pytest.mark.parametrize('model', MODELS, ids=name)
def test_steps_in_bfloat16_give_what_a_causal_row_gives(model):
    model = Model(**{**model.__dict__, 'h': H, 'd_k': C, 'd_v': E, 'dtype': 'bfloat16'})
    kernel, (query, key, value) = self_attention(model), (jnp.asarray(x, 'bfloat16') for x in arrays())
    segments, state, found = jnp.ones((2, T), jnp.int32), kernel.empty(model, 2, T), []
    step = jax.jit(kernel.attend_one)
    for i in range(T):
        one = (x[:, i : i + 1] for x in (query, key, value))
        output, state = step(Token(*one, jnp.full(2, i)), state)
        found.append(output)
    whole = jax.jit(functools.partial(kernel.attend, causal=True))
    row = whole(AttentionInputs(query, key, value, segments, segments))
    steps = jnp.concatenate(found, axis=1)
    assert steps.dtype == row.dtype == jnp.bfloat16
    np.testing.assert_allclose(steps.astype(jnp.float32), row.astype(jnp.float32), rtol=0.02, atol=0.02)


def test_dropout_reaches_the_weights_of_local_and_sparse_attention():
    for model in (
        Model(attention='local', attention_window=2),
        Model(attention='sparse', attention_stride=2),
    ):
        query, key, value, segments = map(jnp.asarray, (*arrays(), SEGMENTS))
        rows = AttentionInputs(query, key, value, segments, segments)
        attend = jax.jit(lambda drop: self_attention(model).attend(rows._replace(drop=drop), causal=True))
        assert not np.any(attend(jax.tree_util.Partial(jnp.zeros_like)))
        doubled = attend(jax.tree_util.Partial(lambda weights: 2 * weights))
        np.testing.assert_allclose(doubled, 2 * attend(KEEP_ALL), rtol=1e-5)


@functools.cache
def temporaries(kernel, length: int) -> int:
    """Bytes that XLA allocates beside inputs and outputs for a forward and backward pass."""

    def score(query, key, value):
        segments = jnp.ones((1, length), jnp.int32)
        return kernel.attend(AttentionInputs(query, key, value, segments, segments), causal=True).sum()

    shapes = [jax.ShapeDtypeStruct((1, length, 1, 64), jnp.float32)] * 3
    compiled = jax.jit(jax.grad(score, argnums=(0, 1, 2))).lower(*shapes).compile()
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.cpu
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


def test_sums_over_chunks_are_not_rounded():
    """In bfloat16, chunks of keys are as exact as all keys at once."""
    draw = np.random.default_rng(0)
    rows = [jnp.asarray(draw.normal(size=(1, 512, 2, 32)), jnp.bfloat16) for _ in range(3)]
    segments = jnp.ones((1, 512), jnp.int32)
    inputs = AttentionInputs(*rows, segments, segments)
    exact = full.attend(AttentionInputs(*(x.astype('f') for x in rows), segments, segments), causal=False)
    error = lambda found: float(jnp.sqrt(jnp.mean(jnp.square(found.astype('f') - exact))))
    at_once = error(full.attend(inputs, causal=False))
    assert 0 < error(chunked.attend(inputs, causal=False, chunk=16)) < 1.05 * at_once


@pytest.mark.cpu
def test_flash_lowers_for_a_tpu():
    shapes = [jax.ShapeDtypeStruct((2, 200, 2, 64), jnp.float32)] * 3
    segments = jnp.ones((2, 200), jnp.int32)

    def score(query, key, value):
        return flash.FLASH.attend(AttentionInputs(query, key, value, segments, segments), causal=True).sum()

    lowered = jax.jit(jax.grad(score, argnums=(0, 1, 2))).trace(*shapes).lower(lowering_platforms=('tpu',))
    assert 'tpu_custom_call' in lowered.as_text()


@pytest.mark.parametrize(
    ('length', 'width', 'causal', 'block'),
    [(128, 16, True, 1024), (200, 64, False, 1024), (640, 32, True, 1024), (512, 32, True, 256)],
)
def test_the_kernel_of_tpus_computes_full_attention(length, width, causal, block, monkeypatch):
    """Interpreted: rows of two sentences and padding, of one or two blocks, also padded ones, in float32."""
    monkeypatch.setattr(flash, '_TPU_BLOCK', block)
    rng = np.random.default_rng(0)
    query, key, value = (jnp.asarray(rng.normal(size=(2, length, 2, width)), jnp.float32) for _ in range(3))
    segments = np.ones((2, length), np.int32)
    segments[:, length // 3 :], segments[1, length - 20 :] = 2, 0
    rows = AttentionInputs(query, key, value, jnp.asarray(segments), jnp.asarray(segments))
    splash = functools.partial(flash.splash, interpret=True)
    results = (of_rows(attend, rows, causal) for attend in (full.attend, splash))
    for expected, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def of_rows(attend: Callable, rows: AttentionInputs, causal: bool) -> list[np.ndarray]:
    """Computes the outputs that are not padding, and the gradients of a function of them."""
    is_real = (rows.query_segments > 0)[..., None, None]

    def score(*inputs):
        outputs = attend(AttentionInputs(*inputs, *rows[3:5]), causal=causal).astype(jnp.float32)
        outputs = jnp.where(is_real, outputs, 0.0)
        return jnp.sum(jnp.sin(outputs)), outputs

    differentiate = jax.jit(jax.value_and_grad(score, (0, 1, 2), has_aux=True))
    (_, outputs), gradients = differentiate(*rows[:3])
    return [np.asarray(x, np.float32) for x in (outputs, *gradients)]


@pytest.mark.skipif(jax.default_backend() != 'gpu', reason='needs a GPU')
@pytest.mark.parametrize('causal', [True, False])
@pytest.mark.parametrize('length', [128, 200, 65])
def test_the_kernel_of_gpus_computes_full_attention(length, causal):
    """Rows of two sentences and padding, in bfloat16, beside full attention to the same numbers."""
    rng = np.random.default_rng(0)
    inputs = [jnp.asarray(rng.normal(size=(2, length, 2, 64)), jnp.bfloat16) for _ in range(3)]
    segments = np.ones((2, length), np.int32)
    segments[:, length // 3 :], segments[1, length - 20 :] = 2, 0
    same = jnp.asarray(segments)
    exact = [x.astype(jnp.float32) for x in inputs]
    expected = of_rows(full.attend, AttentionInputs(*exact, same, same), causal)
    found = of_rows(flash.attend, AttentionInputs(*inputs, same, same), causal)
    for theirs, ours in zip(expected, found, strict=True):
        assert np.linalg.norm(ours - theirs) < 1e-2 * np.linalg.norm(theirs)


@pytest.mark.parametrize('causal', [True, False])
def test_the_kernel_of_gpus_gets_rows_of_even_lengths(monkeypatch, causal):
    """By the same function without the kernel."""
    asked, attend = [], jax.nn.dot_product_attention

    def plain(query, *others, mask, implementation):
        asked.append((query.shape[1], implementation))
        return attend(query, *others, mask=mask)

    monkeypatch.setattr(jax.nn, 'dot_product_attention', plain)
    rng, segments = np.random.default_rng(0), np.ones((2, 9), np.int32)
    segments[:, 4:], segments[1, 7:] = 2, 0
    inputs = [jnp.asarray(rng.normal(size=(2, 9, 2, 8)), jnp.float32) for _ in range(3)]
    rows = AttentionInputs(*inputs, jnp.asarray(segments), jnp.asarray(segments))
    found = of_rows(flash._cudnn, rows, causal)
    assert {*asked} == {(10, 'cudnn')}
    for ours, expected in zip(found, of_rows(full.attend, rows, causal), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)


def test_the_kernel_of_tpus_can_be_computed_again():
    """As `model.remat` does, inside the loop over microbatches."""
    rng = np.random.default_rng(0)
    inputs = [jnp.asarray(rng.normal(size=(1, 128, 2, 8)), jnp.float32) for _ in range(3)]
    segments = jnp.asarray(np.repeat([[1, 2]], 64, axis=1))

    def score(attend, *inputs):
        again = jax.checkpoint(lambda *x: attend(AttentionInputs(*x, segments, segments), causal=True))
        total, _ = jax.lax.scan(
            lambda total, _: (total + jnp.sum(jnp.sin(again(*inputs))), None), 0.0, None, 2
        )
        return total

    expected, found = (
        jax.jit(jax.grad(functools.partial(score, attend), (0, 1, 2)))(*inputs)
        for attend in (full.attend, functools.partial(flash.splash, interpret=True))
    )
    for ours, theirs in zip(expected, found, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(('heads', 'width', 'causal'), [(3, 64, True), (2, 128, False), (1, 16, False)])
def test_the_kernel_of_short_rows_computes_full_attention(heads, width, causal):
    """Interpreted: rows of two sentences, of which one ends in padding, and attention to another text."""
    rng = np.random.default_rng(0)
    drawn = [rng.normal(size=(2, 128, heads, width)).astype(np.float32) for _ in range(4)]
    query, key, value, gradient = map(jnp.asarray, drawn)
    segments = np.repeat([[1, 1, 2, 2], [1, 2, 2, 0]], 32, axis=1).astype(np.int32)
    other = segments if causal else np.repeat([[1, 2, 2, 2], [1, 1, 2, 0]], 32, axis=1).astype(np.int32)
    rows = AttentionInputs(query, key, value, jnp.asarray(segments), jnp.asarray(other))
    gradient = jnp.where(segments[..., None, None] > 0, gradient, 0.0)
    attend = lambda *x: full.attend(AttentionInputs(*x, *rows[3:5]), causal)

    @jax.jit
    def both(rows, gradient):
        expected, pullback = jax.vjp(attend, *rows[:3])
        found = short.attend(rows, causal=causal, interpret=True)
        gradients = short.gradients(rows, gradient, causal=causal, interpret=True)
        return (found, *gradients), (expected, *pullback(gradient))

    for ours, theirs in zip(*both(rows, gradient), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_the_kernel_of_short_rows_rounds_as_full_attention_does():
    rng = np.random.default_rng(0)
    arrays = [jnp.asarray(rng.normal(size=(1, 128, 2, 64)), jnp.bfloat16) for _ in range(4)]
    segments = jnp.asarray(np.repeat([[1, 2]], 64, axis=1), jnp.int32)
    rows = AttentionInputs(*arrays[:3], segments, segments)
    means, pullback = jax.vjp(
        lambda *x: full.attend(AttentionInputs(*x, segments, segments), False), *rows[:3]
    )
    pairs = zip(
        [short.attend(rows, causal=False, interpret=True)]
        + short.gradients(rows, arrays[3], causal=False, interpret=True),
        (means, *pullback(arrays[3])),
        strict=True,
    )
    for ours, theirs in pairs:
        np.testing.assert_allclose(*(np.asarray(x, np.float32) for x in (ours, theirs)), rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    ('changes', 'kernels'),
    [
        ({}, 2),
        ({'length': 120}, 0),
        ({'width': 24}, 0),
        ({'dtype': jnp.float32}, 0),
        ({'bias': True}, 0),
        ({'drop': jax.tree_util.Partial(lambda x: 2.0 * x)}, 0),
    ],
    ids=['fits', 'length', 'width', 'float32', 'bias', 'dropout'],
)
def test_full_attention_of_short_rows_is_a_kernel_of_tpus(changes, kernels):
    options = {'length': 128, 'width': 64, 'dtype': jnp.bfloat16, 'bias': False, 'drop': KEEP_ALL} | changes
    length, width = options['length'], options['width']
    segments = jnp.ones((1, length), jnp.int32)
    bias = jnp.zeros((1, 2, length, length), jnp.bfloat16) if options['bias'] else None

    def score(query, key, value):
        rows = AttentionInputs(query, key, value, segments, segments, bias, options['drop'])
        return full.attend(rows, True).sum()

    # A kernel has one precision, whatever `train.matmul_precision` is.
    with jax.default_matmul_precision('high'):
        traced = jax.jit(jax.grad(score, argnums=(0, 1, 2))).trace(
            *[jax.ShapeDtypeStruct((1, length, 2, width), options['dtype'])] * 3
        )
    of_platform = lambda name: traced.lower(lowering_platforms=(name,)).as_text().count('tpu_custom_call')
    assert (of_platform('tpu'), of_platform('cpu')) == (kernels, 0)


def test_the_table_has_every_choice():
    choices = declare.choices(configs.OPTIONS['model.attention'])
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
        ({'data.source': 'grammar', 'data.name': None, 'data.dir': ''}, "data.dir='': means nothing with"),
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


def test_a_gpu_has_flash_for_some_types_and_widths():
    fits = resolve(config_dict({'model.attention': 'flash', 'model.dtype': 'bfloat16'}))
    configs.check_platform(fits, 'gpu')
    narrow = {'model.d_k': 20, 'model.d_v': 20}
    for needed, changes in {'bfloat16': {'model.dtype': 'float32'}, 'not 20': narrow}.items():
        lacking = configs.replace(fits, changes)
        with pytest.raises(ConfigError, match=f'flash.*{needed}'):
            configs.check_platform(lacking, 'gpu')
        assert configs.portable(lacking, 'gpu').model.attention == 'chunked'
    assert configs.portable(fits, 'gpu') == fits
    tower = {
        'train.task': 'captions',
        'data.source': 'scenes',
        'data.language': 'de',
        'image_model.d_model': 96,
    }
    with pytest.raises(ConfigError, match='not 12'):
        changes = {'model.attention': 'flash', 'model.dtype': 'bfloat16'}
        changes |= {'image_model.d_model': 96, 'image_model.h': 8}
        configs.check_platform(resolve(config_dict(tower | changes)), 'gpu')


@pytest.mark.cpu
def test_flash_is_refused_where_jax_lacks_the_kernel_of_tpus(monkeypatch):
    monkeypatch.setitem(sys.modules, 'jax.experimental.pallas.ops.tpu', None)
    segments = jnp.asarray(SEGMENTS)
    with pytest.raises(ConfigError, match="model.attention='flash'.*'chunked'"):
        flash.attend(AttentionInputs(*map(jnp.asarray, arrays()), segments, segments), causal=True)


@pytest.mark.parametrize(
    ('changes', 'encoder', 'decoder'),
    [
        ({'model.attention': 'full'}, 128, 128),
        ({'model.attention': 'chunked'}, 128, 128),
        # No device is needed to count what its own kernel computes.
        ({'model.attention': 'flash'}, 128, 128),
        # Blocks of 8 queries with the keys of three blocks, or of two; then 16 far keys.
        ({'model.attention': 'local', 'model.attention_window': 8}, 3 * 8, 2 * 8),
        ({'model.attention': 'sparse', 'model.attention_stride': 8}, 3 * 8 + 16, 2 * 8 + 16),
        # The logits and means within a chunk; and what goes into the sums and out of them, and the norm.
        ({'model.attention': 'linear', 'model.attention_chunk': 32}, 2 * (32 + 64.5), 32 + 64.5),
    ],
)
def test_operations_of_a_layer(changes, encoder, decoder):
    """A query and a key, or their stand-in, cost 64 multiply-adds for the logit and 64 for the mean."""

    def products(**layers):
        sizes = {f'model.{name}': number for name, number in layers.items()}
        config = resolve(config_dict({**changes, **sizes}))
        return cost.forward_cost(config, models.blank(config, 1, 128)).flops / 2

    attended = lambda keys: 128 * 8 * (64 + 64) * keys
    square, ffn = 128 * 512 * 512, 128 * 2 * 512 * 2048
    one = products(N=1, N_decoder=1)
    assert products(N=2, N_decoder=1) - one == 4 * square + ffn + attended(encoder)
    more = products(N=1, N_decoder=2) - one
    assert more == 8 * square + ffn + attended(128) + attended(decoder)


def test_a_kernel_of_devices_costs_what_full_attention_costs_whatever_the_vocabulary():
    small = {'model.vocab_size': 300, 'data.pieces': 300}
    full_cost, flash_cost = (
        cost.update_flops(resolve(config_dict(small | {'model.attention': name})))
        for name in ('full', 'flash')
    )
    assert flash_cost == full_cost


def test_linear_attention_has_gradients_where_all_features_are_small():
    """A factor that all keys' features have in common, here e^-60, changes neither outputs nor gradients."""
    kernel = self_attention(Model(attention='linear', attention_chunk=3))
    rng, segments = np.random.default_rng(0), jnp.ones((1, 5), jnp.int32)
    query, key, value = jnp.asarray(rng.normal(size=(3, 1, 5, 2, 4)), jnp.float32)

    outputs = lambda *x: jnp.sum(kernel.attend(AttentionInputs(*x, segments, segments), causal=False) ** 2)
    differentiate = jax.jit(jax.value_and_grad(outputs, (0, 1, 2)))

    def of(far):
        below = -jnp.abs(key) - far
        return differentiate(query, below, value)

    (total, near), (same, far) = of(10.0), of(60.0)
    assert float(total) == pytest.approx(float(same), rel=1e-5)
    for one, other in zip(near, far, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_linear_attention_keeps_its_digits_where_all_features_are_small():
    """elu(x) + 1 is exp(x) there; rows and steps agree, also where even that is below the least number."""
    kernel = self_attention(Model(attention='linear', attention_chunk=3))
    query, key, value = arrays()
    attend, step = jax.jit(functools.partial(kernel.attend, causal=True)), jax.jit(kernel.attend_one)
    for shift in (12.0, 20.0, 200.0):
        low = [jnp.asarray(x - shift) for x in (query, key)]
        segments = jnp.ones((2, T), jnp.int32)
        row = attend(AttentionInputs(*low, jnp.asarray(value), segments, segments))
        state, steps = kernel.empty(Model(h=H, d_k=C, d_v=E), 2, T), []
        for i in range(T):
            one = (x[:, i : i + 1] for x in (*low, jnp.asarray(value)))
            output, state = step(Token(*one, jnp.full(2, i)), state)
            steps.append(output)
        np.testing.assert_allclose(jnp.concatenate(steps, axis=1), row, rtol=1e-5, atol=1e-5)
        if shift < 100:
            features = [np.exp(np.asarray(x, np.float64) - shift) for x in (query, key)]
            weights = np.einsum('BQHC,BKHC->BHQK', *features) * np.tril(np.ones((T, T)))
            weights /= weights.sum(axis=-1, keepdims=True)
            expected = np.einsum('BHQK,BKHE->BQHE', weights, value)
            np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-5)
