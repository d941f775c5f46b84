"""A model of another program in our terms."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from transformer.config import ConfigError
from transformer.data.codec import Codec
from transformer.data.tokenizer import PiecesTokenizer, SeparateTokenizers
from transformer.export.layout import Arrays
from transformer.tokens import EOS, START, UNK

# The texts of a pair.
FIELDS = 'source', 'target'

# Added to the logits of pieces that the other program does not have.
NEVER = -1e9


class Foreign(NamedTuple):
    """A model of another program.

    Attributes:
      changes: the options in which it differs from the default config.
      params: its parameters, by path.
      codec: its tokenizer.
      ignored: the names of its arrays that are not imported, because no model here has such a part.
    """

    changes: dict[str, object]
    params: Arrays
    codec: Codec
    ignored: tuple[str, ...] = ()


def learned_positions(length: int) -> dict[str, object]:
    """The options of a table of positions, and of texts that fit into it."""
    more = min(50, length // 2)
    return {
        'model.positions': 'learned',
        'model.max_len': length,
        'data.max_len': min(256, length),
        'decode.extra_len': more,
        'decode.max_source_len': min(256, length - more),
    }


def smoothing(bias: np.ndarray) -> dict[str, object]:
    """No label smoothing for a model with pieces that it never writes: they would get a share of it."""
    return {'train.eps_ls': 0.0} if (bias <= NEVER).any() else {}


def reordered(table: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """The rows of a table in an order; -1 stands for a row of zeros."""
    if not np.isfinite(table).all():
        raise ConfigError('an embedding has values that are not finite')
    rows = np.concatenate([table, np.zeros_like(table[:1])]).astype(np.float32)
    return rows[list(order)]


def order_of(tokens: Sequence[str], special: Mapping[int, str | None]) -> list[int]:
    """The places of tokens in our order: START, EOS, UNK (-1 for those that are missing), all others."""
    place = {token: number for number, token in enumerate(tokens)}
    first = [place.get(special[piece], -1) for piece in (START, EOS, UNK)]
    return [*first, *(number for number in range(len(tokens)) if number not in first)]


def list_tokenizers(
    vocabularies: Sequence[Sequence[str]],
    orders: Sequence[Sequence[int]],
    *,
    begin: bool,
    end: bool,
) -> SeparateTokenizers:
    """The tokenizers of a source and a target that are lists of pieces.

    They cut a text into characters if all pieces are single characters; else at its blanks.

    Args:
      orders: the places of the pieces in our order.
      begin: whether a source begins with START.
      end: whether a source ends with EOS.
    """
    ordered = [
        [tokens[n] if n >= 0 else '<pad>' for n in order]
        for tokens, order in zip(vocabularies, orders, strict=True)
    ]
    others = [token for tokens in ordered for token in tokens[UNK + 1 :]]
    characters = all(len(token) == 1 for token in others if not re.fullmatch('<.*>', token))
    joiner = '' if characters else ' '
    source, target = (
        PiecesTokenizer.from_pieces(tokens, joiner, begin=begins, end=ends)
        for tokens, begins, ends in zip(ordered, (begin, False), (end, True), strict=True)
    )
    return SeparateTokenizers(dict(zip(FIELDS, (source, target), strict=True)))
