"""score-pairs: log p of the texts in each line, and how often the right one of several is the likeliest.

Tabs separate the columns of a line. If there are several, a first line can name them: the fields of the model
(`source` and `target`, or `text`) and, with contrasts, `kind`, and `contrast` for each wrong text.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

from absl import logging

from transformer import files
from transformer.cli.streams import LineProgress
from transformer.config import ConfigError
from transformer.nn import models
from transformer.runs.restore import Trained
from transformer.tasks.contract import Likelihood

CONTRAST, KIND = 'contrast', 'kind'


class Item(NamedTuple):
    """One line of the input."""

    number: int  # counted from 0
    kind: str | None
    context: tuple[str, ...]  # the fields before the text
    texts: tuple[str, ...]  # the right text, then the wrong ones


def read_item(number: int, line: str, names: tuple[str, ...], fields: tuple[str, ...]) -> Item:
    """Parses a line with columns of these names. With contrasts, more of them can follow."""
    cells = [line] if len(names) == 1 else line.split('\t')
    more = len(cells) - len(names)
    if more < 0 or (more and CONTRAST not in names):
        expected = ', '.join(names) + (', more of them' if CONTRAST in names else '')
        columns = f'{len(cells)} column' + 's' * (len(cells) > 1)
        raise ConfigError(f'line {number + 1}: {columns}; expected {expected}, with tabs between them')
    pairs = list(zip(names + (CONTRAST,) * more, cells, strict=True))
    by_name = dict(pairs)
    *context, right = (by_name[field] for field in fields)
    wrong = (cell for name, cell in pairs if name == CONTRAST)
    return Item(number, by_name.get(KIND), tuple(context), (right, *wrong))


def items(chunks: Iterable[list[str]], fields: tuple[str, ...], *, contrast: bool) -> Iterator[list[Item]]:
    """Yields the items of each chunk of lines and, before an error, the items of the lines above it."""
    wanted, first = fields + (CONTRAST,) * contrast, 0
    names = wanted
    for chunk in chunks:
        lines, header, read = list(enumerate(chunk, start=first)), tuple(chunk[0].split('\t')), []
        once = [name for name in header if name != CONTRAST]
        known = {*wanted, *(KIND,) * contrast}
        is_header = set(wanted) <= set(header) <= known and len(once) == len(set(once)) and len(header) > 1
        if first == 0 and is_header:
            names, lines = header, lines[1:]
        try:
            for number, line in lines:
                read.append(read_item(number, line, names, fields))
        except ConfigError:
            yield read
            raise
        yield read
        first += len(chunk)


class Tally:
    """A count of how often the first text is the likeliest, overall and by kind.

    Lines without a score do not count. Nor do lines that repeat the first text among the others: no model
    could get them right.
    """

    def __init__(self):
        self._right: dict[str | None, list[bool]] = {}
        self.unscored = self.equal = 0

    def add(self, item: Item, scores: Sequence[float]) -> bool | None:
        """Counts a line.

        Returns:
          Whether its first text is likelier than all others, or None if the line does not count.
        """
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
        """Returns how often the first text is the likeliest.

        Returns:
          `share` and `count`, overall and for each of `kinds`, where a share is None if no line was counted;
          `unscored` and `equal`, the numbers of lines that did not count, by reason.
        """
        share = lambda right: {'share': sum(right) / len(right) if right else None, 'count': len(right)}
        everything = [right for of_kind in self._right.values() for right in of_kind]
        kinds = {kind: share(right) for kind, right in sorted(self._right.items()) if kind is not None}
        return share(everything) | {'unscored': self.unscored, 'equal': self.equal, 'kinds': kinds}

    def describe(self) -> list[str]:
        """Returns the shares as lines for people."""
        shares = self.shares()
        percent = lambda x: f'{100 * x["share"]:.1f} % of {x["count"]:,}' if x['count'] else 'of 0'
        lines = [f'the first is likeliest: {percent(shares)}']
        lines += [f'  {kind}: {percent(share)}' for kind, share in shares['kinds'].items()]
        uncounted = {'scored': self.unscored, 'counted, a wrong text equals the right one': self.equal}
        return lines + [f'not {why}: {count:,}' for why, count in uncounted.items() if count]


def write(
    verb: Callable[..., Sequence[Likelihood]],
    trained: Trained,
    chunks: Iterable[list[str]],
    output: BinaryIO,
    progress: LineProgress,
    *,
    contrast: bool = False,
    pieces: bool = False,
    as_json: bool = False,
) -> Tally | None:
    """Writes log p of each line's text or, with contrasts, of all its texts, and returns their tally.

    Args:
      verb: `(trained, examples, numbers, on_done) -> a likelihood for each example`.
      contrast: whether lines have wrong texts after the right one.
      pieces: whether to add log p of every piece.
      as_json: whether to write objects, with `line`, `logp`, `pieces`, `kind` and `right`.
    """
    tally, done, format_line = Tally(), 0, _json if as_json else _tabs
    with progress:
        for chunk in items(chunks, models.fields(trained.config), contrast=contrast):
            progress.resume()
            examples = [(*item.context, text) for item in chunk for text in item.texts]
            numbers = [item.number for item in chunk for _ in item.texts]
            share = len(chunk) / max(len(examples), 1)
            add = lambda texts, share=share: progress.add(texts * share)
            scored = iter(verb(trained, examples, numbers, add))
            done = chunk[-1].number + 1 if chunk else done
            with progress.paused(done):
                for item in chunk:
                    scores = [next(scored) for _ in item.texts]
                    right = tally.add(item, [score.total for score in scores]) if contrast else None
                    with files.naming(output):
                        output.write(f'{format_line(item, scores, right, contrast, pieces)}\n'.encode())
                with files.naming(output):
                    output.flush()
    return tally if contrast else None


def _tabs(item: Item, scores: Sequence[Likelihood], right: bool | None, contrast: bool, pieces: bool) -> str:
    """Formats the totals, then the pieces of each text, separated by tabs."""
    cells = [f'{score.total:.6f}' for score in scores]
    for score in scores if pieces else ():
        pairs = zip(score.pieces, score.logp.tolist(), strict=True)
        cells.append(' '.join(f'{_visible(piece)} {logp:.6f}' for piece, logp in pairs))
    return '\t'.join(cells)


def _json(item: Item, scores: Sequence[Likelihood], right: bool | None, contrast: bool, pieces: bool) -> str:
    """Formats an object. With contrasts, `logp` and `pieces` list an entry per text. NaN is null."""
    logp = [text.total for text in scores]
    parts = [[*map(list, zip(text.pieces, text.logp.tolist(), strict=True))] for text in scores]
    content = {'line': item.number, 'logp': logp if contrast else logp[0]}
    content |= {'right': right, 'kind': item.kind} if contrast else {}
    content |= {'pieces': parts if contrast else parts[0]} if pieces else {}
    return files.json_text(content)


def _visible(piece: str) -> str:
    """Returns a piece with codes such as <0x09> in place of its blanks and control characters."""
    hexadecimal = lambda match: ''.join(f'<0x{byte:02X}>' for byte in match[0].encode())
    return re.sub(r'[\s\x00-\x1f\x7f]', hexadecimal, piece)
