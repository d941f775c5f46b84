"""Updates without a training loop, for timing or compiling, and their batches."""

import functools
from collections.abc import Callable, Sequence

import jax
import numpy as np

from experiments.speed.interleaved import Timed
from transformer import parallel
from transformer.config import Config
from transformer.data.rows import rows_per_batch
from transformer.nn import cost, heads, models
from transformer.tasks import sums_of
from transformer.tokens import UNK, Batch
from transformer.training.step import initial_state, train_step


def full_batch(config: Config) -> Batch:
    """Returns a training batch of the config's full size, without padding."""
    length = cost.row_length(config)
    rows = rows_per_batch(config.data, length, config.train.microbatches)
    return models.blank(config, rows, length) | heads.blank_labels(config, rows, length)


def random_batch(config: Config) -> Batch:
    """Returns `full_batch` with random pieces, one sentence in each row."""
    draw = np.random.default_rng(config.train.seed)
    drawn = lambda tokens: draw.integers(UNK + 1, config.data.pieces, tokens.shape, np.int32)
    return {side: tokens._replace(tokens=drawn(tokens.tokens)) for side, tokens in full_batch(config).items()}


def step(config: Config) -> Callable:
    """Returns one device's `(state, batch) -> (state, sums)`, to be mapped over devices."""
    return functools.partial(train_step, config, sums_of(config))


def make_passes(config: Config, batches: Sequence[Batch]) -> Timed:
    """Returns passes through batches that are already on the devices, one update per batch."""
    update = parallel.map_update(step(config), remat=config.model.remat)
    placed = [parallel.to_devices(batch, config.train.microbatches) for batch in batches]
    state = parallel.replicate(initial_state(config))

    def run(passes: int) -> None:
        nonlocal state
        with jax.default_matmul_precision(config.train.matmul_precision):
            for batch in placed * passes:
                state, _ = update(state, batch)
        jax.block_until_ready(state)

    return run


def peak_memory(config: Config) -> float:
    """Returns an update's memory, in GiB per device, by XLA's plan: state, batch and intermediate values."""
    update = parallel.map_update(step(config), remat=config.model.remat)
    shapes = jax.eval_shape(functools.partial(initial_state, config))
    batch = parallel.to_devices(full_batch(config), config.train.microbatches)
    with jax.default_matmul_precision(config.train.matmul_precision):
        memory = update.compile(shapes, batch).memory_analysis()
    # The new state reuses the memory of the old one, so it counts once.
    return (memory.argument_size_in_bytes + memory.temp_size_in_bytes) / 2**30
