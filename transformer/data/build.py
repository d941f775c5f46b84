"""Fills a folder of the cache: tokenizer, splits and lock file. A killed process is taken up again."""

import io
import itertools
import json
import logging
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import Int

from transformer import files
from transformer.config import ConfigError, Data
from transformer.data import tokenizer
from transformer.data.fields import Reading, Row
from transformer.data.manifest import left_out
from transformer.data.sources import reader
from transformer.data.sources import text as text_files
from transformer.data.tokenizer import AnyTokenizer

LOCK = 'data.lock.json'
JOURNAL = 'journal.json'
MODEL = 'tokenizer.model'

DROPS = 'drops.tsv'
# How many rows are tokenised at once: lines, or whole files.
_CHUNK, _FILES = 20_000, 16
_REPORTED = 10_000  # rows between two reports of what the tokenizer has read
_TRAINED_ON = 4_000_000  # the most sentences that the tokenizer learns from

Progress = Callable[[str, int, int], None]
Ids = Sequence[int] | np.ndarray

log = logging.getLogger(__name__)


class Journal:
    """Records which part of each file of an unfinished folder is valid, and how far its splits are read.

    Data is on the disk before the journal names it, and the journal is replaced as a whole, so a
    killed process loses only what it wrote after the last commit. Opening the journal cuts that off.
    """

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.sizes: dict[str, int] = {}
        self.splits: dict[str, dict] = {}
        try:
            state = json.loads((folder / JOURNAL).read_bytes())
        except (FileNotFoundError, ValueError):
            state = {'sizes': {}, 'splits': {}}
        sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
        if all(sizes.get(name, -1) >= size for name, size in state['sizes'].items()):
            self.sizes, self.splits = state['sizes'], state['splits']
        for name in sizes.keys() - {JOURNAL}:
            if name in self.sizes:
                os.truncate(folder / name, self.sizes[name])
            else:
                (folder / name).unlink()

    def append(self, name: str, content: bytes) -> None:
        """Adds to the end of a file, on the disk; the content is valid from the next commit on."""
        with (self.folder / name).open('ab') as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self.sizes[name] = self.sizes.get(name, 0) + len(content)

    def commit(self) -> None:
        """Makes valid what was appended, and saves `splits` as they are."""
        state = {'sizes': self.sizes, 'splits': self.splits}
        files.write_bytes(self.folder / JOURNAL, json.dumps(state).encode(), durable=True)


def is_complete(folder: pathlib.Path) -> bool:
    """Whether a folder only lacks its final name."""
    return (folder / LOCK).exists() and not (folder / JOURNAL).exists()


def write(
    data: Data,
    reading: Reading,
    identity: dict,
    folder: pathlib.Path,
    progress: Progress,
    given: AnyTokenizer | None = None,
) -> None:
    """Fills a folder, or goes on where an earlier call was interrupted; the result is the same.

    Args:
      identity: what determines the content; the lock file begins with it.
      progress, given: see `corpus.prepare`.

    Raises:
      ConfigError: bad or too little data.
    """
    journal = Journal(folder)
    if MODEL not in journal.sizes:
        _check_scored_splits(data, reading, identity['files'])
        learned = lambda: _learned(data, reading, identity['files']['train'], progress)
        journal.append(MODEL, (given or learned()).model)
        journal.commit()
    pieces = tokenizer.read((folder / MODEL).read_bytes())
    dtype = dtype_of(pieces)
    for split, origins in identity['files'].items():
        total = _number(data, reading, split, origins)
        _write_split(data, reading, split, pieces, journal, total, progress)
    lock = {
        **identity,
        'tokenizer_sha256': pieces.sha256,
        'dtype': dtype.str,
        'splits': {split: _summary(journal, reading, split, dtype) for split in identity['files']},
        'checksums': {name: files.sha256(folder / name) for name in sorted(journal.sizes)},
    }
    lock['lock_sha256'] = files.json_sha256(lock)
    content = json.dumps(lock, indent=2, ensure_ascii=False) + '\n'
    files.write_bytes(folder / LOCK, content.encode(), durable=True)
    (folder / JOURNAL).unlink()


