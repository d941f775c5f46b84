"""Images: patches and the class token in numpy, sources, batches, the command, resuming."""

import gzip
import json
import pathlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import PIL.Image
import programs
import pytest
import toys
from etils import epath

import transformer
from transformer import config as configs
from transformer import tasks
from transformer.actions import compare
from transformer.actions import train as action
from transformer.cli import main as run
from transformer.config import ConfigError, config_dict, resolve
from transformer.data import text_input
from transformer.data.fields import Image
from transformer.data.generated import pictures
from transformer.data.sources import images
from transformer.inference.attention import attention_weights
from transformer.nn import encoders, models
from transformer.nn.positions import resize_grid
from transformer.runs import restore, warm_start
from transformer.runs.workdir import Run
from transformer.tasks import sums_of, task_of
from transformer.tasks.images import looks
from transformer.training.step import initial_state

ROOT = pathlib.Path(__file__).parents[3]
OPTIONS = {
    'train.task': 'images',
    'model.N': 1,
    'model.d_model': 8,
    'model.d_ff': 12,
    'model.h': 2,
    'model.norm': 'pre',
    'model.positions': 'learned',
    'model.max_len': 10,
    'images.size': 6,
    'images.patch': 2,
    'images.pixels': 'grey',
    'images.classes': 3,
    'data.source': 'idx',
    'data.name': None,
    'data.train': 'train',
    'data.dev': 't10k[:50%]',
    'data.test': 't10k[50%:]',
    'data.batch_tokens': 160,
    'train.steps': 4,
    'train.warmup_steps': 4,
    'train.checkpoint_every': 2,
    'train.eval_every': 4,
    'train.log_every': 1,
}
COLOUR = {'images.pixels': 'rgb', 'images.size': 8, 'images.patch': 4, 'model.max_len': 5}


def write_idx(folder: pathlib.Path, name: str, pixels: np.ndarray, labels: np.ndarray) -> None:
    """Writes MNIST's own format: zeros, the type, the number of axes, their sizes, the content."""
    for kind, values in (('images-idx3', pixels), ('labels-idx1', labels)):
        head = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, '>u4').tobytes()
        (folder / f'{name}-{kind}-ubyte.gz').write_bytes(
            gzip.compress(head + values.astype(np.uint8).tobytes())
        )


@pytest.fixture(scope='module')
def digits(tmp_path_factory) -> pathlib.Path:
    """Writes 50 and 21 images of three classes, as MNIST's files."""
    folder, rng = tmp_path_factory.mktemp('digits'), np.random.default_rng(0)
    for name, count in (('train', 50), ('t10k', 21)):
        labels = np.arange(count) % 3
        write_idx(folder, name, rng.integers(0, 80, (count, 6, 6)) + 80 * labels[:, None, None], labels)
    return folder


@pytest.fixture(scope='module')
def config(digits):
    return resolve(config_dict(OPTIONS | {'data.dir': str(digits)}))


