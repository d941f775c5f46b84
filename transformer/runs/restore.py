"""Restores trained models: the best checkpoint, the latest, a step, an average or an ensemble."""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import jax
import numpy as np
from etils import epath

from transformer import config as configs
from transformer import parallel
from transformer.config import Config, ConfigError, declare
from transformer.data import codec
from transformer.data.codec import Codecs
from transformer.nn import ensemble, models
from transformer.runs import checkpoint, parameters_file, retention
from transformer.runs.checkpoint import Checkpoints, DamagedCheckpoint, Saved
from transformer.runs.hashes import named_leaves
from transformer.runs.parameters_file import ParametersFile
from transformer.runs.workdir import Run, saved_steps

T = TypeVar('T')
# The folder in a work directory with the mean of several checkpoints.
AVERAGE = 'average'
# Options, or their groups, in which the members of an ensemble can differ; but not `train.task`.
OF_TRAINING = ('data.', 'train.', 'decode.', 'model.P_drop', 'model.init', 'model.vectors')


class Trained(NamedTuple):
    """A trained model, as all tasks use it. An ensemble's `params` are a tuple."""

    config: Config
    params: ensemble.Params
    codecs: Codecs


class Origin(NamedTuple):
    """The checkpoints from which parameters were read.

    Attributes:
      name: best, latest, average or a step, or an ensemble's names, separated by commas.
      steps: the steps of the checkpoints.
      tokens: the number of tokens trained on, the largest of an ensemble.
    """

    name: str
    steps: list[int]
    tokens: int

    def __str__(self) -> str:
        steps = ', '.join(map(str, self.steps))
        if ',' in self.name:
            return f'ensemble of checkpoints {self.name.replace(",", ", ")}'
        if self.name == AVERAGE:
            return f'average of checkpoint{"s" * (len(self.steps) > 1)} {steps}'
        return f'checkpoint {steps}' + ('' if self.name == steps else f' ({self.name})')


def load(
    run: Run, choice: str = 'scored', changes: Mapping[str, object] | None = None
) -> tuple[Trained, Origin]:
    """Restores the model of a work directory, with its parameters on all devices.

    Args:
      choice: a checkpoint, as for `restore_params`, or several for an ensemble, separated by commas. A
        checkpoint of another work directory is named `FOLDER:best`.
      changes: changes of the work directory's config, as for `changed`.
    """
    config = configs.portable(changed(run.config, changes or {}), parallel.platform())
    members = [_member(run, config, *member) for member in _members(run, choice)]
    params = tuple(params for params, _ in members) if len(members) > 1 else members[0][0]
    return Trained(config, params, run.codecs), _join_origins([origin for _, origin in members])


def _join_origins(origins: Sequence[Origin]) -> Origin:
    """Joins the origins of an ensemble's members, or returns the one origin."""
    names, steps = ','.join(o.name for o in origins), [step for o in origins for step in o.steps]
    return Origin(names, steps, max(o.tokens for o in origins))


def parse_checkpoint(word: str) -> tuple[str, str]:
    """Splits FOLDER or FOLDER:CHECKPOINT into the two, with '' for a missing checkpoint.

    Folder names can contain colons: the longest existing folder is taken.
    """
    colons = [match.start() for match in re.finditer(':(?!//)', word)]
    for end in (len(word), *reversed(colons)):
        if epath.Path(word[:end]).exists():
            return word[:end], word[end + 1 :]
    end = colons[0] if colons else len(word)
    return word[:end], word[end + 1 :]


def _members(run: Run, choice: str) -> list[tuple[Run, str]]:
    """Splits a choice into the work directory and checkpoint of each member of an ensemble."""
    if not choice:
        raise ConfigError('--checkpoint=: names no checkpoint')
    names = choice.split(',')
    if not all(names):
        raise ConfigError(f'--checkpoint={choice}: a checkpoint is missing beside a comma')
    pairs = [parse_checkpoint(name) if ':' in name else ('', name) for name in names]
    return [(Run.open(folder) if folder else run, name or 'scored') for folder, name in pairs]


def _member(run: Run, config: Config, other: Run, choice: str) -> tuple[models.Params, Origin]:
    """Restores a checkpoint of this work directory, or of another one with the same model and tokenizer."""
    if other is run:
        return restore_params(config, run.folder, choice)
    its_config = configs.portable(other.config, parallel.platform())
    for key, (ours, theirs) in configs.differences(config, its_config, free=False).items():
        if key == 'train.task' or not key.startswith(OF_TRAINING):
            raise ConfigError(
                f'{other.folder}:{choice}: {key} is {theirs!r} there and {ours!r} in {run.folder}'
            )
    if not codec.same(other.codecs, run.codecs):
        raise ConfigError(f'{other.folder}:{choice}: its tokenizer differs from that of {run.folder}')
    # The other config decides which checkpoint is scored, and whether it is a moving average.
    params, origin = restore_params(its_config, other.folder, choice)
    return params, _with_folder(other, origin)


