"""Scores of ranked classes: whether the right one is among the first, and calibration."""

import numpy as np
from jaxtyping import Bool, Float, Integer

BINS = 15  # of confidence, as in Guo et al. 2017


def share_among(first: Integer[np.ndarray, 'images ranks'], gold: Integer[np.ndarray, ' images']) -> float:
    """Computes the share of images whose right class is among the likeliest ones."""
    return float(np.mean((first == gold[:, None]).any(axis=1)))


def calibration_error(confidence: Float[np.ndarray, ' images'], right: Bool[np.ndarray, ' images']) -> float:
    """Computes the expected calibration error (Guo et al. 2017, eq. 3).

        sum over bins B of |B|/n · |accuracy(B) - mean confidence(B)|

    Args:
      confidence: the probability of each image's likeliest class, in `BINS` bins of equal width, which are
        open below.
    """
    bins = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    gaps = np.bincount(bins, right - confidence.astype(np.float64), BINS)
    return float(np.abs(gaps).sum() / len(confidence))
