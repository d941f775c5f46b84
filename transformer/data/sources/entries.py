"""Parses the entries of data.train, data.dev and data.test: names of files or splits, each with its slice."""

import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from etils import epath

from transformer import files
from transformer.config import ConfigError, Data

_WHERE = re.compile(r'(.+?)\[([^][=:]+)=([^][]*)\](\[.*\])?')
T = TypeVar('T')
_SLICE = re.compile(r'(.+)\[(?:(\d+)(%?))?:(?:(\d+)(%?))?\]')


class Entry(NamedTuple):
    """A name and its slice.

    Attributes:
      name: of a file, a folder or a split.
      suffix: condition and slice as written, such as `[:90%]` or `[lang=de][:100]`.
      start, stop: the ends of the part that is read.
      percent: whether these are percentages, not numbers of items.
      where: a column and the value that it has in the rows of a table that are read; None for all rows.
    """

    name: str
    suffix: str = ''
    start: int = 0
    stop: int = 100
    percent: bool = True
    where: tuple[str, str] | None = None

    def part(self, size: int) -> slice:
        """Returns the part of `size` items that is read."""
        if self.percent:
            return slice(size * self.start // 100, size * self.stop // 100)
        return slice(min(self.start, size), min(self.stop, size))

    def numbered(self, items: Sequence[T]) -> Iterator[tuple[int, T]]:
        """Yields the items that are read, each with its number from 1."""
        part = self.part(len(items))
        yield from enumerate(items[part], part.start + 1)


def parse(data: Data, split: str, table: bool = False) -> Iterator[Entry]:
    """Yields the entries of the option `data.<split>`.

    Args:
      table: whether NAME[COLUMN=VALUE], perhaps with a slice, is some rows of a table.

    Raises:
      ConfigError: an entry has no name, or its slice is malformed.
    """
    for entry in map(str.strip, getattr(data, split).split(',')):
        if not entry:
            raise ConfigError(f'data.{split}={getattr(data, split)}: an empty name')
        where = _WHERE.fullmatch(entry) if table else None
        if where:
            name, *condition, slice_of_rows = where.groups()
            one = _sliced(data, split, name + (slice_of_rows or ''))
            yield one._replace(suffix=entry.removeprefix(name), where=tuple(condition))
        else:
            yield _sliced(data, split, entry)


def _sliced(data: Data, split: str, entry: str) -> Entry:
    """Parses an entry that can end with a slice."""
    if not entry.endswith(']'):
        return Entry(entry)
    match = _SLICE.fullmatch(entry)
    name, start, of_start, stop, of_stop = match.groups() if match else ('', None, None, None, None)
    percent = '%' in (of_start, of_stop)
    most = 100 if percent else sys.maxsize
    first, last = int(start or 0), int(stop or most)
    same_unit = None in (start, stop) or of_start == of_stop
    if (start is None and stop is None) or not same_unit or not first < last <= most:
        raise ConfigError(
            f'data.{split}: {entry} is no slice; write NAME[:90%], NAME[90%:], NAME[10%:20%] or, in '
            'examples, NAME[:100]'
        )
    return Entry(name, entry.removeprefix(name), first, last, percent)


def root(data: Data) -> epath.Path:
    """Returns the folder `data.dir`."""
    if data.dir is None:
        raise ConfigError(f'data.dir: missing; source={data.source} needs the folder of its files')
    folder = epath.Path(data.dir)
    if not folder.is_dir():
        raise ConfigError(f'data.dir={data.dir!r}: no such folder')
    return folder


def exists(data: Data, name: str) -> bool:
    """Returns whether `data.dir` has a file, plain or gzip."""
    return any((root(data) / path).exists() for path in (name, f'{name}.gz'))


def check_relative(data: Data, name: str, split: str) -> None:
    """Raises ConfigError if the name of a file or folder is not relative to `data.dir`."""
    if name.startswith('/'):
        raise ConfigError(
            f'data.{split}: {name} must be relative to data.dir={str(root(data))!r}, which can be set, too'
        )


def find(data: Data, name: str, split: str, hint: str = '') -> epath.Path:
    """Finds a file in `data.dir`, plain or gzip; `hint` ends the error if there is none."""
    folder = root(data)
    check_relative(data, name, split)
    for path in (folder / name, folder / f'{name}.gz'):
        if path.exists() and not path.is_dir():
            return path
    raise ConfigError(f'data.{split}: no file {folder / name} or {name}.gz{hint}')


def check_path(path: epath.Path, split: str) -> None:
    """Raises ConfigError if a file or folder found for a split has a name that is not UTF-8."""
    if not files.is_utf8(path.name):
        raise ConfigError(f'data.{split}: {files.readable_name(path)}: the name is not UTF-8; rename it')
