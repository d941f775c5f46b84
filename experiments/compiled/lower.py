"""Lowers a config's update and search, to be compiled for any devices."""

import functools

import jax
import jax.numpy as jnp
from jax.stages import Lowered

from experiments.speed import updates
from transformer import config as configs
from transformer import parallel
from transformer.config import Config, has
from transformer.inference import generate
from transformer.nn import cache, cost, ensemble, models
from transformer.training.step import initial_state


def update(config: Config, devices: list[jax.Device]) -> Lowered:
    """Lowers an update with full rows for the given devices."""
    count, microbatches = len(devices), config.train.microbatches
    config = configs.with_accumulation(config, devices[0].platform, count)
    mapped = parallel.map_update(updates.step(config), devices).mapped
    state = jax.eval_shape(functools.partial(initial_state, config))
    split = lambda x: jax.ShapeDtypeStruct(
        (count, microbatches // count, x.shape[0] // microbatches, *x.shape[1:]), x.dtype
    )
    batch = jax.tree.map(split, updates.full_batch(config))
    with jax.default_matmul_precision(config.train.matmul_precision):
        return mapped.lower(state, batch)


def search(config: Config, rows: int, devices: list[jax.Device]) -> Lowered:
    """Lowers a search; each device gets `rows` sentences as long as a full training row."""
    settings = generate.SearchOptions(config.decode, 1, has(config, 'continues'))
    function = functools.partial(generate.search_rows, config, settings, config.data.pieces)
    mapped = parallel.rows_program(function, devices)
    source = models.blank(config, rows, cost.row_length(config))[models.fields(config)[0]]
    inputs = source, source.tokens[:, 0]
    inputs = jax.tree.map(lambda x: jax.ShapeDtypeStruct((len(devices), *x.shape), x.dtype), inputs)
    key = jax.eval_shape(lambda: jax.random.key(0))
    with jax.default_matmul_precision(config.train.matmul_precision):
        return mapped.lower(models.parameter_shapes(config), key, inputs)


def step_bytes(config: Config, rows: int) -> int:
    """Counts the bytes that a step of such a search must read on a device.

    These are the caches of all hypotheses at their longest, what the decoder reads of the encoder's output,
    and the parameters outside the encoder in the model's type.
    """
    source = models.blank(config, rows, cost.row_length(config))[models.fields(config)[0]]
    params = models.parameter_shapes(config)
    prompt = 0 if has(config, 'continues') else source.tokens.shape[1]

    def start(params: object, source: object) -> tuple[object, object]:
        memory = ensemble.encode(config, params, source)
        constants, state = ensemble.start(config, params, memory, prompt + config.decode.extra_len)
        return constants, cache.spread(state, config.decode.beam if config.decode.method == 'beam' else 1)

    def size(tree: object, itemsize: int | None = None) -> int:
        return sum(leaf.size * (itemsize or leaf.dtype.itemsize) for leaf in jax.tree.leaves(tree))

    decoder = {name: part for name, part in params.items() if name != 'encoder'}
    return size(jax.eval_shape(start, params, source)) + size(decoder, jnp.dtype(config.model.dtype).itemsize)
