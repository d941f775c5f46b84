"""The model contract, for every value of every axis of the model, and norm x positions."""

import functools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config import OPTIONS, Config, choices, config_dict, resolve
from transformer.nn import models

SMALL = {
    'model.N': 1,
    'model.d_model': 16,
    'model.d_ff': 24,
    'model.h': 2,
    'model.vocab_size': 270,
    'model.max_len': 16,
    'data.pieces': 270,
    'data.max_len': 8,
    'data.row_len': 12,
    'data.batch_tokens': 96,
    'decode.max_source_len': 8,
    'decode.extra_len': 4,
}
AXES = {
    'model.N': [2, 3],
    'model.N_decoder': [2, 3],
    'model.d_model': [8, 20],
    'model.d_ff': [8, 40],
    'model.h': [1, 4],
    'model.d_k': [4, 6],
    'model.d_v': [4, 6],
    'model.P_drop': [0.0, 0.3],
    'model.P_drop_attention': [0.2],
    'model.P_drop_relu': [0.2],
    'model.P_drop_embedding': [0.0, 0.3],
    'model.positions': ['sinusoidal', 'learned', 'rotary', 'relative', 'none'],
    'model.sinusoid': ['paper', 't2t'],
    'model.norm': ['post', 'pre'],
    'model.norm_type': ['layernorm', 'rmsnorm'],
    'model.activation': ['relu', 'gelu', 'swiglu'],
    'model.tie_embeddings': ['all', 'decoder', 'none'],
    'model.biases': ['all', 'ffn', 'none'],
    'model.init': ['t2t', 'xavier'],
    'model.vocab_size': [300],
    'model.max_len': [20],
    'model.dtype': ['float32', 'bfloat16'],
}
VARIANTS = [{key: value} for key, values in AXES.items() for value in values]
VARIANTS += [
    {'model.norm': norm, 'model.positions': kind}
    for norm in ('post', 'pre')
    for kind in AXES['model.positions']
]
S, T = 5, 6
ORDER = [2, 0, 1]
RNG = np.random.default_rng(0)
SOURCES = [RNG.integers(3, 270, length).tolist() for length in (5, 3, 4)]
TARGETS = [RNG.integers(3, 270, length).tolist() for length in (6, 4, 5)]


class Subject(NamedTuple):
    """One variant, and what its one compiled program found."""

    config: Config
    found: dict[str, np.ndarray]


def name(variant: dict) -> str:
    return ','.join(f'{key.split(".")[1]}={value}' for key, value in variant.items())


def side(prefix: str, rows: list[list[list[int]]], width: int) -> dict[str, jax.Array]:
    """Rows of several sentences each, with segments and positions."""
    found = np.zeros((3, len(rows), width), np.int32)
    for r, row in enumerate(rows):
        start = 0
        for segment, tokens in enumerate(row, start=1):
            place = slice(start, start + len(tokens))
            found[0, r, place], found[1, r, place] = tokens, segment
            found[2, r, place] = np.arange(len(tokens))
            start += len(tokens)
    names = (prefix, f'{prefix}_segments', f'{prefix}_positions')
    return {key: jnp.asarray(value) for key, value in zip(names, found, strict=True)}


def batch(sources: list[list[list[int]]], targets: list[list[list[int]]], s: int = 12, t: int = 12):
    return side('source', sources, s) | side('target', targets, t)


# Rows of the full pass: each pair alone; each source with the next target; two pairs in one row; and
# the pairs in another order.
TURNED = [TARGETS[1], TARGETS[2], TARGETS[0]]
ROWS = (
    [([x], [y]) for x, y in zip(SOURCES, TARGETS, strict=True)]
    + [([x], [y]) for x, y in zip(SOURCES, TURNED, strict=True)]
    + [(SOURCES[1:], TARGETS[1:])]
    + [([SOURCES[b]], [TARGETS[b]]) for b in ORDER]
)
ALONE, OTHERS, PACKED, MOVED = slice(0, 3), slice(3, 6), 6, slice(7, 10)


def random_params(config: Config) -> dict:
    """No leaf at a special value, so that no bias and no scale can be forgotten."""
    rng = np.random.default_rng(1)
    draw = lambda leaf: rng.normal(size=leaf.shape).astype(np.float32) / np.sqrt(leaf.shape[0])
    return jax.tree.map(draw, models.parameter_shapes(config))


def steps(model: models.EncoderDecoder, variables: dict, inputs: dict) -> jax.Array:
    """The logits [B 2 T V] of both targets of each source, as two hypotheses, step by step."""
    sources = models.source_of({key: value[ALONE] for key, value in inputs.items()})
    memory = model.apply(variables, sources, method='encode')
    constants, state = model.apply(variables, memory, T, method='start')
    state = jax.tree.map(lambda x: jnp.repeat(x, 2, axis=0), state)
    shifted = models.shift_right(inputs['target'], inputs['target_segments'])[:6, :T]
    # Rows b·2 + w.
    tokens = shifted.reshape(2, 3, T).transpose(2, 1, 0).reshape(T, 6)

    def step(state, tokens):
        logits, state = model.apply(variables, constants, state, tokens, method='step')
        return state, logits

    logits = jax.lax.scan(step, state, tokens)[1]
    return logits.reshape(T, 3, 2, -1).transpose(1, 2, 0, 3)


