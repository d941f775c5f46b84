"""Finds where a decoder looks in an image for each word (Xu et al. 2015), and writes a page that shows it."""

import json
import math
import pathlib
import string
from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

from transformer.data.rows import padded
from transformer.inference.attention import attention_weights, words_of
from transformer.runs.restore import Trained
from transformer.tasks.images.looks import DARKEST, Look
from transformer.tokens import EOS

_WIDTHS = 16  # captions are padded to a multiple of it, so that few programs serve all lengths


def look(trained: Trained, image: UInt8[np.ndarray, 'h w c'], text: str) -> Look:
    """Finds where the decoder looks in an image for each word of a caption."""
    config, codec = trained.config, trained.codecs['text']
    tokens = codec.encode(text)
    width = _WIDTHS * math.ceil(len(tokens) / _WIDTHS)
    batch = {'image': image[None, None], 'text': padded([tokens], (1, width))}
    side = config.images.size // config.images.patch
    weights = attention_weights(config, trained.params, batch)['decoder/cross_attention']
    # Without the class token, which is first if there is one.
    of_pieces = weights[-1, :, : len(tokens), -side * side :].mean(axis=0).reshape(-1, side, side)
    words = words_of(codec.marked([piece for piece in tokens if piece != EOS]))
    of_words = [of_pieces[places].mean(axis=0) for _, places in words]
    return Look(image, [word for word, _ in words], np.array(of_words).reshape(-1, side, side))


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
    template = string.Template(pathlib.Path(__file__).with_name('page.html').read_text('utf-8'))
    content = json.dumps({'darkest': DARKEST, 'looks': data}, ensure_ascii=False, separators=(',', ':'))
    # Without "<", no word can close the script element.
    return template.substitute(data=content.replace('<', '\\u003c'))
