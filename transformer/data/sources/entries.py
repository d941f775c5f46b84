"""Parses the entries of data.train, data.dev and data.test: names under data.dir, each with its slice."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from etils import epath

from transformer.config import ConfigError, Data

_SLICE = re.compile(r'(.+)\[(?:(\d+)%)?:(?:(\d+)%)?\]')


class Entry(NamedTuple):
    """A name, its slice as written (`[:90%]`), and the part that is read, in percent."""

    name: str
    suffix: str = ''
    start: int = 0
    stop: int = 100

    def part(self, size: int) -> slice:
        """Returns the part of `size` items that is read."""
        return slice(size * self.start // 100, size * self.stop // 100)


def parse(data: Data, split: str) -> Iterator[Entry]:
    """Yields the entries of the option `data.<split>`."""
    for entry in map(str.strip, getattr(data, split).split(',')):
        if not entry:
            raise ConfigError(f'data.{split}={getattr(data, split)}: an empty name')
        if not entry.endswith(']'):
            yield Entry(entry)
            continue
        match = _SLICE.fullmatch(entry)
        name, start, stop = match.groups() if match else ('', None, None)
        first, last = int(start or 0), int(stop or 100)
        if (start is None and stop is None) or not first < last <= 100:
            raise ConfigError(
                f'data.{split}: {entry} is no slice; write FILE[:90%], FILE[90%:] or FILE[10%:20%]'
            )
        yield Entry(name, entry.removeprefix(name), first, last)


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


def find(data: Data, name: str, split: str, hint: str = '') -> epath.Path:
    """Finds a file in `data.dir`, plain or gzip; `hint` ends the error if there is none."""
    folder = root(data)
    if name.startswith('/'):
        raise ConfigError(f'data.{split}: {name} must be relative to data.dir={str(folder)!r}')
    for path in (folder / name, folder / f'{name}.gz'):
        if path.exists() and not path.is_dir():
            return path
    raise ConfigError(f'data.{split}: no file {folder / name} or {name}.gz{hint}')
