"""Data without a corpus: the copy of dev and test that a work directory keeps, and texts in given files."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence

import numpy as np
from etils import epath

from transformer import files
from transformer.config import ConfigError, Data
from transformer.data import build
from transformer.data.dataset import Dataset, Ragged, Split
from transformer.data.rows import spans
from transformer.data.sources import text
from transformer.data.tokenizer import AnyTokenizer

SPLIT = 'given'  # the split that given texts are

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, eq=False)
class Given(Dataset):
    """Texts that were given, as the one split `SPLIT`."""

    given: Mapping[str, Sequence[str]]
    contents: Mapping[str, bytes]

    def texts(self, split: str) -> dict[str, list[str]]:
        """The texts of every field."""
        del split
        return {field: list(texts) for field, texts in self.given.items()}

    def raw(self, split: str, field: str) -> bytes:
        """The text of a field: its lines, each with a newline, or its file."""
        del split
        return self.contents[field]


def read(paths: Mapping[str, epath.PathLike], data: Data, tokenizer: AnyTokenizer) -> Given:
    """The texts of a file for each field, in pieces; in several files the same line is one example.

    Only a newline ends a line. A byte order mark at the beginning and a carriage return before a newline
    are no part of the text.

    Raises:
      ConfigError: a file is empty, damaged or not UTF-8, or the files differ in their number of lines.
      OSError: a file cannot be read.
    """
    found, contents = {}, {}
    for field, path in paths.items():
        path = epath.Path(path)
        if data.documents == 'files':
            found[field] = [text.whole(path)]
            contents[field] = found[field][0].encode()
        else:
            found[field] = list(text.lines(path))
            contents[field] = ''.join(f'{line}\n' for line in found[field]).encode()
        if not contents[field]:
            raise ConfigError(f'{path}: the file is empty')
    counts = {str(paths[field]): len(texts) for field, texts in found.items()}
    if len(set(counts.values())) > 1:
        raise ConfigError(', '.join(f'{path} has {count} lines' for path, count in counts.items()))
    fields = {
        field: _field(build.encode(data, tokenizer.of(field), list(texts)), tokenizer)
        for field, texts in found.items()
    }
    folder = epath.Path(next(iter(paths.values()))).parent
    return Given(folder, tokenizer, {SPLIT: Split(fields)}, {}, found, contents)


def _field(ids: Sequence[build.Ids], tokenizer: AnyTokenizer) -> Ragged:
    dtype = build.dtype_of(tokenizer)
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    tokens = np.concatenate([np.empty(0, dtype), *(np.asarray(each, dtype) for each in ids)])
    return Ragged(tokens, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


def cut(corpus: Split, longest: int) -> tuple[Split, int]:
    """The examples with at most the first `longest` pieces of each field, and how many were longer."""
    fields = {}
    long = np.zeros(len(corpus), bool)
    for name, field in corpus.fields.items():
        long |= field.lengths > longest
        lengths = np.minimum(field.lengths, longest)
        tokens = field.tokens[spans(np.asarray(field.offsets[:-1]), lengths)]
        fields[name] = Ragged(tokens, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    return (Split(fields), int(long.sum())) if long.any() else (corpus, 0)


def cut_and_told(corpus: Split, longest: int, split: str) -> Split:
    """As `cut`; a warning says of how many examples of a split the loss is not whole."""
    found, number = cut(corpus, longest)
    if number:
        log.warning(
            '%s: the loss is of only the first %d pieces of %d very long lines', split, longest, number
        )
    return found


def keep(folder: epath.Path, dataset: Dataset) -> None:
    """Copies the text and the pieces of every split but train, so that evaluations need no corpus.

    Args:
      folder: of the copy.
    """
    folder.mkdir(exist_ok=True)
    for name in _kept(dataset.manifest):
        content = (dataset.folder / name).read_bytes()
        if not (folder / name).exists() or (folder / name).read_bytes() != content:
            files.write_bytes(folder / name, content)


def kept(folder: epath.Path, lock: dict, tokenizer: AnyTokenizer) -> Dataset | None:
    """What `keep` copied; None where a file is missing or not what the lock file says."""
    for name in _kept(lock):
        file = folder / name
        if not file.exists():
            return None
        if files.sha256(file) != lock['checksums'][name]:
            log.warning('%s is damaged: the corpus is used instead', file)
            return None
    splits: dict[str, dict[str, Ragged]] = {}
    for name in _kept(lock):
        split, _, field = name.removesuffix('_offsets.bin').partition('.')
        if name.endswith('_offsets.bin') and not field.endswith('_text'):
            splits.setdefault(split, {})[field] = Ragged(
                np.frombuffer((folder / f'{split}.{field}.bin').read_bytes(), np.dtype(lock['dtype'])),
                np.frombuffer((folder / name).read_bytes(), '<i8'),
            )
    order = [split for split in lock['splits'] if split in splits]
    return Dataset(folder, tokenizer, {split: Split(splits[split]) for split in order}, lock)


def _kept(lock: dict) -> list[str]:
    """The files of a corpus that belong to a split other than train."""
    splits = {split for split in lock['splits'] if split != 'train'}
    return [name for name in lock['checksums'] if name.partition('.')[0] in splits]


def identity(paths: Mapping[str, epath.PathLike]) -> dict[str, dict[str, str]]:
    """The name and the hash of the file of each field, as an evaluation of them is recorded."""
    return {
        field: {'name': epath.Path(path).name, 'sha256': files.sha256(epath.Path(path))}
        for field, path in paths.items()
    }


def name_of(identity: dict[str, dict[str, str]]) -> str:
    """The first file's name without its ending, and eight digits that tell other contents apart."""
    first, *_ = identity.values()
    digest = files.json_sha256([file['sha256'] for file in identity.values()])
    # `workdir.evaluation_name` keeps 80 characters of this.
    return f'{epath.Path(first["name"]).stem[:71]}-{digest[:8]}'
