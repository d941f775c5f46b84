"""Where rows of text come from: text files, the grammar, or a dataset of TFDS."""

import contextlib
import dataclasses
import hashlib
import io
import itertools
import json
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from etils import epath, epy

from transformer import files
from transformer.config import ConfigError, Data
from transformer.data.sources import text as text_files
from transformer.data.sources import tfds
from transformer.data.sources.grammar import sentences
from transformer.data.sources.text import Origin

# Importing it builds tables of forms, and few programs judge sentences.
with epy.lazy_imports():
    from transformer.data.sources.grammar import reader

SPLITS = ('train', 'dev', 'test')

_SHOWN = 20  # how many places a report keeps for each rule
_SLICE = re.compile(r'(.+)\[(?:(\d+)%)?:(?:(\d+)%)?\]')


class Reading(NamedTuple):
    """What a task reads of its data.

    fields: the language of each named field of a row; None where a text file has no such suffix.
    options: the options of data that determine what the corpus holds.
    """

    fields: dict[str, str | None]
    options: tuple[str, ...]


class Row(NamedTuple):
    """The texts of one example in the order of `Reading.fields`, and where they stand.

    files: the file of each text. line: the line where each begins.
    """

    texts: tuple[str, ...]
    files: tuple[str, ...]
    line: int


class Reader(NamedTuple):
    """How one kind of source is read; the functions below call these, and say what they return."""

    rows: Callable[[Data, Reading, str], Iterator[Row]]
    origins: Callable[[Data, Reading, str, pathlib.Path | None], list[Origin]]
    count: Callable[[Data, Reading, list[Origin]], int]
    splits: Callable[[Reading], tuple[str, ...]]
    prepare: Callable[[Data, Reading], None]
    facts: Callable[[Data, Reading], dict[str, object]]
    versions: Callable[[], dict[str, object]]
    judge: Callable[[Reading], Callable[[str], bool] | None]


@dataclasses.dataclass
class Report:
    """How many rows of a split each rule left out, and where they stood.

    log: gets every row that is left out, as tab-separated rule, file and line.
    """

    log: io.TextIOBase | None = None
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    first: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def drop(self, rule: str, file: str, line: int) -> None:
        """Counts a row as left out by `rule`; the first 20 places are kept in `first`."""
        self.counts[rule] = self.counts.get(rule, 0) + 1
        places = self.first.setdefault(rule, [])
        if len(places) < _SHOWN:
            places.append(f'{file}:{line}')
        if self.log:
            self.log.write(f'{rule}\t{file}\t{line}\n')


def splits(data: Data, reading: Reading) -> tuple[str, ...]:
    """The names of the splits that the source has."""
    return READERS[data.source].splits(reading)


def prepare(data: Data, reading: Reading) -> None:
    """Downloads the dataset of a TFDS source unless it is there; other sources need nothing.

    Raises:
      ConfigError, OSError: as `tfds_source.prepare`.
    """
    READERS[data.source].prepare(data, reading)


def facts(data: Data, reading: Reading) -> dict[str, object]:
    """The entries of the lock file that describe the source itself: `dataset`, where TFDS is the source.

    Raises:
      ConfigError: the dataset is not prepared.
    """
    return READERS[data.source].facts(data, reading)


def versions(data: Data) -> dict[str, object]:
    """The versions, by name, of the code that generates the source's text."""
    return READERS[data.source].versions()


def judge(data: Data, reading: Reading) -> Callable[[str], bool] | None:
    """A function that tells whether the source could have made a text; None where that cannot be known."""
    return READERS[data.source].judge(reading)


def rows(data: Data, reading: Reading, split: str, report: Report) -> Iterator[Row]:
    """Yields the rows of a split, in order.

    At most `data.train_pairs` rows of the training split are read; one with a blank text is dropped and
    reported. The other splits keep every row, because scores are over whole test sets.

    Raises:
      ConfigError: a file is missing or damaged, or the files do not fit together.
    """
    everything = READERS[data.source].rows(data, reading, split)
    for row in itertools.islice(everything, data.train_pairs if split == 'train' else None):
        blank = [not text.strip() for text in row.texts]
        if split == 'train' and any(blank):
            report.drop('empty', row.files[blank.index(True)], row.line)
        else:
            yield row


def origins(data: Data, reading: Reading, split: str, cache: pathlib.Path | None = None) -> list[Origin]:
    """The files of a split with their line counts and content hashes.

    Args:
      cache: a folder that remembers what takes long to find.

    Raises:
      ConfigError: as `rows`, except for what only decoding the text shows.
    """
    return READERS[data.source].origins(data, reading, split, cache)


