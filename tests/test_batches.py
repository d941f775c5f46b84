"""Rows, their order and their batches, read back pair by pair."""

import gc
import itertools
import threading
import time

import numpy as np
import pytest

from transformer.config import Data
from transformer.data import batches
from transformer.data.batches import BUCKETS, Batches
from transformer.data.corpus import Corpus

SIDES = ('source', 'target')
MODES = ('packed', 'bucketed')


def corpus_of(source_lengths, target_lengths):
    """Pair i is [100 + i, 100 + i, ..., 1] on both sides; tokens are never padding."""
    flat, offsets = [], []
    for lengths in (source_lengths, target_lengths):
        ends = np.cumsum(lengths)
        tokens = np.repeat(100 + np.arange(len(lengths)), lengths)
        tokens[ends - 1] = 1
        flat.append(tokens.astype(np.int32))
        offsets.append(np.concatenate([[0], ends]))
    return Corpus(*flat, *offsets)


def drawn_corpus(pairs, median=12, spread=0.5, longest=60, seed=0):
    """Log-normal lengths, targets a tenth longer than sources."""
    draw = np.random.default_rng(seed)
    source = np.exp(draw.normal(np.log(median), spread, pairs))
    target = source * 1.1 * np.exp(draw.normal(0, 0.2, pairs))
    return corpus_of(*(np.clip(side, 1, longest - 1).astype(int) + 1 for side in (source, target)))


def data(mode, **options):
    return Data(**{'batching': mode, 'batch_tokens': 640, 'row_len': 64, 'max_len': 64, **options})


@pytest.fixture(scope='module')
def corpus():
    return drawn_corpus(500)


def pairs_of(batch, corpus):
    """The pairs of a batch by number, after a check of every position of it."""
    found = []
    for r in range(len(batch['source'])):
        held = {}
        for side in SIDES:
            tokens, segments, positions = (
                batch[side + end][r].tolist() for end in ('', '_segments', '_positions')
            )
            real = sum(s > 0 for s in segments)
            assert segments[:real] == sorted(segments[:real])
            assert not any(tokens[real:] + segments[real:] + positions[real:])
            held[side] = []
            for segment in range(1, max(segments) + 1):
                inside = [i for i in range(real) if segments[i] == segment]
                assert [positions[i] for i in inside] == list(range(len(inside)))
                held[side].append([tokens[i] for i in inside])
        assert len(held['source']) == len(held['target'])
        for source, target in zip(held['source'], held['target'], strict=True):
            number = (source[:-1] + target[:-1])[0] - 100
            expected = corpus.pair(number)
            assert (source, target) == (expected[0].tolist(), expected[1].tolist())
            found.append(number)
    return found


def test_packed_rows_by_hand():
    # 6 source tokens on 7 target tokens: a row of 5 target positions has 5 * 6 / 7 source ones.
    corpus = corpus_of([3, 1, 2], [3, 2, 2])
    made = Batches(corpus, data('packed', row_len=5, max_len=5, batch_tokens=20), 4, 0, False)
    assert made.shapes == [(4, 5, 5)]
    batch = made.batch(0)
    expected = {
        'source': [[100, 100, 1, 102, 1], [1, 0, 0, 0, 0], [0] * 5, [0] * 5],
        'source_segments': [[1, 1, 1, 2, 2], [1, 0, 0, 0, 0], [0] * 5, [0] * 5],
        'source_positions': [[0, 1, 2, 0, 1], [0, 0, 0, 0, 0], [0] * 5, [0] * 5],
        'target': [[100, 100, 1, 102, 1], [101, 1, 0, 0, 0], [0] * 5, [0] * 5],
        'target_segments': [[1, 1, 1, 2, 2], [1, 1, 0, 0, 0], [0] * 5, [0] * 5],
        'target_positions': [[0, 1, 2, 0, 1], [0, 1, 0, 0, 0], [0] * 5, [0] * 5],
    }
    assert {key: value.tolist() for key, value in batch.items()} == expected
    assert {value.dtype for value in batch.values()} == {np.dtype('int32')}


def test_bucketed_rows_by_hand():
    corpus = corpus_of([2, 9, 8, 3], [3, 2, 1, 4])
    made = Batches(corpus, data('bucketed', max_len=10, batch_tokens=24), 2, 0, False)
    assert made.shapes == [(2, 8, 8), (2, 10, 10)]
    assert made.steps_per_epoch == 3
    first, second, third = (made.batch(step) for step in range(3))
    assert first['source'].tolist() == [[100, 1, *[0] * 6], [*[102] * 7, 1]]
    assert first['target'].tolist() == [[100, 100, 1, *[0] * 5], [1, *[0] * 7]]
    assert second['source'].tolist() == [[103, 103, 1, *[0] * 5], [0] * 8]
    assert third['source'].tolist() == [[*[101] * 8, 1, 0], [0] * 10]
    assert third['source_positions'].tolist() == [[*range(9), 0], [0] * 10]
    assert third['target_segments'].tolist() == [[1, 1, *[0] * 8], [0] * 10]


