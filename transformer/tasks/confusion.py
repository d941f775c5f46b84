"""Confusion matrices: how often each class is taken for each other."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int, Integer

MOST_CLASSES = 10  # of a matrix that is shown


def counts(
    gold: Integer[np.ndarray, ' examples'], predicted: Integer[np.ndarray, ' examples'], classes: int
) -> Int[np.ndarray, 'gold predicted']:
    """Counts the examples of each gold class (row) and predicted class (column)."""
    matrix = np.zeros((classes, classes), np.int64)
    np.add.at(matrix, (gold, predicted), 1)
    return matrix


def table(matrix: Int[np.ndarray, 'gold predicted'], names: Sequence[str]) -> list[str]:
    """Returns the lines of a matrix with the classes' names, or no lines if there are too many classes."""
    if len(names) > MOST_CLASSES:
        return []
    rows = [['', *names], *([name, *map(str, row)] for name, row in zip(names, matrix, strict=True))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ['  ' + ' '.join(map(str.rjust, row, widths)) for row in rows]
    return ['  rows: right classes; columns: predicted ones', *lines]
