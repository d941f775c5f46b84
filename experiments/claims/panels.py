"""Draws the pictures of claims: lines, dots and bars, by seed."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from experiments.claims.claim import Measurement, Panel

DOTS = {'marker': 'o', 'linestyle': '', 'alpha': 0.6}


def curves(
    x: Sequence,
    of: Callable[[Measurement], Mapping[str, Sequence[float]]],
    *,
    ticks: str = '',
    guide: tuple[str, float] | None = None,
    legend: bool = False,
    style: Mapping[str, object] | None = None,
    **options,
) -> Panel:
    """A panel with a line for each name and seed.

    Args:
      x: the horizontal places.
      of: takes what one seed measured, gives the values at these places by name. The lines of one name
        share a colour; those of the name '' have a colour for each seed.
      ticks: 'linear', 'log' or 'log2' to mark every place on that scale.
      guide: the name and height of a dotted line.
      style: keywords of `Axes.plot`.
      options: keywords of `Axes.set`.
    """

    def draw(axes: Axes, measurements: Sequence[Measurement]) -> None:
        for number, name in enumerate(of(measurements[0])):
            for seed, measurement in enumerate(measurements):
                look = {'color': f'C{number if name else seed}', 'marker': '.'} | dict(style or {})
                axes.plot(x, of(measurement)[name], label=name if name and not seed else None, **look)
        if guide:
            axes.axhline(guide[1], color='0.7', linestyle=':', label=guide[0])
        axes.set(**options)
        if ticks:
            mark(axes, x, ticks)
        if legend:
            axes.legend()

    return draw


def mark(axes: Axes, places: Sequence[float], scale: str) -> None:
    """Gives the horizontal axis a scale, and a tick at each of some places."""
    if scale == 'log2':
        axes.set_xscale('log', base=2)
    else:
        axes.set_xscale(scale)
    axes.set_xticks(places, list(map(str, places)))
    if scale == 'log':
        axes.minorticks_off()


def bars(
    names: Callable[[Measurement], Sequence[str]],
    of: Callable[[Measurement], Sequence[float]],
    *,
    horizontal: bool = False,
    legend: bool = False,
    **options,
) -> Panel:
    """A panel with a group of bars for each name, one bar for each seed.

    Args:
      names: takes what one seed measured, gives the names.
      of: takes the same, gives the lengths of the bars.
      options: keywords of `Axes.set`.
    """

    def draw(axes: Axes, measurements: Sequence[Measurement]) -> None:
        width = 0.8 / len(measurements)
        for seed, measurement in enumerate(measurements):
            lengths = of(measurement)
            places = np.arange(len(lengths)) + width * (seed - (len(measurements) - 1) / 2)
            bar = axes.barh if horizontal else axes.bar
            bar(places, lengths, width, label=f'training {seed + 1}')
        (axes.set_yticks if horizontal else axes.set_xticks)(range(len(lengths)), names(measurement))
        axes.set(**options)
        if legend:
            axes.legend()

    return draw
