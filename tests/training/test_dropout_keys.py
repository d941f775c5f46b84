"""Keys of several microbatches."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.nn.layers import Dropout
from transformer.training import dropout_keys

KINDS = ('threefry2x32', 'rbg')


def of(kind, indexes, seed=0):
    return dropout_keys.of_microbatches(jax.random.key(seed, impl=kind), jnp.asarray(indexes))


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('shape', [(8, 6), (8, 3, 5), (4,)])
@pytest.mark.parametrize('draw', [jax.random.bits, jax.random.normal])
def test_a_microbatch_draws_the_same_with_others_and_alone(kind, shape, draw):
    together = draw(of(kind, [0, 1, 2, 3]), shape)
    each = (shape[0] // 4, *shape[1:])
    alone = [draw(of(kind, [i]), each) for i in range(4)]
    np.testing.assert_array_equal(together, jnp.concatenate(alone))
    two = [draw(of(kind, pair), (shape[0] // 2, *shape[1:])) for pair in ([0, 1], [2, 3])]
    np.testing.assert_array_equal(together, jnp.concatenate(two))
    assert len({np.asarray(part).tobytes() for part in alone}) == 4


@pytest.mark.parametrize('kind', KINDS)
def test_keys_fold_and_split_as_each_microbatch_would(kind):
    draw = functools.partial(jax.random.bits, shape=(4, 2))
    both, first, second = of(kind, [5, 9]), of(kind, [5]), of(kind, [9])
    half = functools.partial(jax.random.bits, shape=(2, 2))
    for change in (
        lambda key: jax.random.fold_in(key, 3),
        lambda key: jax.random.split(key)[1],
        lambda key: jax.random.split(key, (2, 3))[1, 2],
    ):
        expected = jnp.concatenate([half(change(first)), half(change(second))])
        np.testing.assert_array_equal(draw(change(both)), expected)
        assert not np.array_equal(draw(change(both)), draw(both))


def test_words_are_uniform_and_independent():
    words = np.asarray(jax.random.bits(of('threefry2x32', [0, 1]), (64, 512)))
    assert len(np.unique(words)) > words.size - 5
    shares = (words[..., None] >> np.arange(32, dtype=np.uint32) & 1).mean((0, 1))
    # Five standard deviations of the mean of so many bits.
    np.testing.assert_allclose(shares, 0.5, atol=5 * 0.5 / np.sqrt(words.size))
    # The two words of a hash, and neighbours, are not alike.
    for other in (np.roll(words, 256, axis=1), np.roll(words, 1, axis=1), np.roll(words, 1, axis=0)):
        same = np.unpackbits((words ^ other).view(np.uint8)).mean()
        assert same == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(32 * words.size))


def test_rows_that_microbatches_cannot_share_are_refused():
    with pytest.raises(ValueError, match=r'2 microbatches cannot share the rows of \(3, 4\)'):
        jax.random.bits(of('rbg', [0, 1]), (3, 4))


@pytest.mark.parametrize('width', [512, 511])
def test_no_two_entries_share_their_dropout(width):
    x = jnp.ones((64, width))
    kept = np.asarray(Dropout(0.5).apply({}, x, train=True, rngs={'dropout': of('threefry2x32', [0, 1])})) > 0
    for distance in (1, *(width * part // 4 for part in (1, 2, 3)), width // 2 + 1):
        alike = (kept == np.roll(kept, distance, axis=1)).mean()
        # Five standard deviations of the mean of as many coins.
        assert alike == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(kept.size))
