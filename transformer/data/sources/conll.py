"""Reads CoNLL columns, plain or gzip: a word and its tags a line, a blank line between sentences."""

from collections.abc import Iterator

from etils import epath

from transformer.config import ConfigError, Data
from transformer.data.fields import Example, Reading
from transformer.data.sources import entries, table, text
from transformer.data.sources.text import SourceFile

_DOCUMENT = '-DOCSTART-'  # the word of a line between two documents


def rows(data: Data, reading: Reading, split: str) -> Iterator[Example]:
    """Yields the sentences of a split. `data.columns` numbers columns from 1, or from the last with -1."""
    columns = {name: int(key) for name, [key] in _columns(data, reading).items()}
    for entry in entries.parse(data, split):
        path = entries.find(data, entry.name, split)
        part = entry.part(sum(1 for _ in _sentences(path))) if entry.suffix else slice(0, None)
        files = dict.fromkeys(columns, str(path.relative_to(entries.root(data))))
        for number, (line, words) in enumerate(_sentences(path)):
            if number >= part.start and (part.stop is None or number < part.stop):
                yield Example(
                    {name: _column(path, line, words, key) for name, key in columns.items()}, files, line
                )


def origins(data: Data, reading: Reading, split: str) -> list[SourceFile]:
    """Describes the files of a split by their numbers of sentences."""
    _columns(data, reading)
    result = []
    for entry in entries.parse(data, split):
        path = entries.find(data, entry.name, split)
        origin = text.origin(path, str(path.relative_to(entries.root(data))) + entry.suffix)
        part = entry.part(sum(1 for _ in _sentences(path)))
        result.append(origin._replace(lines=part.stop - part.start))
    return result


def _columns(data: Data, reading: Reading) -> dict[str, list[str]]:
    """Returns each field's column: without `data.columns` the first for the first field, else the last."""
    if data.columns is None:
        return {name: ['-1' if number else '1'] for number, name in enumerate(reading.fields)}
    columns = table.columns_of(data, reading)
    for name, keys in columns.items():
        if not keys[0].removeprefix('-').isdecimal() or not int(keys[0]):
            raise ConfigError(
                f'data.columns={data.columns}: {name}={keys[0]}: expected the number of a column'
            )
    return columns


def _column(path: epath.Path, first: int, words: list[list[str]], key: int) -> list[str]:
    for line, cells in enumerate(words, first):
        if abs(key) > len(cells):
            raise ConfigError(f'{path}: line {line} has {len(cells)} columns, no column {key}')
    return [cells[key - 1 if key > 0 else key] for cells in words]


def _sentences(path: epath.Path) -> Iterator[tuple[int, list[list[str]]]]:
    """Yields each sentence's first line and the cells of its words."""
    words: list[list[str]] = []
    comments = path.name.removesuffix('.gz').endswith('.conllu')
    for number, line in enumerate(text.lines(path), 1):
        cells = line.split()
        if cells and cells[0] != _DOCUMENT:
            if not (comments and line.startswith('#')):
                words.append(cells)
            continue
        if words:
            yield number - len(words), words
        words = []
    if words:
        yield number - len(words) + 1, words
