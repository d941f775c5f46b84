"""Word vectors: the update in plain numpy, what is drawn, Huffman codes, resuming, vectors from a file."""

import collections
import dataclasses
import functools
import heapq
import math
import shutil

import jax
import numpy as np
import pytest
import toys

from transformer import parallel, tasks
from transformer.actions.train import train as train_action
from transformer.config import Config, ConfigError
from transformer.data.batches import NoisyBatches, RowBatches
from transformer.runs import restore
from transformer.tasks.words import huffman, sampling
from transformer.tokens import Tokens
from transformer.training.step import TrainState, initial_state, train_step

OPTIONS = {
    'train__task': 'words', 'model__kind': 'table', 'model__d_model': 6, 'data__source': 'text',
    'data__language': 'en', 'data__tokenizer': 'words', 'data__pieces': 23, 'words__sample': 0.02,
    'words__window': 3, 'words__limit': 9, 'train__optimizer': 'sgd', 'train__peak_lr': 0.05,
    'train__schedule': 'constant', 'train__warmup_steps': 1,
}  # fmt: skip
# Predicted word, output, window, devices and chunks; windows of 20 are wider than a block of word_vectors.
VARIANTS = [
    ('skipgram', 'negatives', 3, 8, 1), ('skipgram', 'hierarchical', 3, 2, 2),
    ('cbow', 'negatives', 3, 2, 2), ('cbow', 'hierarchical', 3, 8, 1),
    ('skipgram', 'negatives', 20, 1, 4), ('cbow', 'hierarchical', 20, 4, 2),
]  # fmt: skip


@pytest.fixture(scope='module')
def texts(tmp_path_factory):
    """Sentences of words of very different frequencies; some words are outside the vocabulary."""
    folder, rng = tmp_path_factory.mktemp('texts'), np.random.default_rng(0)
    words = np.array([f'w{i}' for i in range(26)])
    share = 1.0 / np.arange(1, 27)
    for split, lines in (('train', 90), ('dev', 12), ('test', 12)):
        chosen = [rng.choice(words, rng.integers(2, 40), p=share / share.sum()) for _ in range(lines)]
        (folder / f'{split}.en').write_text(''.join(f'{" ".join(line)}\n' for line in chosen))
    return folder


def config_of(texts, **changes) -> Config:
    return toys.config_of(texts, **{'data__dev': 'dev', 'data__test': 'test'} | OPTIONS | changes)


def prepared(texts, tmp_path, **changes):
    config = config_of(texts, **changes)
    return config, tasks.prepare(config, tmp_path / 'cache')


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def by_hand(config: Config, batch, table, output) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Makes word2vec's update of a batch, all from the old vectors, by loops over words and contexts."""
    new, new_output, loss, count = table.copy(), output.copy(), 0.0, 0
    alpha, of = config.train.peak_lr, config.words
    text, flat = batch['text'], of.output == 'negatives'
    for r, (tokens, segments) in enumerate(zip(text.tokens, text.segments, strict=True)):
        for s, word in enumerate(tokens):
            reach = range(max(s - batch['near'][r, s], 0), min(s + batch['near'][r, s], len(tokens) - 1) + 1)
            context = [t for t in reach if t != s and segments[t] == segments[s] > 0]
            inputs = [[t] for t in context] if of.predict == 'skipgram' else [context] * bool(context)
            for places in inputs:
                x, count = table[tokens[places]].mean(axis=0), count + 1
                # (output row, label, weight, share of its gradient)
                if flat:
                    targets = [(word, 1, 1.0, batch['share'][r, s, 1])]
                    weight = of.negatives / of.pool
                    for n, share in zip(batch['noise'][r], batch['noise_share'][r], strict=True):
                        targets += [(n, 0, weight, share)] * int(n != word)
                else:
                    paths = zip(
                        batch['path'][r, s], batch['yes'][r, s], batch['path_share'][r, s], strict=True
                    )
                    targets = [(node, yes, 1.0, share) for node, yes, share in paths if node > 0]
                error = np.zeros_like(x)
                for row, label, weight, share in targets:
                    f = sigmoid(x @ output[row])
                    loss -= weight * math.log(f if label else 1.0 - f)
                    error += weight * (label - f) * output[row]
                    new_output[row] += alpha * share * weight * (label - f) * x
                for t in places:
                    new[tokens[t]] += alpha * batch['share'][r, t, 0] * error
    return new, new_output, loss, count


