"""The scores of two models beside each other."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from transformer.tasks.contract import Evaluation

NAMES = ('A', 'B')
_LONGEST = 30  # of a name in a table


class Measure(NamedTuple):
    """A number in an entry of result.json: the keys that lead to it, and the decimals that people see."""

    path: tuple[str, ...]
    decimals: int = 4


def differences(
    first: Evaluation, second: Evaluation, measures: Mapping[str, Measure]
) -> dict[str, dict[str, float]]:
    """For each measure that both have, by its name, the two scores and the second minus the first."""
    found = {}
    for name, measure in measures.items():
        a, b = _at(first.entry, measure.path), _at(second.entry, measure.path)
        if a is not None and b is not None:
            found[name] = {'a': a, 'b': b, 'difference': b - a}
    return found


def _at(entry: Mapping, path: Sequence[str]) -> float | None:
    for key in path:
        if key not in entry:
            return None
        entry = entry[key]
    return entry


def table(found: Mapping[str, Mapping[str, float]], measures: Mapping[str, Measure]) -> list[str]:
    """The result of `differences` as lines for people, at most 80 columns wide."""
    # What stands in brackets says how a score was computed; `evaluate` shows it.
    names = {name: name if len(name) <= _LONGEST else name.partition(' (')[0] for name in found}
    width = max(map(len, names.values()), default=0)
    a, b = NAMES
    lines = [f'{"":<{width}}  {a:>10}  {b:>10}  {f"{b} minus {a}":>10}']
    for name, row in found.items():
        form = f'.{measures[name].decimals}f'
        numbers = f'{row["a"]:>10{form}}  {row["b"]:>10{form}}  {row["difference"]:>+10{form}}'
        lines.append(f'{names[name]:<{width}}  {numbers}')
    return lines
