"""Pairs of texts: their pieces, types and classes by definition; the loss in numpy; devices; resuming."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import programs
import pytest
import toys

from transformer import config as configs
from transformer import parallel
from transformer.config import Config, ConfigError, Data
from transformer.data import cache
from transformer.data.arrays import ragged
from transformer.data.batches import NoisyBatches
from transformer.data.dataset import Split
from transformer.nn import heads, models
from transformer.runs import restore
from transformer.tasks import sums_of, task_of
from transformer.tasks.masked.pairs import FOLLOWS, RANDOM, Chunks
from transformer.tokens import EOS
from transformer.training.step import gradients, initial_state

WIDTH, CLS = 24, 3
OPTIONS = {
    'train__task': 'masked',
    'masked__next_sentence': 0.5,
    'model__positions': 'learned',
    'model__max_len': 32,
    'model__token_types': 2,
    'model__norm_embedding': True,
    'data__source': 'text',
    'data__language': 'en',
    'data__batching': 'padded',
    'data__row_len': 32,
    'data__max_len': 32,
    'data__batch_tokens': 16 * 32,
}


def lines_of(documents: list[int], blank: list[int], most: int = 12) -> Split:
    """Makes documents of so many lines. The pieces of line n are 100 n, 100 n + 1, ..."""
    rng, rows = np.random.default_rng(0), [blank]  # a blank line begins no document
    for document in documents:
        for _ in range(document):
            first = 100 * len(rows)
            rows.append([*blank[:-1], *range(first, first + rng.integers(1, most)), EOS])
        rows += [blank, blank]
    return Split({'text': ragged(rows, np.dtype('<i4'))})


def chunks_of(corpus: Split, blank: list[int], split: str = 'train', rows: int = 32) -> NoisyBatches:
    data = Data(max_len=WIDTH, batch_tokens=rows * WIDTH)
    chunks = Chunks(corpus, data, 8, 1, split, blank)
    return NoisyBatches(chunks, chunks.pairs, 1, split)


def texts_of(batch: dict, r: int, blank: list[int]) -> tuple[list[int], list[int]]:
    """Reads A and B from a row, whose form it checks."""
    length = int(batch['text'].segments[r].sum())
    row, types = batch['text'].tokens[r].tolist(), batch['types'][r].tolist()
    begin, ends = len(blank) - 1, [i for i, piece in enumerate(row) if piece == EOS]
    assert row[:begin] == blank[:-1] and len(ends) == 2 and ends[1] == length - 1
    assert types == [0] * (ends[0] + 1) + [1] * (ends[1] - ends[0]) + [0] * (WIDTH - length)
    assert batch['text'].segments[r].tolist() == [1] * length + [0] * (WIDTH - length)
    assert batch['text'].positions[r, :length].tolist() == [*range(length)]
    return row[begin : ends[0]], row[ends[0] + 1 : ends[1]]


@pytest.mark.parametrize('blank', [[EOS], [CLS, EOS]], ids=['ours', 'bert'])
@pytest.mark.parametrize('documents', [[1, 2, 30, 9] * 20, [40]], ids=['documents', 'one document'])
def test_pairs_by_their_definition(blank, documents):
    corpus = lines_of(documents, blank)
    room = WIDTH - len(blank) - 1
    lines, document = {}, 0
    for n, row in enumerate(corpus.fields['text'][i] for i in range(len(corpus))):
        content = row[len(blank) - 1 : -1].tolist()
        document += not content
        if content:
            lines[n] = document, content
    # The text of a document, so that what follows a piece can be looked up.
    texts = {}
    for of, content in lines.values():
        texts.setdefault(of, []).extend(content)
    batches, classes, begun = chunks_of(corpus, blank), [], set()
    for step in range(60):
        batch = batches.batch(step)
        for r in np.flatnonzero(batch['text'].segments[:, 0]).tolist():
            a, b = texts_of(batch, r, blank)
            of_a, of_b = lines[a[-1] // 100][0], lines[b[0] // 100][0]
            # A is the end of some whole lines, B the beginning of others, in the text of a document.
            assert a[-1] == lines[a[-1] // 100][1][-1] and b[0] % 100 == 0
            for of, part in ((of_a, a), (of_b, b)):
                place = texts[of].index(part[0])
                assert texts[of][place : place + len(part)] == part
            assert not {piece // 100 for piece in a} & {piece // 100 for piece in b}
            after = texts[of_a][texts[of_a].index(a[-1]) + 1 :]
            if batch['next'][r] == FOLLOWS:
                assert b == after[: len(b)]
            else:
                assert b != after[: len(b)] and (of_a != of_b or len(documents) == 1)
            # Only a document's end leaves a row short; only the longer text is cut.
            assert len(a) + len(b) <= room
            if len(a) + len(b) < room:
                rest = texts[of_b][texts[of_b].index(b[-1]) + 1 :]
                assert not rest or len(documents) == 1
            begun.add(lines[b[0] // 100][0])
            # A chunk has several lines if A does not end its document, and no line fills a row here.
            classes.append((len(after) > 0, int(batch['next'][r])))
    assert {kind for several, kind in classes if not several} <= {RANDOM}
    share = np.mean([kind == FOLLOWS for several, kind in classes if several])
    assert abs(share - 0.5) < 4 * 0.5 / len(classes) ** 0.5 and len(classes) > 200
    assert len(begun) > len(texts) / 2


def test_the_longer_text_is_cut():
    """A keeps its end, and B its beginning; each has at least half of the room, if it is so long."""
    cut = set()
    batches, room = chunks_of(lines_of([4, 3, 3, 3] * 10, [EOS], most=40), [EOS]), WIDTH - 2
    for step in range(2 * batches.steps_per_epoch):
        batch = batches.batch(step)
        for r in np.flatnonzero(batch['text'].segments[:, 0]).tolist():
            a, b = texts_of(batch, r, [EOS])
            assert (a[0] % 100 == 0) or len(a) >= room // 2
            assert b[0] % 100 == 0 and len(a) + len(b) <= room
            cut.add((len(a) == room // 2, len(b) == room // 2, a[0] % 100 > 0))
    # Only A, only B, and both are cut to half.
    assert {(True, True, True), (False, False, True)} <= cut


def test_pairs_differ_by_step_and_row_in_training_and_are_fixed_on_dev():
    corpus = lines_of([5, 9, 20] * 10, [EOS])
    train, dev = (chunks_of(corpus, [EOS], split, 16) for split in ('train', 'dev'))
    same = lambda one, other: jax.tree.all(jax.tree.map(np.array_equal, one, other))
    first = train.batch(0)
    assert same(train.batch(0), first) and same(chunks_of(corpus, [EOS], rows=16).batch(0), first)
    assert same(train.batch(0, slice(4, 8)), jax.tree.map(lambda x: x[4:8], first))
    rows = lambda batches, steps: {
        tuple(row) for step in steps for row in batches.batch(step)['text'].tokens.tolist()
    }
    epoch = range(train.steps_per_epoch)
    others = rows(train, [step + len(epoch) for step in epoch])
    # The chunks of both epochs are the same, and few of the pairs.
    assert len(rows(train, epoch) & others) < 0.4 * len(others)
    again = chunks_of(corpus, [EOS], 'dev', 16)
    assert all(same(dev.batch(step), again.batch(step)) for step in epoch)


@pytest.mark.parametrize('documents', [[], [2], [1]])
def test_a_split_of_one_chunk_has_no_random_text(documents):
    with pytest.raises(ConfigError, match='^masked.next_sentence: dev needs two documents'):
        chunks_of(lines_of(documents, [EOS]), [EOS], 'dev')


@pytest.fixture(scope='module')
def config(tmp_path_factory) -> Config:
    """Returns a config on a folder of documents, in which some lines are longer than a row."""
    folder, rng = tmp_path_factory.mktemp('documents'), np.random.default_rng(0)
    words = ['the', 'dog', 'cat', 'sees', 'old', 'house', 'runs', 'and', 'one', 'two']
    line = lambda: ' '.join(rng.choice(words, rng.integers(1, 24)))
    for split, number in {'train': 60, 'dev': 8, 'test': 8}.items():
        documents = ['\n'.join(line() for _ in range(rng.integers(1, 9))) for _ in range(number)]
        (folder / f'{split}.en').write_text('\n\n'.join(documents) + '\n')
    return toys.config_of(folder, **OPTIONS, data__dev='dev', data__test='test')


@pytest.fixture(scope='module')
def run(config, tmp_path_factory):
    return toys.trained(config, tmp_path_factory.mktemp('pairs') / 'run')


@pytest.fixture(scope='module')
def dataset(config, tmp_path_factory):
    return cache.prepare(config.data, task_of(config).reading(config), tmp_path_factory.mktemp('cache'))


def test_blank_and_long_lines_stay_in_the_training_text(config, dataset):
    lines = (pathlib.Path(config.data.dir) / 'train.en').read_text().split('\n')[:-1]
    lengths = dataset.splits['train'].fields['text'].lengths
    assert len(lengths) == len(lines) and max(lengths) > config.data.max_len
    assert [length == 1 for length in lengths] == [not line for line in lines]


def random_params(config: Config) -> dict:
    rng = np.random.default_rng(0)
    draw = lambda x: np.asarray(x) + rng.normal(size=x.shape).astype(np.float32) / 4
    return jax.tree.map(draw, initial_state(config).params)


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def classes_of(config: Config, params: dict, batch: dict) -> np.ndarray:
    """Computes the log-probabilities of each pair's classes from the vector of its first piece."""
    read = {name: batch[name] for name in ('text', 'types')}
    first = np.float64(programs.apply(config, params, read, method='outputs'))[:, 0]
    linear = lambda x, of: x @ params[of]['kernel'] + params[of]['bias']
    return log_softmax(linear(np.tanh(linear(first, 'pooler')), 'next_sentence'))