@pytest.mark.parametrize(('predict', 'output', 'window', 'devices', 'accumulate'), VARIANTS)
def test_update_by_hand(texts, tmp_path, monkeypatch, predict, output, window, devices, accumulate):
    """Also on any number of devices, and in any chunks, as all equal the same update by hand."""
    chosen = {'words__predict': predict, 'words__output': output, 'words__window': window} | (
        # Not as many as words.negatives, so that each has a weight other than 1.
        {'words__pool': 8} if output == 'negatives' else {}
    )
    config, dataset = prepared(texts, tmp_path, **chosen)
    batches = tasks.task_of(config).batches(config, dataset, 'train')
    batch, rng = batches.batch(1), np.random.default_rng(1)
    shape = (config.model.vocab_size, config.model.d_model)
    table, out = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    expected = by_hand(config, batch, table.astype(np.float64), out.astype(np.float64))
    config, chosen_devices = config_of(texts, train__accumulate=accumulate, **chosen), jax.devices()[:devices]
    monkeypatch.setattr(parallel, 'devices', lambda: chosen_devices)
    state = initial_state(config)
    params = {'embedding': {'table': table}, 'output': {'table': out}}
    state = TrainState(state.step, params, state.optimizer)
    step = parallel.map_update(functools.partial(train_step, config, tasks.sums_of(config)))
    state, sums = step(parallel.replicate(state), parallel.to_devices(batch, batches.microbatches))
    for found, right in (
        (state.params['embedding']['table'], expected[0]),
        (state.params['output']['table'], expected[1]),
        (sums['loss'], expected[2]),
    ):
        np.testing.assert_allclose(found, right, rtol=3e-5, atol=3e-6)
    assert float(sums['weight']) == expected[3] > 100


def test_first_vectors(texts, tmp_path):
    config, _ = prepared(texts, tmp_path)
    params = initial_state(config).params
    table = np.asarray(params['embedding']['table'])
    assert np.abs(table).max() <= 0.5 / 6 and np.abs(table).max() > 0.45 / 6
    assert abs(table.mean()) < 0.02 and not np.asarray(params['output']['table']).any()


@pytest.mark.parametrize(('predict', 'predictions'), [('skipgram', 4), ('cbow', 1)])
def test_frequencies(texts, tmp_path, predict, predictions):
    """Skip-gram predicts a word from each word near it, CBOW once from all."""
    config, dataset = prepared(texts, tmp_path, words__predict=predict)
    tokens = dataset.splits['train'].fields['text'].tokens
    counts = collections.Counter(tokens[tokens > 2].tolist())
    total = sum(counts.values())
    found = sampling.frequencies(config, np.array(dataset.codecs['text'].counts))
    noise = np.diff(found.noise, prepend=0.0)
    norm = sum(n**0.75 for n in counts.values())
    for word, n in counts.items():
        f, t = n / total, 0.02
        assert found.keep[word] == pytest.approx(min((math.sqrt(f / t) + 1) * t / f, 1.0))
        assert noise[word] == pytest.approx(n**0.75 / norm)
        # A batch of 384 words; a word is near 4 others on average.
        words = 384 * f * found.keep[word]
        drawn = 384 * sum(counts[w] / total * found.keep[w] for w in counts) * 5 * n**0.75 / norm
        expected = min(9 / (4 * words), 1.0), min(9 / (predictions * (words + drawn)), 1.0)
        assert found.share[word] == pytest.approx(expected, rel=1e-5)
    assert found.keep[:3].tolist() == [0.0, 0.0, 0.0] and noise[:3].tolist() == [0.0, 0.0, 0.0]
    # The vocabulary is the most frequent words, in their order.
    assert list(counts.values()) and sorted(counts.values(), reverse=True) == [
        counts[w] for w in sorted(counts)
    ]


def test_inner_nodes_count_the_words_below_them(texts, tmp_path):
    config, dataset = prepared(texts, tmp_path, words__output='hierarchical')
    counts = np.array(dataset.codecs['text'].counts)
    found, uses = sampling.frequencies(config, counts), collections.Counter()
    for word, n in enumerate(counts):
        for node in found.paths[word][found.paths[word] > 0].tolist():
            uses[node] += 384 * n / counts.sum() * found.keep[word] * 4
    real = found.paths > 0
    expected = [min(9 / uses[node], 1.0) for node in found.paths[real].tolist()]
    np.testing.assert_allclose(found.path_share[real], expected, rtol=1e-5)
    assert min(expected) < 0.1 and found.yes[real].min() == 0.0
    batch = tasks.task_of(config).batches(config, dataset, 'train').batch(1)
    for name, table in (('path', found.paths), ('yes', found.yes), ('path_share', found.path_share)):
        np.testing.assert_array_equal(batch[name], table[batch['text'].tokens])


