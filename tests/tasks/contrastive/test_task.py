"""Images and texts in one space: batches, evaluation, zero-shot classes, retrieval and findings."""

import functools
import math

import jax
import numpy as np
import PIL.Image
import programs
import pytest
from etils import epath

from transformer.config import ConfigError, config_dict, resolve
from transformer.data.arrays import Dense, dtype_of, ragged
from transformer.data.dataset import Split
from transformer.data.sources import images as image_files
from transformer.data.text_input import Given
from transformer.data.tokenizers import kinds
from transformer.data.tokenizers.byte import BYTES
from transformer.runs.restore import Trained
from transformer.tasks import task_of
from transformer.tasks.contrastive import vectors
from transformer.tasks.findings import Outcome
from transformer.tasks.images.task import image_type
from transformer.tokens import EOS

OPTIONS = {
    'train.task': 'contrastive',
    'model.N': 1,
    'model.d_model': 16,
    'model.d_ff': 24,
    'model.h': 2,
    'model.positions': 'learned',
    'model.max_len': 24,
    'images.size': 6,
    'images.patch': 3,
    'data.source': 'table',
    'data.name': None,
    'data.tokenizer': 'bytes',
    'data.batching': 'padded',
    'data.max_len': 16,
    'data.row_len': 16,
    'data.batch_tokens': 16 * 32,
}
WORDS = ('red', 'blue', 'green', 'pink', 'grey')
CODEC = kinds.read(BYTES)


def config_of(**changes):
    return resolve(config_dict(OPTIONS | {key.replace('__', '.'): value for key, value in changes.items()}))


@functools.cache
def trained() -> Trained:
    """Makes a model with random parameters, whose texts and images differ much."""
    params = jax.device_get(programs.initialize(config_of(), jax.random.key(1)))
    rng = np.random.default_rng(0)
    drawn = jax.tree.map(lambda x: x + rng.normal(size=x.shape).astype(np.float32) * 0.3, params)
    return Trained(config_of(), drawn | {'log_scale': np.float32(2.0)}, {'image': None, 'text': CODEC})


def dataset_of(pixels: np.ndarray, texts: list[str], split: str = 'dev') -> Given:
    pieces = ragged(CODEC.encode_batch(texts), dtype_of(CODEC.size))
    splits = {split: Split({'image': Dense(pixels), 'text': pieces})}
    return Given(epath.Path('.'), {'image': None, 'text': CODEC}, splits, {}, {'text': texts}, False)


@functools.cache
def pairs() -> tuple[np.ndarray, list[str]]:
    """Makes 24 images; each has two texts, one of which another image has, too."""
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (24, 6, 6, 3)).astype(np.uint8)
    texts = [f'{WORDS[i % 5]} {i}' for i in range(24)] + [f'{WORDS[i % 5]} {i // 2}' for i in range(24)]
    return np.concatenate([images, images]), texts


def numpy_recall(queries: np.ndarray, candidates: np.ndarray, right: list[set[int]], most: int) -> float:
    order = np.argsort(-(queries @ candidates.T), axis=1)[:, :most]
    return float(np.mean([bool(own & set(row.tolist())) for own, row in zip(right, order, strict=True)]))


def test_recall_counts_every_text_of_an_image_and_every_image_of_a_text():
    pixels, texts = pairs()
    scored = task_of(config_of()).evaluate(trained(), dataset_of(pixels, texts), 'dev')
    names = sorted(set(texts))
    images, of_texts = vectors.embed_pixels(trained(), pixels[:24]), vectors.embed(trained(), names)
    np.testing.assert_allclose(np.linalg.norm(images, axis=1), 1, atol=1e-5)
    texts_of = [{names.index(texts[i]), names.index(texts[24 + i])} for i in range(24)]
    images_of = [{i for i in range(24) if n in texts_of[i]} for n in range(len(names))]
    assert (scored.scores['images'], scored.scores['texts']) == (24, len(names))
    for most in (1, 5, 10):
        expected = numpy_recall(images, of_texts, texts_of, most)
        assert scored.scores['text_of_image'][f'r{most}']['score'] == pytest.approx(expected)
        expected = numpy_recall(of_texts, images, images_of, most)
        assert scored.scores['image_of_text'][f'r{most}']['score'] == pytest.approx(expected)
    best = [names[np.argmax(of_texts @ image)] for image in images]
    assert scored.lines == best * 2
    shown = task_of(config_of()).show(trained(), dataset_of(pixels, texts, 'test')).lines
    assert shown[::2] == [f'  {text}' for text in texts[:4]]
    assert shown[1::2] == [f'    {text}' for text in best[:4]]
    values = [measure.value(scored.scores) for measure in task_of(config_of()).measures]
    assert None not in values and len(values) == 9
    assert scored.scores['scale'] == pytest.approx(math.exp(2), rel=1e-5)


