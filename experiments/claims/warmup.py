"""Post-norm needs a warm-up of the learning rate, pre-norm does not."""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.claims.claim import (
    LANGUAGE_MODEL,
    Claim,
    Measurement,
    Panel,
    Verdict,
    by_name,
    config_of,
    prepared,
    spreads,
)
from experiments.claims.panels import curves
from transformer.config import Config, replace
from transformer.tasks import sums_of, task_of
from transformer.training import optim
from transformer.training.step import initial_state

NORMS = ('post', 'pre')
RATES, WARMUPS = (0.001, 0.003, 0.01, 0.03), (1, 50)
UPDATES, SCORED, SEEDS = 150, 15, 3
MODEL = {
    **LANGUAGE_MODEL,
    'model.N': 8,
    'model.d_model': 32,
    'model.d_ff': 64,
    'model.h': 2,
    'model.vocab_size': 600,
    'data.source': 'grammar',
    'data.name': None,
    'data.language': 'de',
    'data.pieces': 600,
    'data.batching': 'packed',
    'data.row_len': 32,
    'data.max_len': 32,
    'data.batch_tokens': 512,
}


@functools.cache
def _update(config: Config) -> Callable:
    """The compiled update of several models at once, each with its own learning rate."""
    unit = optim.adam(replace(config, {'train.peak_lr': 1.0, 'train.warmup_steps': 1}))

    def loss(params, batch):
        # The whole batch as one microbatch.
        sums = sums_of(config)(params, jax.tree.map(lambda x: x[None], batch), None)
        return sums['loss'] / sums['weight']

    def one(params, state, batch, rate):
        value, gradient = jax.value_and_grad(loss)(params, batch)
        changes, state = unit.update(gradient, state, params)
        params = optax.apply_updates(params, jax.tree.map(lambda change: rate * change, changes))
        return params, state, value

    return jax.jit(jax.vmap(one, (0, 0, None, 0)), donate_argnums=(0, 1))


def rates(config: Config) -> np.ndarray:
    """The learning rate of every update."""
    return np.asarray([optim.learning_rate(config, step) for step in range(1, UPDATES + 1)])


def measure(seed: int) -> Measurement:
    """The mean loss of the last updates, by norm, warm-up and learning rate."""
    losses_by_norm = {}
    for norm in NORMS:
        config = config_of(MODEL | {'model.norm': norm, 'train.seed': seed})
        order = task_of(config).batches(config, prepared(config_of(MODEL)), 'train')
        schedules = np.stack(
            [
                rates(replace(config, {'train.peak_lr': rate, 'train.warmup_steps': warmup}))
                for warmup in WARMUPS
                for rate in RATES
            ]
        )
        first = initial_state(config)
        copies = lambda x: jnp.broadcast_to(x, (len(schedules), *x.shape)).copy()
        params, state = jax.tree.map(copies, (first.params, first.optimizer))
        update, losses = _update(replace(config, {'train.seed': 0})), []
        for step in range(UPDATES):
            params, state, loss = update(params, state, order.batch(step), schedules[:, step])
            losses.append(loss)
        last = np.mean(losses[-SCORED:], axis=0).reshape(len(WARMUPS), len(RATES))
        losses_by_norm[norm] = {
            str(warmup): {str(rate): float(loss) for rate, loss in zip(RATES, row, strict=True)}
            for warmup, row in zip(WARMUPS, last, strict=True)
        }
    return losses_by_norm


def cost(m: Measurement, norm: str) -> float:
    """How much higher the least loss is without warm-up than with it, each at its best learning rate."""
    without, with_it = (min(m[norm][str(warmup)].values()) for warmup in WARMUPS)
    return without - with_it


def judge(measurements: Sequence[Measurement]) -> Verdict:
    """Compares what leaving out the warm-up costs."""
    costs = by_name(measurements, lambda m: {f'{norm}-norm': cost(m, norm) for norm in NORMS})
    holds = min(costs['post-norm']) > 0.1 and max(costs['pre-norm']) < 0.05
    return Verdict(holds, f'nats that no warm-up costs: {spreads(costs, ".3f")}')


def _panel(norm: str, legend: bool) -> Panel:
    values = lambda m: {f'warm-up of {warmup}': list(m[norm][str(warmup)].values()) for warmup in WARMUPS}
    return curves(RATES, 'learning rate', 'loss', values, ticks='log', legend=legend, title=f'{norm}-norm')


CLAIM = Claim(
    statement='Post-norm needs a warm-up of the learning rate, pre-norm does not.',
    source='§5.3; Xiong et al. 2020',
    criterion=(
        f'language models of {MODEL["model.N"]} layers, mean loss of the last {SCORED} of {UPDATES} updates, '
        f'the least among the learning rates {", ".join(map(str, RATES))}: without warm-up it is above that '
        f'with {WARMUPS[-1]} updates of it by more than 0.1 nats with post-norm, and by less than 0.05 with '
        'pre-norm; with every seed'
    ),
    seeds=SEEDS,
    measure=measure,
    judge=judge,
    panels=(*(_panel(norm, legend=norm == NORMS[0]) for norm in NORMS),),
    why=(
        'Post-norm does need it here, but pre-norm gains from it too, though less: a warm-up lets it use a '
        'learning rate three times as high. How much post-norm needs it depends on the model: in a trial '
        'with 1,800 pieces instead of 600, which took too long, two seeds lost nothing without warm-up.'
    ),
)
