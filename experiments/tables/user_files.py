"""Tables and scales in files of the user's own."""

import functools
import os
import pathlib

import ml_collections

from transformer.config import ConfigError
from transformer.config.files import read_config_file

ROOT = pathlib.Path(__file__).resolve().parents[2]  # the checkout, where run.py is
_ENDINGS = ('.py', '.json')


def is_file(name: str) -> bool:
    """Whether a table or a scale is named by a file."""
    return name.endswith(_ENDINGS)


def kept(said: str) -> str:
    """The name of a table or scale as a sweep keeps it: of a file, its path from the root of the checkout."""
    if not is_file(said):
        return said
    path = pathlib.Path(said).resolve()
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def stem(name: str) -> str:
    """The name without folder and ending, for titles and folders."""
    return pathlib.Path(name).stem if is_file(name) else name


def table(file: str) -> object:
    """What a file calls TABLE.

    Raises:
      ConfigError: there is no such file, or it is wrong.
    """
    return _table(file, _changed(file, 'table'))


@functools.cache
def _table(file: str, _: int) -> object:
    defined = {'__name__': 'table_file', '__file__': file}
    try:
        exec(compile((ROOT / file).read_bytes(), file, 'exec'), defined)
    except Exception as error:
        # A table file is a program: whatever it raises is told as its own mistake.
        raise ConfigError(f'{file}: {type(error).__name__}: {error}') from error
    if 'TABLE' not in defined:
        raise ConfigError(f'{file}: defines no TABLE')
    return defined['TABLE']


def scale(file: str) -> ml_collections.ConfigDict:
    """The config of a config file.

    Raises:
      ConfigError: there is no such file, or it is wrong.
    """
    _changed(file, 'scale')
    return read_config_file(str(ROOT / file))


def _changed(file: str, flag: str) -> int:
    """When a file was last changed."""
    if not (ROOT / file).is_file():
        raise ConfigError(f'--{flag}={file}: no such file')
    return os.stat(ROOT / file).st_mtime_ns
