"""How a program of the command line ends: its exit status, and one line where it failed."""

import os
import signal
import sys
from collections.abc import Callable

from absl import flags

from transformer.options import ConfigError


def exit_status(program: Callable[[], int]) -> int:
    """Executes a program that returns its exit status; that status, or that of how it ended.

    A user's mistake, or the system's, is one line on standard error and status 2.
    """
    try:
        status = program()
        # What is buffered fails here, not when Python ends.
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Whoever read the output has left; Python would complain once more when it flushes.
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
