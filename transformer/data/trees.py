"""Constituency trees: bracketed text, and sequences of brackets without words (Vinyals et al. 2015)."""

import collections
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from transformer.config import ConfigError

ROOT = 'TOP'
ROOTS = (ROOT, 'ROOT', 'S1', '')  # the treebanks' names of a sentence's root
EMPTY = '-NONE-'  # the tag of traces and other words that are not in the sentence
WORD = 'XX'  # stands for a word whose tag is left out

# As in EVALB, blanks beyond ASCII belong to words.
_TOKEN = re.compile(r'[()]|[^\s()]+', re.ASCII)


class Constituent(NamedTuple):
    """A constituent with its parts, or a tag with its word."""

    label: str
    parts: tuple['Constituent', ...] | str

    @property
    def is_word(self) -> bool:
        """Returns whether this is a tag with its word."""
        return isinstance(self.parts, str)


def read(lines: Iterable[str], name: str) -> Iterator[tuple[int, Constituent]]:
    """Yields the line where each tree begins, from 1, and the tree, which can have many lines.

    Args:
      name: the name of the text, for errors.

    Raises:
      ConfigError: brackets do not match, or something is neither a constituent nor a tag with one word.
    """
    fail = lambda line, reason: ConfigError(f'{name}: line {line}: {reason}')
    stack: list[tuple[str | None, list]] = []  # the labels and parts of open constituents
    begin = number = 1
    for number, line in enumerate(lines, 1):
        for token in _TOKEN.findall(line):
            if token == '(':
                begin = begin if stack else number
                stack.append((None, []))
            elif not stack:
                raise fail(number, f'"{token}" is outside a tree')
            elif token != ')':
                label, parts = stack[-1]
                if label is None and not parts:
                    stack[-1] = token, parts
                else:
                    parts.append(token)
            else:
                label, parts = stack.pop()
                if reason := _fault(label, parts):
                    raise fail(number, reason)
                whole = len(parts) == 1 and isinstance(parts[0], str)
                tree = Constituent(label or '', parts[0] if whole else tuple(parts))
                if stack:
                    stack[-1][1].append(tree)
                else:
                    yield begin, tree
    if stack:
        raise fail(begin, f'{len(stack)} brackets of this tree are still open at the end')


def _fault(label: str | None, parts: list) -> str | None:
    """Returns the reason why a label with these parts is no tree, if it is none."""
    words = [part for part in parts if isinstance(part, str)]
    if words and len(parts) > 1:
        return f'({label or ""} ...) has the word "{words[0]}" beside other parts'
    return None if parts else f'({label or ""}) is empty'


def one(text: str, name: str = 'a line') -> Constituent | None:
    """Reads and cleans the only tree of a text, or returns None for a text without words.

    Raises:
      ConfigError: the text is no tree, or several trees.
    """
    found = [clean(tree) for _, tree in read([text], name)]
    if len(found) > 1:
        raise ConfigError(f'{name}: {len(found)} trees; expected one')
    return found[0] if found else None


def clean(tree: Constituent) -> Constituent | None:
    """Removes traces, empty constituents, function tags and the root's name.

    A function tag follows the label: NP-SBJ-1, NP=2.

    Returns:
      A tree with the root `ROOT`, or None if no word is left.
    """
    forest = tree.parts if tree.label in ROOTS and not tree.is_word else (tree,)
    stack: list[list[Constituent]] = [[]]  # the parts of what is open
    for event, part in walk(Constituent(ROOT, tuple(forest))):
        if event == 'open':
            stack.append([])
        elif event == 'word':
            stack[-1] += [part] if part.label != EMPTY else []
        elif parts := stack.pop():
            stack[-1].append(Constituent(_without_function(part.label), tuple(parts)))
    return next(iter(stack[0]), None)


@functools.cache
def _without_function(label: str) -> str:
    return re.sub(r'(?<=.)[-=].*', '', label)


def walk(tree: Constituent) -> Iterator[tuple[str, Constituent]]:
    """Yields the steps of reading a tree: ('open', constituent), ('word', leaf), ('close', constituent).

    It does not recurse: a bad output of a model, or a damaged file, can be a thousand brackets deep.
    """
    stack = [('open', tree)]
    while stack:
        event, part = stack.pop()
        if isinstance(part.parts, str):  # `is_word` without the time of a call
            yield 'word', part
            continue
        yield event, part
        if event == 'open':
            stack.append(('close', part))
            stack += [('open', child) for child in reversed(part.parts)]


