"""How wide the terminal is, and text folded to it."""

import math
import os
import re
import shutil
import sys
import textwrap

_NARROWEST = 20  # text is not folded to less


def terminal_width() -> float:
    """The columns of the terminal, or of COLUMNS; where neither is, as in a pipe, there is no limit."""
    if sys.stdout.isatty() or os.environ.get('COLUMNS', '').isdecimal():
        return shutil.get_terminal_size().columns
    return math.inf


def folded(line: str) -> str:
    """A line as several that fit into the terminal; those after the first are indented.

    What follows a label, as in `  source     Ein Hund`, stays in its column. Words stay whole, paths too.
    """
    width = terminal_width()
    if len(line) <= width:
        return line
    label = re.match(r'\s+\S+\s+', line)
    indent = ' ' * len(label[0]) if label else '  '
    width = max(int(width), len(indent) + _NARROWEST)
    return textwrap.fill(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
