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


def reordered(table: np.ndarray, order: Sequence[int], missing: float = 0.0) -> np.ndarray:
    """The rows of a table in an order; -1 stands for a row that it lacks, of the value `missing`."""
    if not np.isfinite(table).all():
        raise ConfigError('an embedding has values that are not finite')
    rows = np.concatenate([table, np.full_like(table[:1], missing)]).astype(np.float32)
    return rows[list(order)]
