"""Chooses pieces of rows to hide, and replaces them (Devlin et al. 2019, §3.1)."""

import numpy as np
from jaxtyping import Integer, Shaped, UInt64

from transformer.config.tasks import Masked
from transformer.tokens import UNK, Tokens

# The piece that replaces a hidden one. No text contains it, because every byte is a piece.
MASK = UNK
# The shares of chosen pieces that are replaced by MASK and by a random piece; the others stay.
MASKED, RANDOM = 0.8, 0.1


def hide(
    rows: Tokens,
    rate: float,
    ordinary: Integer[np.ndarray, ' pieces'],
    bits: UInt64[np.ndarray, 'R 3 S'],
) -> dict[str, Tokens | Shaped[np.ndarray, 'R P']]:
    """Chooses a share of each row's pieces, never an end or another special piece, and replaces most of them.

    Args:
      rate: the share; at least one piece, if the row has any.
      ordinary: the pieces that can be chosen, or replace one, sorted.
      bits: random bits per position: to choose pieces, to choose how to replace each, and by which piece.

    Returns:
      `text`, the rows after replacement; and, for at most P chosen pieces per row, their `places`, `target`
      (the pieces before replacement) and `weight`: 1.0, or 0.0 where fewer than P are chosen.
    """
    eligible = (rows.segments > 0) & np.isin(rows.tokens, ordinary)
    available = eligible.sum(axis=1)
    count = np.where(available > 0, np.maximum(np.rint(rate * available), 1), 0)
    # Pieces that cannot be chosen sort last; ties keep their order.
    order = np.argsort(np.where(eligible, bits[:, 0] >> 1, np.iinfo(np.uint64).max), axis=1, kind='stable')
    places = np.sort(
        np.where(np.arange(eligible.shape[1]) < count[:, None], order, eligible.shape[1]), axis=1
    )[:, : Masked(rate).places(eligible.shape[1])]
    chosen = places < eligible.shape[1]
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
