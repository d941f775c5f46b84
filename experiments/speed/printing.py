"""How benchmarks print what they measure, and keep it."""

import importlib.metadata
import importlib.util
import os
import pathlib
from collections.abc import Mapping

from transformer import files
from transformer.config import ConfigError
from transformer.runs import process


def tell(
    name: str, value: float, unit: str, *, most: float | None = None, least: float | None = None
) -> None:
    """Prints a figure, its aim and the ratio of the two."""
    aim = most or least
    shown = lambda number: f'{number:,.0f}' if number >= 1000 else f'{number:.3g}'
    told = f'at {"most" if most else "least"} {shown(aim)} {unit}: {value / aim:.3g} of it' if aim else ''
    print(f'{name:<34} {shown(value):>12} {unit:<10} {told}'.rstrip(), flush=True)


def tell_ratios(found: dict[str, object], unit: str, leasts: Mapping[str, float]) -> None:
    """Prints what `turns.compare` found.

    Args:
      leasts: by a peer's name, how many times its speed ours should be.
    """
    for name, speed in found[f'{unit}_per_second'].items():
        tell(name, speed, f'{unit}/s')
    for name, ratio in found['ratios'].items():
        tell(f'ours / {name}', ratio['ratio'], 'times', least=leasts.get(name))
        print('  of single rounds: {:.3g} to {:.3g} times'.format(*ratio['spread']))


def check_report(output: str | None) -> None:
    """Raises ConfigError where `write_report` could not write, which is told before minutes of measuring."""
    if output is None:
        return
    path = pathlib.Path(output)
    # A file is replaced in its folder. What is none, such as /dev/stdout, is written to.
    place = path if path.exists() and not path.is_file() else path.parent
    if not os.access(place, os.W_OK) or path.is_dir():
        raise ConfigError(f'--output={output}: cannot be written')


def write_report(output: str | None, found: dict[str, object]) -> None:
    """Writes what was measured to a JSON file, if one is named, with what it was measured on."""
    if output is None:
        return
    about = process.environment()
    installed = filter(importlib.util.find_spec, ('torch', 'transformers', 'ctranslate2', 'libtpu'))
    about['versions'] |= {name: importlib.metadata.version(name) for name in installed}
    files.write_json(pathlib.Path(output), {**found, 'load': os.getloadavg(), **about})
