"""The examples of every split as flat, memory-mapped arrays of pieces, made once and cached."""

import contextlib
import json
import logging
import os
import pathlib
import platform
import shutil
import time
import uuid

import numpy as np
import sentencepiece

from transformer import files, locks
from transformer.config import ConfigError, Data
from transformer.data import build, tokenizer
from transformer.data.build import LOCK, Progress
from transformer.data.dataset import Dataset, Ragged, Split
from transformer.data.fields import Reading
from transformer.data.manifest import left_out
from transformer.data.sources import reader
from transformer.data.tokenizer import AnyTokenizer

FORMAT = 2  # the version of the layout of folders, finished or not, and of the code that fills them

# The entry of a lock file that names the tokenizer's hash where it was not learned from the training text.
GIVEN = 'given_tokenizer_sha256'

_STALE = 7 * 24 * 3600.0  # seconds without a change after which an unfinished folder is removed

log = logging.getLogger(__name__)


class _Damaged(OSError):
    """A file of the cache does not match the lock file."""


def _silent(stage: str, done: int, total: int) -> None:
    del stage, done, total


def prepare(
    data: Data,
    reading: Reading,
    cache: str | os.PathLike,
    progress: Progress = _silent,
    *,
    download: bool = False,
    given: AnyTokenizer | None = None,
) -> Dataset:
    """Returns the splits of the data, from the cache if they are there and undamaged, else made.

    The folder's name is a hash of what determines its content: the options of the reading, the content
    of the source files, the tokenizer if one is given, and the versions of what wrote it. A damaged
    folder is made again; one that an interruption left unfinished is finished. Processes of one machine
    wait for each other; in any case a folder appears only when it is complete.

    Args:
      cache: a local folder; the arrays are memory-mapped.
      progress: called with a stage, the units done and all of them, while something is made. Stages
        are 'tokenizer' and the splits. Units are examples; those of the tokenizer are lines where documents
        are files, and its last unit is the learning.
      download: whether a dataset that is missing is fetched first.
      given: the tokenizer; without one it is that of `data.tokenizer_model`, else learned from the
        training text.

    Raises:
      ConfigError: bad or too little data.
      OSError: the cache cannot be written.
    """
    if download:
        reader.prepare(data, reading)
    given = _given(data, reading, given)
    identity = _identity(data, reading, given, pathlib.Path(cache))
    folder = pathlib.Path(cache) / files.json_sha256(identity)[:32]
    found = _open(folder, reading, logging.DEBUG)
    if found:
        return found
    folder.parent.mkdir(parents=True, exist_ok=True)
    notice = lambda: log.warning('%s: waiting for another process, which prepares data', folder.parent)
    with locks.exclusive(folder.parent, notice=notice) as lock:
        found = _open(folder, reading, logging.WARNING)
        return found or _build(data, reading, identity, folder, lock is not None, progress, given)


def _given(data: Data, reading: Reading, given: AnyTokenizer | None) -> AnyTokenizer | None:
    """The tokenizer that is not learned; None if one is to be learned."""
    if data.tokenizer_model is None or given is not None:
        return given
    return tokenizer.read_given(data, [*reading.fields])


def _identity(
    data: Data, reading: Reading, given: AnyTokenizer | None, cache: pathlib.Path
) -> dict[str, object]:
    origins = {
        split: [origin._asdict() for origin in reader.origins(data, reading, split, cache)]
        for split in reader.splits(data, reading)
    }
    return {
        **{name: getattr(data, name) for name in reading.options},
        'versions': {
            'format': FORMAT,
            'sentencepiece': sentencepiece.__version__,
            **reader.versions(data),
        },
        **reader.facts(data, reading),
        **({GIVEN: given.sha256} if given else {}),
        'files': origins,
    }


def _open(folder: pathlib.Path, reading: Reading, level: int) -> Dataset | None:
    """The content of a cache folder, or None where there is none or it is damaged, which is logged."""
    if not folder.exists():
        return None
    try:
        return _read(folder, reading)
    except (_Damaged, FileNotFoundError) as error:
        log.log(level, '%s: the cache is made again', error)
        return None


