"""Chooses pieces of rows to hide, and replaces them (Devlin et al. 2019, §3.1)."""

import numpy as np
from jaxtyping import Bool, Int, Integer, Shaped, UInt64

from transformer.config.tasks import Masked
from transformer.tokens import UNK, Tokens

# The piece that replaces a hidden one. No text contains it, because every byte is a piece.
MASK = UNK
# The shares of chosen pieces that are replaced by MASK and by a random piece; the others stay.
MASKED, RANDOM = 0.8, 0.1


def hide(
    rows: Tokens,
    options: Masked,
    ordinary: Integer[np.ndarray, ' pieces'],
    bits: UInt64[np.ndarray, 'R 3 S'],
    begins: Bool[np.ndarray, ' vocabulary'] | None = None,
) -> dict[str, Tokens | Shaped[np.ndarray, 'R P']]:
    """Chooses a share of each row's pieces, never an end or another special piece, and replaces most of them.

    Args:
      options: the share, its limit and what it counts; at least one piece is chosen, if the row has any, but
        none where each word has more pieces than are to be chosen.
      ordinary: the pieces that can be chosen, or replace one, sorted.
      bits: random bits per position: to choose pieces, to choose how to replace each, and by which piece.
      begins: whether each piece begins a word, if words are chosen as a whole.

    Returns:
      `text`, the rows after replacement; and, for at most P chosen pieces per row, their `places`, `target`
      (the pieces before replacement) and `weight`: 1.0, or 0.0 where fewer than P are chosen.
    """
    eligible = (rows.segments > 0) & np.isin(rows.tokens, ordinary)
    available = eligible.sum(axis=1)
    counted = available if options.of == 'ordinary' else (rows.segments > 0).sum(axis=1)
    width = eligible.shape[1]
    most = np.minimum(available, options.places(width))
    count = np.minimum(np.maximum(np.rint(options.rate * counted), 1), most).astype(np.int64)
    if begins is None:
        # Pieces that cannot be chosen sort last; ties keep their order.
        order = np.argsort(
            np.where(eligible, bits[:, 0] >> 1, np.iinfo(np.uint64).max), axis=1, kind='stable'
        )
        places = np.where(np.arange(width) < count[:, None], order, width)
    else:
        places = np.where(
            _whole_words(eligible, begins[rows.tokens], count, bits[:, 0]), np.arange(width), width
        )
    places = np.sort(places, axis=1)[:, : options.places(width)]
    chosen = places < width
    places = np.where(chosen, places, 0)
    at = lambda values: np.take_along_axis(values, places, axis=1)
    target, outcome = at(rows.tokens), at(bits[:, 1]) / 2.0**64
    random = ordinary[at(bits[:, 2]) % len(ordinary)]
    replaced = np.where(outcome < MASKED, MASK, np.where(outcome < MASKED + RANDOM, random, target))
    tokens = rows.tokens.copy()
    row, _ = np.nonzero(chosen)
    tokens[row, places[chosen]] = replaced[chosen]
    return {
        'text': rows._replace(tokens=tokens),
        'places': places.astype(np.int32),
        'target': np.where(chosen, target, 0).astype(np.int32),
        'weight': chosen.astype(np.float32),
    }


def _whole_words(
    eligible: Bool[np.ndarray, 'R S'],
    begins: Bool[np.ndarray, 'R S'],
    count: Int[np.ndarray, ' R'],
    keys: UInt64[np.ndarray, 'R S'],
) -> Bool[np.ndarray, 'R S']:
    """Chooses words in a random order, except those with which more than `count` pieces would be chosen."""
    chosen = np.zeros_like(eligible)
    for row, left in enumerate(count.tolist()):
        (places,) = np.nonzero(eligible[row])
        words = [word for word in np.split(places, np.flatnonzero(begins[row, places])) if len(word)]
        for word in sorted(words, key=lambda word: keys[row, word[0]]):
            if len(word) <= left:
                chosen[row, word] = True
                left -= len(word)
    return chosen
