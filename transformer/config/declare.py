"""Declares, checks, parses and lists options. options.py has the options themselves.

Options are fields of dataclasses, one dataclass per group. `declared` lists them by dotted name, such as
`model.h`. The functions that check a name or a value take this table as their first argument.
"""

import copy
import dataclasses
import difflib
import functools
import math
import re
import types
from collections.abc import Collection, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from transformer import files
from transformer.config.foreign_names import OURS
from transformer.errors import ConfigError

Declared = Mapping[str, dataclasses.Field]
_LARGE = 1 << 63  # whole numbers stay below it
# Other options and the values that they must have: (name, values, name, values, ...).
Conditions = tuple[str | tuple[object, ...], ...]


def option(
    default,
    doc: str,
    section: str = '',
    *,
    minimum=None,
    maximum=None,
    free: bool | Literal['evaluation'] = False,
    only: Conditions = (),
    besides: tuple[str, Mapping[str, tuple[str, ...]]] | None = None,
    once: tuple[str, ...] = (),
    old_values: Mapping[str, tuple[object, Conditions]] = types.MappingProxyType({}),
) -> Any:
    """Declares one option of a dataclass.

    Args:
      default: the paper's value, or None if the value is derived from other options.
      doc: its meaning in one line.
      section: the paper's section or table, if it has one.
      minimum, maximum: inclusive bounds of a number.
      free: whether the option can change when a work directory is used again, because it does not change
        what is learned, or 'evaluation' if it changes the evaluation of a trained model.
      only: conditions that give the option a meaning. Without them, setting it is refused.
      besides: another option and, by its values, names that have a meaning without the conditions: the option
        lists them, separated by commas, each perhaps with a slice in brackets.
      once: its earlier names in the same group, which stay readable.
      old_values: earlier values, which stay readable, each with today's value and its conditions.
    """
    common = dict(doc=doc, section=section, free=free, only=_pairs(only), besides=besides)
    common |= dict(once=once, old_values=old_values, minimum=minimum, maximum=maximum)
    return dataclasses.field(default=default, metadata=common)


def group(options: type, *, only: Conditions = (), free: bool | Literal['evaluation'] = False) -> Any:
    """Declares the fields of a dataclass as a group of options. `only` and `free` apply to all of them."""
    return dataclasses.field(default=options(), metadata={'only': _pairs(only), 'free': free})


def _pairs(only: Conditions) -> tuple[tuple[str, tuple[object, ...]], ...]:
    return tuple(zip(only[::2], only[1::2], strict=True))


def declared(config: type) -> Declared:
    """Lists every option of a dataclass of groups by its dotted name, with its annotation evaluated."""
    options = {}
    for part in dataclasses.fields(config):
        hints, common = get_type_hints(part.type), part.metadata
        for field in map(copy.copy, dataclasses.fields(part.type)):
            field.type = hints[field.name]
            inherited = {
                # An option's own condition is narrower than its group's.
                'only': tuple((dict(common.get('only', ())) | dict(field.metadata['only'])).items()),
                'free': field.metadata['free'] or common.get('free', False),
            }
            field.metadata = types.MappingProxyType({**field.metadata, **inherited})
            options[f'{part.name}.{field.name}'] = field
    return options


@functools.cache
def plain_type(field: dataclasses.Field) -> type:
    """Returns the type of an option's values: `int` for `int | None`, `str` for a Literal."""
    kind = _without_none(field)
    return str if get_origin(kind) is Literal else kind


@functools.cache
def choices(field: dataclasses.Field) -> tuple[str, ...]:
    """Lists the values that an option can have. The list is empty if all values of its type are allowed."""
    kind = _without_none(field)
    return get_args(kind) if get_origin(kind) is Literal else ()


@functools.cache
def _without_none(field: dataclasses.Field) -> Any:
    """Returns the type of an option's values except None, which means that the value is derived."""
    if get_origin(field.type) in (Union, types.UnionType):
        return next(t for t in get_args(field.type) if t is not type(None))
    return field.type


def check_name(table: Declared, key: str) -> str:
    """Returns the present name of option `key`, which can be one of its earlier names.

    Raises:
      ConfigError: there is no such option.
    """
    if key in table:
        return key
    part, _, name = key.rpartition('.')
    for present, field in table.items():
        if present.startswith(f'{part}.') and name in field.metadata['once']:
            return present
    raise ConfigError(f'{key}: no such option{nearest(key, table)}')


def check_value(table: Declared, key: str, value: object) -> object:
    """Returns the value of option `key` in the declared type.

    Raises:
      ConfigError: the option cannot have this value.
    """
    field = table[key]
    kind = plain_type(field)
    if value is None and _without_none(field) is not field.type:
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str) and value in field.metadata['old_values']:
        return value
    if type(value) is int and abs(value) >= _LARGE:
        raise ConfigError(f'{key}: too large a number')
    if isinstance(value, str) and not files.is_utf8(value):
        raise ConfigError(f'{key}={value!a}: not UTF-8')
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise ConfigError(f'{key}={value!r}: expected {kind.__name__}, got {type(value).__name__}')
    if choices(field) and value not in choices(field):
        hint = _suggestion(value, {choice: choice for choice in choices(field)})
        raise ConfigError(f'{key}={value!r}: choose one of {", ".join(choices(field))}{hint}')
    if kind is float and not math.isfinite(value):
        raise ConfigError(f'{key}={value}: must be finite')
    low, high = field.metadata['minimum'], field.metadata['maximum']
    within = (low is None or value >= low) and (high is None or value <= high)
    if kind in (int, float) and not within:
        bounds = f'at least {low}' if high is None else f'from {low} to {high}'
        raise ConfigError(f'{key}={value}: must be {bounds}')
    return value


