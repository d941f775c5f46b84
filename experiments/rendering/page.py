"""Renders a report as one self-contained HTML page: a sortable table, and learning curves."""

import html
import io
import itertools
import pathlib
import string
from collections.abc import Mapping, Sequence

import matplotlib

from experiments.rendering import formats
from experiments.rendering.formats import Column

matplotlib.use('agg')
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

ACROSS = 4  # plots per line


def document(title: str, columns: Sequence[Column], notes: Sequence[str], more: str) -> str:
    """Renders a page with a table, the notes below it, and further HTML."""
    columns, more_notes = formats.compact(columns)
    template = string.Template(pathlib.Path(__file__).with_name('page.html').read_text())
    notes = listing([*notes, *more_notes])
    return template.substitute(title=html.escape(title), table=table(columns), notes=notes, more=more)


def listing(notes: Sequence[str]) -> str:
    """Renders notes as the items of an HTML list."""
    return ''.join(f'<li>{html.escape(note)}</li>\n' for note in notes)


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


def learning_curves(curves: Mapping[str, Sequence[Sequence[tuple[int, float]]]], base: str) -> str:
    """Draws a plot for each row, as HTML: the losses of its runs and of base's runs, with shared axes."""
    drawn_rows = [name for name, runs in curves.items() if runs]
    if not drawn_rows:
        return '<p>No learning curves: the metrics are missing.</p>'
    lines = -(-len(drawn_rows) // ACROSS)
    width, height = 3.2 * ACROSS, 2.2 * lines
    figure, axes = plt.subplots(
        lines, ACROSS, sharex=True, sharey=True, squeeze=False, figsize=(width, height)
    )
    # Fixed margins, in inches: matplotlib's own layouts take minutes for hundreds of plots.
    margins = {
        'left': 0.45 / width,
        'right': 1 - 0.1 / width,
        'bottom': 0.45 / height,
        'top': 1 - 0.25 / height,
    }
    figure.subplots_adjust(**margins, wspace=0.08, hspace=0.45)
    # All axes share these ticks, which take most of the time.
    axes[0, 0].locator_params(nbins=4)
    for axis, name in itertools.zip_longest(axes.flat, drawn_rows):
        if name is None:
            axis.set_axis_off()
            continue
        for runs, color in ((curves.get(base, ()), '0.7'), (curves[name], 'C0')):
            for curve in runs:
                axis.plot(*zip(*curve, strict=True), color=color, linewidth=1)
        axis.set_title(name, parse_math=False)
        axis.set_xlabel('updates')
        axis.tick_params(labelbottom=True)
    return (
        f'<h2>Loss on the development set</h2>\n<p>Blue: the runs of the row. Grey: the runs of '
        f'{html.escape(base)}.</p>\n'
        '<div class="scroll" tabindex="0" role="region" aria-label="learning curves">'
        f'<figure class="curves">{drawn(figure)}</figure></div>'
    )


def drawn(figure: Figure) -> str:
    """Converts a figure to SVG without a background, which would hide the page's shadow, and closes it."""
    file = io.StringIO()
    # Text is not turned into paths, and the same figure gives the same SVG.
    with matplotlib.rc_context({'svg.fonttype': 'none', 'svg.hashsalt': 'curves'}):
        figure.savefig(file, format='svg', transparent=True, metadata={'Date': None})
    plt.close(figure)
    text = file.getvalue()
    return text[text.index('<svg') :]
