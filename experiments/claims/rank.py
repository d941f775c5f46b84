"""Attention alone makes all positions alike with depth; residual connections keep them apart."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from experiments.claims.claim import LANGUAGE_MODEL, Measurements, Verdict, by_name, config_of, spreads
from experiments.claims.panels import curves
from transformer.nn.attention import MultiHeadAttention
from transformer.tokens import Tokens

LAYERS, ROWS, LENGTH, SEEDS = 12, 4, 16, 3
MODEL = LANGUAGE_MODEL | {'model.d_model': 64, 'model.h': 4, 'model.positions': 'none'}
ALONE, ADDED = STACKS = ('attention alone', 'with residual connections')
SOURCE = '§3.1; Dong et al. 2021'
CRITERION = (
    f'{LAYERS} untrained layers of attention, without feed-forward networks and LayerNorm: the distance of a '
    "row's vectors from their mean falls below 1e-3 of their norm, and stays above 0.1 of it with residual "
    'connections, with every seed'
)


@functools.cache
def _programs():
    """Compiles the initial parameters and the outputs of one layer."""
    layer = MultiHeadAttention(config_of(MODEL).model, 'self')
    places = jnp.broadcast_to(jnp.arange(LENGTH), (ROWS, LENGTH))
    text = Tokens(places, jnp.ones_like(places), places)
    initial = lambda key, x: layer.init(key, x, text, None, causal=False, train=False)
    attend = lambda params, x: layer.apply(params, x, text, None, causal=False, train=False)
    return jax.jit(initial), jax.jit(attend)


def difference(x: jax.Array) -> float:
    """Computes the distance of vectors from their row's mean, relative to their norm."""
    x = np.asarray(x, np.float64)
    return float(np.linalg.norm(x - x.mean(axis=1, keepdims=True)) / np.linalg.norm(x))


def measure(seed: int) -> dict:
    """Measures the difference after each layer of both stacks, which have the same parameters."""
    initial, attend = _programs()
    first, *keys = jax.random.split(jax.random.key(seed), LAYERS + 1)
    measured = {}
    for name in STACKS:
        x = jax.random.normal(first, (ROWS, LENGTH, MODEL['model.d_model']))
        measured[name] = [difference(x)]
        for key in keys:
            y = attend(initial(key, x), x)
            x = x + y if name == ADDED else y
            measured[name].append(difference(x))
    return measured


def judge(measurements: Measurements) -> Verdict:
    last = by_name(measurements, lambda differences: differences[-1])
    holds = max(last[ALONE]) < 1e-3 and min(last[ADDED]) > 0.1
    return Verdict(holds, f'difference after {LAYERS} layers: {spreads(last, ".2g")}')


PANELS = (curves(range(LAYERS + 1), 'layers', 'difference between positions', legend=True, yscale='log'),)
