"""Writes files whole or not at all, hashes their content, and reads and checks JSON."""

import contextlib
import errno
import hashlib
import io
import json
import math
import os
import pathlib
import platform
import re
import shutil
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO, TextIO

from etils import epath

from transformer.errors import ConfigError

Path = pathlib.Path | epath.Path
# In bytes. File systems allow 255, and programs append to a folder's name.
LONGEST_NAME = 200
SIZE = range(1, 1 << 31)  # the shape of a size or a count of something that exists, see `check_shape`
COUNT = range(1 << 53)  # the shape of any other count
# The errors of a full disk, a used quota and a largest size, which name no file.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DEEPEST = 100  # levels of JSON, far below Python's limit of recursion
_TYPES = {
    dict: 'an object', list: 'a list', str: 'a text', bool: 'true or false', float: 'a number',
    int: 'a whole number', object: 'a value', type(None): 'null',
}  # fmt: skip


def is_utf8(text: str) -> bool:
    """Returns whether UTF-8 can encode a text: not lone surrogates, as in file names of other encodings."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def readable_name(path: Path) -> str:
    r"""Returns the last part of a path, with bytes that are not UTF-8 written as \xff."""
    return os.fsencode(path.name).decode(errors='backslashreplace')


def short_name(name: str) -> str:
    """Returns a file's name or, if it can be too long for a file system, its beginning and its hash."""
    content = os.fsencode(name)
    if len(content) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(content).hexdigest()[:12]
    return f'{content[: LONGEST_NAME - 13].decode(errors="ignore")}-{digest}'


