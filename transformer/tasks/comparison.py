"""The scores of two models beside each other."""

from collections.abc import Mapping, Sequence

from transformer.tasks.contract import Evaluation

NAMES = ('A', 'B')


def differences(
    first: Evaluation, second: Evaluation, measures: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, float]]:
    """For each measure that both have, the two scores and how much the second is higher.

    Args:
      measures: by their names for people, the keys that lead to each in an entry of result.json.
    """
    found = {}
    for name, path in measures.items():
        a, b = _at(first.entry, path), _at(second.entry, path)
        if a is not None and b is not None:
            found[name] = {'a': a, 'b': b, 'difference': b - a}
    return found


def _at(entry: Mapping, path: Sequence[str]) -> float | None:
    for key in path:
        if key not in entry:
            return None
        entry = entry[key]
    return entry


def table(found: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The result of `differences` as lines for people."""
    width = max(map(len, found), default=0)
    lines = [f'{"":<{width}}  {NAMES[0]:>10}  {NAMES[1]:>10}  {"difference":>11}']
    for name, row in found.items():
        lines.append(f'{name:<{width}}  {row["a"]:>10.4f}  {row["b"]:>10.4f}  {row["difference"]:>+11.4f}')
    return lines
