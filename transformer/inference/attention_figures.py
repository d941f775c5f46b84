"""Figures of attention: lines between words (the paper's figures 3 to 5), maps of all heads, and a page."""

import html
import json
import pathlib
import string
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib
import numpy as np

from transformer.config import ConfigError
from transformer.inference.attention import Attended, Attention, by_words

matplotlib.use('agg')
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import PowerNorm, to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

# Lines of smaller weights would be invisible.
LEAST = 0.02
THOUSANDTHS = 1000


def head_colours(heads: int) -> list[str]:
    """Returns a colour for each head, as distinct as their number allows."""
    name, count = ('tab10', 10) if heads <= 10 else ('tab20', 20) if heads <= 20 else ('hsv', heads + 1)
    return [to_hex(matplotlib.colormaps[name]((head + 0.5) / count)) for head in range(heads)]


def add_legend(figure: Figure, handles: Sequence[Line2D], size: float = 8.0) -> None:
    """Adds a legend of handles with labels below a figure, in as many columns as its width has room for."""
    longest = max((len(handle.get_label()) for handle in handles), default=0)
    # A column has a line and gaps of together 5 em, and letters that are about 0.6 em wide.
    columns = max(1, int(72 * figure.get_figwidth() / (size * (5 + 0.6 * longest))))
    look = {'loc': 'outside lower left', 'ncols': columns, 'fontsize': size, 'frameon': False}
    for text in figure.legend(handles=handles, **look).get_texts():
        text.set_parse_math(False)  # names may have dollar signs


def draw_focus(sentences: Sequence[Attention]) -> Figure:
    """Draws the attention of each sentence's `word` in the last layer, one row per sentence.

    Kinds of attention without a `word` are left out. If no kind has one, all are drawn, from all words.
    """
    kinds = [[kind for kind in attention.kinds if kind.word] or attention.kinds for attention in sentences]
    return draw_lines([list(map(by_words, row)) for row in kinds])


def draw_lines(
    rows: Sequence[Sequence[Attended]], layer: int | None = None, heads: Sequence[int] | None = None
) -> Figure:
    """Draws lines from words to the words that they attend to, as in the paper's figures 3 to 5.

    A line's colour shows the head, its opacity the weight. If a single word attends, boxes below the words
    that it attends to show the same weights. A row has one panel per kind of attention, given by words, with
    one layer (the last if None) and some heads (all if None), counted from 0.
    """
    widest = max(max(len(kind.queries), len(kind.keys), 6) for row in rows for kind in row)
    columns = max(len(row) for row in rows)
    size = (columns * (0.4 * widest + 0.6), 4.4 * len(rows))
    figure, axes = plt.subplots(len(rows), columns, figsize=size, squeeze=False, layout='constrained')
    most = max(kind.weights.shape[1] for row in rows for kind in row)
    for row, row_axes in zip(rows, axes, strict=True):
        for kind, axis in zip(row, row_axes[: len(row)], strict=True):
            number = len(kind.weights) - 1 if layer is None else layer
            _draw_panel(axis, kind, number, range(kind.weights.shape[1]) if heads is None else heads)
        for axis in row_axes[len(row) :]:
            axis.set_axis_off()
    colours, shown = head_colours(most), range(most) if heads is None else heads
    add_legend(figure, [Line2D([], [], color=colours[head], label=f'head {head + 1}') for head in shown])
    return figure


