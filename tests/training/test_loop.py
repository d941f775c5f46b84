"""Neither the number of devices, nor accumulation, nor an interruption changes the training."""

import contextlib
import dataclasses
import functools
import json
import pathlib
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from etils import epath

from experiments.compiled import lower
from tests import toys
from transformer import config as configs
from transformer import parallel, progress
from transformer.actions import train as actions
from transformer.config import OPTIONS, Config, ConfigError, config_dict, resolve
from transformer.config.declare import has_meaning
from transformer.data.dataset import Dataset
from transformer.nn import models
from transformer.runs import restore
from transformer.runs.checkpoint import Checkpoints
from transformer.runs.hashes import fingerprint
from transformer.runs.metrics import Metrics
from transformer.tasks import sums_of
from transformer.tokens import Batch, Tokens
from transformer.training import loop, losses, split_sums
from transformer.training.loop import DevScores, Stopped, TrainingPosition, train
from transformer.training.step import TrainState, dropout_key, gradients, initial_state, train_step

SMALL = {
    'model.N': 1,
    'model.d_model': 16,
    'model.d_ff': 32,
    'model.h': 2,
    'model.P_drop': 0.2,
    'model.P_drop_attention': 0.1,
    'model.P_drop_relu': 0.1,
    'model.vocab_size': 270,
    'data.pieces': 270,
    'data.max_len': 8,
    'data.row_len': 8,
    'data.batch_tokens': 128,
    'train.warmup_steps': 10,
    'train.microbatches': 8,
}
ROWS, WIDTH = 16, 8


DECODER = {'train.task': 'language', 'data.source': 'text'}
RECURRENT = {
    'model.kind': 'recurrent',
    'model.cell': 'gru',
    'model.bidirectional': True,
    'model.alignment': 'additive',
    'model.variational_dropout': True,
}
LAYERED = {'transformer': {}, 'decoder': DECODER}
KINDS = {**LAYERED, 'recurrent': RECURRENT, 'convolutional': {'model.kind': 'convolutional'}}


def config_of(kind: str = 'transformer', **changes) -> Config:
    of_train = {f'train.{key}': value for key, value in changes.items()}
    values = {key: field.default for key, field in OPTIONS.items()} | KINDS[kind]
    means = {key: value for key, value in SMALL.items() if has_meaning(OPTIONS, values, key)}
    return resolve(config_dict({**means, **KINDS[kind], **of_train}))


def tokens_of(rng: np.random.Generator) -> Tokens:
    """Draws rows of one sentence, of unequal lengths, and two empty rows, so that microbatches differ."""
    lengths = rng.integers(1, WIDTH + 1, ROWS)
    lengths[-2:] = 0
    real = np.arange(WIDTH) < lengths[:, None]
    tokens = np.where(real, rng.integers(1, 270, (ROWS, WIDTH)), 0)
    positions = np.where(real, np.arange(WIDTH), 0)
    return Tokens(*(x.astype(np.int32) for x in (tokens, real, positions)))


def batch_of(step: int, config: Config | None = None) -> Batch:
    """Draws a batch of the fields that the config's model reads."""
    rng = np.random.default_rng(step)
    fields = models.build(config).FIELDS if config else ('source', 'target')
    return {name: tokens_of(rng) for name in fields}


class NoBatches:
    """A dataset for a training whose batches the test makes itself."""

    microbatches = steps_per_epoch = 8
    shapes = 1

    def rows(self, step: int) -> int:
        raise NotImplementedError

    def batch(self, step: int, part: slice = slice(None)) -> Batch:
        raise NotImplementedError


def dev_scores(every: int = 1000, function=None, cost=lambda scores: scores.get('dev_loss')) -> DevScores:
    """Makes a training's scores of dev, none without a function."""
    return DevScores([(every, function)] if function else [], cost, every)


@functools.cache
def initial_params(config: Config) -> dict:
    return jax.device_get(initial_state(config).params)


