"""Runs a command-line program: prints its help or runs one command, and returns an exit status."""

import importlib.metadata
import os
import sys
from collections.abc import Sequence

from absl import flags
from absl import logging as absl_logging

from transformer.cli import memory
from transformer.cli.commands import COMMANDS, FLAGS, USAGE
from transformer.cli.flags import Program, parse
from transformer.cli.help import help_text
from transformer.cli.terminal import LogFormatter, exit_status, print_any_character


def run_program(argv: Sequence[str], program: Program) -> int:
    """Prints the help of a program or runs one command, and returns the exit status."""

    def run_command() -> int:
        # Help is printed even if the rest of the call is wrong.
        if {'--help', '-h', '--helpfull', '--helpshort'} & set(argv[1:]) or 'help' in argv[1:2]:
            print(help_text(argv, program), end='')
            return 0
        if '--version' in argv[1:]:
            print(f'transformer {importlib.metadata.version("transformer")}')
            return 0
        call = parse(argv, program)
        return program.commands[call.command].run(call) or 0

    # If it is closed, print would write messages to standard output, and a sweep finds no descriptor.
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), 'w')
        sys.__stderr__ = sys.__stderr__ or sys.stderr
    print_any_character()
    memory.keep_freed_memory()
    memory.collect_rarely()
    # Our flags are not in absl's global FLAGS, which would warn that it was never parsed.
    flags.FLAGS.mark_as_parsed()
    flags.FLAGS.logtostderr = True
    absl_logging.use_absl_handler()
    absl_logging.get_absl_handler().setFormatter(LogFormatter())
    return exit_status(run_command)


def run_py(argv: Sequence[str]) -> Program:
    """Returns the program run.py, named `transformer` if called as the installed command."""
    name = 'python run.py' if os.path.basename(argv[0]).endswith('.py') else 'transformer'
    return Program(name, USAGE.format(program=name), COMMANDS, FLAGS, default='train')


def main(argv: Sequence[str] | None = None) -> int:
    """Runs run.py, and returns the exit status."""
    argv = sys.argv if argv is None else argv
    return run_program(argv, run_py(argv))
