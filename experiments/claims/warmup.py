"""Post-norm needs a warm-up of the learning rate, pre-norm does not."""

import functools
import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.claims import claim
from experiments.claims.claim import Measurements, Verdict, by_name, config_of, prepared, spreads
from experiments.claims.panels import Panel, curves
from transformer.config import Config, replace
from transformer.tasks import sums_of, task_of
from transformer.training import optim
from transformer.training.step import initial_state

NORMS = ('post', 'pre')
RATES, WARMUPS = (0.001, 0.003, 0.01, 0.03), (1, 50)
UPDATES, SCORED, SEEDS = 150, 15, 3
SIZES = {'model.N': 8, 'model.d_model': 32, 'model.d_ff': 64, 'model.h': 2}
DATA = claim.GRAMMAR | {'data.language': 'de', 'data.pieces': 600, 'data.batch_tokens': 512}
MODEL = claim.LANGUAGE_MODEL | SIZES | DATA
SOURCE = '§5.3; Xiong et al. 2020'
CRITERION = (
    f'language models of {MODEL["model.N"]} layers, mean loss of the last {SCORED} of {UPDATES} updates, '
    f'the least among the learning rates {", ".join(map(str, RATES))}: without warm-up it is above that '
    f'with {WARMUPS[-1]} updates of it by more than 0.1 nats with post-norm, and by less than 0.05 with '
    'pre-norm; with every seed'
)


@functools.cache
def _update(config: Config) -> Callable:
    """Compiles an update of several models at once, each with its own learning rate."""
    adam = optim.optimizer(replace(config, {'train.peak_lr': 1.0, 'train.warmup_steps': 1}))

    def loss(params, batch):
        # The whole batch as one microbatch.
        sums = sums_of(config)(params, jax.tree.map(lambda x: x[None], batch), None)
        return sums['loss'] / sums['weight']

    def update_one(params, state, batch, rate):
        value, gradient = jax.value_and_grad(loss)(params, batch)
        changes, state = adam.update(gradient, state, params)
        params = optax.apply_updates(params, jax.tree.map(lambda change: rate * change, changes))
        return params, state, value

    return jax.jit(jax.vmap(update_one, (0, 0, None, 0)), donate_argnums=(0, 1))


def rates(config: Config) -> np.ndarray:
    """Computes the learning rate of every update."""
    return np.asarray([optim.learning_rate(config, step) for step in range(1, UPDATES + 1)])


def measure(seed: int) -> dict:
    """Measures the mean loss of the last updates, by norm, warm-up and learning rate."""
    losses_by_norm = {}
    for norm in NORMS:
        config = config_of(MODEL | {'model.norm': norm, 'train.seed': seed})
        order = task_of(config).batches(config, prepared(config_of(MODEL)), 'train')
        schedule = lambda warmup, rate: {'train.peak_lr': rate, 'train.warmup_steps': warmup}
        grid = itertools.product(WARMUPS, RATES)
        schedules = [rates(replace(config, schedule(warmup, rate))) for warmup, rate in grid]
        first = initial_state(config)
        copies = lambda x: jnp.broadcast_to(x, (len(schedules), *x.shape)).copy()
        params, state = jax.tree.map(copies, (first.params, first.optimizer))
        update, losses = _update(replace(config, {'train.seed': 0})), []
        for step in range(UPDATES):
            params, state, loss = update(params, state, order.batch(step), np.stack(schedules)[:, step])
            losses.append(loss)
        last = np.mean(losses[-SCORED:], axis=0).reshape(len(WARMUPS), len(RATES)).tolist()
        by_rate = [dict(zip(map(str, RATES), row, strict=True)) for row in last]
        losses_by_norm[norm] = dict(zip(map(str, WARMUPS), by_rate, strict=True))
    return losses_by_norm


def judge(measurements: Measurements) -> Verdict:
    def cost(losses) -> float:
        """Computes the loss without warm-up minus the loss with it, each at its best learning rate."""
        without_warmup, with_warmup = (min(losses[str(warmup)].values()) for warmup in WARMUPS)
        return without_warmup - with_warmup

    costs = {f'{norm}-norm': values for norm, values in by_name(measurements, cost).items()}
    holds = min(costs['post-norm']) > 0.1 and max(costs['pre-norm']) < 0.05
    return Verdict(holds, f'nats that no warm-up costs: {spreads(costs, ".3f")}')


def _panel(norm: str, legend: bool) -> Panel:
    values = lambda m: {f'warm-up of {warmup}': list(m[norm][str(warmup)].values()) for warmup in WARMUPS}
    return curves(RATES, 'learning rate', 'loss', values, ticks='log', legend=legend, title=f'{norm}-norm')


PANELS = (_panel('post', legend=True), _panel('pre', legend=False))
