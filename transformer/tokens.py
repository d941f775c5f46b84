"""Pieces with a fixed meaning (padding, end, unknown, start), and the types of a batch."""

from typing import Any, NamedTuple

from jaxtyping import Int

PAD, EOS, UNK = 0, 1, 2
# The decoder's first input: the zero embedding of padding (the released code has no start token).
START = PAD


class Tokens(NamedTuple):
    """Rows of pieces, in arrays of numpy or JAX.

    Attributes:
      tokens: the pieces, `PAD` where a row is empty.
      segments: the number of a piece's sentence or document in its row, counted from 1, or 0 for padding.
      positions: the place of a piece in its segment, counted from 0.
    """

    tokens: Int[Any, '*B S']
    segments: Int[Any, '*B S']
    positions: Int[Any, '*B S']


# Arrays or `Tokens` by field: {'source': Tokens, 'target': Tokens}, {'image': array, 'label': array}, ...
Batch = dict[str, Any]
