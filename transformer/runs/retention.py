"""Which checkpoints of a run remain, given their steps and how good they are."""

from collections.abc import Iterable, Mapping


def kept(
    steps: Iterable[int], costs: Mapping[int, float | None], keep: int, average: tuple[int, int]
) -> set[int]:
    """The steps that remain: the latest, the best, and those that will be averaged.

    Args:
      costs: of steps, the number that is lowest for the best one, as the dev loss; None or a missing step
        means that it is not known.
      keep: how many of the latest steps remain, at least 1.
      average: (last, every): of the steps that are multiples of `every`, the latest `last` remain; with the
        latest step, all that `averaged` needs.
    """
    last, every = average
    ascending = sorted(steps)
    averaged = [step for step in ascending if step % every == 0][-last:] if last else []
    lowest = best({step: costs.get(step) for step in ascending})
    return {*ascending[-keep:], *averaged} | ({lowest} if lowest is not None else set())


def averaged(newest: int, last: int, every: int) -> list[int]:
    """The steps of the `last` checkpoints to average (§6.1): the newest, and multiples of `every` before it.

    A training saves its last update whatever its number, and the released code averages what was saved last.
    """
    before = (newest - 1) // every * every
    return [*range(before - (last - 2) * every, before + 1, every), newest]


def best(costs: Mapping[int, float | None]) -> int | None:
    """The step of the lowest cost, the earliest if several share it; None if no cost is known."""
    known = [(cost, step) for step, cost in costs.items() if cost is not None]
    return min(known)[1] if known else None
