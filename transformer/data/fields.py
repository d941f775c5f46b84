"""Field types: what each named field of a task's data holds, and the rows that a reader yields."""

from typing import Any, NamedTuple

import numpy as np

SPLITS = ('train', 'dev', 'test')


class Text(NamedTuple):
    """A text, stored as pieces and, outside training, also as it came.

    Attributes:
      language: the suffix of its text files and the feature of a TFDS dataset; None where files are named in
        full.
      option: the option that sets the language; errors name it.
    """

    language: str | None
    option: str


class Label(NamedTuple):
    """One of several classes, stored as its number; `names` in order, None for those of the source."""

    names: tuple[str, ...] | None = None

    shape = ()
    dtype = np.dtype('<i4')


class Image(NamedTuple):
    """A picture of a fixed size, stored as bytes. One channel is grey, three are RGB."""

    height: int
    width: int
    channels: int

    dtype = np.dtype('|u1')

    @property
    def shape(self) -> tuple[int, ...]:
        """Height, width, channels."""
        return tuple(self)


Field = Text | Label | Image


class Reading(NamedTuple):
    """What a task reads of its data.

    Attributes:
      fields: the type of each named field of a row.
      options: the options of data that determine what the splits hold.
    """

    fields: dict[str, Field]
    options: tuple[str, ...]

    def texts(self) -> dict[str, Text]:
        """The text fields."""
        return {name: field for name, field in self.fields.items() if isinstance(field, Text)}

    def dense(self) -> dict[str, Label | Image]:
        """The fields that take the same space in every row."""
        return {name: field for name, field in self.fields.items() if not isinstance(field, Text)}

    def languages(self) -> list[str | None]:
        """The languages of the text fields, in order."""
        return [field.language for field in self.texts().values()]


class Row(NamedTuple):
    """One example of a source.

    Attributes:
      values: of each field: a text, a class name, or an array of pixels.
      files: of each field, the file that its value was read from.
      line: the line where the texts begin, or the number of the row in its file.
    """

    values: dict[str, Any]
    files: dict[str, str]
    line: int


class Gap(NamedTuple):
    """A text with a gap, the forms that a word could have there, and the right one."""

    text: str
    forms: tuple[str, ...]
    right: str
