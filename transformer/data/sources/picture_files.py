"""Reads the pictures that tables name, from a folder or a zip archive."""

import contextlib
import functools
import logging
import lzma
import os
import zipfile
import zlib
from collections.abc import Iterable

import numpy as np
from etils import epath
from jaxtyping import UInt8

from transformer import files
from transformer.config import ConfigError, Data
from transformer.data.fields import Image
from transformer.data.sources import entries, images

log = logging.getLogger(__name__)
# What zipfile raises for damaged archives, and for those that are encrypted or compressed otherwise.
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, NotImplementedError,
    UnicodeDecodeError,
)  # fmt: skip


class PictureFiles(contextlib.AbstractContextManager):
    """The pictures in `data.pictures`, by default in the folder of a table, by their names in the table."""

    def __init__(self, data: Data, table: epath.Path):
        """Opens the folder or archive.

        Raises:
          ConfigError: there is no such folder or archive, or it is damaged.
        """
        self.place, self._archive = table.parent, None
        self._files = contextlib.ExitStack()
        self._latest: tuple[str, Image, UInt8[np.ndarray, 'h w c']] | None = None
        if data.pictures is None:
            return
        self.place = entries.root(data) / data.pictures
        if self.place.is_dir():
            return
        if not self.place.exists():
            raise ConfigError(f'data.pictures={data.pictures}: no folder or zip archive {self.place}')
        file = self._files.enter_context(self.place.open('rb'))
        try:
            self._archive = self._files.enter_context(zipfile.ZipFile(file))
        except _DAMAGED:
            self._files.close()
            raise ConfigError(f'data.pictures={data.pictures}: damaged, or no zip archive') from None

    def __exit__(self, *error: object) -> None:
        self._files.close()

    def read(self, name: str, size: Image) -> UInt8[np.ndarray, 'h w c']:
        """Reads a picture in a size; once, if rows that follow each other name it.

        Raises:
          images.PictureError: there is none, or it cannot be read.
        """
        if self._latest is None or self._latest[:2] != (name, size):
            self._latest = name, size, images.decode(self._content(name), str(self.place / name), size)
        return self._latest[2]

    def _content(self, name: str) -> bytes:
        path = self.place / name
        if name.startswith('/'):
            raise images.PictureError(f'{name} must be relative to {self.place}')
        if not _is_relative(name):
            raise images.PictureError('names no picture')
        if self._archive is None:
            return images.content_of(path)
        try:
            if self._archive.getinfo(name).file_size > images.MOST_BYTES:
                raise images.PictureError(f'{path}: more than {images.MOST_BYTES >> 20} MiB')
            return self._archive.read(name)
        except KeyError:
            raise images.PictureError(f'{path}: no such picture') from None
        except _DAMAGED:
            raise images.PictureError(f'{path}: damaged in its archive') from None

    def sha256(self, names: Iterable[str]) -> str:
        """Returns a hash of the names and contents of pictures; those that cannot be read have none."""
        contents = []
        for name in sorted(set(names)):
            try:
                contents.append([name, files.bytes_sha256(self._content(name))])
            except images.PictureError:
                contents.append([name, None])
        return files.json_sha256(contents)

    def warn_of_others(self, names: Iterable[str]) -> None:
        """Warns of pictures beside the named ones, which no row names."""
        named = {name for name in names if _is_relative(name)}
        if self._archive is not None:
            others = [name for name in self._archive.namelist() if not images.is_hidden(name)]
        else:
            others, named = self._in_folders(named)
        others = sorted(
            name for name in others if name.lower().endswith(images.SUFFIXES) and name not in named
        )
        if others:
            log.warning(
                '%s: pictures in no row of the tables: %d, such as %s',
                self.place, len(others), others[0],
            )  # fmt: skip

    def _in_folders(self, named: Iterable[str]) -> tuple[set[str], set[str]]:
        """Returns the files in the folders of the named pictures, and the named files, as names of one form.

        Folders are resolved, because names can reach one in several ways, such as by `..`.
        """
        resolve = functools.cache(lambda folder: folder.resolve())
        start, paths = resolve(self.place), [self.place / name for name in named]
        named_files, present = {resolve(path.parent) / path.name for path in paths}, set()
        for folder in {path.parent for path in named_files}:
            # A folder that is missing or cannot be listed shows no other pictures.
            with contextlib.suppress(OSError):
                present |= {path for path in folder.iterdir() if not images.is_hidden(path.name)}
        return _relative(present, start), _relative(named_files, start)


def _relative(paths: Iterable[epath.Path], start: epath.Path) -> set[str]:
    return {os.path.relpath(path, start) for path in paths}


def _is_relative(name: str) -> bool:
    """Returns whether a name can be a picture's, relative to a folder."""
    return bool(name.strip()) and '\0' not in name and not name.startswith('/')
