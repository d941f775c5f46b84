"""Which checkpoint of a work directory: the best, the latest, a step, or the average of several."""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from etils import epath

from transformer import parallel
from transformer.config import Config, ConfigError
from transformer.nn import models
from transformer.runs.checkpoint import Checkpoints, DamagedCheckpoint

# Where in a work directory the mean of checkpoints is kept.
AVERAGE = 'average'


def average(folder: epath.Path, last: int | None = None, every: int | None = None) -> list[int]:
    """Averages the last checkpoints of a work directory (§6.1) into `average/`; their steps.

    Args:
      last: how many; `train.average_last` if none.
      every: updates between two of them; `train.average_every` if none. Steps are multiples of it.

    Raises:
      ConfigError: not all of them are there, or one is damaged; nothing was changed.
    """
    config = workdir.read_config(folder)
    last, every = last or config.train.average_last, every or config.train.average_every
    if not last:
        raise ConfigError('--last: missing; the config averages none')
    with _opened(config, folder) as checkpoints:
        held = checkpoints.steps()
        newest = max([last * every, *(step for step in held if step % every == 0)])
        wanted = range(newest - (last - 1) * every, newest + 1, every)
        if missing := sorted(set(wanted) - set(held)):
            raise ConfigError(
                f'{folder}: no checkpoint {", ".join(map(str, missing))} to average, only '
                f'{", ".join(map(str, held))}; train.average_last and average_every keep what they need'
            )
        found = checkpoints.average(wanted, models.parameter_shapes(config))
    averages = Checkpoints(folder / AVERAGE, 1)
    try:
        # Under one number, so that a new average replaces the old one.
        averages.save(0, found.params, None, found.meta)
    finally:
        averages.close()
    return list(wanted)


class Restored(NamedTuple):
    """Parameters, the steps that they were saved at, and the target tokens trained on until then."""

    params: models.Params
    steps: list[int]
    tokens: int


def restore_params(config: Config, folder: epath.Path, choice: str) -> Restored:
    """The parameters of a checkpoint, on all devices.

    Args:
      choice: best (the latest where no dev loss is known), latest, average or a step.

    Raises:
      ConfigError: there is none, or it is damaged.
    """
    shapes = models.parameter_shapes(config)
    if choice == 'average':
        if not (folder / AVERAGE).exists():
            raise ConfigError(f'{folder}: no average; run.py average makes it of the last checkpoints')
        with _opened(config, folder, AVERAGE) as averages:
            saved = averages.restore_params(0, shapes)
            return Restored(parallel.replicate(saved.params), saved.meta['averaged'], saved.meta['tokens'])
    with _opened(config, folder) as checkpoints:
        steps = checkpoints.steps()
        named = {'latest': checkpoints.latest(), 'best': checkpoints.best() or checkpoints.latest()}
        step = named.get(choice, int(choice) if choice.isdecimal() else None)
        if step not in steps:
            held = ', '.join(map(str, steps))
            raise ConfigError(f'--checkpoint={choice}: choose best, latest, average or a step of {held}')
        saved = checkpoints.restore_params(step, shapes)
        return Restored(parallel.replicate(saved.params), [step], saved.meta['tokens'])


@contextlib.contextmanager
def _opened(config: Config, folder: epath.Path, name: str = 'checkpoints') -> Iterator[Checkpoints]:
    """The checkpoints of a work directory, to read; a damaged one is a ConfigError."""
    if not (folder / name).exists():
        raise ConfigError(f'{folder}: no checkpoint')
    checkpoints = Checkpoints(folder / name, config.train.keep, read_only=True)
    try:
        if not checkpoints.steps():
            raise ConfigError(f'{folder}: no checkpoint')
        yield checkpoints
    except DamagedCheckpoint as error:
        raise ConfigError(f'{folder}: {error}; name another one with --checkpoint') from None
    finally:
        checkpoints.close()
