"""Biases of attention by distance extrapolate to rows longer than in training: ALiBi and T5's buckets."""

import numpy as np

from experiments.claims import extrapolation, toys
from experiments.claims.claim import Measurements, Verdict, by_name, config_of, spread
from experiments.claims.panels import curves

POSITIONS = ('alibi', 'buckets')  # values of model.positions
SEEDS = extrapolation.SEEDS
SOURCE = 'Press et al. 2022; Raffel et al. 2020, §2.1'
CRITERION = (
    f'as in the claim extrapolation: after {extrapolation.UPDATES} updates with rows of '
    f'{extrapolation.TRAINED}, both biases predict more than 0.9 of the repeated symbols at these '
    f'positions, and at positions up to {extrapolation.LONGEST} more than 0.9 of that share, with every seed'
)


def measure(seed: int) -> dict:
    """Measures the accuracy by position with each bias."""
    shares = {}
    for name in POSITIONS:
        config = config_of(extrapolation.MODEL | {'model.positions': name})
        texts = lambda rng: extrapolation.texts(rng, extrapolation.ROWS, extrapolation.TRAINED)
        params = toys.train(config, texts, extrapolation.UPDATES, seed)
        shares[name] = extrapolation.accuracy(config, params, seed)
    return shares


def judge(measurements: Measurements) -> Verdict:
    blocks = extrapolation.TRAINED // (2 * extrapolation.LAG)
    near = by_name(measurements, lambda shares: float(np.mean(shares[:blocks])))
    far = by_name(measurements, lambda shares: float(np.mean(shares[blocks:])))
    pairs = [pair for name in POSITIONS for pair in zip(near[name], far[name], strict=True)]
    parts = [f'{name} {spread(near[name], ".2f")}, beyond {spread(far[name], ".2f")}' for name in POSITIONS]
    holds = all(within > 0.9 and beyond > 0.9 * within for within, beyond in pairs)
    return Verdict(holds, f'symbols predicted: {"; ".join(parts)}')


PANELS = (
    curves(
        np.arange(0, extrapolation.LONGEST, 2 * extrapolation.LAG) + 2 * extrapolation.LAG,
        'position',
        'symbols predicted',
        end=('end of trained rows', extrapolation.TRAINED),
        legend=True,
        style={'linewidth': 0.8},
        ylim=(0, 1.05),
    ),
)
