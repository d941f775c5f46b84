"""Forced scores: how likely a model finds given texts, line by line, and which of several it prefers.

A line has columns with a tab between them. A first line may name them: the fields of the model (`source`
and `target`, or `text`), and with contrasts `kind`, and `contrast` for each wrong text.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

from absl import logging

from transformer.cli.lines import Progress
from transformer.config import Config, ConfigError
from transformer.inference import likelihood
from transformer.runs.restore import Trained
from transformer.tasks import verb_of
from transformer.tasks.contract import Likelihood

CONTRAST, KIND = 'contrast', 'kind'


class Item(NamedTuple):
    """One line: its number, counted from 0, its kind if it has one, its context, and the texts to score."""

    number: int
    kind: str | None
    context: tuple[str, ...]
    texts: tuple[str, ...]


class Columns(NamedTuple):
    """What the columns of a line hold; where there are contrasts, further columns hold more of them.

    fields: those of the model, the one that it predicts last.
    """

    names: tuple[str, ...]
    fields: tuple[str, ...]

    def read(self, number: int, line: str) -> Item:
        """The item of a line.

        Raises:
          ConfigError: it has too few columns, or too many.
        """
        contrasts = CONTRAST in self.names
        cells = [line] if len(self.names) == 1 else line.split('\t')
        few = len(cells) < len(self.names)
        if few or (len(cells) > len(self.names) and not contrasts):
            shown = ', '.join(self.names) + (', more of them' if contrasts else '')
            there = f'{len(cells)} column' + 's' * (len(cells) > 1)
            raise ConfigError(f'line {number + 1}: {there}; expected {shown}, with tabs between them')
        names = self.names + (CONTRAST,) * (len(cells) - len(self.names))
        of = {name: cell for name, cell in zip(names, cells, strict=True) if name != CONTRAST}
        wrong = [cell for name, cell in zip(names, cells, strict=True) if name == CONTRAST]
        *context, scored = (of[field] for field in self.fields)
        return Item(number, of.get(KIND), tuple(context), (scored, *wrong))


def columns(config: Config, *, contrast: bool = False) -> Columns:
    """The columns of lines without a header."""
    fields = likelihood.fields(config)
    return Columns(fields + (CONTRAST,) * contrast, fields)


def named_columns(config: Config, line: str, *, contrast: bool) -> Columns | None:
    """The columns that a header names, at least two; None if the line is no header."""
    names = tuple(line.split('\t'))
    fields = likelihood.fields(config)
    if len(names) == 1:
        return None
    wanted = {*fields, *(CONTRAST,) * contrast}
    possible = wanted | {*(KIND,) * contrast}
    once = [name for name in names if name != CONTRAST]
    is_header = wanted <= set(names) <= possible and len(once) == len(set(once))
    return Columns(names, fields) if is_header else None


def items(chunks: Iterable[list[str]], config: Config, *, contrast: bool) -> Iterator[list[Item]]:
    """Yields the items of lines.

    Raises:
      ConfigError: a line has other columns than it should; the items before it were yielded.
    """
    known, first = columns(config, contrast=contrast), 0
    for chunk in chunks:
        lines = list(enumerate(chunk, start=first))
        if first == 0 and (header := named_columns(config, chunk[0], contrast=contrast)):
            known, lines = header, lines[1:]
        found = []
        try:
            for number, line in lines:
                found.append(known.read(number, line))
        except ConfigError:
            yield found
            raise
        yield found
        first += len(chunk)


class Tally:
    """How often the first text was the likeliest, overall and by kind.

    Lines without a score do not count, nor do those that have the first text among the others: they would
    count as wrong whatever the model.
    """

    def __init__(self):
        self._right: dict[str | None, list[bool]] = {}
        self.unscored = self.equal = 0

    def add(self, item: Item, scores: Sequence[float]) -> bool | None:
        """Counts a line; returns whether its first text is likelier than all others, None if unknown."""
        first, *others = item.texts
        if first in others:
            logging.warning('line %d: not counted, a wrong text equals the right one', item.number + 1)
            self.equal += 1
            return None
        if any(math.isnan(score) for score in scores):
            self.unscored += 1
            return None
        right = scores[0] > max(scores[1:])
        self._right.setdefault(item.kind, []).append(right)
        return right

    def shares(self) -> dict[str, object]:
        """`share` and `count`, overall and for each of `kinds`; a share is null where nothing was counted.

        `unscored` and `equal` say how many lines did not count, and why.
        """
        share = lambda found: {'share': sum(found) / len(found) if found else None, 'count': len(found)}
        everything = [right for found in self._right.values() for right in found]
        kinds = {kind: share(found) for kind, found in sorted(self._right.items()) if kind is not None}
        return share(everything) | {'unscored': self.unscored, 'equal': self.equal, 'kinds': kinds}

    def describe(self) -> list[str]:
        """Lines for people."""
        shares = self.shares()
        told = [f'the first is likeliest: {_percent(shares)}']
        told += [f'  {kind}: {_percent(share)}' for kind, share in shares['kinds'].items()]
        if self.unscored:
            told.append(f'not scored: {self.unscored:,}')
        if self.equal:
            told.append(f'not counted, a wrong text equals the right one: {self.equal:,}')
        return told


def _percent(share: dict[str, object]) -> str:
    return f'{100 * share["share"]:.1f} % of {share["count"]:,}' if share['count'] else 'of 0'


def write(
    trained: Trained,
    chunks: Iterable[list[str]],
    output: BinaryIO,
    progress: Progress,
    *,
    contrast: bool = False,
    pieces: bool = False,
    as_json: bool = False,
) -> Tally | None:
    """Writes log p of the text of every line, or of each of its texts; returns how the contrasts went.

    Args:
      contrast: whether lines have wrong texts after the right one.
      pieces: whether log p of every piece follows.
      as_json: whether each line is an object, with `line`, `logp`, `pieces`, `kind` and `right`.

    Raises:
      ConfigError: a line has other columns than it should; the lines before it are answered.
    """
    tally, done = Tally(), 0
    score = verb_of(trained.config, 'likelihoods')
    with progress:
        for found in items(chunks, trained.config, contrast=contrast):
            progress.resume()
            examples = [(*item.context, text) for item in found for text in item.texts]
            numbers = [item.number for item in found for _ in item.texts]
            share = len(found) / max(len(examples), 1)
            scored = iter(score(trained, examples, numbers, lambda n, share=share: progress.add(n * share)))
            done += len(found)
            with progress.paused(done):
                for item in found:
                    likelihoods = [next(scored) for _ in item.texts]
                    right = tally.add(item, [each.total for each in likelihoods]) if contrast else None
                    tell = _json if as_json else _line
                    output.write(tell(item, likelihoods, right, contrast, pieces).encode() + b'\n')
                output.flush()
    return tally if contrast else None


def _line(
    item: Item, likelihoods: Sequence[Likelihood], right: bool | None, contrast: bool, pieces: bool
) -> str:
    """The totals, then the pieces of each text, with tabs between them."""
    del item, right, contrast
    told = [f'{each.total:.6f}' for each in likelihoods]
    if pieces:
        for each in likelihoods:
            pairs = zip(each.pieces, each.logp.tolist(), strict=True)
            told.append(' '.join(f'{_visible(piece)} {logp:.6f}' for piece, logp in pairs))
    return '\t'.join(told)


def _json(
    item: Item, likelihoods: Sequence[Likelihood], right: bool | None, contrast: bool, pieces: bool
) -> str:
    """An object; with contrasts `logp` and `pieces` are lists of each text's."""
    logp = [_number(each.total) for each in likelihoods]
    parts = [
        [[piece, _number(p)] for piece, p in zip(each.pieces, each.logp.tolist(), strict=True)]
        for each in likelihoods
    ]
    told = {'line': item.number, 'logp': logp if contrast else logp[0]}
    told |= {'right': right, 'kind': item.kind} if contrast else {}
    told |= {'pieces': parts if contrast else parts[0]} if pieces else {}
    return json.dumps(told, ensure_ascii=False)


def _number(value: float) -> float | None:
    """NaN, which JSON lacks, as null."""
    return None if math.isnan(value) else value


def _visible(piece: str) -> str:
    """A piece without blanks and control characters, which are written as <0x09>."""
    return re.sub(
        r'[\s\x00-\x1f\x7f]', lambda found: ''.join(f'<0x{b:02X}>' for b in found[0].encode()), piece
    )
