"""Mixes data sets: how often an epoch has the examples of each (Raffel et al. 2020)."""

import numpy as np
from jaxtyping import Float, Int, Integer

from transformer.data.rows import permutation


def rates(sizes: Int[np.ndarray, ' sets'], cap: int | None, temperature: float) -> Float[np.ndarray, ' sets']:
    """Computes the share of each data set in a mixture.

        r_m = min(e_m, K)^(1/T) / sum_n min(e_n, K)^(1/T)

    Args:
      sizes: e, the number of examples of each data set.
      cap: K, the size above which a data set counts no more; None for no limit.
      temperature: T; 1 gives shares in proportion to the sizes, a large T equal shares.
    """
    weights = np.minimum(sizes, cap or np.inf) ** (1 / temperature)
    return weights / weights.sum()


def mixed(
    sets: Integer[np.ndarray, ' examples'], cap: int | None, temperature: float, seed: int
) -> Int[np.ndarray, ' n']:
    """Lists the examples of an epoch of a mixture, in the order of the data.

    The epoch is the shortest in which every data set has its share and every example occurs. So the data set
    with the largest number of examples for its share occurs once, and each example of another one n or n + 1
    times; the seed chooses which occur once more.

    Args:
      sets: the number of each example's data set.
    """
    numbers, sizes = np.unique(sets, return_counts=True)
    shares = rates(sizes, cap, temperature)
    counts = np.rint(shares * (sizes / shares).max()).astype(np.int64)
    examples = []
    for number, count in zip(numbers, counts, strict=True):
        members = np.flatnonzero(sets == number)
        # `resize` repeats the members until there are enough.
        examples.append(np.resize(members[permutation(len(members), seed, int(number))], count))
    return np.sort(np.concatenate(examples))
