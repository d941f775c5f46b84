"""The type of every compared search, and the pieces that it never writes."""

from collections.abc import Callable, Sequence

from transformer.config import Config
from transformer.tokens import PAD, UNK

# Maps rows of pieces to their best outputs, without the end symbol.
Search = Callable[[Sequence[list[int]]], list[list[int]]]


def never_written(config: Config) -> list[int]:
    """Lists the pieces that no output may contain."""
    return [PAD, UNK, *range(config.data.pieces, config.model.vocab_size)]
