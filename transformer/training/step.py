"""One update: adds up the gradients of all microbatches, and makes the optimizer's step."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from transformer import parallel
from transformer.config import Config
from transformer.data.rows import rows_per_batch
from transformer.nn import ensemble, models
from transformer.tokens import Batch
from transformer.training import dropout_keys, losses, optim

# A task's sums over microbatches: `Task.sums` for one config.
ComputeSums = Callable[[models.Params, Batch, Array | None], losses.Sums]


class TrainState(NamedTuple):
    """The state that an update changes.

    Attributes:
      ema: the moving average of the parameters, if there is one.
      carried: with `data.carry`, the model's state [M rows ...] after the last batch.
    """

    step: Int[Array, '']
    params: models.Params
    optimizer: optax.OptState
    ema: models.Params | None = None
    carried: tuple | None = None

    def evaluated(self) -> models.Params:
        """Returns the parameters to evaluate: the moving average, if there is one."""
        return self.params if self.ema is None else self.ema


def initial_state(config: Config) -> TrainState:
    """Creates the state before the first update, a function of the config's seed."""
    # Always threefry, so that `train.prng` changes only the dropout masks.
    return _create(config, jax.random.key(config.train.seed, impl='threefry2x32'))


@functools.partial(jax.jit, static_argnums=0)
def _create(config: Config, key: Array) -> TrainState:
    params = models.initialize(config, key)
    average = params if config.train.ema else None
    optimizer = optim.optimizer(config).init(params)
    return TrainState(jnp.int32(0), params, optimizer, average, empty_carried(config))


def started_state(config: Config, start: Callable[[models.Params], models.Params]) -> TrainState:
    """Creates the state before the first update of a warm start: `start` changes the seed's parameters."""
    params = start(jax.device_get(initial_state(config).params))
    # A copy, because an update reuses the memory of both trees.
    average = jax.tree.map(jnp.array, params) if config.train.ema else None
    optimizer = jax.jit(optim.optimizer(config).init)(params)
    return TrainState(jnp.int32(0), params, optimizer, average, empty_carried(config))


def empty_carried(config: Config, params: ensemble.Params | None = None) -> tuple | None:
    """Returns the state [M rows ...] before the first batch with `data.carry`, or None without it.

    An ensemble has a state for each of its `params`.
    """
    if not config.data.carry:
        return None
    if isinstance(params, tuple):
        return (empty_carried(config),) * len(params)
    microbatches = config.train.microbatches
    state = models.empty_state(config, rows_per_batch(config.data, config.data.row_len, microbatches))
    return jax.tree.map(lambda x: x.reshape(microbatches, -1, *x.shape[1:]), state)


def continuing(batch: Batch, carried: tuple | None) -> Batch:
    """Adds the states that rows continue, if any, to a device's microbatches [M, rows, ...].

    Args:
      carried: the states [M rows ...] of all devices' rows.
    """
    if carried is None:
        return batch
    return batch | {'carried': parallel.own_part(carried, jax.tree.leaves(batch)[0].shape[0])}


def dropout_key(config: Config, step: Int[Array, '']) -> Array:
    """Returns a step's key, a function of (seed, prng, step)."""
    kind = {'threefry': 'threefry2x32', 'rbg': 'rbg'}[config.train.prng]
    return jax.random.fold_in(jax.random.key(config.train.seed, impl=kind), step)


def gradients(
    config: Config, sums: ComputeSums, params: models.Params, batch: Batch, step: Int[Array, '']
) -> tuple[models.Params, losses.Sums]:
    """Computes gradients and sums over the microbatches [M, rows, ...] of one device.

    The loss is the sum of the microbatches' losses, each with the dropout key of its place in the whole
    batch, so neither devices nor accumulation change the result. States that rows continue (`carried`) have
    no gradient, which so ends at a row's beginning.
    """
    key = dropout_key(config, step)
    count = jax.tree.leaves(batch)[0].shape[0]
    index = parallel.device_index() * count + jnp.arange(count)

    def chunk_loss(params, microbatches, indexes):
        chunk_sums = sums(params, microbatches, dropout_keys.of_microbatches(key, indexes))
        return chunk_sums['loss'], chunk_sums

    def add_chunk(total, chunk):
        (_, chunk_sums), gradient = jax.value_and_grad(chunk_loss, has_aux=True)(params, *chunk)
        return jax.tree.map(jnp.add, total, gradient), chunk_sums

    chunks = config.train.accumulate or 1
    split = lambda x: x.reshape(chunks, count // chunks, *x.shape[1:])
    zeros = jax.tree.map(jnp.zeros_like, params)
    gradient, by_chunk = jax.lax.scan(add_chunk, zeros, jax.tree.map(split, (batch, index)))
    carried = by_chunk.pop('carried', None)
    total = jax.tree.map(lambda x: x.sum(axis=0), by_chunk)
    if carried is not None:
        total['carried'] = jax.tree.map(lambda x: x.reshape(count, *x.shape[2:]), carried)
    return gradient, total


def train_step(
    config: Config, sums: ComputeSums, state: TrainState, batch: Batch
) -> tuple[TrainState, losses.Sums]:
    """Makes one update from this device's microbatches [M, rows, ...], as a step mapped over devices.

    Returns:
      The new state, and the sums over all devices with the norm of the gradient that the optimizer gets.
    """
    batch = continuing(batch, state.carried)
    gradient, total = gradients(config, sums, state.params, batch, state.step)
    carried = parallel.gather_parts(total.pop('carried', None))
    sent = optax.tree.cast(gradient, config.train.gradient_dtype)
    sent, total = parallel.sum_over_devices((sent, total))
    gradient = optax.tree.cast(sent, jnp.float32)
    if config.train.optimizer != 'sgd':
        # A batch of only empty rows has no weight.
        gradient = jax.tree.map(lambda g: g / jnp.maximum(total['weight'], 1.0), gradient)
    updates, optimizer = optim.optimizer(config).update(gradient, state.optimizer, state.params)
    params = optax.apply_updates(state.params, updates)
    total = {**total, 'gradient_norm': optax.tree.norm(gradient)}
    step, ema = state.step + 1, state.ema
    if config.train.ema:
        ema = optim.moving_average(config, ema, params, step)
    return TrainState(step, params, optimizer, ema, carried), total
