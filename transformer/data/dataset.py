"""Datasets: splits of named fields, each ragged (texts) or dense (images, labels)."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Shaped

from transformer import files
from transformer.data import manifest as manifests
from transformer.data.arrays import Dense, Ragged
from transformer.data.codec import Codecs


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """The examples of one split, by field."""

    fields: dict[str, Ragged | Dense]

    def __len__(self) -> int:
        return len(next(iter(self.fields.values())))

    def ragged(self) -> dict[str, Ragged]:
        """Returns the fields that are rows of pieces."""
        return {name: field for name, field in self.fields.items() if isinstance(field, Ragged)}

    def dense(self) -> dict[str, Dense]:
        """Returns the fields that have the same shape in every example."""
        return {name: field for name, field in self.fields.items() if isinstance(field, Dense)}

    def example(self, i: int) -> dict[str, Any]:
        """Returns every field of example i, texts as pieces."""
        return {name: field[i] for name, field in self.fields.items()}


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """The data of a run.

    Attributes:
      folder: the folder of the raw texts.
      codecs: the codec that turns each field's values into numbers and back.
      manifest: the content of `data.lock.json`.
    """

    folder: files.Path
    codecs: Codecs
    splits: dict[str, Split]
    manifest: dict

    def texts(self, split: str) -> dict[str, list[str]]:
        """Returns each field's raw texts, one per example, if it keeps them in a split other than train."""
        names = (name.split('.') for name in self.manifest['checksums'] if name.endswith('.txt'))
        return {field: self._texts(split, field) for its_split, field, _ in names if its_split == split}

    def raw(self, split: str, field: str) -> bytes:
        """Returns a field's raw text in a split other than train: lines with newlines, or whole files."""
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
    """Reads the arrays of a split that a manifest describes. `load(file, dtype)` reads a flat array."""
    # Earlier versions described only fields of one shape, and stored the pieces of all texts in one type.
    described = manifest.get('fields', {})
    fields: dict[str, Ragged | Dense] = {}
    for name in manifests.piece_counts(manifest, split):
        tokens = load(f'{split}.{name}.bin', np.dtype(described.get(name, manifest)['dtype']))
        fields[name] = Ragged(tokens, load(f'{split}.{name}_offsets.bin', np.dtype('<i8')))
    for name, field in described.items():
        if name not in fields:
            values = load(f'{split}.{name}.bin', np.dtype(field['dtype']))
            fields[name] = Dense(values.reshape(-1, *field['shape']))
    return Split({name: fields[name] for name in described} if described.keys() == fields.keys() else fields)
