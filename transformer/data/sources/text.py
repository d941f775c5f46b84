"""Reads text files, plain or gzip: lines, whole documents, and rows of parallel files."""

import codecs
import gzip
import hashlib
import itertools
import shlex
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from etils import epath

from transformer.config import ConfigError, Data
from transformer.data.fields import Example, Reading, Text
from transformer.data.sources import entries
from transformer.data.sources.entries import Entry
from transformer.data.spellings import Spellings

_BLOCK = 1 << 20
_GZIP = b'\x1f\x8b'  # how a gzip file begins
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # the marks at the beginning of a file
# The end of the name of a file whose lines have the source, then every right spelling in place of one.
REFERENCES = 'references.tsv'


class SourceFile(NamedTuple):
    """A file or folder that rows are read from. `lines` counts the lines or rows that are read."""

    name: str
    lines: int
    sha256: str


def lines(path: epath.Path) -> Iterator[str]:
    """Yields the lines of a text file, plain or gzip.

    Raises:
      ConfigError: the file is damaged or not UTF-8.
    """
    for number, line in enumerate(_byte_lines(path), 1):
        line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        try:
            yield line.removesuffix(b'\r').decode()
        except UnicodeDecodeError:
            raise _not_utf8(path, number, line) from None


def whole(path: epath.Path) -> str:
    """Reads the text of a file as it is, without a byte order mark, with the errors of `lines`."""
    content = b''.join(blocks(path)).removeprefix(codecs.BOM_UTF8)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = 1 + content.count(b'\n', 0, error.start)
        raise _not_utf8(path, line, content) from None


def _not_utf8(path: epath.Path, line: int, content: bytes) -> ConfigError:
    name = shlex.quote(str(path))
    if line == 1 and content.startswith(_GZIP):
        return ConfigError(f'{path}: is compressed by gzip; its name must end in .gz')
    before, after = (f'zcat {name} | ', '') if path.suffix == '.gz' else ('', f' {name}')
    converted = lambda code: f'{before}iconv -f {code} -t utf-8{after}'
    if line == 1 and content.startswith(UTF_16):
        return ConfigError(f'{path}: is UTF-16; {converted("utf-16")} makes it UTF-8')
    return ConfigError(f'{path}: line {line} is not UTF-8; if it is Latin-1: {converted("latin1")}')


def origin(path: epath.Path, name: str) -> SourceFile:
    """Describes a file under a name, without decoding it."""
    digest, lines, last = hashlib.sha256(), 0, b'\n'
    for block in blocks(path):
        digest.update(block)
        lines += block.count(b'\n')
        last = block[-1:]
    return SourceFile(name, lines + (last != b'\n'), digest.hexdigest())


def counted_origins(
    data: Data, split: str, items: Callable[[epath.Path], Iterator[object]]
) -> list[SourceFile]:
    """Describes the files of a split by the numbers of their items, such as sentences."""
    result = []
    for entry in entries.parse(data, split):
        path = entries.find(data, entry.name, split)
        part = entry.part(sum(1 for _ in items(path)))
        described = origin(path, str(path.relative_to(entries.root(data))) + entry.suffix)
        result.append(described._replace(lines=part.stop - part.start))
    return result


def rows(data: Data, reading: Reading, split: str) -> Iterator[Example]:
    """Yields the rows of a split: line n of every field's file, or whole files."""
    read = _documents if data.documents == 'files' else _line_rows
    for entry in entries.parse(data, split):
        yield from read(entry, _paths(data, reading, entry, split), entries.root(data))


def origins(data: Data, reading: Reading, split: str) -> list[SourceFile]:
    """Describes the files of a split."""
    result = []
    for entry in entries.parse(data, split):
        paths, folder = _paths(data, reading, entry, split), entries.root(data)
        of_entry = [origin(path, str(path.relative_to(folder)) + entry.suffix) for path in paths.values()]
        if data.documents != 'files':
            part = entry.part(_check_equal([one.lines for one in of_entry], [*paths.values()]))
            of_entry = [one._replace(lines=part.stop - part.start) for one in of_entry]
        elif entry.suffix:
            (row,) = _documents(entry, paths, folder)
            # The last line need not end in a newline.
            counts = [len(text.removesuffix('\n').split('\n')) * bool(text) for text in row.values.values()]
            of_entry = [one._replace(lines=lines) for one, lines in zip(of_entry, counts, strict=True)]
        result += of_entry
    return result


def _paths(data: Data, reading: Reading, entry: Entry, split: str) -> dict[str, epath.Path]:
    """Returns the file of each field."""
    entries.root(data)
    paths = {}
    for name, field in reading.texts().items():
        hint = f'; {field.option}={field.language!r} is the end of the name' if field.language else ''
        paths[name] = entries.find(data, _file_name(data, field, entry, split), split, hint)
    return paths


def _file_name(data: Data, field: Text, entry: Entry, split: str) -> str:
    several = f'{entry.name}.{REFERENCES}'
    if isinstance(field, Spellings) and split != 'train' and entries.exists(data, several):
        return several
    return entry.name if field.language is None else f'{entry.name}.{field.language}'


def _names(paths: dict[str, epath.Path], folder: epath.Path) -> dict[str, str]:
    return {field: str(path.relative_to(folder)) for field, path in paths.items()}


def _documents(entry: Entry, paths: dict[str, epath.Path], folder: epath.Path) -> Iterator[Example]:
    """Yields the one row of an entry whose files are one document each."""
    texts = {field: whole(path) for field, path in paths.items()}
    parts = {field: text[entry.part(len(text))] for field, text in texts.items()}
    yield Example(parts, _names(paths, folder), 1)


def _line_rows(entry: Entry, paths: dict[str, epath.Path], folder: epath.Path) -> Iterator[Example]:
    fields, files = [*paths], [*paths.values()]
    part = slice(0, None)
    if entry.suffix:
        part = entry.part(_check_equal([origin(path, '').lines for path in files], files))
    names, texts = _names(paths, folder), [lines(path) for path in files]
    for line, row in enumerate(itertools.islice(itertools.zip_longest(*texts), part.stop), 1):
        if None in row:
            ended = [text is None for text in row]
            counts = [line - end + len(list(rest)) for end, rest in zip(ended, texts, strict=True)]
            _check_equal(counts, files)
        if line > part.start:
            yield Example(dict(zip(fields, row, strict=True)), names, line)


def _check_equal(counts: Sequence[int], paths: Sequence[epath.Path]) -> int:
    """Returns the files' line count, or raises ConfigError if they differ."""
    for path, number in zip(paths, counts, strict=True):
        if number != counts[0]:
            raise ConfigError(f'{paths[0]} has {counts[0]} lines, {path} has {number}')
    return counts[0]


def _byte_lines(path: epath.Path) -> Iterator[bytes]:
    """Yields a file's lines, which end at newlines only: real text contains other separators."""
    # Parts of the unfinished line, joined once: a long line spans many blocks.
    parts: list[bytes] = []
    for block in blocks(path):
        first, *others = block.split(b'\n')
        parts.append(first)
        if others:
            yield b''.join(parts)
            yield from others[:-1]
            parts = [others[-1]]
    if rest := b''.join(parts):
        yield rest


def blocks(path: epath.Path) -> Iterator[bytes]:
    """Yields a file's content, decompressed, in blocks."""
    try:
        with path.open('rb') as raw:
            file = gzip.GzipFile(fileobj=raw) if path.suffix == '.gz' else raw
            while block := file.read(_BLOCK):
                yield block
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise ConfigError(f'{path}: damaged or truncated gzip file') from None