@pytest.fixture(scope='module')
def trained(config, tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp('images') / 'run'
    action.run_training(config, epath.Path(folder), '')
    return folder


@pytest.fixture(scope='module')
def dataset(config, tmp_path_factory):
    return tasks.prepare(config, tmp_path_factory.mktemp('cache'))


def test_models_of_other_pictures_or_labels_are_not_compared(trained, config, digits, tmp_path):
    def compared(name: str, change) -> list[str]:
        folder = tmp_path / name
        shutil.copytree(digits, folder)
        with gzip.open(folder / 't10k-labels-idx1-ubyte.gz') as stream:
            labels = np.frombuffer(stream.read()[8:], np.uint8)
        pixels = np.random.default_rng(0).integers(0, 80, (21, 6, 6))
        write_idx(folder, 't10k', *change(pixels, labels))
        other = configs.replace(config, {'data.dir': str(folder)})
        action.run_training(other, epath.Path(tmp_path / f'{name}.run'), '')
        sides = tuple(compare.Side(Run.open(str(x)), 'scored') for x in (trained, tmp_path / f'{name}.run'))
        return compare.compare(sides, 'test')[1]

    with pytest.raises(ConfigError, match='test has another image'):
        compared('pictures', lambda pixels, labels: (pixels, labels))
    with gzip.open(digits / 't10k-images-idx3-ubyte.gz') as stream:
        same = np.frombuffer(stream.read()[16:], np.uint8).reshape(21, 6, 6)
    with pytest.raises(ConfigError, match='test has another label'):
        compared('labels', lambda _, labels: (same, labels[::-1]))
    assert compared('nothing', lambda _, labels: (same, labels))


def test_patches_are_squares_row_by_row():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2, 8, 8, 3)).astype(np.uint8)
    found = np.asarray(encoders.patches(jnp.asarray(images), 4))
    expected = [
        [image[i : i + 4, j : j + 4].reshape(-1) / 127.5 - 1 for i in (0, 4) for j in (0, 4)]
        for image in images
    ]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_class_token_stands_before_the_patches_and_is_read():
    """With no layers' effect, the logits are the head of the norm of the class token and its position."""
    config = resolve(config_dict(OPTIONS))
    params = initial_state(config).params
    for name in ('self_attention', 'feed_forward'):
        params['encoder']['layer_0'][name] = jax.tree.map(jnp.zeros_like, params['encoder']['layer_0'][name])
    images = jnp.asarray(np.random.default_rng(1).integers(0, 256, (4, 6, 6, 1)), jnp.uint8)
    logits = programs.apply(config, params, {'image': images})
    first = np.float64(params['class_token']) + np.float64(params['positions']['table'][0])
    norm = (first - first.mean()) / np.sqrt(first.var() + 1e-6)
    expected = norm @ np.float64(params['head']['kernel']) + params['head']['bias']
    np.testing.assert_allclose(logits, np.tile(expected, (4, 1)), atol=1e-5)
    outputs = programs.apply(config, params, {'image': images}, 'outputs')
    patch = np.float64(encoders.patches(images, 2)[2, 4]) @ np.float64(params['patch']['kernel'])
    place = patch + params['patch']['bias'] + params['positions']['table'][5]
    normed = (place - place.mean()) / np.sqrt(place.var() + 1e-6)
    np.testing.assert_allclose(outputs[2, 5], normed, atol=1e-5)


def test_the_mean_of_patches_without_a_class_token():
    config = resolve(config_dict(OPTIONS | {'images.pool': 'mean', 'model.max_len': 9}))
    params = initial_state(config).params
    assert 'class_token' not in params
    images = jnp.asarray(np.random.default_rng(1).integers(0, 256, (4, 6, 6, 1)), jnp.uint8)
    outputs = np.float64(programs.apply(config, params, {'image': images}, 'outputs'))
    assert outputs.shape == (4, 9, 8)
    expected = outputs.mean(axis=1) @ np.float64(params['head']['kernel']) + np.float64(
        params['head']['bias']
    )
    np.testing.assert_allclose(programs.apply(config, params, {'image': images}), expected, atol=1e-5)


@pytest.mark.parametrize('positions', ['none', 'learned'])
def test_sinusoids_of_rows_and_columns(positions):
    """They are added to the patches, not to the class token, beside the model's own positions."""
    options = OPTIONS | {'images.sinusoids': True, 'model.positions': positions}
    config, without = (resolve(config_dict(options | {'images.sinusoids': on})) for on in (True, False))
    params = initial_state(config).params
    assert ('positions' in params) == (positions == 'learned')
    pixels = jnp.asarray(np.random.default_rng(1).integers(0, 256, (1, 1, 6, 6, 1)), jnp.uint8)
    vectors = [
        np.float64(models.build(one).apply({'params': params}, pixels, method='embed')[0])
        for one in (config, without)
    ]
    difference = (vectors[0] - vectors[1])[0]
    np.testing.assert_array_equal(difference[0], 0)
    for place in range(9):
        y, x = divmod(place, 3)
        waves = [[np.sin(at), np.sin(at * 1e-4), np.cos(at), np.cos(at * 1e-4)] for at in (x, y)]
        np.testing.assert_allclose(difference[1 + place], np.concatenate(waves), atol=1e-5)


