"""Reads tables with named or numbered columns: TSV, CSV and JSON lines, plain or gzip."""

import contextlib
import csv
import functools
import itertools
import json
import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from etils import epath

from transformer import files
from transformer.config import ConfigError, Data
from transformer.data.fields import SPLITS, Columns, Example, Image, Reading, Tags, Words
from transformer.data.sources import entries, images, text
from transformer.data.sources.entries import Entry
from transformer.data.sources.picture_files import PictureFiles
from transformer.data.sources.text import SourceFile

log = logging.getLogger(__name__)
# A cell of a row by the name of its column, or by its number from 1; None if a JSON value can be no cell.
Cells = Mapping[str, str | None]
_QUOTED = re.compile(r'(^|,)"[^"]*("|$)')  # a cell of a CSV file in which tabs are no separators


def rows(data: Data, reading: Reading, split: str) -> Iterator[Example]:
    """Yields the rows of a split's tables, with the columns that `data.columns` gives each field.

    Without `data.columns` the columns have the names of the fields. Several columns of a field, joined by +,
    become one value with tabs between them. The column of an image has the name of its file; a picture that
    cannot be read is None if `data.unreadable` leaves it out.
    """
    columns = columns_of(data, reading)
    for entry in entries.parse(data, split, table=True):
        path = entries.find(data, entry.name, split)
        part = entry.part(sum(1 for _ in _rows(path, columns, entry))) if entry.suffix else slice(0, None)
        name_of_table = str(path.relative_to(entries.root(data)))
        with _pictures(data, reading, path) as pictures:
            for line, cells in itertools.islice(_rows(path, columns, entry), part.start, part.stop):
                values, places = {}, dict.fromkeys(columns, name_of_table)
                for name, keys in columns.items():
                    field = reading.fields[name]
                    several = isinstance(field, Columns | Words | Tags)
                    cell = '\t'.join(_cell(path, line, cells, key, several) for key in keys)
                    if isinstance(field, Image):
                        load = functools.partial(pictures.read, cell, field)
                        values[name] = images.read_or_none(data, load, f'{path}: line {line}: ')
                        places[name] = cell or name_of_table
                    else:
                        values[name] = field.parse(cell)
                yield Example(values, places, line)


def origins(data: Data, reading: Reading, split: str) -> list[SourceFile]:
    """Describes the tables of a split by their numbers of rows; hashes cover the pictures that rows name."""
    columns, result = columns_of(data, reading), []
    for entry in entries.parse(data, split, table=True):
        path = entries.find(data, entry.name, split)
        origin = text.origin(path, str(path.relative_to(entries.root(data))) + entry.suffix)
        part = entry.part(sum(1 for _ in _rows(path, columns, entry)))
        origin = origin._replace(lines=part.stop - part.start)
        keys = [columns[name][0] for name in reading.images()]
        if keys:
            read = itertools.islice(_rows(path, columns, entry), part.start, part.stop)
            with _pictures(data, reading, path) as pictures:
                named = (_cell(path, line, cells, key, False) for line, cells in read for key in keys)
                origin = origin._replace(sha256=files.json_sha256([origin.sha256, pictures.sha256(named)]))
        result.append(origin)
    return result


def warn(data: Data, reading: Reading, split: str) -> None:
    """Warns of blank rows, and of pictures beside the training tables' that no table names."""
    paths = (entries.find(data, one.name, split) for one in entries.parse(data, split, table=True))
    for path in dict.fromkeys(paths):
        if blank := sum(cells is None for _, cells in _every_row(path, None)):
            log.warning('%s: blank rows, left out: %d', path, blank)
    if split != 'train' or not reading.images():
        return
    columns, checked = columns_of(data, reading), set()
    keys = [columns[name][0] for name in reading.images()]
    for entry in entries.parse(data, split, table=True):
        path = entries.find(data, entry.name, split)
        if path not in checked:
            beside = tables_beside(data, path)
            every = ((one, *row) for one in beside for row in _rows(one, columns, Entry(one.name)))
            with PictureFiles(data, path) as pictures:
                pictures.warn_of_others(_cell(*row, key, False) for row in every for key in keys)
            checked |= beside


def tables_beside(data: Data, path: epath.Path) -> set[epath.Path]:
    """Returns the tables of all splits whose pictures are in the same place as the pictures of one table."""
    names = ((split, entry.name) for split in SPLITS for entry in entries.parse(data, split, table=True))
    paths = {entries.find(data, name, split) for split, name in names}
    return {path, *(one for one in paths if data.pictures is not None or one.parent == path.parent)}


def facts(data: Data, reading: Reading) -> dict[str, object]:
    """Returns the options that decide which columns are read, and which pictures are left out."""
    if reading.images():
        return {'columns': data.columns, 'unreadable': data.unreadable}
    return {} if data.columns is None else {'columns': data.columns}


def _pictures(data: Data, reading: Reading, path: epath.Path) -> contextlib.AbstractContextManager:
    """Opens the pictures that a table names, if a field needs them."""
    return PictureFiles(data, path) if reading.images() else contextlib.nullcontext()


def _rows(path: epath.Path, columns: Mapping[str, list[str]], entry: Entry) -> Iterator[tuple[int, Cells]]:
    """Yields the rows of a table, without blank ones and a slice, that an entry's column and value select."""
    named = not all(name.isdecimal() for names in columns.values() for name in names)
    needed = [key for keys in columns.values() for key in keys] + [*(entry.where or ())][:1]
    for line, cells in _every_row(path, needed if named else None):
        if cells is None:
            continue
        if entry.where is None or _cell(path, line, cells, entry.where[0], True) == entry.where[1]:
            yield line, cells


