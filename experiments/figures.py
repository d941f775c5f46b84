"""Pictures of attention, as the paper's figures 3 to 5 look at it."""

from collections.abc import Sequence

import matplotlib
import numpy as np
from etils import epath

from transformer.tasks.contract import View

matplotlib.use('agg')
from matplotlib import pyplot as plt


def draw_attention(folder: epath.Path, rows: Sequence[Sequence[View]]) -> epath.Path:
    """Draws a row of heat maps for each sentence: what its queries attend to, averaged over them.

    In a heat map, rows are heads, layer by layer, and their mean; columns are the keys' pieces.

    Returns:
      The picture, `figures/attention.png` in the work directory.
    """
    heads = rows[0][0].weights.shape[0] * rows[0][0].weights.shape[1] + 1
    widest = max(len(view.keys) for views in rows for view in views)
    columns = len(rows[0])
    figure, axes = plt.subplots(
        len(rows),
        columns,
        figsize=(columns * (1.6 + 0.42 * widest), len(rows) * (1.5 + 0.24 * heads)),
        squeeze=False,
        layout='constrained',
    )
    for row, views in zip(axes, rows, strict=True):
        for axis, view in zip(row, views, strict=True):
            _heat_map(axis, view)
    path = folder / 'figures' / 'attention.png'
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def _heat_map(axis, view: View) -> None:
    weights = view.weights[:, :, view.looked_at].mean(axis=2)
    layers, heads, width = weights.shape
    rows = np.concatenate([weights.reshape(-1, width), weights.mean(axis=(0, 1))[None]])
    axis.imshow(rows, cmap='viridis', vmin=0.0, vmax=1.0, aspect='auto')
    axis.set_title(view.title, fontsize=9, loc='left')
    labels = [f'layer {n} head {h}' for n in range(layers) for h in range(heads)]
    axis.set_yticks(range(len(rows)), [*labels, 'mean'], fontsize=7)
    shown = [piece.replace('▁', ' ').strip() or piece for piece in view.keys]
    axis.set_xticks(range(width), shown, rotation=60, ha='right', fontsize=8)
    for edge in range(1, layers + 1):
        axis.axhline(edge * heads - 0.5, color='white', linewidth=1.5)