def leaves(tree: Constituent | None) -> list[Constituent]:
    """Returns the words of a tree, each with its tag, or [] for None."""
    return [part for event, part in walk(tree) if event == 'word'] if tree else []


def words(tree: Constituent | None) -> list[str]:
    """Returns the words of a tree."""
    return [leaf.parts for leaf in leaves(tree)]


def bracketed(tree: Constituent | None) -> str:
    """Formats a tree as one line of text, '' for None or a tree without words."""
    if tree is None or not tree.parts:
        return ''
    signs = {'open': ' ({0.label}', 'word': ' ({0.label} {0.parts})', 'close': ')'}
    return ''.join(signs[event].format(part) for event, part in walk(tree))[1:]


def linearize(tree: Constituent, *, tags: bool = False) -> str:
    """Returns the brackets under the root, separated by blanks: (NP XX XX )NP.

    Args:
      tags: whether each word's tag stands for it, in place of `WORD`.
    """
    signs = {'open': '(', 'close': ')', 'word': ''}
    tokens = [
        WORD if event == 'word' and not tags else signs[event] + part.label for event, part in walk(tree)
    ]
    return ' '.join(tokens[1:-1])


def symbols(trees: Iterable[Constituent], *, tags: bool = False) -> list[str]:
    """Returns the distinct tokens of linearised trees, the most frequent first."""
    counts = collections.Counter(token for tree in trees for token in linearize(tree, tags=tags).split(' '))
    return sorted(counts, key=lambda token: (-counts[token], token))


class Repairs(NamedTuple):
    """The number of times that each rule of `to_tree` was needed."""

    missing_closings: int = 0
    stray_closings: int = 0
    too_many_words: int = 0
    too_few_words: int = 0
    empty_constituents: int = 0
    brackets_in_labels: int = 0


def to_tree(
    text: str, sentence: Sequence[str], tags: Sequence[str] | None = None
) -> tuple[Constituent, Repairs]:
    """Builds the tree that linearised text describes over the words of a sentence, matched by position.

    Every text gives a tree with all the words. A closing bracket also closes the constituents open inside its
    own; if its own is not open, the bracket is left out. Words beyond the sentence's are left out. Missing
    words join the innermost open constituent or, if all are closed, the last one. Constituents without
    words are left out, and brackets inside a label, too.

    Args:
      tags: each word's tag; without it, the tokens that stand for the words are their tags.
    """
    counts: dict[str, int] = collections.Counter()
    # The open constituents, from the root, which is never closed.
    stack: list[tuple[str, list[Constituent]]] = [(ROOT, [])]
    used = 0

    def add_word(token: str) -> None:
        nonlocal used
        stack[-1][1].append(Constituent(tags[used] if tags else token, sentence[used]))
        used += 1

    def close() -> None:
        label, parts = stack.pop()
        if parts:
            stack[-1][1].append(Constituent(label, tuple(parts)))
        else:
            counts['empty_constituents'] += 1

    for written in text.split():
        token = written[0] + re.sub('[()]', '', written[1:])
        counts['brackets_in_labels'] += token != written
        if token[0] == '(' and len(token) > 1:
            stack.append((token[1:], []))
        elif token[0] in '()':
            open_labels = [label for label, _ in stack[1:]]
            if token[1:] not in open_labels:
                counts['stray_closings'] += 1
                continue
            while stack[-1][0] != token[1:]:
                counts['missing_closings'] += 1
                close()
            close()
        elif used < len(sentence):
            add_word(token)
        else:
            counts['too_many_words'] += 1
    counts['too_few_words'] = len(sentence) - used
    counts['missing_closings'] += len(stack) - 1
    if used < len(sentence) and len(stack) == 1 and stack[0][1] and not stack[0][1][-1].is_word:
        last = stack[0][1].pop()
        stack.append((last.label, list(last.parts)))
    while used < len(sentence):
        add_word(WORD)
    while len(stack) > 1:
        close()
    return Constituent(ROOT, tuple(stack[0][1])), Repairs(**counts)
