"""How a flag of a command line is declared."""

from typing import NamedTuple


class Flag(NamedTuple):
    """A flag, declared once for all commands that take it.

    Attributes:
      value: stands for its value in the help; a switch has none.
      least, most: bounds of a number.
      choices: the values that a text may have; any if empty.
      many: whether it may be given several times.
      argument: what a function that it is passed to calls it, if not by its name.
    """

    kind: type
    default: str | int | float | bool | None
    meaning: str
    value: str = ''
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    many: bool = False
    argument: str = ''