def gradients_of(config: Config) -> tuple[dict, dict]:
    params = initial_params(configs.replace(config, {'train.accumulate': 1}))
    return toys.gradients_of(config, params, batch_of(7, config), 7)


def is_key_bias(path: tuple) -> bool:
    """Returns whether it is a key's bias, which adds the same to all logits of a query: its gradient is 0."""
    return 'key' in str(path) and 'bias' in str(path)


def assert_same(found: tuple[dict, dict], expected: tuple[dict, dict]) -> None:
    assert found[1] == pytest.approx(expected[1], rel=1e-5)
    pairs = zip(
        jax.tree_util.tree_leaves_with_path(found[0]),
        jax.tree_util.tree_leaves_with_path(expected[0]),
        strict=True,
    )
    whole = np.sqrt(sum(np.square(x).sum() for x in jax.tree.leaves(expected[0])))
    for (path, ours), (_, theirs) in pairs:
        scale = whole if is_key_bias(path) else np.linalg.norm(theirs)
        assert np.linalg.norm(ours - theirs) <= 1e-5 * scale, path


@pytest.mark.parametrize(
    ('kind', 'prng', 'devices', 'accumulate', 'remat'),
    # Each kind in chunks on some devices; all numbers of either over the kinds together. The kind with the
    # smallest program stands for the others where one is enough.
    [('decoder', 'threefry', 8, 1, False), ('decoder', 'threefry', 1, 4, False)]
    + [(kind, 'threefry', 2, 4, False) for kind in KINDS]
    + [('transformer', 'rbg', 4, 2, True)],
)
def test_gradients_do_not_depend_on_devices_accumulation_and_rematerialisation(
    use_devices, kind, prng, devices, accumulate, remat
):
    use_devices(devices)
    config = config_of(kind, prng=prng, accumulate=accumulate)
    found = gradients_of(configs.replace(config, {'model.remat': True}) if remat else config)
    use_devices(1)
    assert_same(found, gradients_on_one_device(kind, prng))


def shard_update(step, devices):
    """Builds the program of `parallel.map_update` from `jax.jit` and `jax.shard_map`."""
    mesh = jax.sharding.Mesh(np.array(devices), (parallel.AXIS,))
    everywhere, by_device = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec(parallel.AXIS)

    def on_one_device(state, batch):
        # A shard keeps the axis of the devices.
        return step(state, jax.tree.map(lambda x: x[0], batch))

    # With the check, gradients of replicated parameters would already be sums over the devices.
    sharded = jax.shard_map(
        on_one_device, mesh=mesh, in_specs=(everywhere, by_device), out_specs=everywhere, check_vma=False
    )
    return jax.jit(sharded, donate_argnums=0)


def test_an_update_by_shard_map_is_the_same(use_devices):
    use_devices(2)
    config = config_of('decoder')
    step = functools.partial(train_step, config, sums_of(config))

    def updated(update):
        state, sums = parallel.replicate(initial_state(config)), None
        for number in range(2):
            state, sums = update(state, parallel.to_devices(batch_of(number, config), 8))
        return jax.device_get((state.params, state.optimizer, sums))

    found = updated(shard_update(step, parallel.devices()))
    jax.tree.map(np.testing.assert_array_equal, found, updated(parallel.map_update(step)))


def contrastive_sums(params, batch, key):
    """Computes the cross-entropy of each source's own target among its microbatch's targets."""
    del key
    table = params['embedding']['table']
    source, target = (table[batch[side].tokens].mean(axis=2) for side in ('source', 'target'))
    logits = jnp.einsum('MID,MJD->MIJ', source, target, precision='highest')
    own = jnp.diagonal(jax.nn.log_softmax(logits, axis=-1), axis1=1, axis2=2)
    return {'loss': -own.sum(), 'weight': jnp.float32(own.size), 'own': jnp.exp(own).sum()}


