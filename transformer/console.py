"""How a command-line program ends: its exit status and, if it failed, one line that says why."""

import os
import signal
import sys
from collections.abc import Callable

from absl import flags

from transformer.options import ConfigError


def exit_status(program: Callable[[], int]) -> int:
    """Runs a program, and turns errors that are not the code's into one line on standard error.

    Returns:
      The program's own exit status; 2 after a mistake of the user's or a system error, 130 after Ctrl-C,
      141 if whoever read the output left early.
    """
    try:
        status = program()
        # If buffered output cannot be written, it fails here and not when Python ends.
        if sys.stdout:
            sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Python flushes once more when it ends; into /dev/null that does not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (flags.Error, ConfigError, OSError) as error:
        print(f'error: {_line(error)}', file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print('stopped', file=sys.stderr)
        return 128 + signal.SIGINT


def _line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f'{error.filename}: {error.strerror}'
    return ' '.join(str(error).split())
