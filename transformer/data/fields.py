"""The field types of a task's data: each learns its codec, and turns the values of rows into arrays."""

import dataclasses
import functools
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from transformer.config import ConfigError
from transformer.data import trees
from transformer.data.arrays import Dense, Ragged, dtype_of, ragged
from transformer.data.codec import Codecs, FieldCodec, Labels
from transformer.data.tokenizers.base import Tokenizer

SPLITS = ('train', 'dev', 'test')


class Example(NamedTuple):
    """One example of a source.

    Attributes:
      values: each field's value, in the form of its type.
      files: the file that each field's value was read from.
      line: the line where the texts begin, or the number of the row in its file.
      unit: what `line` counts; '' if a file has one row.
    """

    values: dict[str, Any]
    files: dict[str, str]
    line: int
    unit: str = 'line'

    def place(self, name: str) -> str:
        """Names the file and line of a field's value, for errors."""
        return f'{self.files[name]}: {self.unit} {self.line}' if self.unit else self.files[name]


@runtime_checkable
class Learner(Protocol):
    """The training rows of a source, from which fields learn their codecs."""

    def tokenizer(self, name: str, words: Sequence[str] = ()) -> Tokenizer:
        """Returns the tokenizer of a field, learned at the first call. `words` are pieces of their own."""

    def values(self, name: str) -> Iterator[Any]:
        """Yields a field's values."""

    def classes(self) -> tuple[str, ...]:
        """Lists the source's own classes, if it has any."""


class Field:
    """A column of the data.

    Attributes:
      shape: a value's shape, if it is the same in every row; None if the values are rows of pieces.
      kept: whether its text is kept outside training, beside the arrays.
    """

    shape: ClassVar[tuple[int, ...] | None] = ()
    kept: ClassVar[bool] = False

    def codec(self, name: str, learn: Learner) -> FieldCodec | None:
        """Returns the codec of the values, or None if they are numbers already."""
        del name, learn

    def encode(self, name: str, codecs: Codecs, rows: Sequence[Example]) -> Ragged | Dense:
        """Turns the values of rows into arrays. Sees whole rows, so that fields can be aligned."""
        raise NotImplementedError

    def parse(self, cell: str) -> Any:
        """Returns the value that a table's cell describes."""
        return cell

    def blank(self, value: Any) -> bool:
        """Returns whether a value is of no use in training."""
        return not self.raw(value).strip()

    def raw(self, value: Any) -> str:
        """Returns a value's text: one line, unless it is a whole file."""
        return str(value)

    def identity(self) -> dict[str, object]:
        """Describes the field as JSON, as part of the cache's name."""
        options = {name: value for name, value in dataclasses.asdict(self).items() if name != 'option'}
        return {'type': type(self).__name__.lower(), **options}


@dataclasses.dataclass(frozen=True)
class Text(Field):
    """A text, stored as pieces and, outside the training split, also as raw text.

    Attributes:
      language: the suffix of its text files, or its feature in a TFDS dataset; None if files are named in
        full.
      option: the option that sets the language; errors name it.
      whole: whether each value is a whole file, not a line.
    """

    language: str | None = None
    option: str = ''
    whole: bool = False

    shape = None
    kept = True

    def codec(self, name: str, learn: Learner) -> FieldCodec | None:
        """Returns the tokenizer."""
        return learn.tokenizer(name)

    def written(self, row: Example, name: str) -> str:
        """Returns the text whose pieces are stored."""
        return self.compared(row.values[name])

    def compared(self, value: Any) -> str:
        """Returns the text by which an example of dev or test is found among the training's."""
        return self.raw(value)

    def learned(self, value: Any) -> Iterator[str]:
        """Yields the lines of a value that the tokenizer learns from."""
        yield from value.removesuffix('\n').split('\n') if self.whole else [self.raw(value)]

    def encode(self, name: str, codecs: Codecs, rows: Sequence[Example]) -> Ragged | Dense:
        """Turns each value into pieces, with EOS."""
        texts = [self.written(row, name) for row in rows]
        pieces = codecs[name]
        encoded = [*map(pieces.encode_document, texts)] if self.whole else pieces.encode_batch(texts)
        return ragged(encoded, dtype_of(pieces.size))


@dataclasses.dataclass(frozen=True)
class Lines(Text):
    """A line of a document, or a blank line between two documents."""

    def blank(self, value: Any) -> bool:
        """Returns False: training needs the blank lines."""
        del value
        return False


