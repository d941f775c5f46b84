"""Finds and draws where a decoder looks in an image for each word (Xu et al. 2015, figures 3 and 5)."""

import json
import pathlib
import string
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.figure import Figure

from transformer.inference.attention import attention_weights, one_row, words_of
from transformer.runs.restore import Trained
from transformer.tokens import EOS

WIDEST = 8  # panels side by side
DARKEST = 0.85  # opacity of the black over patches without attention
_SIDE = 1.5  # inches


class Look(NamedTuple):
    """An image, the words of a caption, and how much the decoder attends to each patch for each word.

    The attention is the mean of the last layer's heads and of a word's pieces.
    """

    image: UInt8[np.ndarray, 'h w c']
    words: list[str]
    weights: Float[np.ndarray, 'words rows columns']


def look(trained: Trained, image: UInt8[np.ndarray, 'h w c'], text: str) -> Look:
    """Finds where the decoder looks in an image for each word of a caption."""
    config, codec = trained.config, trained.codecs['text']
    tokens = codec.encode(text)
    batch = {'image': image[None, None], 'text': one_row(tokens)}
    side = config.images.size // config.images.patch
    weights = attention_weights(config, trained.params, batch)['decoder/cross_attention']
    # Without the class token, which is first if there is one.
    of_pieces = weights[-1, :, :, -side * side :].mean(axis=0).reshape(-1, side, side)
    words = words_of(codec.pieces([piece for piece in tokens if piece != EOS]))
    of_words = [of_pieces[places].mean(axis=0) for _, places in words]
    return Look(image, [word for word, _ in words], np.array(of_words).reshape(-1, side, side))


def draw(looks: Sequence[Look]) -> Figure:
    """Draws each image, then once for each word of its caption, dark where the decoder does not look.

    The patch with the most attention is as bright as in the image, so that spread attention can be seen, too.
    """
    rows = []
    for look in looks:
        panels = [('', None), *zip(look.words, look.weights, strict=True)]
        rows += [(look.image, panels[i : i + WIDEST]) for i in range(0, len(panels), WIDEST)]
    columns = max(len(panels) for _, panels in rows)
    figure = Figure((_SIDE * columns, (_SIDE + 0.3) * len(rows)), layout='constrained')
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for (image, panels), row in zip(rows, axes, strict=True):
        height, width, channels = image.shape
        for axis in row:
            axis.set_axis_off()
        for (word, weights), axis in zip(panels, row, strict=False):
            axis.imshow(image if channels == 3 else image[..., 0], cmap='gray', vmin=0, vmax=255)
            axis.set_title(word, fontsize=9, parse_math=False)
            if weights is not None:
                alpha, black = DARKEST * (1 - weights / weights.max()), np.zeros_like(weights)
                extent = (-0.5, width - 0.5, height - 0.5, -0.5)
                axis.imshow(black, cmap='gray', vmin=0, vmax=1, alpha=alpha, extent=extent)
    return figure


def page(looks: Sequence[Look]) -> str:
    """Writes a self-contained HTML page, which darkens each image for the word that is chosen."""
    data = [
        {
            'words': look.words,
            'pixels': np.broadcast_to(look.image, (*look.image.shape[:2], 3)).tolist(),
            'weights': look.weights.round(4).tolist(),
        }
        for look in looks
    ]
    template = string.Template(pathlib.Path(__file__).with_name('page.html').read_text())
    content = json.dumps({'darkest': DARKEST, 'looks': data}, ensure_ascii=False, separators=(',', ':'))
    # Without "<", no word can close the script element.
    return template.substitute(data=content.replace('<', '\\u003c'))
