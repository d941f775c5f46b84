"""Rows, their order and their batches, read back example by example."""

import gc
import itertools
import os
import pathlib
import threading
import time

import numpy as np
import pytest

from transformer import config as configs
from transformer.actions import data as run_data
from transformer.config import Data
from transformer.data import text_input
from transformer.data.arrays import Dense, Ragged
from transformer.data.batches import RowBatches, fill
from transformer.data.dataset import Dataset, Split
from transformer.data.prefetch import prefetch
from transformer.data.rows import BUCKETS, bucket_widths, patterns, rows_per_batch
from transformer.data.running import Running, Streams, Windows
from transformer.data.tokenizers.byte import ByteTokenizer
from transformer.tasks import task_of
from transformer.tokens import Tokens

# 10,000 training pairs of WMT 2014.
WMT = pathlib.Path(os.environ.get('TRANSFORMER_TEST_DATA', 'none')) / 'wmt14_train_sample_en-de'
SIDES = ('source', 'target')
MODES = ('packed', 'bucketed')


def corpus_of(source_lengths, target_lengths):
    """Makes pairs i of [100 + i, 100 + i, ..., 1] on both sides, without padding tokens."""
    return Split({'source': field_of(source_lengths), 'target': field_of(target_lengths)})


def field_of(lengths):
    ends = np.cumsum(lengths)
    tokens = np.repeat(100 + np.arange(len(lengths)), lengths)
    tokens[ends - 1] = 1
    return Ragged(tokens.astype(np.int32), np.concatenate([[0], ends]))


def drawn_corpus(pairs, median=12, spread=0.5, longest=60, seed=0):
    """Makes pairs of log-normal lengths, with targets a tenth longer than sources."""
    draw = np.random.default_rng(seed)
    source = np.exp(draw.normal(np.log(median), spread, pairs))
    target = source * 1.1 * np.exp(draw.normal(0, 0.2, pairs))
    return corpus_of(*(np.clip(side, 1, longest - 1).astype(int) + 1 for side in (source, target)))


def assert_same(batch, other):
    """Checks that both have the same fields, each with the same tokens, segments and positions."""
    assert batch.keys() == other.keys()
    for name, value in batch.items():
        np.testing.assert_array_equal(value, other[name])


def shapes_of(made):
    """Returns the rows, and the width of each field, of every kind of batch."""
    if isinstance(made, RowBatches):
        return [(rows.per_batch, *rows.widths.values()) for rows in made.groups]
    return [made.batch(0)['text'].tokens.shape]


def data(mode, **options):
    return Data(**{'batching': mode, 'batch_tokens': 640, 'row_len': 64, 'max_len': 64, **options})


@pytest.fixture(scope='module')
def corpus():
    return drawn_corpus(500)


def pairs_of(batch, corpus):
    """Checks every position of a batch, and returns its pairs by number."""
    found = []
    for r in range(len(batch['source'].tokens)):
        held = {}
        for side in SIDES:
            tokens, segments, positions = (each[r].tolist() for each in batch[side])
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
            expected = corpus.example(number)
            assert (source, target) == (expected['source'].tolist(), expected['target'].tolist())
            found.append(number)
    return found


def test_packed_rows_by_hand():
    # 6 source tokens on 7 target tokens: a row of 5 target positions has 5 * 6 / 7 source ones.
    corpus = corpus_of([3, 1, 2], [3, 2, 2])
    made = RowBatches(corpus, data('packed', row_len=5, max_len=5, batch_tokens=20), 4, 0, False)
    assert shapes_of(made) == [(4, 5, 5)]
    batch = made.batch(0)
    expected = {
        'source': (
            [[100, 100, 1, 102, 1], [1, 0, 0, 0, 0], [0] * 5, [0] * 5],
            [[1, 1, 1, 2, 2], [1, 0, 0, 0, 0], [0] * 5, [0] * 5],
            [[0, 1, 2, 0, 1], [0, 0, 0, 0, 0], [0] * 5, [0] * 5],
        ),
        'target': (
            [[100, 100, 1, 102, 1], [101, 1, 0, 0, 0], [0] * 5, [0] * 5],
            [[1, 1, 1, 2, 2], [1, 1, 0, 0, 0], [0] * 5, [0] * 5],
            [[0, 1, 2, 0, 1], [0, 1, 0, 0, 0], [0] * 5, [0] * 5],
        ),
    }
    assert {key: tuple(each.tolist() for each in value) for key, value in batch.items()} == expected
    assert {each.dtype for value in batch.values() for each in value} == {np.dtype('int32')}


