"""Renders tables for a terminal and as Markdown, LaTeX, CSV and JSON; page.py renders HTML."""

import csv
import io
import itertools
import json
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tabulate import tabulate

from transformer.cli.terminal import fold, terminal_width

# What narrow formats show first.
ORDER = ('score', 'option', 'cost', 'text')
GAP = 2  # columns between two columns in a terminal
# Characters of a line of a LaTeX table in \footnotesize that a page of 345 pt holds.
LATEX_WIDTH = 80
_LATEX = {
    **{sign: f'\\{sign}' for sign in '&%$#_{}'},
    '\\': r'\textbackslash{}', '~': r'\textasciitilde{}', '^': r'\textasciicircum{}',
    'Δ': r'$\Delta$', '≈': r'$\approx$', '±': r'$\pm$', '→': r'$\to$', '§': r'\S',
    '<': '$<$', '>': '$>$', '|': '$|$',
}  # fmt: skip


class Column(NamedTuple):
    """One column.

    Attributes:
      kind: row (the names), option, score, cost or text.
      texts: the cells, one for each row.
      counts: the number of runs that each cell is the mean of; 0 where it is no mean.
    """

    heading: str
    kind: str
    texts: Sequence[str]
    counts: Sequence[int] = ()

    def cells(self) -> list[str]:
        """The texts, each with its count in brackets."""
        counts = self.counts or [0] * len(self.texts)
        return [f'{text} ({n})' if text and n else text for text, n in zip(self.texts, counts, strict=True)]

    def is_left(self) -> bool:
        """Whether its cells are aligned to the left."""
        return self.kind in ('row', 'text') or self.heading == 'other'


def compact(columns: Sequence[Column]) -> tuple[list[Column], list[str]]:
    """Orders columns for narrow formats; if all counts are equal, a note replaces them.

    Returns:
      The columns, and the notes.
    """
    pairs = [pair for c in columns if c.counts for pair in zip(c.texts, c.counts, strict=True)]
    counts = {count for text, count in pairs if text and count}
    first = [column for column in columns if column.kind == 'row']
    ordered = [*first, *(column for kind in ORDER for column in columns if column.kind == kind)]
    if len(counts) != 1:
        return ordered, []
    note = f'Seeds of every number that is ours: {counts.pop()}.'
    return [column._replace(counts=()) for column in ordered], [note]


def blocks(columns: Sequence[Column], width: float) -> list[list[Column]]:
    """Groups columns so that each group fits in a width, after the names of the rows.

    Columns of one kind stay together where they fit, and take the first group that has room.
    """
    names, *rest = columns
    kinds = [[column for column in rest if column.kind == kind] for kind in ORDER]
    groups: list[list[Column]] = []
    for together in filter(None, kinds):
        group = next((group for group in groups if _width([*group, *together]) <= width), None)
        if group is not None:
            group += together
            continue
        groups.append([names])
        for column in together:
            if len(groups[-1]) > 1 and _width([*groups[-1], column]) > width:
                groups.append([names])
            groups[-1].append(column)
    return groups


def _width(columns: Sequence[Column]) -> int:
    widest = [
        max(len(line) for text in [*_two_lines(column.heading), *column.cells()] for line in text.split('\n'))
        for column in columns
    ]
    return sum(widest) + GAP * (len(widest) - 1)


def _two_lines(heading: str) -> list[str]:
    """Splits a heading after its first word."""
    first, _, rest = heading.partition(' ')
    return [first, rest]


def terminal(columns: Sequence[Column], notes: Sequence[str]) -> str:
    """Renders a table no wider than the terminal: the scores first, the other columns beside or below."""
    width, (columns, more) = terminal_width(), compact(columns)
    if width < math.inf:
        columns = _wrap(columns, int(width))
    parts = [_plain(block, narrow=width < math.inf) for block in blocks(columns, width)]
    return '\n\n'.join([*parts, '\n'.join(map(fold, [*notes, *more]))]) + '\n'


def _wrap(columns: Sequence[Column], width: int) -> list[Column]:
    """Wraps texts that are too wide to stand beside the name of their row."""
    names, *rest = columns
    room = max(width - _width([names]) - GAP, 1)
    wrap = lambda text: '\n'.join(textwrap.wrap(text, room))
    return [names, *(c._replace(texts=list(map(wrap, c.texts))) if c.is_left() else c for c in rest)]


def _plain(columns: Sequence[Column], *, narrow: bool) -> str:
    """The columns as plain text; in a narrow table a heading of several words takes two lines."""
    headings = [_two_lines(c.heading) if narrow else [c.heading, ''] for c in columns]
    heads = [line for line in zip(*headings, strict=True) if any(line)]
    rows = zip(*(column.cells() for column in columns), strict=True)
    # A cell of several lines makes its row several lines high.
    split = [itertools.zip_longest(*(text.split('\n') for text in row), fillvalue='') for row in rows]
    cells = [line for row in split for line in row]
    widths = [max(map(len, column)) for column in zip(*heads, *cells, strict=True)]
    lines = [*heads, ['-' * width for width in widths], *cells]
    pad = lambda column, text, width: text.ljust(width) if column.is_left() else text.rjust(width)
    gap = ' ' * GAP
    return '\n'.join(gap.join(map(pad, columns, line, widths)).rstrip() for line in lines)


def markdown(columns: Sequence[Column], notes: Sequence[str]) -> str:
    """Renders a table in GitHub's Markdown, with the notes as a list."""
    rows = zip(*(column.cells() for column in columns), strict=True)
    align = ['left' if column.is_left() else 'right' for column in columns]
    headings = [column.heading for column in columns]
    shown = tabulate(list(rows), headings, 'github', colalign=align, disable_numparse=True)
    return shown + '\n\n' + ''.join(f'- {note}\n' for note in notes)


def latex(columns: Sequence[Column], notes: Sequence[str]) -> str:
    """Renders tables below each other, each at most as wide as a page; needs the package booktabs."""
    columns, more = compact(columns)
    parts = [_tabular(block) for block in blocks(columns, LATEX_WIDTH)]
    opening = '{\\footnotesize\\setlength{\\tabcolsep}{2.5pt}\\noindent\n'
    comments = ''.join(f'% {note}\n' for note in [*notes, *more])
    return opening + '\n\n\\medskip\\noindent\n'.join(parts) + '\\par}\n\n' + comments


def _tabular(columns: Sequence[Column]) -> str:
    align = ''.join('l' if column.is_left() else 'r' for column in columns)
    headings = [_two_lines(column.heading) for column in columns]
    lines = [_line(line) for line in zip(*headings, strict=True) if any(line)]
    rows = [_line(cells) for cells in zip(*(column.cells() for column in columns), strict=True)]
    body = ['\\toprule', *lines, '\\midrule', *rows, '\\bottomrule']
    return '\\begin{tabular}{@{}' + align + '@{}}\n' + '\n'.join(body) + '\n\\end{tabular}\n'


def _line(cells: Iterable[str]) -> str:
    return ' & '.join(map(_escaped, cells)) + r' \\'


def _escaped(text: str) -> str:
    shown = ''.join(_LATEX.get(sign, sign) for sign in text)
    return re.sub(r'^-(?=\d)', '$-$', shown)


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Renders a line for each row; unknown values are empty."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator='\n')
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def json_text(report: Mapping[str, object]) -> str:
    """Renders JSON, in which null stands for an infinite number."""
    return json.dumps(_finite(report), indent=2, ensure_ascii=False, allow_nan=False) + '\n'


def _finite(value):
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
