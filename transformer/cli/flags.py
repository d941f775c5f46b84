"""How a call is read: its command, flags and changes of the config; and the help.

Which commands and flags there are is cli.py's business.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from absl import flags

from transformer import config as configs
from transformer.config import Config, ConfigError, declare
from transformer.config.files import lock_beside, read_config_file

DEFAULT_CONFIG = 'configs/tiny.py'
_CHANGE = re.compile(r'--?config\.([^=]+)(?:=(.*))?', re.DOTALL)


class Flag(NamedTuple):
    """A flag, declared once for all commands that take it.

    value: what stands for its value in the help; a switch has none. least, most: bounds of a number.
    choices: the values that a text may have; any if empty. many: whether it may be given several times.
    """

    kind: type
    default: str | int | float | bool | None
    meaning: str
    value: str = ''
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    many: bool = False


class Command(NamedTuple):
    """One command.

    run: does what the call says; returns the exit status, 0 if None. flags: the names of those that it
    takes. options: the options of the config that it takes, by name or as `decode.`, the beginning of
    names; '' is all of them. words: what follows the command, by the name that the help gives it; the
    last may hold "..." and be any number of words. note: what the help says after the flags.
    """

    summary: str
    run: Callable[['Call'], int | None]
    flags: tuple[str, ...]
    options: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    note: str = ''


class Call(NamedTuple):
    """A call that was read.

    file: the config file. changes: what the call changes in the config, by option.
    """

    command: str
    words: tuple[str, ...]
    flags: flags.FlagValues
    file: str
    changes: dict[str, object]


def parse(argv: Sequence[str], commands: Mapping[str, Command], known: Mapping[str, Flag]) -> Call:
    """Reads a call of run.py; its first word names the command, 'train' if there is no word.

    Raises:
      ConfigError: the call is wrong, or the command would ignore a part of it.
    """
    rest, changes = _split(argv[1:])
    call = read([argv[0], *rest], commands, known, 'train')
    file = DEFAULT_CONFIG if call.flags.config is None else call.flags.config
    call = call._replace(file=file, changes=changes)
    _check_config(call, commands[call.command])
    return call


def read(
    argv: Sequence[str], commands: Mapping[str, Command], known: Mapping[str, Flag], default: str = ''
) -> Call:
    """Reads a call without a config.

    Args:
      commands: by name; a program of one command has it under ''.
      default: the command where no word names one.

    Raises:
      ConfigError: the call is wrong, or the command would ignore a part of it.
    """
    values = _define(known)
    try:
        words = values(list(argv))[1:]
    except flags.Error as error:
        raise ConfigError(str(error).strip().splitlines()[0]) from None
    name = default if set(commands) == {''} or not words else words.pop(0)
    if name not in commands:
        problem = f'{name!r}: no such command' if name else 'no command'
        raise ConfigError(f'{problem}; choose one of {", ".join(commands)}')
    command, told = commands[name], name or 'this program'
    for flag in known:
        if values[flag].present and flag not in command.flags:
            taken = ', '.join(f'--{flag}' for flag in command.flags)
            raise ConfigError(f'--{flag}: {told} does not take it; it takes {taken}')
    several = bool(command.words) and '...' in command.words[-1]
    if len(words) != len(command.words) and not several:
        expected = ' and '.join(command.words) or 'only flags, which begin with --'
        given = ', '.join(map(repr, words)) or 'nothing'
        raise ConfigError(f'{given}: {told} takes {expected}')
    return Call(name, tuple(words), values, '', {})


def _check_config(call: Call, command: Command) -> None:
    """Raises ConfigError where the command ignores the config file, or a change of the config."""
    named = call.flags.config is not None
    if named and not os.path.isfile(call.file):
        raise ConfigError(f'--config={call.file}: no such file')
    if '' in command.options:
        return
    by_name = 'config' in command.flags and call.flags.workdir is None
    if named and not by_name:
        raise ConfigError(
            f'--config={call.file}: not together with --workdir={call.flags.workdir}, whose own config '
            f'{call.command} uses'
        )
    if named and call.file.endswith('.json') and not os.path.isdir(work_directory(call)):
        # Its model is meant, which is somewhere else than the config would have it.
        raise ConfigError(
            f'--config={call.file}: {call.command} needs a trained model, not a config; for the one in that '
            f'folder give --workdir={os.path.dirname(call.file) or "."}'
        )
    for key in call.changes:
        # Those that name the default work directory are not ignored. What a model was trained with may
        # be repeated: `restore.changed` compares it.
        naming = not configs.OPTIONS[key].metadata['free'] and (by_name or command.options)
        if not naming and not any(key.startswith(option) for option in command.options):
            why = 'uses the config of its work directory' if 'workdir' in command.flags else 'reads no config'
            raise ConfigError(f'--config.{key}: {call.command} does not take it; it {why}')


def _split(words: Sequence[str]) -> tuple[list[str], dict[str, object]]:
    """The words of a call without its changes of the config, and these, by option."""
    rest, changes, left = [], {}, iter(words)
    for word in left:
        match = _CHANGE.fullmatch(word)
        if not match:
            rest.append(word)
            continue
        key, value = match.groups()
        changes[key] = declare.parse_value(configs.OPTIONS, key, next(left, '') if value is None else value)
    return rest, changes


def _define(known: Mapping[str, Flag]) -> flags.FlagValues:
    values = flags.FlagValues()
    for name, flag in known.items():
        said = (name, flag.default, flag.meaning)
        bounds = {'lower_bound': flag.least, 'upper_bound': flag.most}
        if flag.kind is bool:
            flags.DEFINE_boolean(*said, flag_values=values)
        elif flag.kind is int:
            flags.DEFINE_integer(*said, **bounds, flag_values=values)
        elif flag.kind is float:
            flags.DEFINE_float(*said, **bounds, flag_values=values)
        elif flag.choices:
            flags.DEFINE_enum(name, flag.default, flag.choices, flag.meaning, flag_values=values)
        elif flag.many:
            flags.DEFINE_multi_string(*said, flag_values=values)
        else:
            flags.DEFINE_string(*said, flag_values=values)
    return values


def config(call: Call) -> Config:
    """The config of a call: that of its file, with its changes.

    Raises:
      ConfigError: the file is missing or wrong, or a value or combination is impossible.
    """
    if not os.path.isfile(call.file):
        raise ConfigError(f'--config: missing; there is no {call.file} in this folder')
    values = read_config_file(call.file)
    for key, value in call.changes.items():
        group, name = key.split('.')
        if group in values:
            values[group][name] = value
    return configs.resolve(values)


def work_directory(call: Call) -> str:
    """The work directory named, or one made of the names of config file and changes."""
    if call.flags.workdir is not None:
        return call.flags.workdir
    path, extension = os.path.splitext(call.file)
    # The config of a work directory has the name of the directory.
    named = os.path.dirname(os.path.abspath(path)) if extension == '.json' else path
    name = os.path.basename(named)
    for key, value in sorted(call.changes.items()):
        if not configs.OPTIONS[key].metadata['free']:
            name += '-' + re.sub(r'[^\w.=+-]', '_', f'{key.split(".")[1]}={value}')
    if call.flags.init_from is not None:
        origin = os.path.basename(call.flags.init_from.rstrip('/'))
        name += '-init=' + re.sub(r'[^\w.=+-]', '_', origin)
    return os.path.join('runs', name)


def lock_file(call: Call) -> str:
    """Where a lock file beside the config file would say what its data must be."""
    return lock_beside(call.file)
