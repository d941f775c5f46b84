"""The loss is a power law of the model's size and of the data, so small models predict larger ones."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from scipy import optimize, stats

from experiments.claims import small_language
from experiments.claims.claim import Measurements, Verdict, prepared
from transformer.config import Config
from transformer.nn import models
from transformer.runs.hashes import named_leaves
from transformer.tasks import task_of

WIDTHS, UPDATES = (12, 18, 28, 44, 68, 104, 160), 600
SENTENCES, WIDTH, EPOCHS, BATCH = (375, 750, 1500, 3000, 6000, 12000), 68, 4, 512
SEEDS, CONFIDENCE = 3, 0.9
KINDS = {'size': 'parameters without embeddings', 'data': 'sentences'}
SOURCE = 'Kaplan et al. 2020, §3; Hoffmann et al. 2022, §3.3'
CRITERION = (
    f'decoders of two layers, d_model {WIDTHS[0]} to {WIDTHS[-1]}, after {UPDATES} updates on the German of '
    f'the grammar, and one of d_model {WIDTH} after {EPOCHS} epochs of {SENTENCES[0]} to {SENTENCES[-1]:,} '
    'sentences of it, all with one schedule. E + A x^-alpha is fitted to the bits per character of dev at '
    'the end, x being the parameters without embeddings, or the sentences. All but the largest x are fitted, '
    f'and the {CONFIDENCE:.0%} interval of the prediction contains the mean of the seeds at the largest x, '
    'in both'
)


class Fit(NamedTuple):
    """A fitted power law and its prediction, with intervals of confidence `CONFIDENCE`."""

    alpha: float
    alpha_interval: tuple[float, float]
    predicted: float
    interval: tuple[float, float]


def config_of(width: int, updates: int, changes: Mapping[str, object] = MappingProxyType({})) -> Config:
    """Returns the config of a decoder whose learning rate falls to zero at its last update."""
    size = {'model.d_model': width, 'model.d_ff': 4 * width, 'model.N': 2, 'model.h': 2, 'model.norm': 'pre'}
    size |= {'data.row_len': 64, 'data.max_len': 64}  # no sentence is too long
    schedule = {'train.schedule': 'linear', 'train.steps': updates}
    return small_language.config(size | schedule | dict(changes))


def of_amount(sentences: int) -> Config:
    """Returns the config of a decoder that reads some sentences, in smaller batches."""
    amount = {'data.train_examples': sentences, 'data.batch_tokens': BATCH}
    config = config_of(WIDTH, UPDATES, amount)
    epoch = task_of(config).batches(config, prepared(config), 'train').steps_per_epoch
    return config_of(WIDTH, EPOCHS * epoch, amount)


def parameters(config: Config) -> int:
    """Counts the parameters without embeddings."""
    leaves = named_leaves(models.parameter_shapes(config))
    return sum(leaf.size for path, leaf in leaves.items() if 'embedding' not in path)


def measure(seed: int) -> dict:
    """Measures bits per character by parameters and by sentences."""

    def bits(config: Config) -> float:
        params = small_language.train(config, seed, config.train.steps)
        return small_language.bits_per_character(config, params)

    sizes = [config_of(width, UPDATES) for width in WIDTHS]
    amounts = list(map(of_amount, SENTENCES))
    return {
        'size': {'x': list(map(parameters, sizes)), 'bits': list(map(bits, sizes))},
        'data': {'x': [*SENTENCES], 'bits': list(map(bits, amounts))},
    }


def fit(x: Sequence[float], bits: Float[np.ndarray, 'S N']) -> Fit:
    """Fits E + A x^-alpha to the means over seeds by least squares, without the last x, which it predicts.

    The intervals are from linearised least squares. The prediction's includes the noise of a mean over seeds
    and of the fitted law. The seeds at one x make one point, because they share their data.
    """
    scale = x[0]
    law = lambda x, floor, above, alpha: floor + above * (x / scale) ** -alpha
    places, observed = np.float64(x[:-1]), bits.mean(axis=0)[:-1]
    start = (0.5 * observed.min(), 0.5 * observed.max(), 0.3)
    fitted, covariance = optimize.curve_fit(
        law, places, observed, start, bounds=([0, 0, 0], [np.inf, np.inf, 3])
    )
    free = len(observed) - len(fitted)
    noise = np.sum((observed - law(places, *fitted)) ** 2) / free
    floor, above, alpha = fitted
    ratio = (x[-1] / scale) ** -alpha
    slope = np.array([1, ratio, -above * ratio * np.log(x[-1] / scale)])
    error = float(np.sqrt(slope @ covariance @ slope + noise))
    t, predicted = float(stats.t.ppf((1 + CONFIDENCE) / 2, free)), float(law(x[-1], *fitted))
    ends = lambda middle, error: (middle - t * error, middle + t * error)
    return Fit(
        float(alpha), ends(float(alpha), float(np.sqrt(covariance[2, 2]))), predicted, ends(predicted, error)
    )


def judge(measurements: Measurements) -> Verdict:
    holds, parts = True, []
    for kind in KINDS:
        bits = np.array([m[kind]['bits'] for m in measurements])
        found, last = fit(measurements[0][kind]['x'], bits), bits[:, -1].mean()
        low, high = found.interval
        holds = holds and low <= last <= high
        of_alpha = ', '.join(f'{end:.2f}' for end in found.alpha_interval)
        parts.append(
            f'by {kind}: alpha {found.alpha:.2f} [{of_alpha}], predicted {found.predicted:.3f} '
            f'[{low:.3f}, {high:.3f}], found {last:.3f}'
        )
    return Verdict(bool(holds), '; '.join(parts))


def _panel(kind: str):
    def draw(axes: Axes, measurements: Measurements) -> None:
        x = measurements[0][kind]['x']
        bits = np.array([m[kind]['bits'] for m in measurements])
        for of_seed in bits:
            axes.plot(x, of_seed, '.', color='C0')
        found = fit(x, bits)
        low, high = found.interval
        error = [[found.predicted - low], [high - found.predicted]]
        axes.errorbar(x[-1:], [found.predicted], error, color='C3', capsize=4, marker='_', label='predicted')
        axes.set(xlabel=KINDS[kind], ylabel='bits per character of dev', xscale='log')
        axes.legend()

    return draw


NUMBERS = f'exponent and prediction of each law with {CONFIDENCE:.0%} intervals, and the mean that was found'
PANELS = tuple(map(_panel, KINDS))