@pytest.mark.parametrize(('patch', 'side'), [(4, 2), (9, 1)])
def test_convolutional_stem(patch, side):
    """Two convolutions in numpy: windows of 2s - 1 pixels every s pixels, zeros outside of the image."""
    size, stride = patch * side, {4: 2, 9: 3}[patch]
    sizes = {'images.size': size, 'images.patch': patch, 'model.activation': 'relu', 'images.pool': 'mean'}
    config = resolve(config_dict(OPTIONS | sizes | {'images.stem': 'convolutions'}))
    params = initial_state(config).params
    assert 'patch' not in params
    params['stem'] = jax.tree.map(
        lambda leaf: jnp.asarray(np.random.default_rng(leaf.size).normal(size=leaf.shape), jnp.float32),
        params['stem'],
    )
    pixels = np.random.default_rng(3).integers(0, 256, (2, size, size, 1)).astype(np.uint8)

    def convolved(x, layer):
        # As TensorFlow pads: the odd pixel is behind.
        width, padded = 2 * stride - 1, stride - 1
        before = padded // 2
        x = np.pad(x, ((before, padded - before),) * 2 + ((0, 0),))
        places = range(0, len(x) - width + 1, stride)
        kernel, bias = np.float64(layer['kernel']), np.float64(layer['bias'])
        rows = [[np.tensordot(x[i : i + width, j : j + width], kernel, 3) for j in places] for i in places]
        return np.array(rows) + bias

    embedded = models.build(config).apply({'params': params}, jnp.asarray(pixels)[:, None], method='embed')[0]
    for picture, vectors in zip(pixels, embedded, strict=True):
        x = np.maximum(convolved(picture / 127.5 - 1, params['stem']['first']), 0)
        expected = convolved(x, params['stem']['second']).reshape(side**2, -1)
        np.testing.assert_allclose(vectors, expected, atol=1e-4)


@pytest.mark.parametrize(
    ('option', 'value', 'change'),
    [
        ('images.patch', 2, {'images.stem': 'convolutions'}),
        ('model.d_model', 6, {'images.sinusoids': True, 'model.h': 2}),
    ],
)
def test_sizes_that_stem_and_sinusoids_need(option, value, change):
    with pytest.raises(ConfigError, match=f'^{option}={value}'):
        resolve(config_dict(OPTIONS | {option: value} | change))
    towers = {'train.task': 'contrastive', 'data.source': 'scenes', 'data.language': 'de'}
    towers |= {'images.sinusoids': True, 'data.batch_tokens': 640}
    with pytest.raises(ConfigError, match='^image_model.d_model=6'):
        resolve(config_dict(towers | {'image_model.d_model': 6, 'image_model.h': 2}))


@pytest.mark.parametrize('place', ['', 'image'])
def test_warm_start_with_another_grid(place):
    """The positions of 3 x 3 patches become those of 4 x 4; the class token keeps its own."""
    old = resolve(config_dict(OPTIONS))
    new = resolve(config_dict(OPTIONS | {'images.size': 8, 'model.max_len': 19}))
    own, theirs = (jax.device_get(initial_state(one).params) for one in (new, old))
    own, theirs = ({place: tree} if place else tree for tree in (own, theirs))
    of = lambda tree: (tree[place] if place else tree)['positions']['table']
    fitted = warm_start.fit_positions(new, old, theirs, place, own)
    np.testing.assert_array_equal(of(fitted)[0], of(theirs)[0])
    np.testing.assert_array_equal(of(fitted)[1:17], resize_grid(of(theirs)[1:], 4))
    np.testing.assert_array_equal(of(fitted)[17:], 0)
    assert of(fitted)[1].tolist() == of(theirs)[1].tolist()  # the corners stay
    shapes = jax.eval_shape(lambda: theirs)
    assert of(warm_start.fit_positions(new, old, shapes, place, own)).shape == (19, 8)
    taken, left = warm_start.compare_leaves(own, fitted)
    assert not left and len(taken) == len(jax.tree.leaves(own))
    # Without a class token, only the patches' positions are there.
    mean = resolve(config_dict(OPTIONS | {'images.pool': 'mean', 'model.max_len': 10}))
    rows = of(warm_start.fit_positions(mean, old, theirs, place, own | theirs))
    np.testing.assert_array_equal(rows, np.concatenate([of(theirs)[1:], np.zeros((1, 8))]))
    # The same grid stays as it is, and so do the positions of texts.
    assert warm_start.fit_positions(old, old, theirs, place, own) is theirs


