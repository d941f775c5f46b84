"""The pairs of every split as flat, memory-mapped arrays of pieces, made once and cached."""

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import json
import logging
import os
import pathlib
import platform
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence

import numpy as np
import sentencepiece
from jaxtyping import Int, Integer

from transformer.config import Config, ConfigError, Data
from transformer.data import build, readers
from transformer.data.build import LOCK, SIDES, Progress
from transformer.data.tokenizer import Tokenizer

FORMAT = 2  # of finished and unfinished folders, and of what makes them

_STALE = 7 * 24 * 3600.0  # seconds without a sign of life, after which an unfinished folder is removed

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
        sides = [self.folder / f'{split}.{side}.txt' for side in SIDES]
        source, target = (path.read_bytes().decode().split('\n')[:-1] for path in sides)
        return source, target


class _Damaged(OSError):
    """A file of the cache is not what the lock file says."""


def _silent(stage: str, done: int, total: int) -> None:
    del stage, done, total


def prepare(
    config: Config,
    cache: str | os.PathLike,
    splits: Sequence[str] | None = None,
    progress: Progress = _silent,
) -> Prepared:
    """The splits of the config's data, from the cache if they are there and whole, else made.

    The folder's name is a hash of what determines its content: the options, the content of the
    source files, and the versions of what wrote it. A damaged folder is made again; one that an
    interruption left unfinished is finished. Processes of one machine wait for each other; in any
    case a folder appears only when it is complete.

    Args:
      cache: a local folder; the arrays are memory-mapped.
      splits: all that the source has if none.
      progress: called with a stage, the units done and all of them, while something is made. Stages
        are 'tokenizer' and the splits; units are pairs, the tokenizer's last one is to learn from
        them.

    Raises:
      ConfigError: bad or too little data.
      OSError: the cache cannot be written.
    """
    data = config.data
    splits = tuple(splits or readers.splits(data))
    identity = _identity(data, {split: readers.origins(data, split) for split in splits})
    folder = pathlib.Path(cache) / hashlib.sha256(build.canonical(identity)).hexdigest()[:32]
    found = _open(folder, logging.DEBUG)
    if found:
        return found
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.parent) as alone:
        return _open(folder, logging.WARNING) or _build(data, identity, folder, alone, progress)


def _identity(data: Data, files: dict[str, list[readers.Origin]]) -> dict:
    versions = {'format': FORMAT, 'sentencepiece': sentencepiece.__version__}
    if data.source == 'grammar':
        versions['grammar'] = grammar.VERSION
    options = ('source', 'source_language', 'target_language', 'pieces', 'max_len', 'train_pairs')
    return {
        **{name: getattr(data, name) for name in options},
        'versions': versions,
        **readers.dataset(data),
        'files': {split: [origin._asdict() for origin in found] for split, found in files.items()},
    }


@contextlib.contextmanager
def _alone(folder: pathlib.Path) -> Iterator[bool]:
    """Waits until no other process of this machine is here; gives False where that cannot be known."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield _wait_for_lock(handle, folder)
    finally:
        os.close(handle)


def _wait_for_lock(handle: int, folder: pathlib.Path) -> bool:
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.warning('%s: waiting for another process, which prepares data', folder)
            fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:
        # Some network file systems cannot lock.
        return False
    return True


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
    if not digest or digest != hashlib.sha256(build.canonical(lock)).hexdigest():
        raise _Damaged(f'{folder / LOCK} is damaged')
    for name, digest in lock['checksums'].items():
        if build.sha256(folder / name) != digest:
            raise _Damaged(f'{folder / name} is damaged')
    return Prepared(
        folder=folder,
        tokenizer=Tokenizer((folder / build.MODEL).read_bytes()),
        splits={split: _map(folder, split, np.dtype(lock['dtype'])) for split in lock['splits']},
        lock=lock,
    )


def _map(folder: pathlib.Path, split: str, dtype: np.dtype) -> Corpus:
    arrays = {}
    for side in SIDES:
        arrays[side] = np.memmap(folder / f'{split}.{side}.bin', dtype, mode='r')
        offsets = np.memmap(folder / f'{split}.{side}_offsets.bin', '<i8', mode='r')
        arrays[f'{side}_offsets'] = offsets
    return Corpus(**arrays)


def _build(data: Data, identity: dict, folder: pathlib.Path, alone: bool, progress: Progress) -> Prepared:
    """Makes a folder, or finishes what an earlier process began.

    On a disk that machines share each has its own unfinished folder, as a lock may hold for one of
    them only. Where nothing can be locked each process has its own, which no other will finish.
    """
    unfinished = folder.with_name(f'.{folder.name}.{platform.node()}')
    if not alone:
        unfinished = unfinished.with_name(f'{unfinished.name}.{uuid.uuid4().hex[:8]}')
    _remove_stale(unfinished)
    try:
        unfinished.mkdir(exist_ok=True)
        if not build.is_complete(unfinished):
            build.write(data, identity, unfinished, progress)
        return _publish(unfinished, folder)
    except BaseException as error:
        # What an interruption leaves will be finished, but bad data stays bad.
        if isinstance(error, ConfigError) or not alone:
            shutil.rmtree(unfinished, ignore_errors=True)
        if isinstance(error, OSError):
            # A full disk is reported without a name.
            error.filename = error.filename or str(folder.parent)
        raise


def _remove_stale(unfinished: pathlib.Path) -> None:
    """Removes the unfinished folders that nobody came back for, other than the one to be finished."""
    for path in unfinished.parent.glob('.*.*'):
        # Another machine may remove it just now.
        with contextlib.suppress(FileNotFoundError):
            if path != unfinished and path.is_dir() and time.time() - path.stat().st_mtime > _STALE:
                shutil.rmtree(path, ignore_errors=True)


def _publish(unfinished: pathlib.Path, folder: pathlib.Path) -> Prepared:
    """Gives the finished folder its name, unless a whole one has it; a damaged one is removed."""
    if folder.exists() and not _open(folder, logging.DEBUG):
        damaged = unfinished.with_name(f'{unfinished.name}.damaged')
        folder.rename(damaged)
        shutil.rmtree(damaged, ignore_errors=True)
    try:
        unfinished.rename(folder)
    except OSError:
        # Another process may have been faster; then its folder is in the way.
        if not folder.exists():
            raise
        shutil.rmtree(unfinished, ignore_errors=True)
    return _read(folder)
