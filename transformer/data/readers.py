"""Where sentence pairs come from: text files, the grammar, or a dataset of TFDS."""

import dataclasses
import gzip
import hashlib
import io
import itertools
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from etils import epath

from transformer.config import ConfigError, Data
from transformer.data import tfds_source
from transformer.data.grammar import sentences as grammar

_BLOCK = 1 << 20
_BOM = b'\xef\xbb\xbf'
_SHOWN = 20  # places that the report keeps of a rule


class Pair(NamedTuple):
    """A sentence and its translation, and where they stand."""

    source: str
    target: str
    files: tuple[str, str]
    line: int


class Origin(NamedTuple):
    """A file that pairs are read from; the hash is of its content, decompressed."""

    name: str
    lines: int
    sha256: str


@dataclasses.dataclass
class Report:
    """What was left out of a split by which rule, and where it stood."""

    log: io.TextIOBase | None = None
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    first: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def drop(self, rule: str, file: str, line: int) -> None:
        """Counts one pair as left out by `rule`; all go to the log, the first 20 are kept here."""
        self.counts[rule] = self.counts.get(rule, 0) + 1
        places = self.first.setdefault(rule, [])
        if len(places) < _SHOWN:
            places.append(f'{file}:{line}')
        if self.log:
            self.log.write(f'{rule}\t{file}\t{line}\n')


def splits(data: Data) -> tuple[str, ...]:
    """The splits that the source has."""
    pronoun = data.source == 'grammar' and data.target_language == 'de'
    return ('train', 'dev', 'test') + (('pronoun',) if pronoun else ())


def prepare(data: Data) -> None:
    """Downloads the dataset of a TFDS source unless it is there; other sources need nothing.

    Raises:
      ConfigError, OSError: as `tfds_source.prepare`.
    """
    if data.source == 'tfds':
        tfds_source.prepare(data)


def dataset(data: Data) -> dict[str, object]:
    """What the lock file tells of a TFDS source beside its files; other sources are their files.

    Raises:
      ConfigError: it is not prepared.
    """
    return {'dataset': tfds_source.description(data)} if data.source == 'tfds' else {}


def sentence_pairs(data: Data, split: str, report: Report) -> Iterator[Pair]:
    """The pairs of a split, in order and in the config's direction, one at a time.

    Of the training split at most `data.train_pairs` are read; one with a blank side is dropped and
    reported. The other splits keep every line: scores are over whole test sets.

    Raises:
      ConfigError: a file is missing or damaged, or the two sides do not fit.
    """
    for pair in itertools.islice(_pairs(data, split), data.train_pairs if split == 'train' else None):
        blank = [not text.strip() for text in pair[:2]]
        if split == 'train' and any(blank):
            report.drop('empty', pair.files[blank.index(True)], pair.line)
        else:
            yield pair


def origins(data: Data, split: str) -> list[Origin]:
    """The files of a split with their line counts and content hashes.

    Raises:
      ConfigError: as `sentence_pairs`, but for what only decoding shows.
    """
    if data.source == 'grammar':
        text = ''.join(f'{source}\n{target}\n' for source, target, *_ in _pairs(data, split))
        digest = hashlib.sha256(text.encode()).hexdigest()
        return [Origin(f'grammar/{split}', text.count('\n') // 2, digest)]
    if data.source == 'tfds':
        return _tfds_origins(data, split)
    found = []
    for paths in _text_paths(data, split):
        sides = [_origin(path, str(path.relative_to(data.dir))) for path in paths]
        _check_counts(paths, [side.lines for side in sides])
        found += sides
    return found


def _pairs(data: Data, split: str) -> Iterator[Pair]:
    readers = {'text': _text_pairs, 'grammar': _grammar_pairs, 'tfds': _tfds_pairs}
    return readers[data.source](data, split)


def _grammar_pairs(data: Data, split: str) -> Iterator[Pair]:
    languages = (data.source_language, data.target_language)
    if set(languages) != {'en', 'de'}:
        raise ConfigError(
            f'data.source_language={languages[0]!r}, data.target_language={languages[1]!r}: '
            'the grammar has en and de'
        )
    name = f'grammar/{split}'
    for line, (english, german) in enumerate(grammar.sentence_pairs(split), 1):
        pair = (english, german) if languages[0] == 'en' else (german, english)
        yield Pair(*pair, (name, name), line)


def _text_paths(data: Data, split: str) -> Iterator[tuple[epath.Path, epath.Path]]:
    """The two files of each stem, in the config's direction."""
    if data.dir is None:
        raise ConfigError('data.dir: missing; source=text needs the folder of its files')
    folder = epath.Path(data.dir)
    if not folder.is_dir():
        raise ConfigError(f'data.dir={data.dir!r}: no such folder')
    for stem in getattr(data, split).split(','):
        yield tuple(
            _find(folder, f'{stem.strip()}.{language}', split)
            for language in (data.source_language, data.target_language)
        )


def _find(folder: epath.Path, name: str, split: str) -> epath.Path:
    if name.startswith('/'):
        raise ConfigError(f'data.{split}: {name} must be relative to data.dir={str(folder)!r}')
    for path in (folder / name, folder / f'{name}.gz'):
        if path.exists() and not path.is_dir():
            return path
    raise ConfigError(f'data.{split}: no file {folder / name} or {name}.gz')


def _text_pairs(data: Data, split: str) -> Iterator[Pair]:
    for paths in _text_paths(data, split):
        names = tuple(str(path.relative_to(data.dir)) for path in paths)
        sides = [lines(path) for path in paths]
        for line, texts in enumerate(itertools.zip_longest(*sides), 1):
            if None in texts:
                ended = [text is None for text in texts]
                _check_counts(paths, [line - end + len(list(s)) for end, s in zip(ended, sides, strict=True)])
            yield Pair(*texts, names, line)


def _check_counts(paths: tuple[epath.Path, epath.Path], counts: list[int]) -> None:
    if counts[0] != counts[1]:
        raise ConfigError(f'{paths[0]} has {counts[0]} lines, {paths[1]} has {counts[1]}')


def _blocks(path: epath.Path) -> Iterator[bytes]:
    try:
        with path.open('rb') as raw:
            file = gzip.GzipFile(fileobj=raw) if path.suffix == '.gz' else raw
            while block := file.read(_BLOCK):
                yield block
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise ConfigError(f'{path}: damaged or truncated gzip file') from None


def lines(path: epath.Path) -> Iterator[str]:
    """The lines of a text file, plain or gzip.

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


def _byte_lines(path: epath.Path) -> Iterator[bytes]:
    """The lines of a file, ended by a newline only: real text holds other separators."""
    rest = b''
    for block in _blocks(path):
        *whole, rest = (rest + block).split(b'\n')
        yield from whole
    if rest:
        yield rest


def _origin(path: epath.Path, name: str) -> Origin:
    digest, lines, last = hashlib.sha256(), 0, b'\n'
    for block in _blocks(path):
        digest.update(block)
        lines += block.count(b'\n')
        last = block[-1:]
    return Origin(name, lines + (last != b'\n'), digest.hexdigest())


def _tfds_pairs(data: Data, split: str) -> Iterator[Pair]:
    name = f'{data.name}/{getattr(data, split)}'
    for line, texts in enumerate(tfds_source.texts(data, split), 1):
        yield Pair(*texts, (name, name), line)


def _tfds_origins(data: Data, split: str) -> list[Origin]:
    return [
        _origin(path, f'{path.name}[{skip}:{skip + take}]')._replace(lines=take)
        for path, skip, take in tfds_source.files(data, split)
    ]
