"""Parses calls of run.py."""

from collections.abc import Sequence

from transformer.cli import flags, main


def parse(argv: Sequence[str]) -> flags.Call:
    """Returns the call that a command line is, the program's name first."""
    return flags.parse(argv, main.run_py(argv))
