"""Restores a trained model from a checkpoint: the best, the latest, a step, or the average of several."""

import contextlib
import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from etils import epath

from transformer import config as configs
from transformer import parallel
from transformer.config import Config, ConfigError
from transformer.data.tokenizer import AnyTokenizer
from transformer.nn import ensemble, models
from transformer.runs import checkpoint, workdir
from transformer.runs.checkpoint import Checkpoints, DamagedCheckpoint, Saved
from transformer.runs.hashes import named_leaves

# The folder in a work directory that holds the mean of checkpoints.
AVERAGE = 'average'


class Trained(NamedTuple):
    """A model that was trained, as every task's functions take it; `params` are a tuple of several models."""

    config: Config
    params: ensemble.Params
    codec: AnyTokenizer


class Origin(NamedTuple):
    """Where parameters come from.

    name: the checkpoint's: best, latest, average or a step; those of an ensemble with commas between
    them. steps: those that were saved. tokens: trained on up to the last of them.
    """

    name: str
    steps: list[int]
    tokens: int

    def __str__(self) -> str:
        steps = ', '.join(map(str, self.steps))
        if ',' in self.name:
            return f'ensemble of the checkpoints {self.name.replace(",", ", ")}'
        if self.name == 'average':
            return f'average of the checkpoints {steps}'
        return f'checkpoint {steps}' + ('' if self.name == steps else f' ({self.name})')


def load(
    folder: epath.PathLike,
    choice: str = 'scored',
    changes: dict[str, object] | None = None,
    tokenizer: AnyTokenizer | None = None,
) -> tuple[Trained, Origin]:
    """Restores the model of a work directory, with its parameters on all devices.

    Args:
      choice: the checkpoint, as for `restore_params`; or several, with commas between them, as an
        ensemble. One of another work directory is named as `FOLDER:best`.
      changes: options that differ from the work directory's config, as for `changed`.
      tokenizer: the work directory's, if it was read before.

    Raises:
      ConfigError: the folder is not a work directory, it has no such checkpoint, a file of it is
        damaged, or an option may not be changed.
    """
    folder = epath.Path(folder)
    config = changed(workdir.read_config(folder), changes or {})
    config = configs.portable(config, parallel.platform())
    tokenizer = tokenizer or workdir.read_tokenizer(folder)
    found = [_member(config, tokenizer, folder, *member) for member in _members(folder, choice)]
    if len(found) == 1:
        ((params, origin),) = found
        return Trained(config, params, tokenizer), origin
    several = tuple(params for params, _ in found)
    return Trained(config, several, tokenizer), _together([origin for _, origin in found])


def _together(origins: Sequence[Origin]) -> Origin:
    """Where the parameters of an ensemble come from."""
    names, steps = ','.join(o.name for o in origins), [step for o in origins for step in o.steps]
    return Origin(names, steps, max(o.tokens for o in origins))


def parsed(word: str) -> tuple[str, str]:
    """The two parts of FOLDER or FOLDER:CHECKPOINT; the checkpoint is empty where none is named.

    A folder's own name may hold a colon: the folder is the longest one that exists.
    """
    colons = [found.start() for found in re.finditer(':(?!//)', word)]
    for end in (len(word), *reversed(colons)):
        if epath.Path(word[:end]).exists():
            return word[:end], word[end + 1 :]
    end = colons[0] if colons else len(word)
    return word[:end], word[end + 1 :]


def _members(folder: epath.Path, choice: str) -> list[tuple[epath.Path, str]]:
    """The folder and the checkpoint of every member of an ensemble, or of the one that is chosen.

    Raises:
      ConfigError: there is nothing before or after a comma.
    """
    if not choice:
        raise ConfigError('--checkpoint=: names no checkpoint')
    names = choice.split(',')
    if not all(names):
        raise ConfigError(f'--checkpoint={choice}: a comma stands between two checkpoints; one is missing')
    pairs = [parsed(name) if ':' in name else ('', name) for name in names]
    return [(epath.Path(other or folder), own or 'scored') for other, own in pairs]