def test_every_batch_has_the_same_number_of_rows():
    pixels, texts = pairs()
    batches = task_of(config_of()).batches(config_of(), dataset_of(pixels, texts, 'train'), 'train')
    assert (batches.shapes, batches.steps_per_epoch, batches.rows(0)) == (1, 2, 32)
    first, second = batches.batch(0), batches.batch(1)
    assert first['text'].tokens.shape == (32, 16) and first['image'].shape == (32, 1, 6, 6, 3)
    assert sorted([first['weight'].sum(), second['weight'].sum()]) == [16, 32]
    row = [piece for piece in first['text'].tokens[5].tolist() if piece > EOS]
    same = [i for i in range(48) if (first['image'][5, 0] == pixels[i]).all()]
    assert row in [CODEC.encode(texts[i])[:-1] for i in same]


def test_training_images_are_augmented_by_step_and_row():
    config, dataset = config_of(images__flip=True, images__crop=1), dataset_of(*pairs(), 'train')
    plain = task_of(config).batches(config_of(), dataset, 'train').batch(1)
    batches = task_of(config).batches(config, dataset, 'train')
    found, part = batches.batch(1), batches.batch(1, slice(3, 6))
    np.testing.assert_array_equal(part['image'], found['image'][3:6])
    padded = np.pad(plain['image'][:, 0], ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = [padded[:, y : y + 6, x : x + 6] for y in range(3) for x in range(3)]
    windows += [window[:, :, ::-1] for window in windows]
    for i in np.flatnonzero(plain['weight'][:, 0]):
        assert any((found['image'][i, 0] == window[i]).all() for window in windows)
    changed = (found['image'] != plain['image']).any(axis=(1, 2, 3, 4))
    assert changed.sum() > 8
    dev = task_of(config).batches(config, dataset_of(*pairs()), 'dev').batch(0)['image'][:32, 0]
    np.testing.assert_array_equal(dev, pairs()[0][:32])


def test_a_long_text_keeps_its_end(caplog):
    pixels, _ = pairs()
    dataset = dataset_of(pixels[:2], ['a' * 40, 'b'])
    text = task_of(config_of()).batches(config_of(), dataset, 'dev').batch(0)['text'].tokens
    assert text[0, 23] == EOS and text[0, 22] == CODEC.encode('a')[0]
    # Without a table of positions, attention over a longer text might not fit into memory.
    waves = config_of(model__positions='sinusoidal')
    longer = task_of(waves).batches(waves, dataset_of(pixels[:2], ['a' * 1500, 'b']), 'dev')
    (ends,) = [
        row for n in range(longer.steps_per_epoch) for row in longer.batch(n)['text'].tokens if row[30]
    ]
    assert np.count_nonzero(ends) == 1024 and ends[1023] == EOS
    found = vectors.embed(trained(), ['a' * 40, 'a' * 23], first=6)
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    assert any('line 7:' in message and '24 of its 41' in message for message in caplog.messages)


def test_zero_shot_classes_are_means_of_their_texts():
    pixels, _ = pairs()
    names, templates = ['red', 'blue', 'pink'], ['{}', 'a {} one', 'so {}!']
    means = []
    for name in names:
        mean = np.mean([vectors.embed(trained(), [one.format(name)])[0] for one in templates], axis=0)
        means.append(mean / np.linalg.norm(mean))
    logits = math.exp(2) * vectors.embed_pixels(trained(), pixels[:24]) @ np.array(means).T
    expected = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    config = config_of(contrastive__templates='|'.join(templates))
    found = vectors.zero_shot(trained()._replace(config=config), pixels[:24], names)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    alone = vectors.zero_shot(trained(), pixels[:24], names)
    assert not np.allclose(alone, expected, atol=1e-3)


def test_a_long_name_of_a_class(caplog):
    vectors.class_vectors(trained(), ['red', 'blue' * 20], ['{}', 'a {}'])
    assert len(caplog.messages) == 2 and all(f"class '{'blue' * 20}'" in one for one in caplog.messages)


@pytest.fixture
def folder(tmp_path):
    """Writes six images and a file that is none."""
    for i, pixels in enumerate(pairs()[0][:6]):
        PIL.Image.fromarray(pixels).save(tmp_path / f'{i}.png')
    (tmp_path / 'notes.txt').write_text('red 0\nblue 1\ngreen 2\n')
    return tmp_path


def test_retrieval_in_both_directions(folder):
    paths, lines = [str(folder / f'{i}.png') for i in range(6)], ['red 0', 'blue 1', 'green 2']
    images, texts = vectors.embed_pixels(trained(), pairs()[0][:6]), vectors.embed(trained(), lines)
    np.testing.assert_allclose(vectors.embed_images(trained(), paths), images, atol=1e-5)
    found = vectors.retrieve(trained(), lines, images=str(folder), best=2)
    for row, answers in zip(texts @ images.T, found, strict=True):
        assert [one.text for one in answers] == [paths[i] for i in np.argsort(-row)[:2]]
        assert answers[0].score == pytest.approx(row.max(), abs=1e-5)
    found = vectors.retrieve_texts(trained(), paths[:2], texts=str(folder / 'notes.txt'), best=3)
    for row, answers in zip(images[:2] @ texts.T, found, strict=True):
        assert [one.text for one in answers] == [lines[i] for i in np.argsort(-row)]
    listed, of_folder = (
        vectors.retrieve(trained(), lines, images=images) for images in (paths[::-1], str(folder))
    )
    assert [one.text for [one] in listed] == [one.text for [one] in of_folder]
    assert vectors.retrieve_texts(trained(), paths[:2], texts=lines, best=3) == found


def test_a_folder_with_damaged_and_hidden_images(folder, caplog):
    """They are left out, the damaged ones with a count, and the others are found."""
    lines = ['red 0', 'blue 1']
    before = vectors.retrieve(trained(), lines, images=str(folder), best=6)
    for name in ('0a.png', '7.jpg', '._1.png'):
        (folder / name).write_bytes(b'none')
    assert vectors.retrieve(trained(), lines, images=str(folder), best=6) == before
    [message] = caplog.messages
    assert f'images={folder}: left out 2 ' in message and f'{folder}/0a.png' in message
    with pytest.raises(image_files.UnreadableFile, match='7.jpg'):
        vectors.retrieve(trained(), lines, images=[folder / '0.png', folder / '7.jpg'])


def test_the_candidates_of_a_command_are_read_once(folder, monkeypatch):
    """A command asks for each part of its input. A folder with other images is read again."""
    read, embedded = [], []
    reading, embedding = image_files.read, vectors._embed
    monkeypatch.setattr(image_files, 'read', lambda *how: read.append(how) or reading(*how))
    monkeypatch.setattr(vectors, '_embed', lambda *how: embedded.append(how[1]) or embedding(*how))
    model, texts = trained(), folder / 'notes.txt'
    for line in ('red 0', 'blue 1', 'red 0'):
        vectors.retrieve(model, [line], images=str(folder))
    assert len(read) == 6
    (folder / '5.png').unlink()
    assert len(vectors.retrieve(model, ['red 0'], images=str(folder), best=5)[0]) == 5
    assert len(read) == 11
    assert vectors.retrieve(model, [], images=str(folder)) == [] and len(read) == 11
    with pytest.raises(ConfigError, match='nbest=6.* 5'):
        vectors.retrieve(model, ['red 0'], images=str(folder), best=6)
    assert len(read) == 11
    PIL.Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(folder / '0.png')
    vectors.retrieve(model, ['red 0'], images=str(folder))
    assert len(read) == 16
    embedded.clear()
    for path in (folder / '0.png', folder / '1.png'):
        vectors.retrieve_texts(model, [path], texts=str(texts))
    assert len(embedded) == 1
    texts.write_text('green 2\n')
    assert vectors.retrieve_texts(model, [folder / '0.png'], texts=str(texts))[0][0].text == 'green 2'


def test_lines_of_a_file_of_texts(folder, caplog):
    """Only a newline ends a line; empty lines are none, equal ones are one, and a long one is named."""
    lines, path = ['red\x0c0', 'blue\u2028\x851', 'a' * 40], folder / 'lines'
    path.write_bytes('\ufeff{}\r\n\n \n{}\n{}\n{}'.format(*lines[:2], lines[0], lines[2]).encode())
    (found,) = vectors.retrieve_texts(trained(), [folder / '0.png'], texts=str(path), best=3)
    assert sorted(one.text for one in found) == sorted(lines)
    assert f'{path}: line 6: only 24 of its 41 pieces are read' in caplog.messages
    for content, named in (
        (b'red\nsch\xf6n\n', 'line 2'),
        ('red'.encode('utf-16'), 'UTF-16'),
        (b'\n', 'no lines'),
    ):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=f'^{path}: .*{named}'):
            vectors.retrieve_texts(trained(), [], texts=str(path))


