"""A recurrent network loses the gradient over long distances; self-attention does not."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.claims import claim
from experiments.claims.claim import Measurements, Verdict, by_name, config_of, spread, spreads
from experiments.claims.panels import curves
from transformer.config import Config
from transformer.nn import models, recurrent
from transformer.nn.stacks import Stack

LENGTH, ROWS, SEEDS = 128, 16, 5
NEAR, FAR = 1, 100  # the distances that are compared
LAYERS = {
    'RNN': {'model.kind': 'recurrent', 'model.cell': 'rnn_tanh'},
    'GRU': {'model.kind': 'recurrent', 'model.cell': 'gru'},
    'LSTM': {'model.kind': 'recurrent', 'model.cell': 'lstm'},
    'self-attention': {'model.kind': 'transformer', 'model.h': 4, 'model.d_ff': 128},
}
LANGUAGE = claim.LANGUAGE_MODEL | {'model.N': 1, 'model.d_model': 64}
SOURCE = '§4; Hochreiter 1991, Bengio et al. 1994'
CRITERION = (
    f'gradient at distance {FAR} over that at distance {NEAR}, untrained: above 0.1 for self-attention, '
    'below 0.01 for every recurrent cell, with every seed'
)


def norms(config: Config) -> list[float]:
    """Computes the norm of d(v·y) / dx by distance, for the last output y and a random unit vector v.

    Each norm is a root mean square over rows of standard normal inputs x.
    """
    m = config.model
    keys = jax.random.split(jax.random.key(config.train.seed), 3)
    x = jax.random.normal(keys[0], (ROWS, LENGTH, m.d_model))
    v = jax.random.normal(keys[1], (ROWS, m.d_model))
    v = v / jnp.linalg.norm(v, axis=-1, keepdims=True)
    text = jax.tree.map(jnp.asarray, models.blank(config, ROWS, LENGTH)['text'])
    stack = recurrent.make_decoder(m) if m.kind == 'recurrent' else Stack(m, m.N, causal=True)
    variables = stack.init(keys[2], x, text, None, train=False)

    def projected(x):
        return jnp.sum(stack.apply(variables, x, text, None, train=False)[:, -1] * v)

    # Float64, because the squares of the smallest norms underflow in float32.
    gradient = np.asarray(jax.jit(jax.grad(projected))(x), np.float64)
    return np.sqrt(np.mean(np.sum(np.square(gradient), axis=-1), axis=0))[::-1].tolist()


def measure(seed: int) -> dict:
    """Measures the gradient norms of each kind of layer."""
    return {name: norms(config_of(LANGUAGE | layer | {'train.seed': seed})) for name, layer in LAYERS.items()}


def judge(measurements: Measurements) -> Verdict:
    ratios = by_name(measurements, lambda norms: norms[FAR] / norms[NEAR])
    attention = ratios.pop('self-attention')
    holds = min(attention) > 0.1 and max(max(values) for values in ratios.values()) < 0.01
    return Verdict(holds, f'self-attention {spread(attention, ".2f")}; {spreads(ratios, ".1e")}')


PANELS = (
    curves(
        range(LENGTH),
        'distance, positions',
        'norm of the gradient',
        legend=True,
        style={'linewidth': 0.8, 'marker': ''},
        yscale='log',
        ylim=(1e-12, 10),
    ),
)
