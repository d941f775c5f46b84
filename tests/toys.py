"""Tiny trainings of tasks on texts: their options, and a training that takes seconds."""

import pathlib
import shutil

import jax
import jax.numpy as jnp
from etils import epath

from transformer import config as configs
from transformer import parallel
from transformer.actions import train as action
from transformer.config import Config, config_dict, option_values, resolve
from transformer.config.declare import drop_unused
from transformer.runs.workdir import Run
from transformer.tasks import sums_of
from transformer.tokens import Batch
from transformer.training import dropout_keys
from transformer.training.step import dropout_key, gradients, initial_state

OPTIONS = {
    'model.N': 1,
    'model.d_model': 16,
    'model.d_ff': 24,
    'model.h': 2,
    'data.name': None,
    'data.pieces': 300,
    'data.batching': 'packed',
    'data.row_len': 48,
    'data.max_len': 48,
    'data.batch_tokens': 384,
    'train.steps': 4,
    'train.warmup_steps': 2,
    'train.checkpoint_every': 2,
    'train.eval_every': 4,
    'train.log_every': 1,
}


def config_of(folder: pathlib.Path, **changes) -> Config:
    """Makes a config on the files of a folder; the changes are `group__option=value`."""
    named = {key.replace('__', '.'): value for key, value in changes.items()} | {'data.dir': str(folder)}
    values = option_values(config_dict(OPTIONS | named))
    return resolve(config_dict(drop_unused(configs.OPTIONS, values, named)[0]))


def trained(config: Config, folder: pathlib.Path, init_from=(), evaluate: bool = True) -> Run:
    """Trains a model, and returns its work directory."""
    action.run_training(config, epath.Path(folder), '', init_from=init_from, evaluate=evaluate)
    return Run.open(folder)


def resumed(whole: pathlib.Path, folder: pathlib.Path, step: int, evaluate: bool = True) -> dict:
    """Copies what a kill after a checkpoint leaves of a training, continues it, and returns the result."""
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns('result.json', 'curve.json', 'translations'))
    steps = [path for path in (folder / 'checkpoints').iterdir() if path.name.isdecimal()]
    later = [path for path in steps if int(path.name) > step]
    assert later and len(later) < len(steps)
    for path in later:
        shutil.rmtree(path)
    return action.train(Run.open(whole).config, folder, evaluate=evaluate)


def sums_of_microbatches(config: Config, batch: Batch) -> tuple[dict, dict]:
    """Computes a step's sums with dropout, of all microbatches together, and of each alone, added up.

    Devices and chunks divide the microbatches. That equal sums are enough is tested in training/test_loop.py.
    """
    count, params = config.train.microbatches, initial_state(config).params
    batch = jax.tree.map(lambda x: jnp.asarray(x).reshape(count, -1, *x.shape[1:]), batch)

    @jax.jit
    def compute(params, batch, indexes):
        return sums_of(config)(
            params, batch, dropout_keys.of_microbatches(dropout_key(config, jnp.int32(3)), indexes)
        )

    alone = [
        compute(params, jax.tree.map(lambda x, i=i: x[i : i + 1], batch), jnp.arange(i, i + 1))
        for i in range(count)
    ]
    found = compute(params, batch, jnp.arange(count)), jax.tree.map(lambda *parts: sum(parts), *alone)
    return tuple({name: float(value) for name, value in sums.items()} for sums in found)


def gradients_of(config: Config, params: dict, batch: Batch, number: int, sums=None) -> tuple[dict, dict]:
    """Computes the gradients and sums of all devices at a step."""

    def step(params, batch):
        found = gradients(config, sums or sums_of(config), params, batch, jnp.int32(number))
        return parallel.sum_over_devices(found)

    batch = parallel.to_devices(batch, config.train.microbatches)
    gradient, found = jax.device_get(parallel.map_sums(step)(parallel.replicate(params), batch))
    return gradient, {name: float(value) for name, value in found.items()}
