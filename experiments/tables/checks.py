"""Checks the table of a user's own file."""

import difflib
import re
import types
from collections.abc import Iterable
from typing import Union, get_args, get_origin, get_type_hints

from experiments.tables.table import PAPER_COSTS, RECORD_FIELDS, TEST_SETS, Measure, Table
from transformer import tasks
from transformer.config import ConfigError

# The names of types in errors.
_NAMES = {'object': 'value', 'str': 'text', 'int': 'integer', 'float': 'number', 'bool': 'True or False'}


def check_table(table: object, file: str) -> Table:
    """Returns a file's table if it is right. The values that its rows change are checked at their use."""
    if not isinstance(table, Table) or not table.rows:
        raise ConfigError(f'{file}: TABLE must be a Table(rows, split, measures) with rows')
    if wrong := _wrong_field(table):
        raise ConfigError(f'{file}: TABLE: {wrong}')
    measures = [measure for measure in table.measures if isinstance(measure, Measure)]
    for kind, parts in (('rows', table.rows), ('measures', measures)):
        for part in parts:
            if wrong := _wrong_field(part):
                raise ConfigError(f'{file}: {type(part).__name__} {part.name!r}: {wrong}')
        check_distinct(f'{file}: two {kind}', [part.name for part in parts])
    for row in table.rows:
        if not re.fullmatch(r'\w[\w.+-]*', row.name):
            raise ConfigError(f'{file}: row {row.name!r}: a name of letters, digits, "_", ".", "+" and "-"')
    _check_choice(f'{file}: TABLE: split', table.split, ('dev', 'test'))
    _check_choice(f'{file}: TABLE: base', table.base, [row.name for row in table.rows])
    if sum(measure.significance for measure in measures) > 1:
        raise ConfigError(f'{file}: significance: only one measure may have it')
    if table.noise:
        _check_choice(f'{file}: TABLE: noise', table.noise, TEST_SETS)
    _check_scores(table, file)
    return table


def check_distinct(what: str, names: list[str]) -> None:
    """Raises ConfigError if a name occurs twice."""
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f'{what} are called {twice[0]!r}')


def _check_scores(table: Table, file: str) -> None:
    """Raises ConfigError if a table names a score that no task and no measure of its own has."""
    of_tasks = [measure for task in tasks.all_tasks() for measure in task.measures]
    names = dict.fromkeys(measure.name for measure in of_tasks)
    for measure in table.measures:
        if not isinstance(measure, Measure):
            _check_choice(f'{file}: TABLE: measures', measure, names)
        elif measure.name in RECORD_FIELDS:
            raise ConfigError(f'{file}: Measure {measure.name!r}: reports have a field of this name')
    for task in tasks.all_tasks():
        named = {measure.name: measure.heading or measure.name for measure in task.measures}
        printed = [named.get(m) if isinstance(m, str) else m.name for m in table.measures]
        check_distinct(f'{file}: TABLE: two measures', list(filter(None, printed)))
    headings = dict.fromkeys(measure.heading or measure.name for measure in of_tasks)
    own = dict.fromkeys(key for m in table.measures if isinstance(m, Measure) for key in m.paper)
    for row in table.rows:
        for key in row.paper:
            _check_choice(f'{file}: row {row.name!r}: paper', key, [*own, *headings, *PAPER_COSTS])


def _check_choice(setting: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        near = difflib.get_close_matches(value, choices, n=1)
        hint = f'did you mean {near[0]!r}?' if near else f'choose one of {", ".join(choices)}'
        raise ConfigError(f'{setting}={value!r}: {hint}')


def _wrong_field(part: object) -> str:
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
