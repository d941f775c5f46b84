"""bfloat16 models compute in float32: sums of gradients, over 4,096 tokens, and outputs of heads."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from transformer.config import Model, config_dict, resolve
from transformer.config.tasks import Images
from transformer.nn import cells, encoders, heads, layers, positions, recurrent, stacks
from transformer.tokens import Tokens
from transformer.training import losses

SMALL = {'model.d_model': 8, 'model.N': 1, 'model.vocab_size': 60, 'data.pieces': 60}
RNG = np.random.default_rng(0)
# Positive, so that no sum cancels: many rows, a few long rows, and queries.
ROWS, LONG, QUERIES = (RNG.uniform(0.2, 1, shape) for shape in ((64, 64, 8), (8, 512, 8), (64, 64, 8, 1)))


def text_of(x: Array) -> Tokens:
    """Makes rows of one segment, whose tokens are all one piece at one position."""
    zeros = jnp.zeros(x.shape[:2], jnp.int32)
    return Tokens(zeros + 7, zeros + 1, zeros)


def attend(m: Model, x: Array) -> Array:
    encoder, decoder = recurrent.make_pair(m)
    memory = encoder(x[:, :4], text_of(x[:, :4]), train=False)
    return decoder(x, text_of(x), memory, train=False)


def read_images(m: Model, x: Array) -> Array:
    """As many images of one pixel, whose vectors are those that enter the encoder."""
    unchanged = lambda x, text, train: stacks.Memory(x, text.segments)
    head = lambda _: layers.linear(m, 1)
    encoder = encoders.ImageEncoder(m, Images(size=1, patch=1, pixels='grey'), lambda m: unchanged, head)
    return encoder.outputs({'image': jnp.full((x.size // 8, 1, 1, 1), 200, jnp.uint8)})


RECURRENT = {'model.kind': 'recurrent', 'model.cell': 'lstm'}
FEEDING = RECURRENT | {'model.N_decoder': 2, 'model.input_feeding': True}
encode = lambda m, x: recurrent.make_encoder(m)(x, text_of(x), train=False).outputs
# Parts of models: options, inputs and outputs.
PARTS: dict[str, tuple[dict, np.ndarray, Callable[[Model, Array], Array]]] = {
    'embedding': ({}, ROWS, lambda m, x: layers.Embedding(m)(text_of(x).tokens)),
    'softmax': ({'model.softmax_bias': True}, ROWS, lambda m, x: layers.Softmax(m, layers.Embedding(m))(x)),
    'positions': (
        {'train.task': 'masked', 'data.source': 'text', 'model.positions': 'learned', 'model.token_types': 2},
        ROWS,
        lambda m, x: positions.InputPositions(m)(x, text_of(x).positions, 1),
    ),
    'relative positions': (
        {'model.positions': 'relative'},
        QUERIES,
        lambda m, x: positions.AttentionPositions(m).bias(x, *[text_of(x).positions] * 2),
    ),
    'class token': ({}, ROWS, read_images),
    'linear': ({}, ROWS, lambda m, x: layers.linear(m, 8)(x)),
    'layernorm': ({'model.norm_type': 'layernorm'}, ROWS, lambda m, x: x * layers.Norm(m)(x)),
    'rmsnorm': ({'model.norm_type': 'rmsnorm'}, ROWS, lambda m, x: x * layers.Norm(m)(x)),
    'lstm': (RECURRENT, LONG, encode),
    'gru': (RECURRENT | {'model.cell': 'gru'}, LONG, encode),
    'elman': (RECURRENT | {'model.cell': 'rnn_tanh'}, LONG, encode),
    'additive': (RECURRENT | {'model.alignment': 'additive'}, LONG, attend),
    'general': (FEEDING | {'model.alignment': 'general'}, LONG, attend),
    'concat': (FEEDING | {'model.alignment': 'concat'}, LONG, attend),
}


class Part(nn.Module):
    """A part of a model as a model."""

    model: Model
    part: str

    @nn.compact
    def __call__(self, x):
        return PARTS[self.part][2](self.model, x)


def gradient(part: str, dtype: str) -> list[np.ndarray]:
    """Computes the gradient of a weighted sum of the outputs, with respect to each parameter."""
    options, inputs, _ = PARTS[part]
    config = resolve(config_dict(SMALL | options | {'model.dtype': dtype}))
    module, x = Part(config.model, part), jnp.asarray(inputs, dtype)
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), x))['params']

    def total(params):
        outputs = module.apply({'params': params}, x).astype(jnp.float32)
        return jnp.sum(outputs * np.random.default_rng(1).uniform(size=outputs.shape).astype(np.float32))

    rng = np.random.default_rng(2)
    params = jax.tree.map(lambda leaf: rng.uniform(0.0, 0.3, leaf.shape).astype(np.float32), shapes)
    return list(map(np.asarray, jax.tree.leaves(jax.jit(jax.grad(total))(params))))


@pytest.mark.parametrize('part', PARTS)
def test_gradients_add_up_in_float32(part):
    for found, expected in zip(gradient(part, 'bfloat16'), gradient(part, 'float32'), strict=True):
        assert np.linalg.norm(found - expected) <= 0.05 * np.linalg.norm(expected)


@pytest.mark.parametrize('name', ['classes', 'tags', 'image'])
def test_outputs_of_heads_are_not_rounded(name):
    """Near 1,000, a bfloat16 number is a multiple of 4."""
    x, outputs = jnp.asarray(ROWS[:8], jnp.bfloat16), []
    batch = {'text': text_of(x), 'label': jnp.zeros((8, 1), jnp.int32)}
    for dtype in ('bfloat16', 'float32'):
        m = resolve(config_dict(SMALL | {'model.dtype': dtype})).model
        head = {
            'classes': heads.Classes(m, 5, 'mean'),
            'tags': heads.PositionLabels(m, 5),
            'image': heads.ImageClasses(m, 5, Images()),
        }[name]
        params = head.init(jax.random.key(0), x, batch)['params']
        params['head']['bias'] = jnp.full(5, 1000.0)
        outputs.append(np.asarray(head.apply({'params': params}, x, batch)))
    assert outputs[0].dtype == np.float32 and len(np.unique(outputs[1])) > 30
    np.testing.assert_allclose(*outputs, rtol=1e-6)


@pytest.mark.parametrize('rate', [0.05, 0.1, 0.3, 0.4])
def test_dropout_keeps_the_mean_of_its_inputs(rate):
    x = np.random.default_rng(0).uniform(1, 2, (512, 512)).astype(jnp.bfloat16)
    y = np.asarray(layers._dropped(rate, jax.random.key(1), jnp.asarray(x)), np.float64)
    of_kept = y[y > 0] / x[y > 0].astype(np.float64) * (1 - rate)
    assert abs(of_kept.mean() - 1) < 2e-4
    factors = cells.SegmentDropout(rate, shared=False).apply(
        {},
        jnp.asarray(x[None]),
        jnp.ones((1, 512), jnp.int32),
        train=True,
        rngs={'dropout': jax.random.key(2)},
    )
    assert np.unique(factors).tolist() == [0, np.float32(1) / np.float32(1 - rate)]


def test_gradients_of_confident_predictions_are_not_their_rounding():
    """As on a TPU, which keeps exponentials in bfloat16: there 0.9995 is 1, and 1 - p is 0."""
    rng = np.random.default_rng(0)
    table = jnp.asarray(rng.normal(size=(200, 16)), jnp.bfloat16)
    target = rng.integers(200, size=256)
    x = jnp.asarray(np.asarray(table, np.float64)[target] * rng.uniform(0.3, 1.2, (256, 1)), jnp.bfloat16)
    # Without the program's fusions, in which XLA for CPUs leaves numbers unrounded.
    with jax.disable_jit():
        shift = losses.shifts(64, x, table)
        _, (found, _) = losses.sums_and_gradients(0.0, 64, shift, x, table, target, jnp.ones(256))
    exact = [np.asarray(one, np.float64) for one in (x, table)]
    logits = exact[0] @ exact[1].T
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    of_target = p[np.arange(256), target]
    confident = (of_target > 0.999) & (of_target < 0.99999)
    expected = (p - np.eye(200)[target]) @ exact[1]
    error = np.linalg.norm(np.asarray(found, np.float64) - expected, axis=1) / np.linalg.norm(
        expected, axis=1
    )
    assert confident.sum() > 20 and error[confident].max() < 0.02
