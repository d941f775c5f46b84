"""Reads treebanks: files of bracketed trees, plain or gzip, as sentences and their trees."""

import itertools
import os
from collections.abc import Iterator

from etils import epath

from transformer import files
from transformer.config import ConfigError, Data
from transformer.data import trees
from transformer.data.fields import Example, Reading, Tags, Text, Tree, Words
from transformer.data.sources import entries, text
from transformer.data.sources.entries import Entry
from transformer.data.sources.text import SourceFile

_SUFFIXES = ('.mrg', '.mrg.gz')  # of the Penn Treebank's files


def rows(data: Data, reading: Reading, split: str) -> Iterator[Example]:
    """Yields each sentence of a split with its tree, cleaned as by `trees.clean`."""
    folder = entries.root(data)
    for entry in entries.parse(data, split):
        paths = _paths(data, entry, split)
        part = entry.part(sum(map(_count, paths))) if entry.suffix else slice(0, None)
        numbers = itertools.count()
        for path in paths:
            names = dict.fromkeys(reading.fields, str(path.relative_to(folder)))
            for line, tree in trees.read(text.lines(path), str(path)):
                number = next(numbers)
                if part.start <= number and (part.stop is None or number < part.stop):
                    yield row(reading, trees.clean(tree), names, line)


def _paths(data: Data, entry: Entry, split: str) -> list[epath.Path]:
    """Finds the files of an entry: one, the matches of a pattern such as *.mrg, or a folder's .mrg files."""
    folder, inside = entries.root(data), not entry.name.startswith('/')
    if inside and (folder / entry.name).is_dir():
        paths = [path for path in _below(folder / entry.name) if path.name.endswith(_SUFFIXES)]
        wanted = f'{" or ".join(_SUFFIXES)} in the folder'
    elif inside and ('*' in entry.name or '?' in entry.name):
        if '**' in entry.name:
            raise ConfigError(f'data.{split}: {entry.name}: ** is not supported; name the folder')
        paths, wanted = sorted(path for path in folder.glob(entry.name) if not path.is_dir()), 'matches'
    else:
        return [entries.find(data, entry.name, split)]
    paths = [path for path in paths if not path.name.startswith('.')]
    if not paths:
        raise ConfigError(f'data.{split}: no file {wanted} {folder / entry.name}')
    for path in paths:
        entries.check_path(path, split)
    return paths


def _below(folder: epath.Path, above: frozenset[str] = frozenset()) -> Iterator[epath.Path]:
    """Yields the files in a folder and below, in order, without hidden folders and links to one above."""
    above |= {os.path.realpath(folder)}
    for path in sorted(folder.iterdir()):
        if not path.is_dir():
            yield path
        elif not path.name.startswith('.') and os.path.realpath(path) not in above:
            yield from _below(path, above)


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
    """Describes each entry of a split by its number of trees and a hash, of its file or its files' hashes."""
    del reading
    folder = entries.root(data)
    result = []
    for entry in entries.parse(data, split):
        paths = _paths(data, entry, split)
        found = [text.origin(path, str(path.relative_to(folder))) for path in paths]
        one = found[0]
        if len(found) > 1:
            one = SourceFile(entry.name, 0, files.json_sha256([[one.name, one.sha256] for one in found]))
        part = entry.part(sum(map(_count, paths)))
        result.append(one._replace(name=one.name + entry.suffix, lines=part.stop - part.start))
    return result


def _count(path: epath.Path) -> int:
    """Counts the trees. Text that is no tree is reported by `trees.read`."""
    depth = count = 0
    for line in text.lines(path):
        for sign in line:
            if sign == '(':
                depth += 1
            elif sign == ')':
                depth -= 1
                count += depth == 0
    return count or len(list(trees.read(text.lines(path), str(path))))
