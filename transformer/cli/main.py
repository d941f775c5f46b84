"""The command line: which flags and commands there are, and their help."""

import logging
import os
import sys
from collections.abc import Sequence

from absl import flags
from absl import logging as absl_logging

from transformer.cli import flags as arguments
from transformer.cli import memory
from transformer.cli.commands import COMMANDS, FLAGS, USAGE
from transformer.cli.flags import Call
from transformer.cli.help import help_of, summaries
from transformer.cli.terminal import exit_status


def parse(argv: Sequence[str]) -> Call:
    """Reads a call.

    Raises:
      ConfigError: the call is wrong.
    """
    return arguments.parse(argv, COMMANDS, FLAGS)


def help_text(argv: Sequence[str]) -> str:
    """The help of the command that a call names, else of the program."""
    program = 'python run.py' if os.path.basename(argv[0]).endswith('.py') else 'transformer'
    named = [word for word in argv[1:] if word in COMMANDS]
    if named:
        return help_of(program, named[0], COMMANDS[named[0]], FLAGS)
    listed = summaries(COMMANDS)
    return USAGE.format(program=program, commands=listed, default=arguments.DEFAULT_CONFIG)


def run_program(argv: Sequence[str]) -> int:
    """Prints the help or runs one command; returns the exit status."""
    # The help does not depend on the rest of the call being right.
    if {'--help', '-h', '--helpfull', '--helpshort'} & set(argv[1:]) or 'help' in argv[1:2]:
        print(help_text(argv), end='')
        return 0
    call = parse(argv)
    return COMMANDS[call.command].run(call) or 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status. A user's mistake is one line on standard error.

    Args:
      argv: the program's name and its arguments; those of this process if None.
    """
    argv = sys.argv if argv is None else argv
    memory.keep_freed_memory()
    memory.collect_rarely()
    # Our flags are parsed apart from absl's own, which would warn that they are not parsed.
    flags.FLAGS.mark_as_parsed()
    flags.FLAGS.logtostderr = True
    absl_logging.use_absl_handler()
    absl_logging.get_absl_handler().setFormatter(logging.Formatter('%(message)s'))
    return exit_status(lambda: run_program(argv))
