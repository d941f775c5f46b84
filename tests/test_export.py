"""The paper's base model lowers for TPU and GPU, where no such device is."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax import export

from transformer import parallel, train
from transformer.config import config_dict, resolve
from transformer.nn import models
from transformer.tasks.translation import translate

DEVICES = 8
NAMES = [f'{side}{part}' for side in ('source', 'target') for part in ('', '_segments', '_positions')]


@pytest.fixture(params=['float32', 'bfloat16'])
def config(request):
    return resolve(config_dict({'model.dtype': request.param}))


def platforms_of(mapped, *arguments) -> tuple[str, ...]:
    """The platforms that a mapped function was lowered for."""
    exported = export.export(jax.jit(mapped), platforms=['tpu', 'cuda'])(*arguments)
    assert exported.nr_devices == DEVICES
    return exported.platforms


def test_training_step_of_base(config):
    update = parallel.map_update(functools.partial(train.train_step, config))
    state = jax.eval_shape(functools.partial(train.initial_state, config))
    rows = jax.ShapeDtypeStruct((DEVICES, 1, 24, 128), jnp.int32)
    assert platforms_of(update, state, dict.fromkeys(NAMES, rows)) == ('tpu', 'cuda')


def test_decoding_step_of_base(config):
    search = functools.partial(translate.search_rows, config, config.decode, 1, config.data.pieces)
    mapped = jax.pmap(search, in_axes=(None, None, 0))
    rows = {
        'tokens': jax.ShapeDtypeStruct((DEVICES, 4, 32), jnp.int32),
        'segments': jax.ShapeDtypeStruct((DEVICES, 4, 32), jnp.int32),
        'index': jax.ShapeDtypeStruct((DEVICES, 4), jnp.int32),
    }
    key = jax.eval_shape(lambda: jax.random.key(0))
    assert platforms_of(mapped, models.parameter_shapes(config), key, rows) == ('tpu', 'cuda')
