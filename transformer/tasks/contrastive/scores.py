"""Recall: whether a right partner is among the first ones that a vector finds (Karpathy and Fei-Fei 2015)."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from transformer.tasks import bootstrap

AMONG = (1, 5, 10)
_CHUNK = 256  # vectors whose products with all candidates are in memory at a time


def partners(
    of_rows: Int[np.ndarray, ' rows'], other: Int[np.ndarray, ' rows']
) -> list[Int[np.ndarray, ' _']]:
    """Returns for each value of one field the values of the other that any row pairs it with."""
    order = np.argsort(of_rows, kind='stable')
    ends = np.cumsum(np.bincount(of_rows))[:-1]
    return [np.unique(part) for part in np.split(other[order], ends)]


def ranks(
    queries: Float[np.ndarray, 'Q D'],
    candidates: Float[np.ndarray, 'N D'],
    right: Sequence[Int[np.ndarray, ' _']],
) -> list[int]:
    """Counts for each query the wrong candidates that are at least as near as its nearest right one.

    All wrong candidates are counted if a right one is not a number, so that a broken model finds nothing.
    """
    found = []
    for start in range(0, len(queries), _CHUNK):
        products = queries[start : start + _CHUNK] @ candidates.T
        for row, own in zip(products, right[start:], strict=False):
            nearest = row[own].max()
            nearer = ~(row < nearest)
            found.append(int(nearer.sum() - nearer[own].sum()))
    return found


def recall(
    queries: Float[np.ndarray, 'Q D'],
    candidates: Float[np.ndarray, 'N D'],
    right: Sequence[Int[np.ndarray, ' _']],
) -> dict[str, dict[str, object]]:
    """Computes the share of queries with a right candidate among the 1, 5 and 10 nearest, with intervals.

    Wrong candidates that are equally near count as nearer, so equal vectors find nothing. Products of equal
    vectors can differ by their rounding.
    """
    found = np.array(ranks(queries, candidates, right))
    return {f'r{most}': bootstrap.mean_entry(found < most) for most in AMONG}
