"""Trained models as objects, and what commands check of a config or work directory before they begin."""

import os

from etils import epath

from transformer import config as configs
from transformer.config import Config, ConfigError
from transformer.runs import process, restore, workdir
from transformer.tasks.task import task_of


def load(folder: epath.PathLike, choice: str = 'scored', changes: dict[str, object] | None = None):
    """The object of a work directory that writes texts: a `Translator` or a `Generator`.

    Args:
      choice, changes: as for `scoring.run_evaluation`.

    Raises:
      ConfigError: it is not a work directory, or holds no such checkpoint.
    """
    folder = epath.Path(folder)
    process.keep_programs()
    trained, _ = restore.load_and_tell(folder, choice, changes)
    return task_of(trained.config).writer(trained)


def local(config: Config) -> Config:
    """The config with the folder of its data as an absolute path, which holds in any folder."""
    folder = config.data.dir
    if folder is None or '://' in folder:
        return config
    return configs.replace(config, {'data.dir': os.path.abspath(folder)})


def check_task(folder: epath.Path, task: str) -> None:
    """Raises ConfigError where a work directory is of another task."""
    found = workdir.read_config(folder).train.task
    if found != task:
        raise ConfigError(f'{folder}: trained for train.task={found}, not {task}')