@dataclasses.dataclass(frozen=True)
class Columns(Text):
    """One text or several, separated by tabs; stored as the pieces of each, with its end, in one sequence."""

    def learned(self, value: str) -> Iterator[str]:
        """Yields each text."""
        yield from value.split('\t')

    def encode(self, name: str, codecs: Codecs, rows: Sequence[Example]) -> Ragged | Dense:
        """Joins the pieces of each value's texts."""
        pieces = codecs[name]
        return ragged(pieces.encode_columns([row.values[name] for row in rows]), dtype_of(pieces.size))


def split_at_blanks(text: str) -> list[str]:
    """Splits a text at blanks and tabs; other spaces, such as U+00A0, are parts of words."""
    return [word for word in text.replace('\t', ' ').split(' ') if word]


@dataclasses.dataclass(frozen=True)
class Words(Text):
    """A list of words, stored as the pieces of the words with a blank between them."""

    parse = staticmethod(split_at_blanks)

    def raw(self, value: Sequence[str]) -> str:
        """Joins the words."""
        return ' '.join(value)


@dataclasses.dataclass(frozen=True)
class Tree(Text):
    """A constituency tree, stored as the pieces of its brackets and, outside training, as bracketed text.

    Attributes:
      tags: whether each word's tag stands for it, in place of `trees.WORD`.
    """

    tags: bool = False

    def codec(self, name: str, learn: Learner) -> FieldCodec | None:
        """Returns a tokenizer in which every bracket is one piece."""
        parses = (trees.one(value, f'data.train: {name}') for value in learn.values(name))
        return learn.tokenizer(name, trees.symbols(parses, tags=self.tags))

    def written(self, row: Example, name: str) -> str:
        """Returns the linearised tree, or '' for an empty line. Raises ConfigError if the text is no tree."""
        tree = trees.one(row.values[name], row.place(name))
        return trees.linearize(tree, tags=self.tags) if tree else ''


@dataclasses.dataclass(frozen=True)
class Label(Field):
    """A class, stored as its number.

    Attributes:
      names: the classes in order; None means the source's classes or, if it has none, those in the training
        rows, sorted.
    """

    names: tuple[str, ...] | None = None

    def codec(self, name: str, learn: Learner) -> FieldCodec | None:
        """Returns the names of the classes."""
        return Labels(self.names or learn.classes() or tuple(sorted(set(learn.values(name)))))

    def encode(self, name: str, codecs: Codecs, rows: Sequence[Example]) -> Ragged | Dense:
        """Returns the number of each row's class."""
        return Dense(np.array([number_of(codecs[name], row.values[name], row, name) for row in rows], '<i4'))


def number_of(labels: Labels, value: str, row: Example, name: str) -> int:
    """Returns the number of a class, or raises ConfigError, which names the row, if there is none."""
    try:
        return labels.encode(value)
    except KeyError:
        shown = ', '.join(labels.names[:20]) + (', ...' if len(labels.names) > 20 else '')
        raise ConfigError(f'{row.place(name)}: {value!r} is not among the classes {shown}') from None


@dataclasses.dataclass(frozen=True)
class Number(Field):
    """A real number."""

    def encode(self, name: str, codecs: Codecs, rows: Sequence[Example]) -> Ragged | Dense:
        """Reads each value, or raises ConfigError, which names the row, if one is not a finite number."""
        del codecs
        return Dense(np.array([self._read(row, name) for row in rows], '<f4'))

    def _read(self, row: Example, name: str) -> float:
        text = row.values[name]
        try:
            # Python reads 1_000, too.
            value = math.nan if '_' in str(text) else float(text)
        except ValueError:
            value = math.nan
        if not abs(value) <= float(np.finfo(np.float32).max):
            raise ConfigError(f'{row.place(name)}: {text!r} is not a number, or too large')
        return value


