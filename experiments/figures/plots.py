"""Draws positional encodings, learning rates and learning curves with matplotlib."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from jaxtyping import Float

from transformer.config import Config
from transformer.training import optim

matplotlib.use('agg')
from matplotlib import pyplot as plt
from matplotlib.figure import Figure


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
        (similarity, unit @ unit.T, 'cosine between positions', 'position', {'cmap': 'viridis', 'vmax': 1.0}),
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


def draw_curves(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> Figure:
    """Draws the loss by update, in training and on dev, from each run's lines of metrics.jsonl."""
    figure, axis = plt.subplots(figsize=(6.4, 4), layout='constrained')
    for index, (name, lines) in enumerate(runs.items()):
        for key, style, what in (('loss', '-', 'training'), ('dev_loss', '.--', 'dev')):
            points = [(line['step'], line[key]) for line in lines if key in line]
            if points:
                axis.plot(*zip(*points, strict=True), style, color=f'C{index}', label=f'{name}, {what}')
    axis.set(xlabel='update', ylabel='loss', xlim=(0, None))
    axis.legend(fontsize=8)
    return figure
