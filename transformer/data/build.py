"""What fills a folder of the cache: tokenizer, splits and lock file; after a kill it goes on."""

import hashlib
import io
import itertools
import json
import logging
import os
import pathlib
from collections.abc import Callable, Iterator

import numpy as np

from transformer.config import ConfigError, Data
from transformer.data import readers, tokenizer
from transformer.data.tokenizer import Tokenizer

LOCK = 'data.lock.json'
JOURNAL = 'journal.json'
MODEL = 'tokenizer.model'
SIDES = ('source', 'target')

_DROPS = 'drops.tsv'
_CHUNK = 20_000  # pairs that are tokenised at once
_REPORTED = 10_000  # pairs between two reports of what the tokenizer has read
_TRAINED_ON = 4_000_000  # sentences that the tokenizer learns from at most

Progress = Callable[[str, int, int], None]

log = logging.getLogger(__name__)


class Journal:
    """How much of each file of an unfinished folder counts, and how far its splits are read.

    Data is on the disk before the journal names it, and the journal is replaced as a whole: who is
    killed loses what came behind the last commit, and nothing else. Opening cuts that off.
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
        """Writes behind the end of a file, to the disk; it counts from the next commit on."""
        _write(self.folder / name, content, 'ab')
        self.sizes[name] = self.sizes.get(name, 0) + len(content)

    def commit(self) -> None:
        """Makes count what was written, and `splits` as they are."""
        state = {'sizes': self.sizes, 'splits': self.splits}
        replace(self.folder / JOURNAL, json.dumps(state).encode())


def _write(path: pathlib.Path, content: bytes, mode: str) -> None:
    with path.open(mode) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace(path: pathlib.Path, content: bytes) -> None:
    """Writes a file that at any moment is the old one or the new one."""
    written = path.with_name(f'{path.name}.new')
    _write(written, content, 'wb')
    written.replace(path)


def canonical(value: dict) -> bytes:
    """The bytes that a hash of a JSON object is taken of."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False).encode()


