"""The residual network for images, recomputed in numpy, and what it refuses."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import programs
import pytest

from transformer.config import ConfigError, config_dict, resolve
from transformer.nn import matmul, models
from transformer.runs.hashes import named_leaves
from transformer.training.step import initial_state

OPTIONS = {
    'train.task': 'images',
    'model.kind': 'convolutional',
    'model.N': 4,
    'model.d_model': 16,
    'model.positions': 'none',
    'images.size': 6,
    'images.patch': 2,
    'images.pool': 'mean',
    'images.classes': 3,
    'data.source': 'pictures',
    'data.name': None,
    'data.batch_tokens': 8 * 9,
}


@pytest.fixture(scope='module')
def config():
    return resolve(config_dict(OPTIONS))


@pytest.fixture(scope='module')
def params(config):
    """Fresh parameters, with norms and biases that have an effect."""
    draw = np.random.default_rng(0)
    change = lambda leaf: leaf + jnp.asarray(draw.normal(0, 0.3, leaf.shape), leaf.dtype)
    return jax.tree.map(change, initial_state(config).params)


IMAGES = np.random.default_rng(1).integers(0, 256, (5, 6, 6, 3)).astype(np.uint8)


def convolved(x: np.ndarray, kernel: np.ndarray, stride: int) -> np.ndarray:
    """A standardised convolution of one image, zeros outside, the odd pixel behind as TensorFlow pads."""
    kernel = (kernel - kernel.mean((0, 1, 2))) / np.sqrt(kernel.var((0, 1, 2)) + 1e-10)
    width, out = len(kernel), -(-len(x) // stride)
    missing = max((out - 1) * stride + width - len(x), 0)
    x = np.pad(x, ((missing // 2, missing - missing // 2),) * 2 + ((0, 0),))
    places = [stride * i for i in range(out)]
    return np.array([
        [np.tensordot(x[i : i + width, j : j + width], kernel, 3) for j in places] for i in places
    ])  # fmt: skip


def active(x: np.ndarray, norm: dict) -> np.ndarray:
    """The positive part of what a norm of groups of 8 channels makes of an image."""
    groups = x.reshape(*x.shape[:2], -1, 8)
    mean, variance = groups.mean((0, 1, 3), keepdims=True), groups.var((0, 1, 3), keepdims=True)
    normed = ((groups - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape)
    return np.maximum(normed * norm['scale'] + norm['bias'], 0)


def test_the_network_in_numpy(config, params):
    kernels = jax.tree.map(np.float64, params)
    logits = programs.apply(config, params, {'image': jnp.asarray(IMAGES)})
    for image, row in zip(IMAGES, logits, strict=True):
        x = convolved(image / 127.5 - 1, kernels['stem']['kernel'], 1)
        assert x.shape == (6, 6, 8)
        for stage in range(2):
            for i in range(2):
                block, stride = kernels[f'stage_{stage}_block_{i}'], 2 if stage and not i else 1
                inner = active(x, block['norms_0'])
                if stride == 2:
                    x = convolved(inner, block['shortcut']['kernel'], 2)
                else:
                    assert 'shortcut' not in block
                inner = active(convolved(inner, block['first']['kernel'], stride), block['norms_1'])
                x = x + convolved(inner, block['second']['kernel'], 1)
        assert x.shape == (3, 3, 16)
        vector = active(x, kernels['final']).mean((0, 1))
        expected = vector @ kernels['head']['kernel'] + kernels['head']['bias']
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-3)


def test_rows_do_not_depend_on_each_other(config, params):
    apply = lambda images: np.asarray(programs.apply(config, params, {'image': jnp.asarray(images)}))
    whole = apply(IMAGES)
    changed = IMAGES.copy()
    changed[1:] = 255 - changed[1:]
    np.testing.assert_allclose(apply(changed)[0], whole[0], rtol=1e-5)
    assert not np.allclose(apply(changed)[1], whole[1])
    np.testing.assert_allclose(apply(IMAGES[::-1])[::-1], whole, rtol=1e-4, atol=1e-4)


def test_a_vector_for_every_patch(config, params):
    outputs = programs.apply(config, params, {'image': jnp.asarray(IMAGES)}, 'outputs')
    assert outputs.shape == (5, config.images.positions, 16) == (5, 9, 16)


def test_dropout_in_training(config, params):
    dropping = resolve(config_dict(OPTIONS | {'model.P_drop': 0.5}))
    model, batch = models.build(dropping), {'image': jnp.asarray(IMAGES)}
    apply = jax.jit(
        lambda seed: model.apply(
            {'params': params}, batch, train=True, rngs={'dropout': jax.random.key(seed)}
        )
    )
    assert np.array_equal(apply(0), apply(0)) and not np.array_equal(apply(0), apply(1))
    still = programs.apply(dropping, params, batch)
    np.testing.assert_array_equal(still, programs.apply(config, params, batch))


def test_sizes_follow_the_stages():
    """Of the committed config: stages of 16, 32 and 64 channels, two blocks each."""
    shapes = named_leaves(
        models.parameter_shapes(
            resolve(
                config_dict(
                    OPTIONS
                    | {'model.N': 6, 'model.d_model': 64, 'images.size': 32, 'images.patch': 4}
                    | {'data.batch_tokens': 64 * 64, 'images.classes': 10}
                )
            )
        )
    )
    widths = {name: leaf.shape for name, leaf in shapes.items() if name.endswith('second/kernel')}
    assert list(widths.values()) == [(3, 3, 16, 16)] * 2 + [(3, 3, 32, 32)] * 2 + [(3, 3, 64, 64)] * 2
    kernels = 27 * 16 + 9 * (4 * 16**2 + 16 * 32 + 3 * 32**2 + 32 * 64 + 3 * 64**2)
    shortcuts, norms = 16 * 32 + 32 * 64, 2 * (4 * 16 + 16 + 3 * 32 + 32 + 3 * 64 + 64)
    assert sum(leaf.size for leaf in shapes.values()) == kernels + shortcuts + norms + 64 * 10 + 10


@pytest.mark.parametrize(
    ('option', 'value'),
    [
        ('images.pool', 'token'),
        ('model.positions', 'learned'),
        ('images.patch', 3),
        ('model.N', 3),
        ('model.d_model', 24),
        ('images.stem', 'convolutions'),
        ('images.sinusoids', True),
        ('model.h', 4),
    ],
)
def test_what_it_cannot_have(option, value):
    with pytest.raises(ConfigError, match=f'^{option}='):
        resolve(config_dict(OPTIONS | {option: value}))


@pytest.mark.parametrize(
    ('side', 'width', 'stride'), [(6, 3, 1), (6, 3, 2), (7, 3, 2), (8, 1, 2), (9, 5, 3), (5, 4, 3)]
)
def test_gradients_of_a_convolution(side, width, stride):
    """They are those that JAX derives."""
    draw = np.random.default_rng(side).normal
    derived = lambda x, kernel: jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC')
    )
    ours = lambda x, kernel: matmul.convolution(x, kernel, stride)

    def both(x, kernel):
        (expected, pull_expected), (y, pull) = (jax.vjp(f, x, kernel) for f in (derived, ours))
        return (expected, pull_expected(expected)), (y, pull(expected))

    with jax.enable_x64(True):
        x, kernel = jnp.array(draw(size=(2, side, side + 1, 3))), jnp.array(draw(size=(width, width, 3, 4)))
        (expected, rights), (y, gradients) = jax.jit(both)(x, kernel)
        np.testing.assert_array_equal(y, expected)
        for gradient, right in zip(gradients, rights, strict=True):
            np.testing.assert_allclose(gradient, right, rtol=1e-12, atol=1e-12)


def test_order_of_axes_in_a_loop():
    """XLA computes a convolution in a loop of a CPU quickly in this order alone."""
    loss = lambda kernel, x: jnp.sum(matmul.convolution(matmul.convolution(x, kernel, 2), kernel, 1) ** 2)
    both = lambda kernel, x: (kernel, jax.grad(loss, (0, 1))(kernel, x))
    scanned = jax.jit(lambda kernel, images: jax.lax.scan(both, kernel, images))
    program = scanned.lower(jnp.ones((3, 3, 8, 8)), jnp.ones((2, 4, 8, 8, 8))).compile().as_text()
    assert set(re.findall(r'dim_labels=(\S+?)[,\s]', program)) == {'b01f_01io->b01f'}