@dataclasses.dataclass(frozen=True)
class Tags(Field):
    """A tag for each word of another field: 1 + its number at the piece that begins the word, else 0.

    Attributes:
      of: the name of a field of type `Words`.
    """

    of: str = 'text'

    shape = None
    parse = staticmethod(split_at_blanks)

    def codec(self, name: str, learn: Learner) -> FieldCodec | None:
        """Returns the names of the tags in the training rows, sorted."""
        return Labels(tuple(sorted({tag for tags in learn.values(name) for tag in tags})))

    def encode(self, name: str, codecs: Codecs, rows: Sequence[Example]) -> Ragged | Dense:
        """Aligns tags with pieces, or raises ConfigError if a row has not one tag a word."""
        aligned = []
        for row in rows:
            words, tags = row.values[self.of], row.values[name]
            if len(words) != len(tags):
                raise ConfigError(f'{row.place(name)}: {len(words)} words, but {len(tags)} tags')
            places, length = codecs[self.of].word_places(words)
            own = zip(words, itertools.pairwise([*places, length - 1]), strict=True)
            if lacking := [word for word, (place, following) in own if place >= following]:
                raise ConfigError(f'{row.place(self.of)}: the tokenizer has no piece for {lacking[0]!r}')
            pieces = np.zeros(length, np.int64)
            pieces[places] = [1 + number_of(codecs[name], tag, row, name) for tag in tags]
            aligned.append(pieces)
        return ragged(aligned, dtype_of(codecs[name].size + 1))


@dataclasses.dataclass(frozen=True)
class Span(Field):
    """Answers that are parts of another field's text, stored as the first answer's first and last piece.

    A value is a sequence of answers, each the place of its first character and its text; without answers, the
    places are -1. Outside training the answers are also kept as a line of JSON.

    Attributes:
      of: the name of a field of type `Text`.
      optional: whether a question can lack an answer. If not, training drops it, and other splits refuse it.
    """

    of: str = 'context'
    optional: bool = False

    shape = (2,)
    kept = True

    def encode(self, name: str, codecs: Codecs, rows: Sequence[Example]) -> Ragged | Dense:
        """Finds the pieces of the first answers, or raises ConfigError if an answer is not in its text."""
        places = np.full((len(rows), 2), -1, '<i4')
        # Many questions are about one text.
        offsets_of = functools.cache(lambda text: np.array(codecs[self.of].offsets(text)))
        for number, row in enumerate(rows):
            text, answers = row.values[self.of], row.values[name]
            if not answers and not self.optional:
                raise ConfigError(f'{row.place(name)}: no answer; answers.no_answer=True allows this')
            for start, answer in answers:
                if not answer or text[start : start + len(answer)] != answer:
                    raise ConfigError(
                        f'{row.place(name)}: the answer {answer!r} is not at {start} of its text'
                    )
            if answers:
                (start, answer), *_ = answers
                offsets = offsets_of(text)
                inside = (offsets[:, 1] > start) & (offsets[:, 0] < start + len(answer))
                if not inside.any():
                    raise ConfigError(f'{row.place(name)}: the answer {answer!r} has no pieces')
                places[number] = np.flatnonzero(inside)[[0, -1]]
        return Dense(places)

    def blank(self, value: Any) -> bool:
        """Returns whether there is no answer, although one is needed."""
        return not value and not self.optional

    def raw(self, value: Any) -> str:
        """Returns the answers as JSON."""
        return json.dumps([list(answer) for answer in value], ensure_ascii=False)


@dataclasses.dataclass(frozen=True)
class Image(Field):
    """An image of a fixed size, stored as bytes. One channel is grey, three are RGB."""

    height: int
    width: int
    channels: int

    def blank(self, value: Any) -> bool:
        """Returns False: an image of one colour is an image."""
        del value
        return False

    @property
    def shape(self) -> tuple[int, ...]:
        """Returns height, width and channels."""
        return self.height, self.width, self.channels

    def encode(self, name: str, codecs: Codecs, rows: Sequence[Example]) -> Ragged | Dense:
        """Joins the images."""
        del codecs
        return Dense(np.array([row.values[name] for row in rows], np.uint8).reshape(-1, *self.shape))


class Reading(NamedTuple):
    """The data that a task reads.

    Attributes:
      fields: the type of each named field of a row.
      options: the `data` options that determine the splits' content.
      any_length: whether training texts can be longer than `data.max_len`, because the task cuts them itself.
    """

    fields: dict[str, Field]
    options: tuple[str, ...]
    any_length: bool = False

    def texts(self) -> dict[str, Text]:
        """Returns the fields that are texts in pieces."""
        return {name: field for name, field in self.fields.items() if isinstance(field, Text)}

    def images(self) -> dict[str, Image]:
        """Returns the fields that are images."""
        return {name: field for name, field in self.fields.items() if isinstance(field, Image)}

    def languages(self) -> list[str | None]:
        """Lists the languages of the text fields, in order."""
        return [field.language for field in self.texts().values()]


class Gap(NamedTuple):
    """A text with a gap, the forms that its word could have, and the right form."""

    text: str
    forms: tuple[str, ...]
    right: str
