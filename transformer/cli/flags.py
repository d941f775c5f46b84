"""Parses a command line: its command, flags, and changes of the config."""

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from absl import flags, logging

from transformer import config as configs
from transformer import files
from transformer.config import Config, ConfigError, declare
from transformer.config.files import find_config, read_config_file
from transformer.config.flag import Flag
from transformer.config.foreign_names import OURS

DEFAULT_CONFIG = 'tiny'
_CHANGE = re.compile(r'--?config\.([^=]+)(?:=(.*))?', re.DOTALL)
_DECODING = {key.rpartition('.')[2]: key for key in configs.OPTIONS if key.startswith('decode.')}
_SHORT = re.compile(rf'--?({"|".join(_DECODING)})(?:=(.*))?', re.DOTALL)


class Command(NamedTuple):
    """A command of a program.

    Attributes:
      run: the function that runs it. It returns the exit status, 0 if None.
      options: the config options that it takes, by name or by prefix, such as `decode.`; '' means all.
      words: the names of its arguments. With "..." in the last name, it takes any number of them.
      note: the end of its help.
      own: flags that have another meaning in another command.
    """

    summary: str
    run: Callable[['Call'], int | None]
    flags: tuple[str, ...]
    options: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    note: str = ''
    reads_lines: bool = False  # of standard input
    own: Mapping[str, Flag] = MappingProxyType({})


class Program(NamedTuple):
    """A command-line program. If it has a single command, the command's name is ''.

    With a flag `config` that has no default, `--config.GROUP.OPTION=VALUE` changes the config.

    Attributes:
      usage: what help begins with; Python's -OO drops one that is a docstring.
      default: the command of a call that names none.
    """

    name: str
    usage: str | None
    commands: Mapping[str, Command]
    flags: Mapping[str, Flag]
    default: str = ''


class Call(NamedTuple):
    """A parsed call.

    Attributes:
      file: the config file.
      changes: the config's changes, by option.
    """

    command: str
    words: tuple[str, ...]
    flags: flags.FlagValues
    file: str
    changes: dict[str, object]


def parse(argv: Sequence[str], program: Program) -> Call:
    """Parses a call of a program."""
    # A program with a default for --config reads the file itself.
    with_config = 'config' in program.flags and program.flags['config'].default is None
    # Shells leave ~ alone after `--flag=`.
    home = f'={os.path.expanduser("~")}'
    words = [re.sub('=~(?=/|$)', lambda _: home, word) if word[:1] == '-' else word for word in argv[1:]]
    rest, changes = _split(words) if with_config else (words, {})
    values = _define(program.flags)
    try:
        words = values([argv[0], *rest])[1:]
    except flags.UnrecognizedFlagError as error:
        hint = _flag_hint(error.flagname, program, with_config)
        raise ConfigError(f'--{error.flagname}: no such flag{hint}') from None
    except flags.Error as error:
        # absl shows the arguments of an error of a Boolean flag.
        line = re.sub(r"\('([^']*)', .*\)", r'\1', str(error).strip().splitlines()[0])
        raise ConfigError(line) from None
    name = program.default if set(program.commands) == {''} or not words else words.pop(0)
    if name not in program.commands:
        problem = f'{name!r}: no such command' if name else 'no command'
        near = difflib.get_close_matches(name, program.commands)
        hint = (
            f'did you mean {" or ".join(near)}?' if near else f'choose one of {", ".join(program.commands)}'
        )
        raise ConfigError(f'{problem}; {hint}')
    command, title = program.commands[name], name or 'this program'
    for flag, declared in program.flags.items():
        if values[flag].present and flag not in command.flags:
            known = ', '.join(f'--{flag}' for flag in command.flags)
            raise ConfigError(f'--{flag}: {title} does not take it; it takes {known}')
        if values[flag].present > 1 and not declared.many:
            raise ConfigError(f'--{flag}={values[flag].value}: given twice')
        if (path := values[flag].value) in ('', '-') and declared.value in ('FILE', 'FOLDER', 'PATH'):
            # Such as a variable of a shell that is not set.
            hint = f'; without --{flag} it is standard {flag}' if path and flag in ('input', 'output') else ''
            raise ConfigError(f'--{flag}={path}: names nothing{hint}')
    several = bool(command.words) and '...' in command.words[-1]
    if len(words) != len(command.words) and not several:
        expected = ' and '.join(command.words) or 'only flags, which begin with --'
        if len(words) < len(command.words):
            given = f', not only {words[0]!r}' if words else ''
            raise ConfigError(f'{title}: needs {expected}{given}')
        hint = f'; it reads standard input: {title} < {words[0]}' if command.reads_lines else ''
        raise ConfigError(f'{", ".join(map(repr, words))}: {title} takes {expected}{hint}')
    if not with_config:
        return Call(name, tuple(words), values, '', {})
    call = Call(name, tuple(words), values, find_config(values.config or _default_config(values)), changes)
    _check_config(call, command)
    return call


def _flag_hint(name: str, program: Program, with_config: bool) -> str:
    """Suggests the option of the config that a flag names, or a similar flag."""
    keys = [key for key in configs.OPTIONS if name in (key, key.rpartition('.')[2])] if with_config else []
    if with_config and name in OURS:
        keys = OURS[name].split(' or ')
    near = [f'--config.{key}=VALUE' for key in keys]
    known = [*program.flags, *_DECODING] if with_config else program.flags
    near = near or [f'--{flag}' for flag in difflib.get_close_matches(name, known, n=1)]
    return f'; did you mean {" or ".join(near)}?' if near else ''


def _default_config(values: flags.FlagValues) -> str:
    """Returns the config file of a call that names none: its work directory's, which it resumes, or tiny."""
    file = os.path.join(values.workdir or '', 'config.json')
    return file if values.workdir and os.path.isfile(file) else DEFAULT_CONFIG


