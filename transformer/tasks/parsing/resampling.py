"""Resamples sentences: intervals of F1 and paired tests of parsers."""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Int

from transformer.tasks import bootstrap
from transformer.tasks.parsing import evalb


def counts(results: Iterable[evalb.SentenceResult]) -> Int[np.ndarray, 'sentences 3']:
    """Returns `matched`, `gold` and `test` of each sentence, zeros if it is not scored."""
    of_scored = ((r.matched, r.gold, r.test) if r.status == evalb.SCORED else (0, 0, 0) for r in results)
    return np.array(list(of_scored), np.int64).reshape(-1, 3)


def resampled_f1(counts: Int[np.ndarray, 'sentences 3']) -> tuple[float, float]:
    """Computes the 95 % interval of F1 over bootstrap resamples of sentences."""
    low, high = np.percentile(_f1(bootstrap.resample(counts)), [2.5, 97.5])
    return float(low), float(high)


def paired_test(
    first: Int[np.ndarray, 'sentences 3'], second: Int[np.ndarray, 'sentences 3']
) -> tuple[float, float]:
    """Compares the F1 of two parsers on the same sentences by paired bootstrap resampling.

    Returns:
      The second's F1 minus the first's, and p as by `bootstrap.two_sided_p`.
    """
    difference = float(_f1(second.sum(0)) - _f1(first.sum(0)))
    resampled = _f1(bootstrap.resample(second)) - _f1(bootstrap.resample(first))
    return difference, bootstrap.two_sided_p(difference, resampled)


def _f1(sums: Int[np.ndarray, '... 3']) -> np.ndarray | np.float64:
    matched, gold, test = np.moveaxis(sums, -1, 0)
    return 200.0 * matched / np.maximum(gold + test, 1)
