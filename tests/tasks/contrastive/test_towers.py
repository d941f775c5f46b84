"""The two towers: vectors, first values, loss in numpy, gradients on any devices, the bounded scale."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import programs
import pytest

from tests import toys
from transformer import config as configs
from transformer.config import Config, ConfigError, config_dict, resolve
from transformer.nn import models
from transformer.nn.positions import sinusoid
from transformer.runs import warm_start
from transformer.tasks import sums_of
from transformer.tokens import EOS, Batch, Tokens
from transformer.training import losses, optim

OPTIONS = {
    'train.task': 'contrastive',
    'model.N': 1,
    'model.d_model': 16,
    'model.d_ff': 24,
    'model.h': 2,
    'image_model.d_model': 12,
    'image_model.d_ff': 20,
    'images.size': 6,
    'images.patch': 3,
    'contrastive.d_e': 10,
    'data.source': 'table',
    'data.name': None,
    'data.batching': 'padded',
    'data.pieces': 60,
    'data.max_len': 6,
    'data.row_len': 6,
    'data.batch_tokens': 6 * 32,
}
ROWS = 32


def config_of(**changes) -> Config:
    return resolve(config_dict(OPTIONS | {key.replace('__', '.'): value for key, value in changes.items()}))


def batch_of(seed: int, rows: int = ROWS, missing: tuple[int, ...] = ()) -> Batch:
    """Makes random pairs, of which some are missing, as at the end of a split."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 7, rows)
    weight = np.ones((rows, 1), np.float32)
    weight[list(missing)] = 0
    real = (np.arange(6) < lengths[:, None]) & (weight > 0)
    tokens = np.where(real, rng.integers(3, 60, (rows, 6)), 0)
    tokens[np.arange(rows), lengths - 1] = EOS * weight[:, 0]
    positions = np.where(real, np.arange(6), 0)
    text = Tokens(*(array.astype(np.int32) for array in (tokens, real, positions)))
    image = rng.integers(0, 256, (rows, 1, 6, 6, 3)).astype(np.uint8)
    return {'text': text, 'image': image, 'weight': weight}


@functools.cache
def params_of(config: Config) -> dict:
    return jax.device_get(programs.initialize(config, jax.random.key(0)))


def outputs_of(config: Config, params: dict, tower: str, batch: Batch) -> np.ndarray:
    """Computes the vectors of a tower's encoder, which its head reads."""
    method = lambda model, batch: getattr(model, tower).outputs(batch)
    run = jax.jit(lambda params, batch: models.build(config).apply({'params': params}, batch, method=method))
    return np.asarray(run(params, batch))


def test_every_tower_has_its_own_width_and_the_space_is_shared():
    params = params_of(config_of())
    assert params['image']['encoder']['layer_0']['feed_forward']['inner']['kernel'].shape == (12, 20)
    assert params['text']['encoder']['layer_0']['feed_forward']['inner']['kernel'].shape == (16, 24)
    assert params['image']['projection']['kernel'].shape == (12, 10)
    assert params['text']['projection']['kernel'].shape == (16, 10)
    assert math.exp(params['log_scale']) == pytest.approx(1 / 0.07, rel=1e-6)


def test_the_vector_of_a_text_is_read_at_its_end_and_that_of_an_image_at_its_class_token():
    config, batch = config_of(), batch_of(0, 4)
    params = params_of(config)
    texts = programs.apply(config, params, batch, 'texts')
    ends = outputs_of(config, params, 'text', batch)[np.arange(4), (batch['text'].tokens == EOS).argmax(1)]
    projected = np.float64(ends) @ params['text']['projection']['kernel']
    np.testing.assert_allclose(texts[:, 0], projected / np.linalg.norm(projected, axis=1)[:, None], atol=1e-5)
    images = programs.apply(config, params, batch, 'images')
    first = outputs_of(config, params, 'image', {'image': batch['image'][:, 0]})[:, 0]
    projected = np.float64(first) @ params['image']['projection']['kernel']
    np.testing.assert_allclose(
        images[:, 0], projected / np.linalg.norm(projected, axis=1)[:, None], atol=1e-5
    )


