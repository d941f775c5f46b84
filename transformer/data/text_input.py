"""Texts as tasks read them: batches without the ends of very long texts, and datasets outside the cache.

The latter are a work directory's copy of dev and test, and texts in a user's files.
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence

import numpy as np
from etils import epath

from transformer import files
from transformer.config import Config, ConfigError, Data
from transformer.data.arrays import Ragged
from transformer.data.batches import RowBatches
from transformer.data.codec import Codecs
from transformer.data.dataset import Dataset, Split, read_split
from transformer.data.fields import Example, Reading
from transformer.data.manifest import Manifest, drops_text
from transformer.data.rows import spans
from transformer.data.sources import reader, text

SPLIT = 'own file'  # the split that contains the texts of a user's files, as messages name it

# The most bytes of dev and test that are copied to a work directory.
_MOST = 256 << 20
# A line of up to this many pieces is read whole, unless a table of learned positions ends before.
LONGEST = 1024

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, eq=False)
class Given(Dataset):
    """Rows that are not in the cache, as the split `SPLIT`.

    Attributes:
      given: the texts of each field.
      whole: whether each text is a file, not a line.
    """

    given: Mapping[str, Sequence[str]]
    whole: bool

    def texts(self, split: str) -> dict[str, list[str]]:
        """Returns the texts of every field."""
        del split
        return {field: list(texts) for field, texts in self.given.items()}

    def raw(self, split: str, field: str) -> bytes:
        """Returns the text of a field: its lines, each with a newline, or its whole file."""
        del split
        return ''.join(text if self.whole else f'{text}\n' for text in self.given[field]).encode()


def read(paths: Mapping[str, epath.PathLike], data: Data, reading: Reading, codecs: Codecs) -> Given:
    """Reads a file for each text. Lines with the same number in several files are one example.

    Only a newline ends a line. A byte order mark at the beginning and a carriage return before a newline
    are not part of the text.
    """
    whole, columns = data.documents == 'files', {}
    for name, path in paths.items():
        path = epath.Path(path)
        columns[name] = [text.whole(path)] if whole else [*text.lines(path)]
        if not columns[name] or whole and not columns[name][0]:
            raise ConfigError(f'{path}: the file is empty')
    counts = {str(paths[name]): len(texts) for name, texts in columns.items()}
    if len(set(counts.values())) > 1:
        raise ConfigError(', '.join(f'{path} has {count} lines' for path, count in counts.items()))
    names = {name: str(path) for name, path in paths.items()}
    examples = zip(*columns.values(), strict=True)
    rows = [Example(dict(zip(columns, one, strict=True)), names, n) for n, one in enumerate(examples, 1)]
    folder = epath.Path(next(iter(paths.values()))).parent
    return of_rows(rows, folder, data, reading, codecs)


def of_source(
    data: Data, reading: Reading, codecs: Codecs, split: str
) -> tuple[Given, dict[str, dict[str, str]]]:
    """Reads a split by its source's reader, and returns it with the name and hash of each file."""
    reader.check(data, reading)
    report = reader.Report()
    rows = list(reader.rows(data, reading, split, report))
    if report.counts:
        first = next(iter(report.first.values()))[0]
        log.warning('data.%s: left out %s; the first is %s', split, drops_text(report.counts), first)
    reader.READERS[data.source].warn(data, reading, split)
    origins = reader.READERS[data.source].origins(data, reading, split)
    if not rows:
        raise ConfigError(f'data.{split}: {origins[0].name} is empty')
    names = [one.name for one in origins]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f'data.{split}: {repeated[0]} is named twice')
    identity = {one.name: {'name': epath.Path(one.name).name, 'sha256': one.sha256} for one in origins}
    return of_rows(rows, epath.Path(data.dir or ''), data, reading, codecs), identity


def of_rows(
    rows: Sequence[Example], folder: epath.Path, data: Data, reading: Reading, codecs: Codecs
) -> Given:
    """Encodes rows that a reader yields."""
    split = Split({name: field.encode(name, codecs, rows) for name, field in reading.fields.items()})
    kept = {name: field for name, field in reading.fields.items() if field.kept}
    given = {name: [field.raw(row.values[name]) for row in rows] for name, field in kept.items()}
    return Given(folder, codecs, {SPLIT: split}, {}, given, data.documents == 'files')


