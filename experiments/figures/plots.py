"""Draws positional encodings, learning rates and learning curves with matplotlib."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from jaxtyping import Float

from transformer.config import Config
from transformer.inference import attention_figures
from transformer.training import optim

matplotlib.use('agg')
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

# The lines of a run's metrics.jsonl.
Curves = Sequence[Mapping[str, float]]
SMALLEST, THINNEST = 6.0, 0.4  # points, of a text and of a line of attention in print
STYLES = ({}, {'linestyle': '--', 'marker': '.'})  # of the first metric, and of the second
LOWEST = 0.7  # a figure's height in print, as a share of its width, unless it was drawn lower


def fit(figure: Figure, width: float) -> None:
    """Gives a figure the width in inches at which it is printed; texts keep at least `SMALLEST` points.

    A figure that becomes narrower keeps more of its height, because its texts do not shrink as much. Lines
    of attention become thinner, and the legend gets fewer columns.
    """
    before, height = figure.get_size_inches()
    narrower = min(1.0, width / before)
    figure.set_size_inches(width, max(height * narrower**0.6, min(height, LOWEST * width)))
    for text in figure.findobj(Text):
        text.set_fontsize(max(SMALLEST, text.get_fontsize() * narrower**0.4))
    for lines in figure.findobj(LineCollection):
        lines.set_linewidth(max(THINNEST, lines.get_linewidth()[0] * narrower))
    for legend in list(figure.legends):
        legend.remove()
        size = legend.get_texts()[0].get_fontsize()
        attention_figures.add_legend(figure, legend.get_lines(), size)


def draw_positions(encodings: Float[np.ndarray, 'L D'], title: str) -> Figure:
    """Draws positional encodings, and the cosine similarity of every two positions."""
    figure, (table, similarity) = plt.subplots(
        1, 2, figsize=(11, 4), layout='constrained', gridspec_kw={'width_ratios': [1.5, 1]}
    )
    most = float(np.abs(encodings).max())
    unit = encodings / np.maximum(np.linalg.norm(encodings, axis=1, keepdims=True), 1e-30)
    look = {'cmap': 'RdBu', 'vmin': -most, 'vmax': most, 'aspect': 'auto'}
    for axis, image, text, xlabel, how in (
        (table, encodings, title, 'dimension', look),
        (similarity, unit @ unit.T, 'cosine', 'position', {'cmap': 'viridis', 'vmax': 1.0, 'aspect': 'auto'}),
    ):
        drawn = axis.imshow(image, interpolation='nearest', **how)
        axis.set(xlabel=xlabel, ylabel='position')
        axis.set_title(text, fontsize=10)
        figure.colorbar(drawn, ax=axis, pad=0.01)
    return figure


def draw_schedule(configs: Mapping[str, Config]) -> Figure:
    """Draws the learning rate by update (§5.3), a line for each config."""
    figure, axis = plt.subplots(figsize=(6.4, 3.6), layout='constrained')
    for name, config in configs.items():
        steps = np.unique(np.linspace(1, config.train.steps, 2000).round().astype(int))
        rates = jax.vmap(lambda step, config=config: optim.learning_rate(config, step))(jnp.asarray(steps))
        axis.plot(steps, rates, label=name)
    axis.set(xlabel='update', ylabel='learning rate', xlim=(0, None), ylim=(0, None))
    for text in axis.legend(fontsize=8).get_texts():
        text.set_parse_math(False)
    return figure


def draw_curves(groups: Mapping[str, Sequence[Curves]], metrics: Sequence[str]) -> Figure:
    """Draws metrics by update, from the lines of metrics.jsonl.

    A group of several runs, such as a row's seeds, gets their mean, and a band from their least to their
    greatest value, up to the last update that all of them have; a run without the metric does not count.
    """
    figure, axis = plt.subplots(figsize=(6.4, 4 + 0.1 * len(groups)), layout='constrained')
    colours, drawn = attention_figures.head_colours(len(groups)), {}
    for colour, runs in zip(colours, groups.values(), strict=True):
        for metric, style in zip(metrics, STYLES, strict=False):
            every = [{line['step']: line.get(metric) for line in lines} for lines in runs]
            curves = [{k: value for k, value in curve.items() if value is not None} for curve in every]
            curves = [curve for curve in curves if curve]
            if steps := sorted(set.intersection(*map(set, curves))) if curves else []:
                values = np.array([[curve[step] for step in steps] for curve in curves])
                # A line of a single point would be invisible.
                look = style | ({'marker': '.'} if len(steps) == 1 else {})
                axis.plot(steps, values.mean(axis=0), color=colour, linewidth=1.2, **look)
                drawn[metric] = style
                if len(curves) > 1:
                    low, high = values.min(axis=0), values.max(axis=0)
                    axis.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
    axis.set(xlabel='update', ylabel=' and '.join(drawn), xlim=(0, None))
    handles = [Line2D([], [], color=c, label=name) for c, name in zip(colours, groups, strict=True)]
    if len(drawn) > 1:
        handles += [Line2D([], [], color='0.4', label=metric, **style) for metric, style in drawn.items()]
    attention_figures.add_legend(figure, handles)
    return figure
