"""With batch normalisation an example's output depends on its batch, and small batches are learned worse;
LayerNorm treats each example alone."""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.claims import extrapolation, toys
from experiments.claims.claim import Measurements, Verdict, by_name, config_of, spreads
from experiments.claims.panels import curves
from transformer.nn import models
from transformer.nn.layers import Norm
from transformer.training.step import initial_state

GROUPS = (2, 64)  # rows that are normalised together
ROWS, LENGTH, UPDATES, SEEDS = 64, 32, 150, 3
EPSILON = 1e-6
MODEL = toys.LANGUAGE_MODEL | toys.ATTENTION
LAYER, BATCH = NORMS = ('LayerNorm', 'batch normalisation')
SOURCE = '§3.1; Ba et al. 2016; Ioffe and Szegedy 2015'
CRITERION = (
    f'one layer repeats symbols, {UPDATES} updates of {ROWS} rows: when the other rows of a batch change, '
    'the logits of a row change by exactly 0 with LayerNorm and by more than 0.01 of their norm with '
    f'batch normalisation; normalised in groups of {GROUPS[0]} rows the loss is higher than in groups of '
    f'{GROUPS[1]}; with every seed'
)


def by_batch(rows: int) -> Callable:
    """Returns a replacement of LayerNorm by statistics of each feature over groups of rows and positions."""

    def normalise(call: Callable, args: tuple, kwargs: dict, context) -> object:
        if not isinstance(context.module, Norm) or context.method_name != '__call__':
            return call(*args, **kwargs)
        x = args[0]
        groups = x.reshape(-1, rows, *x.shape[1:])
        mean = jnp.mean(groups, axis=(1, 2), keepdims=True)
        variance = jnp.mean(jnp.square(groups - mean), axis=(1, 2), keepdims=True)
        normalised = ((groups - mean) * jax.lax.rsqrt(variance + EPSILON)).reshape(x.shape)
        # The layer's own scale and bias, which LayerNorm applies to its normalised input.
        call(*args, **kwargs)
        layer = context.module.variables['params']['layer']
        return normalised * layer['scale'][None, None] + layer['bias'][None, None]

    return normalise


@functools.cache
def _programs(rows: int | None) -> tuple[Callable, Callable]:
    """Compiles the logits and an update; `rows` are normalised together, or each position alone if None."""
    config = config_of(MODEL)
    model, adam = models.build(config), optax.adam(config.train.peak_lr)

    def logits(params, batch):
        replaced = nn.intercept_methods(
            by_batch(rows) if rows else lambda call, args, kw, _: call(*args, **kw)
        )
        with replaced:
            return model.apply({'params': params}, batch, train=False)

    def loss(params, batch):
        costs = optax.softmax_cross_entropy_with_integer_labels(logits(params, batch), batch['text'].tokens)
        return jnp.sum(costs * batch['weight']) / jnp.sum(batch['weight'])

    def update(params, state, batch):
        value, gradient = jax.value_and_grad(loss)(params, batch)
        changes, state = adam.update(gradient, state)
        return optax.apply_updates(params, changes), state, value

    return jax.jit(logits), jax.jit(update)


def train(rows: int | None, seed: int) -> tuple[models.Params, list[float]]:
    """Trains a model. Returns its parameters and the loss of every update."""
    config = config_of(MODEL | {'train.seed': seed})
    params, rng, losses = initial_state(config).params, np.random.default_rng(seed), []
    state, (_, update) = optax.adam(config.train.peak_lr).init(params), _programs(rows)
    for _ in range(UPDATES):
        params, state, loss = update(params, state, extrapolation.texts(rng, ROWS, LENGTH))
        losses.append(float(loss))
    return params, losses


def change(rows: int | None, params: models.Params, seed: int) -> float:
    """Computes how far the first row's logits move when the others change, relative to their norm."""
    rng = np.random.default_rng([seed, 1])
    first, other = (extrapolation.texts(rng, ROWS, LENGTH) for _ in range(2))
    tokens = other['text'].tokens.copy()
    tokens[0] = first['text'].tokens[0]
    other = other | {'text': other['text']._replace(tokens=tokens)}
    logits, _ = _programs(rows)
    one, two = (np.asarray(logits(params, batch)[0], np.float64) for batch in (first, other))
    return float(np.linalg.norm(one - two) / np.linalg.norm(one))


def measure(seed: int) -> dict:
    """Measures the change by the batch, and the mean loss of the last tenth of the updates."""
    measured = {}
    for name, rows in ((LAYER, None), *((f'{BATCH}, {rows} rows', rows) for rows in GROUPS)):
        params, losses = train(rows, seed)
        last = float(np.mean(losses[-UPDATES // 10 :]))
        measured[name] = {'change': change(rows, params, seed), 'loss': last, 'losses': losses}
    return measured


def judge(measurements: Measurements) -> Verdict:
    changes = by_name(measurements, lambda m: m['change'])
    losses = by_name(measurements, lambda m: m['loss'])
    small, large = (f'{BATCH}, {rows} rows' for rows in GROUPS)
    holds = max(changes[LAYER]) == 0 and min(changes[small] + changes[large]) > 0.01
    holds = holds and all(a > b for a, b in zip(losses[small], losses[large], strict=True))
    return Verdict(holds, f'change: {spreads(changes, ".2g")}; loss: {spreads(losses, ".3f")}')


PANELS = (
    curves(
        range(1, UPDATES + 1),
        'update',
        'loss',
        lambda m: {name: found['losses'] for name, found in m.items()},
        legend=True,
        style={'linewidth': 0.8, 'marker': ''},
    ),
)
