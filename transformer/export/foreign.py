"""A model of another program in our terms."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from transformer.config import ConfigError, Model
from transformer.data.codec import Codec
from transformer.data.tokenizer import PiecesTokenizer, SeparateTokenizers
from transformer.export.layout import Arrays
from transformer.nn.positions import sinusoid
from transformer.tokens import EOS, START, UNK

# The texts of a pair.
FIELDS = 'source', 'target'

# Added to the logits of pieces that the other program does not have; float16 has no smaller numbers.
NEVER = -6e4


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


def positions(table: np.ndarray) -> dict[str, object]:
    """The options of a table of positions: sinusoids if it holds them, else learned positions."""
    length, width = table.shape
    for kind in ('paper', 'halves', 't2t'):
        for first in (0, 1):
            if np.allclose(table, sinusoid(first + length, width, kind)[first:], atol=1e-3):
                return {
                    'model.positions': 'sinusoidal',
                    'model.sinusoid': kind,
                    'model.first_position': first,
                }
    return learned_positions(length)


def word_tables(
    tables: Sequence[np.ndarray], bias: np.ndarray, *, joint: bool
) -> tuple[dict[str, object], Arrays]:
    """The options and the parameters of an encoder-decoder's tables of words.

    Args:
      tables: the embeddings of the source and of the target, and the softmax's matrix.
      bias: the softmax's bias.
      joint: whether source and target have the same pieces.
    """
    size = max(map(len, tables))
    source, target, softmax = (np.pad(table, [(0, size - len(table)), (0, 0)]) for table in tables)
    bias = np.pad(bias, (0, size - len(bias)), constant_values=NEVER)
    if not np.array_equal(target, softmax):
        tie = 'none'
        params = {
            'source_embedding/table': source,
            'target_embedding/table': target,
            'softmax/table': softmax,
        }
    elif joint and np.array_equal(source, target):
        tie, params = 'all', {'embedding/table': target}
    else:
        tie, params = 'decoder', {'source_embedding/table': source, 'target_embedding/table': target}
    changes = {
        'model.d_model': source.shape[1],
        'model.vocab_size': size,
        'model.tie_embeddings': tie,
        'model.softmax_bias': True,
        'data.vocabulary': 'joint' if joint else 'separate',
        **smoothing(bias),
    }
    return changes, {**params, 'softmax_bias': bias}


def smoothing(bias: np.ndarray) -> dict[str, object]:
    """No label smoothing for a model with pieces that it never writes: they would get a share of it."""
    return {'train.eps_ls': 0.0} if (bias <= NEVER).any() else {}


def all_rows(order: Sequence[int], rows: int) -> list[int]:
    """An order of a table's first rows, followed by its other rows; -1 is no row."""
    return [*order, *sorted(set(range(rows)) - set(order))]


def pair_tables(model: Model, params: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tables of the source, the target and the softmax of an encoder-decoder."""
    names = {
        'all': ('embedding', 'embedding', 'embedding'),
        'decoder': ('source_embedding', 'target_embedding', 'target_embedding'),
        'none': ('source_embedding', 'target_embedding', 'softmax'),
    }
    source, target, softmax = names[model.tie_embeddings]
    return params[f'{source}/table'], params[f'{target}/table'], params[f'{softmax}/table']


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
