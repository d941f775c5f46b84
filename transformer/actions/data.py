"""Prepares the data of a config, and finds the data of a work directory."""

import contextlib
import os
from collections.abc import Mapping

from absl import logging

from transformer import config as configs
from transformer import parallel
from transformer.config import Config, ConfigError
from transformer.data import manifest
from transformer.data.codec import Codecs
from transformer.data.dataset import Dataset
from transformer.data.sources.reader import READERS
from transformer.progress import Stages
from transformer.runs import process, restore, workdir
from transformer.runs.workdir import Run
from transformer.tasks import prepare as prepare_splits
from transformer.tasks import task_of

# How a user's own examples are given: a file for each field, or the content of a split.
FLAGS = {'source': '--source=FILE', 'target': '--reference=FILE', 'text': '--text=FILE'}
OWN_SPLIT = '--config.data.test=NAME and its data.dir'


def of_config(config: Config, *, download: bool = False, given: Codecs | None = None) -> Dataset:
    """Prepares the data of a config, unless it is cached, and shows the progress in the first process."""
    with Stages('preparing', quiet=not parallel.is_primary()) as stages:
        cache = process.cache_folder() / 'corpora'
        return prepare_splits(config, cache, stages, download=download, given=given)


def of_run(run: Run, changes: Mapping[str, object] | None = None) -> Dataset:
    """Returns a run's copy of dev and test, or all its data if there is no copy or `data.dir` is changed."""
    if 'data.dir' not in (changes or {}) and (copy := run.copied_data()):
        _warn_of_edits(run, copy)
        return copy
    config = restore.changed(run.config, changes or {})
    dataset = of_config(config, given=run.given_codecs())
    workdir.check_same(run, dataset.manifest)
    return dataset


def _warn_of_edits(run: Run, copy: Dataset) -> None:
    """Warns of splits whose files have changed since the training, if the files are there."""
    data, reading = run.config.data, task_of(run.config).reading(run.config)
    for split in copy.splits if data.dir is not None else ():
        with contextlib.suppress(ConfigError, OSError):
            now = [one.sha256 for one in READERS[data.source].origins(data, reading, split)]
            if now != [one['sha256'] for one in run.manifest['files'][split]]:
                logging.warning(
                    '%s: data.%s has changed in %s since the training; its copy of the earlier data is used',
                    run.folder, split, data.dir,
                )  # fmt: skip


def own_files(config: Config) -> list[str] | None:
    """Returns the flags of a user's files, one a field, or None if only a split can have other content."""
    fields = task_of(config).reading(config).fields
    return [FLAGS[field] for field in fields] if fields.keys() <= FLAGS.keys() else None


def check_split(run: Run, split: str) -> None:
    """Raises ConfigError if a work directory has no such split to evaluate. Reads no data."""
    scored = [name for name in run.manifest['splits'] if name != 'train']
    if not scored:
        advice = ' '.join(own_files(run.config) or [OWN_SPLIT])
        raise ConfigError(f'{run.folder}: has no data of its own; give {advice}')
    if split not in scored:
        raise ConfigError(f'--split={split}: choose among {", ".join(scored)}')


def prepare(config: Config, lock_file: str) -> list[str]:
    """Prepares the data of a config, with a download if needed, and returns lines that describe it.

    If the lock file exists, the data is compared with it.
    """
    expected = manifest.expected(lock_file)
    dataset = of_config(config, download=True)
    report = [*manifest.describe(dataset.manifest), f'lock file: {dataset.folder / manifest.FILE}']
    if expected is not None:
        report += manifest.differences(dataset.manifest, expected, lock_file) or [f'all as {lock_file} says']
    return report


def with_absolute_paths(config: Config) -> Config:
    """Makes `data.dir` and `data.tokenizer_model` absolute paths, which stay valid in any folder."""
    absolute = lambda path: path if '://' in path else os.path.abspath(path)
    data, paths = config.data, {}
    if data.dir == '':
        # Such as a variable of a shell that is not set.
        raise ConfigError('data.dir=: names nothing')
    if data.dir is not None:
        paths['data.dir'] = absolute(data.dir)
    if data.tokenizer_model is not None:
        names = data.tokenizer_model.split(',') if data.vocabulary == 'separate' else [data.tokenizer_model]
        # A comma in the folder would separate names.
        if all(names) and (len(names) == 1 or ',' not in os.getcwd()):
            paths['data.tokenizer_model'] = ','.join(map(absolute, names))
    return configs.replace(config, paths)
