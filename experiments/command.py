"""The command line that the programs of this folder share: flags and one word."""

from collections.abc import Callable, Sequence

from absl import flags

from transformer import console
from transformer.config import ConfigError


def run(
    argv: Sequence[str],
    values: flags.FlagValues,
    commands: dict[str, Callable[[flags.FlagValues], int | None]],
) -> int:
    """Runs the command that is named, '' if none is; its exit status, 0 if it gives none.

    A user's mistake is one line on standard error and status 2.
    """

    def named() -> int:
        words = ' '.join(values(list(argv))[1:])
        if words not in commands:
            choices = ', '.join(filter(None, commands)) or 'none'
            raise ConfigError(f'{words or "nothing"!r}: no such command; choose {choices}')
        return commands[words](values) or 0

    return console.exit_status(named)