def _with_folder(run: Run, origin: Origin) -> Origin:
    # The whole path, because two folders can have the same name.
    return origin._replace(name=f'{run.folder.resolve()}:{origin.name}')


def load_and_report(
    run: Run, choice: str = 'scored', changes: Mapping[str, object] | None = None
) -> tuple[Trained, Origin]:
    """Loads a model as `load` does, and names the checkpoint on standard error."""
    trained, origin = load(run, choice, changes)
    if parallel.is_primary() and sys.stderr:  # if it is closed, print would write to standard output
        print(f'{run.folder}: {origin}', file=sys.stderr)
    return trained, origin


def changed(config: Config, changes: Mapping[str, object]) -> Config:
    """Changes options that can differ from the training's.

    Raises:
      ConfigError: for other options, and for options that the method of search ignores.
    """
    trained = configs.flatten(config)
    changes = {declare.check_name(configs.OPTIONS, key): value for key, value in changes.items()}
    # Its path may change, but a work directory has its own copy.
    given = 'data.tokenizer_model'
    if changes.get(given, trained[given]) != trained[given]:
        raise ConfigError(f'{given}={changes[given]}: the model has a tokenizer already')
    for key, value in declare.present_values(configs.OPTIONS, trained | dict(changes)).items():
        if not configs.OPTIONS[key].metadata['free'] and trained[key] != value:
            raise ConfigError(f'{key}={value!r}: the model was trained with {trained[key]!r}')
    new = configs.replace(config, changes)
    configs.check_search(config, new)
    return new


