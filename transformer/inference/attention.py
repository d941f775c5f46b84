"""Attention weights of a trained model in a sentence, by pieces and by words."""

import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from transformer.config import Config, ConfigError
from transformer.nn import models
from transformer.nn.ensemble import Params
from transformer.tokens import Batch, Tokens

START_MARK = '·'  # in figures, the start token
BLANK = '␣'  # in figures, a word of blanks alone
# The three kinds of attention, as §3.2.3 has them.
ENCODER_SELF_ATTENTION = 'encoder self-attention'
CROSS_ATTENTION = 'encoder-decoder attention'
DECODER_SELF_ATTENTION = 'decoder self-attention'


class Attended(NamedTuple):
    """One kind of attention in one sentence, by pieces or by words, in every layer (N) and head (H).

    A figure looks at `word`, one of the queries' words; at all if None.
    """

    name: str
    weights: Float[np.ndarray, 'N H Q K']
    queries: list[str]
    keys: list[str]
    word: str | None = None


class Attention(NamedTuple):
    """A sentence, what the model wrote to it (empty if nothing), and every kind of attention in them."""

    sentence: str
    output: str
    kinds: list[Attended]


def one_row(tokens: list[int]) -> Tokens:
    """A batch of one row, which holds one sentence."""
    row = np.asarray(tokens, np.int32)[None]
    return Tokens(row, np.ones_like(row), np.arange(len(tokens), dtype=np.int32)[None])


@functools.partial(jax.jit, static_argnums=0)
def _intermediates(config: Config, params: Params, batch: Batch):
    model = models.build(config)
    _, kept = model.apply({'params': params}, batch, train=False, mutable=['intermediates'])
    return kept.get('intermediates')  # none where nothing was kept


def attention_weights(
    config: Config, params: Params, batch: Batch
) -> dict[str, Float[np.ndarray, 'N H Q K']]:
    """The weights of every kind of attention that a model has, of the first row of a batch.

    Kinds are `encoder/self_attention`, `decoder/self_attention` and `decoder/cross_attention`. A recurrent
    decoder has one attention for all its layers, with one head; a convolutional one a head in each layer.
    """
    if isinstance(params, tuple):
        raise ConfigError('attention can be shown of one checkpoint, not of an ensemble')
    with jax.default_matmul_precision(config.train.matmul_precision):
        kept = _intermediates(config, params, batch)
    if not kept:
        raise ConfigError(f'model.kind={config.model.kind!r}: this model has no attention to look at')
    found: dict[str, dict[int, np.ndarray]] = {}
    for path, weights in jax.tree_util.tree_leaves_with_path(kept):
        name = jax.tree_util.keystr(path, simple=True, separator='/')
        stack, layer, kind = re.match(r'(\w+)/(?:layer_(\d+)/)?(\w+)/', name).groups()
        found.setdefault(f'{stack}/{kind}', {})[int(layer or 0)] = np.asarray(weights[0])
    return {name: np.stack([layers[n] for n in sorted(layers)]) for name, layers in found.items()}


def by_words(seen: Attended) -> Attended:
    """The same from words to words, where it is from pieces to pieces.

    A word gets the sum of what its pieces get, and gives the mean of what they give (Clark et al. 2019,
    section 4.1), so that the weights of a word still add up to one.
    """
    queries, keys = _words_after_start(seen.queries), _words_after_start(seen.keys)
    summed = np.stack([seen.weights[..., places].sum(axis=-1) for _, places in keys], axis=-1)
    weights = np.stack([summed[:, :, places].mean(axis=2) for _, places in queries], axis=2)
    return Attended(seen.name, weights, [word for word, _ in queries], [word for word, _ in keys], seen.word)


def _words_after_start(pieces: Sequence[str]) -> list[tuple[str, list[int]]]:
    first = 1 if pieces[:1] == [START_MARK] else 0
    words = [(word or BLANK, [first + place for place in where]) for word, where in words_of(pieces[first:])]
    return [(START_MARK, [0]), *words] if first else words


def has_word(pieces: Sequence[str], word: str) -> bool:
    """Whether a sentence, written as `Tokenizer.pieces` does, has a word."""
    return any(known == word for known, _ in words_of(pieces))


def places(pieces: Sequence[str], word: str) -> list[int]:
    """Which pieces of a sentence, written as `Tokenizer.pieces` does, are those of a word that it has."""
    return next(where for known, where in words_of(pieces) if known == word)


def last_word(pieces: Sequence[str]) -> str | None:
    """The last word that has a letter or digit; None if none has."""
    words = [word for word, _ in words_of(pieces) if re.match(r'\w', word)]
    return words[-1] if words else None


def words_of(pieces: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Words and punctuation, each with the places of its pieces."""
    found: list[tuple[str, list[int]]] = []
    for i, piece in enumerate(pieces):
        if piece.startswith('▁') or not re.match(r'\w', piece) or not found:
            found.append(('', []))
        word, where = found[-1]
        found[-1] = word + piece.lstrip('▁'), [*where, i]
    return found
