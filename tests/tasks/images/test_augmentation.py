"""Augmentation: operations on pixels by hand, mixtures in numpy, batches that are the same in parts."""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import PIL.Image
import programs
import pytest

from transformer.config import config_dict, resolve
from transformer.config.tasks import Images
from transformer.data.arrays import Dense
from transformer.data.batches import RowBatches
from transformer.data.dataset import Dataset, Split
from transformer.tasks import sums_of, task_of
from transformer.tasks.images import augmentation
from transformer.tasks.images.augmentation import OPERATIONS, augment, augmented, mix
from transformer.training.step import initial_state

LEVELS = np.arange(256, dtype=np.uint8).reshape(16, 16)
COLOURED = np.random.default_rng(0).integers(0, 256, (16, 16, 3)).astype(np.uint8)


def apply(name: str, pixels: np.ndarray, magnitude: float = 10, seed: int = 0) -> np.ndarray:
    """Applies an operation. In a generator, seed 2 draws the other direction than seed 0."""
    operation = OPERATIONS[name](
        PIL.Image.fromarray(pixels), magnitude / augmentation.MOST, np.random.default_rng(seed)
    )
    return np.asarray(operation)


@pytest.mark.parametrize(
    ('name', 'magnitude', 'expected'),
    [
        ('posterize', 10, lambda x: x // 16 * 16),
        ('posterize', 5, lambda x: x // 64 * 64),
        ('solarize', 5, lambda x: np.where(x < 128, x, 255 - x)),
        ('solarize', 10, lambda x: x),
        ('solarize_add', 5, lambda x: np.where(x < 128, x + 55, x)),
        ('invert', 3, lambda x: 255 - x),
        ('brightness', 10, lambda x: np.minimum(np.floor(x * 1.9), 255)),
        ('brightness', 0, lambda x: np.floor(x * 0.1)),
        ('autocontrast', 10, lambda x: x),
        ('equalize', 10, lambda x: x),
        ('contrast', 5, lambda x: x),
        ('color', 5, lambda x: x),
        ('sharpness', 5, lambda x: x),
    ],
)
def test_operations_on_levels(name, magnitude, expected):
    """Halfway, the four enhancements have the factor 1, which changes nothing."""
    np.testing.assert_allclose(apply(name, LEVELS, magnitude), expected(LEVELS.astype(int)), atol=1)


@pytest.mark.parametrize(('name', 'axis'), [('translate_x', 1), ('translate_y', 0)])
def test_translations(name, axis):
    """By 100 of 224 pixels at most, here 7.1 of 16, in both directions."""
    pixels = np.moveaxis(COLOURED, axis, 0)
    directions = set()
    for seed in range(8):
        found = np.moveaxis(apply(name, COLOURED, seed=seed), axis, 0)
        if (found[0] == 128).all():
            directions.add('up')
            np.testing.assert_array_equal(found[7:], pixels[:-7])
            assert (found[:7] == 128).all()
        else:
            directions.add('down')
            np.testing.assert_array_equal(found[:-7], pixels[7:])
            assert (found[-7:] == 128).all()
    assert directions == {'up', 'down'}


@pytest.mark.parametrize(('name', 'axis'), [('shear_x', 1), ('shear_y', 0)])
def test_shears(name, axis):
    """Line y moves by 0.3 y pixels, rounded, in either direction."""
    pixels = np.moveaxis(COLOURED, axis, 1)
    for seed in range(4):
        found = np.moveaxis(apply(name, COLOURED, seed=seed), axis, 1)
        for sign in (-1, 1):
            middles = np.arange(16) + 0.5
            source = np.floor(middles[None] + sign * 0.3 * middles[:, None]).astype(int)
            inside = (source >= 0) & (source < 16)
            values = np.take_along_axis(pixels, np.clip(source, 0, 15)[..., None], axis=1)
            expected = np.where(inside[..., None], values, 128)
            if (expected == found).all():
                break
        else:
            raise AssertionError(f'{name} with seed {seed} moves the lines elsewhere')


def test_rotation():
    """By 30 degrees about the middle, in either direction."""
    y, x = np.mgrid[:16, :16] - 7.5
    directions = set()
    for seed in range(8):
        found, shares = apply('rotate', COLOURED, seed=seed), {}
        for sign in (-1, 1):
            cos, sin = np.cos(np.pi / 6), sign * np.sin(np.pi / 6)
            rows, columns = (
                np.floor(place + 8).astype(int) for place in (cos * y - sin * x, sin * y + cos * x)
            )
            inside = (np.minimum(rows, columns) >= 0) & (np.maximum(rows, columns) < 16)
            values = COLOURED[np.clip(rows, 0, 15), np.clip(columns, 0, 15)]
            shares[sign] = (np.where(inside[..., None], values, 128) == found).mean()
        # Pillow rounds some places at the edges of pixels otherwise.
        assert max(shares.values()) > 0.98
        directions.add(max(shares, key=shares.get))
    assert directions == {-1, 1}


def test_rotation_and_cutout():
    np.testing.assert_array_equal(apply('rotate', COLOURED, 0), COLOURED)
    turned = apply('rotate', COLOURED)
    assert (turned[0, 0] == 128).all() and (turned[8, 8] == COLOURED[8, 8]).all()
    # Twice 40/224 of 16 pixels, rounded down, less what is outside.
    sizes = set()
    for seed in range(20):
        rows, columns = np.nonzero(apply('cutout', LEVELS[:, ::-1] // 2, seed=seed) == 128)
        sizes |= {(len(set(rows)), len(set(columns)))}
        assert len(rows) == len(set(rows)) * len(set(columns))
    assert max(sizes) == (4, 4)


def test_all_operations_serve_both_kinds_of_pixels():
    assert len(OPERATIONS) == 16
    for name in OPERATIONS:
        for pixels in (LEVELS, COLOURED):
            for magnitude in (0, 10):
                found = apply(name, pixels, magnitude)
                assert found.shape == pixels.shape and found.dtype == np.uint8, name


def test_randaugment_applies_operations_of_one_strength(monkeypatch):
    """Of two operations three are drawn; each adds at full strength 10 or 20 levels."""
    adds = lambda most: (
        lambda image, strength, rng: PIL.Image.fromarray(np.asarray(image) + np.uint8(most * strength))
    )
    monkeypatch.setattr(augmentation, 'OPERATIONS', {'ten': adds(10), 'twenty': adds(20)})
    for magnitude, expected in ((10, {30, 40, 50, 60}), (5, {15, 20, 25, 30})):
        options, found = Images(randaugment=3, magnitude=magnitude), set()
        for pixels in (COLOURED // 2, LEVELS[..., None] // 2):
            for seed in range(40):
                added = np.unique(augment(options, pixels, np.random.default_rng(seed)) - pixels)
                found |= {tuple(added)}
        assert found == {(levels,) for levels in expected}


def test_crops_and_mirrors():
    padded = np.pad(COLOURED, ((2, 2), (2, 2), (0, 0)))
    windows = {
        padded[y : y + 16, x : x + 16][:, ::side].tobytes(): (y, x, side)
        for y in range(5)
        for x in range(5)
        for side in (1, -1)
    }
    options = Images(crop=2, flip=True)
    found = [windows[augment(options, COLOURED, np.random.default_rng(i)).tobytes()] for i in range(400)]
    assert set(found) == set(windows.values())
    mirrored = sum(side == -1 for *_, side in found) / len(found)
    assert 0.4 < mirrored < 0.6
    unchanged = augment(Images(), COLOURED, np.random.default_rng(0))
    np.testing.assert_array_equal(unchanged, COLOURED)


def test_mixup():
    other, options = 255 - COLOURED, Images(mixup=0.4)
    shares = []
    for seed in range(200):
        mixture, share = mix(options, COLOURED, other, np.random.default_rng(seed))
        shares.append(share)
        expected = share * COLOURED.astype(float) + (1 - share) * other
        assert np.abs(mixture - expected).max() <= 0.5 + 1e-9
    # The variance of Beta(a, a) is 1 / (4 (2a + 1)).
    assert np.mean(shares) == pytest.approx(0.5, abs=0.08)
    assert np.var(shares) == pytest.approx(1 / (4 * 1.8), abs=0.03)


def test_cutmix():
    zeros, ones, within = np.zeros((16, 20, 1), np.uint8), np.ones((16, 20, 1), np.uint8), 0
    for seed in range(100):
        mixture, share = mix(Images(cutmix=1.0), zeros, ones, np.random.default_rng(seed))
        rows, columns, _ = np.nonzero(mixture)
        assert share == pytest.approx(1 - mixture.mean())
        assert len(rows) == len(set(rows)) * len(set(columns))
        # A side that ends within the image has the square root of the share of area that was drawn.
        root = (1 - np.random.default_rng(seed).beta(1.0, 1.0)) ** 0.5
        for places, size in ((rows, 16), (columns, 20)):
            if len(places) and places.min() > 0 and places.max() < size - 1:
                assert len(set(places)) == 2 * int(size * root / 2)
                within += 1
    assert within > 50 and not zeros.any()


def test_both_mixtures_in_turn():
    zeros, ones = np.zeros((16, 16, 1), np.uint8), np.full((16, 16, 1), 200, np.uint8)
    by_window = [
        set(np.unique(mix(Images(mixup=1.0, cutmix=1.0), zeros, ones, np.random.default_rng(i))[0]))
        <= {0, 200}
        for i in range(200)
    ]
    assert 0.4 < np.mean(by_window) < 0.6


OPTIONS = {
    'train.task': 'images',
    'model.N': 1,
    'model.d_model': 8,
    'model.d_ff': 12,
    'model.h': 2,
    'model.positions': 'learned',
    'model.max_len': 10,
    'images.size': 6,
    'images.patch': 2,
    'images.pixels': 'grey',
    'images.classes': 3,
    'images.mixup': 1.0,
    'images.cutmix': 1.0,
    'images.crop': 1,
    'images.randaugment': 2,
    'data.source': 'idx',
    'data.name': None,
    'data.batch_tokens': 160,
}


@pytest.fixture(scope='module')
def config():
    return resolve(config_dict(OPTIONS))


@pytest.fixture(scope='module')
def dataset():
    """Returns 27 images: two batches of 16 rows, of which the second ends in 5 empty rows."""
    rng = np.random.default_rng(1)
    pixels, labels = rng.integers(1, 256, (27, 6, 6, 1)).astype(np.uint8), np.arange(27, dtype='<i4') % 3
    split = Split({'image': Dense(pixels), 'label': Dense(labels)})
    return Dataset(pathlib.Path(), {}, {'train': split, 'dev': split}, {})


@pytest.fixture(scope='module')
def rows(config, dataset):
    order = config.data, 8, config.train.seed, True
    return RowBatches(dataset.splits['train'], *order, positions=config.images.positions)


@pytest.fixture(scope='module')
def batches(config, dataset):
    return task_of(config).batches(config, dataset, 'train')


def test_images_of_dev_are_as_they_are(config, dataset):
    batch = task_of(config).batches(config, dataset, 'dev').batch(0)
    assert batch.keys() == {'image', 'label', 'weight'}
    np.testing.assert_array_equal(batch['image'], dataset.splits['dev'].fields['image'].values[:16])


def test_a_part_of_a_batch_has_the_rows_of_the_whole(batches):
    """As several processes build them."""
    for step in range(2):
        whole = batches.batch(step)
        for part in (slice(0, 4), slice(4, 16), slice(6, 7)):
            for name, values in batches.batch(step, part).items():
                np.testing.assert_array_equal(values, whole[name][part], err_msg=name)


def test_classes_and_shares_of_mixtures(batches, config, rows):
    plain = dataclasses.replace(config.images, mixup=0.0, cutmix=0.0)
    alone = augmented(rows, plain, config.train.seed)
    for step in range(2):
        batch, single = batches.batch(step), alone.batch(step)
        assert 'other' not in single
        np.testing.assert_array_equal(batch['label'], single['label'])
        np.testing.assert_array_equal(batch['other'], single['label'][::-1])
        mixed = (single['weight'] * single['weight'][::-1]) > 0
        np.testing.assert_array_equal(batch['image'][~mixed], single['image'][~mixed])
        assert (batch['share'][~mixed] == 1).all() and (batch['share'][mixed] < 1).mean() > 0.8
        # What mixtures hold is between the two images.
        pair = single['image'][mixed], single['image'][::-1][mixed]
        assert (batch['image'][mixed] >= np.minimum(*pair)).all()
        assert (batch['image'][mixed] <= np.maximum(*pair)).all()
    assert not np.array_equal(batches.batch(0)['share'], batches.batch(2)['share'])


def test_the_loss_of_mixtures_in_numpy(config, batches):
    params, batch = initial_state(config).params, batches.batch(1)
    logits = np.float64(programs.apply(config, params, {'image': batch['image']}))
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    rows, share = np.arange(16), np.float64(batch['share'])
    expected = -share * logp[rows, batch['label']] - (1 - share) * logp[rows, batch['other']]
    found = jax.jit(sums_of(config))(params, {name: jnp.asarray(x)[None] for name, x in batch.items()}, None)
    assert float(found['loss']) == pytest.approx((batch['weight'] * expected).sum(), rel=1e-5)
    assert float(found['weight']) == pytest.approx(batch['weight'].sum())
