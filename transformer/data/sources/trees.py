"""Reads treebanks: files of bracketed trees, plain or gzip, as sentences and their trees."""

from collections.abc import Iterable, Iterator

from transformer.config import Data
from transformer.data import trees
from transformer.data.fields import Example, Reading, Tags, Text, Tree, Words
from transformer.data.sources import entries, text
from transformer.data.sources.text import SourceFile


def rows(data: Data, reading: Reading, split: str) -> Iterator[Example]:
    """Yields each sentence of a split with its tree, cleaned as by `trees.clean`."""
    folder = entries.root(data)
    for entry in entries.parse(data, split):
        path = entries.find(data, entry.name, split)
        part = entry.part(_count(text.lines(path))) if entry.suffix else slice(0, None)
        names = dict.fromkeys(reading.fields, str(path.relative_to(folder)))
        for number, (line, tree) in enumerate(trees.read(text.lines(path), str(path))):
            if part.start <= number and (part.stop is None or number < part.stop):
                yield row(reading, trees.clean(tree), names, line)


def row(reading: Reading, tree: trees.Constituent | None, names: dict[str, str], line: int) -> Example:
    """Makes a row of a tree's words, of their tags, and of the tree itself, '' without a tree."""
    forms = {
        Tree: trees.bracketed,
        Text: lambda tree: ' '.join(trees.words(tree)),
        Words: trees.words,
        Tags: lambda tree: [leaf.label for leaf in trees.leaves(tree)],
    }
    values = {name: forms[type(field)](tree) for name, field in reading.fields.items()}
    return Example(values, names, line)


def origins(data: Data, reading: Reading, split: str) -> list[SourceFile]:
    """Describes the files of a split by their numbers of trees."""
    del reading
    folder = entries.root(data)
    result = []
    for entry in entries.parse(data, split):
        path = entries.find(data, entry.name, split)
        origin = text.origin(path, str(path.relative_to(folder)) + entry.suffix)
        part = entry.part(_count(text.lines(path)))
        result.append(origin._replace(lines=part.stop - part.start))
    return result


def _count(lines: Iterable[str]) -> int:
    """Counts the trees. `trees.read` reports faults."""
    depth = count = 0
    for line in lines:
        for sign in line:
            if sign == '(':
                depth += 1
            elif sign == ')':
                depth -= 1
                count += depth == 0
    return count
