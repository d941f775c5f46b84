"""Where sentence pairs come from: text files, the grammar, or a dataset of TFDS."""

import contextlib
import dataclasses
import gzip
import hashlib
import importlib
import importlib.util
import io
import itertools
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from etils import epath

from transformer.config import ConfigError, Data
from transformer.data import grammar

_BLOCK = 1 << 20
_BOM = b'\xef\xbb\xbf'
_SHOWN = 20  # places that the report keeps of a rule
_FETCHED = 1000  # pairs that are read from TFDS at once


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
    return ('train', 'dev', 'test') + (('pronoun',) if data.source == 'grammar' else ())


def sentence_pairs(data: Data, split: str, report: Report) -> Iterator[Pair]:
    """The pairs of a split, in order and in the config's direction, one at a time.

    A training pair with a blank side is dropped and reported. The other splits keep every line:
    scores are over whole test sets.

    Raises:
      ConfigError: a file is missing or damaged, or the two sides do not fit.
    """
    for pair in _pairs(data, split):
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


def download(data: Data) -> None:
    """Downloads a dataset of TFDS and prepares it in `data.dir`, unless it is there.

    TFDS keeps finished downloads, so that an interrupted call goes on with the next file. The other
    sources have nothing to download.

    Raises:
      ConfigError: TFDS has no such dataset or cannot download it, or TensorFlow is not installed.
      OSError: the network or the disk fails.
    """
    if data.source != 'tfds':
        return
    import tensorflow_datasets as tfds

    try:
        _prepared_builder(data)
        return
    except tfds.core.DatasetNotFoundError:
        pass
    if not all(map(importlib.util.find_spec, ('tensorflow', 'importlib_resources'))):
        raise ConfigError(f"data.name={data.name!r}: downloading needs TensorFlow: pip install '.[prepare]'")
    try:
        builder = _known_builder(data)
        # Google's copies are in another format.
        settings = tfds.download.DownloadConfig(try_download_gcs=False)
        builder.download_and_prepare(download_config=settings)
    except tfds.core.DatasetNotFoundError:
        raise ConfigError(f'data.name={data.name!r}: TFDS has no such dataset') from None
    # What a builder asserts of its files, as that the user downloads some by hand.
    except (AssertionError, tfds.download.DownloadError, tfds.download.NonMatchingChecksumError) as error:
        raise ConfigError(f'data.name={data.name!r}: {" ".join(str(error).split())}') from None


def corpora(data: Data) -> dict[str, object]:
    """What the pairs are called by others: for TFDS name, version and the corpora of each split."""
    if data.source == 'grammar':
        return {'name': 'grammar', 'version': grammar.VERSION}
    if data.source == 'text':
        return {}
    import tensorflow_datasets as tfds

    builder = _prepared_builder(data)
    named = {'name': data.name, 'version': str(builder.info.version)}
    try:
        subsets = _known_builder(data).subsets
    except (tfds.core.DatasetNotFoundError, AttributeError):
        # Only the sets of WMT say what they are made of.
        return named
    return {**named, 'subsets': {str(split): list(names) for split, names in subsets.items()}}


def _known_builder(data: Data):
    """The builder that downloads a dataset."""
    import tensorflow_datasets as tfds

    module = data.name.split('/')[0].removesuffix('_translate')
    with contextlib.suppress(ModuleNotFoundError):
        # TFDS knows only the datasets whose modules are imported.
        importlib.import_module(f'tensorflow_datasets.translate.{module}')
    return tfds.builder(data.name, data_dir=data.dir, file_format='array_record')


def _prepared_builder(data: Data):
    """The builder of a prepared dataset; reading it needs no TensorFlow."""
    import tensorflow_datasets as tfds

    return tfds.core.read_only_builder.builder_from_files(data.name, data_dir=data.dir)


def _tfds_builder(data: Data, split: str):
    """The builder of a prepared dataset that has the split and the languages."""
    # Imported here, as everywhere: nothing else needs it, and it takes a second.
    import tensorflow_datasets as tfds

    where = 'data.dir' if data.dir is None else f'data.dir={data.dir!r}'
    try:
        builder = _prepared_builder(data)
    except tfds.core.DatasetNotFoundError:
        raise ConfigError(
            f'data.name={data.name!r}: not prepared in {where}; first run.py prepare with the same config'
        ) from None
    if builder.info.file_format is not tfds.core.FileFormat.ARRAY_RECORD:
        raise ConfigError(
            f'data.name={data.name!r}: prepared in {where} as {builder.info.file_format.value}; '
            'needs array_record'
        )
    languages = list(builder.info.features)
    for name in ('source_language', 'target_language'):
        if getattr(data, name) not in languages:
            choices = ', '.join(languages)
            raise ConfigError(f'data.{name}={getattr(data, name)!r}: {data.name} has {choices}')
    try:
        builder.info.splits[getattr(data, split)]
    except ValueError:
        choices = ', '.join(builder.info.splits)
        raise ConfigError(f'data.{split}={getattr(data, split)!r}: {data.name} has {choices}') from None
    return builder


def _tfds_pairs(data: Data, split: str) -> Iterator[Pair]:
    source = _tfds_builder(data, split).as_data_source(split=getattr(data, split))
    name = f'{data.name}/{getattr(data, split)}'
    for start in range(0, len(source), _FETCHED):
        rows = source.__getitems__(range(start, min(start + _FETCHED, len(source))))
        for line, row in enumerate(rows, start + 1):
            source_text, target_text = (
                row[language].decode().replace('\n', ' ')
                for language in (data.source_language, data.target_language)
            )
            yield Pair(source_text, target_text, (name, name), line)


def _tfds_origins(data: Data, split: str) -> list[Origin]:
    chosen = _tfds_builder(data, split).info.splits[getattr(data, split)]
    found = []
    for part in chosen.file_instructions:
        path = epath.Path(part.filename)
        name = f'{path.name}[{part.skip}:{part.skip + part.take}]'
        found.append(_origin(path, name)._replace(lines=part.take))
    return found
