"""Reads CoNLL columns, plain or gzip: a word and its tags a line, a blank line between sentences.

In CoNLL-U (.conllu) tabs separate the columns, a blank in a column becomes _, and comments (#) and lines that
are not of one word of the text (1-2 and 1.1) are skipped.
"""

import itertools
from collections.abc import Iterator

from etils import epath

from transformer.config import ConfigError, Data
from transformer.data.fields import SPLITS, Example, Reading, split_at_blanks
from transformer.data.sources import entries, table, text
from transformer.data.sources.text import SourceFile

_DOCUMENT = '-DOCSTART-'  # the word of a line between two documents
_UNIVERSAL = '.conllu'  # how the names of files in CoNLL-U end
_COMMENTS = ('# sent_id', '# text', '# newdoc')
Sentence = list[tuple[int, list[str]]]  # the line and the cells of each word


def rows(data: Data, reading: Reading, split: str) -> Iterator[Example]:
    """Yields the sentences of a split. `data.columns` numbers columns from 1, or from the last with -1."""
    columns = {name: int(key) for name, [key] in _columns(data, reading).items()}
    for entry in entries.parse(data, split):
        path = entries.find(data, entry.name, split)
        part = entry.part(sum(1 for _ in _sentences(path))) if entry.suffix else slice(0, None)
        files = dict.fromkeys(columns, str(path.relative_to(entries.root(data))))
        for words in itertools.islice(_sentences(path), part.start, part.stop):
            values = {name: _column(path, words, key) for name, key in columns.items()}
            # A word alone in its line would be its own tag.
            if short := [line for line, cells in words if len(cells) == 1 < len(columns)]:
                raise ConfigError(
                    f'{path}: line {short[0]} has 1 column, too few for {" and ".join(columns)}'
                )
            yield Example(values, files, words[0][0])


def origins(data: Data, reading: Reading, split: str) -> list[SourceFile]:
    """Describes the files of a split by their numbers of sentences."""
    _columns(data, reading)
    return text.counted_origins(data, split, _sentences)


def facts(data: Data, reading: Reading) -> dict[str, object]:
    """Returns how lines of CoNLL-U are read, if there are any, which earlier versions read in another way."""
    del reading
    listed = (entry for split in SPLITS for entry in entries.parse(data, split))
    return {'conllu': 'words'} if any(_is_universal(entry.name) for entry in listed) else {}


def _is_universal(name: str) -> bool:
    return name.removesuffix('.gz').endswith(_UNIVERSAL)


def _columns(data: Data, reading: Reading) -> dict[str, list[str]]:
    """Returns each field's column: without `data.columns` the first for the first field, else the last."""
    if data.columns is None:
        if 'conllu' in facts(data, reading):
            raise ConfigError('data.columns: missing; CoNLL-U begins with a number: write text=2,tags=4')
        return {name: ['-1' if number else '1'] for number, name in enumerate(reading.fields)}
    columns = table.columns_of(data, reading)
    for name, keys in columns.items():
        if not keys[0].removeprefix('-').isdecimal() or not int(keys[0]):
            raise ConfigError(
                f'data.columns={data.columns}: {name}={keys[0]}: expected the number of a column'
            )
    return columns


def _column(path: epath.Path, words: Sentence, key: int) -> list[str]:
    for line, cells in words:
        if abs(key) > len(cells):
            raise ConfigError(f'{path}: line {line} has {len(cells)} columns, no column {key}')
    return [cells[key - 1 if key > 0 else key] for _, cells in words]


def _sentences(path: epath.Path) -> Iterator[Sentence]:
    words, universal = [], _is_universal(path.name)
    for number, line in enumerate(text.lines(path), 1):
        cells = split_at_blanks(line)
        if line.startswith(_COMMENTS) and not universal:
            raise ConfigError(
                f'{path}: line {number}: a comment of CoNLL-U; the name must end in {_UNIVERSAL}'
            )
        if universal:
            cells = ['_'.join(split_at_blanks(cell)) for cell in line.split('\t')]
        if line.strip() and cells[0] != _DOCUMENT:
            if not universal or cells[0].isdecimal():
                words.append((number, cells))
            continue
        if words:
            yield words
        words = []
    if words:
        yield words
