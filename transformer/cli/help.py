"""Formats the help of a program and of its commands, 80 columns wide."""

import textwrap
from collections.abc import Iterable, Sequence

from transformer.cli.flags import Command, Flag, Program

WIDTH = 80


def help_text(argv: Sequence[str], program: Program) -> str:
    """Returns the help of the command that a call names, or of the only command, or else of the program."""
    named = [word for word in argv[1:] if word in program.commands]
    if named or '' in program.commands:
        return _help_of_command(program, named[0] if named else '')
    width = max(map(len, program.commands)) + 2
    lines = [
        (program.usage or program.name).strip(),
        '',
        f'Commands (`{program.name} COMMAND --help` says more):',
    ]
    for name, command in program.commands.items():
        lines += _wrap(command.summary, f'    {name:<{width}}', ' ' * (4 + width))
    return '\n'.join(lines) + '\n'


def _help_of_command(program: Program, name: str) -> str:
    command: Command = program.commands[name]
    call = ' '.join(filter(None, (program.name, name, *command.words, '[--FLAG=VALUE ...]')))
    lines = [f'    {call}', '', *_wrap(command.summary)]
    lines += ['', 'Flags:'] if command.flags else []
    for flag in command.flags:
        lines += _flag_lines(flag, command.own.get(flag, program.flags[flag]))
    if '' in command.options:
        lines += ['', *_wrap(f'Takes every option of the config; `{program.name} config` lists them.')]
    elif command.options:
        options = ', '.join(f'{o}*' if o.endswith('.') else o for o in command.options)
        short = ' (of decode: --OPTION=VALUE)' if 'decode.' in command.options else ''
        lines += [
            '',
            *_wrap(f'Takes options of the config, as --config.GROUP.OPTION=VALUE{short}: {options}'),
        ]
    if command.note:
        lines += ['', *_wrap(command.note)]
    if command.examples:
        lines += ['', 'Examples:', *(f'    {line.format(program.name)}' for line in command.examples)]
    return '\n'.join(lines) + '\n'


def _flag_lines(name: str, flag: Flag) -> Iterable[str]:
    usage = f'    --{name}{f"={flag.value}" if flag.value else ""}'
    meaning = f'{flag.meaning}: {", ".join(flag.choices)}' if flag.choices else flag.meaning
    default = '' if flag.default in (None, False, [], '') else f' (default: {flag.default})'
    column = 28
    first = f'{usage:<{column}}' if len(usage) < column - 1 else None
    lines = _wrap(meaning + default, first or ' ' * column, ' ' * column)
    return lines if first else [usage, *lines]


def _wrap(text: str, first: str = '', later: str = '') -> list[str]:
    indents = {'initial_indent': first, 'subsequent_indent': later}
    return textwrap.wrap(text, WIDTH, **indents, break_long_words=False, break_on_hyphens=False)
