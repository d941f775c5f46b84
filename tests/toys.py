"""Tiny trainings of tasks on texts: their options, and a training that takes seconds."""

import pathlib
import shutil

from etils import epath

from transformer import config as configs
from transformer.actions import train as action
from transformer.config import Config, config_dict, present_values, resolve
from transformer.config.declare import drop_unused
from transformer.runs.workdir import Run

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
    values = present_values(config_dict(OPTIONS | named))
    return resolve(config_dict(drop_unused(configs.OPTIONS, values, named)[0]))


def trained(config: Config, folder: pathlib.Path, init_from=()) -> Run:
    """Trains a model, and returns its work directory."""
    action.run_training(config, epath.Path(folder), '', init_from=init_from)
    return Run.open(folder)


def resumed(whole: pathlib.Path, folder: pathlib.Path, step: int) -> dict:
    """Copies what a kill after a checkpoint leaves of a training, continues it, and returns the result."""
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns('result.json', 'curve.json', 'translations'))
    steps = [path for path in (folder / 'checkpoints').iterdir() if path.name.isdecimal()]
    later = [path for path in steps if int(path.name) > step]
    assert later and len(later) < len(steps)
    for path in later:
        shutil.rmtree(path)
    return action.train(Run.open(whole).config, folder)
