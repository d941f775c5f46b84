"""Chooses the checkpoints that a training keeps, averages and calls its best."""

from collections.abc import Iterable, Mapping
from typing import Any


def retained_steps(
    steps: Iterable[int], costs: Mapping[int, float | None], keep: int, average: tuple[int, int]
) -> set[int]:
    """Returns the steps to keep: the latest `keep`, the best, and those that `averaged_steps` will name."""
    last, every = average
    ascending = sorted(steps)
    to_average = [step for step in ascending if step % every == 0][-last:] if last else []
    lowest = best_step({step: costs.get(step) for step in ascending})
    return {*ascending[-keep:], *to_average} | ({lowest} if lowest is not None else set())


def averaged_steps(newest: int, last: int, every: int) -> list[int]:
    """Returns the `last` steps to average (§6.1): the newest, and the multiples of `every` before it.

    The newest need not be a multiple: a training always saves its last update, and the released code averages
    the last checkpoints saved.
    """
    before = (newest - 1) // every * every
    return [*range(before - (last - 2) * every, before + 1, every), newest]


def costs(contents: Mapping[int, Mapping[str, Any]], newest: int | None) -> dict[int, float | None]:
    """Returns the cost of each step, by its JSON. A provisional cost counts only for the step `newest`."""
    return {
        step: content['cost' if 'cost' in content else 'dev_loss']
        for step, content in contents.items()
        if step == newest or not content.get('provisional')
    }


def best_step(costs: Mapping[int, float | None]) -> int | None:
    """Returns the step with the lowest cost, the earliest of equals, or None if no cost is known."""
    known = [(cost, step) for step, cost in costs.items() if cost is not None]
    return min(known)[1] if known else None
