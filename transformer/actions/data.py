"""Where commands get their data from: the corpus of a config, or a work directory's own copy."""

from collections.abc import Mapping

from etils import epath

from transformer import parallel
from transformer.config import Config, ConfigError
from transformer.data.dataset import Dataset
from transformer.data.tokenizer import AnyTokenizer
from transformer.runs import metrics, process, restore, workdir
from transformer.tasks.task import task_of


def of_config(config: Config, *, download: bool = False, given: AnyTokenizer | None = None) -> Dataset:
    """The corpus of a config; the first process shows the progress of what has to be made.

    Args:
      download, given: as for `corpus.prepare`.
    """
    with metrics.Stages(quiet=not parallel.is_primary()) as stages:
        cache = process.cache_folder() / 'corpora'
        return task_of(config).prepare(config, cache, stages, download=download, given=given)


def of_workdir(folder: epath.Path, changes: Mapping[str, object] | None = None) -> Dataset:
    """The data of a work directory: its own copy of dev and test, or the corpus where it has none.

    Args:
      changes: with a data.dir the corpus is read from there.

    Raises:
      ConfigError: the corpus cannot be had, or is another one.
    """
    if 'data.dir' not in (changes or {}) and (kept := workdir.read_data(folder)):
        return kept
    config = restore.changed(workdir.read_config(folder), changes or {})
    dataset = of_config(config, given=workdir.given_tokenizer(folder))
    workdir.check_same(folder, config, dataset.manifest)
    return dataset


def check_split(folder: epath.Path, split: str) -> None:
    """Raises ConfigError where a work directory has no such split to evaluate; reads no data."""
    scored = [name for name in workdir.read_lock(folder)['splits'] if name != 'train']
    if split not in scored:
        raise ConfigError(f'--split={split}: choose among {", ".join(scored)}')
