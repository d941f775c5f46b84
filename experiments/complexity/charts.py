"""Draws the measurements, and writes a page with tables and pictures."""

import html
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib

from experiments.complexity import layers, tables
from experiments.complexity.measure import Record
from experiments.rendering import page
from transformer import files

matplotlib.use('agg')
from matplotlib import pyplot as plt
from matplotlib import ticker
from matplotlib.figure import Figure

DPI = 100
# Of the curves; a curve that can hide an earlier one is dashed.
STYLES = ('o-', 's-', '^-', 'D--', 'v--')


class Panel(NamedTuple):
    """A picture of one cost of one pass against n, in a unit."""

    title: str
    passes: str
    key: str
    unit: float


PANELS = (
    Panel('FLOPs, forward', 'forward', 'flops', 1.0),
    Panel('MiB beside inputs and outputs, both passes', 'both', 'temporary', tables.MIB),
    Panel('seconds, forward', 'forward', 'seconds', 1.0),
    Panel('seconds, both passes', 'both', 'seconds', 1.0),
)


def write(found: Mapping, folder: pathlib.Path) -> None:
    """Writes the pictures, as PNG, and the page of the measurements that `measure.everything` made."""
    timed = [record for record in found['layers'] if 'seconds' in record]
    pictures = {
        'layers': _picture(timed, [kind.name for kind in layers.TYPES], found['d_model']),
        'kernels': _picture(found['kernels'], [kernel.name for kernel in layers.KERNELS], None),
    }
    shown = []
    for name, figure in pictures.items():
        files.write_figure(folder / f'{name}.png', figure, dpi=DPI, pil_kwargs={'optimize': True})
        shown.append(f'<h2>{name.capitalize()} against n</h2>')
        shown.append(f'<figure class="wide">{page.drawn(figure)}</figure>')
    first, *rest = tables.sections(found)
    for section in rest:
        shown += [
            f'<h2>{html.escape(section.heading)}</h2>',
            f'<div class="scroll" tabindex="0">\n{page.table(section.columns)}\n</div>',
            f'<ul>\n{page.listing(section.notes)}</ul>',
        ]
    text = page.document(first.heading, first.columns, first.notes, '\n'.join(shown))
    files.write_text(folder / 'page.html', text)


def _picture(records: Sequence[Record], names: Sequence[str], d: int | None) -> Figure:
    """All costs against n on logarithmic axes; a dotted line marks n = d."""
    figure, axes = plt.subplots(2, 2, figsize=(9, 7), layout='constrained')
    for axis, panel in zip(axes.flat, PANELS, strict=True):
        for number, name in enumerate(names):
            curve = tables.by_length(tables.of(records, name, panel.passes), panel.key)
            # A logarithmic axis has no place for 0.
            shown = {n: value / panel.unit for n, value in curve.items() if value > 0}
            axis.plot(shown.keys(), shown.values(), STYLES[number], markersize=4, label=name)
        axis.set(xscale='log', yscale='log', title=panel.title, xlabel='n')
        lengths = sorted({record['n'] for record in records})
        axis.xaxis.set_major_locator(ticker.FixedLocator(lengths))
        axis.xaxis.set_major_formatter('{x:,.0f}')
        axis.xaxis.set_minor_locator(ticker.NullLocator())
        axis.grid(color='0.9')
        if d is not None and lengths[0] <= d <= lengths[-1]:
            axis.axvline(d, color='0.4', linestyle=':', linewidth=1)
            axis.annotate(
                f'n = d = {d}',
                (d, 0.97),
                xycoords=('data', 'axes fraction'),
                xytext=(-4, 0),
                textcoords='offset points',
                ha='right',
                va='top',
                fontsize=8,
                color='0.4',
            )
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc='outside lower center', ncols=len(names), frameon=False)
    return figure
