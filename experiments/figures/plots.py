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
from matplotlib.figure import Figure
from matplotlib.text import Text

# The lines of a run's metrics.jsonl.
Lines = Sequence[Mapping[str, float]]
SMALLEST = 6.0  # points of a text in print


def fit(figure: Figure, width: float) -> None:
    """Gives a figure the width in inches at which it is printed; texts keep at least `SMALLEST` points.

    A figure that becomes narrower keeps more of its height, because its texts do not shrink as much.
    """
    before, height = figure.get_size_inches()
    figure.set_size_inches(width, height * min(1.0, (width / before) ** 0.6))
    for text in figure.findobj(Text):
        text.set_fontsize(max(SMALLEST, text.get_fontsize() * min(1.0, (width / before) ** 0.4)))


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
    axis.legend(fontsize=8)
    return figure


def draw_curves(groups: Mapping[str, Sequence[Lines]], metrics: Sequence[str]) -> Figure:
    """Draws metrics by update, from the lines of metrics.jsonl.

    A group of several runs, such as a row's seeds, gets their mean, and a band from their least to their
    greatest value.
    """
    figure, axis = plt.subplots(figsize=(6.4, 4), layout='constrained')
    colours = attention_figures.head_colours(len(groups))
    for colour, (name, runs) in zip(colours, groups.items(), strict=True):
        for metric, style in zip(metrics, ('-', '.--', ':'), strict=False):
            curves = [
                {line['step']: line[metric] for line in lines if line.get(metric) is not None}
                for lines in runs
            ]
            steps = sorted(set.intersection(*map(set, curves)))
            if steps:
                values = np.array([[curve[step] for step in steps] for curve in curves])
                label = f'{name}, {metric}' if len(metrics) > 1 else name
                axis.plot(steps, values.mean(axis=0), style, color=colour, label=label, linewidth=1.2)
                if len(runs) > 1:
                    axis.fill_between(
                        steps, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, linewidth=0
                    )
    axis.set(xlabel='update', ylabel=' and '.join(metrics), xlim=(0, None))
    figure.legend(loc='outside right upper', fontsize=8, frameon=False)
    return figure