def _check_config(call: Call, command: Command) -> None:
    """Raises ConfigError if the command would ignore the config file, or a change of the config."""
    named = call.flags.config is not None
    if '' in command.options:
        return
    by_name = 'config' in command.flags and call.flags.workdir is None
    if named and not by_name:
        raise ConfigError(
            f'--config={call.file}: not together with --workdir={call.flags.workdir}, whose own config '
            f'{call.command} uses'
        )
    if named and call.file.endswith('.json') and not os.path.isdir(work_directory(call)):
        # The model beside this file is meant, not one in the work directory that the config would get.
        raise ConfigError(
            f'--config={call.file}: {call.command} needs a trained model, not a config; for the one in that '
            f'folder give --workdir={os.path.dirname(call.file) or "."}'
        )
    for key in call.changes:
        # Changes that name the default work directory are not ignored. Options of the training can be
        # repeated: `restore.changed` compares them.
        naming = not configs.OPTIONS[key].metadata['free'] and (by_name or command.options)
        if not naming and not any(key.startswith(option) for option in command.options):
            why = 'uses the config of its work directory' if 'workdir' in command.flags else 'reads no config'
            raise ConfigError(f'--config.{key}: {call.command} does not take it; it {why}')


def _split(words: Sequence[str]) -> tuple[list[str], dict[str, object]]:
    """Separates the changes of the config, by option, from the other words of a call."""
    rest, changes, words = [], {}, iter(words)
    for word in words:
        # Options of decoding have short names too: --beam=8.
        match = _CHANGE.fullmatch(word) or _SHORT.fullmatch(word)
        if not match:
            rest.append(word)
            continue
        key, value = match.groups()
        key = _DECODING.get(key, key)
        key = declare.check_name(configs.OPTIONS, key)
        if key in changes:
            raise ConfigError(f'--config.{key}: given twice')
        changes[key] = declare.parse_value(configs.OPTIONS, key, next(words, '') if value is None else value)
    return rest, changes


def _define(declared: Mapping[str, Flag]) -> flags.FlagValues:
    values = flags.FlagValues()
    for name, flag in declared.items():
        common, more = (name, flag.default), {'help': flag.meaning, 'flag_values': values}
        if flag.kind in (int, float):
            define = flags.DEFINE_integer if flag.kind is int else flags.DEFINE_float
            define(*common, lower_bound=flag.least, upper_bound=flag.most, **more)
        elif flag.choices:
            flags.DEFINE_enum(*common, flag.choices, **more)
        elif flag.many:
            flags.DEFINE_multi_string(*common, **more)
        else:
            (flags.DEFINE_boolean if flag.kind is bool else flags.DEFINE_string)(*common, **more)
    return values


def config(call: Call) -> Config:
    """Returns the config of a call: its file's config, with its changes.

    Options of the file that the changes make meaningless, such as options of another kind of model, are
    reset to their defaults with a warning.
    """
    values = configs.option_values(read_config_file(call.file))
    changed = declare.present_values(configs.OPTIONS, values | call.changes)
    used, unused = declare.drop_unused(configs.OPTIONS, changed, call.changes)
    resolved = configs.resolve_values(used)
    if unused:
        options = ', '.join(f'{key}={changed[key]!r}' for key in unused)
        logging.warning('%s: left out, because the command line makes it meaningless: %s', call.file, options)
    return resolved


def work_directory(call: Call) -> str:
    """Returns the work directory of a call, by default named after the config file and the changes."""
    if call.flags.workdir is not None:
        return call.flags.workdir
    path = os.path.splitext(call.file)[0]
    # A config.json is named after its work directory.
    path = os.path.dirname(os.path.abspath(path)) if os.path.basename(call.file) == 'config.json' else path
    name = os.path.basename(path)
    for key, value in sorted(call.changes.items()):
        if not configs.OPTIONS[key].metadata['free']:
            # An option of the second model has the name of one of the first.
            option = key if key.startswith('image_model.') else key.split('.')[1]
            name += '-' + re.sub(r'[^\w.=+-]', '_', f'{option}={value}')
    for origin in call.flags.init_from:
        origin = os.path.basename(origin.rstrip('/'))
        name += '-init=' + re.sub(r'[^\w.=+-]', '_', origin)
    return os.path.join('runs', files.short_name(name))


def parse_pairs(flag: str, words: Sequence[str]) -> dict[str, str]:
    """Parses the values, OPTION=VALUE, of a flag that can be repeated."""
    pairs = {}
    for word in words:
        key, equals, value = word.partition('=')
        if not equals:
            raise ConfigError(f'--{flag}={word}: expected OPTION=VALUE')
        if key in pairs:
            raise ConfigError(f'--{flag}={word}: {key} is given twice')
        pairs[key] = value
    return pairs


def parse_changes(words: Sequence[str]) -> dict[str, object]:
    """Parses flags `--set=OPTION=VALUE` into changes of a config, by option."""
    changes = {}
    for name, value in parse_pairs('set', words).items():
        key = declare.check_name(configs.OPTIONS, name)
        if key in changes:
            raise ConfigError(f'--set={name}={value}: {key} is given twice')
        changes[key] = declare.parse_value(configs.OPTIONS, key, value)
    return changes


def parse_numbers(flag: str, text: str) -> list[int]:
    """Parses numbers from 1 that are separated by commas. An empty text has none."""
    if not re.fullmatch(r'([1-9]\d*(,[1-9]\d*)*)?', text):
        raise ConfigError(f'--{flag}={text}: expected numbers from 1, separated by commas')
    return [int(number) for number in text.split(',') if number]
