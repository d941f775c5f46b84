"""Which tasks there are; contract.py says what a task is."""

from collections.abc import Callable

from transformer.config import Config
from transformer.tasks.contract import Task, bound
from transformer.tasks.language import task
from transformer.tasks.translation import task as translation

TASKS: dict[str, Task] = {
    'translation': translation.TASK,
    'language': task.TASK,
}


def task_of(config: Config) -> Task:
    """The task that a config names."""
    return TASKS[config.train.task]


def sums(config: Config) -> Callable:
    """`(params, batch, key) -> Sums` of a config's task."""
    return bound(task_of(config).sums, config)
