"""Scores of classes and numbers against values by hand and their textbook formulas."""

import functools
import itertools
import math

import numpy as np
import pytest

from transformer.tasks import confusion
from transformer.tasks.classify import scores

pytestmark = pytest.mark.usefixtures('all_resamples')

GOLD = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
PREDICTED = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 0])


def correlation(x, y):
    """Computes Pearson's formula with exact sums."""
    n = len(x)
    sums = lambda *columns: math.fsum(math.prod(row) for row in zip(*columns, strict=True))
    spread = lambda v: n * sums(v, v) - sums(v) ** 2
    return (n * sums(x, y) - sums(x) * sums(y)) / math.sqrt(spread(x) * spread(y))


def of_indicators(gold, predicted):
    """Computes Gorodkin's R_K, the correlation of the matrices that hold 1 at each example's class."""
    classes = np.union1d(gold, predicted)
    x, y = ((side[:, None] == classes).astype(float) for side in (gold, predicted))
    covariance = lambda a, b: np.mean((a - a.mean(0)) * (b - b.mean(0)))
    return covariance(x, y) / math.sqrt(covariance(x, x) * covariance(y, y))


def test_confusion_matrix():
    assert confusion.counts(GOLD, PREDICTED, 4).tolist() == [
        [3, 1, 0, 0],
        [0, 2, 1, 0],
        [1, 0, 2, 0],
        [0, 0, 0, 0],
    ]


def test_confusion_table():
    assert confusion.table(np.array([[3, 1000], [0, 20]]), ['cat', 'automobile'])[1:] == [
        '             cat automobile',
        '         cat   3       1000',
        '  automobile   0         20',
    ]
    # CIFAR-10's fits into 80 columns.
    names = ['airplane', 'automobile', 'bird', 'cat', 'deer', 'dog', 'frog', 'horse', 'ship', 'truck']
    assert {len(line) for line in confusion.table(np.full((10, 10), 1000), names)[1:]} == {74}
    assert confusion.table(np.zeros((11, 11), int), [*map(str, range(11))]) == []


def test_scores_of_three_classes():
    assert scores.accuracy(GOLD, PREDICTED) == 0.7
    assert scores.class_f1(GOLD, PREDICTED, 0) == pytest.approx(6 / 8)
    assert scores.class_f1(GOLD, PREDICTED, 1) == pytest.approx(4 / 6)
    # A class that occurs nowhere has no part in the mean.
    assert scores.class_f1(GOLD, PREDICTED, 3) == 0.0
    assert scores.macro_f1(GOLD, PREDICTED) == pytest.approx((6 / 8 + 4 / 6 + 4 / 6) / 3)
    assert scores.macro_f1(2 * GOLD, 2 * PREDICTED) == pytest.approx((6 / 8 + 4 / 6 + 4 / 6) / 3)
    # Of 10 examples 7 are right, and both sides have 4, 3 and 3 of the classes.
    assert scores.matthews(GOLD, PREDICTED) == pytest.approx((7 * 10 - 34) / (100 - 34))


def test_class_of_one_side_counts_in_mean_f1():
    assert scores.macro_f1(np.array([0, 0]), np.array([0, 1])) == pytest.approx((2 / 3 + 0) / 2)


def test_matthews_of_two_classes():
    for tp, fp, fn, tn in itertools.product(range(4), repeat=4):
        if (total := tp + fp + fn + tn) == 0:
            continue
        gold = np.repeat([1, 0, 1, 0], [tp, fp, fn, tn])
        predicted = np.repeat([1, 1, 0, 0], [tp, fp, fn, tn])
        product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
        # 0 if either side is constant.
        expected = (tp * tn - fp * fn) / math.sqrt(product) if product else 0.0
        assert scores.matthews(gold, predicted) == pytest.approx(expected, abs=1e-12)
        assert scores.accuracy(gold, predicted) == pytest.approx((tp + tn) / total)
        found = tp + fp + tp + fn
        assert scores.class_f1(gold, predicted, 1) == pytest.approx(2 * tp / found if found else 0.0)


def test_matthews_of_many_classes():
    rng = np.random.default_rng(0)
    for classes in (2, 3, 7):
        gold = rng.integers(0, classes, 200)
        predicted = np.where(rng.random(200) < 0.6, gold, rng.integers(0, classes, 200))
        assert scores.matthews(gold, predicted) == pytest.approx(of_indicators(gold, predicted), abs=1e-12)
        assert scores.matthews(gold, gold) == 1.0


