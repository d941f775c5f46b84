"""What a model attends to in a sentence, by words: the paper's figures 3 to 5, all heads, and a page."""

import html
import json
import pathlib
import string
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib
import numpy as np

from transformer.inference.attention import (
    START_MARK,
    Attended,
    words_of,
)

matplotlib.use('agg')
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

# A line of less weight could not be seen.
LEAST = 0.02
BLANK = '␣'  # stands for a word of blanks alone
THOUSANDTHS = 1000


def by_words(seen: Attended) -> Attended:
    """The same from words to words, where it is from pieces to pieces.

    A word gets the sum of what its pieces get, and gives the mean of what they give (Clark et al. 2019,
    section 4.1), so that the weights of a word still add up to one.
    """
    queries, keys = _words(seen.queries), _words(seen.keys)
    got = np.stack([seen.weights[..., places].sum(axis=-1) for _, places in keys], axis=-1)
    given = np.stack([got[:, :, places].mean(axis=2) for _, places in queries], axis=2)
    return Attended(seen.name, given, [word for word, _ in queries], [word for word, _ in keys])


def _words(pieces: Sequence[str]) -> list[tuple[str, list[int]]]:
    first = 1 if pieces[:1] == [START_MARK] else 0
    words = [(word or BLANK, [first + place for place in where]) for word, where in words_of(pieces[first:])]
    return [(START_MARK, [0]), *words] if first else words


def colours(heads: int) -> list[str]:
    """A colour for each head, told apart as well as so many can be."""
    named = 'tab10' if heads <= 10 else 'tab20' if heads <= 20 else 'hsv'
    scale = matplotlib.colormaps[named]
    count = 10 if heads <= 10 else 20 if heads <= 20 else heads + 1
    return [to_hex(scale((head + 0.5) / count)) for head in range(heads)]


def draw_lines(seen: Attended, layer: int, heads: Sequence[int], query: int | None) -> Figure:
    """Lines from words to the words that they attend to, as the paper's figures 3 to 5.

    The colour of a line is its head, how strong it is the weight. Below each word that is attended to
    stand the same weights as boxes, where a single word attends.

    Args:
      layer, heads: which of them, from 0.
      query: the word that attends, by its place; all words if None.
    """
    shades, weights = colours(seen.weights.shape[1]), seen.weights[layer]
    wide = 0.4 * max(len(seen.queries), len(seen.keys), 6)
    figure, axis = plt.subplots(figsize=(wide + 0.6, 4.4), layout='constrained')
    places = range(len(seen.queries)) if query is None else [query]
    for head in heads:
        drawn = [(q, k) for q in places for k in np.flatnonzero(weights[head, q] >= LEAST)]
        if not drawn:
            continue
        axis.add_collection(
            LineCollection(
                [[(q, 1.0), (k, 0.0)] for q, k in drawn],
                colors=shades[head],
                alpha=[float(min(weights[head, q, k], 1.0)) for q, k in drawn],
                linewidths=1.6,
            )
        )
    if query is not None:
        for slot, head in enumerate(heads):
            axis.bar(
                np.arange(len(seen.keys)) - 0.4 + 0.8 * (slot + 0.5) / len(heads),
                height=0.06,
                bottom=-0.08,
                width=0.8 / len(heads),
                color=[(*matplotlib.colors.to_rgb(shades[head]), min(w, 1.0)) for w in weights[head, query]],
            )
    last = max(len(seen.queries), len(seen.keys)) - 0.5
    axis.set(xlim=(-0.5, last), ylim=(-0.1 if query is not None else 0.0, 1.0), yticks=[])
    axis.spines[:].set_visible(False)
    of_keys, of_queries = axis, axis.secondary_xaxis('top')
    of_queries.spines[:].set_visible(False)
    for side, words in ((of_keys, seen.keys), (of_queries, seen.queries)):
        side.set_xticks(range(len(words)), words, rotation=90, fontsize=9, parse_math=False)
        side.tick_params(length=0)
    if query is not None:
        of_queries.get_xticklabels()[query].set_fontweight('bold')
    figure.suptitle(f'{seen.name}\nlayer {layer + 1} of {len(seen.weights)}', fontsize=9, x=0.02, ha='left')
    of_heads = [Line2D([], [], color=shades[head], label=f'head {head + 1}') for head in heads]
    columns = max(1, int(figure.get_figwidth() / 0.9))
    figure.legend(handles=of_heads, loc='outside lower left', ncols=columns, fontsize=8, frameon=False)
    return figure


def draw_heads(seen: Attended) -> Figure:
    """A small map for each head, heads side by side and layers below each other; rows of a map attend."""
    layers, heads, queries, keys = seen.weights.shape
    side = 1.3
    figure, axes = plt.subplots(
        layers,
        heads,
        figsize=(side * heads + 0.6, side * min(max(queries / keys, 0.5), 2.0) * layers + 0.7),
        squeeze=False,
        layout='constrained',
    )
    for (layer, head), axis in np.ndenumerate(axes):
        # Square roots, so that small weights can be seen too.
        axis.imshow(np.sqrt(seen.weights[layer, head]), cmap='viridis', vmin=0.0, vmax=1.0, aspect='auto')
        axis.set(xticks=[], yticks=[])
        if layer == 0:
            axis.set_title(f'head {head + 1}', fontsize=8)
        if head == 0:
            axis.set_ylabel(f'layer {layer + 1}', fontsize=8)
    figure.suptitle(
        f'{seen.name}: a row attends to the columns (square roots)', fontsize=9, x=0.01, ha='left'
    )
    return figure


class Choice(NamedTuple):
    """What is shown: kind, layer, heads and the word that attends (None: all), by their places from 0."""

    kind: int
    layer: int
    heads: list[int]
    word: int | None


def page(sentence: str, written: str, model: str, kinds: Sequence[Attended], first: Choice) -> str:
    """A page that needs nothing else, on which kind, layer, heads and word are chosen.

    Args:
      first: what it shows until something else is chosen.
    """
    data = {
        'kinds': [
            {
                'name': seen.name,
                'queries': seen.queries,
                'keys': seen.keys,
                'weights': np.rint(THOUSANDTHS * seen.weights).astype(int).tolist(),
                'colours': colours(seen.weights.shape[1]),
            }
            for seen in kinds
        ],
        'least': LEAST,
        'first': first._asdict(),
    }
    template = string.Template(pathlib.Path(__file__).with_name('attention.html').read_text())
    return template.substitute(
        sentence=html.escape(sentence),
        written=html.escape(written),
        model=html.escape(model),
        # No text of a sentence can end the element that holds it.
        data=json.dumps(data, ensure_ascii=False, separators=(',', ':')).replace('<', '\\u003c'),
    )
