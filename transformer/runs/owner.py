"""Ownership of work directories: only one process at a time can write to each."""

import contextlib
import datetime
import json
import os
import pathlib
import platform
from collections.abc import Iterator
from typing import NamedTuple

from absl import logging
from etils import epath

from transformer import files, locks, parallel
from transformer.config import ConfigError

LOCK = '.lock'


class Owner(NamedTuple):
    """A process that writes a work directory. `born` distinguishes it from a later process with its `pid`."""

    host: str
    pid: int
    since: str
    born: str

    def __str__(self) -> str:
        return f'process {self.pid} on {self.host}, since {self.since}'


@contextlib.contextmanager
def hold(folder: epath.Path) -> Iterator[None]:
    """Makes this process the only one that writes a work directory, until the context ends.

    The system's lock on the file `.lock` decides. It always ends with its process. The file also names the
    owner. If the file system has no locks, only this name decides: the owner is assumed to be alive unless
    it ran on this host and is gone. In a distributed training the first process is the owner.

    Raises:
      ConfigError: another process owns the work directory.
    """
    if not parallel.is_primary():
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / LOCK
    with _lock(file) as locked:
        before, now = _read(file), datetime.datetime.now().astimezone().isoformat(' ', 'seconds')
        ours = Owner(platform.node(), os.getpid(), now, _born(os.getpid()))
        if not locked:
            logging.warning('%s: no locks here; only this file tells others who writes', file)
        elif before and before.host != ours.host:
            logging.warning('%s: taken over from %s, which ended without notice', file, before)
        file.write_text(json.dumps(ours._asdict()) + '\n')
        files.remove_leftovers(folder)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                file.write_text('')


def check_free(folder: epath.Path) -> None:
    """Raises ConfigError if another process owns the work directory."""
    if parallel.is_primary() and (folder / LOCK).exists():
        with _lock(folder / LOCK):
            pass


@contextlib.contextmanager
def _lock(file: epath.Path) -> Iterator[bool]:
    """Locks a file. Yields False if the file system has no locks."""
    with contextlib.ExitStack() as stack:
        try:
            # Waits, because a process that only checks the lock holds it for an instant.
            locked = stack.enter_context(locks.exclusive(file, wait=2)) is not None
        except locks.Held:
            raise ConfigError(
                f'{_used_by(file, _read(file))}; wait for it, stop it, or choose another --workdir'
            ) from None
        owner = _read(file)
        if not locked and owner and _may_run(owner):
            raise ConfigError(
                f'{_used_by(file, owner)}; if that has ended, remove {file}; else choose another --workdir'
            )
        yield locked


def _used_by(file: epath.Path, owner: Owner | None) -> str:
    return f'{file.parent}: in use by {owner or "another process"}'


def _read(file: epath.Path) -> Owner | None:
    """Reads the owner that a file names, or returns None if it names none."""
    try:
        return Owner(**files.read_json(file, {'host': str, 'pid': files.SIZE, 'since': str, 'born': str}))
    except (OSError, ConfigError):
        return None


def _may_run(owner: Owner) -> bool:
    """Returns whether a process can still be running: True on another host, where this is unknown."""
    if owner.host != platform.node():
        return True
    return files.is_running(owner.pid) and _born(owner.pid) == owner.born


def _born(pid: int) -> str:
    """Returns when a process began, in system ticks, or '' if the system does not report it."""
    try:
        # The fields follow the program's name, which is in brackets and can contain blanks.
        return pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[19]
    except (OSError, IndexError):
        return ''
