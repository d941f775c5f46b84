"""The declaration of a command-line flag."""

from typing import NamedTuple


class Flag(NamedTuple):
    """A flag, declared once for all commands that take it.

    Attributes:
      kind: the type of its value.
      default: the value if the flag is not given.
      meaning: one line of the help.
      value: the value's placeholder in the help.
      least, most: inclusive bounds of a number.
      choices: the possible texts, if not all.
      many: whether the flag can be repeated.
      argument: the parameter that receives the value, if its name differs from the flag's.
    """

    kind: type
    default: str | int | float | bool | list | None
    meaning: str
    value: str = ''
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    many: bool = False
    argument: str = ''
