"""The command line that the programs of this folder share: flags and one word."""

import os
import signal
import sys
from collections.abc import Callable, Sequence

from absl import flags

from transformer.config import ConfigError


def run(
    argv: Sequence[str],
    values: flags.FlagValues,
    commands: dict[str, Callable[[flags.FlagValues], int | None]],
) -> int:
    """Runs the command that is named, '' if none is; its exit status, 0 if it gives none.

    A user's mistake is one line on standard error and status 2.
    """
    try:
        words = ' '.join(values(list(argv))[1:])
        if words not in commands:
            choices = ', '.join(filter(None, commands)) or 'none'
            raise ConfigError(f'{words or "nothing"!r}: no such command; choose {choices}')
        return commands[words](values) or 0
    except (flags.Error, ConfigError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Whoever read the output has left; Python would complain once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        print(f'error: {error.filename or "system"}: {error.strerror}', file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print('stopped', file=sys.stderr)
        return 128 + signal.SIGINT
