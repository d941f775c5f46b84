"""File locks, each for one process at a time. The system always frees a lock when its process ends."""

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator

from transformer.files import Path

# Errors of file systems without locks; of EBADF those that refuse to lock a folder, as it cannot be written.
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF}
_PAUSE = 0.1  # seconds between two attempts


class Held(Exception):
    """Another process holds the lock."""


@contextlib.contextmanager
def exclusive(
    path: Path, wait: float | None = None, notice: Callable[[], object] | None = None
) -> Iterator[int | None]:
    """Locks a file, which is created if it is missing, or a folder, until the context ends.

    Args:
      wait: seconds to wait for another process to free the lock, or None for no limit.
      notice: called once if another process holds the lock.

    Yields:
      The descriptor of the locked file, or None where the file system has no locks. A child process that
      inherits the descriptor shares the lock.

    Raises:
      Held: another process still holds the lock after `wait` seconds.
      OSError: the file cannot be opened, or is a link.
    """
    if '://' in os.fspath(path):
        yield None
        return
    # The owner of a lock writes to its file, so a link would let others choose which file that is.
    how = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    try:
        handle = os.open(path, how, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            error.strerror = 'a lock cannot be a link; remove it'
        raise
    try:
        yield handle if _lock(handle, wait, notice) else None
    finally:
        os.close(handle)


def is_held(path: Path) -> bool:
    """Returns whether a process holds the lock of a file."""
    if not path.exists():
        return False
    with path.open('rb') as file:
        try:
            # A shared lock, so that two processes that only check do not disturb each other.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            return False


def _lock(handle: int, wait: float | None, notice: Callable[[], object] | None) -> bool:
    """Locks an open file, or returns False where the file system has no locks."""
    began = time.monotonic()
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if notice:
                    notice()
                    notice = None
            if wait is not None and time.monotonic() - began > wait:
                raise Held
            time.sleep(_PAUSE)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
