"""The update in numpy: learning rates, clipping, Adam, weight decay and the moving average."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from transformer.actions.train import check_best
from transformer.config import OPTIONS, Config, ConfigError, config_dict, resolve
from transformer.training import optim

WARMUP, STEPS = 4, 12


def config_of(**changes) -> Config:
    of_train = {f'train.{key}': value for key, value in changes.items()}
    small = {'model.d_model': 16, 'train.warmup_steps': WARMUP, 'train.steps': STEPS}
    return resolve(config_dict({**small, **of_train}))


def rates(config: Config, count: int = STEPS) -> np.ndarray:
    return np.array([float(optim.learning_rate(config, step)) for step in range(1, count + 1)])


RISE = [0.25, 0.5, 0.75, 1.0]
SHARES = {
    'inverse_sqrt': RISE + [math.sqrt(4 / step) for step in range(5, 13)],
    'constant': RISE + [1.0] * 8,
    'linear': RISE + [7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8, 0.0],
    'cosine': RISE + [(1 + math.cos(math.pi * n / 8)) / 2 for n in range(1, 9)],
}


@pytest.mark.parametrize('schedule', SHARES)
def test_schedules(schedule):
    shares = np.array(SHARES[schedule])
    # (16 · 4)^-0.5 = 1/8, times lr_constant.
    np.testing.assert_allclose(rates(config_of(schedule=schedule)), shares / 8, rtol=1e-5, atol=1e-8)
    found = rates(config_of(schedule=schedule, lr_constant=3.0))
    np.testing.assert_allclose(found, shares * 3 / 8, rtol=1e-5, atol=1e-7)
    found = rates(config_of(schedule=schedule, peak_lr=3e-4))
    np.testing.assert_allclose(found, shares * 3e-4, rtol=1e-5, atol=1e-10)


@pytest.mark.parametrize('schedule', ['linear', 'cosine'])
def test_a_schedule_ends_at_decay_steps(schedule):
    config = config_of(schedule=schedule, decay_steps=20)
    assert rates(config, 20)[-1] == pytest.approx(0.0, abs=1e-8)
    assert rates(config, 20)[11] == pytest.approx(1 / 16)
    # Written to config.json, so that other train.steps do not change what is learned.
    assert config_of(schedule=schedule).train.decay_steps == STEPS
    assert config_of().train.decay_steps is None


@pytest.mark.parametrize('schedule', ['linear', 'cosine'])
def test_a_schedule_stays_above_its_floor(schedule):
    floor, shares = 0.2, np.array(SHARES[schedule])
    # The rise from 0 stays as it is.
    shares[4:] = np.maximum(shares[4:], floor)
    np.testing.assert_allclose(rates(config_of(schedule=schedule, least_lr=floor)), shares / 8, rtol=1e-5)
    # Above the floor a training can go on after the schedule's end.
    longer = config_of(schedule=schedule, least_lr=floor, decay_steps=10)
    assert longer.train.steps == STEPS > 10 and rates(longer)[-1] == pytest.approx(floor / 8)


PARAMS = {
    'norm': {'scale': np.ones(3), 'bias': np.zeros(3), 'log_scale': np.full(1, 2.0)},
    'query': {'kernel': np.arange(6.0).reshape(3, 2) - 2.0, 'bias': np.full((1, 2), 0.5)},
    'embedding': {'table': np.linspace(-1.0, 1.0, 8).reshape(4, 2), 'softmax_bias': np.full(4, 0.25)},
}
KINDS = {
    'adam': {},
    'clipped': {'clip_norm': 1.0},
    'adamw': {'weight_decay': 0.3, 'schedule': 'linear', 'beta1': 0.8, 'beta2': 0.99, 'adam_eps': 0.01},
    'frozen': {'frozen': 'query', 'weight_decay': 0.3, 'clip_norm': 1.0},
    'all': {'clip_norm': 2.0, 'weight_decay': 0.1, 'schedule': 'cosine', 'ema': 0.9, 'peak_lr': 0.01},
    'averaged': {'ema': 0.5, 'schedule': 'constant'},
    'sgd': {'optimizer': 'sgd', 'clip_norm': 1.0, 'peak_lr': 0.025},
    'bert': {'bias_correction': False, 'weight_decay': 0.1, 'clip_norm': 1.0, 'adam_eps': 0.01},
}


def flat(tree) -> dict[str, np.ndarray]:
    return {f'{a}/{b}': np.asarray(leaf) for a, inner in tree.items() for b, leaf in inner.items()}


def gradients(count: int) -> list[dict]:
    """Draws gradients of norms below and above the clipping norm."""
    rng = np.random.default_rng(1)
    sizes = (0.05, 3.0, 0.2, 1.0, 0.01, 10.0)
    return [
        {
            a: {b: size * rng.normal(size=leaf.shape) for b, leaf in inner.items()}
            for a, inner in PARAMS.items()
        }
        for size in sizes[:count]
    ]


def expected(config: Config, kind: dict, rate: np.ndarray) -> tuple[dict, dict | None]:
    """Parameters and their average after six updates, from the papers' equations in double precision."""
    w = {name: leaf.astype(np.float64) for name, leaf in flat(PARAMS).items()}
    m, v = ({name: np.zeros_like(leaf) for name, leaf in w.items()} for _ in range(2))
    history = []
    beta1, beta2 = kind.get('beta1', 0.9), kind.get('beta2', 0.98)
    for t, gradient in enumerate(map(flat, gradients(6)), start=1):
        gradient = {n: g for n, g in gradient.items() if not n.startswith(kind.get('frozen', ' '))}
        norm = math.sqrt(sum((g**2).sum() for g in gradient.values()))
        share = min(1.0, kind['clip_norm'] / norm) if 'clip_norm' in kind else 1.0
        for name, g in gradient.items():
            g = share * g
            m[name] = beta1 * m[name] + (1 - beta1) * g
            v[name] = beta2 * v[name] + (1 - beta2) * g**2
            starts = (1 - beta1**t, 1 - beta2**t) if kind.get('bias_correction', True) else (1.0, 1.0)
            size = np.sqrt(v[name] / starts[1]) + kind.get('adam_eps', 1e-9)
            direction = m[name] / starts[0] / size
            direction = g if 'optimizer' in kind else direction
            if not name.endswith(('bias', 'scale')):
                direction = direction + kind.get('weight_decay', 0.0) * w[name]
            w[name] = w[name] - rate[t - 1] * direction
        history.append(dict(w))
    if 'ema' not in kind:
        return w, None
    weights = [kind['ema'] ** (6 - s) for s in range(1, 7)]
    mean = {n: sum(a * old[n] for a, old in zip(weights, history, strict=True)) / sum(weights) for n in w}
    return w, mean


