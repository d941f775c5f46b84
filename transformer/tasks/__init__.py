"""The tasks that a model can be trained for: each is a folder here and a line of `TASKS`."""

from collections.abc import Callable

from transformer.config import Config, ConfigError
from transformer.tasks.contract import Task, bound_sums
from transformer.tasks.language import task as language
from transformer.tasks.translation import task as translation

TASKS: dict[str, Task] = {
    'translation': translation.TASK,
    'language': language.TASK,
}


def task_of(config: Config) -> Task:
    """The task that a config names."""
    return TASKS[config.train.task]


def sums_of(config: Config) -> Callable:
    """`(params, batch, key) -> sums` of a config's task."""
    return bound_sums(task_of(config).sums, config)


def verb_of(config: Config, name: str) -> Callable:
    """What a config's task does under a name: `(trained, ...) -> ...`.

    Raises:
      ConfigError: the task has no such verb.
    """
    verbs = task_of(config).verbs
    if name not in verbs:
        raise ConfigError(
            f'{name}: train.task={config.train.task} does not have it; it has {", ".join(verbs)}'
        )
    return verbs[name]
