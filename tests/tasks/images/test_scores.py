"""Scores of ranked classes, by hand."""

import numpy as np
import pytest

from transformer.tasks.images import scores


def test_share_among_the_first():
    gold = np.array([2, 0, 1, 3])
    assert scores.share_among(np.array([[2, 1], [1, 2], [0, 1], [3, 0]]), gold) == 0.75


def test_calibration_error():
    """Two images of the bin (0.8, 0.867], two of (0.933, 1], one exactly at a bin's upper edge, 0.6."""
    confidence = np.array([0.81, 0.85, 0.95, 1.0, 0.6])
    right = np.array([True, False, True, True, False])
    expected = abs(1 - 1.66) / 5 + abs(2 - 1.95) / 5 + 0.6 / 5
    assert scores.calibration_error(confidence, right) == pytest.approx(expected)
    assert scores.calibration_error(np.full(10, 0.7), np.arange(10) < 7) == pytest.approx(0)
    # An edge belongs to the bin below it.
    pair = scores.calibration_error(np.array([0.6, 0.59]), np.array([True, False]))
    assert pair == pytest.approx(abs(1 - 1.19) / 2)
