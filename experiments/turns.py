"""Speeds that are measured in turns: what else the machine does slows both sides alike."""

import statistics
import time
from collections.abc import Callable, Mapping

# Makes so many updates, and returns when the last one is done.
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


def compare(seconds: Mapping[str, list[float]], tokens: int) -> dict[str, object]:
    """The median tokens a second of each side, and of two sides how the first stands to the second.

    Args:
      tokens: of an update.
    """
    speed = {name: tokens / statistics.median(found) for name, found in seconds.items()}
    found = {'tokens_per_second': speed, 'seconds': dict(seconds)}
    if len(seconds) == 2:
        ours, peer = seconds.values()
        ratios = [theirs / mine for mine, theirs in zip(ours, peer, strict=True)]
        first, second = speed.values()
        found |= {'ratio': first / second, 'spread': [min(ratios), max(ratios)]}
    return found