def test_the_loss_in_numpy(config, dataset):
    config = configs.replace(config, {'model.P_drop': 0.0, 'model.P_drop_embedding': 0.0})
    params, count = random_params(config), config.train.microbatches
    batch = task_of(config).batches(config, dataset, 'train').batch(0)
    # An empty row has no part in the loss; the microbatches have unequal numbers of hidden pieces.
    batch['text'].segments[-1], batch['weight'][-1], batch['weight'][:4, 2:] = 0, 0.0, 0.0
    read = {name: batch[name] for name in ('text', 'types')}
    classes = classes_of(config, params, batch)
    logp = log_softmax(np.float64(programs.apply(config, params, read)))
    rows = np.arange(len(classes))
    gold = logp[rows[:, None], batch['places'], batch['target']]
    hidden = -gold * batch['weight']
    present = batch['text'].segments[:, 0] > 0
    lost = -classes[rows, batch['next']] * present
    right = (classes.argmax(axis=1) == batch['next']) & present
    expected = {
        'loss': hidden.sum(),
        'weight': batch['weight'].sum(),
        'next_loss': lost.sum(),
        'next_accuracy': right.sum(),
        'next_loss_weight': present.sum(),
        'next_accuracy_weight': present.sum(),
    }
    parts = jax.tree.map(lambda x: jnp.asarray(x).reshape(count, -1, *x.shape[1:]), batch)
    numbers = lambda sums: {name: float(sums[name]) for name in expected}
    compute = jax.jit(sums_of(config))
    assert numbers(compute(params, parts, None)) == pytest.approx(expected, rel=1e-5)
    assert numbers(compute((params, params), parts, None)) == pytest.approx(expected, rel=1e-5)
    of_microbatches = zip(*(np.split(x, count) for x in (batch['weight'], lost, present)), strict=True)
    means = [weight.sum() * one.sum() / max(real.sum(), 1) for weight, one, real in of_microbatches]
    # In training labels are smoothed by 0.1.
    rest = 0.1 / (config.model.vocab_size - 1)
    others = logp[rows[:, None], batch['places']].sum(axis=-1) - gold
    smoothed = -0.9 * gold - rest * others + 0.9 * np.log(0.9) + 0.1 * np.log(rest)
    expected['loss'] = (smoothed * batch['weight']).sum() + 0.5 * sum(means)
    assert numbers(compute(params, parts, jax.random.key(0))) == pytest.approx(expected, rel=1e-5)