def test_no_allowed_epsilon_lets_updates_explode():
    """Of a gradient whose square is 0 in float32, Adam divides the mean by ε alone."""
    config = config_of(
        peak_lr=1e-3, schedule='constant', adam_eps=OPTIONS['train.adam_eps'].metadata['minimum']
    )
    optimizer = optim.optimizer(config)
    gradient = {'w': {'kernel': jnp.float32(10.0) ** -jnp.arange(12.0, 31.0)}}
    params = jax.tree.map(jnp.zeros_like, gradient)
    state = optimizer.init(params)
    for _ in range(3):
        updates, state = optimizer.update(gradient, state, params)
    assert 0 < jnp.max(-updates['w']['kernel']) <= 1.01e-3


@pytest.mark.parametrize('kind', KINDS)
def test_updates_are_the_equations(kind):
    config = config_of(**KINDS[kind])
    optimizer = optim.optimizer(config)
    to_jax = lambda tree: {a: {b: jnp.float32(x) for b, x in inner.items()} for a, inner in tree.items()}
    params = average = to_jax(PARAMS)
    state = optimizer.init(params)
    for t, gradient in enumerate(gradients(6), start=1):
        updates, state = optimizer.update(to_jax(gradient), state, params)
        params = optax.apply_updates(params, updates)
        if config.train.ema:
            average = optim.moving_average(config, average, params, jnp.int32(t))
    shares = np.array(SHARES[config.train.schedule])
    rate = shares * KINDS[kind].get('peak_lr', 1 / 8)
    w, mean = expected(config, KINDS[kind], rate)
    for name, leaf in flat(params).items():
        np.testing.assert_allclose(leaf, w[name], rtol=2e-4, atol=2e-5, err_msg=name)
    for name, leaf in flat(average).items() if mean else ():
        np.testing.assert_allclose(leaf, mean[name], rtol=2e-4, atol=2e-5, err_msg=name)