def test_training_that_starts_with_another_grid(trained, digits, tmp_path):
    options = OPTIONS | {'data.dir': str(digits), 'images.patch': 3, 'model.max_len': 5, 'train.steps': 1}
    toys.trained(resolve(config_dict(options)), tmp_path / 'run', (str(trained),), evaluate=False)
    start = Run.open(epath.Path(tmp_path / 'run')).start()
    assert start['resized'] == ['positions/table'] and 'positions/table' in start['taken']
    assert list(start['left']) == ['patch/kernel']
    assert any('positions/table' in line for line in warm_start.describe(start))


@pytest.mark.parametrize('begin', ['random', 'zeros'])
def test_first_values(begin):
    """Of the published code: zeros, so that all classes are equally likely at first."""
    params = initial_state(resolve(config_dict(OPTIONS | {'images.begin': begin}))).params
    for array in (params['class_token'], params['head']['kernel']):
        assert np.any(array) == (begin == 'random')


def test_equivariant_to_the_order_of_the_batch(config):
    params = initial_state(config).params
    images = jnp.asarray(np.random.default_rng(2).integers(0, 256, (4, 6, 6, 1)), jnp.uint8)
    apply = lambda images: programs.apply(config, params, {'image': images})
    np.testing.assert_allclose(apply(images[::-1])[::-1], apply(images), atol=1e-5)


def test_every_image_is_in_every_epoch_once(config, dataset):
    batches = task_of(config).batches(config, dataset, 'train')
    values = dataset.splits['train'].fields
    seen = []
    for step in range(batches.steps_per_epoch, 2 * batches.steps_per_epoch):
        batch = batches.batch(step)
        real = batch['weight'] > 0
        assert len(real) == batches.rows(step) == 16
        seen += [image.tobytes() for image in batch['image'][real]]
        part = batches.batch(step, slice(4, 8))
        np.testing.assert_array_equal(part['image'], batch['image'][4:8])
    assert sorted(seen) == sorted(image.tobytes() for image in values['image'].values)
    order = [batches.batch(step)['label'].tolist() for step in (0, batches.steps_per_epoch)]
    assert order[0] != order[1]
    dev = task_of(config).batches(config, dataset, 'dev')
    labels = np.concatenate([dev.batch(step)['label'] for step in range(dev.steps_per_epoch)])
    np.testing.assert_array_equal(labels[:10], values_of(dataset, 'dev')[:10])


def values_of(dataset, split: str) -> np.ndarray:
    return dataset.splits[split].fields['label'].values


def test_the_loss_in_numpy(config):
    params = initial_state(config).params
    rng = np.random.default_rng(3)
    images, labels = rng.integers(0, 256, (4, 6, 6, 1)).astype(np.uint8), np.array([0, 2, 1, 1], np.int32)
    weight = np.array([1, 1, 0, 1], np.float32)
    logits = np.float64(programs.apply(config, params, {'image': images}))
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    batch = {'image': images, 'label': labels, 'weight': weight}
    found = jax.jit(sums_of(config))(params, {name: jnp.asarray(x)[None] for name, x in batch.items()}, None)
    assert float(found['loss']) == pytest.approx(-(weight * logp[np.arange(4), labels]).sum(), rel=1e-5)
    assert float(found['correct']) == (weight * (logp.argmax(-1) == labels)).sum()
    assert float(found['weight']) == 3


def test_sums_add_up_over_microbatches(config, dataset):
    batch = task_of(config).batches(config, dataset, 'train').batch(1)
    together, alone = toys.sums_of_microbatches(config, batch)
    assert together == pytest.approx(alone, rel=1e-5)


