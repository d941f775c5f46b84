"""Draws learning curves as SVG: a small plot for each row, all with the same axes.

The axes and base's curves are the same in every plot: they are written once, and each plot refers to
them. Axes of matplotlib for each of 500 runs take most of a minute.
"""

import html
import math
from collections.abc import Mapping, Sequence

import numpy as np

Curve = Sequence[tuple[int, float]]  # the steps and losses of a run

ACROSS = 4  # plots per line
# In pixels: a plot, and the area of its curves in it.
WIDTH, HEIGHT = 230, 158
LEFT, RIGHT, TOP, BOTTOM = 34, 226, 20, 126
TICKS = 4  # the most intervals between the ticks of an axis
MARGIN = 0.05  # free space beside the curves, relative to their extent


def learning_curves(curves: Mapping[str, Sequence[Curve]], base: str) -> str:
    """Draws a plot for each row, as HTML: the losses of its runs and of base's runs, with shared axes."""
    rows = {name: list(filter(len, runs)) for name, runs in curves.items()}
    rows = {name: runs for name, runs in rows.items() if runs}
    if not rows:
        return '<p>No learning curves: the metrics are missing.</p>'
    of_base = rows.get(base, [])
    points = np.concatenate([np.array(curve, float) for runs in rows.values() for curve in runs])
    steps, losses = (_limits(column) for column in points.T)
    lines = lambda runs: ''.join(_line(curve, steps, losses) for curve in runs)
    plots = []
    for i, (name, runs) in enumerate(rows.items()):
        x, y = i % ACROSS * WIDTH, i // ACROSS * HEIGHT
        title = f'<text x="{(LEFT + RIGHT) // 2}" y="{TOP - 6}">{html.escape(name)}</text>'
        plots.append(f'<g transform="translate({x},{y})"><use href="#axes"/>{title}{lines(runs)}</g>')
    height = -(-len(rows) // ACROSS) * HEIGHT
    return (
        f'<h2>Loss on the development set</h2>\n<p>By updates. Blue: the runs of the row. Grey: the runs of '
        f'{html.escape(base)}.</p>\n'
        '<div class="scroll" tabindex="0" role="region" aria-label="learning curves">'
        f'<figure class="curves"><svg viewBox="0 0 {WIDTH * ACROSS} {height}">\n'
        f'<defs><g id="axes">{_axes(steps, losses)}<g class="base">{lines(of_base)}</g></g></defs>\n'
        + '\n'.join(plots)
        + '\n</svg></figure></div>'
    )


def ticks(low: float, high: float) -> list[float]:
    """Returns the multiples of 1, 2 or 5 times a power of ten from `low` to `high`, at most `TICKS` + 1."""
    least = (high - low) / TICKS
    power = 10.0 ** math.floor(math.log10(least))
    # The last one is for a quotient that rounding put above 10.
    step = next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= least)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _limits(values: np.ndarray) -> tuple[float, float]:
    """Returns an axis's ends: a margin beyond the values, or some space around a single one."""
    low, high = float(values.min()), float(values.max())
    space = MARGIN * (high - low) or 0.5 * max(abs(low), 1.0)
    return low - space, high + space


def _x(step: float, limits: tuple[float, float]) -> float:
    return np.interp(step, limits, (LEFT, RIGHT))


def _y(loss: float, limits: tuple[float, float]) -> float:
    return np.interp(loss, limits, (BOTTOM, TOP))


def _line(curve: Curve, steps: tuple[float, float], losses: tuple[float, float]) -> str:
    places = [(_x(step, steps), _y(loss, losses)) for step, loss in curve]
    if len(places) == 1:
        # A line of a single point would be invisible.
        [(x, y)] = places
        places = [(x - 2, y), (x + 2, y)]
    points = ' '.join(f'{x:.1f},{y:.1f}' for x, y in places)
    return f'<polyline points="{points}"/>'


def _axes(steps: tuple[float, float], losses: tuple[float, float]) -> str:
    """Draws the frame of a plot, and the ticks of both axes."""
    parts = [f'<rect x="{LEFT}" y="{TOP}" width="{RIGHT - LEFT}" height="{BOTTOM - TOP}"/>']
    for value in ticks(*steps):
        x = _x(value, steps)
        parts.append(f'<path d="M{x:.1f} {BOTTOM}v3"/><text x="{x:.1f}" y="{BOTTOM + 14}">{value:g}</text>')
    for value in ticks(*losses):
        y = _y(value, losses)
        parts.append(
            f'<path d="M{LEFT} {y:.1f}h-3"/>'
            f'<text class="loss" x="{LEFT - 5}" y="{y + 3.5:.1f}">{value:g}</text>'
        )
    return ''.join(parts)
