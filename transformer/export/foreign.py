"""A model of another program in our terms."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transformer.config import ConfigError
from transformer.data.codec import Codec
from transformer.export.layout import Arrays

# Added to the logits of pieces that the other program does not have.
NEVER = -1e9


class Foreign(NamedTuple):
    """A model of another program.

    Attributes:
      changes: the options in which it differs from the default config.
      params: its parameters, by path.
      codec: its tokenizer.
    """

    changes: dict[str, object]
    params: Arrays
    codec: Codec


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
