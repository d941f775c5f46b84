"""The arrays of a field: ragged (pieces of texts), or dense (images, labels, numbers)."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int, Integer, Shaped

Ids = Sequence[int] | np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Ragged:
    """A field in pieces: example i is `tokens[offsets[i]:offsets[i + 1]]`, EOS included."""

    tokens: Integer[np.ndarray, ' tokens']
    offsets: Int[np.ndarray, ' examples_and_1']

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> Integer[np.ndarray, ' _']:
        return self.tokens[self.offsets[i] : self.offsets[i + 1]]

    @functools.cached_property
    def lengths(self) -> Int[np.ndarray, ' examples']:
        """Returns the number of pieces in each example, including EOS."""
        return np.diff(self.offsets)

    def take(self, indexes: Sequence[int]) -> 'Ragged':
        """Returns the examples with these indexes."""
        return ragged([self[i] for i in indexes], self.tokens.dtype)


@dataclasses.dataclass(frozen=True, eq=False)
class Dense:
    """A field that has the same shape in every example, such as images or labels."""

    values: Shaped[np.ndarray, 'examples ...']

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, i: int) -> Shaped[np.ndarray, '...']:
        return self.values[i]

    def take(self, indexes: Sequence[int]) -> 'Dense':
        """Returns the examples with these indexes."""
        return Dense(self.values[np.asarray(indexes, np.int64)])


def ragged(sequences: Sequence[Ids], dtype: np.dtype) -> Ragged:
    """Joins sequences, of pieces or of bytes, into one array."""
    arrays = [np.asarray(sequence, dtype) for sequence in sequences]
    tokens = np.concatenate([np.empty(0, dtype), *arrays])
    return Ragged(tokens, np.cumsum([0, *map(len, arrays)], dtype=np.int64))


def dtype_of(size: int) -> np.dtype:
    """Returns the integer type in which numbers below `size` are stored."""
    return np.dtype('<u2' if size <= 1 << 16 else '<i4')
