"""Renders a report as one self-contained HTML page: a sortable table, its notes, and further HTML."""

import html
import pathlib
import string
from collections.abc import Sequence

from experiments.rendering import formats
from experiments.rendering.formats import Column


def document(title: str, columns: Sequence[Column], notes: Sequence[str], more: str) -> str:
    """Renders a page with a table, the notes below it, and further HTML."""
    columns, more_notes = formats.compact(columns)
    template = string.Template(pathlib.Path(__file__).with_name('page.html').read_text('utf-8'))
    notes = ''.join(f'<li>{html.escape(note)}</li>\n' for note in [*notes, *more_notes])
    return template.substitute(title=html.escape(title), table=table(columns), notes=notes, more=more)


def table(columns: Sequence[Column]) -> str:
    """Renders the table; each cell's class is the kind of its column."""

    def line(tag: str, texts: Sequence[str]) -> str:
        kinds = [column.kind + ' left' * column.is_left() for column in columns]
        cells = zip(kinds, texts, strict=True)
        return ''.join(f'<{tag} class="{kind}">{html.escape(text)}</{tag}>' for kind, text in cells)

    heading = line('th', [column.heading for column in columns])
    rows = zip(*(column.cells() for column in columns), strict=True)
    body = '\n'.join(f'<tr>{line("td", row)}</tr>' for row in rows)
    return f'<table>\n<thead><tr>{heading}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>'
