"""The field of a text with several right spellings."""

import dataclasses
import unicodedata
from collections.abc import Sequence
from typing import ClassVar

from transformer.config import ConfigError
from transformer.data.arrays import Dense, Ragged
from transformer.data.codec import Codecs
from transformer.data.fields import Example, Text

TABLES = ('.tsv', '.tsv.gz')  # how files end whose columns tabs separate
_INVISIBLE = ' \t\u00a0\u200e\u200f'  # at the ends of a text


def spellings(line: str) -> list[str]:
    """Lists the right spellings in a line: what is not empty after the first tab, or all without a tab."""
    first, *rest = line.split('\t')
    return [one for one in rest if comparable(one)] if rest else [first]


def comparable(text: str) -> str:
    """Returns a text in NFC, without the invisible blanks and marks of direction at its ends."""
    return unicodedata.normalize('NFC', text).strip(_INVISIBLE)


@dataclasses.dataclass(frozen=True)
class Spellings(Text):
    """A text that can be spelled in several right ways, of which a model learns the first.

    Attributes:
      of: the name of the field whose text they spell; a line with tabs begins with that text.
    """

    of: ClassVar[str] = 'source'

    def encode(self, name: str, codecs: Codecs, rows: Sequence[Example]) -> Ragged | Dense:
        """Returns the pieces of the first spellings.

        Raises:
          ConfigError: a row has the spellings of another source, or none in a file with columns of them.
        """
        columns = [row for row in rows if '\t' in row.values[name]]
        for row in columns:
            source, _, _ = row.values[name].partition('\t')
            if comparable(source) != comparable(row.values[self.of]):
                expected = f'{row.values[self.of]!r}, as {row.place(self.of)}'
                raise ConfigError(f'{row.place(name)}: begins with {source!r}, not with {expected}')
        # In a table of other columns, a spelling has a cell alone.
        apart = [row for row in rows if row.files[name] != row.files[self.of]]
        for row in rows if columns or any(row.files[name].endswith(TABLES) for row in apart) else ():
            if '\t' not in row.values[name] or not spellings(row.values[name]):
                raise ConfigError(
                    f'{row.place(name)}: no spelling; a line is a source and its spellings, with tabs between'
                )
        return super().encode(name, codecs, rows)

    def compared(self, value: str) -> str:
        """Returns the first spelling, or the whole line if it has none."""
        return next(iter(spellings(value)), value)
