"""Datasets: splits of named fields, each ragged (texts) or dense (images, labels)."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int, Integer, Shaped

from transformer import files
from transformer.data import manifest as manifests
from transformer.data.codec import Codec

Ids = Sequence[int] | np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Ragged:
    """A text field in pieces: example i is `tokens[offsets[i]:offsets[i + 1]]`, EOS included."""

    tokens: Integer[np.ndarray, ' tokens']
    offsets: Int[np.ndarray, ' examples_and_1']

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> Integer[np.ndarray, ' _']:
        return self.tokens[self.offsets[i] : self.offsets[i + 1]]

    @functools.cached_property
    def lengths(self) -> Int[np.ndarray, ' examples']:
        """The number of pieces in each example, including EOS."""
        return np.diff(self.offsets)


def ragged(sequences: Sequence[Ids], dtype: np.dtype) -> Ragged:
    """Joins sequences, of pieces or of bytes, into one array."""
    arrays = [np.asarray(sequence, dtype) for sequence in sequences]
    tokens = np.concatenate([np.empty(0, dtype), *arrays])
    return Ragged(tokens, np.cumsum([0, *map(len, arrays)], dtype=np.int64))


@dataclasses.dataclass(frozen=True, eq=False)
class Dense:
    """A field that has the same shape in every example, such as images or labels."""

    values: Shaped[np.ndarray, 'examples ...']

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, i: int) -> Shaped[np.ndarray, '...']:
        return self.values[i]


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """The examples of one split, by field."""

    fields: dict[str, Ragged | Dense]

    def __len__(self) -> int:
        return len(next(iter(self.fields.values())))

    def example(self, i: int) -> dict[str, Any]:
        """Every field of example i, texts as pieces."""
        return {name: field[i] for name, field in self.fields.items()}


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """The data of a run.

    Attributes:
      folder: where the raw texts are.
      codec: turns fields into numbers and back.
      manifest: the content of `data.lock.json`.
    """

    folder: files.Path
    codec: Codec
    splits: dict[str, Split]
    manifest: dict

    def texts(self, split: str) -> dict[str, list[str]]:
        """The raw texts of each text field in a split other than train, one per example."""
        fields = self.splits[split].fields
        return {name: self._texts(split, name) for name in fields if isinstance(fields[name], Ragged)}

    def raw(self, split: str, field: str) -> bytes:
        """A field's raw text in a split other than train: lines, each with a newline, or whole files."""
        return (self.folder / f'{split}.{field}.txt').read_bytes()

    def _texts(self, split: str, field: str) -> list[str]:
        content = self.raw(split, field)
        offsets = self.folder / f'{split}.{field}_text_offsets.bin'
        # Only whole files have offsets, because they contain newlines.
        if not offsets.exists():
            return content.decode().split('\n')[:-1]
        ends = np.frombuffer(offsets.read_bytes(), '<i8').tolist()
        return [content[start:end].decode() for start, end in itertools.pairwise(ends)]


def read_split(
    manifest: manifests.Manifest, split: str, load: Callable[[str, np.dtype], Shaped[np.ndarray, ' _']]
) -> Split:
    """Reads the arrays of a split that a manifest describes; `load(file, dtype)` reads a flat array."""
    fields: dict[str, Ragged | Dense] = {}
    for name in manifests.piece_counts(manifest, split):
        tokens = load(f'{split}.{name}.bin', np.dtype(manifest['dtype']))
        fields[name] = Ragged(tokens, load(f'{split}.{name}_offsets.bin', np.dtype('<i8')))
    # The manifest of a dataset without dense fields has no such entry.
    for name, field in manifest.get('fields', {}).items():
        values = load(f'{split}.{name}.bin', np.dtype(field['dtype']))
        fields[name] = Dense(values.reshape(-1, *field['shape']))
    return Split(fields)
