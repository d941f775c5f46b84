"""Checks the types of the values in a user's own table."""

import types
from typing import Union, get_args, get_origin, get_type_hints

# The names of types in errors.
_NAMES = {'object': 'value', 'str': 'text', 'int': 'integer', 'float': 'number', 'bool': 'True or False'}


def wrong_field(part: object) -> str:
    """Describes the first field of a named tuple or dataclass that has another type than declared.

    A list counts as a tuple, and an integer as a float.

    Returns:
      The field, its value and the type, or '' if all fields are right.
    """
    for field, kind in get_type_hints(type(part)).items():
        value = getattr(part, field)
        if not _fits(value, kind):
            return f'{field}={value!r}: expected {_name(kind)}{_hint(value, kind)}'
    return ''


def _fits(value: object, kind: object) -> bool:
    args = get_args(kind)
    if get_origin(kind) in (Union, types.UnionType):
        return any(_fits(value, one) for one in args)
    if get_origin(kind) is tuple:
        return isinstance(value, tuple | list) and not hasattr(value, '_fields') and _all_fit(value, args[0])
    if get_origin(kind) is dict:
        return isinstance(value, dict) and _all_fit(value, args[0]) and _all_fit(value.values(), args[1])
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return isinstance(value, kind)


def _all_fit(values, kind: object) -> bool:
    return all(_fits(value, kind) for value in values)


def _name(kind: object) -> str:
    args = [arg for arg in get_args(kind) if arg is not Ellipsis]
    if get_origin(kind) is tuple:
        return f'a tuple, ({_name(args[0])}, ...)'
    if get_origin(kind) is dict:
        return f'a dict, {{{_name(args[0])}: {_name(args[1])}}}'
    if args:
        return ' or '.join(map(_name, args))
    return 'None' if kind is type(None) else _NAMES.get(kind.__name__, kind.__name__)


def _hint(value: object, kind: object) -> str:
    if get_origin(kind) is tuple and _fits(value, get_args(kind)[0]):
        return '; a tuple of one needs a comma: (x,)'
    return ''