def test_a_killed_training_ends_as_one_that_was_not(trained, dataset, tmp_path):
    result = toys.resumed(trained, tmp_path / 'run', 2)
    whole = json.loads((trained / 'result.json').read_text())
    assert result['params_sha256'] == whole['params_sha256'] and result['scores'] == whole['scores']
    lines = (trained / 'translations' / 'test.latest.txt').read_text().splitlines()
    assert len(lines) == 11 and set(lines) <= {'0', '1', '2'}
    pairs, scores = [*zip(values_of(dataset, 'test').tolist(), map(int, lines), strict=True)], whole['scores']
    expected = [[pairs.count((gold, found)) for found in range(3)] for gold in range(3)]
    assert scores['test']['confusion'] == expected
    assert scores['test']['accuracy'] == pytest.approx(np.trace(expected) / 11)
    model = transformer.load(trained).trained
    shown = [line.split() for line in task_of(model.config).show(model, dataset).lines]
    assert shown[2:] == [[str(gold), *map(str, row)] for gold, row in enumerate(expected)]


def test_classify(trained, tmp_path, capfd):
    rng = np.random.default_rng(4)
    for name in ('a.png', 'b.png'):
        PIL.Image.fromarray(rng.integers(0, 256, (12, 9, 3)).astype(np.uint8)).save(tmp_path / name)
    files = [str(tmp_path / name) for name in ('a.png', 'b.png')]
    assert run.main(['run.py', 'classify', f'--workdir={trained}', '--nbest=3', '--scores', *files]) == 0
    rows = [line.split('\t') for line in capfd.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == [files[0]] * 3 + [files[1]] * 3
    assert {row[1] for row in rows[:3]} == {'0', '1', '2'}
    assert sum(float(row[2]) for row in rows[:3]) == pytest.approx(1, abs=2e-4)
    found = transformer.load(trained).classify(files)
    assert [answers[0].text for answers in found] == [rows[0][1], rows[3][1]]
    (tmp_path / 'c.png').write_bytes(b'no image')
    assert run.main(['run.py', 'classify', f'--workdir={trained}', str(tmp_path / 'c.png')]) == 2
    assert str(tmp_path / 'c.png') in capfd.readouterr().err


def test_rollout_of_attention():
    """Each layer passes on half of every vector, and mixes the other half (Abnar and Zuidema 2020)."""
    weights = np.random.default_rng(0).dirichlet(np.ones(5), (2, 3, 5))
    first, second = weights.mean(axis=1)
    expected = (second @ first + second + first + np.eye(5)) / 4
    np.testing.assert_allclose(looks.rollout(weights), expected, atol=1e-12)


@pytest.mark.parametrize('pool', ['token', 'mean'])
def test_where_the_model_looks(config, dataset, pool):
    config = resolve(config_dict(OPTIONS | {'data.dir': config.data.dir, 'images.pool': pool, 'model.N': 2}))
    params, image = (
        programs.initialize(config, jax.random.key(0)),
        dataset.splits['test'].fields['image'].values[0],
    )
    look = looks.look(restore.Trained(config, params, dataset.codecs), image, '1')
    batch = {'image': image[None]}
    weights = attention_weights(config, params, batch)['encoder/self_attention']
    assert weights.shape == (2, 2, 9 + (pool == 'token'), 9 + (pool == 'token'))
    reached = looks.rollout(weights)
    expected = reached[0, 1:] if pool == 'token' else reached.mean(axis=0)
    np.testing.assert_allclose(look.weights, expected.reshape(1, 3, 3), atol=1e-6)
    assert look.words == ['1'] and len(looks.draw([look]).axes) == 2


def test_sixteen_bits_of_grey_become_eight(tmp_path):
    grey = np.arange(0, 65536, 1024, dtype=np.uint16).reshape(8, 8)
    PIL.Image.fromarray(grey).save(tmp_path / 'deep.png')
    found = images.read(epath.Path(tmp_path / 'deep.png'), Image(8, 8, 1))
    np.testing.assert_array_equal(found[..., 0], np.rint(grey / 257))


def test_a_config_of_an_earlier_version_has_earlier_defaults_where_they_mean_nothing():
    result = json.loads((ROOT / 'experiments' / 'results' / 'vit_pictures' / 'result.json').read_text())
    assert result['config']['model']['vocab_size'] == 40960 and result['config']['data']['pieces'] == 37000
    config = configs.from_json(json.dumps(result['config']))
    assert (config.model.vocab_size, config.data.pieces, config.images.classes) == (None, None, 24)


def test_folders_are_classes(tmp_path):
    rng = np.random.default_rng(5)
    for split, count in (('train', 20), ('dev', 4), ('test', 4)):
        for name in ('cat', 'dog'):
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 256, (10, 10, 3)).astype(np.uint8)
                PIL.Image.fromarray(pixels).save(tmp_path / split / name / f'{i}.{"png" if i % 2 else "jpg"}')
    changes = {'data.source': 'folders', 'data.dir': str(tmp_path), 'data.dev': 'dev', 'data.test': 'test'}
    config = resolve(config_dict(OPTIONS | COLOUR | changes | {'images.classes': 2}))
    dataset = tasks.prepare(config, tmp_path / 'cache')
    assert dataset.codecs['label'].names == ('cat', 'dog')
    assert dataset.splits['train'].fields['image'].values.shape == (40, 8, 8, 3)
    assert sorted(values_of(dataset, 'dev').tolist()) == [0] * 4 + [1] * 4
    absolute = resolve(config_dict(OPTIONS | COLOUR | changes | {'data.dev': str(tmp_path / 'dev')}))
    with pytest.raises(ConfigError, match='data.dev: .*/dev must be relative'):
        tasks.prepare(absolute, tmp_path / 'cache')
    with pytest.raises(ConfigError, match=r'images\.classes=3'):
        three = resolve(config_dict(OPTIONS | COLOUR | changes))
        action.run_training(three, epath.Path(tmp_path / 'run'), '')


