"""Bootstrap of scores (Efron 1979): intervals, and paired tests (Koehn 2004), by resampling examples."""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int, Shaped

RESAMPLES = 1000


def draws(size: int) -> Iterator[Int[np.ndarray, ' examples']]:
    """Yields the numbers of the examples in each resample, which depend on `size` alone."""
    rng = np.random.default_rng(0)
    for _ in range(RESAMPLES):
        yield rng.integers(0, size, size)


def estimate(
    score: Callable[..., float | None], *columns: Shaped[np.ndarray, 'examples ...']
) -> dict[str, object]:
    """Computes a score of at least one example and its 95 % interval, an entry of result.json.

    Args:
      score: `(*columns) -> score` of any choice of the examples.
      columns: arrays whose first axis is the example.

    Returns:
      `score`, of all examples, or None if it is undefined; `interval`, the middle 95 % of the resamples'
      scores, or None if one of them is undefined.
    """
    values = [score(*(column[drawn] for column in columns)) for drawn in draws(len(columns[0]))]
    interval = None if None in values else np.percentile(values, [2.5, 97.5]).tolist()
    return {'score': score(*columns), 'interval': interval}


def mean_entry(values: Sequence[float | bool] | Shaped[np.ndarray, ' examples']) -> dict[str, object]:
    """Computes the entry of a mean: the mean of at least one value, and its 95 % interval."""
    return estimate(lambda chosen: float(chosen.mean()), np.asarray(values))


def resample(statistics: Int[np.ndarray, 'examples statistics']) -> Int[np.ndarray, 'resamples statistics']:
    """Sums the examples' statistics over each resample. The same examples are drawn for every output."""
    times, exact = _times_drawn(len(statistics), RESAMPLES), statistics.astype(float)
    # Products of floats are faster, and exact for sums below 2^53. A block needs little memory.
    sums = [block.astype(float) @ exact for block in np.array_split(times, max(RESAMPLES // 50, 1))]
    return np.concatenate(sums).astype(np.int64)


@functools.lru_cache(maxsize=1)
def _times_drawn(size: int, resamples: int) -> Int[np.ndarray, 'resamples examples']:
    """Counts how often each example is in each resample."""
    counts = [np.bincount(drawn, minlength=size) for drawn in itertools.islice(draws(size), resamples)]
    return np.stack([count.astype(np.int32) for count in counts])


def two_sided_p(difference: float, resampled: Float[np.ndarray, ' resamples']) -> float:
    """Computes p, the probability that the choice of examples alone makes so large a difference.

    Resampled differences scatter around the observed one as the differences of other examples would scatter
    around 0 if there were no true difference. So p is the share of resamples (plus one in both counts) whose
    difference is at least as far from the observed difference as that is from 0.

    Returns:
      p in either direction, and 1 if there is no difference.
    """
    if not difference:
        return 1.0
    extreme = np.count_nonzero(np.abs(resampled - difference) >= abs(difference))
    return (extreme + 1) / (len(resampled) + 1)
