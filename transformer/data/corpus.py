"""The pairs of every split as flat, memory-mapped arrays of pieces, made once and cached."""

import array
import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import itertools
import json
import logging
import os
import pathlib
import shutil
import uuid
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np
import sentencepiece
from jaxtyping import Int, Integer

from transformer.config import Config, ConfigError, Data
from transformer.data import grammar, sources, tokenizer
from transformer.data.tokenizer import Tokenizer

FORMAT = 1
LOCK = 'data.lock.json'

_CHUNK = 20_000  # pairs that are tokenised at once
_TRAINED_ON = 10_000_000  # sentences that the tokenizer learns from at most
_SIDES = ('source', 'target')

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """One split in pieces; source i is `source[source_offsets[i]:source_offsets[i + 1]]`."""

    source: Integer[np.ndarray, ' source_tokens']
    target: Integer[np.ndarray, ' target_tokens']
    source_offsets: Int[np.ndarray, ' pairs_and_1']
    target_offsets: Int[np.ndarray, ' pairs_and_1']

    def __len__(self) -> int:
        return len(self.source_offsets) - 1

    @functools.cached_property
    def source_lengths(self) -> Int[np.ndarray, ' pairs']:
        """Pieces of each source, EOS counted."""
        return np.diff(self.source_offsets)

    @functools.cached_property
    def target_lengths(self) -> Int[np.ndarray, ' pairs']:
        """Pieces of each target, EOS counted."""
        return np.diff(self.target_offsets)

    def pair(self, i: int) -> tuple[Integer[np.ndarray, ' S'], Integer[np.ndarray, ' T']]:
        """The pieces of source and target of pair i, both with EOS."""
        return (
            self.source[self.source_offsets[i] : self.source_offsets[i + 1]],
            self.target[self.target_offsets[i] : self.target_offsets[i + 1]],
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """What a run reads of its data: the tokenizer, the splits and the lock file's content."""

    folder: pathlib.Path
    tokenizer: Tokenizer
    splits: dict[str, Corpus]
    lock: dict

    def texts(self, split: str) -> tuple[list[str], list[str]]:
        """The raw sources and references of dev, test or pronoun, as they came."""
        sides = [self.folder / f'{split}.{side}.txt' for side in _SIDES]
        source, target = (path.read_bytes().decode().split('\n')[:-1] for path in sides)
        return source, target


class _Damaged(OSError):
    """A file of the cache is not what the lock file says."""


def prepare(config: Config, cache: str | os.PathLike, splits: Sequence[str] | None = None) -> Prepared:
    """The splits of the config's data, from the cache if they are there and whole, else made.

    The folder's name is a hash of what determines its content: the options, the content of the
    source files, and the versions of what wrote it. A damaged folder is made again. Processes of
    one machine wait for each other; in any case a folder appears only when it is complete.

    Args:
      cache: a local folder; the arrays are memory-mapped.
      splits: all that the source has if none.

    Raises:
      ConfigError: bad or too little data.
      OSError: the cache cannot be written.
    """
    data = config.data
    splits = tuple(splits or sources.splits(data))
    identity = _identity(data, {split: sources.origins(data, split) for split in splits})
    folder = pathlib.Path(cache) / hashlib.sha256(_canonical(identity)).hexdigest()[:32]
    found = _open(folder, logging.DEBUG)
    if found:
        return found
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.parent):
        return _open(folder, logging.WARNING) or _build(data, identity, folder)


def _identity(data: Data, files: dict[str, list[sources.Origin]]) -> dict:
    versions = {'format': FORMAT, 'sentencepiece': sentencepiece.__version__}
    if data.source == 'grammar':
        versions['grammar'] = grammar.VERSION
    options = ('source', 'source_language', 'target_language', 'pieces', 'max_len')
    return {
        **{name: getattr(data, name) for name in options},
        'versions': versions,
        **sources.dataset(data),
        'files': {split: [origin._asdict() for origin in found] for split, found in files.items()},
    }


def _canonical(value: dict) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False).encode()


