"""Renders tables for a terminal and as Markdown, LaTeX, CSV and JSON; page.py renders HTML."""

import csv
import io
import itertools
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tabulate import tabulate

from transformer import files
from transformer.cli.terminal import fold, terminal_width
from transformer.config import ConfigError

ORDER = ('row', 'score', 'option', 'cost', 'text')  # kinds of columns, as ordered in narrow formats
GAP = 2  # blanks between two columns in a terminal
# Characters of \scriptsize that fit in a line of a LaTeX page 345 pt wide.
LATEX_WIDTH = 92
_LATEX_TABLE = r'\begin{table}' + '\n' + r'\centering\scriptsize\setlength{\tabcolsep}{2.5pt}'
# The paper's symbols, as headings.
_SYMBOLS = {
    'N': '$N$', 'h': '$h$', 'd_model': '$d_{\\mathrm{model}}$', 'd_ff': '$d_{\\mathrm{ff}}$', 'd_k': '$d_k$',
    'd_v': '$d_v$', 'P_drop': '$P_{\\mathrm{drop}}$', 'eps_ls': '$\\epsilon_{\\mathrm{ls}}$',
}  # fmt: skip
_LATEX = {
    **{sign: f'\\{sign}' for sign in '&%$#_{}'},
    '\\': r'\textbackslash{}', '~': r'\textasciitilde{}', '^': r'\textasciicircum{}',
    'Δ': r'$\Delta$', '≈': r'$\approx$', '±': r'$\pm$', '→': r'$\to$', '§': r'\S',
    '<': '$<$', '>': '$>$', '|': '$|$',
}  # fmt: skip


class Column(NamedTuple):
    """A column of a table."""

    heading: str
    kind: str  # one of ORDER
    texts: Sequence[str]  # the cells, one per row
    counts: Sequence[int] = ()  # the number of runs in each cell's mean; 0 if the cell is no mean

    def cells(self) -> list[str]:
        """Returns the texts, each with its count in brackets."""
        counts = self.counts or [0] * len(self.texts)
        return [f'{text} ({n})' if text and n else text for text, n in zip(self.texts, counts, strict=True)]

    def is_left(self) -> bool:
        """Returns whether the cells are aligned to the left."""
        return self.kind in ('row', 'text') or self.heading == 'other'


def names_of_rows(columns: Sequence[Column]) -> list[Column]:
    """Returns the columns that name the rows, which are the first ones."""
    return [column for column in columns if column.kind == 'row']


def compact(columns: Sequence[Column]) -> tuple[list[Column], list[str]]:
    """Orders columns for narrow formats, and replaces the counts by a note if all are equal."""
    pairs = [pair for c in columns if c.counts for pair in zip(c.texts, c.counts, strict=True)]
    counts = {count for text, count in pairs if text and count}
    ordered = sorted(columns, key=lambda column: ORDER.index(column.kind))
    if len(counts) != 1:
        return ordered, []
    note = f'Seeds of every number that is ours: {counts.pop()}.'
    return [column._replace(counts=()) for column in ordered], [note]


def blocks(columns: Sequence[Column], width: float) -> list[list[Column]]:
    """Groups columns so that each group fits in a width; every group begins with the names of the rows."""
    names = names_of_rows(columns)
    groups = [[*names]]
    for column in columns[len(names) :]:
        if len(groups[-1]) > len(names) and _width([*groups[-1], column]) > width:
            groups.append([*names])
        groups[-1].append(column)
    return groups


def _width(columns: Sequence[Column]) -> int:
    return len(max(_plain(columns, narrow=True).splitlines(), key=len))


def _two_lines(heading: str) -> list[str]:
    """Splits a heading after its first word."""
    return list(heading.partition(' ')[::2])


def terminal(columns: Sequence[Column], notes: Sequence[str]) -> str:
    """Renders a table no wider than the terminal: scores first, then other columns beside or below them."""
    width, (columns, more) = terminal_width(), compact(columns)
    if width < math.inf:
        # Texts too wide to fit beside the name of their row take several lines.
        room = max(int(width) - _width(names_of_rows(columns)) - GAP, 1)
        wrap = lambda text: '\n'.join(textwrap.wrap(text, room))
        columns = [c._replace(texts=list(map(wrap, c.texts))) if c.is_left() else c for c in columns]
    parts = [_plain(block, narrow=width < math.inf) for block in blocks(columns, width)]
    return '\n\n'.join([*parts, '\n'.join(map(fold, [*notes, *more]))]) + '\n'


