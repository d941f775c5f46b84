"""Recurrent states that rows take over from earlier rows: values, truncated gradients, devices, resuming."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import toys
from transformer import parallel
from transformer.config import Config, ConfigError, config_dict, resolve
from transformer.data.arrays import Ragged
from transformer.data.dataset import Split
from transformer.data.running import Streams
from transformer.nn import ensemble, models
from transformer.runs import restore
from transformer.runs.workdir import Run
from transformer.tasks import sums_of, task_of
from transformer.tokens import START
from transformer.training import dropout_keys, losses, split_sums
from transformer.training.step import (
    continuing,
    dropout_key,
    empty_carried,
    gradients,
    initial_state,
    started_state,
    train_step,
)

PIECES, STREAMS, WIDTH = 270, 16, 4
SMALL = {
    'model.kind': 'recurrent',
    'model.N': 2,
    'model.d_model': 16,
    'model.P_drop': 0.0,
    'train.task': 'language',
    'train.eps_ls': 0.0,
    'data.source': 'text',
    'data.pieces': PIECES,
    'data.batching': 'running',
    'data.carry': True,
    'data.row_len': WIDTH,
    'data.batch_tokens': STREAMS * WIDTH,
}


def config_of(**changes) -> Config:
    return resolve(config_dict(SMALL | {key.replace('__', '.'): value for key, value in changes.items()}))


def text_of(size: int) -> Split:
    """Draws documents of about five pieces."""
    rng = np.random.default_rng(0)
    ends = np.unique([*rng.integers(1, size, size // 5), size])
    tokens = rng.integers(3, PIECES, size)
    tokens[ends - 1] = 1
    return Split({'text': Ragged(tokens, np.array([0, *ends]))})


def params_of(config: Config, seed: int = 1) -> dict:
    """Draws parameters, the embedding included, so large that a carried state changes a row's loss."""
    rng = np.random.default_rng(seed)
    draw = lambda leaf: jnp.float32(2 * rng.normal(size=leaf.shape) / np.sqrt(min(leaf.shape)))
    return jax.tree.map(draw, models.parameter_shapes(config))


def read_by_steps(config: Config, params: dict, state, tokens: jax.Array) -> tuple[jax.Array, object]:
    """Computes -log p of all pieces of rows [R T] that continue a state, by the search contract."""

    def read(carry, token):
        last, state = carry
        logits, state = ensemble.step(config, params, None, state, last)
        return (token, state), -jnp.take_along_axis(jax.nn.log_softmax(logits), token[:, None], axis=1)

    first = jnp.full(len(tokens), START, jnp.int32)
    (last, state), nats = jax.lax.scan(read, (first, state), tokens.T)
    return nats[..., 0].T, state._replace(pending=last)


@pytest.mark.parametrize('cell', ['lstm', 'gru', 'rnn_tanh'])
def test_rows_continue_their_streams(cell):
    size = 10 * STREAMS
    config, corpus = config_of(model__cell=cell, model__residual=cell == 'gru'), text_of(size)
    rows, params = Streams(corpus, config.data, 8, 0, train=False), params_of(config)
    streams = jnp.asarray(corpus.fields['text'].tokens.reshape(STREAMS, 10), jnp.int32)
    by_model = []
    for one in (params, params_of(config, 2)):
        state = models.empty_state(config, STREAMS)
        nats, _ = jax.jit(functools.partial(read_by_steps, config))(one, state, streams)
        total = split_sums.total(sums_of(config), one, rows, carried=empty_carried(config, one))
        assert total['weight'] == size
        assert total['nll'] == pytest.approx(float(nats.sum()), rel=1e-5)
        by_model.append(nats)
    both = (params, params_of(config, 2))
    total = split_sums.total(sums_of(config), both, rows, carried=empty_carried(config, both))
    mean = -np.log(np.mean(np.exp(-np.float64(by_model)), axis=0))
    assert total['nll'] == pytest.approx(mean.sum(), rel=1e-5)