def _draw_panel(axis: Axes, kind: Attended, layer: int, heads: Sequence[int]) -> None:
    query = place_of(kind.queries, kind.word)
    colours, weights = head_colours(kind.weights.shape[1]), kind.weights[layer]
    attending = range(len(kind.queries)) if query is None else [query]
    # Each head has its own place beside a word, so that lines of heads that agree do not cover each other.
    places = 0.8 * ((np.arange(len(heads)) + 0.5) / len(heads) - 0.5)
    for head, place in zip(heads, places.tolist(), strict=True):
        pairs = [(q, k) for q in attending for k in np.flatnonzero(weights[head, q] >= LEAST)]
        if pairs:
            alpha = [float(min(weights[head, q, k], 1.0)) for q, k in pairs]
            ends = [[(q + 0.4 * place, 1.0), (k + place, 0.0)] for q, k in pairs]
            axis.add_collection(LineCollection(ends, colors=colours[head], alpha=alpha, linewidths=1.6))
    if query is not None:
        for head, place in zip(heads, places, strict=True):
            axis.bar(
                np.arange(len(kind.keys)) + place,
                height=0.06,
                bottom=-0.08,
                width=0.8 / len(heads),
                color=[(*matplotlib.colors.to_rgb(colours[head]), min(w, 1.0)) for w in weights[head, query]],
            )
    last = max(len(kind.queries), len(kind.keys)) - 0.5
    axis.set(xlim=(-0.5, last), ylim=(-0.1 if query is not None else 0.0, 1.0), yticks=[])
    axis.spines[:].set_visible(False)
    top = axis.secondary_xaxis('top')
    top.spines[:].set_visible(False)
    for side, words in ((axis, kind.keys), (top, kind.queries)):
        side.set_xticks(range(len(words)), words, rotation=90, fontsize=9, parse_math=False)
        side.tick_params(length=0)
    if query is not None:
        top.get_xticklabels()[query].set_fontweight('bold')
    word = '' if kind.word is None else f': "{kind.word}"'
    title = f'{kind.name}, layer {layer + 1} of {len(kind.weights)}{word}'
    axis.set_title(title, fontsize=9, loc='left', parse_math=False)


def place_of(words: Sequence[str], word: str | None) -> int | None:
    """Returns the first place of a word, or None if `word` is None.

    Raises:
      ConfigError: it is not among the words.
    """
    if word is not None and word not in words:
        raise ConfigError(f'--word={word}: not a word of {" ".join(words)!r}')
    return None if word is None else list(words).index(word)


def draw_heads(kind: Attended) -> Figure:
    """Draws a small map per head: heads side by side, layers below each other, a row for each query."""
    layers, heads, queries, keys = kind.weights.shape
    size = (1.3 * heads + 0.6, 1.3 * min(max(queries / keys, 0.5), 2.0) * layers + 0.7)
    figure, axes = plt.subplots(layers, heads, figsize=size, squeeze=False, layout='constrained')
    # Small weights can be seen too.
    look = {'cmap': 'viridis', 'norm': PowerNorm(0.5, 0.0, 1.0), 'aspect': 'auto'}
    for (layer, head), axis in np.ndenumerate(axes):
        drawn = axis.imshow(kind.weights[layer, head], **look)
        axis.set(xticks=[], yticks=[])
        if layer == 0:
            axis.set_title(head + 1, fontsize=8)
        if head == 0:
            axis.set_ylabel(f'layer {layer + 1}', fontsize=8)
    bar = figure.colorbar(drawn, ax=axes, ticks=[0.0, 0.1, 0.5, 1.0], pad=0.02, shrink=0.8)
    bar.ax.tick_params(labelsize=8)
    figure.suptitle(f'{kind.name}, by head', fontsize=9, x=0.01, ha='left')
    figure.supxlabel('a row attends to the columns', fontsize=8)
    return figure


class FirstView(NamedTuple):
    """A page's first view: kind, layer, heads and attending word (None: all words), counted from 0."""

    kind: int
    layer: int
    heads: list[int]
    word: int | None


def page(attention: Attention, model: str, first: FirstView) -> str:
    """Writes an HTML page of word-to-word attention, with buttons for kind, layer, heads and word.

    The page is self-contained.
    """
    data = {
        'kinds': [
            {
                'name': kind.name,
                'queries': kind.queries,
                'keys': kind.keys,
                'weights': np.rint(THOUSANDTHS * kind.weights).astype(int).tolist(),
                'colours': head_colours(kind.weights.shape[1]),
            }
            for kind in attention.kinds
        ],
        'least': LEAST,
        'first': first._asdict(),
    }
    template = string.Template(pathlib.Path(__file__).with_name('attention.html').read_text('utf-8'))
    return template.substitute(
        sentence=html.escape(attention.sentence),
        written=html.escape(attention.output),
        model=html.escape(model),
        # Without "<", no sentence can close the script element.
        data=json.dumps(data, ensure_ascii=False, separators=(',', ':')).replace('<', '\\u003c'),
    )
