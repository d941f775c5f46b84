"""The tasks that a model can be trained for: each is a folder here and an entry of `TASKS`."""

import importlib
from collections.abc import Callable
from types import ModuleType

from etils import epath

from transformer.config import Config, ConfigError
from transformer.data import cache
from transformer.data.dataset import Dataset
from transformer.progress import Progress, no_progress
from transformer.tasks.commands import Command, Tool
from transformer.tasks.contract import Task, bound_sums

# The module that defines each task's `TASK`, imported on first use because some take long. Its package
# declares `COMMANDS`.
TASKS = {
    'translation': 'transformer.tasks.translation.task',
    'parsing': 'transformer.tasks.parsing.task',
    'transliteration': 'transformer.tasks.transliteration.task',
    'language': 'transformer.tasks.language.task',
    'masked': 'transformer.tasks.masked.task',
    'images': 'transformer.tasks.images.task',
}


def task_of(config: Config) -> Task:
    """The task that a config names."""
    return importlib.import_module(TASKS[config.train.task]).TASK


def prepare(config: Config, folder: epath.PathLike, progress: Progress = no_progress, **how) -> Dataset:
    """Reads the splits of a config's task, or opens them; arguments as for `data.cache.prepare`."""
    return cache.prepare(config.data, task_of(config).reading(config), folder, progress, **how)


def sums_of(config: Config) -> Callable:
    """The `sums` of a config's task, as `(params, batch, key) -> sums`."""
    return bound_sums(task_of(config).sums, config)


def verb_of(config: Config, name: str, command: str = '') -> Callable:
    """The verb of a config's task with this name: `(trained, ...) -> ...`; `command` is what uses it."""
    verbs, task = task_of(config).verbs, config.train.task
    if name not in verbs:
        own = importlib.import_module(TASKS[task].rpartition('.')[0]).COMMANDS
        has = ', '.join([*own, 'evaluate', 'compare'])
        raise ConfigError(f'{command or name}: a model of train.task={task} does not have it; it has {has}')
    return verbs[name]


def declared_commands() -> dict[str, Command]:
    """The commands of run.py that use a task's verbs, by name."""
    return {name: command for package in _packages() for name, command in package.COMMANDS.items()}


def declared_tools() -> dict[str, Tool]:
    """The commands of run.py that a task declares and that need no model, by name."""
    return {name: tool for package in _packages() for name, tool in getattr(package, 'TOOLS', {}).items()}


def _packages() -> list[ModuleType]:
    return [importlib.import_module(module.rpartition('.')[0]) for module in TASKS.values()]
