"""A report as one page that needs nothing else: the table, sortable, and learning curves for each row."""

import html
import io
import pathlib
import string
from collections.abc import Mapping, Sequence

import matplotlib

matplotlib.use('agg')
from matplotlib import pyplot as plt
from matplotlib import ticker

Curve = Sequence[tuple[int, float]]


def page(
    title: str,
    table: str,
    score: str,
    notes: Sequence[str],
    curves: Mapping[str, Sequence[Curve]],
    base: Sequence[Curve],
) -> str:
    """The page, as HTML.

    Args:
      table: the table, as HTML.
      score: the heading of the first column with scores, which small screens begin with.
      notes: what stands below the table.
      curves: steps and perplexities of each run, by row.
      base: the runs of the row that every picture shows in grey.
    """
    template = string.Template(pathlib.Path(__file__).with_name('page.html').read_text())
    pictures = (
        f'<figure><figcaption>{html.escape(name)}</figcaption>{_picture(runs, base)}</figure>'
        for name, runs in curves.items()
        if runs
    )
    return template.substitute(
        title=html.escape(title),
        table=table,
        score=score,
        notes=''.join(f'<li>{html.escape(note)}</li>\n' for note in notes),
        curves='\n'.join(pictures) or '<p>No learning curves: no metrics.jsonl there.</p>',
    )


def _picture(runs: Sequence[Curve], base: Sequence[Curve]) -> str:
    """An SVG of the curves of one row in front of those of base."""
    with matplotlib.rc_context({'svg.fonttype': 'none', 'svg.hashsalt': 'curves', 'font.size': 9}):
        figure, axis = plt.subplots(figsize=(3.2, 2.1), layout='constrained')
        for curve in base:
            axis.plot(*zip(*curve, strict=True), color='0.7', linewidth=1)
        for curve in runs:
            axis.plot(*zip(*curve, strict=True), color='C0', linewidth=1.2, marker='.', markersize=3)
        axis.set(yscale='log', xlabel='updates')
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter('{x:g}')
        axis.yaxis.set_minor_formatter('')
        file = io.StringIO()
        figure.savefig(file, format='svg', metadata={'Date': None})
        plt.close(figure)
    text = file.getvalue()
    return text[text.index('<svg') :]
