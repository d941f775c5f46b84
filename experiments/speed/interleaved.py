"""Speeds that are measured in turns: what else the machine does slows all sides alike."""

import statistics
import time
from collections.abc import Callable, Mapping

# Makes so many updates or passes, and returns when the last one is done.
Run = Callable[[int], None]


def measure(sides: Mapping[str, Run], rounds: int, updates: int) -> dict[str, list[float]]:
    """Seconds an update of each side, a number for every round.

    The sides take turns: each round times the updates of one after the other. A round before them does
    not count, because programs are compiled and memory is allocated in it.
    """
    seconds = {name: [] for name in sides}
    for counts in (False, *[True] * rounds):
        for name, run in sides.items():
            start = time.perf_counter()
            run(updates)
            if counts:
                seconds[name].append((time.perf_counter() - start) / updates)
    return seconds


def compare(seconds: Mapping[str, list[float]], amount: int, unit: str = 'tokens') -> dict[str, object]:
    """The median speed of each side, and how the first one stands to every other.

    Args:
      amount: of tokens, or of another unit, in an update.
    """
    speed = {name: amount / statistics.median(found) for name, found in seconds.items()}
    (ours, mine), *peers = seconds.items()
    ratios = {}
    for name, theirs in peers:
        single = [b / a for a, b in zip(mine, theirs, strict=True)]
        ratios[name] = {'ratio': speed[ours] / speed[name], 'spread': [min(single), max(single)]}
    return {f'{unit}_per_second': speed, 'seconds': dict(seconds), 'ratios': ratios}