def sha256(path: pathlib.Path) -> str:
    """The hash of a file's content."""
    with path.open('rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


def is_complete(folder: pathlib.Path) -> bool:
    """Tell whether nothing is missing in a folder but its name."""
    return (folder / LOCK).exists() and not (folder / JOURNAL).exists()


def write(data: Data, identity: dict, folder: pathlib.Path, progress: Progress) -> None:
    """Fills a folder, or goes on where an earlier call was interrupted; the result is the same.

    Args:
      identity: what determines the content; the lock file begins with it.
      progress: as of `corpus.prepare`.

    Raises:
      ConfigError: bad or too little data.
    """
    journal = Journal(folder)
    pairs = {split: _count(data, split, files) for split, files in identity['files'].items()}
    if MODEL not in journal.sizes:
        journal.append(MODEL, _train_tokenizer(data, pairs['train'], progress))
        journal.commit()
    pieces = Tokenizer((folder / MODEL).read_bytes())
    dtype = np.dtype('<u2' if pieces.size <= 1 << 16 else '<i4')
    for split in identity['files']:
        _write_split(data, split, pieces, dtype, journal, pairs[split], progress)
    lock = {
        **identity,
        'tokenizer_sha256': pieces.sha256,
        'dtype': dtype.str,
        'splits': {split: _summary(journal, split, dtype) for split in identity['files']},
        'checksums': {name: sha256(folder / name) for name in sorted(journal.sizes)},
    }
    lock['lock_sha256'] = hashlib.sha256(canonical(lock)).hexdigest()
    replace(folder / LOCK, (json.dumps(lock, indent=2, ensure_ascii=False) + '\n').encode())
    (folder / JOURNAL).unlink()


def _count(data: Data, split: str, files: list[dict]) -> int:
    """The pairs of a split that are read; of text two files hold one side each."""
    lines = sum(file['lines'] for file in files) // (2 if data.source == 'text' else 1)
    return min(lines, data.train_pairs or lines) if split == 'train' else lines


def _train_tokenizer(data: Data, pairs: int, progress: Progress) -> bytes:
    """The model that both sides of the training pairs give, or of evenly spaced ones of too many.

    SentencePiece holds its sentences in memory. WMT's 9 million take 4.7 GiB; every third of them,
    as here, 1.6 GiB, or 2.9 GiB with five million different words.
    """
    every = max(-(-2 * pairs // _TRAINED_ON), 1)
    # What is read is counted; the last unit stands for learning from it.
    total = -(-pairs // every) + 1

    def sentences() -> Iterator[str]:
        everything = readers.sentence_pairs(data, 'train', readers.Report())
        for number, pair in enumerate(itertools.islice(everything, 0, None, every)):
            if number % _REPORTED == 0:
                progress('tokenizer', number, total)
            yield pair.source
            yield pair.target
        progress('tokenizer', total - 1, total)

    model = tokenizer.train(sentences(), data.pieces)
    progress('tokenizer', total, total)
    return model


def _write_split(
    data: Data,
    split: str,
    pieces: Tokenizer,
    dtype: np.dtype,
    journal: Journal,
    total: int,
    progress: Progress,
) -> None:
    """Tokenises what is left of a split, chunk by chunk."""
    state = journal.splits.setdefault(split, {'read': 0, 'counts': {}, 'first': {}, 'complete': False})
    if state['complete']:
        return
    report = readers.Report()
    pairs = readers.sentence_pairs(data, split, report)
    for _ in itertools.islice(pairs, state['read']):
        pass
    # From here on: what was dropped before is in the journal.
    report.counts, report.first = state['counts'], state['first']
    progress(split, state['read'], total)
    while not state['complete']:
        report.log = io.StringIO()
        chunk = list(itertools.islice(pairs, _CHUNK))
        ids = [pieces.encode_batch([pair[side] for pair in chunk]) for side in (0, 1)]
        if split == 'train':
            ids = _without_long(chunk, ids, data.max_len, report)
        for number, side in enumerate(SIDES):
            _append_tokens(journal, f'{split}.{side}', ids[number], dtype)
            if split != 'train':
                text = ''.join(f'{pair[number]}\n' for pair in chunk)
                journal.append(f'{split}.{side}.txt', text.encode())
        journal.append(_DROPS, report.log.getvalue().encode())
        state['read'] += len(chunk)
        state['complete'] = len(chunk) < _CHUNK
        journal.commit()
        progress(split, total if state['complete'] else state['read'], total)
    if not _pairs_written(journal, split):
        raise ConfigError(f'data.{split}: no pair to use; dropped {report.counts}')
    if report.counts:
        log.warning('data.%s: left out %s; drops.tsv lists them', split, report.counts)


def _without_long(
    chunk: list[readers.Pair], ids: list[list[list[int]]], longest: int, report: readers.Report
) -> list[list[list[int]]]:
    kept = []
    for index, (pair, *both) in enumerate(zip(chunk, *ids, strict=True)):
        long = [len(side) > longest for side in both]
        if any(long):
            report.drop('long', pair.files[long.index(True)], pair.line)
        else:
            kept.append(index)
    return [[side[index] for index in kept] for side in ids]


def _append_tokens(journal: Journal, name: str, ids: list[list[int]], dtype: np.dtype) -> None:
    written = journal.sizes.get(f'{name}.bin')
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    ends = np.cumsum(lengths) + (written or 0) // dtype.itemsize
    # The first chunk also says where the first sentence begins.
    offsets = np.concatenate([[0], ends]) if written is None else ends
    tokens = np.fromiter(itertools.chain.from_iterable(ids), dtype, int(lengths.sum()))
    journal.append(f'{name}.bin', tokens.tobytes())
    journal.append(f'{name}_offsets.bin', offsets.astype('<i8').tobytes())


def _pairs_written(journal: Journal, split: str) -> int:
    return journal.sizes[f'{split}.source_offsets.bin'] // 8 - 1


def _summary(journal: Journal, split: str, dtype: np.dtype) -> dict[str, object]:
    """What the lock file tells of a split."""
    state = journal.splits[split]
    tokens = {f'{side}_tokens': journal.sizes[f'{split}.{side}.bin'] // dtype.itemsize for side in SIDES}
    dropped = {
        rule: {'count': count, 'first': state['first'][rule]} for rule, count in state['counts'].items()
    }
    return {'pairs': _pairs_written(journal, split), **tokens, 'dropped': dropped}