def test_a_loss_that_couples_rows_couples_those_of_one_microbatch(use_devices):
    def of(devices: int, accumulate: int) -> tuple[dict, dict]:
        use_devices(devices)
        config = configs.replace(config_of(), {'train.accumulate': accumulate})
        params = {'embedding': initial_params(config_of())['embedding']}
        return toys.gradients_of(config, params, batch_of(7), 0, contrastive_sums)

    expected = of(1, 1)
    for devices, accumulate in ((1, 2), (1, 4), (1, 8), (2, 1), (4, 2), (8, 1)):
        assert_same(of(devices, accumulate), expected)
    # By the definition, in numpy: 8 microbatches of two rows each.
    batch = batch_of(7)
    table = np.float64(initial_params(config_of())['embedding']['table'])
    vectors = [table[batch[side].tokens].mean(axis=1).reshape(8, 2, -1) for side in ('source', 'target')]
    logits = np.einsum('MID,MJD->MIJ', *vectors)
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    assert expected[1]['loss'] == pytest.approx(-sum(np.trace(one) for one in logp), rel=1e-5)


@pytest.mark.parametrize('kind', LAYERED)
def test_every_layer_is_rematerialised(use_devices, kind):
    use_devices(1)
    config = configs.replace(config_of(kind), {'model.N': 2})
    barriers = [
        lower.update(configs.replace(config, {'model.remat': remat}), parallel.devices())
        .as_text()
        .count('optimization_barrier')
        for remat in (False, True)
    ]
    # One keeps the compiler from taking what it has computed before.
    assert barriers[1] - barriers[0] == config.model.N + (config.model.N_decoder or 0)


@pytest.mark.cpu
def test_rematerialisation_on_cpus_saves_memory_and_learns_the_same(use_devices, tmp_path, monkeypatch):
    use_devices(1)
    changes = {'model.N': 4, 'train.log_every': 1}
    config = configs.replace(config_of('decoder', steps=3, checkpoint_every=3), changes)
    asked = []

    def map_update(step, **options):
        asked.append(parallel.map_update(step, **options))
        return asked[-1]

    fake = types.SimpleNamespace(**vars(parallel) | {'map_update': map_update})
    monkeypatch.setattr(loop, 'parallel', fake)
    place = lambda step: parallel.to_devices(batch_of(step, config), 8)
    monkeypatch.setattr(loop, 'prefetch', lambda *_, **__: map(place, range(3)))

    def trained(remat: bool) -> tuple[TrainState, list[tuple[float, float]]]:
        changed, folder = configs.replace(config, {'model.remat': remat}), epath.Path(tmp_path / str(remat))
        checkpoints = Checkpoints(folder / 'checkpoints', 1)
        order, learned = NoBatches(), []
        note = lambda step, numbers: learned.append((numbers['loss'], numbers['gradient_norm']))
        state, _ = train(changed, sums_of(changed), order, checkpoints, folder, dev_scores(), on_metrics=note)
        checkpoints.close()
        return state, learned

    temporaries = lambda program: program.memory_analysis().temp_size_in_bytes
    (state, expected), (_, found) = trained(False), trained(True)
    plain, rematerialised = asked
    # The programs that ran: JAX's own, and one compiled otherwise, once for all steps.
    assert not plain._programs
    [program] = rematerialised._programs.values()
    # Of four layers what one computes is in memory at a time.
    assert temporaries(program) < 0.6 * temporaries(plain.compile(state, place(0)))
    # Not the parameters: Adam turns the rounding of a gradient near 0 into a whole step.
    assert len(found) == 3
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@functools.cache
def gradients_on_one_device(kind: str, prng: str) -> tuple[dict, dict]:
    return gradients_of(config_of(kind, prng=prng))


def mapped_update(config: Config):
    return parallel.map_update(functools.partial(train_step, config, sums_of(config)))


# Everything that may be chosen beside the paper's way of training.
CHOICES = {
    'schedule': 'cosine',
    'steps': 40,
    'peak_lr': 0.02,
    'clip_norm': 0.3,
    'weight_decay': 0.1,
    'ema': 0.9,
}