def test_bucketed_rows_by_hand():
    corpus = corpus_of([2, 9, 8, 3], [3, 2, 1, 4])
    made = RowBatches(corpus, data('bucketed', max_len=10, batch_tokens=24), 2, 0, False)
    assert shapes_of(made) == [(2, 8, 8), (2, 10, 10)]
    assert made.steps_per_epoch == 3
    first, second, third = (made.batch(step) for step in range(3))
    assert first['source'].tokens.tolist() == [[100, 1, *[0] * 6], [*[102] * 7, 1]]
    assert first['target'].tokens.tolist() == [[100, 100, 1, *[0] * 5], [1, *[0] * 7]]
    assert second['source'].tokens.tolist() == [[103, 103, 1, *[0] * 5], [0] * 8]
    assert third['source'].tokens.tolist() == [[*[101] * 8, 1, 0], [0] * 10]
    assert third['source'].positions.tolist() == [[*range(9), 0], [0] * 10]
    assert third['target'].segments.tolist() == [[1, 1, *[0] * 8], [0] * 10]


def test_a_field_of_short_texts_is_narrower_than_its_bucket():
    """Targets of up to 5 pieces take 8 positions in a bucket of 24; those of 13 would take more than half."""
    corpus = corpus_of([20, 23, 30, 31], [5, 2, 13, 17])
    made = RowBatches(corpus, data('bucketed', max_len=32, batch_tokens=48), 2, 0, False)
    assert shapes_of(made) == [(2, 24, 8), (2, 32, 32)]
    assert made.batch(0)['target'].tokens.tolist() == [[*[100] * 4, 1, 0, 0, 0], [101, 1, *[0] * 6]]
    assert made.batch(0)['source'].tokens.shape == (2, 24)


def test_padded_rows_count_as_max_len_wide():
    made = RowBatches(corpus_of([5, 20], [3, 2]), data('padded', max_len=10, batch_tokens=40), 2, 0, False)
    assert shapes_of(made) == [(4, 20, 20)]


@pytest.mark.parametrize('train', [True, False])
@pytest.mark.parametrize('mode', MODES)
def test_every_pair_once_an_epoch(corpus, mode, train):
    made = RowBatches(corpus, data(mode), 2, 0, train)
    orders = []
    for epoch in range(3 if train else 1):
        steps = range(epoch * made.steps_per_epoch, (epoch + 1) * made.steps_per_epoch)
        orders.append([pairs_of(made.batch(step), corpus) for step in steps])
        assert sorted(itertools.chain(*orders[-1])) == list(range(500))
    assert all(a != b for a, b in itertools.pairwise(orders))


@pytest.mark.parametrize('mode', MODES)
def test_random_access_equals_sequence(corpus, mode):
    first, second = (RowBatches(corpus, data(mode), 2, 7, True) for _ in range(2))
    steps = 3 * first.steps_per_epoch
    sequence = [first.batch(step) for step in range(steps)]
    for step in np.random.default_rng(0).permutation(steps).tolist():
        assert_same(second.batch(step), sequence[step])


@pytest.mark.parametrize('mode', MODES)
def test_the_seed_draws_the_order(corpus, mode):
    made = [RowBatches(corpus, data(mode), 2, seed, True) for seed in (0, 1)]
    assert made[0].steps_per_epoch == made[1].steps_per_epoch
    firsts = [[pairs_of(m.batch(step), corpus) for step in range(2)] for m in made]
    assert firsts[0] != firsts[1]


def test_the_seed_draws_who_shares_a_row(corpus):
    rows = []
    for seed in (0, 1):
        (group,) = RowBatches(corpus, data('packed'), 2, seed, True).groups
        rows.append({frozenset(row) for row in np.split(group.members, group.offsets[1:-1])})
    assert len(rows[0] & rows[1]) < len(rows[0]) / 2


@pytest.mark.parametrize('mode', MODES)
def test_evaluation_is_in_one_order(corpus, mode):
    made = [RowBatches(corpus, data(mode), 2, seed, False) for seed in (0, 0)]
    for step in range(made[0].steps_per_epoch):
        assert_same(made[0].batch(step), made[1].batch(step))
    for step in (-1, made[0].steps_per_epoch):
        with pytest.raises(IndexError):
            made[0].batch(step)
    with pytest.raises(IndexError):
        RowBatches(corpus, data(mode), 2, 0, True).batch(-1)