def cut(split: Split, longest: int) -> tuple[Split, int]:
    """Cuts every text to its first `longest` pieces, and counts the examples that were longer."""
    fields = dict(split.fields)
    long = np.zeros(len(split), bool)
    for name, field in split.ragged().items():
        long |= field.lengths > longest
        lengths = np.minimum(field.lengths, longest)
        tokens = field.tokens[spans(np.asarray(field.offsets[:-1]), lengths)]
        fields[name] = Ragged(tokens, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    return (Split(fields), int(long.sum())) if long.any() else (split, 0)


def cut_with_warning(split: Split, longest: int, name: str) -> Split:
    """Cuts as `cut` does, and warns if texts of the split `name` were cut."""
    shorter, number = cut(split, longest)
    if number:
        log.warning('%s: only the first %d pieces are read of very long lines: %d', name, longest, number)
    return shorter


def cut_entry(config: Config, dataset: Dataset, split: str, least: int = 0) -> dict[str, int]:
    """Returns the number of very long lines as an entry of the scores, or none if there are none."""
    _, number = cut(dataset.splits[split], longest_read(config, least))
    return {'cut': number} if number else {}


def longest_read(config: Config, least: int = 0) -> int:
    """Returns the most pieces of a line that are read: `LONGEST`, a row's, or `least`, whichever is largest.

    Attention over a longer line might not fit into memory. Learned positions end with their table.
    """
    longest = max(LONGEST, config.data.max_len, config.data.row_len, least)
    return min(longest, config.model.max_len) if config.model.positions == 'learned' else longest


def cut_rows(config: Config, rows: Sequence[list[int]], first: int | None = None) -> list[list[int]]:
    """Cuts rows to `longest_read`.

    Args:
      first: the number of the first row, for a warning of each row that is cut; None warns of none.
    """
    longest = longest_read(config)
    for number, row in enumerate(rows, first or 0):
        if first is not None and len(row) > longest:
            log.warning('line %d: only %d of its %d pieces are read', number + 1, longest, len(row))
    return [row[:longest] for row in rows]


def row_batches(config: Config, dataset: Dataset, split: str, least: int = 0) -> RowBatches:
    """Lays out a split's examples, whose texts are cut to `longest_read` outside training."""
    examples, train, training = dataset.splits[split], config.train, split == 'train'
    if not training:
        examples = cut_with_warning(examples, longest_read(config, least), split)
    return RowBatches(examples, config.data, train.microbatches, train.seed, training)


def keep(folder: epath.Path, dataset: Dataset) -> None:
    """Copies all splits but train, unless they are very large, so that evaluations need no cache."""
    names = _files_to_keep(dataset.manifest)
    if sum((dataset.folder / name).stat().st_size for name in names) > _MOST:
        return
    folder.mkdir(exist_ok=True)
    for name in names:
        content = (dataset.folder / name).read_bytes()
        if not (folder / name).exists() or (folder / name).read_bytes() != content:
            files.write_bytes(folder / name, content)


def open_copy(folder: epath.Path, manifest: Manifest, codecs: Codecs) -> Dataset | None:
    """Opens the copy that `keep` made, or returns None if a file is missing or not the manifest's."""
    names = _files_to_keep(manifest)
    for name in names:
        file = folder / name
        if not file.exists():
            return None
        if files.sha256(file) != manifest['checksums'][name]:
            log.warning('%s is damaged: the corpus is used instead', file)
            return None
    load = lambda name, dtype: np.frombuffer((folder / name).read_bytes(), dtype)
    present = {name.partition('.')[0] for name in names}
    splits = {split: read_split(manifest, split, load) for split in manifest['splits'] if split in present}
    return Dataset(folder, codecs, splits, manifest)


def _files_to_keep(manifest: Manifest) -> list[str]:
    """Returns the files of a dataset that belong to a split other than train."""
    splits = {split for split in manifest['splits'] if split != 'train'}
    return [name for name in manifest['checksums'] if name.partition('.')[0] in splits]


def identity(paths: Mapping[str, epath.PathLike]) -> dict[str, dict[str, str]]:
    """Returns the name and hash of each field's file, for the record of an evaluation."""
    return {
        field: {'name': files.readable_name(epath.Path(path)), 'sha256': files.sha256(epath.Path(path))}
        for field, path in paths.items()
    }


def name_of(identity: dict[str, dict[str, str]]) -> str:
    """Names a set of files: the first file's stem, and eight digits of a hash of all contents and slices."""
    first, *_ = identity.values()
    slices = [''.join(name.partition('[')[1:]) for name in identity]
    digest = files.json_sha256(
        [file['sha256'] + part for file, part in zip(identity.values(), slices, strict=True)]
    )
    # `workdir.evaluation_name` keeps 80 bytes as they are.
    return f'{files.first_bytes(epath.Path(first["name"]).stem, 71)}-{digest[:8]}'
