"""Reads tables and scales from a user's own files."""

import pathlib
import re

import ml_collections

from transformer.config import ConfigError
from transformer.config.files import read_config_file

ROOT = pathlib.Path(__file__).resolve().parents[2]  # the checkout, where run.py is


def is_file(name: str) -> bool:
    """Returns whether the name of a table or scale is a file, and not a grid such as `data.train=a.json`."""
    return name.endswith(('.py', '.json')) and not re.match(r'\w+\.\w+=', name)


def stored_name(name: str) -> str:
    """Returns a table's or scale's name in sweep.json: for a file, its path from the root of the checkout."""
    if not is_file(name):
        return name
    path = pathlib.Path(name).resolve()
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def stem(name: str) -> str:
    """Returns the name of a table or scale without folder and extension, for titles and folders."""
    return pathlib.Path(name).stem if is_file(name) else name


def table(file: str) -> object:
    """Reads the TABLE that a file defines."""
    _check_exists(file, 'table')
    defined = {'__name__': 'table_file', '__file__': file}
    try:
        exec(compile((ROOT / file).read_bytes(), file, 'exec'), defined)
    except (Exception, SystemExit) as error:
        # A table file is a program: any exception or exit is the user's mistake.
        raise ConfigError(f'{file}: {type(error).__name__}: {error}') from error
    if 'TABLE' not in defined:
        raise ConfigError(f'{file}: defines no TABLE')
    return defined['TABLE']


def scale(file: str) -> ml_collections.ConfigDict:
    """Reads the config of a config file."""
    _check_exists(file, 'scale')
    return read_config_file(str(ROOT / file))


def _check_exists(file: str, flag: str) -> None:
    if not (ROOT / file).is_file():
        raise ConfigError(f'--{flag}={file}: no such file')