@pytest.mark.parametrize('causal', [True, False])
def test_a_causal_encoder_of_texts_sees_no_later_piece(causal):
    config, batch = config_of(contrastive__causal=causal), batch_of(0, 4)
    outputs = functools.partial(outputs_of, config, params_of(config), 'text')
    tokens = batch['text'].tokens.copy()
    tokens[:, 1] = np.where(batch['text'].segments[:, 1] > 0, 7, 0)
    before, after = outputs(batch), outputs(batch | {'text': batch['text']._replace(tokens=tokens)})
    assert np.allclose(before[:, 0], after[:, 0], atol=1e-6) == causal
    assert not np.allclose(before[:, 1], after[:, 1], atol=1e-3)


def test_texts_in_one_row_have_the_vectors_that_they_have_alone():
    config = config_of(data__batching='packed', data__row_len=8, data__batch_tokens=8 * 32)
    tokens = np.array([[5, 6, EOS, 9, EOS, 0], [5, 6, EOS, 0, 0, 0], [9, EOS, 0, 0, 0, 0]], np.int32)
    segments = np.array([[1, 1, 1, 2, 2, 0], [1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0]], np.int32)
    positions = np.array([[0, 1, 2, 0, 1, 0], [0, 1, 2, 0, 0, 0], [0, 1, 0, 0, 0, 0]], np.int32)
    batch = {'text': Tokens(tokens, segments, positions), 'weight': np.ones((3, 2), np.float32)}
    found = np.asarray(programs.apply(config, params_of(config), batch, 'texts'))
    np.testing.assert_allclose(found[0], [found[1, 0], found[2, 0]], atol=1e-5)
    # A row without a second text has zeros in its place.
    np.testing.assert_array_equal(found[1:, 1], 0)


def test_the_norm_before_the_encoder_of_images():
    config = config_of(image_model__norm_embedding=True, image_model__norm='pre')
    params = jax.tree.map(np.array, params_of(config))
    assert 'positions' not in params['text']
    for name in ('self_attention', 'feed_forward'):
        layer = params['image']['encoder']['layer_0']
        layer[name] = jax.tree.map(np.zeros_like, layer[name])
    layer = params['image']['positions']['norm']['layer']
    layer['scale'], layer['bias'] = np.full(12, 3.0, np.float32), np.arange(12, dtype=np.float32)
    params['image']['encoder']['final']['norm']['layer']['scale'] = np.full(12, 2.0, np.float32)
    batch = {'image': batch_of(0, 2)['image'][:, 0]}
    outputs = outputs_of(config, params, 'image', batch)
    # The layer adds zeros, so the final norm reads the first norm's output.
    patch = params['image']['patch']
    pixels = np.float64(batch['image'][0, 3:, :3]).reshape(-1) / 127.5 - 1
    place = pixels @ patch['kernel'] + patch['bias'] + sinusoid(5, 12, 'paper')[3]
    before = 3 * (place - place.mean()) / place.std() + np.arange(12)
    np.testing.assert_allclose(outputs[0, 3], 2 * (before - before.mean()) / before.std(), atol=1e-4)


def test_the_loss_in_numpy():
    """Computes the loss of 4 microbatches of 8, of which one has no pair and one a single pair."""
    config, batch = config_of(), batch_of(1, ROWS, missing=(3, *range(8, 16), *range(17, 24)))
    params = params_of(config)
    found = jax.jit(sums_of(config))(
        params, jax.tree.map(lambda x: jnp.asarray(x).reshape(4, 8, *x.shape[1:]), batch), None
    )
    images, texts = (
        np.float64(programs.apply(config, params, batch, name))[:, 0] for name in ('images', 'texts')
    )
    loss, right, guess = 0.0, 0.0, 0.0
    for start in range(0, ROWS, 8):
        rows = [i for i in range(start, start + 8) if batch['weight'][i, 0]]
        logits = images[rows] @ texts[rows].T / 0.07
        for one in (logits, logits.T):
            logp = one - np.log(np.exp(one).sum(-1, keepdims=True))
            loss -= np.trace(logp) / 2
            right += sum(logp.argmax(-1) == np.arange(len(rows))) / 2 if rows else 0
        guess += len(rows) * math.log(max(len(rows), 1))
    assert float(found['weight']) == 16
    assert float(found['loss']) == pytest.approx(loss, rel=1e-5)
    assert float(found['correct']) == right
    assert float(found['guess']) == pytest.approx(guess, rel=1e-5)
    assert float(found['scale']) == pytest.approx(16 / 0.07, rel=1e-5)
    assert losses.means({name: float(value) for name, value in found.items()})['guess'] == pytest.approx(
        guess / 16
    )


