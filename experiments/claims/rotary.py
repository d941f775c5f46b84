"""Rotated by their positions, queries and keys have products that depend on the distance alone,
and decay with it."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.claims.claim import LANGUAGE_MODEL, Measurements, Verdict, config_of, spread
from experiments.claims.panels import curves
from transformer.nn.positions import AttentionPositions, sinusoid

D_K, LENGTH, VECTORS, SEEDS = 64, 2048, 32, 3
DISTANCES = (1, 10, 100, 1000)
MODEL = LANGUAGE_MODEL | {'model.h': 1, 'model.d_model': D_K, 'model.positions': 'rotary'}
SOURCE = 'Su et al. 2021, §3.2.2 and §3.4.3'
CRITERION = (
    f'{VECTORS} random vectors as query and key, d_k {D_K}: at distances {", ".join(map(str, DISTANCES))} '
    'the product of rotated vectors differs between positions by less than 1e-4 of their square, and with '
    'sinusoids added instead by more than 0.1 at some distance; the mean product of rotated ones falls '
    'in this order of distances; with every seed'
)


def products(vectors: np.ndarray, distance: int) -> np.ndarray:
    """Computes the products [V positions] of vectors [V T D] at positions `distance` apart."""
    return np.sum(vectors[:, : LENGTH - distance] * vectors[:, distance:], axis=-1)


def measure(seed: int) -> dict:
    """Measures, by distance, the mean product and the greatest range of a vector's over positions."""
    vectors = np.random.default_rng(seed).normal(size=(VECTORS, 1, D_K)).astype(np.float32)
    square = np.sum(np.square(vectors), axis=-1)
    repeated = np.repeat(vectors, LENGTH, axis=1)
    positions = jnp.broadcast_to(jnp.arange(LENGTH), (VECTORS, LENGTH))
    module = AttentionPositions(config_of(MODEL).model)
    rotate = jax.jit(lambda x: module.apply({}, x[:, :, None], positions, LENGTH, method='rotate')[:, :, 0])
    placed = {'rotated': np.asarray(rotate(repeated)), 'added': repeated + sinusoid(LENGTH, D_K, 'paper')}
    measured = {}
    for name, array in placed.items():
        shares = [products(array.astype(np.float64), k) / square for k in DISTANCES]
        ranges = [float(np.ptp(values, axis=1).max()) for values in shares]
        measured[name] = {'mean': [float(values.mean()) for values in shares], 'range': ranges}
    return measured


def judge(measurements: Measurements) -> Verdict:
    rotated, added = ([max(m[name]['range']) for m in measurements] for name in ('rotated', 'added'))
    means = [m['rotated']['mean'] for m in measurements]
    falls = all(a > b for mean in means for a, b in zip(mean, mean[1:], strict=False))
    by_distance = ', '.join(spread(values, '.2f') for values in zip(*means, strict=True))
    return Verdict(
        max(rotated) < 1e-4 and min(added) > 0.1 and falls,
        f'greatest range: rotated {spread(rotated, ".1e")}, sinusoids added {spread(added, ".2f")}; mean '
        f'products of rotated ones {by_distance}',
    )


PANELS = (
    curves(
        DISTANCES,
        'distance, positions',
        'product / square',
        lambda m: {name: at['mean'] for name, at in m.items()},
        ticks='log',
        legend=True,
    ),
)
