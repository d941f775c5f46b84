"""The checkpoints that are kept, that are averaged, and that are the best."""

import pytest

from transformer.runs import retention

NOTHING = (0, 1)


@pytest.mark.parametrize(
    ('steps', 'losses', 'keep', 'average', 'kept'),
    [
        ([], {}, 2, NOTHING, set()),
        ([7], {}, 2, NOTHING, {7}),
        # The latest.
        ([1, 2, 3, 4, 5], {}, 1, NOTHING, {5}),
        ([1, 2, 3, 4, 5], {}, 2, NOTHING, {4, 5}),
        # Steps are compared as numbers, in whatever order they come.
        ([5, 100, 20, 3], {}, 2, NOTHING, {20, 100}),
        # The best, old or among the latest.
        ([1, 2, 3, 4, 5], {1: 4.0, 2: 1.0, 3: 3.0, 4: 2.0, 5: 5.0}, 2, NOTHING, {2, 4, 5}),
        ([1, 2, 3, 4, 5], {1: 4.0, 4: 2.0, 5: 1.0}, 2, NOTHING, {4, 5}),
        # Of equal losses, the earliest step.
        ([1, 2, 3, 4, 5], {1: 2.0, 2: 1.0, 3: 1.0, 4: 1.0, 5: 1.0}, 1, NOTHING, {2, 5}),
        # A step without a known loss is never the best.
        ([1, 2, 3], {1: None, 2: 9.0}, 1, NOTHING, {2, 3}),
        ([1, 2, 3], {1: None, 2: None, 3: None}, 1, NOTHING, {3}),
        # The loss of a step that is gone does not count.
        ([2, 3, 4], {1: 0.5, 2: 1.0, 3: 2.0}, 1, NOTHING, {2, 4}),
        # What will be averaged: the latest multiples.
        (range(1, 10), {}, 2, (3, 2), {4, 6, 8, 9}),
        (range(1, 11), {}, 1, (3, 2), {6, 8, 10}),
        (range(1, 10), {}, 1, (1, 4), {8, 9}),
        (range(1, 10), {}, 1, (2, 1), {8, 9}),
        ([1, 2, 3], {}, 1, (5, 2), {2, 3}),
        ([1, 3, 5], {}, 1, (5, 2), {5}),
        # Nothing will be averaged.
        (range(1, 10), {}, 1, (0, 3), {9}),
        # All three together.
        (range(100, 1000, 100), {100: 0.1, 900: 0.2}, 1, (2, 300), {100, 600, 900}),
        (range(100, 900, 100), {100: 0.1, 800: 0.2}, 1, (2, 300), {100, 300, 600, 800}),
    ],
)
def test_kept(steps, losses, keep, average, kept):
    assert retention.retained_steps(steps, losses, keep, average) == kept


@pytest.mark.parametrize(
    ('newest', 'last', 'every', 'averaged'),
    [
        # The paper's models: 100,000 is no multiple of 1,500.
        (100_000, 5, 1500, [94_500, 96_000, 97_500, 99_000, 100_000]),
        (300_000, 20, 600, list(range(288_600, 300_001, 600))),
        (9, 1, 4, [9]),
        (8, 1, 4, [8]),
        (9, 2, 4, [8, 9]),
    ],
)
def test_the_last_checkpoint_is_averaged_and_the_others_are_kept(newest, last, every, averaged):
    assert retention.averaged_steps(newest, last, every) == averaged
    remaining: set[int] = set()
    for step in [*range(every, newest, every), newest]:
        remaining = retention.retained_steps(remaining | {step}, {}, 1, (last, every))
    assert set(averaged) <= remaining


@pytest.mark.parametrize(
    ('losses', 'best'),
    [
        ({}, None),
        ({3: None}, None),
        ({1: 3.0, 2: 2.0, 3: 4.0}, 2),
        ({1: None, 2: 2.0, 3: None}, 2),
        ({9: 1.0, 4: 1.0, 7: 1.0, 1: 2.0}, 4),
        ({1: -1.0, 2: 0.0}, 1),
    ],
)
def test_best(losses, best):
    assert retention.best_step(losses) == best