def test_a_bucket_keeps_its_order_in_evaluation(corpus):
    made = RowBatches(corpus, data('bucketed'), 2, 0, False)
    for group in made.groups:
        assert group.members.tolist() == sorted(group.members.tolist())


@pytest.mark.parametrize('mode', MODES)
def test_a_part_is_that_slice_of_the_batch(corpus, mode):
    made = RowBatches(corpus, data(mode), 4, 0, True)
    for step in range(made.steps_per_epoch):
        whole = made.batch(step)
        assert made.rows(step) == len(whole['source'].tokens)
        for part in (slice(0, 1), slice(2, 4), slice(made.rows(step) // 2, None), slice(3, 3)):
            sliced = {name: tuple(each[part] for each in value) for name, value in whole.items()}
            assert_same(made.batch(step, part), sliced)


@pytest.mark.parametrize('microbatches', [1, 3, 8])
@pytest.mark.parametrize('mode', MODES)
def test_rows_are_a_multiple_of_the_microbatches(corpus, mode, microbatches):
    made = RowBatches(corpus, data(mode), microbatches, 0, True)
    for rows, _, width in shapes_of(made):
        per_part = 640 // width // microbatches
        assert rows == microbatches * max(per_part, 1)
    found = {(*b['source'].tokens.shape, b['target'].tokens.shape[1]) for b in map(made.batch, range(99))}
    assert found == set(shapes_of(made))


@pytest.mark.parametrize('mode', MODES)
def test_empty_rows_come_last(corpus, mode):
    made = RowBatches(corpus, data(mode), 8, 0, True)
    for step in range(made.steps_per_epoch):
        real = made.batch(step)['target'].tokens.any(axis=1).tolist()
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
    found = {key: bucket_widths(*key) for key in table}
    assert found == table


def test_a_bucket_holds_what_fits_no_smaller_one(corpus):
    made = RowBatches(corpus, data('bucketed'), 1, 0, True)
    widths = [0, *(width for _, _, width in shapes_of(made))]
    for step in range(made.steps_per_epoch):
        batch = made.batch(step)
        width = batch['source'].tokens.shape[1]
        longer = np.maximum(*((batch[side].segments > 0).sum(axis=1) for side in SIDES))
        longer = longer[longer > 0]
        assert longer.max() <= width
        assert longer.min() > widths[widths.index(width) - 1]


@pytest.mark.parametrize('mode', MODES)
def test_evaluation_widens_for_long_pairs(mode):
    corpus = corpus_of([5, 150, 6], [5, 7, 90])
    made = RowBatches(corpus, data(mode, batch_tokens=128), 2, 0, False)
    found = [pairs_of(made.batch(step), corpus) for step in range(made.steps_per_epoch)]
    assert sorted(itertools.chain(*found)) == [0, 1, 2]


def test_short_pairs_of_one_token():
    corpus = corpus_of([1, 2, 1], [2, 1, 2])
    for mode in MODES:
        made = RowBatches(corpus, data(mode, batch_tokens=64), 1, 0, True)
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
    made = RowBatches(corpus, data('packed', row_len=row_len, batch_tokens=25_000), 8, 0, True)
    real = rows = 0
    for batch in map(made.batch, range(made.steps_per_epoch)):
        real += sum(np.count_nonzero(batch[side].tokens) for side in SIDES)
        rows += np.count_nonzero(batch['target'].tokens.any(axis=1))
    share = real / (rows * sum(shapes_of(made)[0][1:]))
    assert share >= 0.95
    assert fill(made) == pytest.approx(share)


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('task', ['translation', 'language'])
def test_learned_positions_read_no_row_that_they_lack(caplog, mode, task):
    """Dev and test are not limited by data.max_len."""
    small = {
        'train.task': task, 'model.kind': 'transformer' if task == 'translation' else 'decoder',
        'model.positions': 'learned', 'model.max_len': 60, 'data.batching': mode, 'data.max_len': 32,
        'data.row_len': 32, 'data.batch_tokens': 256, 'decode.max_source_len': 40, 'decode.extra_len': 20,
    }  # fmt: skip
    small |= {} if task == 'translation' else {'data.source': 'text', 'data.name': None}
    config = configs.resolve(configs.config_dict(small))
    with pytest.raises(configs.ConfigError, match='model.max_len=59: learned positions need 60 for decode'):
        configs.replace(config, {'model.max_len': 59})
    fields = {'source': field_of([5, 90, 60]), 'target': field_of([70, 7, 60])}
    pairs = Split(fields if task == 'translation' else {'text': fields['target']})
    dataset = Dataset(pathlib.Path(), dict.fromkeys(fields, ByteTokenizer()), {'dev': pairs}, {})
    made = task_of(config).batches(config, dataset, 'dev')
    batches = [made.batch(step) for step in range(made.steps_per_epoch)]
    assert max(tokens.positions.max() for batch in batches for tokens in batch.values()) == 59
    cut, whole = (2, 127) if task == 'translation' else (1, 127)
    [record] = caplog.records
    assert record.args == ('dev', 60, cut)
    last = 'target' if task == 'translation' else 'text'
    assert sum(np.count_nonzero(batch[last].segments) for batch in batches) == whole
    # Sinusoids reach on.
    caplog.clear()
    sinusoidal = configs.replace(config, {'model.positions': 'sinusoidal', 'model.max_len': 512})
    made = task_of(sinusoidal).batches(sinusoidal, dataset, 'dev')
    assert not caplog.text and max(max(shape[1:]) for shape in shapes_of(made)) >= 70
    # More than 1,024 pieces are read if training reads them.
    for long in ({'data.row_len': 3000}, {'data.row_len': 3000, 'data.max_len': 3000}):
        wide = configs.replace(sinusoidal, long | {'data.batch_tokens': 24_000})
        assert text_input.longest_read(wide) == 3000


def tokens_an_update(corpus, config):
    """Computes an update's tokens by side, and pairs, for a corpus so large that all batches are full."""
    made = RowBatches(corpus, config.data, config.train.microbatches, 0, True)
    updates = sum(len(rows) / rows.per_batch for rows in made.groups)
    tokens = {side: len(corpus.fields[side].tokens) / updates for side in SIDES}
    return tokens, len(corpus.fields['target'].lengths) / updates


def test_the_papers_batch_has_the_positions_of_the_released_code():
    base = configs.resolve(configs.config_dict())
    for width in BUCKETS:
        # Each of 8 GPUs has its own 4,096.
        assert rows_per_batch(base.data, width, base.train.microbatches) == 8 * (4096 // width)
    # Lengths about as those of WMT 2014.
    found, _ = tokens_an_update(drawn_corpus(20_000, median=23, spread=0.75, longest=256), base)
    assert sum(found.values()) / 2 == pytest.approx(25_000, rel=0.03)
    # Packed rows are nearly full, so they need fewer positions.
    assert (
        configs.replace(base, {'data.batching': 'packed', 'data.batch_tokens': None}).data.batch_tokens
        == 25_000
    )
    assert configs.replace(base, {'data.batch_tokens': 5000}).data.batch_tokens == 5000


@pytest.mark.skipif(not WMT.exists(), reason=f'TRANSFORMER_TEST_DATA names no folder with {WMT.name}')
def test_the_papers_batch_on_wmt_2014(tmp_path, monkeypatch):
    monkeypatch.setenv('TRANSFORMER_CACHE', str(tmp_path))
    files = dict.fromkeys(('data.train', 'data.dev', 'data.test'), 'onmt10k')
    text = {'data.source': 'text', 'data.name': None, 'data.dir': str(WMT), **files}
    config = configs.resolve(configs.config_dict(text))
    found, pairs = tokens_an_update(run_data.of_config(config).splits['train'], config)
    assert sum(found.values()) / 2 == pytest.approx(25_000, rel=0.03)
    # The pieces of the German text alone, and with the end symbol of each sentence.
    assert found['target'] - pairs == pytest.approx(25_000, rel=0.03)
    assert found == {
        side: pytest.approx(n, rel=0.005) for side, n in (('source', 25_100), ('target', 25_900))
    }


def test_planning_grows_with_the_lengths_not_with_the_pairs():
    corpus = drawn_corpus(5_000)
    lengths = [corpus.fields[side].lengths for side in SIDES]
    cells, counts = np.unique(lengths, axis=1, return_counts=True)
    widths = np.array([60, 64])
    few, few_times = patterns(cells, counts, widths)
    many, many_times = patterns(cells, counts * 1000, widths)
    assert many_times.sum() <= 1010 * few_times.sum()
    assert len(many) < 3 * len(few)
    for found, times, factor in ((few, few_times, 1), (many, many_times, 1000)):
        used = np.zeros(len(counts), int)
        for pattern, rows in zip(found, times, strict=True):
            np.add.at(used, pattern, rows)
            assert (cells[:, pattern].sum(axis=1) <= widths).all()
        np.testing.assert_array_equal(used, counts * factor)


def test_prefetch_gives_what_put_made(corpus):
    made = RowBatches(corpus, data('packed'), 2, 0, True)
    seen = []

    def put(batch):
        seen.append(threading.current_thread())
        return batch['target'].tokens.copy()

    found = list(prefetch(made, 3, 9, put))
    for step, target in zip(range(3, 9), found, strict=True):
        np.testing.assert_array_equal(target, made.batch(step)['target'].tokens)
    assert threading.main_thread() not in seen
    assert list(prefetch(made, 3, 3, put)) == []


@pytest.mark.parametrize('mode', MODES)
def test_prefetch_shares_the_rows_among_processes(corpus, mode):
    made = RowBatches(corpus, data(mode), 4, 0, True)
    parts = [
        list(prefetch(made, 0, 6, lambda batch: batch['source'].tokens, process=(k, 2))) for k in range(2)
    ]
    for step in range(6):
        whole = np.concatenate([parts[0][step], parts[1][step]])
        np.testing.assert_array_equal(whole, made.batch(step)['source'].tokens)


def prefetching():
    return [thread for thread in threading.enumerate() if thread.name == 'prefetch']


def test_prefetch_works_ahead_by_its_depth_and_ends_with_its_reader(corpus):
    made = RowBatches(corpus, data('packed'), 2, 0, True)
    calls = []
    ahead = prefetch(made, 0, 100, lambda batch: calls.append(1))
    next(ahead)
    deadline = time.monotonic() + 10
    # One was taken, two wait, and one more is ready to be handed over.
    while len(calls) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    assert len(calls) == 4
    assert prefetching()
    ahead.close()
    assert not prefetching()
    ahead = prefetch(made, 0, 100, lambda batch: None)
    next(ahead)
    del ahead
    gc.collect()
    assert not prefetching()


def test_prefetch_raises_what_its_thread_met(corpus):
    made = RowBatches(corpus, data('packed'), 2, 0, True)
    calls = []

    def put(batch):
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError('no room')
        return len(calls)

    ahead = prefetch(made, 0, 9, put)
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(RuntimeError, match='no room'):
        next(ahead)
    assert not prefetching()


def text_of(lengths):
    """Makes a one-field corpus; token t of its running text is 10 + t."""
    ends = np.cumsum(lengths)
    return Split({'text': Ragged(10 + np.arange(ends[-1]), np.concatenate([[0], ends]))})


@pytest.mark.parametrize('mode', MODES)
def test_one_field(mode):
    lengths = np.random.default_rng(0).integers(1, 60, 300)
    corpus = text_of(lengths)
    made = RowBatches(corpus, data(mode), 2, 0, True)
    assert {len(shape) for shape in shapes_of(made)} == {2}
    found, real, positions = [], 0, 0
    for batch in map(made.batch, range(made.steps_per_epoch)):
        assert list(batch) == ['text']
        rows = batch['text']
        real += np.count_nonzero(rows.segments)
        positions += rows.tokens.shape[1] * np.count_nonzero(rows.segments.any(axis=1))
        for tokens, segments in zip(rows.tokens, rows.segments, strict=True):
            for segment in range(1, segments.max() + 1):
                found.append(tokens[segments == segment].tolist())
    assert sorted(found) == [corpus.example(i)['text'].tolist() for i in range(300)]
    assert fill(made) == pytest.approx(real / positions)
    if mode == 'packed':
        assert shapes_of(made) == [(10, 64)]
        assert fill(made) >= 0.95


def test_three_fields():
    draw = np.random.default_rng(0)
    lengths = draw.integers(1, 30, (3, 200))
    corpus = Split({name: field_of(side) for name, side in zip('abc', lengths, strict=True)})
    for mode in MODES:
        made = RowBatches(corpus, data(mode), 2, 0, True)
        found = {name: [] for name in 'abc'}
        for batch in map(made.batch, range(made.steps_per_epoch)):
            for name, rows in batch.items():
                for r in range(len(rows.segments)):
                    found[name] += np.bincount(rows.segments[r])[1:].tolist()
        # Every example keeps its three lengths together.
        assert sorted(zip(*found.values(), strict=True)) == sorted(zip(*lengths.tolist(), strict=True))


def running(lengths, train, seed=0, **options):
    return Running(text_of(lengths), data('running', row_len=4, **options), 2, seed, train)


def test_running_text_by_hand():
    # Documents of 3, 1 and 6 tokens: 10 to 12, 13, and 14 to 19, in rows of 4.
    made = running([3, 1, 6], False, batch_tokens=16)
    assert (made.microbatches, made.steps_per_epoch, shapes_of(made)) == (2, 1, [(4, 4)])
    assert made.rows(0) == 4
    rows = made.batch(0)['text']
    assert rows.tokens.tolist() == [[10, 11, 12, 13], [14, 15, 16, 17], [18, 19, 0, 0], [0] * 4]
    assert rows.segments.tolist() == [[1, 1, 1, 2], [1] * 4, [1, 1, 0, 0], [0] * 4]
    assert rows.positions.tolist() == [[0, 1, 2, 0], [0, 1, 2, 3], [0, 1, 0, 0], [0] * 4]
    assert {each.dtype for each in rows} == {np.dtype('int32')}
    for step in (-1, 1):
        with pytest.raises(IndexError):
            made.batch(step)


@pytest.mark.parametrize('lengths', [[23], [3, 1, 6, 12, 1, 1], [1] * 9, [2, 1]])
def test_running_text_has_every_token_once_an_epoch(lengths):
    total, starts = sum(lengths), {0, *np.cumsum(lengths)[:-1].tolist()}
    made = running(lengths, True, batch_tokens=8)
    orders = []
    for epoch in range(12):
        rows = []
        for step in range(epoch * made.steps_per_epoch, (epoch + 1) * made.steps_per_epoch):
            batch = made.batch(step)['text']
            for tokens, segments, positions in zip(*(each.tolist() for each in batch), strict=True):
                real = sum(s > 0 for s in segments)
                assert not any(tokens[real:] + segments[real:] + positions[real:])
                row = [t - 10 for t in tokens[:real]]
                # Neighbours in a row are neighbours in the circle; a beginning starts a segment.
                for i in range(real):
                    begins = i == 0 or row[i] in starts
                    assert segments[i] == (1 if i == 0 else segments[i - 1] + begins)
                    assert positions[i] == (0 if begins else positions[i - 1] + 1)
                    assert i == 0 or row[i] == (row[i - 1] + 1) % total
                if row:
                    rows.append(row)
        assert sorted(itertools.chain(*rows)) == list(range(total))
        assert sorted(map(len, rows)) == sorted([4] * (total // 4) + [total % 4] * (total % 4 > 0))
        orders.append(rows)
    if total == 23:
        # Rows are cut at any of 4 places.
        assert len({tuple(sorted(map(tuple, rows))) for rows in orders}) == 4
    assert total < 5 or len(set(map(str, orders))) > 6


def test_running_text_is_a_function_of_the_step():
    lengths = np.random.default_rng(1).integers(1, 9, 60).tolist()
    first, second = (running(lengths, True, 7, batch_tokens=16) for _ in range(2))
    other = running(lengths, True, 8, batch_tokens=16)
    steps = 3 * first.steps_per_epoch
    sequence = [first.batch(step) for step in range(steps)]
    for step in np.random.default_rng(0).permutation(steps).tolist():
        assert_same(second.batch(step), sequence[step])
    assert any((other.batch(s)['text'].tokens != sequence[s]['text'].tokens).any() for s in range(steps))


def test_running_text_of_a_part_and_of_processes():
    lengths = np.random.default_rng(1).integers(1, 9, 61).tolist()
    made = running(lengths, True, batch_tokens=16)
    parts = [list(prefetch(made, 0, 30, lambda batch: batch['text'], process=(k, 2))) for k in range(2)]
    for step in range(30):
        whole = made.batch(step)['text']
        for part in (slice(0, 1), slice(1, 3), slice(3, 3)):
            assert_same(made.batch(step, part), {'text': tuple(each[part] for each in whole)})
        for both, each in zip(zip(parts[0][step], parts[1][step], strict=True), whole, strict=True):
            np.testing.assert_array_equal(np.concatenate(both), each)


@pytest.mark.parametrize('microbatches', [1, 3, 8])
def test_running_rows_are_a_multiple_of_the_microbatches(microbatches):
    options = data('running', row_len=4, batch_tokens=50)
    made = Running(text_of([100]), options, microbatches, 0, True)
    ((rows, width),) = shapes_of(made)
    assert (rows, width) == (microbatches * (12 // microbatches), 4)
    assert made.steps_per_epoch == -(-25 // rows)


def test_windows_by_hand():
    # Documents of 7 and 2 tokens; windows of 4 tokens, 3 apart.
    made = Windows(text_of([7, 2]), data('running', row_len=4, batch_tokens=16), 2, 3)
    assert (made.microbatches, made.steps_per_epoch, shapes_of(made)) == (2, 1, [(4, 4)])
    batch = made.batch(0)
    assert sorted(batch) == ['text', 'weight']
    assert batch['text'].tokens.tolist() == [[10, 11, 12, 13], [13, 14, 15, 16], [17, 18, 0, 0], [0] * 4]
    assert batch['text'].segments.tolist() == [[1] * 4, [1] * 4, [1, 1, 0, 0], [0] * 4]
    assert batch['text'].positions.tolist() == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 0, 0], [0] * 4]
    assert batch['weight'].tolist() == [[1] * 4, [0, 1, 1, 1], [1, 1, 0, 0], [0] * 4]
    assert batch['weight'].dtype == np.float32
    # 0 1 2 3 of the first window, 1 2 3 of the second, 0 1 of the other document.
    assert made.context() == (1, pytest.approx(13 / 9))
    for step in (-1, 1):
        with pytest.raises(IndexError):
            made.batch(step)


@pytest.mark.parametrize('stride', [1, 3, 8, 16])
def test_windows_score_every_token_once(stride):
    lengths = [1, 15, 16, 17, 18, 40, 3, 100, 32, 33]
    corpus = text_of(lengths)
    made = Windows(corpus, data('running', row_len=16, batch_tokens=100), 2, stride)
    ends = np.cumsum(lengths)
    scored, seen = [], []
    for step in range(made.steps_per_epoch):
        batch = made.batch(step)
        text, weight = batch['text'], batch['weight']
        assert made.rows(step) == len(weight) == 6
        for r, i in zip(*np.nonzero(weight), strict=True):
            token = text.tokens[r, i] - 10
            scored.append(int(token))
            begin = ends[np.searchsorted(ends, token, side='right') - 1] if token >= lengths[0] else 0
            before = text.tokens[r, :i] - 10
            # What it sees is what comes before it in its document, without a gap.
            assert before.tolist() == list(range(token - i, token))
            assert token - i >= begin
            seen.append((int(i), int(token - begin)))
        assert (weight[text.segments == 0] == 0).all()
    assert sorted(scored) == list(range(sum(lengths)))
    least, mean = made.context()
    assert least == min(sees for sees, there_are in seen if sees < there_are) == 16 - stride
    assert mean == pytest.approx(np.mean([sees for sees, _ in seen]))


def test_windows_are_as_wide_as_the_longest_document():
    made = Windows(text_of([3, 5, 2]), data('running', row_len=64, batch_tokens=20), 1, 16)
    assert shapes_of(made) == [(4, 5)]
    assert made.batch(0)['text'].tokens.shape == (4, 5)
    # Every token sees all that there is before it.
    assert made.context() == (48, pytest.approx((3 + 10 + 1) / 10))


def test_windows_of_a_part_and_of_processes():
    made = Windows(text_of([30, 7, 50]), data('running', row_len=8, batch_tokens=32), 2, 5)
    steps = made.steps_per_epoch
    parts = [list(prefetch(made, 0, steps, lambda batch: batch['weight'], process=(k, 2))) for k in range(2)]
    for step in range(steps):
        whole = made.batch(step)
        for part in (slice(0, 1), slice(1, 3), slice(4, 4)):
            some = made.batch(step, part)
            np.testing.assert_array_equal(some['weight'], whole['weight'][part])
            np.testing.assert_array_equal(some['text'], [each[part] for each in whole['text']])
        np.testing.assert_array_equal(np.concatenate([parts[0][step], parts[1][step]]), whole['weight'])


@pytest.mark.parametrize('mode', MODES)
def test_values_beside_texts_are_those_of_each_example_of_a_row(mode):
    """Example i has the number i, an image of i's and pieces 100 + i; a packed row has several."""
    lengths = np.random.default_rng(0).integers(2, 9, 57)
    fields = {
        'text': field_of(lengths),
        'label': Dense(np.arange(57, dtype=np.int32)),
        'image': Dense(np.arange(57, dtype=np.uint8)[:, None, None] * np.ones((1, 2, 2), np.uint8)),
    }
    made, seen = (
        RowBatches(Split(fields), data(mode, row_len=16, max_len=16, batch_tokens=64), 2, 0, True),
        [],
    )
    for step in range(made.steps_per_epoch):
        batch = made.batch(step)
        examples = batch['label'].shape[1]
        assert batch['image'].shape == (*batch['label'].shape, 2, 2) and (examples > 1) == (mode == 'packed')
        for row, number in zip(*np.nonzero(batch['weight']), strict=True):
            label = batch['label'][row, number]
            own = batch['text'].tokens[row][batch['text'].segments[row] == number + 1]
            assert own.tolist() == [100 + label] * (lengths[label] - 1) + [1]
            assert (batch['image'][row, number] == label).all()
            seen.append(label)
        assert not batch['label'][batch['weight'] == 0].any()
        parts = [made.batch(step, part) for part in (slice(0, 2), slice(2, None))]
        for name in ('label', 'image', 'weight'):
            np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), batch[name])
    assert sorted(seen) == list(range(57))


def streams(lengths, train, **options):
    return Streams(text_of(lengths), data('running', row_len=4, **options), 2, 0, train)


def test_streams_by_hand():
    # 13 tokens, 10 to 22, in two streams of 6 and 7; rows of 4.
    made = streams([3, 1, 9], False, batch_tokens=8)
    assert (made.microbatches, made.steps_per_epoch, made.shapes, made.rows(1)) == (2, 2, 1, 2)
    first, second = made.batch(0)['text'], made.batch(1)['text']
    assert first.tokens.tolist() == [[10, 11, 12, 13], [16, 17, 18, 19]]
    assert second.tokens.tolist() == [[14, 15, 0, 0], [20, 21, 22, 0]]
    assert first.segments.tolist() == [[1] * 4, [1] * 4]
    assert second.segments.tolist() == [[1, 1, 0, 0], [1, 1, 1, 0]]
    assert first.positions.tolist() == [[0, 1, 2, 3]] * 2
    assert second.positions.tolist() == [[4, 5, 0, 0], [4, 5, 6, 0]]
    assert made.context() == (0, pytest.approx((15 + 21) / 13))
    for step in (-1, 2):
        with pytest.raises(IndexError):
            made.batch(step)


@pytest.mark.parametrize('lengths', [[23], [3, 1, 6, 12, 1, 1], [2, 1]])
def test_streams_have_every_token_once_an_epoch(lengths):
    made, begins = streams(lengths, True, batch_tokens=16), set()
    for epoch in range(6):
        steps = range(epoch * made.steps_per_epoch, (epoch + 1) * made.steps_per_epoch)
        batches = [made.batch(step)['text'] for step in steps]
        rows = [np.concatenate([batch.tokens[row] for batch in batches]) for row in range(made.rows(0))]
        read = [token for row in rows for token in row.tolist() if token]
        begins.add(read[0])
        # The text as a circle.
        assert read == [10 + (read[0] - 10 + i) % sum(lengths) for i in range(sum(lengths))]
        assert all((batch.positions[:, 0] == 0).all() == (i == 0) for i, batch in enumerate(batches))
    assert len(begins) > 1


def test_streams_begin_where_the_seed_draws():
    begins = [
        Streams(text_of([50]), data('running', row_len=4, batch_tokens=16), 2, seed, True)
        .batch(0)['text']
        .tokens[0, 0]
        for seed in range(6)
    ]
    assert len(set(begins)) > 3


def test_streams_of_a_part():
    made = streams([50], True, batch_tokens=16)
    for step in range(5):
        whole = made.batch(step)['text']
        for part in (slice(0, 2), slice(2, 4)):
            assert_same(made.batch(step, part), {'text': Tokens(*(array[part] for array in whole))})
