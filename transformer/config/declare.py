"""How an option is declared, checked, parsed and listed. Which options there are is groups.py's business.

Options are fields of dataclasses, one dataclass a group. `declared` gives them by their dotted names,
as `model.h`; the functions that check a name or a value take that table first.
"""

import dataclasses
import difflib
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


class ConfigError(ValueError):
    """A user's mistake, told in one line that names the option, its value and the choices."""


Declared = Mapping[str, dataclasses.Field]


def option(
    default,
    doc: str,
    section: str = '',
    *,
    minimum=None,
    maximum=None,
    free: bool = False,
    only: tuple[str | tuple[str, ...], ...] = (),
) -> Any:
    """Declares one option of a dataclass.

    Args:
      default: the paper's value; None means that the value is derived from others.
      doc: one line.
      section: the paper's section or table, where it has one.
      minimum, maximum: inclusive bounds of a number.
      free: whether the option may change when a work directory is used again, since it does not
        change what is learned.
      only: another option and the values that it must have for this one to mean anything, then perhaps
        a second option and its values, and so on; with any other value, setting this option is refused.
    """
    bounds = {'minimum': minimum, 'maximum': maximum}
    conditions = tuple(zip(only[::2], only[1::2], strict=True))
    metadata = {'doc': doc, 'section': section, 'free': free, 'only': conditions, **bounds}
    return dataclasses.field(default=default, metadata=metadata)


def declared(config: type) -> Declared:
    """Every option of a dataclass of groups, by dotted name; `type` is the evaluated annotation."""
    found = {}
    for group in dataclasses.fields(config):
        hints = get_type_hints(group.type)
        for field in dataclasses.fields(group.type):
            field.type = hints[field.name]
            found[f'{group.name}.{field.name}'] = field
    return found


def plain_type(field: dataclasses.Field) -> type:
    """The type of an option's values: `int` for `int | None`, `str` for a Literal."""
    wanted = _without_none(field)
    return str if get_origin(wanted) is Literal else wanted


def choices(field: dataclasses.Field) -> tuple[str, ...]:
    """The values that an option can have; empty where any value of its type will do."""
    wanted = _without_none(field)
    return get_args(wanted) if get_origin(wanted) is Literal else ()


def _without_none(field: dataclasses.Field) -> type:
    """The type of an option's values, where None means that the value is derived."""
    if get_origin(field.type) in (Union, types.UnionType):
        return next(t for t in get_args(field.type) if t is not type(None))
    return field.type


def check_name(table: Declared, key: str) -> None:
    """Raises ConfigError where `key` is no option, with the nearest one."""
    if key not in table:
        raise ConfigError(f'{key}: no such option{_nearest(key, table)}')


def check_value(table: Declared, key: str, value: object) -> object:
    """The value of option `key` in its declared type.

    Raises:
      ConfigError: the value has another type, is none of the choices or is out of bounds.
    """
    field = table[key]
    wanted = plain_type(field)
    if value is None and _without_none(field) is not field.type:
        return None
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted:
        raise ConfigError(f'{key}={value!r}: expected {wanted.__name__}, got {type(value).__name__}')
    if choices(field) and value not in choices(field):
        hint = _suggestion(value, {choice: choice for choice in choices(field)})
        raise ConfigError(f'{key}={value!r}: choose one of {", ".join(choices(field))}{hint}')
    if wanted is float and not math.isfinite(value):
        raise ConfigError(f'{key}={value}: must be finite')
    low, high = field.metadata['minimum'], field.metadata['maximum']
    within = (low is None or value >= low) and (high is None or value <= high)
    if wanted in (int, float) and not within:
        bounds = f'at least {low}' if high is None else f'from {low} to {high}'
        raise ConfigError(f'{key}={value}: must be {bounds}')
    return value


def parse_value(table: Declared, key: str, text: str) -> object:
    """The value of option `key` as a command line writes it.

    Raises:
      ConfigError: there is no such option, or the text is not a value of it.
    """
    check_name(table, key)
    wanted = plain_type(table[key])
    if wanted is str:
        return check_value(table, key, text)
    if wanted is bool:
        # bool('False') is true.
        return check_value(table, key, {'true': True, 'false': False}.get(text.lower(), text))
    try:
        return check_value(table, key, wanted(text))
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f'{key}={text!r}: expected {wanted.__name__}') from None


def check_meaning(table: Declared, values: Mapping[str, object]) -> None:
    """Raises ConfigError where an option was set that means nothing beside the others."""
    for key, field in table.items():
        if values[key] == field.default:
            continue
        for other, wanted in field.metadata['only']:
            if values[other] not in wanted:
                raise ConfigError(
                    f'{key}={values[key]!r}: means nothing with {other}={values[other]!r}, only with '
                    f'{" or ".join(map(str, wanted))}'
                )


def has_meaning(table: Declared, values: Mapping[str, object], key: str) -> bool:
    """Whether option `key` means anything beside the values of the others."""
    return all(values[other] in wanted for other, wanted in table[key].metadata['only'])


def markdown(table: Declared) -> str:
    """A table of all options: name, default, values, section and meaning."""
    lines = ['| option | default | values | section | meaning |', '|---|---|---|---|---|']
    for key, field in table.items():
        values = ', '.join(choices(field)) or plain_type(field).__name__
        default = 'none' if field.default is None else field.default
        conditions = [f'`{k}={" or ".join(map(str, v))}`' for k, v in field.metadata['only']]
        where = f' (only with {" and ".join(conditions)})' if conditions else ''
        meaning = field.metadata['doc'] + where
        lines.append(f'| `{key}` | {default} | {values} | {field.metadata["section"]} | {meaning} |')
    return '\n'.join(lines) + '\n'


def _nearest(key: str, table: Declared) -> str:
    """A hint at the option that is meant: the same name elsewhere, else a near one in its group, else any."""
    group, _, name = key.rpartition('.')
    names = {known.rpartition('.')[2]: known for known in table}
    same = names if name in names else {n: k for n, k in names.items() if k.startswith(f'{group}.')}
    return _suggestion(name, same) or _suggestion(name, names)


def _suggestion(word: str, known: Mapping[str, str]) -> str:
    """A hint at the nearest word, by what is known of each; empty where none is near."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.65)
    return f'; did you mean {known[near[0]]!r}?' if near else ''
