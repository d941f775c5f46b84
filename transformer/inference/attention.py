"""A trained model's attention weights in one sentence, per piece and per word."""

import codecs
import functools
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from transformer.config import Config, ConfigError
from transformer.nn import models
from transformer.nn.ensemble import Params
from transformer.runs.hashes import named_leaves
from transformer.tokens import Batch, Tokens

START_MARK = '·'  # in figures, the start token
BLANK = '␣'  # in figures, a word that is only blanks
_BYTES = re.compile('(▁?)((?:<0x[0-9A-F]{2}>)+)')  # a piece of a character that the vocabulary lacks
# The three kinds of attention (§3.2.3).
ENCODER_SELF_ATTENTION = 'encoder self-attention'
CROSS_ATTENTION = 'encoder-decoder attention'
DECODER_SELF_ATTENTION = 'decoder self-attention'


class Attended(NamedTuple):
    """One kind of attention in one sentence, by pieces or by words, in every layer (N) and head (H).

    A figure shows the attention of `word`, one of the queries' words, or of all words if it is None.
    """

    name: str
    weights: Float[np.ndarray, 'N H Q K']
    queries: list[str]
    keys: list[str]
    word: str | None = None


class Attention(NamedTuple):
    """A sentence, the model's output for it ('' if none), and every kind of attention in them."""

    sentence: str
    output: str
    kinds: list[Attended]


def one_row(tokens: list[int]) -> Tokens:
    """Turns one sentence into the `Tokens` of a batch with one row."""
    row = np.asarray(tokens, np.int32)[None]
    return Tokens(row, np.ones_like(row), np.arange(len(tokens), dtype=np.int32)[None])


@functools.partial(jax.jit, static_argnums=0)
def _intermediates(config: Config, params: Params, batch: Batch):
    model = models.build(config)
    _, recorded = model.apply({'params': params}, batch, train=False, mutable=['intermediates'])
    return recorded.get('intermediates')  # None if the model has no attention


def attention_weights(
    config: Config, params: Params, batch: Batch
) -> dict[str, Float[np.ndarray, 'N H Q K']]:
    """Computes the weights of each kind of attention for the first row of a batch, as `weights_of_rows`."""
    return {kind: weights[:, 0] for kind, weights in weights_of_rows(config, params, batch).items()}


def weights_of_rows(
    config: Config, params: Params, batch: Batch
) -> dict[str, Float[np.ndarray, 'N B H Q K']]:
    """Computes the weights of each kind of attention in a model.

    Kinds are `encoder/self_attention`, `decoder/self_attention` and `decoder/cross_attention`. A recurrent
    decoder has one layer of attention with one head; a convolutional decoder has one head in each layer.

    Raises:
      ConfigError: the model has no attention, or is an ensemble.
    """
    if isinstance(params, tuple):
        raise ConfigError('attention can be shown for one checkpoint, not for an ensemble')
    with jax.default_matmul_precision(config.train.matmul_precision):
        recorded = _intermediates(config, params, batch)
    if not recorded:
        m = config.model
        because = ', model.alignment=none' if (m.kind, m.alignment) == ('recurrent', 'none') else ''
        raise ConfigError(f'model.kind={m.kind!r}{because}: this model has no attention')
    by_kind: dict[str, dict[int, np.ndarray]] = {}
    for name, weights in named_leaves(recorded).items():
        stack, layer, kind = re.search(r'(\w+)/(?:layer_(\d+)/)?(\w+)/weights', name).groups()
        by_kind.setdefault(f'{stack}/{kind}', {})[int(layer or 0)] = np.asarray(weights)
    return {name: np.stack([layers[n] for n in sorted(layers)]) for name, layers in by_kind.items()}


def by_words(kind: Attended) -> Attended:
    """Turns piece-to-piece weights into word-to-word weights.

    Weights to a word's pieces are summed, and weights from its pieces averaged (Clark et al. 2019, section
    4.1), so that each word's weights still add up to one.
    """
    queries, keys = _words_and_start(kind.queries), _words_and_start(kind.keys)
    summed = np.stack([kind.weights[..., places].sum(axis=-1) for _, places in keys], axis=-1)
    weights = np.stack([summed[:, :, places].mean(axis=2) for _, places in queries], axis=2)
    return kind._replace(weights=weights, queries=[w for w, _ in queries], keys=[w for w, _ in keys])


def _words_and_start(pieces: Sequence[str]) -> list[tuple[str, list[int]]]:
    first = 1 if pieces[:1] == [START_MARK] else 0
    words = [(word or BLANK, [first + place for place in where]) for word, where in words_of(pieces[first:])]
    return [(START_MARK, [0]), *words] if first else words


def has_word(pieces: Sequence[str], word: str) -> bool:
    """Returns whether a sentence's pieces, as `Tokenizer.pieces` writes them, contain a word."""
    return any(known == word for known, _ in words_of(pieces))


def check_word(flag: str, word: str | None, pieces: Sequence[str]) -> None:
    """Raises ConfigError if a sentence's pieces do not contain the word that a flag gives."""
    if word is not None and not has_word(pieces, word):
        words = ' '.join(known for known, _ in words_of(pieces))
        raise ConfigError(f'--{flag}={word}: not a word of {words!r}')


def places(pieces: Sequence[str], word: str) -> list[int]:
    """Returns the places of a word's pieces in a sentence that contains it, at its first occurrence."""
    return next(where for known, where in words_of(pieces) if known == word)


def last_word(pieces: Sequence[str]) -> str | None:
    """Returns the last word that begins with a letter or digit, or None."""
    words = [word for word, _ in words_of(pieces) if re.match(r'\w', word)]
    return words[-1] if words else None


def _is_part(character: str) -> bool:
    """Returns whether words contain a character: a letter, a digit, or a mark, such as Hindi vowels."""
    return bool(re.match(r'\w', character)) or unicodedata.category(character or ' ').startswith('M')


def _with_characters(pieces: Sequence[str]) -> list[str]:
    """Writes characters in place of their bytes (pieces such as <0xC3>): at the first byte, '' at others."""
    written, begun, decoder = [], 0, codecs.getincrementaldecoder('utf-8')('replace')
    for i, piece in enumerate(pieces):
        coded = _BYTES.fullmatch(piece)
        if coded is None or coded[1]:
            decoder.reset()
        if coded is None:
            written.append(piece)
            continue
        if not decoder.getstate()[0]:
            begun = i
        written.append(coded[1])
        text = decoder.decode(bytes.fromhex(re.sub('<0x|>', '', coded[2])))
        written[begun] += text if text.isprintable() else coded[2]
    return written


def words_of(pieces: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Splits pieces into words, each with the places of its pieces.

    A word begins at "▁", at punctuation and after it, but not after an apostrophe.
    """
    words: list[tuple[str, list[int]]] = []
    for i, piece in enumerate(_with_characters(pieces)):
        apart = piece.startswith('▁') or not _is_part(piece[:1])
        open_before = words and (words[-1][0][-1:] in ('', "'", '’') or _is_part(words[-1][0][-1]))
        # An empty piece is the rest of a character.
        if not words or (piece and (apart or not open_before)):
            words.append(('', []))
        word, where = words[-1]
        words[-1] = word + piece.lstrip('▁'), [*where, i]
    return words