def test_classes_of_files(folder):
    paths = [str(folder / f'{i}.png') for i in range(6)]
    found = vectors.classify(trained(), paths, classes='red, blue,pink', best=3)
    expected = vectors.zero_shot(trained(), pairs()[0][:6], ['red', 'blue', 'pink'])
    for row, answers in zip(expected, found, strict=True):
        assert [one.score for one in answers] == pytest.approx(sorted(row, reverse=True), abs=1e-5)
        assert answers[0].text == ['red', 'blue', 'pink'][row.argmax()]
    assert vectors.classify(trained(), paths, classes=['red', 'blue', 'pink'], best=3) == found


@pytest.mark.parametrize(
    ('call', 'name'),
    [
        (lambda folder: vectors.classify(trained(), []), 'classes: missing'),
        (lambda folder: vectors.classify(trained(), [], classes='red'), 'classes=red'),
        (lambda folder: vectors.classify(trained(), [], classes='red,blue,red'), "classes=.*'red'"),
        (lambda folder: vectors.classify(trained(), [], classes='red,,blue'), 'classes=.* 2 '),
        (lambda folder: vectors.classify(trained(), [], classes='red,blue', best=3), 'nbest=3.* 2'),
        (lambda folder: vectors.classify(trained(), 'x.png', classes='red,blue'), "images='x.png'"),
        (lambda folder: image_files.read_all([pairs()[0][0]], image_type(config_of())), r'images\[0\]'),
        (lambda folder: vectors.embed(trained(), [], pool='mean'), 'pool'),
        (lambda folder: vectors.embed_images(trained(), [], pool='mean'), 'pool'),
        (lambda folder: vectors.embed(trained()._replace(params=({}, {})), ['a']), 'checkpoint'),
        (lambda folder: vectors.retrieve(trained(), []), '--images=FOLDER, or --texts=FILE'),
        (lambda folder: vectors.retrieve(trained(), [], images=[], best=1), 'nbest=1.* 0'),
        (lambda folder: vectors.retrieve_texts(trained(), [], texts=['a', '', 'a'], best=2), 'nbest=2.* 1'),
        (lambda folder: vectors.retrieve_texts(trained(), [], texts=['']), 'texts'),
        (lambda folder: vectors.retrieve(trained(), [], images=f'{folder}/none'), 'images=.*none'),
        (lambda folder: vectors.retrieve(trained(), ['a'], images=str(folder), best=7), 'nbest=7.* 6'),
        (lambda folder: vectors.retrieve_texts(trained(), [], images='x', texts='y'), '--images=FOLDER, or'),
        (lambda folder: config_of(contrastive__templates='a {}|a shape'), 'contrastive.templates.*a shape'),
        (lambda folder: config_of(contrastive__templates=''), 'contrastive.templates'),
    ],
)
def test_impossible_calls(folder, call, name):
    with pytest.raises(ConfigError, match=name):
        call(folder)


def findings_of(entry: dict, lines=('a', 'b'), **changes) -> list:
    config = config_of(**changes)
    outcome = Outcome(100, 1.0, [], 'dev', entry, lines)
    return [*task_of(config).findings(trained()._replace(config=config), dataset_of(*pairs()), outcome)]


def test_findings():
    fine = {'loss': 0.3, 'guess': math.log(4), 'scale': 20.0}
    assert findings_of(fine) == []
    (unlearned,) = findings_of(fine | {'loss': 1.37})
    assert '1.386' in unlearned.seen and 'train.steps' in unlearned.change
    for scale, shown in ((99.9, '99.90'), (1.0, '1.00')):
        (bound,) = findings_of(fine | {'scale': scale})
        assert shown in bound.seen and 'train.peak_lr' in bound.change
    (alone,) = findings_of(fine | {'loss': 0.0, 'guess': 0.0}, data__batch_tokens=16 * 8)
    assert 'no others' in alone.seen and 'train.microbatches' in alone.change
    # Rows of several pairs, or pairs that are compared with those of other rows.
    assert findings_of(fine, data__batch_tokens=16 * 8) == []
    (equal,) = findings_of(fine, lines=['a'] * 5)
    assert "'a'" in equal.seen
