"""Scores predicted classes (accuracy, F1, Matthews correlation) and numbers (Pearson, Spearman)."""

import functools
import math

import numpy as np
from jaxtyping import Int, Integer, Real

from transformer.tasks import bootstrap

ClassNumbers = Integer[np.ndarray, ' examples']  # numbers of classes
Numbers = Real[np.ndarray, ' examples']


def score_classes(
    gold: ClassNumbers, predicted: ClassNumbers, positive: int | None = None
) -> dict[str, dict[str, object]]:
    """Computes every score of classes, with 95 % intervals over resampled examples.

    Args:
      positive: the class whose F1 is computed; None means the mean F1 of all classes.
    """
    f1 = macro_f1 if positive is None else functools.partial(class_f1, positive=positive)
    functions = {'accuracy': accuracy, 'f1': f1, 'matthews': matthews}
    return {name: bootstrap.estimate(function, gold, predicted) for name, function in functions.items()}


def score_numbers(gold: Numbers, predicted: Numbers) -> dict[str, dict[str, object]]:
    """Computes both correlations, with 95 % intervals over resampled examples."""
    functions = {'pearson': pearson, 'spearman': spearman}
    return {name: bootstrap.estimate(function, gold, predicted) for name, function in functions.items()}


def accuracy(gold: ClassNumbers, predicted: ClassNumbers) -> float:
    """Computes the share of right classes."""
    return float(np.mean(gold == predicted))


def class_f1(gold: ClassNumbers, predicted: ClassNumbers, positive: int) -> float:
    """Computes the F1 of one class, or 0 if it occurs in neither argument."""
    right = np.sum((gold == positive) & (predicted == positive))
    return float(2 * right / max(np.sum(gold == positive) + np.sum(predicted == positive), 1))


def macro_f1(gold: ClassNumbers, predicted: ClassNumbers) -> float:
    """Computes the mean F1 of the classes that occur in either argument."""
    right, golds, predictions = _counts(gold, predicted)
    either = golds + predictions > 0
    return float(np.mean(2 * right[either] / (golds + predictions)[either]))


def matthews(gold: ClassNumbers, predicted: ClassNumbers) -> float:
    """Computes the Matthews correlation of two classes or, of more, Gorodkin's R_K.

        R_K = (c s - sum_k p_k t_k) / sqrt((s^2 - sum_k p_k^2) (s^2 - sum_k t_k^2))

    of s examples, c of them right, where class k is predicted p_k times and is the gold class t_k times.

    Returns:
      A number from -1 to 1, and 0 if either argument is constant.

    Reference: Gorodkin 2004, Comparing two K-category assignments by a K-category correlation coefficient.
    """
    right, golds, predictions = _counts(gold, predicted)
    variances = [float(len(gold) ** 2 - counts @ counts) for counts in (golds, predictions)]
    covariance = float(len(gold) * right.sum() - golds @ predictions)
    return covariance / math.sqrt(math.prod(variances)) if all(variances) else 0.0


def pearson(gold: Numbers, predicted: Numbers) -> float | None:
    """Computes Pearson's correlation, or None if either argument is constant."""
    if not (np.ptp(gold) and np.ptp(predicted)):
        return None
    x, y = (values - values.mean(dtype=np.float64) for values in (gold, predicted))
    return float(np.clip(x / np.linalg.norm(x) @ (y / np.linalg.norm(y)), -1.0, 1.0))


def spearman(gold: Numbers, predicted: Numbers) -> float | None:
    """Computes Spearman's correlation: Pearson's of the ranks, where equal values share their mean rank."""
    return pearson(_ranks(gold), _ranks(predicted))


def _counts(gold: ClassNumbers, predicted: ClassNumbers) -> tuple[Int[np.ndarray, ' classes'], ...]:
    """Counts how often each class is right, gold and predicted."""
    size = int(max(gold.max(), predicted.max())) + 1
    return tuple(np.bincount(side, minlength=size) for side in (gold[gold == predicted], gold, predicted))


def _ranks(values: Numbers) -> Numbers:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]