@pytest.fixture
def animals(tmp_path) -> pathlib.Path:
    """Cats and dogs in all formats, beside what programs and people leave in folders."""
    for split in ('train', 'dev'):
        for name, grey in (('cat', 10), ('dog', 200)):
            (tmp_path / split / name).mkdir(parents=True)
            for suffix in ('png', 'jpg', 'gif', 'webp', 'bmp'):
                picture = PIL.Image.new('RGB', (8, 8), (grey,) * 3)
                later = {'save_all': True, 'append_images': [PIL.Image.new('RGB', (8, 8))]}
                picture.save(tmp_path / split / name / f'a.{suffix}', **(later if suffix == 'gif' else {}))
    (tmp_path / 'train' / 'cat' / '._a.png').write_bytes(b'Mac OS X')
    (tmp_path / 'train' / 'cat' / 'notes.txt').write_text('cats')
    (tmp_path / 'train' / 'loose.png').write_bytes((tmp_path / 'train' / 'cat' / 'a.png').read_bytes())
    for folder in ('__MACOSX', '.ipynb_checkpoints'):
        (tmp_path / 'train' / folder).mkdir()
        (tmp_path / 'train' / folder / 'a.png').write_bytes(b'')
    return tmp_path


def animals_config(folder: pathlib.Path, **changes):
    changes = {
        'data.source': 'folders',
        'data.dir': str(folder),
        'data.dev': 'dev',
        'data.test': 'dev',
    } | changes
    return resolve(config_dict(OPTIONS | COLOUR | {'images.classes': None} | changes))


def test_hidden_and_foreign_files_are_no_images(animals, tmp_path, caplog):
    dataset = tasks.prepare(animals_config(animals), tmp_path / 'cache')
    assert dataset.codecs['label'].names == ('cat', 'dog')
    values, labels = dataset.splits['train'].fields['image'].values, values_of(dataset, 'train')
    assert labels.tolist() == [0, 1] * 5
    # The first image of a GIF is not black.
    np.testing.assert_allclose(values.mean((1, 2, 3)), np.where(labels, 200, 10), atol=2)
    (message,) = caplog.messages
    assert 'data.train: left out 5 ' in message
    # So does an evaluation of other content.
    caplog.clear()
    config = animals_config(animals)
    text_input.of_source(config.data, task_of(config).reading(config), dataset.codecs, 'train')
    assert caplog.messages == [message]


