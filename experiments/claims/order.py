"""Without positions the encoder is permutation-equivariant, and the order of words cannot be learned."""

import jax
import numpy as np

from experiments.claims import toys
from experiments.claims.claim import Measurements, Verdict, by_name, config_of, spread
from experiments.claims.panels import DOTS, Panel, curves
from transformer.config import Config
from transformer.nn import ensemble, models
from transformer.tokens import Batch

LENGTH, ROWS, SEEDS = 8, 64, 3
UPDATES, TESTED = 300, 1024
SYMBOLS = 16
MODELS = ('none', 'sinusoidal')  # values of model.positions
MODEL = toys.MODEL | toys.ATTENTION
SOURCE = '§3.5'
CRITERION = (
    f'{LENGTH} different symbols in any order, {UPDATES} updates: encoding shuffled rows and shuffling '
    'encoded ones differ by less than 1e-5 of the norm without positions, and by more than 0.1 with '
    f'sinusoids; the first symbol is told in less than {1 / LENGTH + 0.05:.3f} of new rows without '
    f'positions, where chance is {1 / LENGTH:.3f}, and in more than 0.9 with sinusoids; with every seed'
)


def pairs(rng: np.random.Generator, rows: int) -> Batch:
    """Draws sources of different symbols in random order; each target is the first symbol of its source."""
    order = rng.permuted(np.tile(np.arange(SYMBOLS), (rows, 1)), axis=1)[:, :LENGTH]
    source = toys.whole_rows(toys.FIRST + order)
    return {'source': source, 'target': toys.whole_rows(source.tokens[:, :1])}


def shift(config: Config, params: models.Params, rng: np.random.Generator) -> float:
    """Computes the distance of the shuffled encoding from the encoding of shuffled rows, over its norm."""
    encode = jax.jit(lambda params, x: ensemble.encode(config, params, x).outputs)
    source, order = pairs(rng, TESTED)['source'], rng.permutation(LENGTH)
    shuffled_after = np.asarray(encode(params, source))[:, order]
    shuffled_before = np.asarray(encode(params, source._replace(tokens=source.tokens[:, order])))
    return float(np.linalg.norm(shuffled_before - shuffled_after) / np.linalg.norm(shuffled_after))


def accuracy(config: Config, params: models.Params, rng: np.random.Generator) -> float:
    """Computes the share of new rows whose first symbol is predicted right."""
    batch = pairs(rng, TESTED)
    return float(np.mean(toys.answers(config, params, batch) == batch['target'].tokens))


def measure(seed: int) -> dict:
    """Measures the shift and the accuracy of models trained with and without positions."""
    measured = {}
    for name in MODELS:
        config = config_of(MODEL | {'model.positions': name})
        params = toys.train(config, lambda rng: pairs(rng, ROWS), UPDATES, seed)
        rng = np.random.default_rng([seed, 1])
        measured[name] = {'shift': shift(config, params, rng), 'accuracy': accuracy(config, params, rng)}
    return measured


def judge(measurements: Measurements) -> Verdict:
    shifts = by_name(measurements, lambda measured: measured['shift'])
    accuracies = by_name(measurements, lambda measured: measured['accuracy'])
    holds = (
        max(shifts['none']) < 1e-5
        and min(shifts['sinusoidal']) > 0.1
        and max(accuracies['none']) < 1 / LENGTH + 0.05
        and min(accuracies['sinusoidal']) > 0.9
    )
    part = '{}: difference {}, told {}'.format
    parts = [part(name, spread(shifts[name], '.1e'), spread(accuracies[name], '.3f')) for name in MODELS]
    return Verdict(holds, '; '.join(parts))


def _dots(key: str, label: str, **options) -> Panel:
    values = lambda m: {'': [m[name][key] for name in MODELS]}
    return curves(MODELS, '', label, values, style=DOTS | {'color': 'C0'}, xmargin=0.4, **options)


PANELS = (
    _dots('shift', 'difference that shuffling makes', yscale='log'),
    _dots('accuracy', 'first symbol told', guide=('chance', 1 / LENGTH), legend=True, ylim=(0, 1.05)),
)