@pytest.mark.parametrize('train', [True, False])
@pytest.mark.parametrize('mode', MODES)
def test_every_pair_once_an_epoch(corpus, mode, train):
    made = Batches(corpus, data(mode), 2, 0, train)
    orders = []
    for epoch in range(3 if train else 1):
        steps = range(epoch * made.steps_per_epoch, (epoch + 1) * made.steps_per_epoch)
        orders.append([pairs_of(made.batch(step), corpus) for step in steps])
        assert sorted(itertools.chain(*orders[-1])) == list(range(500))
    assert all(a != b for a, b in itertools.pairwise(orders))


@pytest.mark.parametrize('mode', MODES)
def test_random_access_equals_sequence(corpus, mode):
    first, second = (Batches(corpus, data(mode), 2, 7, True) for _ in range(2))
    steps = 3 * first.steps_per_epoch
    sequence = [first.batch(step) for step in range(steps)]
    for step in np.random.default_rng(0).permutation(steps).tolist():
        for key, value in second.batch(step).items():
            np.testing.assert_array_equal(value, sequence[step][key])


@pytest.mark.parametrize('mode', MODES)
def test_the_seed_draws_the_order(corpus, mode):
    made = [Batches(corpus, data(mode), 2, seed, True) for seed in (0, 1)]
    assert made[0].steps_per_epoch == made[1].steps_per_epoch
    firsts = [[pairs_of(m.batch(step), corpus) for step in range(2)] for m in made]
    assert firsts[0] != firsts[1]


def test_the_seed_draws_who_shares_a_row(corpus):
    rows = []
    for seed in (0, 1):
        (group,) = Batches(corpus, data('packed'), 2, seed, True).groups
        rows.append({frozenset(row) for row in np.split(group.members, group.offsets[1:-1])})
    assert len(rows[0] & rows[1]) < len(rows[0]) / 2


@pytest.mark.parametrize('mode', MODES)
def test_evaluation_is_in_one_order(corpus, mode):
    made = [Batches(corpus, data(mode), 2, seed, False) for seed in (0, 0)]
    for step in range(made[0].steps_per_epoch):
        np.testing.assert_array_equal(made[0].batch(step)['target'], made[1].batch(step)['target'])
    for step in (-1, made[0].steps_per_epoch):
        with pytest.raises(IndexError):
            made[0].batch(step)
    with pytest.raises(IndexError):
        Batches(corpus, data(mode), 2, 0, True).batch(-1)


def test_a_bucket_keeps_its_order_in_evaluation(corpus):
    made = Batches(corpus, data('bucketed'), 2, 0, False)
    for group in made.groups:
        assert group.members.tolist() == sorted(group.members.tolist())


