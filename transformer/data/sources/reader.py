"""Readers: the rows of a split from text, tables, annotated text, TFDS, images or generators."""

import dataclasses
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from transformer.config import ConfigError, Data
from transformer.data.fields import (
    SPLITS,
    Columns,
    Example,
    Image,
    Label,
    Lines,
    Number,
    Reading,
    Span,
    Tags,
    Text,
    Tree,
    Words,
)
from transformer.data.generated import pictures
from transformer.data.generated import sources as generated
from transformer.data.generated.grammar import sentences
from transformer.data.generated.scenes import world
from transformer.data.sources import conll, images, squad, table, text, tfds, trees
from transformer.data.sources.text import SourceFile
from transformer.data.spellings import Spellings
from transformer.data.text_pairs import Prefixed, References

_SHOWN = 20  # places that a report lists per rule


class Reader(NamedTuple):
    """The functions that read one kind of source.

    Attributes:
      gives: the types of fields that the source has.
      rows: yields the rows of a split, in order, as `rows` below explains.
      origins: returns a split's files, with the number of rows that are read and the hash of the content.
      file_per_field: whether each file contains one field.
      splits: returns the names of the splits.
      prepare: downloads the dataset if it is missing.
      facts: returns the manifest's entries about the source itself.
      warn: warns of what the rows of a split leave out; called once, when they have been read.
      versions: returns the versions of generating code, by name.
      classes: returns the names of the source's classes, in order.
    """

    gives: tuple[type, ...]
    rows: Callable[[Data, Reading, str], Iterator[Example]]
    origins: Callable[[Data, Reading, str], list[SourceFile]]
    file_per_field: bool = False
    splits: Callable[[Reading], tuple[str, ...]] = lambda reading: SPLITS
    prepare: Callable[[Data, Reading], None] = lambda data, reading: None
    facts: Callable[[Data, Reading], dict[str, object]] = lambda data, reading: {}
    warn: Callable[[Data, Reading, str], None] = lambda data, reading, split: None
    versions: Callable[[], dict[str, object]] = lambda: {}
    classes: Callable[[Data], tuple[str, ...]] = lambda data: ()


READERS = {
    'text': Reader((Text, Lines, Spellings), text.rows, text.origins, file_per_field=True),
    'table': Reader(
        (Text, Spellings, Columns, Prefixed, References, Words, Tags, Label, Number, Image),
        table.rows,
        table.origins,
        facts=table.facts,
        warn=table.warn,
    ),
    'conll': Reader((Words, Tags), conll.rows, conll.origins, facts=conll.facts),
    'squad': Reader((Text, Span), squad.rows, squad.origins),
    'trees': Reader((Text, Tree, Words, Tags), trees.rows, trees.origins),
    'grammar': Reader(
        (Text, Tree, Words, Tags),
        generated.sentence_rows,
        generated.sentence_origins,
        splits=generated.sentence_splits,
        versions=lambda: {'grammar': sentences.VERSION},
    ),
    'tfds': Reader((Text,), tfds.rows, tfds.origins, prepare=tfds.prepare, facts=tfds.facts),
    'pictures': Reader(
        (Image, Label),
        generated.picture_rows,
        generated.picture_origins,
        versions=lambda: {'pictures': pictures.VERSION},
        classes=lambda data: pictures.CLASSES,
    ),
    'scenes': Reader(
        (Image, Text),
        generated.scene_rows,
        generated.scene_origins,
        versions=lambda: {'pictures': pictures.VERSION, 'scenes': world.VERSION},
    ),
    'folders': Reader(
        (Image, Label),
        images.folder_rows,
        images.folder_origins,
        facts=images.folder_facts,
        warn=images.folder_warn,
        classes=images.folder_classes,
    ),
    'idx': Reader((Image, Label), images.idx_rows, images.idx_origins, classes=images.idx_classes),
}


@dataclasses.dataclass
class Report:
    """The numbers and places of a split's rows that each rule dropped.

    Attributes:
      log: receives every dropped row, as rule, file and line separated by tabs.
      counts: dropped rows per rule.
      first: the first 20 places per rule.
    """

    log: io.TextIOBase | None = None
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    first: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def drop(self, rule: str, file: str, line: int) -> None:
        """Records that `rule` dropped a row."""
        self.counts[rule] = self.counts.get(rule, 0) + 1
        places = self.first.setdefault(rule, [])
        if len(places) < _SHOWN:
            places.append(f'{file}:{line}')
        if self.log:
            self.log.write(f'{rule}\t{file}\t{line}\n')


def check(data: Data, reading: Reading) -> None:
    """Raises ConfigError if the source lacks a type of field that the task needs."""
    for name, field in reading.fields.items():
        kind = type(field)
        if kind not in READERS[data.source].gives:
            choices = ', '.join(source for source, reader in READERS.items() if kind in reader.gives)
            raise ConfigError(
                f'data.source={data.source!r}: has no {kind.__name__.lower()} for {name!r}; '
                f'choose among {choices}'
            )


def rows(data: Data, reading: Reading, split: str, report: Report) -> Iterator[Example]:
    """Yields the rows of a split, in order.

    At most `data.train_examples` rows of the training split are read; a row with a blank value is dropped and
    reported. The other splits keep every row, because scores are over whole test sets, but those whose
    pictures cannot be read, which are None.
    """
    source_rows, fields = READERS[data.source].rows(data, reading, split), reading.fields
    for row in itertools.islice(source_rows, data.train_examples if split == 'train' else None):
        unread = next((name for name in fields if row.values[name] is None), None)
        blank = next((name for name in fields if fields[name].blank(row.values[name])), None)
        if unread:
            report.drop('unreadable', row.files[unread], row.line)
        elif blank and split == 'train':
            report.drop('empty', row.files[blank], row.line)
        else:
            yield row


def count(data: Data, reading: Reading, split: str, lines: Sequence[int]) -> int:
    """Counts the rows read from a split, blank ones included, by its files' numbers of lines."""
    number = len(lines) if data.documents == 'files' else sum(lines)
    if READERS[data.source].file_per_field:
        number //= len(reading.fields)
    return min(number, data.train_examples or number) if split == 'train' else number