def losses_of(config: Config, steps: int = 20) -> list[float]:
    """Computes the loss of every step, and at the end a number of the parameters that are evaluated."""
    state = parallel.replicate(initial_state(config))
    update, losses = mapped_update(config), []
    for step in range(steps):
        batch = parallel.to_devices(batch_of(step, config), config.train.microbatches)
        state, sums = update(state, batch)
        losses.append(float(sums['loss'] / sums['weight']))
    # Adam divides the rounding errors that are all of a key bias's gradient by their own size.
    leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(state.evaluated()))
    return [*losses, float(optax.tree.norm([leaf for path, leaf in leaves if not is_key_bias(path)]))]


def test_losses_stay_the_same_over_20_steps(use_devices):
    """The optimizer's state and the keys of each step, which no kind of model changes."""
    found = []
    for devices, accumulate in ((1, 1), (2, 4)):
        use_devices(devices)
        found.append(losses_of(config_of('decoder', prng='rbg', accumulate=accumulate, **CHOICES)))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4)
    assert found[0][-2] < found[0][0]


# What dev would say after these steps: the lowest loss, which is the highest BLEU here, is reached twice.
DEV = {2: 5.0, 4: 4.0, 6: 4.0, 8: 4.5, 10: 4.2, 12: 1.0, 14: 6.0}
STOPPING = CHOICES | {'steps': 14, 'eval_every': 2, 'checkpoint_every': 2, 'patience': 3}
INTERRUPTED = {
    'loss': ({}, lambda cost: {'dev_loss': cost}),
    'bleu': (
        {'best_by': 'bleu', 'watch_every': 2},
        lambda cost: {'dev_loss': 1 / cost, 'dev_bleu': 10 - cost},
    ),
}


COSTS = {
    'loss': lambda scores: scores.get('dev_loss'),
    'bleu': lambda scores: -scores['dev_bleu'] if scores else None,
}


@functools.cache
def stopping_update():
    # What only the loop reads does not change the program.
    return mapped_update(config_of(**STOPPING | {'patience': 0}))


@functools.cache
def stopping_start() -> TrainState:
    return jax.device_get(initial_state(config_of(**STOPPING)))


@pytest.fixture
def trainings(monkeypatch, use_devices, tmp_path):
    """Returns a function that trains in `tmp_path/<name>`, and the notes of the last step.

    The training gets a signal after the steps given.
    """
    use_devices(1)
    now = {}

    def update(state, batch):
        now['step'] = int(state.step) + 1
        return stopping_update()(state, batch)

    fake = types.SimpleNamespace(**vars(parallel) | {'map_update': lambda _, remat: update})
    monkeypatch.setattr(loop, 'parallel', fake)
    start = stopping_start()
    # A copy, because the update reuses its memory.
    monkeypatch.setattr(loop, 'initial_state', lambda config: jax.tree.map(np.array, start))
    monkeypatch.setattr(
        loop,
        'prefetch',
        lambda _, start, stop, *__, **___: (parallel.to_devices(batch_of(k), 8) for k in range(start, stop)),
    )

    def run(name: str, config: Config, dev, *signals: int):
        checkpoints = Checkpoints(epath.Path(tmp_path / name / 'checkpoints'), config.train.keep)

        def evaluation(params):
            now['evaluated'] = fingerprint(params)
            return dev(DEV[now['step']])

        try:
            state, done = train(
                config,
                sums_of(config),
                NoBatches(),
                checkpoints,
                None,
                dev_scores(2, evaluation, COSTS[config.train.best_by]),
                lambda: 15 if now['step'] in signals else None,
            )
            return fingerprint(state), dataclasses.replace(done, seconds=0.0), checkpoints.best()
        except Stopped:
            return None
        finally:
            checkpoints.close()

    return run, now


