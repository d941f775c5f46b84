"""The cache of datasets: each is built once, verified when it is opened, and memory-mapped."""

import contextlib
import logging
import os
import pathlib
import platform
import shutil
import time
import uuid
from collections.abc import Mapping

import numpy as np
import sentencepiece

from transformer import files, locks
from transformer.config import ConfigError, Data
from transformer.data import build
from transformer.data import codec as codec_files
from transformer.data import manifest as manifests
from transformer.data.codec import Codecs
from transformer.data.dataset import Dataset, read_split
from transformer.data.fields import Reading, Tree
from transformer.data.sources import reader
from transformer.data.tokenizers import hugging_face
from transformer.data.tokenizers.base import BLANK, Tokenizer
from transformer.data.tokenizers.foreign import read_given
from transformer.progress import Progress, no_progress

FORMAT = 3  # the version of the layout of folders and of the code that fills them

# The manifest's entry for the hashes, by field, of tokenizers that were not learned from the training text;
# in earlier versions the hash of one for all fields.
GIVEN = 'given_tokenizer_sha256'

# The beginning of a piece that opens a constituent, in a tokenizer of trees.
_BRACKET = f'{BLANK}('
_STALE = 7 * 24 * 3600.0  # seconds without a change after which an unfinished folder is removed

log = logging.getLogger(__name__)


def prepare(
    data: Data,
    reading: Reading,
    cache: str | os.PathLike,
    progress: Progress = no_progress,
    *,
    download: bool = False,
    given: Codecs | None = None,
) -> Dataset:
    """Returns the dataset from the cache, or builds it if it is missing or damaged.

    The folder's name is a hash of all that determines its content: the options and fields of the reading, the
    content of the source files, a given tokenizer, and the versions of the code that wrote it. After an
    interruption, the learned tokenizer is kept and the splits are read again. Processes of one machine wait
    for each other. A folder appears only when it is complete.

    Args:
      cache: a local folder; the arrays are memory-mapped.
      progress: called with a stage, the units done and their total, while the dataset is built. Stages are
        'tokenizer' and the splits. Units are examples, but lines for a tokenizer of whole files; the
        tokenizer's last unit is the learning.
      download: download a missing dataset first.
      given: tokenizers by field, used for the reading's texts; the others are read from
        `data.tokenizer_model`, or learned from the training text.

    Raises:
      ConfigError: bad or too little data, or files that change meanwhile.
      OSError: the cache cannot be written.
    """
    if '://' in os.fspath(cache):
        raise ConfigError(f'{cache}: data is mapped into memory; set TRANSFORMER_CACHE to a local folder')
    reader.check(data, reading)
    if download:
        reader.READERS[data.source].prepare(data, reading)
    given = _given(data, reading, given or {})
    identity = _identity(data, reading, given)
    folder = pathlib.Path(cache) / files.json_sha256(identity)[:32]
    dataset = _open(folder, logging.DEBUG)
    if dataset:
        return dataset
    folder.parent.mkdir(parents=True, exist_ok=True)
    notice = lambda: log.warning('%s: waiting for another process, which prepares data', folder.parent)
    with locks.exclusive(folder.parent, notice=notice) as lock:
        dataset = _open(folder, logging.WARNING)
        return dataset or _build(data, reading, identity, folder, lock is not None, progress, given)


def _given(data: Data, reading: Reading, inherited: Codecs) -> dict[str, Tokenizer]:
    """Finds the tokenizers that need not be learned.

    Raises:
      ConfigError: the brackets of a tree would not be pieces of its tokenizer.
    """
    texts = reading.texts()
    tokenizers = codec_files.tokenizers(inherited)
    alone = [*tokenizers.values()][:1] if len({one.sha256 for one in tokenizers.values()}) == 1 else []
    # A run with one tokenizer brings it for every text.
    given = {name: one for name in texts for one in ([tokenizers[name]] if name in tokenizers else alone)}
    # The run's own copies are enough: the files can be gone.
    if data.tokenizer_model is not None and not given.keys() >= texts.keys():
        given = read_given(data, [*texts]) | given
    for name in [name for name, field in texts.items() if isinstance(field, Tree)]:
        pieces = given[name].pieces(range(given[name].size)) if name in given else [_BRACKET]
        if data.tokenizer == 'bytes' or not any(piece.startswith(_BRACKET) for piece in pieces):
            raise ConfigError(
                'data.tokenizer_model, data.tokenizer=bytes and tokenizers of other runs are for plain text; '
                'this task learns its own, in which every bracket is a piece'
            )
    return given