@pytest.mark.parametrize('mode', MODES)
def test_a_part_is_that_slice_of_the_batch(corpus, mode):
    made = Batches(corpus, data(mode), 4, 0, True)
    for step in range(made.steps_per_epoch):
        whole = made.batch(step)
        assert made.rows(step) == len(whole['source'])
        for part in (slice(0, 1), slice(2, 4), slice(made.rows(step) // 2, None), slice(3, 3)):
            for key, value in made.batch(step, part).items():
                np.testing.assert_array_equal(value, whole[key][part])


@pytest.mark.parametrize('microbatches', [1, 3, 8])
@pytest.mark.parametrize('mode', MODES)
def test_rows_are_a_multiple_of_the_microbatches(corpus, mode, microbatches):
    made = Batches(corpus, data(mode), microbatches, 0, True)
    for rows, _, width in made.shapes:
        per_part = 640 // width // microbatches
        assert rows == microbatches * max(per_part, 1)
    found = {(*b['source'].shape, b['target'].shape[1]) for b in map(made.batch, range(99))}
    assert found == set(made.shapes)


@pytest.mark.parametrize('mode', MODES)
def test_empty_rows_come_last(corpus, mode):
    made = Batches(corpus, data(mode), 8, 0, True)
    for step in range(made.steps_per_epoch):
        real = made.batch(step)['target'].any(axis=1).tolist()
        assert real == sorted(real, reverse=True)
        assert real[0]


def test_bucket_widths():
    table = {
        (256, 100): [*BUCKETS],
        (256, 257): [*BUCKETS, 384],
        (256, 1000): [*BUCKETS, 384, 512, 768, 1024],
        (100, 90): [8, 12, 16, 24, 32, 48, 64, 96, 100],
        (100, 140): [8, 12, 16, 24, 32, 48, 64, 96, 100, 128, 192],
        (512, 10): [*BUCKETS, 384, 512],
        (300, 10): [*BUCKETS, 300],
        (5, 3): [5],
        (5, 9): [5, 8, 12],
        (8, 8): [8],
    }
    found = {key: batches._bucket_widths(*key) for key in table}
    assert found == table


def test_a_bucket_holds_what_fits_no_smaller_one(corpus):
    made = Batches(corpus, data('bucketed'), 1, 0, True)
    widths = [0, *(width for _, _, width in made.shapes)]
    for step in range(made.steps_per_epoch):
        batch = made.batch(step)
        width = batch['source'].shape[1]
        longer = np.maximum(*((batch[f'{side}_segments'] > 0).sum(axis=1) for side in SIDES))
        longer = longer[longer > 0]
        assert longer.max() <= width
        assert longer.min() > widths[widths.index(width) - 1]


@pytest.mark.parametrize('mode', MODES)
def test_evaluation_widens_for_long_pairs(mode):
    corpus = corpus_of([5, 150, 6], [5, 7, 90])
    made = Batches(corpus, data(mode, batch_tokens=128), 2, 0, False)
    found = [pairs_of(made.batch(step), corpus) for step in range(made.steps_per_epoch)]
    assert sorted(itertools.chain(*found)) == [0, 1, 2]


def test_short_pairs_of_one_token():
    corpus = corpus_of([1, 2, 1], [2, 1, 2])
    for mode in MODES:
        made = Batches(corpus, data(mode, batch_tokens=64), 1, 0, True)
        found = [pairs_of(made.batch(step), corpus) for step in range(made.steps_per_epoch)]
        assert sorted(itertools.chain(*found)) == [0, 1, 2]


@pytest.mark.parametrize(
    'lengths, row_len',
    [
        ({'median': 15, 'spread': 0.35}, 64),
        ({'median': 15, 'spread': 0.35}, 128),
        ({'median': 23, 'spread': 0.75, 'longest': 256}, 288),
    ],
)
def test_packed_rows_are_nearly_full(lengths, row_len):
    corpus = drawn_corpus(20_000, **lengths)
    made = Batches(corpus, data('packed', row_len=row_len, batch_tokens=25_000), 8, 0, True)
    real = rows = 0
    for batch in map(made.batch, range(made.steps_per_epoch)):
        real += sum(np.count_nonzero(batch[side]) for side in SIDES)
        rows += np.count_nonzero(batch['target'].any(axis=1))
    share = real / (rows * sum(made.shapes[0][1:]))
    assert share >= 0.95
    assert batches.fill(made) == pytest.approx(share)


def test_planning_grows_with_the_lengths_not_with_the_pairs():
    corpus = drawn_corpus(5_000)
    key = corpus.source_lengths * 64 + corpus.target_lengths
    cells, counts = np.unique(key, return_counts=True)
    few, few_times = batches._patterns(*np.divmod(cells, 64), counts, 60, 64)
    many, many_times = batches._patterns(*np.divmod(cells, 64), counts * 1000, 60, 64)
    assert many_times.sum() <= 1010 * few_times.sum()
    assert len(many) < 3 * len(few)
    for patterns, times, factor in ((few, few_times, 1), (many, many_times, 1000)):
        used = np.zeros(len(cells), int)
        for pattern, rows in zip(patterns, times, strict=True):
            np.add.at(used, pattern, rows)
        np.testing.assert_array_equal(used, counts * factor)


def test_prefetch_gives_what_put_made(corpus):
    made = Batches(corpus, data('packed'), 2, 0, True)
    seen = []

    def put(batch):
        seen.append(threading.current_thread())
        return batch['target'].copy()

    found = list(batches.prefetch(made, 3, 9, put, depth=1))
    for step, target in zip(range(3, 9), found, strict=True):
        np.testing.assert_array_equal(target, made.batch(step)['target'])
    assert threading.main_thread() not in seen
    assert list(batches.prefetch(made, 3, 3, put)) == []


@pytest.mark.parametrize('mode', MODES)
def test_prefetch_shares_the_rows_among_processes(corpus, mode):
    made = Batches(corpus, data(mode), 4, 0, True)
    parts = [
        list(batches.prefetch(made, 0, 6, lambda batch: batch['source'], process=(k, 2))) for k in range(2)
    ]
    for step in range(6):
        whole = np.concatenate([parts[0][step], parts[1][step]])
        np.testing.assert_array_equal(whole, made.batch(step)['source'])


def prefetching():
    return [thread for thread in threading.enumerate() if thread.name == 'prefetch']


def test_prefetch_works_ahead_by_its_depth_and_ends_with_its_reader(corpus):
    made = Batches(corpus, data('packed'), 2, 0, True)
    calls = []
    ahead = batches.prefetch(made, 0, 100, lambda batch: calls.append(1), depth=3)
    next(ahead)
    deadline = time.monotonic() + 10
    # One was taken, three wait, and one more is ready to be handed over.
    while len(calls) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    assert len(calls) == 5
    assert prefetching()
    ahead.close()
    assert not prefetching()
    ahead = batches.prefetch(made, 0, 100, lambda batch: None)
    next(ahead)
    del ahead
    gc.collect()
    assert not prefetching()


def test_prefetch_raises_what_its_thread_met(corpus):
    made = Batches(corpus, data('packed'), 2, 0, True)
    calls = []

    def put(batch):
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError('no room')
        return len(calls)

    ahead = batches.prefetch(made, 0, 9, put)
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(RuntimeError, match='no room'):
        next(ahead)
    assert not prefetching()
