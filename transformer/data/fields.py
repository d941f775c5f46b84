"""The field types of a task's data, and the rows that a reader yields."""

from typing import Any, NamedTuple

import numpy as np

SPLITS = ('train', 'dev', 'test')


class Text(NamedTuple):
    """A text, stored as pieces and, outside the training split, also as raw text.

    Attributes:
      language: the suffix of its text files, or its feature in a TFDS dataset; None if files are named in
        full.
      option: the option that sets the language; errors name it.
    """

    language: str | None
    option: str


class Tree(NamedTuple):
    """A constituency tree, stored as the pieces of its brackets and, outside training, as bracketed text."""

    language = None


class Spellings(NamedTuple):
    """A text that can be spelled in several right ways, one of which a model learns; fields as of `Text`."""

    language: str | None
    option: str


class Label(NamedTuple):
    """A class, stored as its number; `names` lists the classes in order, None means the source's classes."""

    names: tuple[str, ...] | None = None

    shape = ()
    dtype = np.dtype('<i4')


class Image(NamedTuple):
    """An image of a fixed size, stored as bytes. One channel is grey, three are RGB."""

    height: int
    width: int
    channels: int

    dtype = np.dtype('|u1')

    @property
    def shape(self) -> tuple[int, ...]:
        """Height, width, channels."""
        return tuple(self)


Sequence = Text | Tree | Spellings
Field = Sequence | Label | Image


class Reading(NamedTuple):
    """The data that a task reads.

    Attributes:
      fields: the type of each named field of a row.
      options: the `data` options that determine the splits' content.
    """

    fields: dict[str, Field]
    options: tuple[str, ...]

    def texts(self) -> dict[str, Sequence]:
        """The fields that are sequences of pieces."""
        return {name: field for name, field in self.fields.items() if isinstance(field, Sequence)}

    def dense(self) -> dict[str, Label | Image]:
        """The fields that have the same shape in every row."""
        return {name: field for name, field in self.fields.items() if not isinstance(field, Sequence)}

    def languages(self) -> list[str | None]:
        """The languages of the text fields, in order."""
        return [field.language for field in self.texts().values()]


class Row(NamedTuple):
    """One example of a source.

    Attributes:
      values: each field's text, class name, or array of pixels.
      files: the file that each field's value was read from.
      line: the line where the texts begin, or the number of the row in its file.
    """

    values: dict[str, Any]
    files: dict[str, str]
    line: int


class Gap(NamedTuple):
    """A text with a gap, the forms that its word could have, and the right form."""

    text: str
    forms: tuple[str, ...]
    right: str
