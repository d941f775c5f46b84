"""The curve of a training, thinned to be kept beside its result: losses and dev scores by update.

Imports no jax, so that curves are read quickly.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from transformer import files
from transformer.files import Path
from transformer.runs import metrics_file

FILE = 'curve.json'
POINTS = 60
_SHAPE = {
    'params_sha256': str,
    'data': {'train': str, 'dev': str},
    'points': [{'step': files.COUNT, '*': (float, None)}],
}
_DIGITS = 5  # significant
_DERIVED = 'dev_perplexity'

# A line of metrics.jsonl: its step and its numbers, of which None was not finite.
Line = Mapping[str, int | float | None]


class Curve(NamedTuple):
    """A training's curve.

    Attributes:
      params_sha256: the hash of the trained parameters, as in result.json.
      data: the hash of the pieces of each split, by split.
      points: the loss and the scores on dev at some updates. Only evaluations have scores on dev.
    """

    params_sha256: str
    data: Mapping[str, str]
    points: Sequence[Line]

    def dev_losses(self) -> dict[int, float]:
        """Returns the dev losses by update."""
        return {int(p['step']): p['dev_loss'] for p in self.points if p.get('dev_loss') is not None}


def thinned(lines: Sequence[Line], most: int = POINTS) -> list[Line]:
    """Selects at most `most` lines of metrics.jsonl, evaluations first, and keeps losses and dev scores.

    Lines are evenly spaced among the evaluations and among the others. The last evaluation is selected.
    """
    evaluated = [line for line in lines if line.get('dev_loss') is not None]
    others = [line for line in lines if line.get('dev_loss') is None]
    chosen = _evenly(evaluated, most)
    chosen += _evenly(others, most - len(chosen))
    return [_losses(line) for line in sorted(chosen, key=lambda line: line['step'])]


def _evenly(lines: list[Line], most: int) -> list[Line]:
    if len(lines) <= most:
        return [*lines]
    if most < 2:
        return lines[len(lines) - most :]
    return [lines[round(i * (len(lines) - 1) / (most - 1))] for i in range(most)]


def _losses(line: Line) -> Line:
    names = [n for n in line if (n == 'loss' or n.startswith('dev_')) and n != _DERIVED]
    rounded = {n: None if line[n] is None else float(f'{line[n]:.{_DIGITS}g}') for n in names}
    return {'step': int(line['step']), **rounded}


def data_hashes(manifest: Mapping[str, object]) -> dict[str, str]:
    """Computes a hash of the arrays that a training reads, for train and for dev."""
    sums = manifest['checksums']
    arrays = {split: {n: d for n, d in sums.items() if n.startswith(f'{split}.') and n.endswith('.bin')}
              for split in ('train', 'dev')}  # fmt: skip
    return {split: files.json_sha256(by_name) for split, by_name in arrays.items()}


def write(folder: Path, manifest: Mapping[str, object], params_sha256: str) -> None:
    """Writes curve.json from metrics.jsonl."""
    points = thinned([*metrics_file.read(folder)])
    head = {'params_sha256': params_sha256, 'data': data_hashes(manifest)}
    lines = ',\n    '.join(files.json_text(point) for point in points)
    # A point a line, so that curves can be read and compared as text.
    files.write_text(folder / FILE, f'{files.json_text(head)[:-1]}, "points": [\n    {lines}\n]}}\n')


def read(file: Path) -> Curve:
    """Reads curve.json. Raises ConfigError if it is damaged."""
    return Curve(**files.read_json(file, _SHAPE))
