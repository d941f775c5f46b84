"""One writer at a time: which process a work directory belongs to while it is written."""

import contextlib
import datetime
import errno
import fcntl
import json
import os
import pathlib
import platform
import time
from collections.abc import Iterator
from typing import IO, NamedTuple

from absl import logging
from etils import epath

from transformer import parallel
from transformer.config import ConfigError

LOCK = '.lock'
# What file systems answer that have no locks.
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class Owner(NamedTuple):
    """A process that writes; `born` tells it from a later process of the same number."""

    host: str
    pid: int
    since: str
    born: str

    def __str__(self) -> str:
        return f'process {self.pid} on {self.host}, since {self.since}'


@contextlib.contextmanager
def owned(folder: epath.Path) -> Iterator[None]:
    """Within this context no other process owns the work directory.

    The system's lock on the file `.lock` decides, which ends with its process however that ends. The file
    also names the owner. Where the file system has no locks, that name alone decides: the owner is taken to
    be alive unless it ran on this host and is gone. Of a distributed training the first process owns.

    Raises:
      ConfigError: another process owns the directory.
      OSError: the file cannot be written.
    """
    if not parallel.is_primary():
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / LOCK
    with _held(file) as locked:
        before, ours = _read(file), _this_process()
        if not locked:
            logging.warning('%s: no locks here; only this file tells others who writes', file)
        elif before and before.host != ours.host:
            logging.warning('%s: taken over from %s, which ended without notice', file, before)
        file.write_text(json.dumps(ours._asdict()) + '\n')
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                file.write_text('')


def check_free(folder: epath.Path) -> None:
    """Raises ConfigError where another process owns the work directory."""
    if parallel.is_primary() and (folder / LOCK).exists():
        with _held(folder / LOCK):
            pass


@contextlib.contextmanager
def alone(file: epath.Path) -> Iterator[None]:
    """Waits until no other process is here with the same lock file; where nothing locks, does not wait."""
    with contextlib.ExitStack() as stack:
        if _is_local(file):
            stream = stack.enter_context(open(file, 'a'))
            with _without_locks():
                fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def try_lock(file: IO[str]) -> bool:
    """Locks a file, unless another process holds its lock. Returns whether it is locked now.

    A process that only looks holds the lock for an instant, so this waits a moment.

    Raises:
      OSError: the file system has no locks.
    """
    end = time.monotonic() + 2
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(0.1)


@contextlib.contextmanager
def _held(file: epath.Path) -> Iterator[bool]:
    """Holds the lock of a file; yields False where the file system has none."""
    with contextlib.ExitStack() as stack:
        locked = None
        if _is_local(file):
            stream = stack.enter_context(open(file, 'a'))
            with _without_locks():
                locked = try_lock(stream)
        owner = _read(file)
        if locked is False:
            raise ConfigError(f'{_used_by(file, owner)}; wait for it, stop it, or choose another --workdir')
        if locked is None and owner and _may_run(owner):
            raise ConfigError(
                f'{_used_by(file, owner)}; if that has ended, remove {file}; else choose another --workdir'
            )
        yield bool(locked)


@contextlib.contextmanager
def _without_locks() -> Iterator[None]:
    """Within this context it is no error that a file system has no locks."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _is_local(file: epath.Path) -> bool:
    return '://' not in os.fspath(file)


def _used_by(file: epath.Path, owner: Owner | None) -> str:
    return f'{file.parent}: in use by {owner or "another process"}'


def _read(file: epath.Path) -> Owner | None:
    """The owner that a file names, if any."""
    try:
        return Owner(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _this_process() -> Owner:
    now = datetime.datetime.now().astimezone().isoformat(' ', 'seconds')
    return Owner(platform.node(), os.getpid(), now, _born(os.getpid()))


def _may_run(owner: Owner) -> bool:
    """Whether a process may still run: of another host nothing is known."""
    if owner.host != platform.node():
        return True
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # Another user's.
        pass
    return _born(owner.pid) == owner.born


def _born(pid: int) -> str:
    """When a process began, in the system's ticks; empty where the system does not tell."""
    try:
        # After the name of the program, which stands in brackets and may hold blanks.
        return pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[19]
    except (OSError, IndexError):
        return ''
