"""The command line that the programs of this folder share: flags and one word."""

import sys
from collections.abc import Callable, Sequence

from absl import flags

from transformer.config import ConfigError


def run(
    argv: Sequence[str],
    values: flags.FlagValues,
    commands: dict[str, Callable[[flags.FlagValues], int | None]],
) -> int:
    """Runs the command that is named; its exit status, 0 if it gives none.

    A user's mistake is one line on standard error and status 2.
    """
    try:
        words = values(list(argv))[1:]
        if len(words) != 1 or words[0] not in commands:
            named = ' '.join(words) or 'nothing'
            raise ConfigError(f'{named!r}: no such command; choose {", ".join(commands)}')
        return commands[words[0]](values) or 0
    except (flags.Error, ConfigError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 2