def test_classes_are_named_and_none_is_empty_in_training(animals, tmp_path):
    (animals / 'dev' / 'bird').mkdir()
    config = animals_config(animals, **{'images.classes': 3})
    assert tasks.prepare(config, tmp_path / 'cache').codecs['label'].size == 2
    with pytest.raises(ConfigError, match=r'images\.classes=3: .* 2 classes: cat, dog'):
        configs.with_classes(config, ('cat', 'dog'))
    (animals / 'train' / 'bird').mkdir()
    with pytest.raises(ConfigError, match=r'data\.train: train/bird is empty'):
        tasks.prepare(config, tmp_path / 'cache')


def test_errors_about_folders_name_the_file_or_the_slice(animals, tmp_path):
    (animals / 'dev' / 'bird').mkdir()
    (animals / 'dev' / 'cat' / 'a.png').rename(animals / 'dev' / 'bird' / 'a.png')
    with pytest.raises(ConfigError, match=r"^dev/bird/a\.png: 'bird' is not among"):
        tasks.prepare(animals_config(animals), tmp_path / 'cache')
    sliced = animals_config(animals, **{'data.dev': 'train[:1%]'})
    with pytest.raises(ConfigError, match=r'data\.dev: no PNG.*/train/<class>/\[:1%\]'):
        tasks.prepare(sliced, tmp_path / 'cache')


def test_generated_pictures_are_what_their_facts_say():
    """The largest object's colour is in the picture, where the facts say that it is."""
    objects = pictures.draw_objects('dev', 0)
    drawn, facts = pictures.draw(objects), pictures.facts_of(objects)
    for number in (0, 7, 123):
        first, *others = facts[number]
        assert 1 <= len(others) <= 4 and all(first.radius > other.radius for other in others)
        row, column = int(objects.y[number, 0]), int(objects.x[number, 0])
        np.testing.assert_array_equal(drawn[number, row, column], pictures.COLOURS[first.colour])
        cell = pictures.SIZE / pictures.CELLS
        assert (row // cell, column // cell) == (first.row, first.column)


def test_twelve_pictures_of_a_class_are_diagnosed_with_and_without_scores(tmp_path, monkeypatch, capfd):
    options = OPTIONS | COLOUR | {'data.source': 'pictures', 'images.classes': 24, 'images.size': 32}
    options |= {'images.patch': 16, 'data.train': 'train[:288]', 'data.dev': 'dev[:100]'}
    few = resolve(config_dict(options | {'data.test': 'test[:100]'}))
    folder = epath.Path(tmp_path / 'run')

    def diagnosis() -> str:
        capfd.readouterr()
        assert run.main(['run.py', 'diagnose', f'--workdir={folder}']) == 0
        return capfd.readouterr().out

    result = action.run_training(few, folder, '', evaluate=False).result
    assert (result['evaluated'], result['scores'], result['steps']) == (False, {}, 4)
    assert '288 training examples' in (without := diagnosis())
    assert '12 training examples in a class' not in without and 'run.py evaluate' in without
    # The evaluation of this training is killed between two splits.
    score = action.score_split

    def killed(trained, origin, dataset, split):
        if split == 'test':
            raise SystemError
        return score(trained, origin, dataset, split)

    with monkeypatch.context() as patch, pytest.raises(SystemError):
        patch.setattr(action, 'score_split', killed)
        action.run_training(few, folder, '')
    for _ in range(2):
        result = json.loads((folder / 'result.json').read_text())
        assert (result['evaluated'], [*result['scores']]) == (False, ['dev'])
        action.run_training(few, folder, '', evaluate=False)
    result = action.run_training(few, folder, '').result
    assert (result['evaluated'], [*result['scores']], result['steps']) == (True, ['dev', 'test'], 4)
    assert '12 training examples in a class' in diagnosis()
    assert action.run_training(few, folder, '', evaluate=False).result['evaluated']


@pytest.mark.parametrize(
    ('option', 'value'),
    [('images.patch', 4), ('model.vocab_size', 100), ('data.batching', 'packed'), ('decode.beam', 2)],
)
def test_impossible_options(option, value):
    with pytest.raises(ConfigError, match=option):
        resolve(config_dict(OPTIONS | {option: value}))
