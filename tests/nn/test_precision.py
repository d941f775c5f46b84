"""Gradients of bfloat16 models that add up over 4,096 tokens, against those of the same model in float32."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from transformer.config import Model, config_dict, resolve
from transformer.config.tasks import Images
from transformer.nn import encoders, layers, positions, recurrent, stacks
from transformer.tokens import Tokens

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