def forward(config: Config, variables: dict, inputs: dict) -> dict[str, jax.Array]:
    """The logits of the full pass, and how much those of position t move with target input j: [T B T]."""
    table = 'embedding' if config.model.tie_embeddings == 'all' else 'target_embedding'
    shape = inputs['target'].shape

    def logits(shift):
        def add_shift(embed, args, kwargs, context):
            found = embed(*args, **kwargs)
            # The source has another width than the target: so their embeddings can be told apart.
            mine = context.module.name == table and context.method_name == '__call__'
            return found + shift if mine and found.shape[:2] == shape else found

        with nn.intercept_methods(add_shift):
            found = models.build(config).apply(variables, inputs, train=False)
        return jnp.sin(found.astype(jnp.float32)).sum(axis=(0, 2)), found

    shift = jnp.zeros((*shape, config.model.d_model), config.model.dtype)
    jacobian, full = jax.jacrev(logits, has_aux=True)(shift)
    return {'full': full, 'influence': jnp.abs(jacobian.astype(jnp.float32)).sum(axis=-1)}


def everything(config: Config, params: dict, inputs: dict, tight: dict) -> dict[str, jax.Array]:
    """All that the tests of a model look at, as one program."""
    model, variables = models.build(config), {'params': params}
    return {
        **forward(config, variables, inputs),
        'steps': steps(model, variables, inputs),
        'tight': model.apply(variables, tight, train=False),
    }


@functools.cache
def everything_of(config: Config) -> dict[str, np.ndarray]:
    inputs = batch([x for x, _ in ROWS], [y for _, y in ROWS], 11, 12)
    tight = batch([[x] for x in SOURCES], [[y] for y in TARGETS], S, T)
    found = jax.jit(everything, static_argnums=0)(config, random_params(config), inputs, tight)
    return {key: np.asarray(value, np.float32) for key, value in found.items()}


@pytest.fixture(params=VARIANTS, ids=name, scope='module')
def subject(request) -> Subject:
    config = resolve(config_dict({**SMALL, **request.param}))
    return Subject(config, everything_of(config))


def close(found: np.ndarray, expected: np.ndarray, config: Config) -> None:
    tolerance = {'atol': 0.25} if config.model.dtype == 'bfloat16' else {'atol': 2e-5, 'rtol': 2e-4}
    np.testing.assert_allclose(found, expected, **tolerance)


def test_every_axis_of_the_model_is_here():
    options = {key: choices(field) for key, field in OPTIONS.items() if key.startswith('model.')}
    assert set(AXES) == set(options)
    for key, values in options.items():
        assert not values or set(AXES[key]) == set(values)


def test_steps_equal_the_full_pass(subject):
    for rows, hypothesis, targets in ((ALONE, 0, TARGETS), (OTHERS, 1, TURNED)):
        for b, target in enumerate(targets):
            stepped = subject.found['steps'][b, hypothesis, : len(target)]
            close(stepped, subject.found['full'][rows][b, : len(target)], subject.config)


def test_causal_by_gradient(subject):
    for b, target in enumerate(TARGETS):
        seen = subject.found['influence'][: len(target), b, : len(target)] > 0
        np.testing.assert_array_equal(seen, np.tril(np.ones_like(seen)))


def test_packed_sentences_do_not_see_each_other(subject):
    first, both = len(TARGETS[1]), len(TARGETS[1]) + len(TARGETS[2])
    seen = subject.found['influence'][:both, PACKED, :both] > 0
    assert not seen[first:, :first].any()
    np.testing.assert_array_equal(seen[first:, first:], np.tril(np.ones((both - first, both - first))))


def test_padding_changes_nothing(subject):
    for b, target in enumerate(TARGETS):
        real = (b, slice(len(target)))
        close(subject.found['full'][real], subject.found['tight'][real], subject.config)


def test_packing_changes_nothing(subject):
    start = 0
    for b in (1, 2):
        packed = subject.found['full'][PACKED, start : start + len(TARGETS[b])]
        close(packed, subject.found['full'][b, : len(TARGETS[b])], subject.config)
        start += len(TARGETS[b])


def test_equivariant_to_the_order_of_the_batch(subject):
    close(subject.found['full'][MOVED], subject.found['full'][ALONE][ORDER], subject.config)


@pytest.mark.parametrize('variant', [{}, *(v for v in VARIANTS if 'P_drop' in next(iter(v)))], ids=name)
def test_dropout_draws_by_its_key_and_in_training_only(variant):
    silent = dict.fromkeys(('model.P_drop', 'model.P_drop_embedding'), 0.0)
    config = resolve(config_dict({**SMALL, **(silent | variant if variant else {})}))
    model, inputs = models.build(config), batch([[SOURCES[0]]], [[TARGETS[0]]], S, T)

    @jax.jit
    def run(params):
        full = functools.partial(model.apply, {'params': params}, inputs)
        trained = jax.vmap(lambda key: full(train=True, rngs={'dropout': key}))
        return full(train=False), trained(jax.random.split(jax.random.key(0), 2))

    evaluated, (first, second) = map(np.asarray, run(random_params(config)))
    m = config.model
    dropping = m.P_drop or m.P_drop_attention or m.P_drop_relu or m.P_drop_embedding
    assert (first != second).any() == bool(dropping)
    assert np.allclose(first, evaluated, atol=1e-4) != bool(dropping)


def test_without_positions_the_encoder_is_blind_to_order():
    swapped = {'model.positions': 'none'}, {'model.positions': 'sinusoidal'}
    for variant, blind in zip(swapped, (True, False), strict=True):
        config = resolve(config_dict({**SMALL, **variant}))
        model, inputs = models.build(config), batch([[SOURCES[0]]], [[TARGETS[0]]])
        variables = {'params': jax.tree.map(jnp.asarray, random_params(config))}
        turned = inputs | {'source': inputs['source'].at[0, :5].set(inputs['source'][0, :5][::-1])}
        encode = jax.jit(functools.partial(model.apply, variables, method='encode'))
        before, after = (encode(models.source_of(x)).outputs[0, :5] for x in (inputs, turned))
        assert np.allclose(before, after[::-1], atol=1e-5) == blind