def test_adafactor_in_numpy():
    """Shazeer and Stern 2018, algorithms 4 and 5, with the constants of T5."""
    config = config_of(optimizer='adafactor', schedule='constant', peak_lr=0.1)
    optimizer, rng = optim.optimizer(config), np.random.default_rng(0)
    # Only the kernel has two axes that are long enough to be factored.
    w = {'kernel': rng.normal(size=(128, 130)), 'table': np.full((4, 200), 1e-5), 'bias': np.zeros(3)}
    params = {name: jnp.float32(leaf) for name, leaf in w.items()}
    state = optimizer.init(params)
    v = {name: np.zeros_like(leaf) for name, leaf in w.items()}
    rows, columns = np.zeros(128), np.zeros(130)
    for t in range(1, 4):
        gradient = {name: rng.normal(size=leaf.shape) * 0.1 * t for name, leaf in w.items()}
        updates, state = optimizer.update({k: jnp.float32(g) for k, g in gradient.items()}, state, params)
        params = optax.apply_updates(params, updates)
        kept = 1 - t**-0.8
        for name, g in gradient.items():
            v[name] = kept * v[name] + (1 - kept) * g**2
            if name == 'kernel':
                rows = kept * rows + (1 - kept) * (g**2).mean(axis=1)
                columns = kept * columns + (1 - kept) * (g**2).mean(axis=0)
                v[name] = np.outer(rows, columns) / rows.mean()
            u = g / np.sqrt(v[name])
            u = u / max(1.0, np.sqrt((u**2).mean()))
            size = max(1e-3, np.sqrt((w[name] ** 2).mean()))
            w[name] = w[name] - 0.1 * min(t / WARMUP, 1.0) * size * u
        for name, leaf in params.items():
            np.testing.assert_allclose(leaf, w[name], rtol=2e-4, atol=1e-6, err_msg=name)


def test_an_average_over_many_updates_keeps_its_digits():
    config = config_of(ema=0.9999)
    average = {'w': jnp.float32(7.0)}
    for step in range(1, 101):
        average = optim.moving_average(config, average, {'w': jnp.float32(step)}, jnp.int32(step))
    weights = 0.9999 ** np.arange(99, -1, -1)
    assert float(average['w']) == pytest.approx((weights @ np.arange(1, 101)) / weights.sum(), rel=1e-5)


BLEU = {'best_by': 'bleu', 'watch_every': 4, 'checkpoint_every': 4}


@pytest.mark.parametrize(
    ('changes', 'parts'),
    [
        ({'schedule': 'linear', 'warmup_steps': 12}, ['train.warmup_steps=12', 'train.decay_steps=12']),
        ({'schedule': 'cosine', 'decay_steps': 10}, ['train.steps=12', 'at most 10']),
        ({'decay_steps': 20}, ['train.decay_steps=20', "train.schedule='inverse_sqrt'", 'linear or cosine']),
        ({'schedule': 'cosin'}, ["'cosin'", "'cosine'"]),
        ({'optimizer': 'adafactor', 'beta2': 0.9}, ['train.beta2=0.9', "train.optimizer='adafactor'"]),
        ({'clip_norm': -1.0}, ['train.clip_norm=-1.0', 'at least 0']),
        ({'ema': 1.0}, ['train.ema=1.0']),
        ({'lr_constant': math.inf}, ['train.lr_constant=inf', 'finite']),
        ({'lr_constant': 0.5, 'peak_lr': 0.1}, ['train.lr_constant=0.5', 'train.peak_lr=0.1']),
        (
            {'ema': 0.9, 'average_last': 2, 'average_every': 1, 'checkpoint_every': 1},
            ['average_last=2', 'ema'],
        ),
        (
            {'average_last': 2, 'average_every': 3, 'checkpoint_every': 2},
            ['train.average_every=3', 'train.checkpoint_every=2'],
        ),
        ({'best_by': 'bleu'}, ["train.best_by='bleu'", 'train.watch_every']),
        (
            BLEU | {'checkpoint_every': 3},
            ['train.watch_every=4', 'train.checkpoint_every=3', 'train.best_by'],
        ),
        ({'patience': 1, 'eval_every': 2, 'checkpoint_every': 3}, ['eval_every=2', '=3', 'train.patience']),
        ({'scored': 'best', 'eval_every': 2, 'checkpoint_every': 3}, ['eval_every=2', '=3', 'train.scored']),
        ({'best_by': 'BLEU'}, ["train.best_by='BLEU'", 'loss', 'bleu']),
    ],
)
def test_what_does_not_go_together(changes, parts):
    with pytest.raises(ConfigError) as error:
        check_best(config_of(**changes))
    assert '\n' not in str(error.value)
    assert all(part in str(error.value) for part in parts), error.value


def test_what_goes_together():
    check_best(config_of(**BLEU, patience=2))
    # However many checkpoints there will be, those are averaged that there are.
    check_best(config_of(patience=1, eval_every=2, checkpoint_every=2, average_last=4))
    config_of(steps=8, checkpoint_every=4, average_last=3)
    scored = [config_of(**changes).train.scored for changes in ({}, {'patience': 1}, BLEU)]
    assert scored == ['latest', 'best', 'best']
