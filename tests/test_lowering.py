"""A layer of each of the paper's base model's stacks lowers for TPU and GPU, without such a device."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax import export

from transformer import parallel
from transformer.config import config_dict, resolve
from transformer.inference import generate
from transformer.nn import models
from transformer.tasks import sums_of
from transformer.tokens import Tokens
from transformer.training.step import initial_state, train_step

DEVICES = 8
DECODER = {'train.task': 'language', 'data.source': 'text'}
VARIANTS = [{'model.dtype': 'bfloat16'}, DECODER]


@pytest.fixture(params=VARIANTS, ids=lambda variant: '-'.join(variant.values()))
def config(request):
    # Of six equal layers one is enough.
    return resolve(config_dict({'model.N': 1, **request.param}))


def platforms_of(mapped, *arguments) -> tuple[str, ...]:
    """Returns the platforms for which a mapped function is lowered."""
    # One by one: exports for both together would compile a TPU's kernel for GPUs, too.
    both = [export.export(jax.jit(mapped), platforms=[name])(*arguments) for name in ('tpu', 'cuda')]
    assert {exported.nr_devices for exported in both} == {DEVICES}
    return sum((exported.platforms for exported in both), ())


def test_training_step_of_base(config):
    update = parallel.map_update(functools.partial(train_step, config, sums_of(config)))
    state = jax.eval_shape(functools.partial(initial_state, config))
    rows = jax.ShapeDtypeStruct((DEVICES, 1, 24, 128), jnp.int32)
    batch = dict.fromkeys(models.build(config).FIELDS, Tokens(rows, rows, rows))
    assert platforms_of(update.mapped, state, batch) == ('tpu', 'cuda')


def test_decoding_step_of_base(config):
    asked = generate.SearchOptions(config.decode, 1, extend=config.train.task == 'language')
    search = functools.partial(generate.search_rows, config, asked, config.data.pieces)
    mapped = jax.pmap(search, in_axes=(None, None, 0))
    tokens = jax.ShapeDtypeStruct((DEVICES, 8, 32), jnp.int32)
    rows = (Tokens(tokens, tokens, tokens), jax.ShapeDtypeStruct((DEVICES, 8), jnp.int32))
    key = jax.eval_shape(lambda: jax.random.key(0))
    assert platforms_of(mapped, models.parameter_shapes(config), key, rows) == ('tpu', 'cuda')