def average(run: Run, last: int | None = None, every: int | None = None) -> list[int]:
    """Averages the last checkpoints of a work directory (§6.1) and saves the mean in `average/`.

    Args:
      last: the number of checkpoints, `train.average_last` if None.
      every: the updates between them, as in `retention.averaged_steps`, `train.average_every` if None.

    Returns:
      The steps averaged.

    Raises:
      ConfigError: there are no such checkpoints to average.
    """
    folder, config = run.folder, run.config
    if (folder / parameters_file.FILE).exists():
        raise ConfigError(f'{folder}: an exported model has no checkpoints to average')
    if config.train.ema:
        raise ConfigError(
            f'{folder}: with train.ema={config.train.ema} each checkpoint is a moving average already; '
            'choose one with --checkpoint'
        )
    last, every = last or config.train.average_last, every or config.train.average_every
    if not last:
        raise ConfigError('--last: missing; train.average_last=0 averages none')
    with _open_checkpoints(config, folder) as checkpoints:
        steps = checkpoints.steps()
        newest = max(steps)
        if len(steps) == 1 and (last > 1 or not newest):
            raise ConfigError(f'{folder}: has one checkpoint, {newest}; an average needs more')
        if (most := 1 + (newest - 1) // every) < last:
            raise ConfigError(
                f'{folder}: --last={last} checkpoints, {every} updates apart, are more than its {newest} '
                f'updates allow; choose --last={most} or a smaller --every'
            )
        to_average = retention.averaged_steps(newest, last, every)
        if missing := sorted(set(to_average) - set(steps)):
            raise ConfigError(
                f'{folder}: no checkpoint {", ".join(map(str, missing))} to average, only '
                f'{", ".join(map(str, steps))}; train.average_last and average_every keep what they need'
            )
        for step in to_average:
            _check_config(folder, step, checkpoints.content(step)['meta'])
        saved = mean(checkpoints, to_average, models.parameter_shapes(config))
    with contextlib.closing(Checkpoints(folder / AVERAGE, 1)) as averages:
        # Always step 0, so that a new average replaces the last.
        averages.save(0, saved.params, None, saved.meta)
    return to_average


def check_resume(folder: epath.Path) -> None:
    """Raises ConfigError if config.json is not the config that made the newest checkpoint."""
    with contextlib.closing(Checkpoints(folder / 'checkpoints', 1, read_only=True)) as checkpoints:
        for step in reversed(checkpoints.steps()):
            # A training continues from the newest checkpoint that is not damaged.
            with contextlib.suppress(DamagedCheckpoint):
                _check_config(folder, step, checkpoints.content(step)['meta'])
                return


def _check_config(folder: epath.Path, step: int, meta: Mapping) -> None:
    """Raises ConfigError if config.json does not learn the same as the config that made a checkpoint."""
    # Earlier versions recorded no config, and an unfinished folder has none yet.
    if checkpoint.CONFIG not in meta or not (folder / 'config.json').exists():
        return
    differ = configs.record_differences(meta[checkpoint.CONFIG], Run.open(folder).config)
    if differ:
        values = ', '.join(f'{key} is {there!r}, not {made_by!r}' for key, (made_by, there) in differ.items())
        raise ConfigError(
            f'{folder}: config.json is not the config that made checkpoint {step}: {values}; put it back'
        )


def mean(checkpoints: Checkpoints, steps: Sequence[int], like_params) -> Saved:
    """Computes the mean of the parameters of several steps (§6.1), equal to `numpy.mean`'s.

    Besides the mean, only one array of one checkpoint is in memory at a time. `meta` is the last step's, with
    all steps and their parameters' fingerprints added.

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
    return Saved(last, {**contents[last]['meta'], 'averaged': list(steps), 'params_sha256': hashes}, params)


def scored(config: Config, folder: epath.Path) -> str:
    """Returns the checkpoint that a training scores at its end: the average, if any, else `train.scored`."""
    averaged = config.train.average_last and saved_steps(folder, AVERAGE)
    return 'average' if averaged else config.train.scored


def restore_params(config: Config, folder: epath.Path, choice: str) -> tuple[models.Params, Origin]:
    """Restores a checkpoint's parameters, or their moving average with `train.ema`, to all devices.

    Args:
      choice: scored, best (the latest if no cost is known), latest, average, or a step.
    """
    shapes = models.parameter_shapes(config)

    def read(checkpoints: Checkpoints | ParametersFile, step: int, name: str) -> tuple[models.Params, Origin]:
        item = _item(config, name)
        saved = checkpoints.restore(step, {item: shapes})
        return getattr(saved, item), _origin(name, step, saved.meta)

    params, its_origin = _read_choice(config, folder, choice, read)
    return parallel.replicate(params), its_origin


def origin(run: Run, choice: str) -> Origin:
    """Returns the origin of the parameters that `load` would restore.

    Raises:
      ConfigError: there is no such checkpoint.
    """
    origins = []
    read = lambda checkpoints, step, name: _origin(name, step, checkpoints.content(step)['meta'])
    for other, member in _members(run, choice):
        its_origin = _read_choice(other.config, other.folder, member, read)
        origins.append(its_origin if other is run else _with_folder(other, its_origin))
    return _join_origins(origins)


def params_sha256(run: Run, choice: str) -> str:
    """Returns the hash of the parameters that `load` would restore from one checkpoint, without loading."""
    [(other, member)] = _members(run, choice)
    read = lambda checkpoints, step, name: checkpoints.content(step)[_item(other.config, name)]
    return _read_choice(other.config, other.folder, member, read)


def _item(config: Config, name: str) -> str:
    """Returns the item of a checkpoint to evaluate: the moving average if the training evaluated it."""
    return 'ema' if config.train.ema and name != 'average' else 'params'


def _origin(name: str, step: int, meta: Mapping) -> Origin:
    if 'checkpoint' in meta:  # of an exported model
        return Origin(meta['checkpoint'], meta['averaged'], meta['tokens'])
    return Origin(name, meta['averaged'] if name == 'average' else [step], meta['tokens'])


def _read_choice(
    config: Config,
    folder: epath.Path,
    choice: str,
    read: Callable[[Checkpoints | ParametersFile, int, str], T],
) -> T:
    """Returns `read(checkpoints, step, name)` of the chosen checkpoint.

    A training beside this process can remove the checkpoint before it is read. Then this chooses again.
    """
    name = scored(config, folder) if choice == 'scored' else choice
    averaged = name == 'average'
    if averaged and not saved_steps(folder, AVERAGE):
        exported = (folder / parameters_file.FILE).exists()
        remedy = 'an exported model has one checkpoint' if exported else 'run.py average makes one'
        raise ConfigError(f'{folder}: has no average; {remedy}')
    with _open_checkpoints(config, folder, AVERAGE if averaged else 'checkpoints') as checkpoints:
        while True:
            step = _step(checkpoints, folder, choice, name)
            try:
                _check_config(folder, step, checkpoints.content(step)['meta'])
                return read(checkpoints, step, name)
            except DamagedCheckpoint:
                if step in checkpoints.steps():
                    raise


def _step(checkpoints: Checkpoints | ParametersFile, folder: epath.Path, choice: str, name: str) -> int:
    """Returns the step of a named checkpoint. Raises ConfigError if there is none."""
    # Listed once, because a training can save and remove steps at any time.
    steps = checkpoints.steps()
    step = int(name) if name.isdecimal() else None
    if name in ('average', 'latest'):
        step = max(steps, default=None)
    elif name == 'best':
        step = checkpoints.best(steps) or max(steps, default=None)
    if step not in steps:
        raise ConfigError(
            f'{folder}:{choice}: no such checkpoint; choose scored, best, latest, average or one of the '
            f'steps {", ".join(map(str, steps))}'
        )
    return step


@contextlib.contextmanager
def _open_checkpoints(
    config: Config, folder: epath.Path, name: str = 'checkpoints'
) -> Iterator[Checkpoints | ParametersFile]:
    """Opens the checkpoints of a work directory to read. An exported model has only one, in a file.

    Raises:
      ConfigError: there is no checkpoint, or one that is read is damaged.
    """
    if (folder / parameters_file.FILE).exists():
        yield ParametersFile(folder)
        return
    checkpoints = Checkpoints(folder / name, config.train.keep, read_only=True)
    try:
        if not checkpoints.steps():
            raise ConfigError(f'{folder}: has no checkpoint')
        yield checkpoints
    except DamagedCheckpoint as error:
        raise ConfigError(f'{folder}: {error}; choose another') from None
    finally:
        checkpoints.close()