def _read(folder: pathlib.Path, reading: Reading) -> Dataset:
    try:
        lock = json.loads((folder / LOCK).read_bytes())
    except ValueError:
        lock = None
    digest = lock.pop('lock_sha256', None) if isinstance(lock, dict) else None
    if not digest or digest != files.json_sha256(lock):
        raise _Damaged(f'{folder / LOCK} is damaged')
    for name, digest in lock['checksums'].items():
        if files.sha256(folder / name) != digest:
            raise _Damaged(f'{folder / name} is damaged')
    dtype = np.dtype(lock['dtype'])
    return Dataset(
        folder=folder,
        codec=tokenizer.read((folder / build.MODEL).read_bytes()),
        splits={split: _map(folder, reading, split, dtype) for split in lock['splits']},
        manifest=lock,
    )


def _map(folder: pathlib.Path, reading: Reading, split: str, dtype: np.dtype) -> Split:
    return Split(
        {
            field: Ragged(
                np.memmap(folder / f'{split}.{field}.bin', dtype, mode='r'),
                np.memmap(folder / f'{split}.{field}_offsets.bin', '<i8', mode='r'),
            )
            for field in reading.fields
        }
    )


def _build(
    data: Data,
    reading: Reading,
    identity: dict,
    folder: pathlib.Path,
    alone: bool,
    progress: Progress,
    given: AnyTokenizer | None,
) -> Dataset:
    """Makes a folder, or finishes what an earlier process began.

    On a disk that machines share, each machine has its own unfinished folder, because a lock may hold
    on one machine only. Where nothing can be locked, each process has its own, which no other will
    finish.
    """
    unfinished = folder.with_name(f'.{folder.name}.{platform.node()}')
    if not alone:
        unfinished = unfinished.with_name(f'{unfinished.name}.{uuid.uuid4().hex[:8]}')
    _remove_stale(unfinished)
    try:
        unfinished.mkdir(exist_ok=True)
        if not build.is_complete(unfinished):
            build.write(data, reading, identity, unfinished, progress, given)
        published = _publish(unfinished, folder, reading)
    except BaseException as error:
        # The next call finishes what an interruption leaves, but bad data stays bad.
        if isinstance(error, ConfigError) or not alone:
            shutil.rmtree(unfinished, ignore_errors=True)
        if isinstance(error, OSError):
            # The error of a full disk names no file.
            error.filename = error.filename or str(folder.parent)
        raise
    for split, made in published.manifest['splits'].items():
        if counts := {rule: drop['count'] for rule, drop in made['dropped'].items()}:
            dropped, listed = left_out(counts), published.folder / build.DROPS
            log.warning('data.%s: left out %s; they are listed in %s', split, dropped, listed)
    return published


def _remove_stale(unfinished: pathlib.Path) -> None:
    """Removes abandoned unfinished folders, except the one that is to be finished."""
    for path in unfinished.parent.glob('.*.*'):
        # Another machine may remove it just now.
        with contextlib.suppress(FileNotFoundError):
            if path != unfinished and path.is_dir() and time.time() - path.stat().st_mtime > _STALE:
                shutil.rmtree(path, ignore_errors=True)


def _publish(unfinished: pathlib.Path, folder: pathlib.Path, reading: Reading) -> Dataset:
    """Gives the finished folder its name, unless an undamaged folder has it; a damaged one is removed."""
    if folder.exists() and not _open(folder, reading, logging.DEBUG):
        damaged = unfinished.with_name(f'{unfinished.name}.damaged')
        folder.rename(damaged)
        shutil.rmtree(damaged, ignore_errors=True)
    try:
        unfinished.rename(folder)
    except OSError:
        # Another process may have been faster; then its folder has the name.
        if not folder.exists():
            raise
        shutil.rmtree(unfinished, ignore_errors=True)
    return _read(folder, reading)
