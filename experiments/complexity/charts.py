"""Draws the costs of layers and kernels against n."""

import pathlib
from collections.abc import Iterable, Mapping, Sequence

import matplotlib

from experiments.complexity import layers, tables
from experiments.complexity.measure import Record
from transformer import files

matplotlib.use('agg')
from matplotlib import pyplot as plt
from matplotlib import ticker
from matplotlib.figure import Figure

# Styles of the curves; a curve that can hide an earlier one is dashed.
STYLES = ('o-', 's-', '^-', 'D--', 'v--')
# By title: the pass, the key of the cost, and its unit.
PANELS = {
    'FLOPs, forward': ('forward', 'flops', 1.0),
    'MiB beside inputs and outputs, both passes': ('both', 'temporary', tables.MIB),
    'seconds, forward': ('forward', 'seconds', 1.0),
    'seconds, both passes': ('both', 'seconds', 1.0),
}


def write(found: Mapping, folder: pathlib.Path) -> None:
    """Writes the figures of the measurements of `measure.everything`."""
    figures = {
        'layers': _draw(tables.timed(found['layers']), layers.TYPES, found['d_model']),
        'kernels': _draw(found['kernels'], layers.KERNELS, None),
    }
    for name, figure in figures.items():
        files.write_figure(folder / f'{name}.png', figure, dpi=100, pil_kwargs={'optimize': True})
        plt.close(figure)


def _draw(records: Sequence[Record], kinds: Iterable, d: int | None) -> Figure:
    """Draws all costs against n on logarithmic axes; a dotted line marks n = d."""
    figure, axes = plt.subplots(2, 2, figsize=(9, 7), layout='constrained')
    lengths = sorted({record['n'] for record in records})
    for axis, (title, (passes, key, unit)) in zip(axes.flat, PANELS.items(), strict=True):
        for style, kind in zip(STYLES, kinds, strict=True):
            curve = tables.by_length(tables.of(records, kind.name, passes), key)
            # A logarithmic axis has no place for 0.
            shown = {n: value / unit for n, value in curve.items() if value > 0}
            axis.plot(shown.keys(), shown.values(), style, markersize=4, label=kind.name)
        axis.set(xscale='log', title=title, xlabel='n')
        # Without a point, if no program was run, a logarithmic axis has no limits.
        if any(len(line.get_xdata()) for line in axis.lines):
            axis.set_yscale('log')
        axis.xaxis.set_major_locator(ticker.FixedLocator(lengths))
        axis.xaxis.set_major_formatter('{x:,.0f}')
        axis.xaxis.set_minor_locator(ticker.NullLocator())
        axis.grid(color='0.9')
        if d is not None and lengths[0] <= d <= lengths[-1]:
            axis.axvline(d, color='0.4', linestyle=':', linewidth=1)
            where = {'xycoords': ('data', 'axes fraction'), 'xytext': (-4, 0), 'textcoords': 'offset points'}
            look = {'ha': 'right', 'va': 'top', 'fontsize': 8, 'color': '0.4'}
            axis.annotate(f'n = d = {d}', (d, 0.97), **where, **look)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc='outside lower center', ncols=len(labels), frameon=False)
    return figure