def parse_value(table: Declared, key: str, text: str) -> object:
    """Returns the value of option `key` that a command line gives as text.

    'none' resets an option whose default is None, unless it is one of its choices.
    """
    field = table[key]
    kind = plain_type(field)
    if text.lower() == 'none' and field.default is None and 'none' not in choices(field):
        return None
    if kind is bool:
        # bool('False') is true.
        return check_value(table, key, {'true': True, 'false': False}.get(text.lower(), text))
    try:
        value = kind(text)
    except ValueError:
        raise ConfigError(f'{key}={text!r}: expected {kind.__name__}') from None
    return check_value(table, key, value)


def present_values(table: Declared, values: Mapping[str, object]) -> dict[str, object]:
    """Replaces earlier values by the present ones. Raises ConfigError if other options conflict with one."""
    present = dict(values)
    for key, field in table.items():
        if present[key] in field.metadata['old_values']:
            value, conditions = field.metadata['old_values'][present[key]]
            _check_conditions(f'{key}={present[key]!r}', _pairs(conditions), present)
            present[key] = value
    return present


def check_meaning(table: Declared, values: Mapping[str, object]) -> None:
    """Raises ConfigError if an option is set that the other options make meaningless."""
    for key, field in table.items():
        if values[key] != field.default and not _lists_names(field, values[key], values):
            hint = ''
            if names := _names_besides(field, values):
                hint = f'; this one has {", ".join(names)}, each perhaps with a slice'
            _check_conditions(f'{key}={values[key]!r}', field.metadata['only'], values, hint)


def _names_besides(field: dataclasses.Field, values: Mapping[str, object]) -> tuple[str, ...]:
    """Returns the names that the option can list although its conditions are not met."""
    other, names = field.metadata['besides'] or (None, {})
    return names.get(values.get(other), ())


def _lists_names(field: dataclasses.Field, value: object, values: Mapping[str, object]) -> bool:
    """Returns whether a value lists such names."""
    names = _names_besides(field, values)
    name = rf'({"|".join(names)})(\[[^\]]*\])?'
    return bool(names and re.fullmatch(f'{name}(,{name})*', str(value)))


def _check_conditions(setting: str, conditions: tuple, values: Mapping[str, object], hint: str = '') -> None:
    for other, allowed in conditions:
        if values[other] not in allowed:
            raise ConfigError(
                f'{setting}: means nothing with {other}={values[other]!r}, only with '
                f'{" or ".join(map(str, allowed))}{hint}'
            )


def has_meaning(table: Declared, values: Mapping[str, object], key: str) -> bool:
    """Returns whether option `key` has a meaning with the values of the other options."""
    field = table[key]
    return _lists_names(field, values[key], values) or all(
        values[other] in allowed for other, allowed in field.metadata['only']
    )


def drop_unused(
    table: Declared, values: Mapping[str, object], changed: Collection[str]
) -> tuple[dict[str, object], list[str]]:
    """Resets options that changes of other options have made meaningless.

    Returns:
      The values of all options, and the names of those that were reset, none of which is in `changed`.
    """
    values, reset_keys = dict(values), []
    for key, field in table.items():
        meaningless = any(k in changed and values[k] not in allowed for k, allowed in field.metadata['only'])
        always = values[key] == field.default or _lists_names(field, values[key], values)
        if meaningless and key not in changed and not always:
            values[key] = field.default
            reset_keys.append(key)
    return values, reset_keys


def markdown(table: Declared) -> str:
    """Writes a table of all options: name, default, values, section and meaning."""
    lines = ['| option | default | values | section | meaning |', '|---|---|---|---|---|']
    for key, field in table.items():
        values = ', '.join(choices(field)) or plain_type(field).__name__
        default = 'none' if field.default is None else field.default
        conditions = [f'`{k}={" or ".join(map(str, v))}`' for k, v in field.metadata['only']]
        where = f' (only with {" and ".join(conditions)})' if conditions else ''
        meaning = field.metadata['doc'] + where
        lines.append(f'| `{key}` | {default} | {values} | {field.metadata["section"]} | {meaning} |')
    return '\n'.join(lines) + '\n'


def nearest(key: str, table: Declared) -> str:
    """Suggests our name for another library's, the same name in another group, or a similar name."""
    part, _, name = key.rpartition('.')
    if name.replace('-', '_').lower() in OURS:
        return f'; here it is {OURS[name.replace("-", "_").lower()]}'
    names: dict[str, str] = {}
    for known in table:
        names.setdefault(known.rpartition('.')[2], known)
    candidates = names if name in names else {n: k for n, k in names.items() if k.startswith(f'{part}.')}
    return _suggestion(name, candidates) or _suggestion(name, names)


def _suggestion(word: str, known: Mapping[str, str]) -> str:
    """Suggests the value of the most similar word in `known`, or returns '' if none is similar."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.65)
    return f'; did you mean {known[near[0]]!r}?' if near else ''
