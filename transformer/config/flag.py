"""The declaration of a command-line flag."""

from typing import NamedTuple


class Flag(NamedTuple):
    """A flag, declared once for all commands that take it; `value` is its placeholder in the help.

    A number must be from `least` to `most`, a text one of the `choices`, if there are any. With `many` the
    flag can be repeated. `argument` is the parameter that receives its value, if the name differs.
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
