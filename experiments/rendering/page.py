"""Renders a report as one self-contained HTML page: sortable tables, and pictures such as learning curves."""

import html
import io
import math
import pathlib
import string
from collections.abc import Mapping, Sequence

import matplotlib

from experiments.rendering import formats
from experiments.rendering.formats import Column

matplotlib.use('agg')
from matplotlib import pyplot as plt
from matplotlib import ticker
from matplotlib.figure import Figure

Curve = Sequence[tuple[int, float]]
Limits = tuple[float, float]


def page(
    title: str,
    columns: Sequence[Column],
    notes: Sequence[str],
    meaning: str,
    curves: Mapping[str, Sequence[Curve]],
    base: str,
) -> str:
    """The page, as HTML.

    Args:
      notes: printed below the table.
      meaning: the score that the curves show.
      curves: the steps and scores of each run, by row.
      base: the row whose curves every picture shows in grey.
    """
    pictures = '\n'.join(_pictures(curves, base)) or '<p>No learning curves: the metrics are missing.</p>'
    return document(
        title,
        columns,
        notes,
        f'<h2>On the development set: {html.escape(meaning)}</h2>\n'
        f'<p>Blue: the runs of the row. Grey: the runs of {html.escape(base)}. '
        'All pictures have the same axes.</p>\n'
        f'<div class="curves">\n{pictures}\n</div>',
    )


def document(title: str, columns: Sequence[Column], notes: Sequence[str], more: str) -> str:
    """A page with a table, the notes below it, and more, as HTML."""
    columns, more_notes = formats.compact(columns)
    template = string.Template(pathlib.Path(__file__).with_name('page.html').read_text())
    notes = listing([*notes, *more_notes])
    return template.substitute(title=html.escape(title), table=table(columns), notes=notes, more=more)


def listing(notes: Sequence[str]) -> str:
    """Notes as the items of an HTML list."""
    return ''.join(f'<li>{html.escape(note)}</li>\n' for note in notes)


def table(columns: Sequence[Column]) -> str:
    """The table; each cell's class is the kind of its column."""
    headings = [_cell('th', column, html.escape(column.heading)) for column in columns]
    lines = [
        ''.join(_cell('td', column, html.escape(text)) for column, text in zip(columns, cells, strict=True))
        for cells in zip(*(column.cells() for column in columns), strict=True)
    ]
    body = '\n'.join(f'<tr>{line}</tr>' for line in lines)
    return f'<table>\n<thead><tr>{"".join(headings)}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>'


def _cell(tag: str, column: Column, content: str) -> str:
    left = ' left' if column.is_left() else ''
    return f'<{tag} class="{column.kind}{left}">{content}</{tag}>'


def _pictures(curves: Mapping[str, Sequence[Curve]], base: str) -> list[str]:
    """A picture of each row, all on the same axes."""
    points = [point for runs in curves.values() for curve in runs for point in curve]
    known = [(step, value) for step, value in points if math.isfinite(value)]
    if not known:
        return []
    steps, values = zip(*known, strict=True)
    limits = (0, 1.03 * max(steps)), (min(values) / 1.1, max(values) * 1.1)
    return [
        f'<figure><figcaption>{html.escape(name)}</figcaption>{_picture(runs, curves.get(base, []), *limits)}'
        '</figure>'
        for name, runs in curves.items()
        if runs
    ]


def _picture(runs: Sequence[Curve], base: Sequence[Curve], steps: Limits, values: Limits) -> str:
    """An SVG of the curves of one row in front of those of base."""
    with matplotlib.rc_context({'font.size': 9}):
        figure, axis = plt.subplots(figsize=(3.2, 2.1), layout='constrained')
        for curve in base:
            axis.plot(*zip(*curve, strict=True), color='0.7', linewidth=1)
        for curve in runs:
            axis.plot(*zip(*curve, strict=True), color='C0', linewidth=1.2, marker='.', markersize=3)
        axis.set(yscale='log', xlabel='updates', xlim=steps, ylim=values)
        axis.xaxis.set_major_locator(ticker.MaxNLocator(4))
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter('{x:g}')
        axis.yaxis.set_minor_formatter('')
        return drawn(figure)


def drawn(figure: Figure) -> str:
    """Converts a figure to SVG, and closes it."""
    file = io.StringIO()
    # Text stays text, and the same figure gives the same SVG.
    with matplotlib.rc_context({'svg.fonttype': 'none', 'svg.hashsalt': 'curves'}):
        figure.savefig(file, format='svg', metadata={'Date': None})
    plt.close(figure)
    text = file.getvalue()
    return text[text.index('<svg') :]
