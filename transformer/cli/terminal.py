"""Folds text to the terminal's width, and turns errors into one line and an exit status."""

import functools
import io
import logging
import math
import os
import re
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Callable

from absl import flags

from transformer import files
from transformer.config import ConfigError

_NARROWEST = 20  # the narrowest column of folded text


def terminal_width() -> float:
    """Returns COLUMNS, else the columns of the terminal, or infinity if there is neither, as in a pipe."""
    if (sys.stdout and sys.stdout.isatty()) or os.environ.get('COLUMNS', '').isdecimal():
        return shutil.get_terminal_size().columns
    return math.inf


def fold(line: str) -> str:
    """Folds a line to the width of the terminal, and indents all lines but the first.

    Text after a label, as in `  source     Ein Hund`, stays in its column. Words and paths stay whole.
    Control characters are escaped.
    """
    line, width = escape(line), terminal_width()
    if len(line) <= width:
        return line
    label = re.match(r'\s+\S+\s+', line)
    indent = ' ' * len(label[0]) if label else '  '
    width = max(int(width), len(indent) + _NARROWEST)
    whole = {'break_long_words': False, 'break_on_hyphens': False}
    return textwrap.fill(line, width, subsequent_indent=indent, **whole)


def print_any_character() -> None:
    r"""Makes standard output and error escape characters that their encoding lacks: \xe4 for ä in ASCII."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors='backslashreplace')


def visible(text: str) -> str:
    r"""Escapes what a terminal would act on or hide in a text of somebody else: \x1b for ESC."""
    return ''.join(c if c.isprintable() else c.encode('unicode_escape').decode() for c in text)


def escape(text: str) -> str:
    """Escapes control characters, on which a terminal would act, except tabs and ends of lines."""
    return re.sub('[\x00-\x08\x0b-\x1f\x7f-\x9f]', lambda control: visible(control[0]), text)


class LogFormatter(logging.Formatter):
    """Formats a warning as its message, with invisible characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the message."""
        return '\n'.join(map(visible, super().format(record).split('\n')))


def exit_status(program: Callable[[], int]) -> int:
    """Runs a program, and turns the user's mistakes and system errors into one line on standard error.

    Returns:
      The program's status; 2 after such an error, 130 after Ctrl-C, 141 if the reader of the output has
      ended.
    """
    before = sys.unraisablehook
    sys.unraisablehook = functools.partial(_interrupt_later, before)
    try:
        status = program()
        # If buffered output cannot be written, the error is raised here and not when Python ends.
        if sys.stdout:
            with files.naming(sys.stdout):
                sys.stdout.flush()
        return status
    except BrokenPipeError:
        _discard_output()
        return 128 + signal.SIGPIPE
    except (flags.Error, ConfigError, OSError) as error:
        if isinstance(error, OSError) and error.errno in files.FULL and not error.filename:
            # What is printed names no file.
            error.filename = getattr(sys.stdout, 'name', None)
        named = isinstance(error, OSError) and error.filename
        text = str(error)
        if isinstance(error, OSError) and not error.strerror:
            # A library's error can have no number, and str() leaves its text out once `filename` is set.
            text = ' '.join(map(str, error.args))
        text = re.sub(r'\s*\n\s*', ' ', text.strip())
        line = f'{error.filename}: {error.strerror or text}' if named else text
        print(f'error: {visible(line)}', file=sys.stderr)
        if named and error.filename == getattr(sys.stdout, 'name', None):
            _discard_output()
        return 2
    except (MemoryError, RuntimeError) as error:
        lacking = lack_of_memory(error)
        if not lacking:
            raise
        print(f'error: {lacking}; smaller batches, beams or outputs need less', file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print('stopped', file=sys.stderr)
        return 128 + signal.SIGINT
    finally:
        sys.unraisablehook = before


def _interrupt_later(before: Callable, lost) -> None:
    """Sends Ctrl-C again if it was lost, as in JAX's callback of the garbage collector."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        # To the main thread, which can be waiting.
        main = threading.main_thread().ident
        threading.Timer(0.1, signal.pthread_kill, [main, signal.SIGINT]).start()
    else:
        before(lost)


def lack_of_memory(error: MemoryError | RuntimeError) -> str | None:
    """Returns what an error of numpy or XLA says of a lack of memory, or None for another error."""
    found = re.search('out of memory[^\n]*|unable to allocate[^\n]*', str(error), re.IGNORECASE)
    other = 'out of memory' if isinstance(error, MemoryError) else None
    return found[0].rstrip('.') if found else other


def _discard_output() -> None:
    """Lets Python flush standard output once more when it ends: into /dev/null, which does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
