"""Times functions in turns, so that other work on the machine slows all equally; prints and saves speeds."""

import importlib.metadata
import importlib.util
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Mapping

from transformer import files
from transformer.config import ConfigError
from transformer.runs import process

# Makes a given number of updates or passes, and returns when the last one is done.
Timed = Callable[[int], None]


def measure(sides: Mapping[str, Timed], rounds: int, updates: int) -> dict[str, list[float]]:
    """Times each side once per round.

    The first round is not counted, because it compiles programs and allocates memory.

    Returns:
      Each side's seconds per update in each round, by name.
    """
    seconds = {name: [] for name in sides}
    for is_counted in (False, *[True] * rounds):
        for name, run in sides.items():
            start = time.perf_counter()
            run(updates)
            if is_counted:
                seconds[name].append((time.perf_counter() - start) / updates)
    return seconds


def compare(seconds: Mapping[str, list[float]], amount: int, unit: str = 'tokens') -> dict[str, object]:
    """Compares the first side's median speed with each other's; an update has `amount` units."""
    speed = {name: amount / statistics.median(times) for name, times in seconds.items()}
    (ours, our_seconds), *peers = seconds.items()
    ratios = {}
    for name, their_seconds in peers:
        by_round = [theirs / own for own, theirs in zip(our_seconds, their_seconds, strict=True)]
        ratios[name] = {'ratio': speed[ours] / speed[name], 'spread': [min(by_round), max(by_round)]}
    return {f'{unit}_per_second': speed, 'seconds': dict(seconds), 'ratios': ratios}


def print_number(
    name: str, value: float, unit: str, *, most: float | None = None, least: float | None = None
) -> None:
    """Prints a number and, if given, its aim and their ratio."""
    aim = most or least
    text = lambda number: f'{number:,.0f}' if number >= 1000 else f'{number:.3g}'
    beside = f'at {"most" if most else "least"} {text(aim)} {unit}: {value / aim:.3g} of it' if aim else ''
    print(f'{name:<34} {text(value):>12} {unit:<10} {beside}'.rstrip(), flush=True)


def print_comparison(comparison: Mapping, unit: str, aims: Mapping[str, float]) -> None:
    """Prints a result of `compare`; `aims` are the least ratios of the first side's speed to a peer's."""
    first = next(iter(comparison[f'{unit}_per_second']))
    for name, speed in comparison[f'{unit}_per_second'].items():
        print_number(name, speed, f'{unit}/s')
    for name, ratio in comparison['ratios'].items():
        print_number(f'{first} / {name}', ratio['ratio'], 'times', least=aims.get(name))
        print('  of single rounds: {:.3g} to {:.3g} times'.format(*ratio['spread']))


def check_output(output: str | None) -> None:
    """Raises ConfigError, before minutes of measuring, if the report cannot be written."""
    if output is None:
        return
    path = pathlib.Path(output)
    # A regular file is replaced, which needs its folder; a device such as /dev/stdout is written to.
    place = path if path.exists() and not path.is_file() else path.parent
    if not os.access(place, os.W_OK) or path.is_dir():
        raise ConfigError(f'--output={output}: cannot be written')


def write_output(output: str | None, report: Mapping[str, object]) -> None:
    """Writes a report with versions, hardware and the machine's load to a JSON file, if one is named."""
    if output is None:
        return
    about = process.environment()
    installed = filter(importlib.util.find_spec, ('torch', 'transformers', 'ctranslate2', 'libtpu'))
    about['versions'] |= {name: importlib.metadata.version(name) for name in installed}
    files.write_json(pathlib.Path(output), {**report, 'load': os.getloadavg(), **about})