def _plain(columns: Sequence[Column], *, narrow: bool) -> str:
    """Renders columns as plain text; in a narrow table a heading of several words takes two lines."""
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
    # A pipe in a text would begin a cell, and a line's end a row.
    escaped = [[' '.join(text.split()).replace('|', '\\|') for text in row] for row in [headings, *rows]]
    shown = tabulate(escaped[1:], escaped[0], 'github', colalign=align, disable_numparse=True)
    return shown + '\n\n' + ''.join(f'- {note}\n' for note in notes)


def latex(
    columns: Sequence[Column], notes: Sequence[str], caption: str | None = None, label: str | None = None
) -> str:
    """Renders a table environment with a caption and a label, for the LaTeX package booktabs.

    Columns that do not fit beside each other get further tables, which refer to the first. Notes become
    comments.

    Args:
      caption: the caption, in LaTeX; if None, the first note.
      label: the label; if None, it is made of the first note's beginning.
    """
    columns, more = compact(columns)
    others = [*notes, *more]
    label = label or 'tab:' + re.sub(r'\W+', '-', ''.join(others[:1]).partition(':')[0].lower()).strip('-')
    if caption is None:
        caption, others = _escape(''.join(others[:1])), others[1:]
    end = f'\\caption{{{caption}}}\n\\label{{{label}}}\n'
    tables = []
    for block in blocks(columns, LATEX_WIDTH):
        tables.append(f'{_LATEX_TABLE}\n{_tabular(block)}{end}\\end{{table}}\n')
        end = f'\\caption{{Further columns of Table~\\ref{{{label}}}.}}\n'
    return '\n'.join([*tables, ''.join(f'% {note}\n' for note in others)])


def _tabular(columns: Sequence[Column]) -> str:
    align = ''.join('l' if column.is_left() else 'r' for column in columns)
    headings = [_two_lines(column.heading) for column in columns]
    line = lambda cells: ' & '.join(cells) + r' \\'
    head = lambda text: _SYMBOLS.get(text) or _escape(text)
    lines = [line(map(head, heads)) for heads in zip(*headings, strict=True) if any(heads)]
    rows = [line(map(_escape, cells)) for cells in zip(*(column.cells() for column in columns), strict=True)]
    body = ['\\toprule', *lines, '\\midrule', *rows, '\\bottomrule']
    return '\\begin{tabular}{@{}' + align + '@{}}\n' + '\n'.join(body) + '\n\\end{tabular}\n'


def _escape(text: str) -> str:
    """Writes a text in LaTeX: signs of the language, minus signs, and powers of ten."""
    escaped = ''.join(_LATEX.get(sign, sign) for sign in text)
    escaped = re.sub(r'(?<![\w.}])-(?=[\d.])', '$-$', escaped)

    def power(match: re.Match) -> str:
        factor = '' if match[1] == '1' else f'{match[1]} \\cdot '
        return f'${factor}10^{{{int(match[2])}}}$'

    return re.sub(r'(?<![\w.])(\d[\d.]*)e([+-]?\d+)\b', power, escaped)


def choose(columns: Sequence[Column], names: str | None) -> list[Column]:
    """Chooses the columns with these headings (all if None), and puts the names of the rows before them.

    Several columns can have one heading, such as the p of two scores.

    Raises:
      ConfigError: there is no such column.
    """
    if names is None:
        return list(columns)
    named = names_of_rows(columns)
    known = dict.fromkeys(column.heading for column in columns)
    chosen = dict.fromkeys(name.strip() for name in names.split(','))
    if unknown := [name for name in chosen if name not in known]:
        raise ConfigError(f'--columns={unknown[0]}: no such column; choose among {", ".join(known)}')
    others = columns[len(named) :]
    return [*named, *(column for name in chosen for column in others if column.heading == name)]


def p_value(p: float) -> str:
    """Formats a probability."""
    return f'{p:.3f}' if p >= 0.001 else '<0.001'


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Renders a line for each row; unknown values are empty."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator='\n')
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def json_text(report: Mapping[str, object]) -> str:
    """Renders JSON, with null for infinite numbers and NaN."""
    return files.json_text(report, indent=2) + '\n'