@pytest.mark.parametrize('by', INTERRUPTED)
def test_an_interrupted_training_stops_where_another_one_stops(trainings, tmp_path, by):
    run, now = trainings
    chosen, dev = INTERRUPTED[by]
    changes = STOPPING | chosen
    config = config_of(**changes)
    through = run('through', config, dev)
    # Step 4 was the best, and the same again is no better.
    assert (through[1].step, through[1].stale, through[2]) == (10, 3, 4)
    assert through[1].best == (4.0 if by == 'loss' else -6.0)
    # The moving average is what was evaluated, and what is used.
    folder, plain = epath.Path(tmp_path / 'through'), config_of(**changes | {'ema': 0.0})
    assert fingerprint(restore.restore_params(config, folder, 'latest')[0]) == now['evaluated']
    assert fingerprint(restore.restore_params(plain, folder, 'latest')[0]) != now['evaluated']
    for at in (3, 4, 9):
        assert run('parts', config, dev, at) is None
    assert run('parts', config, dev, 10) == through
    # The same call again trains nothing; with more patience it goes on as if it had never stopped.
    assert run('parts', config, dev) == through
    patient = config_of(**changes | {'patience': 4})
    longer = run('patient', patient, dev)
    assert run('parts', patient, dev) == longer
    assert (longer[1].step, longer[1].stale, longer[2]) == (14, 1, 12)
    # What was trained for more steps than asked for stays as it is.
    assert run('parts', config_of(**changes | {'steps': 8, 'decay_steps': 14}), dev) == longer


def test_the_best_after_a_continuation_is_that_of_one_training(trainings, monkeypatch):
    """The last step of the first part was evaluated too, but lies between two evaluations."""
    run, _ = trainings
    # The moving average after the first update is what it made, without the first parameters.
    batch = parallel.to_devices(batch_of(0), 8)
    first, _ = stopping_update()(jax.tree.map(jnp.array, stopping_start()), batch)
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-6), first.ema, first.params)
    dev = lambda cost: {'dev_loss': cost}
    monkeypatch.setitem(DEV, 5, 0.5)
    part, whole = (config_of(**STOPPING | {'patience': 0, 'steps': n, 'decay_steps': 14}) for n in (5, 14))
    assert run('parts', part, dev)[2] == 5
    assert run('parts', whole, dev) == (through := run('through', whole, dev))
    assert through[2] == 12


def test_a_longer_training_after_an_unscored_last_step(trainings, monkeypatch):
    """A signal ended the scoring of the first part's last step, which the whole training does not score."""

    def stopped(cost):
        if now['step'] == 5:
            raise loop._ScoringStopped
        return dev(cost)

    run, now = trainings
    dev = lambda cost: {'dev_loss': cost}
    monkeypatch.setitem(DEV, 5, 0.5)
    part, whole = (config_of(**STOPPING | {'patience': 0, 'steps': n, 'decay_steps': 14}) for n in (5, 14))
    assert run('parts', part, stopped, 5) is None
    assert run('parts', whole, dev) == run('through', whole, dev)


def test_dropout_differs_by_seed_step_and_microbatch(use_devices):
    use_devices(1)
    config, other = config_of('decoder'), config_of('decoder', seed=1)
    keys = [
        jax.random.key_data(dropout_key(c, jnp.int32(step))).tolist()
        for c in (config, other)
        for step in (0, 1)
    ]
    assert len({tuple(key) for key in keys}) == 4
    # This generator draws masks, not the first parameters.
    by_rbg = config_of('decoder', prng='rbg')
    assert str(jax.random.key_impl(dropout_key(by_rbg, jnp.int32(0)))) == 'rbg'
    jax.tree.map(np.testing.assert_array_equal, initial_params(by_rbg), initial_params(config))
    # One microbatch twice: dropout draws each time anew, so the sum is not twice one of them.
    rows = jax.tree.map(lambda x: np.tile(x[:2], (2, 1)), batch_of(0, config))
    both = parallel.to_devices(rows, 2)
    params = initial_state(config).params

    def losses(params, batch):
        one = lambda i: jax.tree.map(lambda x: x[i : i + 1], batch)
        loss = lambda rows: gradients(config, sums_of(config), params, rows, jnp.int32(0))[1]['loss']
        return parallel.sum_over_devices((loss(one(0)), loss(one(1)), loss(batch)))

    first, second, together = map(float, parallel.map_sums(losses)(params, both))
    assert first == second
    assert together != pytest.approx(2 * first, rel=1e-3)


