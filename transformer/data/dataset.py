"""What a run reads of its data: the examples of every split, in pieces and as raw text."""

import dataclasses
import functools
import itertools

import numpy as np
from jaxtyping import Int, Integer

from transformer import files
from transformer.data.tokenizer import AnyTokenizer


@dataclasses.dataclass(frozen=True, eq=False)
class Ragged:
    """One side of a split's examples: example i is `tokens[offsets[i]:offsets[i + 1]]`, EOS included."""

    tokens: Integer[np.ndarray, ' tokens']
    offsets: Int[np.ndarray, ' examples_and_1']

    @functools.cached_property
    def lengths(self) -> Int[np.ndarray, ' examples']:
        """Pieces of each example, EOS counted."""
        return np.diff(self.offsets)


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """One split in pieces, by field."""

    fields: dict[str, Ragged]

    def __len__(self) -> int:
        field, *_ = self.fields.values()
        return len(field.offsets) - 1

    def example(self, i: int) -> dict[str, Integer[np.ndarray, ' _']]:
        """The pieces of every field of example i, each with EOS."""
        return {
            name: field.tokens[field.offsets[i] : field.offsets[i + 1]] for name, field in self.fields.items()
        }


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """What a run reads of its data: the tokenizer, the splits and the lock file's content."""

    folder: files.Path
    codec: AnyTokenizer
    splits: dict[str, Split]
    manifest: dict

    def texts(self, split: str) -> dict[str, list[str]]:
        """The raw texts of every field of dev, test or pronoun, one per example, as they came."""
        return {field: self._texts(split, field) for field in self.splits[split].fields}

    def raw(self, split: str, field: str) -> bytes:
        """The raw text of a field of dev, test or pronoun: its lines, each with a newline, or its files."""
        return (self.folder / f'{split}.{field}.txt').read_bytes()

    def _texts(self, split: str, field: str) -> list[str]:
        content = self.raw(split, field)
        offsets = self.folder / f'{split}.{field}_text_offsets.bin'
        # Only whole files need offsets: they hold newlines.
        if not offsets.exists():
            return content.decode().split('\n')[:-1]
        ends = np.frombuffer(offsets.read_bytes(), '<i8').tolist()
        return [content[start:end].decode() for start, end in itertools.pairwise(ends)]
