"""The bootstrap: draws of examples, and intervals against the normal distribution's."""

import numpy as np
import pytest

from transformer.tasks import bootstrap

pytestmark = pytest.mark.usefixtures('all_resamples')


def test_draws_are_examples_with_replacement():
    first, again = (np.stack(list(bootstrap.draws(50))) for _ in range(2))
    assert first.shape == (bootstrap.RESAMPLES, 50)
    assert np.array_equal(first, again)
    assert len(np.unique(first, axis=0)) == bootstrap.RESAMPLES
    # Every example is drawn about equally often, and about 1 - 1/e of the examples are in a resample.
    times = np.bincount(first.ravel(), minlength=50)
    assert len(times) == 50 and np.abs(times / bootstrap.RESAMPLES - 1).max() < 0.15
    assert np.mean([len(np.unique(drawn)) / 50 for drawn in first]) == pytest.approx(1 - 0.98**50, abs=0.01)


def test_interval_of_a_mean_is_the_normal_one():
    values = np.random.default_rng(1).normal(3, 2, 400)
    mean = bootstrap.estimate(lambda column: float(column.mean()), values)
    half = 1.96 * values.std() / 20
    assert mean['score'] == values.mean()
    assert mean['interval'] == pytest.approx([values.mean() - half, values.mean() + half], abs=0.15 * half)


def test_columns_are_drawn_together():
    values = np.random.default_rng(2).normal(size=(30, 2))
    difference = bootstrap.estimate(lambda a, b: float(np.abs(a - b).max()), values, values)
    assert difference == {'score': 0.0, 'interval': [0.0, 0.0]}


def test_undefined_scores_have_no_interval():
    numbers = np.arange(3)
    assert bootstrap.estimate(lambda column: None, numbers) == {'score': None, 'interval': None}
    sometimes = lambda column: None if len(np.unique(column)) == 1 else 1.0
    assert bootstrap.estimate(sometimes, numbers) == {'score': 1.0, 'interval': None}
