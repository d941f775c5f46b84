"""Draws how far each row of a table is from base, in the paper and in a sweep."""

import pathlib
from collections.abc import Sequence

import matplotlib

from experiments.reports import results
from experiments.reports.differences import Difference, correlation, differences
from experiments.sweeps import runs
from experiments.tables.table import Row
from transformer.config import ConfigError

matplotlib.use('agg')
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

MOST_CHANGES = 3  # that a row's label lists


def draw(folder: pathlib.Path) -> Figure:
    """Draws the differences of a sweep's first score that the paper has too, the paper's on the left."""
    comparison = results.of_sweep(runs.read_sweep(folder), folder)
    for score in comparison.scores:
        by_row = differences(comparison, score)
        known = {name: d for name, d in by_row.items() if None not in (d.paper, d.ours)}
        if known:
            break
    else:
        raise ConfigError(f'{folder}: no row has a difference from base both in the paper and in the sweep')
    labels = {row.row.name: _label(row.row) for row in comparison.rows}
    ordered = sorted(known, key=lambda name: known[name].paper)
    agreement = correlation(known.values())
    rank = f' (rank correlation {agreement.value:.2f})' if agreement else ''
    return _draw(
        f'{score.measure.meaning}: difference from base',
        ('the paper', f'ours{rank}'),
        [labels[name] for name in ordered],
        [known[name] for name in ordered],
    )


def _label(row: Row) -> str:
    """Returns a row's name, after its changes if they are few: "d_k 16  B1"."""
    changes = [f'{key.partition(".")[2]} {value}' for key, value in row.changes.items()]
    return f'{", ".join(changes)}  {row.name}' if len(changes) <= MOST_CHANGES else row.name


def _draw(xlabel: str, titles: Sequence[str], labels: Sequence[str], rows: Sequence[Difference]) -> Figure:
    figure, axes = plt.subplots(
        1, 2, figsize=(8.3, 0.8 + 0.22 * len(rows)), sharey=True, layout='constrained'
    )
    places = range(len(rows))
    for axis, title in zip(axes, titles, strict=True):
        axis.axvline(0, color='0.6', linewidth=0.8)
        axis.grid(axis='y', color='0.92')
        axis.set_title(title, fontsize=9)
        axis.tick_params(labelsize=8, length=0)
        axis.set_axisbelow(True)
    figure.supxlabel(xlabel, fontsize=9)
    axes[0].scatter([row.paper for row in rows], places, s=14, color='C0')
    for place, row in zip(places, rows, strict=True):
        if row.over_seeds:
            axes[1].plot([row.over_seeds.low, row.over_seeds.high], [place, place], color='C1', linewidth=1.5)
    axes[1].scatter([row.ours for row in rows], places, s=14, color='C1')
    axes[0].set_yticks(places, labels, parse_math=False)
    return figure
