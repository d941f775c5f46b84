"""The tasks that a model can be trained for: each is a folder here and an entry of `config.TASKS`."""

import importlib
from collections.abc import Callable
from types import ModuleType

from etils import epath, epy

from transformer.config import TASKS, Config, ConfigError
from transformer.progress import Progress, no_progress
from transformer.tasks.commands import TaskCommand, Tool

# These modules import jax, which takes seconds; help and `config` do not need it.
with epy.lazy_imports():
    from transformer.data import cache, dataset
    from transformer.tasks import contract


def _package(task: str) -> ModuleType:
    """Imports the package of a task, which declares its `COMMANDS`."""
    return importlib.import_module(f'transformer.tasks.{task}')


def _task(name: str) -> 'contract.Task':
    """Returns the task with a name. Its module is imported at first use, because some take long."""
    return importlib.import_module(f'transformer.tasks.{name}.task').TASK


def task_of(config: Config) -> 'contract.Task':
    """Returns the task that a config names."""
    return _task(config.train.task)


def all_tasks() -> 'list[contract.Task]':
    """Returns every task."""
    return list(map(_task, TASKS))


def prepare(
    config: Config, folder: epath.PathLike, progress: Progress = no_progress, **how
) -> 'dataset.Dataset':
    """Reads the splits of a config's task, or opens them. Arguments are as for `data.cache.prepare`."""
    return cache.prepare(config.data, task_of(config).reading(config), folder, progress, **how)


def sums_of(config: Config) -> Callable:
    """Returns the `sums` of a config's task, as `(params, batch, key) -> sums`."""
    return contract.bound_sums(task_of(config).sums, config)


def verb_of(config: Config, name: str, command: str = '') -> Callable:
    """Returns the verb with a name of a config's task: `(trained, ...) -> ...`.

    Args:
      command: the command that uses the verb, if it has another name.
    """
    verbs = task_of(config).verbs
    if name not in verbs:
        raise refusal(config, command or name)
    return verbs[name]


def refusal(config: Config, command: str) -> ConfigError:
    """Makes the error of a command that a config's models do not have. It names those that they have."""
    task = config.train.task
    has = ', '.join([*_package(task).COMMANDS, 'evaluate', 'compare'])
    return ConfigError(
        f'{command}: a model of train.task={task} does not have it; it has {has}, and the commands of every '
        'model'
    )


def declared_commands() -> dict[str, dict[str, TaskCommand]]:
    """Returns the commands of run.py that use a task's verbs, by name and then by task.

    Raises:
      ValueError: two tasks declare a command with different flags or answers.
    """
    commands: dict[str, dict[str, TaskCommand]] = {}
    for task in TASKS:
        for name, command in _package(task).COMMANDS.items():
            by_task = commands.setdefault(name, {})
            for other in by_task.values():
                if (command.flags, command.writes) != (other.flags, other.writes):
                    raise ValueError(f'{task} declares {name} with other flags than another task')
            by_task[task] = command
    return commands


def declared_tools() -> dict[str, Tool]:
    """Returns the commands of run.py that a task declares and that need no model, by name."""
    return {name: tool for task in TASKS for name, tool in getattr(_package(task), 'TOOLS', {}).items()}