def test_evaluations_count_as_time_but_not_against_the_speed(monkeypatch, tmp_path, use_devices):
    use_devices(1)
    config = config_of(steps=8, log_every=2, checkpoint_every=100)
    clock = [0.0]

    def map_update(step, remat):
        def update(state, batch):
            clock[0] += 10
            return mapped(state, batch)

        mapped = parallel.map_update(step, remat=remat)
        return update

    def evaluation(params):
        clock[0] += 1000
        return {'dev_loss': 1.0}

    # The module's own clock: the checkpointer's threads read the real one meanwhile.
    monkeypatch.setattr(loop, 'time', types.SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(
        loop, 'parallel', types.SimpleNamespace(**vars(parallel) | {'map_update': map_update})
    )
    monkeypatch.setattr(
        loop, 'prefetch', lambda *_, **__: (parallel.to_devices(batch_of(k), 8) for k in range(8))
    )
    checkpoints = Checkpoints(epath.Path(tmp_path / 'checkpoints'), 1)
    batches = NoBatches()
    sums = sums_of(config)
    told = []
    _, done = train(
        config,
        sums,
        batches,
        checkpoints,
        epath.Path(tmp_path),
        dev_scores(4, evaluation),
        on_metrics=lambda step, numbers: told.append({'step': step, **numbers}),
    )
    checkpoints.close()
    lines = [json.loads(line) for line in (tmp_path / 'metrics.jsonl').read_text().splitlines()]
    counts = [int(np.count_nonzero(batch_of(k)['target'].tokens)) for k in range(8)]
    # One line a step, with what dev gave, and the same for other loggers.
    assert [line['step'] for line in lines] == [2, 4, 6, 8] and told == lines
    assert [line.get('dev_loss') for line in lines] == [None, 1.0, None, 1.0]
    assert [line['seconds'] for line in lines] == [20, 40, 1060, 1080]
    speeds = [line['tokens_per_second'] for line in lines]
    # The first update compiles.
    assert speeds == [counts[1] / 10] + [(counts[k] + counts[k + 1]) / 20 for k in (2, 4, 6)]
    assert [line['epoch'] for line in lines] == [0.25, 0.5, 0.75, 1.0]
    # Of the last update: 16^-0.5 · step · 10^-1.5.
    assert [line['learning_rate'] for line in lines] == pytest.approx(
        [s * 10**-1.5 / 4 for s in (2, 4, 6, 8)]
    )
    # With what the last evaluation took, also in the checkpoint.
    assert done == TrainingPosition(step=8, tokens=sum(counts), seconds=2080.0, best=1.0, stale=1)
    assert (
        json.loads((tmp_path / 'checkpoints' / '8' / 'meta' / 'metadata').read_text())['content']['meta'][
            'seconds'
        ]
        == 2080.0
    )


def test_each_new_shape_of_a_batch_says_that_it_compiles():
    said = []

    @contextlib.contextmanager
    def doing(what):
        said.append(what)
        yield

    shown, state = Metrics(None, 0, 1), initial_state(config_of('transformer'))
    shown.doing = doing
    updates = loop._compiling_aloud(lambda state, batch: (state, {'said': jnp.float32(len(said))}), 3, shown)
    batch = batch_of(0)
    other = jax.tree.map(lambda x: x[:, :2], batch)
    # An update runs while it is said.
    numbers = [float(updates(state, b)[1]['said']) for b in (batch, batch, other, batch, other)]
    assert numbers == [1, 1, 2, 2, 2]
    assert said == ['compiling shape 1 of 3', 'compiling shape 2 of 3']


def test_a_line_says_that_the_first_state_takes_long(monkeypatch, tmp_path):
    lines = []
    monkeypatch.setattr(progress, 'PATIENCE', 0.01)
    monkeypatch.setattr(loop, 'print_line', lambda bar, line: lines.append(line))

    def restore(*_):
        end = time.monotonic() + 60
        while not lines and time.monotonic() < end:
            time.sleep(0.01)
        raise InterruptedError

    monkeypatch.setattr(loop, '_restore', restore)
    config, folder = config_of(), epath.Path(tmp_path)
    with pytest.raises(InterruptedError):
        train(config, sums_of(config), NoBatches(), Checkpoints(folder, 1), folder, dev_scores())
    assert len(lines) == 1 and 'state' in lines[0]


@pytest.mark.parametrize(('steps', 'shapes', 'count'), [(1, 1, 1), (3, 3, 1), (4, 3, 0)])
def test_batches_that_hold_all_examples(caplog, steps, shapes, count):
    batches, config = NoBatches(), config_of('transformer')
    batches.steps_per_epoch, batches.shapes = steps, shapes
    splits = {'train': {'pairs': 7, 'source_tokens': 9, 'target_tokens': 9, 'dropped': {}}}
    dataset = Dataset(pathlib.Path(), {}, {}, {'splits': splits})
    actions.warn_of_large_batches(config, dataset, batches)
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == count and all('data.batch_tokens' in line and '7 ' in line for line in warnings)


def test_the_loss_is_on_the_scale_of_devs_and_the_smoothed_one_has_another_name():
    sums = {'loss': 30.0, 'nll': 40.0, 'correct': 5.0, 'weight': 20.0}
    expected = {'loss': 2.0, 'objective': 1.5, 'perplexity': np.exp(2.0), 'accuracy': 0.25}
    assert losses.training_means(sums) == pytest.approx(expected)
    # A task may sum no other loss than the one that it minimises, and whatever else it likes.
    other = {'loss': 30.0, 'weight': 20.0, 'own': 4.0}
    assert losses.training_means(other) == {'loss': 1.5, 'objective': 1.5, 'own': 0.2}


def test_sums_without_weight(monkeypatch):
    """A window of updates without anything to predict has no loss. A split without it cannot be judged."""
    sums = {'loss': 0.0, 'next': 3.0, 'next_weight': 2.0, 'weight': 0.0}
    found = losses.training_means(sums)
    assert np.isnan([found.pop('loss'), found.pop('objective')]).all() and found == {'next': 1.5}
    monkeypatch.setattr(split_sums, 'total', lambda *_: sums)
    with pytest.raises(ConfigError, match='^data: '):
        split_sums.means(lambda *_: sums, {}, NoBatches())


def test_a_split_can_have_more_tokens_than_float32_can_count(monkeypatch):
    weight = 2**24 - 1  # three times as much is no float32
    monkeypatch.setattr(
        split_sums, '_mapped_step', lambda sums: lambda state, batch: ({'weight': jnp.float32(weight)}, None)
    )
    monkeypatch.setattr(split_sums, 'prefetch', lambda *_, **__: range(3))
    assert split_sums.total(lambda *_: {}, {}, NoBatches()) == {'weight': 3 * weight}


def test_tokens_are_counted_to_the_nearest(tmp_path):
    # The weights of mixed images are sums of shares that float32 rounds.
    window = loop._Window(
        resolve(config_dict(SMALL)), Checkpoints(epath.Path(tmp_path), 1), TrainingPosition()
    )
    window.add({'loss': jnp.ones(()), 'weight': jnp.float32(199.99998), 'gradient_norm': jnp.ones(())})
    window.close()
    assert window.position().tokens == 200


@pytest.mark.parametrize(('name', 'what'), [('loss', 'loss'), ('gradient_norm', 'gradient')])
def test_the_step_whose_loss_or_gradient_is_not_finite_is_named(tmp_path, name, what):
    checkpoints = Checkpoints(epath.Path(tmp_path), 1)
    window = loop._Window(resolve(config_dict(SMALL)), checkpoints, TrainingPosition(step=7))
    finite = {key: jnp.ones(()) for key in ('loss', 'weight', 'gradient_norm')}
    for sums in (finite, finite | {name: jnp.float32(jnp.nan)}, finite):
        window.add(sums)
    with pytest.raises(loop.NonFiniteError, match=f'^{what} is not finite at step 9; there is no checkpoint'):
        window.close()


def test_only_a_finite_cost_can_be_an_improvement():
    position = TrainingPosition()
    for cost in (None, np.nan, -np.inf, 2.0, np.nan, 2.0, 3.0):
        position = position.judged(cost)
    assert (position.best, position.stale) == (2.0, 3)


def test_several_processes_ask_each_other_now_and_then():
    asked = [[step for step in range(25) if loop.agrees_on_signals(step, n)] for n in (1, 2)]
    assert asked == [[*range(25)], [0, 10, 20]]


def test_the_type_in_which_gradients_are_summed(use_devices):
    use_devices(4)

    def summed(dtype: str) -> np.ndarray:
        config = configs.replace(config_of('decoder'), {'train.gradient_dtype': dtype})
        state = parallel.replicate(initial_state(config)._replace(step=jnp.int32(7)))
        state, sums = mapped_update(config)(state, parallel.to_devices(batch_of(7, config), 8))
        # Adam's first mean is the gradient times 1 - beta1.
        scale = sums['weight'] / (1 - config.train.beta1)
        means = jax.tree.leaves(optax.tree.get(state.optimizer, 'mu'))
        return np.concatenate([np.ravel(mean * scale) for mean in means])

    exact, rounded = summed('float32'), summed('bfloat16')
    on_one = jax.tree.leaves(gradients_on_one_device('decoder', 'threefry')[0])
    np.testing.assert_allclose(exact, np.concatenate([np.ravel(g) for g in on_one]), rtol=1e-4, atol=1e-5)
    in_bfloat16 = lambda x: np.isclose(x, np.asarray(jnp.bfloat16(x), np.float32), rtol=1e-5, atol=0)
    assert in_bfloat16(rounded).all() and not in_bfloat16(exact).all()
    assert np.linalg.norm(rounded - exact) < 2**-8 * np.linalg.norm(exact)


def test_an_update_is_adam_on_the_mean_gradient(use_devices):
    use_devices(1)
    config = config_of()
    gradient, sums = gradients_on_one_device('transformer', 'threefry')
    state = initial_state(config)
    before = jax.device_get(state.params)
    state = parallel.replicate(state._replace(step=jnp.int32(7)))
    update = mapped_update(config)
    state, reported = update(state, parallel.to_devices(batch_of(7), 8))
    mean = jax.tree.map(lambda g: g / sums['weight'], gradient)
    norm = np.sqrt(sum(np.square(g).sum() for g in jax.tree.leaves(mean)))
    assert float(reported['gradient_norm']) == pytest.approx(norm, rel=1e-4)
    assert int(state.step) == 8
    # A batch of empty rows moves what Adam's means move, and nothing becomes NaN.
    empty = jax.tree.map(np.zeros_like, batch_of(7))
    moved, reported = update(jax.tree.map(jnp.array, state), parallel.to_devices(empty, 8))
    assert float(reported['weight']) == 0 and all(np.isfinite(x).all() for x in jax.tree.leaves(moved))
    # Adam's first update is the learning rate times the gradient's sign.
    rate = 16**-0.5 * 10**-1.5
    table = (before['embedding']['table'], mean['embedding']['table'], state.params['embedding']['table'])
    large = np.abs(table[1]) > 1e-6
    np.testing.assert_allclose((table[2] - table[0])[large], -rate * np.sign(table[1][large]), rtol=2e-2)