def test_another_pair_with_the_same_image_is_a_negative():
    vectors = jnp.eye(3)[jnp.array([0, 0, 1])][None]
    pairs = vectors, vectors, jnp.ones((1, 3))
    found = losses.pair_sums(*pairs, pairs, 0)
    same, other = math.log(2 * math.e + 1) - 1, math.log(math.e + 2) - 1
    assert float(found['loss']) == pytest.approx(2 * same + other, rel=1e-6)


def gradients_of(use_devices, devices: int, accumulate: int, **changes) -> tuple[dict, dict]:
    use_devices(devices)
    config = config_of(train__accumulate=accumulate, **changes)
    params = params_of(configs.replace(config, {'train.accumulate': 1}))
    return toys.gradients_of(config, params, batch_of(2, missing=(30, 31)), 3)


def same_gradients(found: tuple[dict, dict], expected: tuple[dict, dict]) -> None:
    """Compares sums and gradients within 1e-5 of each norm; for a key's bias, which gets 0, of all."""
    assert found[1] == pytest.approx(expected[1], rel=1e-5)
    whole = np.sqrt(sum(np.square(x).sum() for x in jax.tree.leaves(expected[0])))
    theirs = dict(jax.tree_util.tree_leaves_with_path(expected[0]))
    for path, ours in jax.tree_util.tree_leaves_with_path(found[0]):
        scale = whole if 'key' in str(path) and 'bias' in str(path) else np.linalg.norm(theirs[path])
        assert np.linalg.norm(ours - theirs[path]) <= 1e-5 * scale, path


def test_gradients_do_not_depend_on_devices_and_accumulation(use_devices):
    same_gradients(gradients_of(use_devices, 2, 2), gradients_of(use_devices, 1, 1))


def test_negatives_of_the_whole_batch_on_any_devices(use_devices):
    """They equal the gradients of one microbatch on one device, which gathers nothing."""
    # Without dropout, whose masks differ between microbatches.
    expected = gradients_of(use_devices, 1, 1, train__microbatches=1, model__P_drop=0.0)
    assert expected[1]['guess'] == pytest.approx(30 * math.log(30))
    for devices in (1, 8):
        found = gradients_of(use_devices, devices, 1, contrastive__negatives='batch', model__P_drop=0.0)
        same_gradients(found, expected)
    with pytest.raises(ConfigError, match='train.accumulate'):
        config_of(contrastive__negatives='batch', train__accumulate=2)
    assert configs.with_accumulation(config_of(data__batch_tokens=6 * 80_000), 'tpu', 1).train.accumulate > 1
    whole = config_of(contrastive__negatives='batch', data__batch_tokens=6 * 80_000)
    assert configs.with_accumulation(whole, 'tpu', 1).train.accumulate == 1


@pytest.mark.parametrize(('begin', 'slope', 'end'), [(4.6, -9.0, math.log(100)), (0.1, 9.0, 0.0)])
def test_an_update_leaves_the_scale_within_its_bounds(begin, slope, end):
    config = config_of(train__schedule='constant', train__peak_lr=0.5, train__warmup_steps=1)
    params = {'log_scale': jnp.float32(begin), 'head': {'bias': jnp.float32(begin)}}
    gradient = jax.tree.map(lambda x: jnp.full_like(x, slope), params)
    update = optim.optimizer(config)
    moved, _ = update.update(gradient, update.init(params), params)
    found = optax.apply_updates(params, moved)
    assert float(found['log_scale']) == pytest.approx(end, abs=1e-6)
    assert float(found['head']['bias']) == pytest.approx(begin - math.copysign(0.5, slope), abs=1e-5)