def test_an_epoch_begins_with_empty_states():
    config = config_of()
    rows = Streams(text_of(170), config.data, config.train.microbatches, 0, train=True)
    assert rows.steps_per_epoch == 3
    params, empty = params_of(config), empty_carried(config)
    compute = jax.jit(lambda batch: sums_of(config)(params, batch, None)['loss'])
    rng = np.random.default_rng(2)
    junk = jax.tree.map(lambda x: rng.integers(3, 9, x.shape).astype(x.dtype), empty)
    for step, same in ((0, True), (1, False), (2, False), (3, True)):
        found = []
        for carried in (empty, junk):
            batch = jax.tree.map(lambda x: jnp.reshape(x, (8, 2, WIDTH)), rows.batch(step))
            batch = jax.tree.map(jnp.asarray, batch | {'carried': carried})
            found.append(float(compute(batch)))
        assert (found[0] == found[1]) == same


@pytest.mark.parametrize('variational', [False, True])
def test_rows_that_begin_streams_are_learned_as_without_streams(variational):
    """From empty states, the loss with dropout and label smoothing is that of rows that continue none."""
    changes = {'model__P_drop': 0.3, 'model__variational_dropout': variational, 'train__eps_ls': 0.1}
    config, compute = config_of(**changes), jax.jit(losses.predicted_sums, static_argnums=0)
    params, empty = params_of(config), empty_carried(config)
    rows = Streams(text_of(170), config.data, 8, 0, train=True)
    batch = jax.tree.map(lambda x: jnp.reshape(x, (8, 2, WIDTH)), rows.batch(0))
    key = dropout_keys.of_microbatches(dropout_key(config, jnp.int32(0)), jnp.arange(8))
    weights = jnp.ones((8, 2, WIDTH))
    for one in (key, None):
        found = jax.jit(sums_of(config))(params, batch | {'carried': empty}, one)
        expected = compute(config, params, batch, one, weights)
        for name, value in expected.items():
            assert float(found[name]) == pytest.approx(float(value), rel=1e-5), name
    smoothed = jax.jit(sums_of(config))(params, batch | {'carried': empty}, key)
    assert float(smoothed['loss']) != pytest.approx(float(expected['loss']), rel=1e-3)


def test_a_warm_start_begins_with_empty_states():
    config = config_of()
    fresh, started = initial_state(config), started_state(config, lambda params: params)
    jax.tree.map(np.testing.assert_array_equal, started, fresh)


def test_gradients_end_at_the_beginning_of_a_row(use_devices):
    use_devices(1)
    config, corpus = config_of(train__microbatches=1, data__batch_tokens=2 * WIDTH), text_of(6 * WIDTH)
    rows, params = Streams(corpus, config.data, 1, 0, train=False), params_of(config)
    streams = jnp.asarray(corpus.fields['text'].tokens.reshape(2, -1), jnp.int32)

    def step(state, batch):
        params, carried = state
        return gradients(config, sums_of(config), params, continuing(batch, carried), jnp.int32(0))

    @jax.jit
    def expected_of(params, state, row):
        def loss(params):
            # The state is no function of these parameters, so the gradient ends at the row's beginning.
            nats, after = read_by_steps(config, params, state, row)
            return nats.sum(), after

        return jax.value_and_grad(loss, has_aux=True)(params)

    mapped, carried, state = parallel.map_sums(step), empty_carried(config), models.empty_state(config, 2)
    for number in range(3):
        batch = parallel.to_devices(rows.batch(number), 1)
        gradient, sums = jax.device_get(mapped((params, carried), batch))
        carried = sums['carried']
        row = streams[:, number * WIDTH : (number + 1) * WIDTH]
        (loss, state), expected = expected_of(params, state, row)
        assert sums['loss'] == pytest.approx(float(loss), rel=1e-5)
        for ours, theirs in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
            assert np.linalg.norm(ours - theirs) <= 1e-5 * np.linalg.norm(theirs)
        for ours, theirs in zip(jax.tree.leaves(carried), jax.tree.leaves(state), strict=True):
            np.testing.assert_allclose(ours[0], theirs, rtol=1e-5, atol=1e-6)