@contextlib.contextmanager
def _alone(folder: pathlib.Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        # Some network file systems cannot lock; then the work is done twice, and once for nothing.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _open(folder: pathlib.Path, level: int) -> Prepared | None:
    """The content of a cache folder; None where there is none, or where damage is logged."""
    if not folder.exists():
        return None
    try:
        return _read(folder)
    except (_Damaged, FileNotFoundError) as error:
        log.log(level, '%s: the cache is made again', error)
        return None


def _read(folder: pathlib.Path) -> Prepared:
    try:
        lock = json.loads((folder / LOCK).read_bytes())
    except ValueError:
        lock = None
    digest = lock.pop('lock_sha256', None) if isinstance(lock, dict) else None
    if not digest or digest != hashlib.sha256(_canonical(lock)).hexdigest():
        raise _Damaged(f'{folder / LOCK} is damaged')
    for name, digest in lock['checksums'].items():
        if _sha256(folder / name) != digest:
            raise _Damaged(f'{folder / name} is damaged')
    return Prepared(
        folder=folder,
        tokenizer=Tokenizer((folder / 'tokenizer.model').read_bytes()),
        splits={split: _map(folder, split, np.dtype(lock['dtype'])) for split in lock['splits']},
        lock=lock,
    )


def _map(folder: pathlib.Path, split: str, dtype: np.dtype) -> Corpus:
    arrays = {}
    for side in _SIDES:
        arrays[side] = np.memmap(folder / f'{split}.{side}.bin', dtype, mode='r')
        offsets = np.memmap(folder / f'{split}.{side}_offsets.bin', '<i8', mode='r')
        arrays[f'{side}_offsets'] = offsets
    return Corpus(**arrays)


def _sha256(path: pathlib.Path) -> str:
    with path.open('rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


def _build(data: Data, identity: dict, folder: pathlib.Path) -> Prepared:
    unfinished = folder.with_name(f'.{folder.name}.{uuid.uuid4().hex[:8]}')
    try:
        unfinished.mkdir()
        _write(data, identity, unfinished)
        return _publish(unfinished, folder)
    except OSError as error:
        # A full disk is reported without a name.
        error.filename = error.filename or str(folder.parent)
        raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _publish(unfinished: pathlib.Path, folder: pathlib.Path) -> Prepared:
    """Renames the finished folder, unless a whole one came first or a damaged one is in its way."""
    if folder.exists():
        with contextlib.suppress(_Damaged, FileNotFoundError):
            return _read(folder)
        damaged = unfinished.with_name(f'{unfinished.name}.damaged')
        folder.rename(damaged)
        shutil.rmtree(damaged, ignore_errors=True)
    try:
        unfinished.rename(folder)
    except OSError:
        # Another process may have been faster; then its folder is in the way.
        if not folder.exists():
            raise
    return _read(folder)


def _write(data: Data, identity: dict, folder: pathlib.Path) -> None:
    """Fills a folder: tokenizer, splits, list of dropped pairs, lock file."""
    model = tokenizer.train(_sentences(data, identity['files']['train']), data.pieces)
    (folder / 'tokenizer.model').write_bytes(model)
    pieces = Tokenizer(model)
    dtype = np.dtype('<u2' if pieces.size <= 1 << 16 else '<i4')
    lock = {
        **identity,
        'tokenizer_sha256': pieces.sha256,
        'dtype': dtype.str,
        'splits': {},
    }
    with (folder / 'drops.tsv').open('w', encoding='utf-8') as drops:
        for split in identity['files']:
            report = sources.Report(drops)
            counts = _write_split(data, split, pieces, dtype, folder, report)
            if not counts['pairs']:
                raise ConfigError(f'data.{split}: no pair to use; dropped {report.counts}')
            if report.counts:
                log.warning('data.%s: left out %s; drops.tsv lists them', split, report.counts)
            dropped = {
                rule: {'count': count, 'first': report.first[rule]} for rule, count in report.counts.items()
            }
            lock['splits'][split] = {**counts, 'dropped': dropped}
    lock['checksums'] = {path.name: _sha256(path) for path in sorted(folder.iterdir())}
    lock['lock_sha256'] = hashlib.sha256(_canonical(lock)).hexdigest()
    (folder / LOCK).write_text(json.dumps(lock, indent=2, ensure_ascii=False) + '\n', 'utf-8')


def _sentences(data: Data, files: list[dict]) -> Iterator[str]:
    """Both sides of the training pairs, or of evenly spaced ones where there are too many."""
    sentences = sum(file['lines'] for file in files) * (1 if data.source == 'text' else 2)
    every = -(-sentences // _TRAINED_ON)
    pairs = sources.sentence_pairs(data, 'train', sources.Report())
    for pair in itertools.islice(pairs, 0, None, max(every, 1)):
        yield pair.source
        yield pair.target


def _write_split(
    data: Data,
    split: str,
    pieces: Tokenizer,
    dtype: np.dtype,
    folder: pathlib.Path,
    report: sources.Report,
) -> dict[str, int]:
    """Tokenises a split into its files; returns the numbers of pairs and tokens."""
    pairs = sources.sentence_pairs(data, split, report)
    lengths = [array.array('q'), array.array('q')]
    with contextlib.ExitStack() as stack:
        bins, texts = (
            [stack.enter_context((folder / f'{split}.{side}.{end}').open('wb')) for side in _SIDES]
            if end == 'bin' or split != 'train'
            else []
            for end in ('bin', 'txt')
        )
        while chunk := list(itertools.islice(pairs, _CHUNK)):
            ids = [pieces.encode_batch([pair[side] for pair in chunk]) for side in (0, 1)]
            if split == 'train':
                ids = _without_long(chunk, ids, data.max_len, report)
            for side, file in enumerate(bins):
                lengths[side].extend(map(len, ids[side]))
                _write_tokens(file, ids[side], dtype)
            for side, file in enumerate(texts):
                file.writelines(pair[side].encode() + b'\n' for pair in chunk)
    for name, values in zip(_SIDES, lengths, strict=True):
        offsets = np.cumsum([0, *values], dtype='<i8')
        offsets.tofile(folder / f'{split}.{name}_offsets.bin')
    tokens = {f'{name}_tokens': sum(values) for name, values in zip(_SIDES, lengths, strict=True)}
    return {'pairs': len(lengths[0]), **tokens}


def _without_long(
    chunk: list[sources.Pair], ids: list[list[list[int]]], longest: int, report: sources.Report
) -> list[list[list[int]]]:
    kept = []
    for index, (pair, *both) in enumerate(zip(chunk, *ids, strict=True)):
        long = [len(side) > longest for side in both]
        if any(long):
            report.drop('long', pair.files[long.index(True)], pair.line)
        else:
            kept.append(index)
    return [[side[index] for index in kept] for side in ids]


def _write_tokens(file: BinaryIO, ids: list[list[int]], dtype: np.dtype) -> None:
    total = sum(map(len, ids))
    file.write(np.fromiter(itertools.chain.from_iterable(ids), dtype, total).tobytes())
