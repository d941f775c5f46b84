"""One writer in a work directory at a time."""

import errno
import fcntl
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import threading
import time

import pytest
from etils import epath

from transformer import locks
from transformer.config import ConfigError
from transformer.runs import owner, workdir

ROOT = pathlib.Path(__file__).parents[2]
HOLD = """
import sys, time
from etils import epath
from transformer.runs import owner
with owner.hold(epath.Path(sys.argv[1])):
    print('held', flush=True)
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path):
    return epath.Path(tmp_path)


@pytest.fixture
def no_locks(monkeypatch):
    """As on a file system without locks."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, 'No locks available')

    monkeypatch.setattr(fcntl, 'flock', refuse)


def leave_owner(folder, **changes) -> None:
    """Leaves the lock file of an owner that could not clean up."""
    ours = {'host': platform.node(), 'pid': os.getpid(), 'since': '2017-06-12', 'born': 'never'}
    (folder / '.lock').write_text(json.dumps(ours | changes))


def test_a_second_process_is_refused_until_the_first_is_dead(folder):
    holder = subprocess.Popen([sys.executable, '-c', HOLD, str(folder)], cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b'held\n'
        for attempt in (lambda: owner.hold(folder).__enter__(), lambda: owner.check_free(folder)):
            with pytest.raises(ConfigError) as refused:
                attempt()
            said = str(refused.value)
            assert f'{folder}: in use by process {holder.pid} on {platform.node()}, since 2' in said
            assert '--workdir' in said
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert json.loads((folder / '.lock').read_text())['pid'] == holder.pid
        with owner.hold(folder):
            assert json.loads((folder / '.lock').read_text())['pid'] == os.getpid()
    finally:
        holder.kill()
        holder.communicate()
    assert (folder / '.lock').read_text() == ''
    owner.check_free(folder)


def test_what_another_host_left_is_taken_over_where_locks_hold(folder, caplog):
    leave_owner(folder, host='elsewhere', pid=7)
    with owner.hold(folder):
        assert 'taken over from process 7 on elsewhere' in caplog.text


def test_without_locks_the_name_decides(folder, no_locks, caplog):
    with owner.hold(folder):
        assert 'no locks here' in caplog.text
        with pytest.raises(
            ConfigError, match=rf'in use by process {os.getpid()} .*; if that has ended, remove'
        ):
            owner.check_free(folder)
    owner.check_free(folder)
    # This process's number, but of an earlier process; then a number that no process has.
    for left in ({}, {'pid': 2**22 + 1}):
        leave_owner(folder, **left)
        with owner.hold(folder):
            pass
    leave_owner(folder, host='elsewhere')
    with pytest.raises(ConfigError, match='on elsewhere, since 2017-06-12; if that has ended, remove'):
        owner.hold(folder).__enter__()
    (folder / '.lock').write_text('half')
    with owner.hold(folder):
        pass


def test_a_lock_is_no_link_to_a_file_of_others(folder, tmp_path_factory):
    file = tmp_path_factory.mktemp('others') / 'file'
    file.write_text('text')
    os.symlink(file, folder / '.lock')
    with pytest.raises(OSError, match='a lock cannot'), owner.hold(folder):
        pass
    assert file.read_text() == 'text'


def test_who_waits_is_told_once(folder):
    told = []
    notice = lambda: told.append('held')
    with locks.exclusive(folder / 'lock'), pytest.raises(locks.Held):
        locks.exclusive(folder / 'lock', wait=0.3, notice=notice).__enter__()
    assert told == ['held']


def test_a_lock_that_is_only_checked_refuses_no_owner(folder):
    held = threading.Event()

    def check() -> None:
        with locks.exclusive(folder / owner.LOCK):
            held.set()
            time.sleep(0.3)

    checking = threading.Thread(target=check)
    checking.start()
    held.wait()
    with owner.hold(folder):
        checking.join()


def add_scores(folder: str, name: str) -> None:
    for i in range(20):
        workdir.update_result(epath.Path(folder), lambda result: result | {f'{name}{i}': i})


def test_results_that_are_written_at_the_same_time_are_all_kept(folder):
    # A lock is of the open file, so threads exclude each other as processes do.
    writers = [threading.Thread(target=add_scores, args=(str(folder), name)) for name in 'ab']
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(workdir.read_result(folder)) == 40


def test_results_are_written_without_locks_too(folder, no_locks):
    add_scores(str(folder), 'a')
    assert len(workdir.read_result(folder)) == 20