def test_each_text_has_a_type(config, dataset):
    params = random_params(config)
    batch = task_of(config).batches(config, dataset, 'dev').batch(0)
    outputs = lambda types, params=params: programs.apply(
        config, params, {'text': batch['text']} | ({} if types is None else {'types': types}), 'outputs'
    )
    np.testing.assert_allclose(outputs(np.zeros_like(batch['types'])), outputs(None), atol=1e-6)
    assert np.abs(outputs(batch['types']) - outputs(None)).max() > 0.1
    table = params['positions'] | {'token_types': params['positions']['token_types'][::-1]}
    turned = outputs(1 - batch['types'], params | {'positions': table})
    np.testing.assert_allclose(turned, outputs(batch['types']), atol=1e-6)


def test_gradients_do_not_depend_on_devices_and_accumulation(monkeypatch, config, dataset):
    def of(devices: int, accumulate: int):
        chosen = jax.devices()[:devices]
        monkeypatch.setattr(parallel, 'devices', lambda: chosen)
        changed = configs.replace(config, {'train.accumulate': accumulate})

        def step(params, batch):
            found = gradients(changed, sums_of(changed), params, batch, jnp.int32(3))
            return parallel.sum_over_devices(found)

        batches = task_of(config).batches(config, dataset, 'train')
        # The last batch of an epoch has empty rows.
        last = min(range(batches.steps_per_epoch), key=lambda n: batches.batch(n)['text'].segments.sum())
        batch = parallel.to_devices(batches.batch(last), config.train.microbatches)
        return jax.device_get(parallel.map_sums(step)(parallel.replicate(random_params(config)), batch))

    expected, same = of(1, 1)
    assert 0 < same['next_loss_weight'] < 16
    norm = np.sqrt(sum(np.square(x).sum() for x in jax.tree.leaves(expected)))
    found, sums = of(2, 2)
    jax.tree.map(lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-5), sums, same)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.linalg.norm(ours - theirs) <= 1e-5 * norm


