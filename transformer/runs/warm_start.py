"""Warm start: begins a training with the parameters and codec of another run."""

import os
from collections.abc import Iterator
from typing import NamedTuple

import jax
from etils import epath

from transformer import config as configs
from transformer.config import Config, ConfigError
from transformer.data.codec import Codec
from transformer.data.tokenizers.base import FILE
from transformer.data.tokenizers.foreign import read_given
from transformer.nn import models
from transformer.runs import restore, workdir
from transformer.runs.hashes import fingerprint, named_leaves
from transformer.runs.workdir import Run


class Start(NamedTuple):
    """The run that a training starts from.

    Attributes:
      record: the contents of init_from.json, also in result.json: `workdir`, `checkpoint`, `steps`,
        `params_sha256`; `taken`, the names of the copied parameters; `left`, for each other parameter of
        either model, why it is not copied.
      codec: the run's codec.
    """

    record: dict[str, object]
    codec: Codec


def start(config: Config, init_from: str | None, folder: epath.Path) -> Start | None:
    """Returns the run that a training starts from; None if `train.seed` draws the parameters.

    Args:
      init_from: another work directory, or `WORKDIR:CHECKPOINT`; if None, that of a work directory with
        this config, if there is one.
    """
    run = Run.open(folder) if (folder / 'config.json').exists() else None
    begun = workdir.holds_work(folder)
    if init_from is None:
        resumes = run and (begun or not configs.differences(run.config, config, free=False))
        record = run.start() if resumes else None
        return Start(record, run.codec) if record else None
    new_start = _read(config, init_from)
    if run and begun:
        workdir.check_start(run, new_start.record)
    return new_start


def first_params(record: dict[str, object], fresh: models.Params) -> models.Params:
    """Returns the parameters before the first update: each the other run's if taken, else `fresh`'s.

    ConfigError if the other run's parameters have changed since the start.
    """
    choice = 'average' if record['checkpoint'] == 'average' else str(*record['steps'])
    run = Run.open(record['workdir'])
    other = jax.device_get(restore.restore_params(run.config, run.folder, choice)[0])
    if fingerprint(other) != record['params_sha256']:
        raise ConfigError(
            f'--init_from={record["workdir"]}: its checkpoint {choice} has changed since the start'
        )
    return merge(fresh, other, record['taken'])


def compare_leaves(own, other) -> tuple[list[str], dict[str, str]]:
    """Finds the leaves with equal name, shape and type in both trees, and why each other leaf differs."""
    here, there = named_leaves(own), named_leaves(other)
    left = {}
    for name in sorted(here.keys() | there.keys()):
        if name not in there:
            left[name] = 'only in the new model'
        elif name not in here:
            left[name] = 'only in the other run'
        elif _form(here[name]) != _form(there[name]):
            left[name] = f'{_form(there[name])} there, {_form(here[name])} here'
    return sorted(here.keys() - left.keys()), left


def merge(own, other, taken: list[str]):
    """Returns the tree `own` with the leaves named in `taken` replaced by those of `other`."""
    there = named_leaves(other)
    leaves = {**named_leaves(own), **{name: there[name] for name in taken}}
    return jax.tree.unflatten(jax.tree.structure(own), leaves.values())


def describe(record: dict[str, object]) -> Iterator[str]:
    """Yields lines that describe a warm start; parameters that are left out are grouped by reason."""
    steps = ', '.join(map(str, record['steps']))
    yield (
        f'starts from {record["workdir"]}, checkpoint {record["checkpoint"]} (step {steps}): '
        f'{len(record["taken"])} arrays taken, {len(record["left"])} left out'
    )
    for reason in dict.fromkeys(record['left'].values()):
        first, *others = [name for name, its_reason in record['left'].items() if its_reason == reason]
        yield f'  {reason}: {first}' + (f' and {len(others)} more' if others else '')


def _form(leaf) -> str:
    return f'{leaf.dtype.name} {leaf.shape}'


def _read(config: Config, init_from: str) -> Start:
    folder, choice = restore.parse_checkpoint(init_from)
    run = Run.open(folder)
    other, codec = run.config, run.codec
    taken, left = compare_leaves(models.parameter_shapes(config), models.parameter_shapes(other))
    if not taken:
        name, reason = next(iter(left.items()))
        raise ConfigError(
            f'--init_from={init_from}: shares no parameter with the new model; first: {name}: {reason}'
        )
    if codec.file == FILE:
        _check_tokenizer(config, run, init_from)
    params, origin = restore.restore_params(run.config, run.folder, choice or 'scored')
    record = {
        # Absolute, because the training may be resumed from another folder.
        'workdir': folder if '://' in folder else os.path.abspath(folder),
        'checkpoint': origin.name,
        'steps': origin.steps,
        'params_sha256': fingerprint(jax.device_get(params)),
        'taken': taken,
        'left': left,
    }
    return Start(record, codec)


def _check_tokenizer(config: Config, run: Run, init_from: str) -> None:
    """Raises ConfigError if a config asks for a tokenizer other than the run's."""
    data, other, codec = config.data, run.config.data, run.codec
    for option, ours, theirs in (
        ('data.tokenizer', data.tokenizer, other.tokenizer),
        ('data.vocabulary', data.vocabulary, other.vocabulary),
        ('data.pieces', data.pieces, codec.size),
    ):
        if ours != theirs:
            raise ConfigError(
                f'{option}={ours!r}: --init_from={init_from} brings its tokenizer, which has {theirs!r}'
            )
    file = data.tokenizer_model
    if file and read_given(data, ('source', 'target')).sha256 != codec.sha256:
        raise ConfigError(f'data.tokenizer_model={file}: --init_from={init_from} brings another tokenizer')