def test_labels_of_eight_bits_do_not_overflow():
    gold, predicted = (np.array([0, 200, 255])[side] for side in (GOLD, PREDICTED))
    small = gold.astype(np.uint8), predicted.astype(np.uint8)
    for score in (scores.matthews, scores.macro_f1):
        assert score(*small) == score(GOLD, PREDICTED)
    assert confusion.counts(*small, 256)[[0, 200, 255]][:, [0, 200, 255]].tolist() == [
        [3, 1, 0],
        [0, 2, 1],
        [1, 0, 2],
    ]


def test_correlations_by_formula():
    rng = np.random.default_rng(1)
    gold = rng.integers(0, 6, 100)
    predicted = gold + rng.normal(0, 1, 100)
    assert scores.pearson(gold, predicted) == pytest.approx(correlation(gold, predicted), abs=1e-12)
    # Far from 0, where squares lose the digits of the differences.
    assert scores.pearson(gold, predicted + 1e6) == pytest.approx(correlation(gold, predicted), abs=1e-8)
    small = predicted.astype(np.float32)
    assert scores.pearson(gold, small) == pytest.approx(correlation(gold, small.tolist()), abs=1e-12)
    assert scores.pearson(gold, -gold) == -1.0
    assert scores.spearman(gold, np.exp(gold.astype(float))) == 1.0


def test_equal_values_share_their_mean_rank():
    gold, predicted = np.array([3.0, 1.0, 3.0, 2.0, 3.0]), np.array([0.1, 0.1, 0.5, 0.5, 0.9])
    expected = correlation([4, 1, 4, 2, 4], [1.5, 1.5, 3.5, 3.5, 5])
    assert scores.spearman(gold, predicted) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize('score', [scores.pearson, scores.spearman])
def test_correlation_with_constant_is_undefined(score):
    constant, numbers = np.full(3, 0.1), np.arange(3)
    # In floating point, its standard deviation is not 0.
    assert constant.std() > 0
    assert score(numbers, constant) is None
    assert score(constant, numbers) is None
    assert score(numbers[:1], numbers[:1]) is None


def resampled(function, *columns):
    """Computes the 95 % interval by the definition of the bootstrap."""
    rng, size = np.random.default_rng(0), len(columns[0])
    draws = [rng.integers(0, size, size) for _ in range(1000)]
    return np.percentile([function(*(column[drawn] for column in columns)) for drawn in draws], [2.5, 97.5])


def test_intervals_of_class_scores():
    rng = np.random.default_rng(2)
    gold = rng.integers(0, 3, 80)
    predicted = np.where(rng.random(80) < 0.6, gold, rng.integers(0, 3, 80))
    entries = scores.score_classes(gold, predicted)
    assert list(entries) == ['accuracy', 'f1', 'matthews']
    for name, function in (
        ('accuracy', scores.accuracy),
        ('f1', scores.macro_f1),
        ('matthews', of_indicators),
    ):
        assert entries[name]['score'] == pytest.approx(function(gold, predicted), abs=1e-12)
        assert entries[name]['interval'] == pytest.approx(resampled(function, gold, predicted), abs=1e-12)
        assert entries[name]['interval'][0] < entries[name]['score'] < entries[name]['interval'][1]
    f1 = functools.partial(scores.class_f1, positive=2)
    named = scores.score_classes(gold, predicted, positive=2)['f1']
    assert named['score'] == f1(gold, predicted)
    assert named['interval'] == pytest.approx(resampled(f1, gold, predicted), abs=1e-12)


def test_intervals_of_number_scores():
    rng = np.random.default_rng(3)
    gold = rng.integers(0, 6, 60)
    predicted = gold + rng.normal(0, 2, 60)
    entries = scores.score_numbers(gold, predicted)
    assert list(entries) == ['pearson', 'spearman']
    assert entries['pearson']['score'] == scores.pearson(gold, predicted)
    assert entries['spearman']['score'] == scores.spearman(gold, predicted)
    assert entries['pearson']['interval'] == pytest.approx(resampled(correlation, gold, predicted), abs=1e-9)
    low, high = entries['spearman']['interval']
    assert -1 < low < entries['spearman']['score'] < high < 1


def test_interval_is_undefined_with_a_score():
    constant = scores.score_numbers(np.arange(5), np.ones(5))['pearson']
    assert constant == {'score': None, 'interval': None}
    # Of two examples, half of the resamples are constant.
    entry = scores.score_numbers(np.arange(2), np.arange(2))['pearson']
    assert entry == {'score': pytest.approx(1.0), 'interval': None}
