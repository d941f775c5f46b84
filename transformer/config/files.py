"""Reads config files, in Python or JSON, and writes them as JSON."""

import dataclasses
import difflib
import json
import os
import pathlib
from collections.abc import Mapping

import ml_collections

from transformer import files
from transformer.config import declare
from transformer.config.declare import ConfigError, check_name, drop_unused, has_meaning
from transformer.config.options import OPTIONS, Config
from transformer.config.resolve import (
    config_dict,
    derivable,
    differences,
    option_values,
    read_values,
    resolve_values,
)


def to_json(config: Config) -> str:
    """Writes the config as JSON text, one option per line."""
    return json.dumps(dataclasses.asdict(config), indent=2, ensure_ascii=False) + '\n'


def from_json(content: str | bytes, name: str = 'config.json') -> Config:
    """Reads the config that `to_json` wrote, in this version or an earlier one. `name` is the file's.

    Options without a meaning there get today's defaults, because an earlier version can have had others.
    """
    groups = files.parse_json(content, {'*': {'*': object}}, name)
    values = read_values({f'{g}.{n}': value for g, group in groups.items() for n, value in group.items()})
    return resolve_values({key: value for key, value in values.items() if has_meaning(OPTIONS, values, key)})


def record_differences(
    record: Mapping[str, Mapping[str, object]], config: Config
) -> dict[str, tuple[object, object]]:
    """Compares a record, a config's `dataclasses.asdict` of this version or an earlier one, with a config.

    Options newer than the record are not compared, because their defaults can have changed since.

    Returns:
      Both values of every option that differs and changes what is learned.
    """
    old = from_json(json.dumps(record))
    names = {check_name(OPTIONS, f'{group}.{name}') for group, values in record.items() for name in values}
    return {key: both for key, both in differences(old, config, free=False).items() if key in names}


def find_config(name: str) -> str:
    """Returns the path of a config file: `name` itself, or for a plain name such as `tiny` a packaged config.

    Raises:
      ConfigError: there is no such file. The message names packaged configs.
    """
    if os.path.isfile(name):
        return name
    root = pathlib.Path(__file__).parent.parent
    # In a checkout the configs are beside the package, in an installation within it.
    folder = next(path for path in (root / 'configs', root.parent / 'configs') if path.is_dir())
    known = {path.stem: path for path in sorted(folder.glob('*.py'))}
    stem = name.removesuffix('.py')
    if stem not in known:
        of_path = pathlib.PurePath(stem).name
        near = [of_path] if of_path in known else difflib.get_close_matches(of_path, known)
        hint = f'known by name: the files in {folder}'
        if near:
            hint = f'did you mean {" or ".join(f"--config={one}" for one in near)}?'
        raise ConfigError(f'--config={name}: no such file; {hint}')
    return os.path.relpath(known[stem]) if folder.parent == pathlib.Path.cwd() else str(known[stem])


def read_config_file(path: str) -> ml_collections.ConfigDict:
    """Reads a config file: a Python file, or the config.json of a work directory.

    Raises:
      ConfigError: the file is missing, raises an error, or makes no config.
    """
    try:
        if path.endswith('.json'):
            return derivable(from_json(pathlib.Path(path).read_bytes(), path))
        defined = {'__name__': 'config_file', '__file__': path}
        exec(compile(pathlib.Path(path).read_bytes(), path, 'exec'), defined)
        if 'get_config' not in defined:
            raise ConfigError('defines no get_config()')
        config = defined['get_config']()
        if not isinstance(config, ml_collections.ConfigDict):
            raise ConfigError('get_config() returns no config; it must end with return config_dict({...})')
        return config
    except ConfigError as error:
        raise ConfigError(f'{path}: {str(error).removeprefix(f"{path}: ")}') from None
    except (Exception, SystemExit) as error:
        # A config file is a program: any exception or exit in it is reported as a mistake of the file.
        hint = '; a config file is in Python, or JSON' if isinstance(error, SyntaxError) else ''
        raise ConfigError(f'{path}: {type(error).__name__}: {error}{hint}') from error


def config_beside(file: str, name: str, changes: dict[str, object]) -> ml_collections.ConfigDict:
    """Returns the config of the file `name`, in the same folder as `file`, with `changes`.

    Options that the changes make meaningless are reset to their defaults.
    """
    start = read_config_file(os.path.join(os.path.dirname(file), name))
    changes = {check_name(OPTIONS, key): value for key, value in changes.items()}
    changed = declare.present_values(OPTIONS, option_values(start) | changes)
    values, _ = drop_unused(OPTIONS, changed, changes)
    return config_dict(values)


def lock_beside(file: str) -> str:
    """Returns the path of the lock file that belongs to a config file."""
    return os.path.splitext(file)[0] + '.lock.json'
