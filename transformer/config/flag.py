"""How a flag of a command line is declared."""

from typing import NamedTuple


class Flag(NamedTuple):
    """A flag, declared once for all commands that take it; `value` stands for its value in the help.

    A number is from `least` to `most`, a text one of the `choices` if there are any. With `many` it may be
    given several times. `argument` is what a function that it is passed to calls it, if not by its name.
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