def _identity(data: Data, reading: Reading, given: Mapping[str, Tokenizer]) -> dict[str, object]:
    source = reader.READERS[data.source]
    versions = {'format': FORMAT, 'sentencepiece': sentencepiece.__version__, **source.versions()}
    if data.tokenizer == 'byte_bpe':
        versions['tokenizers'] = hugging_face.load_library().__version__
    return {
        **{name: getattr(data, name) for name in reading.options},
        'versions': versions,
        **source.facts(data, reading),
        'fields': {name: field.identity() for name, field in reading.fields.items()},
        **({GIVEN: {name: one.sha256 for name, one in given.items()}} if given else {}),
        'files': _files(data, reading),
    }


def _files(data: Data, reading: Reading) -> dict[str, list[dict[str, object]]]:
    source = reader.READERS[data.source]
    return {
        split: [origin._asdict() for origin in source.origins(data, reading, split)]
        for split in source.splits(reading)
    }


def _check_unchanged(data: Data, reading: Reading, identity: dict) -> None:
    """Reads the source files once more, and raises ConfigError if their hashes have changed."""
    # Generated data have no files, and large corpora in TFDS's own folder are read for their hashes once.
    if data.dir is None:
        return
    now = _files(data, reading)
    if changed := [split for split, origins in identity['files'].items() if now[split] != origins]:
        raise ConfigError(f'data.{changed[0]}: a file has changed while it was prepared; start again')


def _open(folder: pathlib.Path, level: int) -> Dataset | None:
    """Opens a cache folder, or returns None if it is missing or damaged. Damage is logged."""
    if not folder.exists():
        return None
    try:
        return _read(folder)
    except (RuntimeError, FileNotFoundError) as error:
        log.log(level, '%s: the cache is made again', error)
        return None


def _read(folder: pathlib.Path) -> Dataset:
    try:
        manifest = files.read_json(folder / manifests.FILE)
    except ValueError:
        manifest = None
    digest = manifest.pop('lock_sha256', None) if isinstance(manifest, dict) else None
    if not digest or digest != files.json_sha256(manifest):
        raise RuntimeError(f'{folder / manifests.FILE} is damaged')
    for name, digest in manifest['checksums'].items():
        if files.sha256(folder / name) != digest:
            raise RuntimeError(f'{folder / name} is damaged')
    load = lambda name, dtype: np.memmap(folder / name, dtype, mode='r')
    codecs = codec_files.read_from(folder, manifest)
    splits = {split: read_split(manifest, split, load) for split in manifest['splits']}
    return Dataset(folder, codecs, splits, manifest)


def _build(
    data: Data,
    reading: Reading,
    identity: dict,
    folder: pathlib.Path,
    locked: bool,
    progress: Progress,
    given: Codecs,
) -> Dataset:
    """Builds a folder under a temporary name and renames it.

    On a disk that machines share, each machine has its own unfinished folder, because a lock can work on one
    machine only. Without locks, each process has its own unfinished folder, which no other process continues.
    """
    suffix = '' if locked else f'.{uuid.uuid4().hex[:8]}'
    unfinished = folder.with_name(f'.{folder.name}.{platform.node()}{suffix}')
    _remove_stale(unfinished)
    try:
        unfinished.mkdir(exist_ok=True)
        # The manifest is written last. A folder that has it only lacks its name, unless power failed.
        if _open(unfinished, logging.DEBUG) is None:
            build.write(data, reading, identity, unfinished, progress, given)
        _check_unchanged(data, reading, identity)
        published = _publish(unfinished, folder)
    except BaseException as error:
        # The next call uses what an interruption leaves, but bad data stays bad.
        if isinstance(error, ConfigError) or not locked:
            shutil.rmtree(unfinished, ignore_errors=True)
        if isinstance(error, OSError) and error.filename is None and error.errno in files.FULL:
            error.filename = str(folder.parent)
        raise
    for split, entry in published.manifest['splits'].items():
        reader.READERS[data.source].warn(data, reading, split)
        if counts := {rule: drop['count'] for rule, drop in entry['dropped'].items()}:
            dropped, listed = manifests.drops_text(counts), published.folder / build.DROPS
            log.warning('data.%s: left out %s; they are listed in %s', split, dropped, listed)
    return published


def _remove_stale(unfinished: pathlib.Path) -> None:
    """Removes abandoned unfinished folders, except the one that is used next."""
    for path in unfinished.parent.glob('.*.*'):
        # Another machine can be removing it, too.
        with contextlib.suppress(FileNotFoundError):
            if path != unfinished and path.is_dir() and time.time() - path.stat().st_mtime > _STALE:
                shutil.rmtree(path, ignore_errors=True)


def _publish(unfinished: pathlib.Path, folder: pathlib.Path) -> Dataset:
    """Renames the finished folder, unless an undamaged folder has the name. A damaged one is removed."""
    if folder.exists() and not _open(folder, logging.DEBUG):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        unfinished.rename(folder)
    except OSError:
        # Another process can have been faster; then its folder has the name.
        if not folder.exists():
            raise
        shutil.rmtree(unfinished, ignore_errors=True)
    return _read(folder)
