"""The formats of a report: for a terminal, Markdown, LaTeX, CSV and JSON. A page is page.py's business."""

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
      texts: the cells, a text for each row.
      counts: how many runs each cell is the mean of; 0 where that says nothing.
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
        """Whether its cells stand to the left."""
        return self.kind in ('row', 'text') or self.heading == 'other'


def compact(columns: Sequence[Column]) -> tuple[list[Column], list[str]]:
    """The columns without counts where all are equal, in the order of narrow formats; and a note of that."""
    pairs = [pair for c in columns if c.counts for pair in zip(c.texts, c.counts, strict=True)]
    counts = {count for text, count in pairs if text and count}
    first = [column for column in columns if column.kind == 'row']
    ordered = [*first, *(column for kind in ORDER for column in columns if column.kind == kind)]
    if len(counts) != 1:
        return ordered, []
    note = f'Seeds of every number that is ours: {counts.pop()}.'
    return [column._replace(counts=()) for column in ordered], [note]


def blocks(columns: Sequence[Column], width: float) -> list[list[Column]]:
    """Groups of columns that fit in a width, each with the names of the rows before them.

    Columns of one kind stay together where they fit, and take the first group that has room.
    """
    names, *rest = columns
    kinds = [[column for column in rest if column.kind == kind] for kind in ORDER]
    found: list[list[Column]] = []
    for together in filter(None, kinds):
        block = next((b for b in found if _width([*b, *together]) <= width), None)
        if block is not None:
            block += together
            continue
        found.append([names])
        for column in together:
            if len(found[-1]) > 1 and _width([*found[-1], column]) > width:
                found.append([names])
            found[-1].append(column)
    return found


def _width(columns: Sequence[Column]) -> int:
    widest = [
        max(len(line) for text in [*_two_lines(column.heading), *column.cells()] for line in text.split('\n'))
        for column in columns
    ]
    return sum(widest) + GAP * (len(widest) - 1)


def _two_lines(heading: str) -> list[str]:
    """The first word of a heading, and the rest below it."""
    first, _, rest = heading.partition(' ')
    return [first, rest]


def terminal(columns: Sequence[Column], notes: Sequence[str]) -> str:
    """The table folded to the width of the terminal: the scores, and below them what else does not fit."""
    width, (columns, more) = terminal_width(), compact(columns)
    if width < math.inf:
        columns = _wrapped(columns, int(width))
    parts = [_plain(block, folded=width < math.inf) for block in blocks(columns, width)]
    return '\n\n'.join([*parts, '\n'.join(map(fold, [*notes, *more]))]) + '\n'


def _wrapped(columns: Sequence[Column], width: int) -> list[Column]:
    """The columns with several lines where a text is too wide to stand beside the name of its row."""
    names, *rest = columns
    room = max(width - _width([names]) - GAP, 1)
    wrap = lambda text: '\n'.join(textwrap.wrap(text, room))
    return [names, *(c._replace(texts=list(map(wrap, c.texts))) if c.is_left() else c for c in rest)]


def _plain(columns: Sequence[Column], *, folded: bool) -> str:
    """The columns as plain text; folded, a heading of several words takes two lines."""
    headings = [_two_lines(c.heading) if folded else [c.heading, ''] for c in columns]
    heads = [list(line) for line in zip(*headings, strict=True) if any(line)]
    rows = zip(*(column.cells() for column in columns), strict=True)
    cells = [
        list(line)
        for row in rows
        for line in itertools.zip_longest(*(text.split('\n') for text in row), fillvalue='')
    ]
    widths = [max(map(len, column)) for column in zip(*heads, *cells, strict=True)]
    aligned = [
        (' ' * GAP)
        .join(
            text.ljust(width) if column.is_left() else text.rjust(width)
            for column, text, width in zip(columns, line, widths, strict=True)
        )
        .rstrip()
        for line in [*heads, ['-' * width for width in widths], *cells]
    ]
    return '\n'.join(aligned)


def markdown(columns: Sequence[Column], notes: Sequence[str]) -> str:
    """The table of GitHub's Markdown, with the notes as a list."""
    lines = zip(*(column.cells() for column in columns), strict=True)
    headings, align = zip(*((c.heading, 'left' if c.is_left() else 'right') for c in columns), strict=True)
    shown = tabulate(list(lines), headings, 'github', colalign=align, disable_numparse=True)
    return shown + '\n\n' + ''.join(f'- {note}\n' for note in notes)


def latex(columns: Sequence[Column], notes: Sequence[str]) -> str:
    """Tables below each other, each as wide as a page at most; needs the package booktabs."""
    columns, more = compact(columns)
    parts = [_tabular(block) for block in blocks(columns, LATEX_WIDTH)]
    opening = '{\\footnotesize\\setlength{\\tabcolsep}{2.5pt}\\noindent\n'
    told = ''.join(f'% {note}\n' for note in [*notes, *more])
    return opening + '\n\n\\medskip\\noindent\n'.join(parts) + '\\par}\n\n' + told


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
    """A line for each row; what is unknown is empty."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator='\n')
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def json_text(report: Mapping[str, object]) -> str:
    """The report as JSON, which knows no infinite number: null stands for it."""
    return json.dumps(_finite(report), indent=2, ensure_ascii=False, allow_nan=False) + '\n'


def _finite(value):
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
