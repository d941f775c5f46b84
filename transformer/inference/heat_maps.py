"""Pictures of attention, as the paper's figures 3 to 5 look at it."""

import io
import itertools
import re
import textwrap
from collections.abc import Iterator, Sequence

import matplotlib
import numpy as np
from etils import epath

from transformer import files
from transformer.inference.attention import View

matplotlib.use('agg')
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

SIDE_BY_SIDE = 30  # the most pieces of a sentence whose maps stand side by side
DPI, MOST_PIXELS = 120, 30_000


def draw_attention(folder: epath.Path, rows: Sequence[Sequence[View]], name: str) -> epath.Path:
    """Draws heat maps for each sentence: what its queries attend to.

    Columns are the keys' pieces. Where a view looks at some queries, rows are heads, layer by layer, and
    their mean, averaged over these queries; otherwise rows are all queries, averaged over the heads. The
    maps of a sentence stand side by side, or below each other where it is long.

    Returns:
      The picture, `figures/<name>.png` in the work directory.
    """
    maps = [Map(view) for views in rows for view in views]
    widest, highest = max(m.rows.shape[1] for m in maps), max(m.rows.shape[0] for m in maps)
    columns = len(rows[0]) if widest <= SIDE_BY_SIDE else 1
    inches = 1.6 + 0.42 * widest
    titles = [_wrapped(view.title, inches) for views in rows for view in views]
    high = 1.2 + 0.15 * max(title.count('\n') + 1 for title in titles) + 0.24 * highest
    size = columns * inches, len(maps) // columns * high
    figure, axes = plt.subplots(
        len(maps) // columns, columns, figsize=size, squeeze=False, layout='constrained'
    )
    for axis, drawn, title in zip(axes.flat, maps, titles, strict=True):
        drawn.draw(axis, title)
    path = folder / 'figures' / f'{name}.png'
    path.parent.mkdir(exist_ok=True)
    write(figure, path, dpi=min(DPI, MOST_PIXELS / max(size)))
    plt.close(figure)
    return path


def write(figure: Figure, path: files.Path, **options: object) -> None:
    """Writes a figure, whole or not at all, in the format that the name ends with.

    Args:
      options: of matplotlib's savefig, which itself cannot write to the cloud.
    """
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix.removeprefix('.'), **options)
    files.write_bytes(path, drawn.getvalue())


def free_name(folder: epath.Path, views: Sequence[View]) -> str:
    """A name for a figure of these views, made of word and sentence, that no figure has."""
    words = re.sub(r'\W+', '-', views[0].title.partition(': ')[2].lower()).strip('-')[:60].rstrip('-')
    taken = lambda name: (folder / 'figures' / f'{name}.png').exists()
    return next(name for name in _numbered(words or 'attention') if not taken(name))


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f'{name}-{number}' for number in itertools.count(2))


class Map:
    """The heat map of one view."""

    def __init__(self, view: View):
        self._keys = view.keys
        layers, heads, _, width = view.weights.shape
        mean = view.weights.mean(axis=(0, 1))
        if view.looked_at is None:
            self.rows, self.labels, self._edges = mean, _shown(view.queries), []
        else:
            each = view.weights[:, :, view.looked_at].mean(axis=2).reshape(-1, width)
            self.rows = np.concatenate([each, mean[view.looked_at].mean(axis=0)[None]])
            self.labels = [f'layer {n} head {h}' for n in range(layers) for h in range(heads)] + ['mean']
            self._edges = [layer * heads - 0.5 for layer in range(1, layers + 1)]

    def draw(self, axis, title: str) -> None:
        """Draws it on an axis."""
        axis.imshow(self.rows, cmap='viridis', vmin=0.0, vmax=1.0, aspect='auto')
        axis.set_title(title, fontsize=9, loc='left', parse_math=False)
        axis.set_yticks(range(len(self.rows)), self.labels, fontsize=7, parse_math=False)
        labels = _shown(self._keys)
        axis.set_xticks(range(len(labels)), labels, rotation=60, ha='right', fontsize=8, parse_math=False)
        for edge in self._edges:
            axis.axhline(edge, color='white', linewidth=1.5)


def _wrapped(title: str, inches: float) -> str:
    """A title in lines that are not wider than its map."""
    what, _, sentence = title.partition('\n')
    # About 13 letters of the title's size are an inch; labels stand left of the map.
    return '\n'.join([what, *textwrap.wrap(sentence, max(int(13 * (inches - 1)), 20))])


def _shown(pieces: Sequence[str]) -> list[str]:
    return [piece.replace('▁', ' ').strip() or piece for piece in pieces]