def _check_scored_splits(data: Data, reading: Reading, origins: dict[str, list[dict]]) -> None:
    """Reads all splits but the training split, which takes long to prepare: bad text is found before.

    Raises:
      ConfigError: a file is empty, not UTF-8, or has fewer lines than its other side.
    """
    for split, files_read in origins.items():
        if split == 'train':
            continue
        for origin in files_read:
            if not origin['lines']:
                raise ConfigError(f'data.{split}: {origin["name"]} is empty')
        for _ in reader.rows(data, reading, split, reader.Report()):
            pass


def _number(data: Data, reading: Reading, split: str, origins: list[dict]) -> int:
    return reader.count(data, reading, split, [text_files.Origin(**origin) for origin in origins])


def _learned(data: Data, reading: Reading, origins: list[dict], progress: Progress) -> AnyTokenizer:
    """The tokenizer of all fields, or one for each, learned from its own texts."""
    if data.vocabulary == 'joint':
        return tokenizer.read(_tokenizer_model(data, reading, [*reading.fields], origins, progress))
    models = {field: _tokenizer_model(data, reading, [field], origins, progress) for field in reading.fields}
    return tokenizer.SeparateTokenizers({field: tokenizer.Tokenizer(m) for field, m in models.items()})


def _tokenizer_model(
    data: Data, reading: Reading, fields: list[str], origins: list[dict], progress: Progress
) -> bytes:
    """The model of bytes, or one learned from the training text, of evenly spaced rows where it is long.

    SentencePiece holds its sentences in memory. WMT's 9 million take 4.7 GiB; every third of them,
    as here, 1.6 GiB, or 2.9 GiB with five million different words.
    """
    if data.tokenizer == 'bytes':
        return tokenizer.BYTES
    if data.documents == 'files':
        number = sum(origin['lines'] for origin in origins[: data.train_pairs])
    else:
        number = _number(data, reading, 'train', origins)
    every = max(-(-len(fields) * number // _TRAINED_ON), 1)
    chosen = [field in fields for field in reading.fields]
    # Progress counts the rows read; the last unit stands for learning from them.
    total = -(-number // every) + 1

    def sentences() -> Iterator[str]:
        thinned = itertools.islice(_sentences(data, reading), 0, None, every)
        for index, texts in enumerate(thinned):
            if index % _REPORTED == 0:
                progress('tokenizer', index, total)
            # A line of a whole file stands alone.
            yield from itertools.compress(texts, chosen)
        progress('tokenizer', total - 1, total)

    model = tokenizer.train(sentences(), data.pieces)
    progress('tokenizer', total, total)
    return model


def _sentences(data: Data, reading: Reading) -> Iterator[tuple[str, ...]]:
    """The texts of each training row, or each line of whole files."""
    for row in reader.rows(data, reading, 'train', reader.Report()):
        if data.documents == 'files':
            for text in row.values.values():
                yield from ((line,) for line in text.removesuffix('\n').split('\n'))
        else:
            yield tuple(row.values.values())


def _write_split(
    data: Data,
    reading: Reading,
    split: str,
    pieces: AnyTokenizer,
    journal: Journal,
    total: int,
    progress: Progress,
) -> None:
    """Tokenises the part of a split that the journal does not have yet, chunk by chunk."""
    state = journal.splits.setdefault(split, {'read': 0, 'counts': {}, 'first': {}, 'complete': False})
    if state['complete']:
        return
    report = reader.Report()
    rows = reader.rows(data, reading, split, report)
    for _ in itertools.islice(rows, state['read']):
        pass
    # The journal holds what was dropped before; the report counts on from it.
    report.counts, report.first = state['counts'], state['first']
    # Rows cut from running text have room for an example of any length.
    bounded = split == 'train' and data.batching != 'running'
    size = _FILES if data.documents == 'files' else _CHUNK
    progress(split, state['read'], total)
    while not state['complete']:
        report.log = io.StringIO()
        chunk = list(itertools.islice(rows, size))
        ids = [
            encode(data, pieces.of(field), [row.values[field] for row in chunk])
            for number, field in enumerate(reading.fields)
        ]
        if bounded:
            ids = _without_long(chunk, ids, data.max_len, report)
        for number, field in enumerate(reading.fields):
            _append_tokens(journal, f'{split}.{field}', ids[number], dtype_of(pieces))
            if split != 'train':
                texts = [row.values[field] for row in chunk]
                _append_text(journal, f'{split}.{field}', texts, data.documents)
        journal.append(DROPS, report.log.getvalue().encode())
        state['read'] += len(chunk)
        state['complete'] = len(chunk) < size
        journal.commit()
        progress(split, total if state['complete'] else state['read'], total)
    if not _examples_written(journal, reading, split):
        raise ConfigError(f'data.{split}: no example is left; left out {left_out(report.counts)}')


def dtype_of(pieces: AnyTokenizer) -> np.dtype:
    return np.dtype('<u2' if pieces.size <= 1 << 16 else '<i4')


def encode(data: Data, pieces: AnyTokenizer, texts: list[str]) -> list[Ids]:
    if data.documents == 'files':
        return [pieces.encode_document(text) for text in texts]
    return pieces.encode_batch(texts)


def _without_long(
    chunk: list[Row], ids: list[list[Ids]], longest: int, report: reader.Report
) -> list[list[Ids]]:
    kept = []
    for index, (row, *fields) in enumerate(zip(chunk, *ids, strict=True)):
        long = [len(field) > longest for field in fields]
        if any(long):
            report.drop('long', [*row.files.values()][long.index(True)], row.line)
        else:
            kept.append(index)
    return [[field[index] for index in kept] for field in ids]


def _append_tokens(journal: Journal, name: str, ids: list[Ids], dtype: np.dtype) -> None:
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    _append_offsets(journal, f'{name}.bin', f'{name}_offsets.bin', lengths, dtype.itemsize)
    tokens = np.concatenate([np.empty(0, dtype), *(np.asarray(each, dtype) for each in ids)])
    journal.append(f'{name}.bin', tokens.tobytes())


def _append_text(journal: Journal, name: str, texts: list[str], documents: str) -> None:
    """Appends lines, or whole files together with the offsets at which they end."""
    if documents == 'lines':
        journal.append(f'{name}.txt', ''.join(f'{text}\n' for text in texts).encode())
        return
    encoded = [text.encode() for text in texts]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    _append_offsets(journal, f'{name}.txt', f'{name}_text_offsets.bin', lengths, 1)
    journal.append(f'{name}.txt', b''.join(encoded))


def _append_offsets(
    journal: Journal, content: str, offsets: str, lengths: Int[np.ndarray, ' n'], unit: int
) -> None:
    """Appends the offsets at which the next pieces of a file end; the first time also a 0.

    Args:
      content: the file, whose own new content is appended afterwards.
      lengths: of the new pieces, in units.
      unit: bytes of one unit.
    """
    written = journal.sizes.get(content)
    ends = np.cumsum(lengths) + (written or 0) // unit
    found = np.concatenate([[0], ends]) if written is None else ends
    journal.append(offsets, found.astype('<i8').tobytes())


def _examples_written(journal: Journal, reading: Reading, split: str) -> int:
    field, *_ = reading.fields
    return journal.sizes[f'{split}.{field}_offsets.bin'] // 8 - 1


def _summary(journal: Journal, reading: Reading, split: str, dtype: np.dtype) -> dict[str, object]:
    """What the lock file says of a split; `pairs` counts its examples, whatever the fields."""
    state = journal.splits[split]
    tokens = {
        f'{field}_tokens': journal.sizes[f'{split}.{field}.bin'] // dtype.itemsize for field in reading.fields
    }
    dropped = {
        rule: {'count': count, 'first': state['first'][rule]} for rule, count in state['counts'].items()
    }
    return {'pairs': _examples_written(journal, reading, split), **tokens, 'dropped': dropped}