def _member(
    config: Config, tokenizer: AnyTokenizer, folder: epath.Path, other: epath.Path, choice: str
) -> tuple[models.Params, Origin]:
    """The parameters of a checkpoint of this folder, or of another one that fits to it."""
    if other == folder:
        return restore_params(config, folder, choice)
    its_config = configs.portable(workdir.read_config(other), parallel.platform())
    for key, (ours, theirs) in configs.differences(config, its_config, free=False).items():
        if key.startswith('model.') and not key.startswith('model.P_drop'):
            raise ConfigError(f'{other}:{choice}: {key} is {theirs!r} there and {ours!r} in {folder}')
    if workdir.read_tokenizer(other).sha256 != tokenizer.sha256:
        raise ConfigError(f'{other}:{choice}: its tokenizer is not that of {folder}')
    # Its own config says which checkpoint it scored, and whether that is a moving average.
    params, origin = restore_params(its_config, other, choice)
    return params, _of_another(other, origin)


def _of_another(folder: epath.Path, origin: Origin) -> Origin:
    # Two folders may have the same name.
    return origin._replace(name=f'{folder.resolve()}:{origin.name}')


def load_and_tell(
    folder: epath.PathLike,
    choice: str = 'scored',
    changes: dict[str, object] | None = None,
    tokenizer: AnyTokenizer | None = None,
) -> tuple[Trained, Origin]:
    """As `load`; says on standard error which checkpoint it is."""
    trained, found = load(folder, choice, changes, tokenizer)
    if parallel.is_primary():
        print(f'{folder}: {found}', file=sys.stderr)
    return trained, found


def changed(config: Config, changes: dict[str, object]) -> Config:
    """The config with changes of options that may differ from those of the training.

    Raises:
      ConfigError: a change is of an option that may not, or is not valid.
    """
    trained = configs.flatten(config)
    for key, value in changes.items():
        if not configs.OPTIONS[key].metadata['free'] and trained[key] != value:
            raise ConfigError(f'{key}={value!r}: the model was trained with {trained[key]!r}')
    return configs.replace(config, changes)


def average(folder: epath.Path, last: int | None = None, every: int | None = None) -> list[int]:
    """Averages the last checkpoints of a work directory (§6.1) and saves the mean in its `average/`.

    Args:
      last: how many; `train.average_last` if None.
      every: updates between two of them, as for `checkpoint.averaged_steps`; `train.average_every` if None.

    Returns:
      The steps averaged.

    Raises:
      ConfigError: one of them is missing or damaged; nothing was changed.
    """
    config = workdir.read_config(folder)
    if config.train.ema:
        raise ConfigError(
            f'{folder}: with train.ema={config.train.ema} each checkpoint is a moving average already; '
            'choose one with --checkpoint'
        )
    last, every = last or config.train.average_last, every or config.train.average_every
    if not last:
        raise ConfigError('--last: missing; train.average_last=0 averages none')
    with _opened(config, folder) as checkpoints:
        held = checkpoints.steps()
        # Where there are too few, the first that could be averaged are missing.
        newest = max(held) if max(held) > (last - 1) * every else last * every
        wanted = checkpoint.averaged_steps(newest, last, every)
        if missing := sorted(set(wanted) - set(held)):
            raise ConfigError(
                f'{folder}: no checkpoint {", ".join(map(str, missing))} to average, only '
                f'{", ".join(map(str, held))}; train.average_last and average_every keep what they need'
            )
        found = mean(checkpoints, wanted, models.parameter_shapes(config))
    averages = Checkpoints(folder / AVERAGE, 1)
    try:
        # Always step 0, so that a new average replaces the old one.
        averages.save(0, found.params, None, found.meta)
    finally:
        averages.close()
    return wanted


def mean(checkpoints: Checkpoints, steps: Sequence[int], like_params) -> Saved:
    """The mean of the parameters of steps (§6.1), in float32 as `numpy.mean` adds them.

    One array of one checkpoint at a time is in memory beside the mean.

    Args:
      like_params: a tree of shapes and types (ShapeDtypeStruct).

    Returns:
      The mean under the last step. `meta` is the last step's, and what was averaged: the steps, and
      the fingerprint of each one's parameters.

    Raises:
      DamagedCheckpoint: a step is missing or damaged.
    """
    contents = {step: checkpoints.content(step) for step in steps}
    totals = {name: np.zeros(like.shape, like.dtype) for name, like in named_leaves(like_params).items()}
    for step in steps:
        for name, array in checkpoints.stream_params(step, like_params):
            totals[name] += array
    for total in totals.values():
        total /= len(steps)
    params = jax.tree.unflatten(jax.tree.structure(like_params), totals.values())
    hashes = {str(step): content['params'] for step, content in contents.items()}
    last = max(steps)
    meta = {**contents[last]['meta'], 'averaged': list(steps), 'params_sha256': hashes}
    return Saved(last, params, None, meta)


