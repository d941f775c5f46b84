"""Mixtures of data sets: shares by their definition, and how often an epoch has each example."""

import numpy as np
import pytest

from transformer.data import mixture


@pytest.mark.parametrize(
    ('cap', 'temperature', 'expected'),
    [
        (None, 1.0, [0.6, 0.3, 0.1]),
        (10, 1.0, [0.4, 0.4, 0.2]),
        (1, 1.0, [1 / 3, 1 / 3, 1 / 3]),
        (None, 2.0, np.sqrt([0.6, 0.3, 0.1]) / np.sqrt([0.6, 0.3, 0.1]).sum()),
        (10, 2.0, np.sqrt([10, 10, 5]) / np.sqrt([10, 10, 5]).sum()),
    ],
)
def test_shares(cap, temperature, expected):
    np.testing.assert_allclose(mixture.rates(np.array([30, 15, 5]), cap, temperature), expected)


def sets_of(*sizes):
    """Numbers the data set of each example; the examples of the sets alternate in a drawn order."""
    return np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))


def test_proportional_shares_are_the_data_itself():
    sets = sets_of(30, 15, 5)
    assert mixture.mixed(sets, None, 1.0, 3).tolist() == list(range(50))
    assert mixture.mixed(sets, 30, 1.0, 3).tolist() == list(range(50))


@pytest.mark.parametrize(('cap', 'temperature'), [(10, 1.0), (None, 2.0), (4, 1.0), (None, 1e6), (7, 3.0)])
def test_an_epoch_has_every_example_and_the_shares(cap, temperature):
    sizes = np.array([30, 15, 5])
    sets = sets_of(*sizes)
    epoch = mixture.mixed(sets, cap, temperature, 3)
    times = np.bincount(epoch, minlength=50)
    assert times.min() == 1
    for number in range(3):
        of_set = times[sets == number]
        assert of_set.max() - of_set.min() <= 1
    counts = np.bincount(sets[epoch])
    # Half an example in a set is what rounding allows.
    wanted = np.minimum(sizes, cap or 30) ** (1 / temperature)
    scale = (sizes / wanted).max()
    np.testing.assert_allclose(counts, scale * wanted, atol=0.5)


def test_the_seed_chooses_who_occurs_once_more():
    sets = sets_of(30, 20)
    first, same, other = (mixture.mixed(sets, 20, 1.0, seed).tolist() for seed in (1, 1, 2))
    assert first == same != other
    assert len(first) == len(other) == 60
