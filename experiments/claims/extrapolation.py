"""Sinusoids may allow the model to extrapolate to sequences longer than those of training."""

from collections.abc import Sequence

import numpy as np

from experiments.claims import toys
from experiments.claims.claim import Measurements, Verdict, by_name, config_of, spread
from experiments.claims.panels import Panel, curves
from transformer.config import Config
from transformer.nn import models
from transformer.tokens import Batch

POSITIONS = ('sinusoidal', 'learned', 'rotary', 'relative')  # values of model.positions
TRAINED, LONGEST, SEEDS = 32, 128, 3  # positions of a row in training and in the test; seeds
UPDATES, ROWS, TESTED = 500, 64, 256
LAG, SYMBOLS = 4, 16
MODEL = toys.LANGUAGE_MODEL | toys.ATTENTION
SOURCE = '§3.5'
CRITERION = (
    f'one layer repeats symbols from {LAG} positions before, after {UPDATES} updates with rows of '
    f'{TRAINED}: with sinusoids more than 0.9 of them at these positions, and at positions {TRAINED} to '
    f'{LONGEST} more than 0.9 of that share, with every seed; the other kinds stand beside it'
)


def texts(rng: np.random.Generator, rows: int, length: int) -> Batch:
    """Makes random symbols, each group of `LAG` written twice; only the repetition counts in the loss."""
    symbols = toys.FIRST + rng.integers(SYMBOLS, size=(rows, length // (2 * LAG), 1, LAG))
    text = toys.whole_rows(np.repeat(symbols, 2, axis=2).reshape(rows, length))
    return {'text': text, 'weight': (text.positions // LAG % 2).astype(np.float32)}


def accuracy(config: Config, params: models.Params, seed: int) -> list[float]:
    """Computes the share of repeated symbols predicted right in new rows, for every 2·LAG positions."""
    batch = texts(np.random.default_rng([seed, 1]), TESTED, LONGEST)
    right = (toys.answers(config, params, batch) == batch['text'].tokens) * batch['weight']
    return (right.mean(axis=0).reshape(-1, 2 * LAG).sum(axis=1) / LAG).tolist()


def measure_kinds(kinds: Sequence[str], seed: int) -> dict:
    """Measures the accuracy by position with each kind of positions."""
    configs = {name: config_of(MODEL | {'model.positions': name}) for name in kinds}
    train = lambda config: toys.train(config, lambda rng: texts(rng, ROWS, TRAINED), UPDATES, seed)
    return {name: accuracy(config, train(config), seed) for name, config in configs.items()}


def judge_kinds(measurements: Measurements, kinds: Sequence[str]) -> tuple[bool, str]:
    """Returns whether these kinds extrapolate with every seed, and the accuracies of all kinds in words."""
    blocks = TRAINED // (2 * LAG)
    near = by_name(measurements, lambda shares: float(np.mean(shares[:blocks])))
    far = by_name(measurements, lambda shares: float(np.mean(shares[blocks:])))
    pairs = [pair for name in kinds for pair in zip(near[name], far[name], strict=True)]
    parts = (f'{name} {spread(near[name], ".2f")}, beyond {spread(far[name], ".2f")}' for name in near)
    return all(within > 0.9 and beyond > 0.9 * within for within, beyond in pairs), '; '.join(parts)


def measure(seed: int) -> dict:
    """Measures the accuracy by position with each of `POSITIONS`."""
    return measure_kinds(POSITIONS, seed)


def judge(measurements: Measurements) -> Verdict:
    holds, parts = judge_kinds(measurements, ['sinusoidal'])
    return Verdict(holds, f'symbols told: {parts}')


def panel(ylabel: str, legend: bool | dict[str, object]) -> Panel:
    """Makes the panel of a share by position, with a mark at the end of trained rows."""
    ends, end = range(2 * LAG, LONGEST + 1, 2 * LAG), ('end of trained rows', TRAINED)
    return curves(ends, 'position', ylabel, end=end, legend=legend, style={'linewidth': 0.8}, ylim=(0, 1.05))


# Placed where it does not hide the fall of the curves.
PANELS = (
    panel('symbols predicted', {'loc': 'center right', 'bbox_to_anchor': (1, 0.78), 'fontsize': 'small'}),
)