def count(data: Data, reading: Reading, split: str, found: list[Origin]) -> int:
    """How many rows of a split are read, blank ones counted.

    Args:
      found: the split's files, from `origins`.
    """
    number = READERS[data.source].count(data, reading, found)
    return min(number, data.train_pairs or number) if split == 'train' else number


def _languages(data: Data, reading: Reading) -> dict[str, str | None]:
    """The language of each field by the option that sets it."""
    own = {field: f'{field}_language' for field in reading.fields}
    return {
        f'data.{own[field] if hasattr(data, own[field]) else "language"}': language
        for field, language in reading.fields.items()
    }


class _Stem(NamedTuple):
    """One entry of `data.train`, `data.dev` or `data.test`: a file per field, and which part is read.

    suffix: the slice as it was written, empty where there is none. start, stop: its percents.
    """

    paths: tuple[epath.Path, ...]
    names: tuple[str, ...]
    suffix: str
    start: int
    stop: int

    def part(self, size: int) -> slice:
        return slice(size * self.start // 100, size * self.stop // 100)


def _stems(data: Data, reading: Reading, split: str) -> Iterator[_Stem]:
    if data.dir is None:
        raise ConfigError('data.dir: missing; source=text needs the folder of its files')
    folder = epath.Path(data.dir)
    if not folder.is_dir():
        raise ConfigError(f'data.dir={data.dir!r}: no such folder')
    for entry in getattr(data, split).split(','):
        stem, start, stop = _parse_slice(entry.strip(), split)
        paths = tuple(
            _find(folder, stem if language is None else f'{stem}.{language}', split)
            for language in reading.fields.values()
        )
        names = tuple(str(path.relative_to(data.dir)) for path in paths)
        yield _Stem(paths, names, entry.strip().removeprefix(stem), start, stop)


def _parse_slice(entry: str, split: str) -> tuple[str, int, int]:
    """The stem and the percents of an entry such as `input.txt[:90%]`."""
    if not entry.endswith(']'):
        return entry, 0, 100
    found = _SLICE.fullmatch(entry)
    stem, start, stop = found.groups() if found else ('', None, None)
    first, last = int(start or 0), int(stop or 100)
    if (start is None and stop is None) or not first < last <= 100:
        raise ConfigError(f'data.{split}: {entry} is no slice; write FILE[:90%], FILE[90%:] or FILE[10%:20%]')
    return stem, first, last


def _find(folder: epath.Path, name: str, split: str) -> epath.Path:
    if name.startswith('/'):
        raise ConfigError(f'data.{split}: {name} must be relative to data.dir={str(folder)!r}')
    for path in (folder / name, folder / f'{name}.gz'):
        if path.exists() and not path.is_dir():
            return path
    raise ConfigError(f'data.{split}: no file {folder / name} or {name}.gz')


def _text_rows(data: Data, reading: Reading, split: str) -> Iterator[Row]:
    read = _documents if data.documents == 'files' else _line_rows
    for stem in _stems(data, reading, split):
        yield from read(stem)


def _documents(stem: _Stem) -> Iterator[Row]:
    """Yields the one row of a stem whose files are one document each."""
    texts = tuple(text_files.whole(path) for path in stem.paths)
    yield Row(tuple(text[stem.part(len(text))] for text in texts), stem.names, 1)


def _line_rows(stem: _Stem) -> Iterator[Row]:
    part = slice(0, None)
    if stem.suffix:
        part = stem.part(_same([text_files.origin(path, '').lines for path in stem.paths], stem.paths))
    texts = [text_files.lines(path) for path in stem.paths]
    for line, row in enumerate(itertools.islice(itertools.zip_longest(*texts), part.stop), 1):
        if None in row:
            ended = [text is None for text in row]
            counts = [line - end + len(list(rest)) for end, rest in zip(ended, texts, strict=True)]
            _same(counts, stem.paths)
        if line > part.start:
            yield Row(row, stem.names, line)


def _same(counts: list[int], paths: tuple[epath.Path, ...]) -> int:
    """The number of lines that all the files have."""
    for path, number in zip(paths, counts, strict=True):
        if number != counts[0]:
            raise ConfigError(f'{paths[0]} has {counts[0]} lines, {path} has {number}')
    return counts[0]


def _text_origins(data: Data, reading: Reading, split: str, cache: pathlib.Path | None) -> list[Origin]:
    del cache
    found = []
    for stem in _stems(data, reading, split):
        of_stem = [
            text_files.origin(path, name + stem.suffix)
            for path, name in zip(stem.paths, stem.names, strict=True)
        ]
        if data.documents == 'files':
            if stem.suffix:
                (row,) = _documents(stem)
                parts = [text_files.line_count(text) for text in row.texts]
                of_stem = [origin._replace(lines=part) for origin, part in zip(of_stem, parts, strict=True)]
        else:
            part = stem.part(_same([origin.lines for origin in of_stem], stem.paths))
            of_stem = [origin._replace(lines=part.stop - part.start) for origin in of_stem]
        found += of_stem
    return found


def _text_count(data: Data, reading: Reading, found: list[Origin]) -> int:
    number = len(found) if data.documents == 'files' else sum(origin.lines for origin in found)
    return number // len(reading.fields)


def _grammar_languages(data: Data, reading: Reading) -> list[str]:
    languages = _languages(data, reading)
    if not set(languages.values()) <= {'en', 'de'}:
        given = ', '.join(f'{option}={language!r}' for option, language in languages.items())
        raise ConfigError(f'{given}: the grammar has en and de')
    return [*languages.values()]


def _grammar_rows(data: Data, reading: Reading, split: str) -> Iterator[Row]:
    languages = _grammar_languages(data, reading)
    names = (f'grammar/{split}',) * len(languages)
    for line, (english, german) in enumerate(sentences.sentence_pairs(split), 1):
        texts = {'en': english, 'de': german}
        yield Row(tuple(texts[language] for language in languages), names, line)


def _grammar_origins(data: Data, reading: Reading, split: str, cache: pathlib.Path | None) -> list[Origin]:
    """What the text hashes to, remembered by the code that generates it, which takes a second."""
    if cache is None:
        return _generated_origins(data, reading, split)
    code = sentences.code_sha256(), files.sha256(pathlib.Path(__file__))
    made_by = [*code, split, _grammar_languages(data, reading)]
    file = cache / 'grammar' / f'{files.json_sha256(made_by)}.json'
    with contextlib.suppress(OSError, ValueError, TypeError):
        [known] = json.loads(file.read_bytes())
        return [Origin(**known)]
    found = _generated_origins(data, reading, split)
    # A cache that can only be read may hold the corpus all the same.
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(file, [origin._asdict() for origin in found])
    return found


def _generated_origins(data: Data, reading: Reading, split: str) -> list[Origin]:
    rows = list(_grammar_rows(data, reading, split))
    text = ''.join(f'{text}\n' for row in rows for text in row.texts)
    return [Origin(f'grammar/{split}', len(rows), hashlib.sha256(text.encode()).hexdigest())]


def _grammar_splits(reading: Reading) -> tuple[str, ...]:
    """The three splits, and in translations into German a fourth one that tests pronouns."""
    return (*SPLITS, 'pronoun') if reading.fields.get('target') == 'de' else SPLITS


def _tfds_rows(data: Data, reading: Reading, split: str) -> Iterator[Row]:
    names = (f'{data.name}/{getattr(data, split)}',) * len(reading.fields)
    for line, texts in enumerate(tfds.texts(data, _languages(data, reading), split), 1):
        yield Row(texts, names, line)


def _tfds_origins(data: Data, reading: Reading, split: str, cache: pathlib.Path | None) -> list[Origin]:
    del cache
    return [
        text_files.origin(path, f'{path.name}[{skip}:{skip + take}]')._replace(lines=take)
        for path, skip, take in tfds.files(data, _languages(data, reading), split)
    ]


def _lines_in_all(data: Data, reading: Reading, found: list[Origin]) -> int:
    del data, reading
    return sum(origin.lines for origin in found)


READERS = {
    'text': Reader(
        rows=_text_rows,
        origins=_text_origins,
        count=_text_count,
        splits=lambda reading: SPLITS,
        prepare=lambda data, reading: None,
        facts=lambda data, reading: {},
        versions=lambda: {},
        judge=lambda reading: None,
    ),
    'grammar': Reader(
        rows=_grammar_rows,
        origins=_grammar_origins,
        count=_lines_in_all,
        splits=_grammar_splits,
        prepare=lambda data, reading: None,
        facts=lambda data, reading: {},
        versions=lambda: {'grammar': sentences.VERSION},
        judge=lambda reading: reader.is_grammatical if reading.fields == {'text': 'de'} else None,
    ),
    'tfds': Reader(
        rows=_tfds_rows,
        origins=_tfds_origins,
        count=_lines_in_all,
        splits=lambda reading: SPLITS,
        prepare=lambda data, reading: tfds.prepare(data, _languages(data, reading)),
        facts=lambda data, reading: {'dataset': tfds.description(data, _languages(data, reading))},
        versions=lambda: {},
        judge=lambda reading: None,
    ),
}
