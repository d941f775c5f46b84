"""Files and folders that appear whole, and their remains after killed processes."""

import errno
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile

import pytest
from etils import epath

from transformer import files
from transformer.runs import owner

KILLED = """
import os, pathlib, signal, sys
from transformer import files
folder = pathlib.Path(sys.argv[1])
with files.replacing(folder / 'config.json') as file, files.new_folder(folder / 'imported') as unfinished:
    file.write(b'{')
    (unfinished / 'model').write_bytes(b'...')
    os.kill(os.getpid(), signal.SIGKILL)
"""


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def left(tmp_path) -> pathlib.Path:
    """Makes a folder with a file and a folder that a killed process did not complete."""
    done = subprocess.run([sys.executable, '-c', KILLED, tmp_path])
    assert done.returncode == -signal.SIGKILL and len(names(tmp_path)) == 2
    return tmp_path


def test_the_next_writer_of_a_file_removes_leftovers_of_it(left):
    [of_file, of_folder] = names(left)
    files.write_text(left / 'other.json', '')
    assert names(left) == [of_file, of_folder, 'other.json']
    files.write_text(left / 'config.json', '{}')
    assert names(left) == [of_folder, 'config.json', 'other.json']


def test_the_next_new_folder_removes_leftovers(left):
    with files.new_folder(left / 'another') as unfinished:
        assert names(left) == [unfinished.name]
    assert names(left) == ['another']


def test_the_next_owner_removes_leftovers(left):
    with owner.hold(epath.Path(left)):
        assert names(left) == ['.lock']


def test_unfinished_files_of_others_stay(left, monkeypatch):
    running = files.temporary_name(left / 'a').name.replace(str(os.getpid()), str(os.getppid()))
    others = [running, '.a.00000000.4194305', '.config.json.4194305', '.notes.2024']
    for name in others:
        (left / name).touch()
    files.remove_leftovers(left)
    assert names(left) == sorted(others)

    def refuse(*_):
        raise PermissionError

    # Another user's process.
    monkeypatch.setattr(os, 'kill', refuse)
    files.remove_leftovers(left)
    assert names(left) == sorted(others) and files.is_running(os.getppid())


def test_a_folder_of_an_earlier_process_with_this_number_goes(tmp_path):
    unfinished = files.temporary_name(tmp_path / 'imported')
    (unfinished / 'old').mkdir(parents=True)
    with files.new_folder(tmp_path / 'imported') as folder:
        assert names(folder) == []
    assert names(tmp_path) == ['imported']


@pytest.mark.parametrize(
    'make', [lambda path: OSError(f'{path}: too large'), lambda path: OSError(27, 'too large', str(path))]
)
def test_errors_name_the_final_folder(tmp_path, make):
    with pytest.raises(OSError) as error, files.new_folder(tmp_path / 'imported') as folder:
        raise make(folder / 'checkpoints')
    line = str(error.value)
    assert str(tmp_path / 'imported' / 'checkpoints') in line and folder.name not in line
    assert names(tmp_path) == []


def test_a_full_disk_names_the_new_folder(tmp_path):
    with pytest.raises(OSError) as caught, files.new_folder(tmp_path / 'imported'):
        raise OSError(errno.ENOSPC, 'full')
    assert caught.value.filename == str(tmp_path / 'imported') and names(tmp_path) == []


@pytest.mark.parametrize('error', [OSError('cannot reach the server'), OSError(errno.EISDIR, 'a folder')])
def test_errors_of_what_is_read_meanwhile_name_no_output(tmp_path, error):
    with pytest.raises(OSError) as caught, files.replacing(tmp_path / 'out.txt') as file:
        file.write(b'begun')
        raise error
    assert caught.value is error and error.filename is None
    assert names(tmp_path) == []


def test_a_name_that_is_too_long_is_the_users_own(tmp_path):
    name = 'a' * 250  # with more around it while it is unfinished
    with pytest.raises(OSError) as caught:
        files.write_bytes(tmp_path / name, b'')
    assert caught.value.filename == str(tmp_path / name) and names(tmp_path) == []


def test_short_names_of_any_bytes():
    assert files.short_name('\udcff.py') == '\udcff.py'
    long = files.short_name('\udcff' * 300)
    assert len(long) <= files.LONGEST_NAME and long != files.short_name('\udcfe' * 300)


def test_a_full_disk_names_the_file(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        for size in (2000, 1 << 20):  # less and more than the buffer, which is written at the end
            with pytest.raises(OSError) as caught:
                files.write_bytes(tmp_path / 'out.txt', bytes(size))
            assert caught.value.filename == str(tmp_path / 'out.txt')
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert names(tmp_path) == []


def test_a_link_and_the_current_folder_are_no_new_folders(tmp_path, monkeypatch):
    (tmp_path / 'empty').mkdir()
    (tmp_path / 'link').symlink_to(tmp_path / 'empty')
    (tmp_path / 'lost').symlink_to(tmp_path / 'nowhere')
    assert files.check_new(tmp_path / 'empty') == tmp_path / 'empty'
    monkeypatch.chdir(tmp_path / 'empty')
    for name in ('.', '../empty', '../link', '../lost', tmp_path / 'empty'):
        with pytest.raises(FileExistsError) as error:
            files.check_new(epath.Path(name))
        assert error.value.filename == str(name)


@pytest.mark.skipif(not os.path.isdir('/dev/shm'), reason='no disk in memory')
def test_files_in_memory_are_replaced():
    with tempfile.TemporaryDirectory(dir='/dev/shm') as folder:
        for text in ('a long first text', 'second'):
            files.write_text(epath.Path(folder) / 'file', text)
            assert pathlib.Path(folder, 'file').read_text() == text


def test_a_pipe_and_a_link_stay(tmp_path):
    pipe, link = epath.Path(tmp_path / 'pipe'), epath.Path(tmp_path / 'link')
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.write_text(pipe, 'answer')
    assert os.read(reader, 100) == b'answer' and pathlib.Path(pipe).is_fifo()
    os.close(reader)
    (tmp_path / 'file').write_text('old')
    os.symlink('file', link)
    files.write_text(link, 'new')
    assert os.readlink(link) == 'file' and (tmp_path / 'file').read_text() == 'new'
    assert names(tmp_path) == ['file', 'link', 'pipe']
    (tmp_path / 'file').chmod(0o604)
    files.write_text(link, 'new')
    assert (tmp_path / 'file').stat().st_mode & 0o777 == 0o604
    # As /dev/stdout leads to a file that other programs write, too.
    with (tmp_path / 'file').open('a') as shared:
        files.write_text(epath.Path(f'/proc/self/fd/{shared.fileno()}'), 'est')
    assert (tmp_path / 'file').read_text() == 'newest'
