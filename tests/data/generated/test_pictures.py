"""Pictures from files, generated pictures, the cache of dense fields, and their batches."""

import gzip

import numpy as np
import PIL.Image
import pytest
from etils import epath

from transformer.config import ConfigError, Data
from transformer.data import cache, codec
from transformer.data.arrays import Dense
from transformer.data.batches import Batches, RowBatches
from transformer.data.dataset import Split
from transformer.data.fields import Image, Label, Reading
from transformer.data.generated import pictures
from transformer.data.rows import row_generator
from transformer.data.sources import images, reader

READING = Reading({'image': Image(4, 4, 1), 'label': Label()}, ('source', 'train_examples'))


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, '>u4').tobytes() + array.tobytes()


@pytest.fixture
def drawn(tmp_path):
    """Writes MNIST's files with ten pictures of 4 x 4, the test's compressed."""
    draw = np.random.default_rng(0)
    shown, labels = draw.integers(0, 256, (10, 4, 4), np.uint8), (np.arange(10) % 3).astype(np.uint8)
    for kind, array in (('images-idx3', shown), ('labels-idx1', labels)):
        (tmp_path / f'train-{kind}-ubyte').write_bytes(idx(array))
        (tmp_path / f't10k-{kind}-ubyte.gz').write_bytes(gzip.compress(idx(array[:3])))
    data = Data(source='idx', dir=str(tmp_path), train='train[:80%]', dev='train[80%:]', test='t10k')
    return data, shown, labels


def test_idx_in_the_cache(drawn, tmp_path):
    data, shown, labels = drawn
    dataset = cache.prepare(data, READING, tmp_path / 'cache')
    again = cache.prepare(data, READING, tmp_path / 'cache')
    assert again.folder == dataset.folder and again.codecs['label'].names == ('0', '1', '2')
    for split, part in (('train', slice(8)), ('dev', slice(8, 10)), ('test', slice(3))):
        fields = again.splits[split].fields
        np.testing.assert_array_equal(fields['image'].values, shown[part, ..., None])
        np.testing.assert_array_equal(fields['label'].values, labels[part])
    assert dataset.manifest['splits']['train'] == {'pairs': 8, 'dropped': {}}
    assert codec.read('labels.json', dataset.codecs['label'].content).sha256 == dataset.codecs['label'].sha256
    (tmp_path / 'train-images-idx3-ubyte').write_bytes(idx(shown)[:-1])
    with pytest.raises(ConfigError, match='train-images-idx3-ubyte: damaged'):
        list(reader.rows(data, READING, 'train', reader.Report()))


def test_sizes_of_idx_whose_product_is_beyond_64_bits(tmp_path):
    """2^31 images of 2^31 x 4 pixels are 0 bytes modulo 2^64."""
    head = bytes([0, 0, 8, 3]) + np.array([1 << 31, 1 << 31, 4], '>u4').tobytes()
    (tmp_path / 'train-images-idx3-ubyte').write_bytes(head)
    (tmp_path / 'train-labels-idx1-ubyte').write_bytes(idx(np.zeros(1)))
    data = Data(source='idx', dir=str(tmp_path))
    with pytest.raises(ConfigError, match='train-images-idx3-ubyte: damaged'):
        list(reader.rows(data, READING, 'train', reader.Report()))


def test_folders_by_class(tmp_path):
    for split in ('train', 'dev', 'test'):
        for name, grey in (('cat', 10), ('dog', 200)):
            folder = tmp_path / split / name
            folder.mkdir(parents=True)
            for number in range(2):
                PIL.Image.new('RGB', (8, 6), (grey,) * 3).save(folder / f'{number}.png')
    data = Data(source='folders', dir=str(tmp_path), dev='dev')
    rows = list(reader.rows(data, READING, 'train', reader.Report()))
    assert [row.values['label'] for row in rows] == ['cat', 'dog', 'cat', 'dog']
    np.testing.assert_array_equal(rows[1].values['image'], np.full((4, 4, 1), 200))
    assert [origin.lines for origin in images.folder_origins(data, READING, 'train')] == [2, 2]
    dataset = cache.prepare(data, READING, tmp_path / 'cache')
    assert dataset.splits['dev'].fields['label'].values.tolist() == [0, 1, 0, 1]
    before = images.folder_origins(data, READING, 'dev')
    (tmp_path / 'dev' / 'dog' / '1.png').write_bytes(b'\x89PNG half')
    after = images.folder_origins(data, READING, 'dev')
    assert [a.sha256 == b.sha256 for a, b in zip(before, after, strict=True)] == [True, False]
    with pytest.raises(ConfigError, match='dog/1.png'):
        list(reader.rows(data, READING, 'dev', reader.Report()))
    named = READING._replace(fields={'image': Image(4, 4, 1), 'label': Label(('cat', 'bird'))})
    with pytest.raises(ConfigError, match="'dog'.*cat, bird"):
        cache.prepare(data, named, tmp_path / 'cache')


def test_transparent_is_white(tmp_path):
    PIL.Image.new('RGBA', (3, 3), (0, 0, 0, 0)).save(tmp_path / 'a.png')
    assert (images.read(epath.Path(tmp_path / 'a.png'), Image(2, 2, 3)) == 255).all()


def test_generated_pictures():
    reading = Reading({'image': Image(32, 32, 3), 'label': Label()}, ())
    data = Data(source='pictures')
    row = next(reader.rows(data, reading, 'dev', reader.Report()))
    picture, name = next(pictures.pictures('dev'))
    np.testing.assert_array_equal(row.values['image'], picture)
    assert row.values['label'] == name
    with pytest.raises(ConfigError, match='data.source'):
        reader.check(Data(source='grammar'), reading)


@pytest.mark.parametrize('train', [True, False])
def test_batches_without_texts(train):
    split = Split({'label': Dense(np.arange(100, 110, dtype=np.int32))})
    data = Data(source='idx', batch_tokens=4)
    made, again = (RowBatches(split, data, 2, 3, train) for _ in range(2))
    assert isinstance(made, Batches) and made.steps_per_epoch == 3
    epochs = [[made.batch(step) for step in range(3 * e, 3 * e + 3)] for e in range(2 if train else 1)]
    orders = []
    for batches in epochs:
        weight = np.concatenate([batch['weight'] for batch in batches])
        labels = np.concatenate([batch['label'] for batch in batches])
        assert weight.sum() == 10 and len(weight) == 12 and not labels[weight == 0].any()
        orders.append(labels[weight > 0].tolist())
        assert sorted(orders[-1]) == list(range(100, 110))
    assert (orders[0] != orders[-1]) if train else (orders[0] == list(range(100, 110)))
    whole = again.batch(2)
    parts = [again.batch(2, slice(2 * i, 2 * i + 2)) for i in range(2)]
    for name in whole:
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), whole[name])
    if not train:
        with pytest.raises(IndexError):
            made.batch(3)


def test_noise_is_of_seed_place_and_row():
    places = [(s, w, r) for s in (0, 1) for w in (0, 5, 'dev', 'test') for r in (0, 7)]
    numbers = [row_generator(*place).random() for place in places]
    assert len(set(numbers)) == len(places)
    assert numbers == [row_generator(*place).random() for place in places]