def columns_of(data: Data, reading: Reading) -> dict[str, list[str]]:
    """Returns the columns of each field.

    Raises:
      ConfigError: `data.columns` does not fit the fields.
    """
    if data.columns is None:
        return {name: [name] for name in reading.fields}
    parts = [part.partition('=') for part in data.columns.split(',')]
    columns = {name: keys.split('+') for name, _, keys in parts}
    setting = f'data.columns={data.columns}'
    if len(columns) < len(parts):
        raise ConfigError(f'{setting}: names a field twice; + joins columns')
    for name, keys in columns.items():
        if name not in reading.fields or not all(keys):
            fields = ','.join(f'{field}=COLUMN' for field in reading.fields)
            raise ConfigError(f'{setting}: expected {fields}')
        if len(keys) > 1 and not isinstance(reading.fields[name], Columns):
            raise ConfigError(f'{setting}: {name} has one column')
    if missing := [name for name in reading.fields if name not in columns]:
        raise ConfigError(f'{setting}: names no column for {missing[0]}')
    return columns


def _cell(path: epath.Path, line: int, cells: Cells, key: str, several: bool) -> str:
    """Returns a cell. The texts of a JSON list have tabs between them; `several` can be one value.

    Raises:
      ConfigError: the row has no such column, or there a JSON value that is no value of the field.
    """
    _check_column(path, line, cells, key)
    value = cells[key]
    if value is None or ('\t' in value and not several):
        kind = 'an object, or a list of other values than texts' if value is None else 'a list of texts'
        raise ConfigError(f'{path}: line {line}: {key!r} is {kind}, not one text; see data.columns')
    if not files.is_utf8(value):
        raise ConfigError(f'{path}: line {line}: {key!r} has half of a surrogate pair, which is no character')
    return value


def _check_column(path: epath.Path, line: int, names: Collection[str], key: str) -> None:
    if key not in names:
        shown = ', '.join(names) if len(names) <= 20 else f'{len(names)} columns'
        raise ConfigError(
            f'{path}: line {line} has no column {key!r}, only {shown}; see data.columns and [COLUMN=VALUE]'
        )


def _without_tabs(text: str) -> str:
    """Turns tabs, which separate the texts of one value, and newlines, which end a line, into blanks."""
    return re.sub(r'[\t\n]+', ' ', text)


def _every_row(path: epath.Path, needed: Sequence[str] | None) -> Iterator[tuple[int, Cells | None]]:
    """Yields each row with its line, and None in place of a blank one.

    The file's suffix and its first line decide how cells are separated.

    Args:
      needed: columns that the table must have; None if it does not name its columns.
    """
    lines = enumerate(text.lines(path), 1)
    stem = path.name.removesuffix('.gz')
    if stem.endswith(('.jsonl', '.json')):
        yield from ((number, _json(path, number, line) if line.strip() else None) for number, line in lines)
        return
    first = next(iter(text.lines(path)), '')
    if stem.endswith('.csv') and '\t' not in _QUOTED.sub('', first):
        table = _csv(path, (line for _, line in lines))
    elif '\t' in first or stem.endswith('.tsv'):
        table = ((number, line.split('\t')) for number, line in lines)
    else:
        # Such as a class, a blank and a text.
        table = ((number, line.split(' ', 1)) for number, line in lines)
    names: Sequence[str] = ()
    if needed is not None:
        line, names = next(table, (0, needed))
        for key in needed:
            _check_column(path, line, names, key)
            if names.count(key) > 1:
                raise ConfigError(f'{path}: line {line} has several columns {key!r}; see data.columns')
    for number, cells in table:
        if cells and needed is not None and len(cells) > len(names):
            raise ConfigError(f'{path}: line {number} has {len(cells)} columns, the first line {len(names)}')
        own = names if needed is not None else map(str, range(1, len(cells) + 1))
        row = dict(zip(own, map(_without_tabs, cells), strict=False))
        yield number, row if any(cells) else None


def _csv(path: epath.Path, lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields the cells of each row of a CSV file, with the row's last line.

    Raises:
      ConfigError: a carriage return outside quotes, a cell that is too long, or a quote that is not closed or
        after which the cell continues. A reader that allows these quotes would take the following lines, up
        to the next quote, for a part of the cell.
    """
    reader, first = csv.reader((line + '\n' for line in lines), strict=True), 1
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise ConfigError(f'{path}: line {first}: {_fault(error)}') from None
        first = reader.line_num + 1
        yield reader.line_num, cells


def _fault(error: csv.Error) -> str:
    if 'new-line' in str(error):
        return 'a carriage return outside quotes; lines end with newlines'
    if 'limit' in str(error):
        return f'a cell of over {csv.field_size_limit():,} characters; is a quote not closed?'
    return 'a cell that begins with a quote must end with one, and quotes in it are doubled'


def _json(path: epath.Path, number: int, line: str) -> Cells:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise ConfigError(f'{path}: line {number} is no JSON object; each line must be one')
    return {name: _json_cell(value) for name, value in values.items()}


def _json_cell(value: object) -> str | None:
    """Returns a text, '' for null, the JSON of a number or truth value, or a list's texts between tabs.

    Returns None for objects and lists of other values.
    """
    if value is None:
        return ''
    if isinstance(value, str):
        return _without_tabs(value)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return '\t'.join(map(_without_tabs, value))
    return None if isinstance(value, list | dict) else json.dumps(value)
