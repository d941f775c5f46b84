"""Writes files whole or not at all, and hashes their content."""

import contextlib
import errno
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import shutil
from collections.abc import Iterator
from typing import BinaryIO

from etils import epath

Path = pathlib.Path | epath.Path
# In bytes. File systems allow 255, and programs make longer names from a folder's.
LONGEST_NAME = 200


def short_name(name: str) -> str:
    """Returns a file's name or, if it may be too long for a file system, its beginning and its hash."""
    if len(name.encode()) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f'{name.encode()[: LONGEST_NAME - 13].decode(errors="ignore")}-{digest}'


def temporary_name(path: Path) -> Path:
    """Returns the name of a file or folder until it is complete, which contains its host and process."""
    return path.with_name(f'.{path.name}.{_host()}.{os.getpid()}')


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Removes what processes of this host that are gone have not completed in a folder.

    Args:
      name: removes only what was to become this file; None removes all.
    """
    if '://' in os.fspath(folder) or not folder.is_dir():
        return
    for path in list(folder.iterdir()):
        match = re.fullmatch(rf'\.(.+)\.{_host()}\.(\d+)', path.name)
        if match and name in (None, match[1]) and not _is_running(int(match[2])):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _host() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True


def write_bytes(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Replaces a file in one step, as `replacing` does."""
    with replacing(path, durable=durable) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """Opens a file for writing whose content takes the place of `path` in one step, at the end.

    At any moment `path` holds the old content or the new; after an error, the old.

    Args:
      durable: whether to return only once the content is on the disk, not just in the system's memory.
    """
    if path.exists() and not path.is_file():
        # A device, such as /dev/stdout, cannot be replaced; writing to a folder raises an error.
        with path.open('wb') as file:
            yield file
        return
    remove_leftovers(path.parent, path.name)
    temporary = temporary_name(path)
    try:
        with temporary.open('wb') as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        # The error of a full disk names no file, and nobody knows the temporary one.
        if error.filename is None or str(error.filename) == str(temporary):
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def check_new(folder: Path) -> Path:
    """Returns a folder that is yet to be made; FileExistsError if there is one that is not empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(errno.EEXIST, 'exists already; choose another name', str(folder))
    return folder


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields a folder that gets its name at the end; after an error it is removed.

    The name must be free, or of an empty folder.
    """
    remove_leftovers(path.parent)
    unfinished = temporary_name(path)
    # An earlier process can have had the same number, as the first process of every container has.
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
    except OSError as error:
        error.filename = str(path)
        raise
    try:
        yield unfinished
        if path.exists():
            path.rmdir()
        unfinished.rename(path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Writes text in UTF-8, as `write_bytes` does."""
    write_bytes(path, text.encode())


def write_json(path: Path, content: object) -> None:
    """Writes indented JSON and a final newline, as `write_text` does."""
    write_text(path, json_text(content, indent=2) + '\n')


def json_text(content: object, indent: int | None = None) -> str:
    """Writes JSON text in which null stands for NaN and infinity, which the standard lacks."""
    finite = json.loads(json.dumps(content), parse_constant=lambda name: None)
    return json.dumps(finite, indent=indent, ensure_ascii=False)


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    with path.open('rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


def json_sha256(content: object) -> str:
    """The SHA-256 of a JSON value, in hexadecimal; the order of its keys does not matter."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def write_figure(path: Path, figure, **options: object) -> None:
    """Writes a matplotlib figure, whole or not at all, in the format that the file's ending names.

    Args:
      options: for matplotlib's savefig, which cannot write to the cloud itself.
    """
    image = io.BytesIO()
    figure.savefig(image, format=path.suffix.removeprefix('.'), **options)
    write_bytes(path, image.getvalue())
