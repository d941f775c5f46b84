"""Draws the figures of claims: lines, dots and bars, by seed."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from matplotlib.axes import Axes

from experiments.claims.claim import Measurement, Measurements

Panel = Callable[[Axes, Measurements], None]
# A style of `curves` with dots in place of lines.
DOTS = {'marker': 'o', 'linestyle': '', 'alpha': 0.6}
JOINED = DOTS | {'linestyle': '-'}


def as_measured(measurement: Measurement) -> Mapping[str, Sequence[float]]:
    """Returns the measured numbers by name; if each name has one number, the names are the places."""
    if not any(isinstance(value, Mapping | Sequence) for value in measurement.values()):
        return {'': list(measurement.values())}
    return {name: list(v.values()) if isinstance(v, Mapping) else v for name, v in measurement.items()}


def curves(
    x: Sequence,
    xlabel: str,
    ylabel: str,
    of: Callable[[Measurement], Mapping[str, Sequence[float]]] = as_measured,
    *,
    ticks: str = '',
    guide: tuple[str, float] | None = None,
    end: tuple[str, float] | None = None,
    legend: bool | Mapping[str, object] = False,
    style: Mapping[str, object] = MappingProxyType({}),
    **options,
) -> Panel:
    """Returns a panel with a line for each name and seed.

    Args:
      x: the values on the horizontal axis.
      of: `measurement -> {name: values at these places}`. The lines of a name share a colour, but the lines
        of the name '' have a colour for each seed.
      ticks: 'linear', 'log' or 'log2' to mark every place on that scale.
      guide: the name and height of a horizontal dotted line.
      end: the name and place of a vertical dotted line.
      legend: whether to draw a legend, or keywords of `Axes.legend`.
      style: keywords of `Axes.plot`.
      options: keywords of `Axes.set`.
    """

    def draw(axes: Axes, measurements: Measurements) -> None:
        for number, name in enumerate(of(measurements[0])):
            for seed, measurement in enumerate(measurements):
                look = {'color': f'C{number if name else seed}', 'marker': '.', **style}
                axes.plot(x, of(measurement)[name], label=name if name and not seed else None, **look)
        if guide:
            axes.axhline(guide[1], color='0.7', linestyle=':', label=guide[0])
        if end:
            axes.axvline(end[1], color='0.7', linestyle=':', label=end[0])
        axes.set(xlabel=xlabel, ylabel=ylabel, **options)
        if ticks:
            axes.set_xscale(ticks.removesuffix('2'), **({'base': 2} if ticks == 'log2' else {}))
            axes.set_xticks(x, list(map(str, x)))
        if ticks == 'log':
            axes.minorticks_off()
        if legend:
            axes.legend(**(legend if isinstance(legend, Mapping) else {}))

    return draw


def bars(
    names: Callable[[Measurement], Sequence[str]],
    of: Callable[[Measurement], Sequence[float]],
    *,
    horizontal: bool = False,
    legend: bool = False,
    **options,
) -> Panel:
    """Returns a panel with bars for each name, one for each seed; `options` are keywords of `Axes.set`."""

    def draw(axes: Axes, measurements: Measurements) -> None:
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
