"""Bootstrap intervals of scores (Efron 1979): resamples the examples of a test set with replacement."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, Shaped

RESAMPLES = 1000


class ScoreEstimate(NamedTuple):
    """A score with its uncertainty; `_asdict()` is an entry of result.json.

    Attributes:
      score: of all examples, or None if it is undefined.
      interval: the middle 95 % of the resamples' scores, or None if one of them is undefined.
    """

    score: float | None
    interval: list[float] | None


def draws(size: int) -> Iterator[Int[np.ndarray, ' examples']]:
    """Yields the numbers of the examples in each resample, which depend on `size` alone."""
    rng = np.random.default_rng(0)
    for _ in range(RESAMPLES):
        yield rng.integers(0, size, size)


def estimate(
    score: Callable[..., float | None], *columns: Shaped[np.ndarray, 'examples ...']
) -> ScoreEstimate:
    """Computes a score of at least one example and its 95 % interval.

    Args:
      score: `(*columns) -> score` of any choice of the examples.
      columns: arrays whose first axis is the example.
    """
    values = [score(*(column[drawn] for column in columns)) for drawn in draws(len(columns[0]))]
    interval = None if None in values else np.percentile(values, [2.5, 97.5]).tolist()
    return ScoreEstimate(score(*columns), interval)