def test_draws_outside_training_are_of_the_rows_of_the_split(texts, tmp_path):
    """So a loss on dev does not depend on the size of batches, and no two rows have the same noise."""
    config, dataset = prepared(texts, tmp_path)
    of_words = sampling.frequencies(config, np.array(dataset.codecs['text'].counts))

    def drawn(batch_tokens, split):
        data = dataclasses.replace(config.data, batch_tokens=batch_tokens)
        rows = RowBatches(dataset.splits['train'], data, 1, 0, False)
        draw = functools.partial(sampling.draw, config.words, of_words)
        batches = NoisyBatches(rows, draw, config.train.seed, split)
        found = [batches.batch(step) for step in range(batches.steps_per_epoch)]
        return np.concatenate([np.concatenate([one['near'], one['noise']], axis=1) for one in found])

    small, large, other = drawn(96, 'dev'), drawn(384, 'dev'), drawn(96, 'test')
    assert len(np.unique(small, axis=0)) == len(small) > 16
    np.testing.assert_array_equal(small, large[: len(small)])
    assert (small != other).any(axis=1).all()


def test_kept_words_stay_in_their_sentences():
    rows = Tokens(*np.array([[[5, 6, 7, 8, 9, 0]], [[1, 1, 1, 2, 2, 0]], [[0, 1, 2, 0, 1, 0]]], np.int32))
    found = sampling.keep(rows, np.array([[1, 0, 1, 0, 1, 0]], bool))
    assert found.tokens.tolist() == [[5, 7, 9, 0, 0, 0]]
    assert found.segments.tolist() == [[1, 1, 2, 0, 0, 0]]
    assert found.positions.tolist() == [[0, 1, 0, 0, 0, 0]]


def test_draws(texts, tmp_path):
    """Words stay as often as they should, windows are uniform, and only words that stay are in rows."""
    config, dataset = prepared(texts, tmp_path)
    tokens = dataset.splits['train'].fields['text'].tokens
    of_words, batches = (
        sampling.frequencies(config, np.array(dataset.codecs['text'].counts)),
        tasks.task_of(config).batches(config, dataset, 'train'),
    )
    kept, windows = collections.Counter(), collections.Counter()
    epochs = 40
    for step in range(epochs * batches.steps_per_epoch):
        batch = batches.batch(step)
        text = batch['text']
        kept.update(text.tokens[text.segments > 0].tolist())
        windows.update(batch['near'].ravel().tolist())
        assert (np.diff((text.segments > 0).astype(int), axis=1) <= 0).all()
    assert 0 not in kept and 1 not in kept and 2 not in kept
    for word, n in collections.Counter(tokens[tokens > 2].tolist()).items():
        expected = epochs * n * of_words.keep[word]
        assert abs(kept[word] - expected) < 5 * math.sqrt(epochs * n * 0.25) + 1e-9
    assert set(windows) == {1, 2, 3}
    share = np.array([windows[b] for b in (1, 2, 3)]) / sum(windows.values())
    np.testing.assert_allclose(share, 1 / 3, atol=0.02)
    # A part of a batch is the same rows, and every draw depends on the step.
    one, part = batches.batch(1), batches.batch(1, slice(3, 6))
    np.testing.assert_array_equal(part['noise'], one['noise'][3:6])
    np.testing.assert_array_equal(part['text'].tokens, one['text'].tokens[3:6])
    assert (batches.batch(2)['noise'] != one['noise']).any()


