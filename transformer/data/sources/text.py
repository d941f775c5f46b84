"""Text files, plain or gzip: their lines, the whole of one, and what tells it apart from others."""

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from etils import epath

from transformer.config import ConfigError

_BLOCK = 1 << 20
_BOM = b'\xef\xbb\xbf'


class Origin(NamedTuple):
    """A file that rows are read from.

    lines: how many of them are read. sha256: of the whole file, decompressed.
    """

    name: str
    lines: int
    sha256: str


def lines(path: epath.Path) -> Iterator[str]:
    """Yields the lines of a text file, plain or gzip.

    Raises:
      ConfigError: the file is damaged or not UTF-8.
      OSError: it cannot be read.
    """
    for number, line in enumerate(_byte_lines(path), 1):
        line = line.removeprefix(_BOM) if number == 1 else line
        try:
            yield line.removesuffix(b'\r').decode()
        except UnicodeDecodeError:
            raise ConfigError(f'{path}: line {number} is not UTF-8') from None


def whole(path: epath.Path) -> str:
    """The text of a file as it is, without a byte order mark; raises as `lines`."""
    content = b''.join(_blocks(path)).removeprefix(_BOM)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = 1 + content.count(b'\n', 0, error.start)
        raise ConfigError(f'{path}: line {line} is not UTF-8') from None


def origin(path: epath.Path, name: str) -> Origin:
    """What is known of a file under a name.

    Raises:
      ConfigError, OSError: as `lines`, except for what only decoding the text shows.
    """
    digest, lines, last = hashlib.sha256(), 0, b'\n'
    for block in _blocks(path):
        digest.update(block)
        lines += block.count(b'\n')
        last = block[-1:]
    return Origin(name, lines + (last != b'\n'), digest.hexdigest())


def line_count(text: str) -> int:
    """The lines of a text, the last of which need not end."""
    return text.count('\n') + (text != '' and text[-1] != '\n')


def _byte_lines(path: epath.Path) -> Iterator[bytes]:
    """The lines of a file, ended by a newline only: real text holds other separators."""
    rest = b''
    for block in _blocks(path):
        *whole, rest = (rest + block).split(b'\n')
        yield from whole
    if rest:
        yield rest


def _blocks(path: epath.Path) -> Iterator[bytes]:
    try:
        with path.open('rb') as raw:
            file = gzip.GzipFile(fileobj=raw) if path.suffix == '.gz' else raw
            while block := file.read(_BLOCK):
                yield block
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise ConfigError(f'{path}: damaged or truncated gzip file') from None
