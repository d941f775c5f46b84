"""Rows longer than the training's: which kinds of positions extrapolate."""

from collections.abc import Sequence

import numpy as np

from experiments.claims import toys
from experiments.claims.claim import Claim, Measurement, Verdict, by_name, config_of, spread, train
from experiments.claims.panels import curves
from transformer.config import Config
from transformer.nn import models
from transformer.tokens import Batch

POSITIONS = ('sinusoidal', 'learned', 'rotary', 'relative')  # values of model.positions
TRAINED, LONGEST, SEEDS = 32, 128, 3  # positions of a row
UPDATES, ROWS, TESTED = 500, 64, 256
LAG, SYMBOLS = 4, 16
MODEL = toys.LANGUAGE_MODEL | toys.ATTENTION


def texts(rng: np.random.Generator, rows: int, length: int) -> Batch:
    """Random symbols, each group of `LAG` written twice; only the repetition counts in the loss."""
    symbols = toys.FIRST + rng.integers(SYMBOLS, size=(rows, length // (2 * LAG), 1, LAG))
    text = toys.whole_rows(np.repeat(symbols, 2, axis=2).reshape(rows, length))
    return {'text': text, 'weight': (text.positions // LAG % 2).astype(np.float32)}


def accuracy(config: Config, params: models.Params, seed: int) -> list[float]:
    """The share of repeated symbols predicted right in new rows, for every 2·LAG positions."""
    batch = texts(np.random.default_rng([seed, 1]), TESTED, LONGEST)
    answers = np.argmax(toys.logits(config)(params, batch), axis=-1)
    right = (answers == batch['text'].tokens) * batch['weight']
    return (right.mean(axis=0).reshape(-1, 2 * LAG).sum(axis=1) / LAG).tolist()


def measure(seed: int) -> Measurement:
    """The accuracy along the row with each kind of positions."""
    accuracies = {}
    for name in POSITIONS:
        config = config_of(MODEL | {'model.positions': name})
        batches = toys.batches(lambda rng: texts(rng, ROWS, TRAINED), seed, UPDATES)
        accuracies[name] = accuracy(config, train(config, batches, seed), seed)
    return accuracies


def judge(measurements: Sequence[Measurement]) -> Verdict:
    """Compares the accuracy of sinusoids within and beyond the positions of the training."""
    blocks = TRAINED // (2 * LAG)
    within = by_name(measurements, lambda m: {n: float(np.mean(m[n][:blocks])) for n in POSITIONS})
    beyond = by_name(measurements, lambda m: {n: float(np.mean(m[n][blocks:])) for n in POSITIONS})
    parts = [
        f'{name} {spread(within[name], ".2f")}, beyond {spread(beyond[name], ".2f")}' for name in POSITIONS
    ]
    pairs = zip(within['sinusoidal'], beyond['sinusoidal'], strict=True)
    holds = all(near > 0.9 and far > 0.9 * near for near, far in pairs)
    return Verdict(holds, f'symbols told: {"; ".join(parts)}')


CLAIM = Claim(
    statement='Sinusoids may allow the model to extrapolate to sequences longer than those of training.',
    source='§3.5',
    criterion=(
        f'one layer repeats symbols from {LAG} positions before, after {UPDATES} updates with rows of '
        f'{TRAINED}: with sinusoids more than 0.9 of them at these positions, and at positions {TRAINED} to '
        f'{LONGEST} more than 0.9 of that share, with every seed; the other kinds stand beside it'
    ),
    seeds=SEEDS,
    measure=measure,
    judge=judge,
    panels=(
        curves(
            np.arange(0, LONGEST, 2 * LAG) + 2 * LAG,
            'position',
            'symbols told',
            end=('end of trained rows', TRAINED),
            # Above the curves' fall, which it would hide elsewhere.
            legend={'loc': 'center right', 'bbox_to_anchor': (1, 0.78), 'fontsize': 'small'},
            style={'linewidth': 0.8},
            ylim=(0, 1.05),
        ),
    ),
    why=(
        'The model does what the claim offsets shows to be possible where it was trained, but nothing in '
        'training asks for the same at positions that it never sees. It fails on them as if they were '
        'untrained rows of a table (learned). Only relative positions, where all distances that occur were '
        'trained, go on without loss. The paper says "may", and did not test it.'
    ),
)
