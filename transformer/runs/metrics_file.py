"""Reads metrics.jsonl, also while a training writes it. Imports no jax, so that a sweep's status is quick."""

from collections.abc import Iterator
from typing import Any

from transformer import files
from transformer.files import Path


def read(folder: Path) -> Iterator[dict[str, float]]:
    """Yields the lines of metrics.jsonl, without a last line that is still being written."""
    file = folder / 'metrics.jsonl'
    try:
        lines = file.read_bytes().split(b'\n')[:-1]
    except FileNotFoundError:
        return
    for number, line in enumerate(lines, 1):
        yield parse_line(line, f'{file}: line {number}')


def parse_line(line: bytes, name: str) -> dict[str, Any]:
    """Reads a line of metrics.jsonl. Raises ConfigError, which begins with `name`, if it is damaged."""
    return files.parse_json(line, {'step': files.COUNT, '*': (float, None)}, name)


def dev_losses(folder: Path) -> list[tuple[int, float]]:
    """Returns the steps and dev losses of a training, without those not finite, which are written as null."""
    return [(line['step'], line['dev_loss']) for line in read(folder) if line.get('dev_loss') is not None]