def test_first_values_of_the_published_code():
    """Standard deviations of OpenAI's code, which leaves those of the image encoder's layers to PyTorch."""
    changes = {
        'model.d_model': 128, 'model.d_ff': 512, 'model.h': 4, 'model.N': 2, 'model.init': 'clip',
        'image_model.N': 1,
        'model.positions': 'learned', 'model.max_len': 77, 'data.pieces': 300, 'images.begin': 'scaled',
        'image_model.d_model': 64, 'image_model.d_ff': 256, 'image_model.init': 'torch',
        'images.size': 32, 'images.patch': 2, 'contrastive.d_e': 100, 'images.patch_bias': False,
    }  # fmt: skip
    params = params_of(resolve(config_dict(OPTIONS | changes)))
    text, image = params['text'], params['image']
    uniform, glorot = lambda fan_in: (3 * fan_in) ** -0.5, lambda total: (2 / total) ** 0.5
    d, e = 128**-0.5, 64**-0.5
    expected = [
        (text['embedding']['table'], 0.02),
        (text['positions']['table'], 0.01),
        (text['encoder']['layer_0']['self_attention']['query']['kernel'], d),
        (text['encoder']['layer_1']['self_attention']['value']['kernel'], d),
        (text['encoder']['layer_1']['self_attention']['output']['kernel'], d * (2 * 2) ** -0.5),
        (text['encoder']['layer_0']['feed_forward']['inner']['kernel'], (2 * 128) ** -0.5),
        (text['encoder']['layer_0']['feed_forward']['outer']['kernel'], d * (2 * 2) ** -0.5),
        (text['projection']['kernel'], d),
        (image['positions']['table'], e),
        (image['projection']['kernel'], e),
        (image['patch']['kernel'], uniform(12)),
        (image['encoder']['layer_0']['self_attention']['key']['kernel'], glorot(64 + 3 * 64)),
        (image['encoder']['layer_0']['self_attention']['output']['kernel'], uniform(64)),
        (image['encoder']['layer_0']['feed_forward']['inner']['kernel'], uniform(64)),
        (image['encoder']['layer_0']['feed_forward']['outer']['kernel'], uniform(256)),
    ]
    for array, std in expected:
        assert array.std() == pytest.approx(std, rel=5 / math.sqrt(array.size)), (array.shape, std)
    assert 0.5 * e < image['class_token'].std() < 1.5 * e and 'bias' not in image['patch']


VIT = {'model.norm': 'pre', 'model.positions': 'learned', 'model.activation': 'gelu', 'model.d_model': 12}
IMAGES = {
    'train.task': 'images',
    'model.max_len': 5,
    'images.size': 6,
    'images.patch': 3,
    'images.classes': 3,
}
TOWER = {f'image_model.{key.partition(".")[2]}': value for key, value in VIT.items()}


@pytest.mark.parametrize(
    ('place', 'other', 'rest'),
    [
        ('image', VIT | IMAGES | {'model.d_ff': 20, 'data.batch_tokens': 40}, ('head',)),
        ('text', {'train.task': 'masked', 'data.batch_tokens': 192}, ('head', 'head_norm')),
    ],
)
def test_a_tower_takes_every_array_of_an_encoder(place, other, rest):
    """From runs of images and masked: all but the arrays of their heads."""
    data = {key: value for key, value in OPTIONS.items() if key.startswith('data.')}
    small = {
        'model.N': 1,
        'model.d_model': 16,
        'model.d_ff': 24,
        'model.h': 2,
        'data.source': 'folders',
        'data.name': None,
    }
    others = small | (other if place == 'image' else data | {'data.source': 'text', **other})
    shapes = models.parameter_shapes(resolve(config_dict(others)))
    own = models.parameter_shapes(resolve(config_dict(OPTIONS | TOWER)))
    taken, left = warm_start.compare_leaves(own, warm_start.placed(shapes, place))
    of_place = {name for name, why in left.items() if name.startswith(f'{place}/')}
    assert {name.split('/')[1] for name in of_place} == {*rest, 'projection'}
    assert len(taken) == len(jax.tree.leaves({k: v for k, v in shapes.items() if k not in rest}))


@pytest.mark.parametrize(
    ('option', 'value'),
    [
        ('image_model.h', 5), ('image_model.d_model', 13), ('images.mixup', 0.5), ('images.classes', 3),
        ('images.patch', 4), ('data.batching', 'running'), ('decode.beam', 2),
    ],
)  # fmt: skip
def test_impossible_options(option, value):
    with pytest.raises(ConfigError, match=option):
        resolve(config_dict(OPTIONS | {option: value}))
    assert resolve(config_dict(OPTIONS)).image_model.h == 2


def test_an_image_model_means_nothing_elsewhere():
    with pytest.raises(ConfigError, match='image_model.N'):
        resolve(config_dict({'image_model.N': 2}))
