"""The dot product of two sinusoidal positions depends on their distance alone and falls with it;
random projections to queries and keys lose this."""

import numpy as np

from experiments.claims.claim import Measurements, Verdict, spread
from experiments.claims.panels import curves
from transformer.nn.positions import sinusoid

D_MODEL, LENGTH, SEEDS = 512, 2000, 3
DISTANCES = (1, 10, 100, 1000)
NEAR = 100  # the greatest distance of the correlations
SOURCE = '§3.5; Yan et al. 2019, §3.2'
CRITERION = (
    f'd_model {D_MODEL}, {LENGTH:,} positions: the products at distance {", ".join(map(str, DISTANCES))} '
    "differ between positions by less than 1e-4 of an encoding's square, and their means fall in this order; "
    f'with random matrices of queries and keys, the correlation of product and distance, 0 to {NEAR}, is '
    'below 0.2 in size, and above 0.5 without them; with every seed'
)


def products(encoding: np.ndarray, projected: np.ndarray, distance: int) -> np.ndarray:
    """Computes products of positions and those `distance` after them; plain ones over the mean square."""
    square = np.mean(np.sum(encoding * projected, axis=1)) if projected is encoding else 1.0
    return np.sum(projected[: LENGTH - distance] * encoding[distance:LENGTH], axis=1) / square


def measure(seed: int) -> dict:
    """Measures means and ranges of products by distance, and correlations without and with projections."""
    encoding = sinusoid(LENGTH, D_MODEL, 'paper').astype(np.float64)
    query, key = np.random.default_rng(seed).normal(0.0, D_MODEL**-0.5, (2, D_MODEL, D_MODEL))
    by_distance = [products(encoding, encoding, k) for k in DISTANCES]
    correlations = {}
    for name, projected in (('plain', encoding), ('projected', encoding @ query @ key.T)):
        near = [products(encoding, projected, k) for k in range(NEAR + 1)]
        distances = np.repeat(np.arange(NEAR + 1), list(map(len, near)))
        correlations[name] = float(np.corrcoef(distances, np.concatenate(near))[0, 1])
    return {
        'mean': [float(values.mean()) for values in by_distance],
        'range': [float(np.ptp(values)) for values in by_distance],
        **correlations,
    }


def judge(measurements: Measurements) -> Verdict:
    ranges = [max(m['range']) for m in measurements]
    falls = all(a > b for m in measurements for a, b in zip(m['mean'], m['mean'][1:], strict=False))
    plain, projected = ([m[name] for m in measurements] for name in ('plain', 'projected'))
    holds = max(ranges) < 1e-4 and falls and max(map(abs, projected)) < 0.2 and min(map(abs, plain)) > 0.5
    means = ', '.join(f'{mean:.2f}' for mean in measurements[0]['mean'])
    return Verdict(
        holds,
        f'mean products {means}, greatest range {spread(ranges, ".1e")}; correlation with distance '
        f'{spread(plain, ".2f")}, projected {spread(projected, ".2f")}',
    )


PANELS = (
    curves(
        DISTANCES,
        'distance, positions',
        'product / square',
        lambda m: {'': m['mean']},
        ticks='log',
        ylim=(0, 1.05),
    ),
)
