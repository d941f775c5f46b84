"""Judges printed scores of single trainings by the spread of such scores over seeds.

A training's score is assumed to be normal around its setting's mean. The deviation is pooled over the
settings of public trainings (trainings.py), so a difference of two scores has a t distribution with the
pooled degrees of freedom. Rounding adds the variance of a uniform error to each printed score.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.stats

from experiments.evidence import trainings
from experiments.reports.differences import CONFIDENCE

DRAWS = 2000
# The public trainings' score for each of the paper's columns.
_SCORES = {'PPL': 'loss', 'BLEU': 'bleu', 'EN-DE': 'bleu', 'EN-FR': 'bleu'}
_TAILS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)


class Noise(NamedTuple):
    """The spread of a score over seeds.

    Attributes:
      deviation: the standard deviation of single trainings' scores.
      freedom: the degrees of freedom of the deviation's estimate; infinite if the deviation is known.
      of_logarithm: whether it is the deviation of the score's logarithm, such as the loss for a perplexity.
    """

    deviation: float
    freedom: float
    of_logarithm: bool = False

    def interval(self) -> tuple[float, float]:
        """Computes the 95 % interval of the deviation, by chi-squared."""
        quantiles = scipy.stats.chi2.ppf(_TAILS[::-1], self.freedom)
        low, high = self.deviation * np.sqrt(self.freedom / quantiles)
        return float(low), float(high)

    def ends(self) -> tuple['Noise', 'Noise']:
        """Returns the noise as if its deviation were known to be an end of its interval."""
        low, high = (self._replace(deviation=end, freedom=math.inf) for end in self.interval())
        return low, high

    def at(self, score: np.ndarray | float) -> np.ndarray | float:
        """Computes a score's own deviation: for a perplexity, to first order, its product with the loss's."""
        return self.deviation * (score if self.of_logarithm else np.ones_like(score))


def pool(samples: Sequence[Sequence[float]], *, of_logarithm: bool = False) -> Noise:
    """Pools the deviations of samples, one for each setting, each around its own mean."""
    squares = sum(float(np.var(sample)) * len(sample) for sample in samples)
    freedom = sum(len(sample) - 1 for sample in samples)
    return Noise(math.sqrt(squares / freedom), freedom, of_logarithm)


@functools.cache
def of_column(test_set: str, column: str) -> Noise | None:
    """Computes the noise of a column of the paper, such as BLEU, on one of TEST_SETS.

    Returns:
      The noise, or None if no trainings show it.
    """
    if column not in _SCORES:
        return None
    score = _SCORES[column]
    return pool(trainings.samples(test_set, score), of_logarithm=score == 'loss')


class NoiseVerdict(NamedTuple):
    """A test whether two printed scores of single trainings differ by more than chance.

    Attributes:
      difference: the score minus base's.
      limit: the greatest difference that chance explains, with 95 % confidence.
      p: the probability of so large a difference if only the seeds differ.
    """

    difference: float
    limit: float
    p: float

    @property
    def is_significant(self) -> bool:
        """Returns whether the difference is more than chance."""
        return abs(self.difference) > self.limit


def compare(noise: Noise, score: float, base: float, decimals: int | None) -> NoiseVerdict:
    """Compares a score with base's, both rounded to so many decimals, or not rounded if None."""
    rounding = 0.0 if decimals is None else 10**-decimals / math.sqrt(12)
    deviation = float(np.linalg.norm([noise.at(score), noise.at(base), rounding, rounding]))
    student, difference = scipy.stats.t(noise.freedom), score - base
    limit = float(student.ppf(_TAILS[1])) * deviation
    return NoiseVerdict(difference, limit, 2 * float(student.sf(abs(difference) / deviation)))


class Ceiling(NamedTuple):
    """The rank correlation that a second run of the printed rows would have with the printed scores."""

    mean: float
    low: float  # the middle 95 % of second runs
    high: float


def ceiling(noise: Noise, printed: Sequence[float], decimals: int, *, runs: int = 2) -> Ceiling:
    """Simulates second runs of printed rows, and correlates their scores with the printed ones.

    Scores have the same ranks as their differences from base, which all share base's noise. The printed
    scores are as noisy as a second run's. So a second run differs from them by the noise of two runs
    and by the rounding error of the printed score, and is itself rounded. The true scores, however, are
    closer to one another than the printed ones, so the ceiling is too high; `calibrate` measures by how much.

    Args:
      runs: the number of runs whose noise is added: 2, or 1 as if the printed scores were the true ones.
    """
    correlations = _correlations(noise, np.asarray(printed), decimals, runs, DRAWS, np.random.default_rng(0))
    return Ceiling(float(np.nanmean(correlations)), *np.nanquantile(correlations, _TAILS).tolist())


def _correlations(
    noise: Noise, printed: np.ndarray, decimals: int, runs: int, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Draws second runs of printed rows, and computes each one's rank correlation with the printed scores."""
    deviation = noise.at(printed) * math.sqrt(runs)
    # The deviation is itself an estimate, whose error all rows of a run share.
    scale = np.sqrt(noise.freedom / rng.chisquare(noise.freedom, (draws, 1)))
    errors = rng.normal(size=(draws, len(printed))) * scale * deviation
    if runs == 2:
        errors += rng.uniform(-0.5, 0.5, errors.shape) * 10.0**-decimals
    return rank_correlation(np.round(printed + errors, decimals), printed)


def rank_correlation(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Computes Spearman's correlation over the last axis (NaN where all scores are equal)."""
    ranks = [scipy.stats.rankdata(values, axis=-1) for values in (scores, others)]
    first, second = (values - values.mean(axis=-1, keepdims=True) for values in ranks)
    scale = np.sqrt((first**2).sum(axis=-1) * (second**2).sum(axis=-1))
    with np.errstate(invalid='ignore'):
        return (first * second).sum(axis=-1) / scale


class Calibration(NamedTuple):
    """The ceiling's closeness to the truth, where the true scores are known.

    Attributes:
      truth: the mean correlation of two runs of rows whose true scores are the printed ones.
      ceiling: the mean ceiling that is computed from the first of the two.
      coverage: the share of its intervals that hold the correlation with the second.
    """

    truth: float
    ceiling: float
    coverage: float


def calibrate(noise: Noise, printed: Sequence[float], decimals: int, *, trials: int = 400) -> Calibration:
    """Computes ceilings of simulated first runs, and compares them with simulated second runs."""
    rng, true = np.random.default_rng(0), np.asarray(printed)
    run = lambda: np.round(true + rng.normal(size=(trials, len(true))) * noise.at(true), decimals)
    first, second = run(), run()
    truth = rank_correlation(first, second)
    draws = np.array([_correlations(noise, scores, decimals, 2, trials, rng) for scores in first])
    low, high = np.nanquantile(draws, _TAILS, axis=-1)
    covered = (low <= truth) & (truth <= high)
    return Calibration(float(truth.mean()), float(np.nanmean(draws)), float(covered.mean()))
