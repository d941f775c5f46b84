"""The terminal: its width, text folded to it, and how a program ends there: exit status and one line."""

import io
import math
import os
import re
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable

from absl import flags

from transformer.config import ConfigError

_NARROWEST = 20  # text is not folded to less


def terminal_width() -> float:
    """The columns of the terminal, or of COLUMNS; where neither is, as in a pipe, there is no limit."""
    if sys.stdout.isatty() or os.environ.get('COLUMNS', '').isdecimal():
        return shutil.get_terminal_size().columns
    return math.inf


def fold(line: str) -> str:
    """A line as several that fit into the terminal; those after the first are indented.

    What follows a label, as in `  source     Ein Hund`, stays in its column. Words stay whole, paths too.
    """
    width = terminal_width()
    if len(line) <= width:
        return line
    label = re.match(r'\s+\S+\s+', line)
    indent = ' ' * len(label[0]) if label else '  '
    width = max(int(width), len(indent) + _NARROWEST)
    whole = {'break_long_words': False, 'break_on_hyphens': False}
    return textwrap.fill(line, width, subsequent_indent=indent, **whole)


def print_any_character() -> None:
    r"""Lets standard output and standard error print what their encoding lacks, as \xe4 for an ä in ASCII."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors='backslashreplace')


def exit_status(program: Callable[[], int]) -> int:
    """Runs a program, and turns errors that are not the code's into one line on standard error.

    The status is the program's own; 2 after a mistake of the user's or a system error, 130 after Ctrl-C, 141
    if whoever read the output left early.
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
        named = isinstance(error, OSError) and error.filename
        line = f'{error.filename}: {error.strerror}' if named else ' '.join(str(error).split())
        print(f'error: {line}', file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print('stopped', file=sys.stderr)
        return 128 + signal.SIGINT