def test_a_killed_training_ends_as_one_that_was_not(run, tmp_path):
    result = toys.resumed(run.folder, tmp_path / 'run', 2, evaluate=False)
    assert result['params_sha256'] == run.result()['params_sha256']


def test_scores_of_pairs(run, config, dataset):
    """Recomputed from the logits of all pairs of dev."""
    trained, _ = restore.load(run)
    params = jax.device_get(trained.params)
    rows, scores = task_of(config).batches(config, dataset, 'dev'), run.result()['scores']['dev']
    right, lost = [], []
    for step in range(rows.steps_per_epoch):
        batch = rows.batch(step)
        present = batch['text'].segments[:, 0] > 0
        classes, following = classes_of(config, params, batch)[present], batch['next'][present]
        right += (classes.argmax(axis=1) == following).tolist()
        lost += (-classes[np.arange(len(classes)), following]).tolist()
    assert len(right) > 8
    assert scores['next_accuracy'] == pytest.approx(np.mean(right), rel=1e-5)
    assert scores['next_loss'] == pytest.approx(np.mean(lost), rel=1e-5)
    # A text alone has the first type.
    assert task_of(config).verbs['embed'](trained, ['the dog']).shape == (1, 16)


def test_blank_batches_have_the_arrays_of_training(config, dataset):
    found = task_of(config).batches(config, dataset, 'dev').batch(0)
    blank = models.blank(config, 2, 8) | heads.blank_labels(config, 2, 8)
    arrays = lambda batch: jax.tree.map(lambda x: (str(x.dtype), x.ndim), batch)
    assert arrays(blank) == arrays(found)


def test_without_pairs_the_model_and_the_data_are_as_before(config):
    without = configs.replace(config, {'masked.next_sentence': 0.0})
    names = [set(models.parameter_shapes(one)) for one in (config, without)]
    assert names[0] - names[1] == {'pooler', 'next_sentence'} and names[0] > names[1]
    assert [task_of(one).reading(one).fields['text'].identity()['type'] for one in (config, without)] == [
        'lines', 'text'
    ]  # fmt: skip
    assert set(models.blank(without)) == {'text', 'places'}


@pytest.mark.parametrize(
    ('changes', 'names'),
    [
        ({'model__token_types': 1}, 'model.token_types'),
        ({'data__batching': 'packed'}, 'data.batching'),
        ({'data__max_len': 4}, 'data.max_len'),
    ],
)
def test_options_with_which_a_model_reads_no_pairs(tmp_path, changes, names):
    with pytest.raises(ConfigError, match=f'^masked.next_sentence=0.5: needs {names}'):
        toys.config_of(tmp_path, **OPTIONS | changes)


def test_a_source_without_blank_lines(tmp_path):
    config = toys.config_of(tmp_path, **OPTIONS | {'data__source': 'table'})
    with pytest.raises(ConfigError, match="^data.source='table': has no lines .* text$"):
        cache.prepare(config.data, task_of(config).reading(config), tmp_path)
