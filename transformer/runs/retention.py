"""Which checkpoints of a run remain, given their steps and dev losses."""

from collections.abc import Iterable, Mapping


def kept(
    steps: Iterable[int], losses: Mapping[int, float | None], keep: int, average: tuple[int, int]
) -> set[int]:
    """The steps that remain: the latest, the best, and those that will be averaged.

    Args:
      losses: the finite dev losses of steps; None or a missing step means that it is not known.
      keep: how many of the latest steps remain, at least 1.
      average: (last, every): of the steps that are multiples of `every`, the latest `last` remain.
    """
    last, every = average
    ascending = sorted(steps)
    averaged = [step for step in ascending if step % every == 0][-last:] if last else []
    lowest = best({step: losses.get(step) for step in ascending})
    return {*ascending[-keep:], *averaged} | ({lowest} if lowest is not None else set())


def best(losses: Mapping[int, float | None]) -> int | None:
    """The step of the lowest loss, the earliest if several share it; None if no loss is known."""
    known = [(loss, step) for step, loss in losses.items() if loss is not None]
    return min(known)[1] if known else None
