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
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

# A line of less weight could not be seen.
LEAST = 0.02
THOUSANDTHS = 1000


def head_colours(heads: int) -> list[str]:
    """A colour for each head; so many are as distinct as they can be."""
    name, count = ('tab10', 10) if heads <= 10 else ('tab20', 20) if heads <= 20 else ('hsv', heads + 1)
    return [to_hex(matplotlib.colormaps[name]((head + 0.5) / count)) for head in range(heads)]


def draw_focus(sentences: Sequence[Attention]) -> Figure:
    """Lines of the last layer from the words that are looked at, a row for each sentence.

    A kind of attention without such a word is left out, unless none has one: then all words attend.
    """
    kinds = [[kind for kind in seen.kinds if kind.word] or seen.kinds for seen in sentences]
    return draw_lines([list(map(by_words, row)) for row in kinds])


def draw_lines(
    rows: Sequence[Sequence[Attended]], layer: int | None = None, heads: Sequence[int] | None = None
) -> Figure:
    """Lines from words to the words that they attend to, as in the paper's figures 3 to 5.

    The colour of a line is its head, its strength the weight. Where a single word attends, the same weights
    are drawn as boxes below the words that it attends to. A row has a panel for each kind of attention, by
    words, of a layer (the last if None) and of heads (all if None), counted from 0.
    """
    widest = max(max(len(seen.queries), len(seen.keys), 6) for row in rows for seen in row)
    columns = max(len(row) for row in rows)
    size = (columns * (0.4 * widest + 0.6), 4.4 * len(rows))
    figure, axes = plt.subplots(len(rows), columns, figsize=size, squeeze=False, layout='constrained')
    most = max(seen.weights.shape[1] for row in rows for seen in row)
    for row, row_axes in zip(rows, axes, strict=True):
        for seen, axis in zip(row, row_axes[: len(row)], strict=True):
            number = len(seen.weights) - 1 if layer is None else layer
            _draw_panel(axis, seen, number, range(seen.weights.shape[1]) if heads is None else heads)
        for axis in row_axes[len(row) :]:
            axis.set_axis_off()
    colours, shown = head_colours(most), range(most) if heads is None else heads
    handles = [Line2D([], [], color=colours[head], label=f'head {head + 1}') for head in shown]
    legend_columns = max(1, int(figure.get_figwidth() / 0.9))
    figure.legend(handles=handles, loc='outside lower left', ncols=legend_columns, fontsize=8, frameon=False)
    return figure


def _draw_panel(axis: Axes, seen: Attended, layer: int, heads: Sequence[int]) -> None:
    query = place_of(seen.queries, seen.word)
    colours, weights = head_colours(seen.weights.shape[1]), seen.weights[layer]
    attending = range(len(seen.queries)) if query is None else [query]
    for head in heads:
        pairs = [(q, k) for q in attending for k in np.flatnonzero(weights[head, q] >= LEAST)]
        if pairs:
            alpha = [float(min(weights[head, q, k], 1.0)) for q, k in pairs]
            ends = [[(q, 1.0), (k, 0.0)] for q, k in pairs]
            axis.add_collection(LineCollection(ends, colors=colours[head], alpha=alpha, linewidths=1.6))
    if query is not None:
        for slot, head in enumerate(heads):
            axis.bar(
                np.arange(len(seen.keys)) - 0.4 + 0.8 * (slot + 0.5) / len(heads),
                height=0.06,
                bottom=-0.08,
                width=0.8 / len(heads),
                color=[(*matplotlib.colors.to_rgb(colours[head]), min(w, 1.0)) for w in weights[head, query]],
            )
    last = max(len(seen.queries), len(seen.keys)) - 0.5
    axis.set(xlim=(-0.5, last), ylim=(-0.1 if query is not None else 0.0, 1.0), yticks=[])
    axis.spines[:].set_visible(False)
    top = axis.secondary_xaxis('top')
    top.spines[:].set_visible(False)
    for side, words in ((axis, seen.keys), (top, seen.queries)):
        side.set_xticks(range(len(words)), words, rotation=90, fontsize=9, parse_math=False)
        side.tick_params(length=0)
    if query is not None:
        top.get_xticklabels()[query].set_fontweight('bold')
    word = '' if seen.word is None else f': "{seen.word}"'
    title = f'{seen.name}, layer {layer + 1} of {len(seen.weights)}{word}'
    axis.set_title(title, fontsize=9, loc='left', parse_math=False)


def place_of(words: Sequence[str], word: str | None) -> int | None:
    """The first place of a word; None for all words."""
    if word is not None and word not in words:
        raise ConfigError(f'--word={word}: not a word of {" ".join(words)!r}')
    return None if word is None else list(words).index(word)


def draw_heads(seen: Attended) -> Figure:
    """A small map for each head, heads side by side and layers below each other; rows of a map attend."""
    layers, heads, queries, keys = seen.weights.shape
    size = (1.3 * heads + 0.6, 1.3 * min(max(queries / keys, 0.5), 2.0) * layers + 0.7)
    figure, axes = plt.subplots(layers, heads, figsize=size, squeeze=False, layout='constrained')
    for (layer, head), axis in np.ndenumerate(axes):
        # Square roots, so that small weights can be seen too.
        axis.imshow(np.sqrt(seen.weights[layer, head]), cmap='viridis', vmin=0.0, vmax=1.0, aspect='auto')
        axis.set(xticks=[], yticks=[])
        if layer == 0:
            axis.set_title(f'head {head + 1}', fontsize=8)
        if head == 0:
            axis.set_ylabel(f'layer {layer + 1}', fontsize=8)
    title = f'{seen.name}: a row attends to the columns (square roots)'
    figure.suptitle(title, fontsize=9, x=0.01, ha='left')
    return figure


class Choice(NamedTuple):
    """What a page shows first: kind, layer, heads and the word that attends (None: all), counted from 0."""

    kind: int
    layer: int
    heads: list[int]
    word: int | None


def page(seen: Attention, model: str, first: Choice) -> str:
    """An HTML page of attention by words, whole in one file; one chooses kind, layer, heads and word."""
    data = {
        'kinds': [
            {
                'name': kind.name,
                'queries': kind.queries,
                'keys': kind.keys,
                'weights': np.rint(THOUSANDTHS * kind.weights).astype(int).tolist(),
                'colours': head_colours(kind.weights.shape[1]),
            }
            for kind in seen.kinds
        ],
        'least': LEAST,
        'first': first._asdict(),
    }
    template = string.Template(pathlib.Path(__file__).with_name('attention.html').read_text())
    return template.substitute(
        sentence=html.escape(seen.sentence),
        written=html.escape(seen.output),
        model=html.escape(model),
        # No text of a sentence can end the element that holds it.
        data=json.dumps(data, ensure_ascii=False, separators=(',', ':')).replace('<', '\\u003c'),
    )
