"""Predicts the paper's perplexities from changes of log perplexity at a small scale, with one slope.

A row's change of log perplexity from base at the paper's scale is assumed to be `slope` times its change at
the small scale. The slope is fitted by least squares through the origin. No row is predicted with a slope
that it helped to fit.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.stats

from experiments.reports.differences import CONFIDENCE, RESAMPLES, Difference
from experiments.tables import rows as tables

BASE = tables.TABLE_3[0].paper['PPL']


class Predicted(NamedTuple):
    """A predicted change of log perplexity from base, and its 95 % interval."""

    change: float
    low: float
    high: float

    def perplexities(self) -> tuple[float, float, float]:
        """Returns the predicted perplexity at the paper's scale, and the ends of its interval."""
        perplexity, low, high = (BASE * math.exp(value) for value in self)
        return perplexity, low, high


class Line(NamedTuple):
    """A line through the origin, fitted by least squares.

    Attributes:
      slope: y / x.
      deviation: the standard deviation of y around the line.
      freedom: the degrees of freedom of the deviation, one less than the points.
      squares: the sum of the squares of x.
    """

    slope: float
    deviation: float
    freedom: int
    squares: float

    def slope_interval(self) -> tuple[float, float]:
        """Computes the 95 % interval of the slope."""
        half = self._quantile() * self.deviation / math.sqrt(self.squares)
        return self.slope - half, self.slope + half

    def at(self, x: float) -> Predicted:
        """Predicts a new y at x, with an interval that allows for the slope's error and for the deviation."""
        half = self._quantile() * self.deviation * math.sqrt(1 + x**2 / self.squares)
        return Predicted(self.slope * x, self.slope * x - half, self.slope * x + half)

    def by_seeds(self, row: Difference) -> Predicted:
        """Predicts a row, with an interval that shows only how far the row's seeds move it at this slope."""
        test = row.over_seeds
        return Predicted(self.slope * row.ours, *sorted((self.slope * test.low, self.slope * test.high)))

    def _quantile(self) -> float:
        return float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, self.freedom))


def fit(x: Sequence[float], y: Sequence[float]) -> Line:
    """Fits a line through the origin by least squares."""
    x, y = np.asarray(x), np.asarray(y)
    squares = float(x @ x)
    slope, freedom = float(x @ y) / squares, len(x) - 1
    return Line(slope, math.sqrt(float(np.sum((y - slope * x) ** 2)) / freedom), freedom, squares)


def without_each(x: Sequence[float], y: Sequence[float]) -> list[Line]:
    """Fits one line for each point, through all other points."""
    x, y = list(x), list(y)
    return [fit(x[:i] + x[i + 1 :], y[:i] + y[i + 1 :]) for i in range(len(x))]


def papers_changes(names: Sequence[str]) -> list[float]:
    """Computes the changes of log perplexity from base that the paper prints for rows of Table 3."""
    papers = {row.name: row.paper['PPL'] for row in tables.TABLE_3}
    return [math.log(papers[name] / BASE) for name in names]


def mean_error(predicted: np.ndarray, y: Sequence[float]) -> np.ndarray:
    """Computes the mean error in perplexity of predicted changes [... rows], over rows."""
    return BASE * np.abs(np.exp(predicted) - np.exp(y)).mean(axis=-1)


def resample(rows: Sequence[Difference], y: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    """Predicts all rows, each with the slope of the others, from resampled seeds.

    Only seeds that all rows have are resampled, the same for all rows.

    Returns:
      The predicted changes, [resamples rows].
    """
    shared = sorted(set.intersection(*(set(row.by_seed) for row in rows)))
    by_seed = np.array([[row.by_seed[seed] for seed in shared] for row in rows])
    chosen = rng.integers(len(shared), size=(RESAMPLES, len(shared)))
    x, y = by_seed[:, chosen].mean(axis=-1).T, np.asarray(y)[None]
    # Without a row, its terms are missing from both sums of the slope.
    products, squares = x * y, x**2
    slopes = (products.sum(axis=-1, keepdims=True) - products) / (
        squares.sum(axis=-1, keepdims=True) - squares
    )
    return slopes * x