def scored(config: Config, folder: epath.Path) -> str:
    """The checkpoint that a training scores at its end: the average if it makes one, else `train.scored`."""
    return 'average' if config.train.average_last and (folder / AVERAGE).exists() else config.train.scored


def restore_params(config: Config, folder: epath.Path, choice: str) -> tuple[models.Params, Origin]:
    """Restores the parameters of a checkpoint on all devices: with `train.ema` their moving average.

    Args:
      choice: scored, best (the latest if no score of dev is known), latest, average, or a step.

    Raises:
      ConfigError: there is no such checkpoint, or it is damaged.
    """
    shapes = models.parameter_shapes(config)
    choice = scored(config, folder) if choice == 'scored' else choice
    _check_average(folder, choice)
    if choice == 'average':
        with _opened(config, folder, AVERAGE) as averages:
            saved = averages.restore_params(0, shapes)
            origin = Origin(choice, saved.meta['averaged'], saved.meta['tokens'])
            return parallel.replicate(saved.params), origin
    with _opened(config, folder) as checkpoints:
        step = _step(folder, checkpoints, choice)
        # What was evaluated in the training is what is used.
        item = 'ema' if config.train.ema else 'params'
        saved = checkpoints.restore_params(step, shapes, item)
        return parallel.replicate(saved.params), Origin(choice, [step], saved.meta['tokens'])


def origin(config: Config, folder: epath.Path, choice: str) -> Origin:
    """Where the parameters come from that `load` would restore.

    Raises:
      ConfigError: there is no such checkpoint.
    """
    found = []
    for other, own in _members(folder, choice):
        if other == folder:
            found.append(_origin(config, folder, own))
        else:
            found.append(_of_another(other, _origin(workdir.read_config(other), other, own)))
    return _together(found) if len(found) > 1 else found[0]


def _origin(config: Config, folder: epath.Path, choice: str) -> Origin:
    choice = scored(config, folder) if choice == 'scored' else choice
    averaged = choice == 'average'
    _check_average(folder, choice)
    with _opened(config, folder, AVERAGE if averaged else 'checkpoints') as checkpoints:
        step = 0 if averaged else _step(folder, checkpoints, choice)
        meta = checkpoints.content(step)['meta']
        return Origin(choice, meta['averaged'] if averaged else [step], meta['tokens'])


def _check_average(folder: epath.Path, choice: str) -> None:
    if choice == 'average' and not (folder / AVERAGE).exists():
        raise ConfigError(f'{folder}: has no average; run.py average makes one of the last checkpoints')


def _step(folder: epath.Path, checkpoints: Checkpoints, choice: str) -> int:
    """The step of a checkpoint that was chosen: best, latest or a step."""
    steps = checkpoints.steps()
    named = {'latest': checkpoints.latest(), 'best': checkpoints.best() or checkpoints.latest()}
    step = named.get(choice, int(choice) if choice.isdecimal() else None)
    if step not in steps:
        held = ', '.join(map(str, steps))
        raise ConfigError(
            f'{folder}:{choice}: no such checkpoint; choose scored, best, latest, average or one of the '
            f'steps {held}'
        )
    return step


@contextlib.contextmanager
def _opened(config: Config, folder: epath.Path, name: str = 'checkpoints') -> Iterator[Checkpoints]:
    """Opens the checkpoints of a work directory to read; within, a damaged one is a ConfigError."""
    if not (folder / name).exists():
        raise ConfigError(f'{folder}: has no checkpoint')
    checkpoints = Checkpoints(folder / name, config.train.keep, read_only=True)
    try:
        if not checkpoints.steps():
            raise ConfigError(f'{folder}: has no checkpoint')
        yield checkpoints
    except DamagedCheckpoint as error:
        raise ConfigError(f'{folder}: {error}; choose another one') from None
    finally:
        checkpoints.close()
