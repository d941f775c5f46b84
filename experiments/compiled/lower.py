"""Lowers a config's update and search, and times their compilation."""

import functools
import tempfile
import time
from collections.abc import Callable

import jax
from jax.experimental.compilation_cache import compilation_cache
from jax.stages import Lowered

from experiments.speed import updates
from transformer import parallel
from transformer.config import FORM, Config, ConfigError
from transformer.inference import generate
from transformer.nn import cost, models
from transformer.tokens import Batch
from transformer.training.step import initial_state


def update(config: Config, devices: list[jax.Device], batch: Batch | None = None) -> Lowered:
    """Lowers an update for the given devices.

    Args:
      batch: has the shapes of the batch; full rows if None.

    Raises:
      ConfigError: the devices cannot share the microbatches.
    """
    count, microbatches = len(devices), config.train.microbatches
    if microbatches % (count * config.train.accumulate):
        raise ConfigError(
            f'train.microbatches={microbatches}: must be a multiple of the {count} devices times '
            f'train.accumulate={config.train.accumulate}'
        )
    mapped = parallel.map_update(updates.step(config), devices).mapped
    state = jax.eval_shape(functools.partial(initial_state, config))
    split = lambda x: jax.ShapeDtypeStruct(
        (count, microbatches // count, x.shape[0] // microbatches, *x.shape[1:]), x.dtype
    )
    batch = jax.tree.map(split, batch or updates.full_batch(config))
    with jax.default_matmul_precision(config.train.matmul_precision):
        return mapped.lower(state, batch)


def search(config: Config, rows: int, devices: list[jax.Device]) -> Lowered:
    """Lowers a search; each device gets `rows` sentences of a full training row's length."""
    asked = generate.Asked(config.decode, 1, FORM[config.train.task] == 'text')
    function = functools.partial(generate.search_rows, config, asked, config.data.pieces)
    mapped = parallel.rows_program(function, devices)
    tokens, segments, _ = models.blank(config, rows, cost.row_length(config)).popitem()[1]
    inputs = {'tokens': tokens, 'segments': segments, 'number': tokens[:, 0]}
    inputs = jax.tree.map(lambda x: jax.ShapeDtypeStruct((len(devices), *x.shape), x.dtype), inputs)
    key = jax.eval_shape(lambda: jax.random.key(0))
    with jax.default_matmul_precision(config.train.matmul_precision):
        return mapped.lower(models.parameter_shapes(config), key, inputs)


def compile_seconds(lower: Callable[[], Lowered]) -> dict[str, float]:
    """Measures seconds of `tracing`, `compiling`, and `loading` the same program from a cache."""
    before = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            _set_cache(folder, 0.0)
            for way in ('compiling', 'loading'):
                jax.clear_caches()
                start = time.perf_counter()
                lowered = lower()
                traced = time.perf_counter()
                lowered.compile()
                seconds.setdefault('tracing', traced - start)
                seconds[way] = time.perf_counter() - traced
        finally:
            _set_cache(*before)
    return seconds


def _set_cache(folder: str | None, least_seconds: float) -> None:
    jax.config.update('jax_compilation_cache_dir', folder)
    jax.config.update('jax_persistent_cache_min_compile_time_secs', least_seconds)
    compilation_cache.reset_cache()