def test_huffman_codes():
    """The lengths are those of a merge by hand; the rarer branch has code 0, as in word2vec."""
    counts = np.array([0, 0, 0, 15, 7, 6, 6, 5])
    nodes, yes = huffman.paths(counts)
    # 5 + 6 = 11, 6 + 7 = 13, 11 + 13 = 24, 15 + 24 = 39.
    assert (nodes > 0).sum(axis=1).tolist() == [0, 0, 0, 1, 3, 3, 3, 3]
    assert nodes[3].tolist() == [4, 0, 0] and yes[3, 0] == 1.0
    assert nodes[7].tolist() == [4, 3, 1] and yes[7].tolist() == [0.0, 1.0, 1.0]
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 1000, 50)
    queue, cost = counts.tolist(), 0
    heapq.heapify(queue)
    while len(queue) > 1:
        both = heapq.heappop(queue) + heapq.heappop(queue)
        cost += both
        heapq.heappush(queue, both)
    nodes, yes = huffman.paths(counts)
    assert ((nodes > 0).sum(axis=1) * counts).sum() == cost
    # No code is the beginning of another, and equal beginnings lead through equal nodes.
    codes = {tuple(y[n > 0].tolist()) for n, y in zip(nodes, yes, strict=True)}
    assert len(codes) == 50 and sum(0.5 ** len(code) for code in codes) == 1.0


def test_resumed_training_is_the_same(texts, tmp_path):
    whole = toys.trained(config_of(texts, train__steps=4), tmp_path / 'whole').result()
    parts = toys.resumed(tmp_path / 'whole', tmp_path / 'parts', 2)
    assert whole['params_sha256'] == parts['params_sha256'] and whole['steps'] == parts['steps'] == 4
    assert whole['scores']['dev']['loss'] == parts['scores']['dev']['loss'] > 0


def test_embedding_starts_from_a_file(texts, tmp_path):
    """Rows of pieces that the file has start from it, and stay if they are frozen."""
    rng = np.random.default_rng(2)
    vectors = {f'w{i}': rng.normal(size=6).round(3) for i in (0, 3, 99)}
    lines = ''.join(f'{word} {" ".join(map(str, v))}\n' for word, v in vectors.items())
    (tmp_path / 'vectors.txt').write_text(lines)
    changes = {'model__vectors': str(tmp_path / 'vectors.txt'), 'train__frozen': 'embedding'}
    config = config_of(texts, train__steps=2, **changes)
    run = toys.trained(config, tmp_path / 'run', evaluate=False)
    trained, _ = restore.load(run)
    table = np.asarray(trained.params['embedding']['table'])
    pieces = trained.codecs['text'].pieces(range(23))
    for word in ('w0', 'w3'):
        np.testing.assert_allclose(table[pieces.index(word)], vectors[word], rtol=1e-6)
    others = [n for n, piece in enumerate(pieces) if piece not in vectors]
    np.testing.assert_array_equal(
        table[others], np.asarray(initial_state(config).params['embedding']['table'])[others]
    )
    assert np.asarray(trained.params['output']['table']).any()
    # Where only the result remains, the training begins anew.
    shutil.rmtree(tmp_path / 'run' / 'checkpoints')
    run = toys.trained(config, tmp_path / 'run', evaluate=False)
    again = np.asarray(restore.load(run)[0].params['embedding']['table'])
    np.testing.assert_array_equal(again, table)


def test_bad_data_is_refused(texts, tmp_path):
    folder = tmp_path / 'one'
    folder.mkdir()
    for split in ('train', 'dev', 'test'):
        (folder / f'{split}.en').write_text('a a a\na a\n' * 30)
    config = config_of(folder, data__pieces=4, model__vocab_size=23)
    with pytest.raises(ConfigError, match='^data.tokenizer=bpe: '):
        tasks.task_of(config).reading(config_of(folder, data__tokenizer='bpe'))
    with pytest.raises(ConfigError, match='fewer than two different words'):
        train_action(config, tmp_path / 'run')
    with pytest.raises(ConfigError, match=r'data\.pieces=23: .* 4 at most'):
        tasks.prepare(config_of(folder), tmp_path / 'cache')
    with pytest.raises(ConfigError, match=r'words\.sample=1e-30'):
        train_action(config_of(texts, words__sample=1e-30), tmp_path / 'run')
    (tmp_path / 'narrow.txt').write_text('w0 1 2 3\n')
    (tmp_path / 'foreign.txt').write_text('x 1 2 3 4 5 6\n')
    for name, problem in (('narrow', 'vectors of 3 numbers'), ('foreign', 'none of its 1 words')):
        config = config_of(texts, model__vectors=str(tmp_path / f'{name}.txt'))
        with pytest.raises(ConfigError, match=problem):
            train_action(config, tmp_path / 'run')
    assert not (tmp_path / 'run').exists()
