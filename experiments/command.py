"""The command line of this folder's programs: flags and one word, the command."""

from collections.abc import Callable, Mapping, Sequence

from absl import flags

from transformer import console
from transformer.options import ConfigError


def run(
    argv: Sequence[str],
    values: flags.FlagValues,
    commands: Mapping[str, Callable[[flags.FlagValues], int | None]],
    usage: str,
) -> int:
    """Runs the named command, or prints the help.

    A user's mistake is one line on standard error and status 2.

    Args:
      commands: by name; '' is what runs without a word.
      usage: the help, above the list of flags.

    Returns:
      The exit status: the command's, 0 if it gives none.
    """

    def named() -> int:
        # The help does not depend on the rest of the call being right.
        if {'--help', '-h', 'help'} & set(argv[1:]):
            print(f'{usage.strip()}\n\nFlags:\n{_listed(values)}')
            return 0
        words = ' '.join(values(list(argv))[1:])
        if words not in commands:
            choices = ', '.join(filter(None, commands)) or 'none'
            raise ConfigError(f'{words or "nothing"!r}: no such command; choose {choices}')
        return commands[words](values) or 0

    return console.exit_status(named)


def _listed(values: flags.FlagValues) -> str:
    """The flags, a line each."""
    lines = []
    for name in values:
        flag = values[name]
        default = f' (default: {flag.default})' if flag.default else ''
        lines.append(f'    --{name:<10} {" ".join(flag.help.split())}{default}')
    return '\n'.join(lines)