def trained_by_steps(config: Config) -> tuple[list[float], list[np.ndarray]]:
    """Trains for two epochs, and returns the losses and the last states."""
    rows = Streams(text_of(170), config.data, config.train.microbatches, 0, train=True)
    update = parallel.map_update(functools.partial(train_step, config, sums_of(config)))
    state, by_step = parallel.replicate(initial_state(config)), []
    for step in range(2 * rows.steps_per_epoch):
        state, sums = update(state, parallel.to_devices(rows.batch(step), config.train.microbatches))
        by_step.append(float(sums['loss'] / sums['weight']))
    return by_step, jax.tree.leaves(jax.device_get(state.carried))


def test_devices_and_accumulation_change_only_rounding(use_devices):
    changes = {'model__P_drop': 0.2, 'model__variational_dropout': True, 'train__warmup_steps': 10}
    use_devices(1)
    expected, states = trained_by_steps(config_of(**changes))
    assert len(expected) == 6 and [leaf.shape for leaf in states] == [(8, 2), *[(8, 2, 16)] * 4]
    # On two devices, two chunks of two microbatches each.
    use_devices(2)
    found, others = trained_by_steps(config_of(**changes, train__accumulate=2))
    assert found == pytest.approx(expected, rel=1e-5)
    for ours, theirs in zip(others, states, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


TRAINED = {
    'model__kind': 'recurrent',
    'train__task': 'language',
    'data__source': 'text',
    'data__train': 'text.txt[:80%]',
    'data__dev': 'text.txt[80%:]',
    'data__test': 'text.txt[80%:]',
    'data__tokenizer': 'words',
    'data__pieces': 20,
    'data__batching': 'running',
    'data__carry': True,
    'data__row_len': 6,
    'data__batch_tokens': 96,
    'train__keep': 9,
    'train__steps': 6,
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp('text'), np.random.default_rng(0)
    lines = (' '.join(f'w{n}' for n in rng.integers(0, 30, rng.integers(1, 9))) for _ in range(100))
    (folder / 'text.txt').write_text(''.join(f' {line} \n' for line in lines))
    return folder


@pytest.fixture(scope='module')
def through(folder, tmp_path_factory) -> Run:
    return toys.trained(toys.config_of(folder, **TRAINED), tmp_path_factory.mktemp('runs') / 'through')


def test_resuming_is_exact(through, tmp_path):
    result = toys.resumed(through.folder, tmp_path / 'w', 2, evaluate=False)
    assert result['params_sha256'] == through.result()['params_sha256']


def test_losses_on_dev_are_those_of_the_evaluation(through):
    *_, last = map(json.loads, (through.folder / 'metrics.jsonl').read_text().splitlines())
    assert last['dev_loss'] == pytest.approx(through.result()['scores']['dev']['loss'], rel=1e-6)


def test_texts_are_read_at_once(through):
    """Likelihoods and continuations of texts longer than a row equal those of the search contract."""
    trained, _ = restore.load(through)
    text = ' '.join(trained.codecs['text'].pieces(range(3, 18)))
    tokens = trained.codecs['text'].encode(text)
    assert len(tokens) > 2 * trained.config.data.row_len
    state = models.empty_state(trained.config, 1)
    row = jnp.asarray([tokens], jnp.int32)
    nats, _ = read_by_steps(trained.config, jax.tree.map(jnp.asarray, trained.params), state, row)
    verbs = task_of(trained.config).verbs
    [scored] = verbs['likelihoods'](trained, [(text,)])
    np.testing.assert_allclose(scored.logp, -nats[0], rtol=1e-5)
    [[written]] = verbs['hypotheses'](trained, [text], method='greedy', extra_len=8)
    [again] = verbs['likelihoods'](trained, [(written.text,)])
    assert written.text.startswith(text)
    assert written.score == pytest.approx(float(again.logp[len(tokens) - 1 :].sum()), rel=1e-4)


@pytest.mark.parametrize(
    'changes',
    [{'model.kind': 'transformer'}, {'data.batching': 'packed', 'data.max_len': 4}, {'data.stride': 2}],
)
def test_meaningless_options_are_refused(changes):
    with pytest.raises(ConfigError, match=r'^data\.(carry=True|stride=2): means nothing with'):
        resolve(config_dict(SMALL | changes))