def temporary_name(path: Path) -> Path:
    """Returns the temporary name, with host and process, of a file or folder until it is complete."""
    return path.with_name(f'.{path.name}.{_host()}.{os.getpid()}')


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Removes a folder's incomplete files and folders, left by processes of this host that are gone.

    Args:
      name: the final name of the only file or folder to remove, or None for all.
    """
    if '://' in os.fspath(folder) or not folder.is_dir():
        return
    for path in list(folder.iterdir()):
        match = re.fullmatch(rf'\.(.+)\.{_host()}\.(\d+)', path.name)
        if match and name in (None, match[1]) and not is_running(int(match[2])):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _host() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def is_running(process: int) -> bool:
    """Returns whether a process of this host, of any user, is running."""
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
def naming(output: BinaryIO | TextIO | Path) -> Iterator[None]:
    """Names an output in the errors of writing to it, since the error of a full disk names no file."""
    try:
        yield
    except OSError as error:
        is_path = isinstance(output, os.PathLike)
        error.filename = error.filename or (os.fspath(output) if is_path else getattr(output, 'name', None))
        raise


@contextlib.contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """Opens a file for writing, which replaces the file `path` in one step, at the end.

    At any moment `path` holds the old content or the new, and after an error the old. A link stays, and the
    file to which it leads is replaced. Permissions stay.

    Args:
      durable: whether to return only once the content is on the disk, not just in the system's memory.
    """
    local = '://' not in os.fspath(path)
    path = pathlib.Path(path) if local else path  # epath takes devices for files
    # The files of /dev/shm are ordinary ones, in memory.
    is_opened = local and re.match('/dev/(?!shm/)|/proc/', os.path.abspath(path))
    if path.exists() and (is_opened or not path.is_file()):
        # A device or a pipe cannot be replaced, and /dev/stdout can lead to a file that others write, too.
        # Writing to a folder raises an error.
        with path.open('ab' if is_opened else 'wb') as file:
            yield file
        return
    path = pathlib.Path(os.path.realpath(path)) if local else path
    remove_leftovers(path.parent, path.name)
    temporary = temporary_name(path)
    try:
        with temporary.open('wb') as file:
            if local:
                with contextlib.suppress(OSError):  # a new file, or a file system without permissions
                    os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        # The caller can read other files meanwhile. Users do not know the temporary file.
        if (error.filename is None and error.errno in FULL) or str(error.filename) == str(temporary):
            error.filename = str(path)
        raise
    finally:
        # A parent that is a file has been reported already.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def check_new(folder: Path) -> Path:
    """Returns the path of a new or empty folder, or raises FileExistsError if something is there."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(errno.EEXIST, 'exists already; choose another name', str(folder))
    # Neither can be replaced by the finished folder.
    if os.path.islink(folder) or os.path.realpath(folder) == os.getcwd():
        raise FileExistsError(
            errno.EEXIST, 'is a link or the current folder; choose another name', str(folder)
        )
    return folder


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields a folder that gets its name at the end. After an error it is removed.

    The name must be free, or an empty folder's.
    """
    remove_leftovers(path.parent)
    unfinished = temporary_name(path)
    # An earlier process can have had the same number, like the first process of every container.
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
    except BaseException as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        if isinstance(error, OSError):  # users do not know the temporary name
            as_final = lambda x: x.replace(unfinished.name, path.name) if isinstance(x, str) else x
            error.args = tuple(map(as_final, error.args))
            if error.filename is not None:
                error.filename = as_final(error.filename)
            elif error.errno in FULL:
                error.filename = str(path)
        raise


def write_text(path: Path, text: str) -> None:
    """Writes text in UTF-8, as `write_bytes` does."""
    write_bytes(path, text.encode())


def write_json(path: Path, content: object) -> None:
    """Writes indented JSON and a final newline, as `write_text` does."""
    write_text(path, json_text(content, indent=2) + '\n')


def json_text(content: object, indent: int | None = None) -> str:
    """Writes JSON text with null in place of NaN and infinity, which the standard lacks."""
    finite = json.loads(json.dumps(content), parse_constant=lambda name: None)
    return json.dumps(finite, indent=indent, ensure_ascii=False)


def read_json(path: Path, shape: object = object, name: str | None = None) -> Any:
    """Reads a file of JSON.

    Args:
      shape: as for `check_shape`.
      name: the file's name in errors, by default its path.

    Raises:
      ConfigError: it is not JSON, or has another shape.
      OSError: it cannot be read.
    """
    return parse_json(path.read_bytes(), shape, str(path) if name is None else name)


def parse_json(content: str | bytes, shape: object, name: str) -> Any:
    """Reads JSON as `read_json` does: strictly, in UTF-8, with finite numbers and at most 100 levels."""
    try:
        text = content.decode() if isinstance(content, bytes) else content
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        if '\\u' in text:
            # An escape can write half of a character.
            json.dumps(value, ensure_ascii=False).encode()
        if text.count('[') + text.count('{') > _DEEPEST:
            _check_depth(value)
    except UnicodeError:
        raise ConfigError(f'{name}: damaged: not UTF-8') from None
    except (RecursionError, MemoryError):
        raise ConfigError(f'{name}: damaged: too large, or nested too deeply') from None
    except ValueError as error:
        raise ConfigError(f'{name}: damaged: {error}') from None
    return check_shape(value, shape, name)


def check_shape(value: Any, shape: object, name: str) -> Any:
    """Returns a JSON value if it has a shape.

    A shape is one of

    - `str`, `bool`, `int`, `float`, `list`, `dict` or `None`: a value of this type. A float can be a whole
      number; a bool is no number;
    - `object`: any value;
    - a text, True or False: this very value;
    - a range: a whole number in it;
    - a tuple of shapes: a value that has one of them;
    - `[shape]`: a list of values that all have this shape;
    - `{key: shape}`: an object with these keys. A key that ends in `?` can be missing. The key `*` means all
      other keys, which are refused without it.

    Raises:
      ConfigError: a part has another shape. The message names the first such part.
    """
    misfit = _misfit(value, shape, ())
    if misfit is None:
        return value
    path, problem = misfit
    raise ConfigError(f'{name}: {".".join(path) or "damaged"}{problem}')


def _misfit(value: object, shape: object, path: tuple[str, ...]) -> tuple[tuple[str, ...], str] | None:
    """Returns the path of the first part with another shape, and its problem, or None."""
    if isinstance(shape, dict) and isinstance(value, dict):
        return _misfit_in_object(value, shape, path)
    if isinstance(shape, list) and isinstance(value, list):
        parts = (_misfit(one, shape[0], (*path, str(number))) for number, one in enumerate(value))
        return next(filter(None, parts), None)
    if isinstance(shape, tuple):
        misfits = [_misfit(value, one, path) for one in shape]
        if None in misfits:
            return None
        # The misfit of an object names the part, if the shape of an object is possible.
        holders = [misfit for one, misfit in zip(shape, misfits, strict=True) if type(one) is type(value)]
        if holders and isinstance(value, dict | list):
            return holders[0]
    elif _is_one(value, shape):
        return None
    shown = repr(value) if len(repr(value)) <= 40 else f'{repr(value)[:40]}...'
    return path, f'{"=" if path else ": got "}{shown}: expected {_described(shape)}'


def _misfit_in_object(
    value: dict[str, object], shape: dict[str, object], path: tuple[str, ...]
) -> tuple[tuple[str, ...], str] | None:
    shapes = {key.removesuffix('?'): its_shape for key, its_shape in shape.items() if key != '*'}
    if lacking := [key for key in shapes if key not in value and f'{key}?' not in shape]:
        return path, f': lacks {lacking[0]!r}'
    for key, one in value.items():
        if key not in shapes and '*' not in shape:
            return path, f': has an unknown key {key!r}; known are {", ".join(shapes)}'
        if misfit := _misfit(one, shapes.get(key, shape.get('*')), (*path, key)):
            return misfit
    return None


def _is_one(value: object, shape: object) -> bool:
    """Returns whether a value has a shape without parts."""
    if shape is float and type(value) is int:
        return abs(value) < 1 << 1000
    if isinstance(shape, range):
        return type(value) is int and value in shape
    if isinstance(shape, str | bool):
        return type(value) is type(shape) and value == shape
    return shape is object or type(value) is (type(None) if shape is None else shape)


def _described(shape: object) -> str:
    if isinstance(shape, tuple):
        return ' or '.join(dict.fromkeys(map(_described, shape)))
    if isinstance(shape, range):
        return str(shape[0]) if len(shape) == 1 else f'a whole number from {shape[0]} to {shape[-1]}'
    if isinstance(shape, str | bool):
        return json.dumps(shape)
    return _TYPES[type(shape) if isinstance(shape, dict | list) or shape is None else shape]


def _refuse(name: str) -> None:
    raise ValueError(f'{name} is no number of JSON')


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f'{text[:20]} is too large a number')
    return value


def _check_depth(value: object) -> None:
    level = [value]
    for _ in range(_DEEPEST):
        lists = [
            one if isinstance(one, list) else one.values() for one in level if isinstance(one, dict | list)
        ]
        level = [inner for one in lists for inner in one]
        if not level:
            return
    raise RecursionError


def sha256(path: Path) -> str:
    """Computes the SHA-256 of a file's content, in hexadecimal."""
    with path.open('rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


def first_bytes(text: str, count: int) -> str:
    """Returns the first characters of a text, at most so many bytes."""
    return text.encode()[:count].decode(errors='ignore')


def bytes_sha256(content: bytes) -> str:
    """Returns the SHA-256 of bytes."""
    return hashlib.sha256(content).hexdigest()


def json_sha256(content: object) -> str:
    """Computes the SHA-256 of a JSON value, in hexadecimal. The order of its keys does not matter."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def write_figure(path: Path, figure, **options: object) -> None:
    """Writes a matplotlib figure, whole or not at all, in the format that the file's ending names.

    Args:
      options: for matplotlib's savefig, which cannot write to the cloud itself.

    Raises:
      ConfigError: there is no such format.
    """
    image, kind = io.BytesIO(), path.suffix.removeprefix('.').lower()
    if kind not in (kinds := figure.canvas.get_supported_filetypes()):
        raise ConfigError(f'{path}: the name of a figure ends with .{", .".join(sorted(kinds))}')
    figure.savefig(image, format=kind, **options)
    write_bytes(path, image.getvalue())
