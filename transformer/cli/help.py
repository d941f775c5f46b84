"""The help of a program and of its commands."""

import textwrap
from collections.abc import Iterable, Mapping

from transformer.cli.flags import Command, Flag

WIDTH = 80  # of the help


def help_of(program: str, name: str, command: Command, known: Mapping[str, Flag]) -> str:
    """The help of one command."""
    said = ' '.join(filter(None, (program, name, *command.words, '[--FLAG=VALUE ...]')))
    lines = [f'    {said}', '', *_filled(command.summary)]
    lines += ['', 'Flags:'] if command.flags else []
    for flag in command.flags:
        lines += _flag_lines(flag, known[flag])
    if '' in command.options:
        lines += ['', *_filled(f'Every option of the config: `{program} config` shows them.')]
    elif command.options:
        taken = ', '.join(f'{o}*' if o.endswith('.') else o for o in command.options)
        lines += ['', *_filled(f'Options of the config, given as --config.GROUP.OPTION=VALUE: {taken}')]
    if command.note:
        lines += ['', *_filled(command.note)]
    if command.examples:
        lines += ['', 'Examples:', *(f'    {line.format(program)}' for line in command.examples)]
    return '\n'.join(lines) + '\n'


def summaries(commands: Mapping[str, Command]) -> str:
    """The commands, a paragraph each."""
    width = max(map(len, commands)) + 2
    lines = []
    for name, command in commands.items():
        lines += _filled(command.summary, f'    {name:<{width}}', ' ' * (4 + width))
    return '\n'.join(lines)


def _flag_lines(name: str, flag: Flag) -> Iterable[str]:
    shown = f'    --{name}{f"={flag.value}" if flag.value else ""}'
    meaning = f'{flag.meaning}: {", ".join(flag.choices)}' if flag.choices else flag.meaning
    default = '' if flag.default in (None, False, []) else f' (default: {flag.default})'
    column = 28
    first = f'{shown:<{column}}' if len(shown) < column - 1 else None
    told = _filled(meaning + default, first or ' ' * column, ' ' * column)
    return told if first else [shown, *told]


def _filled(text: str, first: str = '', later: str = '') -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )
