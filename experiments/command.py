"""The command line of this folder's programs, which is read and explained as that of run.py."""

from collections.abc import Mapping, Sequence

from transformer import config as configs
from transformer.cli import flags, memory
from transformer.cli.flags import Command, Flag
from transformer.cli.help import help_of, summaries
from transformer.cli.terminal import exit_status
from transformer.config import ConfigError, declare


def run(
    argv: Sequence[str], program: str, usage: str, commands: Mapping[str, Command], known: Mapping[str, Flag]
) -> int:
    """Runs the named command, or prints the help: of a command that is named, else of the program.

    A user's mistake is one line on standard error and status 2.

    Args:
      program: the name of the module.
      usage: what the program does.
      commands: by name; a program of one command has it under ''.
      known: the flags of all commands.

    Returns:
      The exit status: the command's, 0 if it gives none.
    """

    def named() -> int:
        # The help does not depend on the rest of the call being right.
        if {'--help', '-h'} & set(argv[1:]) or 'help' in argv[1:2]:
            print(_help(argv, f'python -m experiments.{program}', usage, commands, known), end='')
            return 0
        call = flags.read(argv, commands, known)
        return commands[call.command].run(call) or 0

    memory.keep_freed_memory()
    memory.collect_rarely()
    return exit_status(named)


def changes(said: Sequence[str]) -> dict[str, object]:
    """What flags `--set=OPTION=VALUE` change in a config, by option.

    Raises:
      ConfigError: one is not OPTION=VALUE, or there is no such option or value.
    """
    found = pairs('set', said).items()
    return {key: declare.parse_value(configs.OPTIONS, key, value) for key, value in found}


def pairs(flag: str, said: Sequence[str]) -> dict[str, str]:
    """What several flags OPTION=VALUE of one name say.

    Raises:
      ConfigError: one is not OPTION=VALUE.
    """
    found = {}
    for each in said:
        key, equals, value = each.partition('=')
        if not equals:
            raise ConfigError(f'--{flag}={each}: expected OPTION=VALUE')
        found[key] = value
    return found


def _help(
    argv: Sequence[str],
    program: str,
    usage: str,
    commands: Mapping[str, Command],
    known: Mapping[str, Flag],
) -> str:
    found = [word for word in argv[1:] if word in commands]
    if found or '' in commands:
        name = found[0] if found else ''
        return help_of(program, name, commands[name], known)
    listed = summaries(commands)
    return f'{usage.strip()}\n\nCommands (`{program} COMMAND --help` tells more):\n{listed}\n'
