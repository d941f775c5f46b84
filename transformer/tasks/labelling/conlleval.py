"""Scores chunks exactly as conlleval does, the scorer of CoNLL's shared tasks (version of 2004-01-26).

A tag is a prefix and, after the first hyphen, the chunk's type: `B-NP`. The same rules read tags of IOB1,
IOB2, IOE1 and IOE2, and brackets. They read IOBES only in part: the prefix S is unknown, and no chunk starts
at a B after an E, so `S-X S-X` and `E-X B-X` do not separate chunks. Convert such tags to IOB2 first.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.tasks import bootstrap

# Prefixes of two successive tags, of one type, between which a chunk starts or ends.
_STARTS = {('B', 'B'), ('I', 'B'), ('O', 'B'), ('O', 'I'), ('E', 'E'), ('E', 'I'), ('O', 'E')}
_ENDS = {('B', 'B'), ('B', 'O'), ('I', 'B'), ('I', 'O'), ('E', 'E'), ('E', 'I'), ('E', 'O')}
_BRACKETS = ('[', ']')  # a chunk of one word
_UNTYPED = ('O', '.')  # a change of type has no effect at these
CORRECT, PREDICTED, GOLD = range(3)  # the fields of `Chunks`


class Tag(NamedTuple):
    """The parts of a tag."""

    prefix: str
    type: str


_OUTSIDE = Tag('O', '')


class Chunks(NamedTuple):
    """Numbers of chunks, and their scores in percent: 0 where conlleval would divide by 0.

    Attributes:
      correct: predicted chunks whose words and type are a gold chunk's.
      predicted: all predicted chunks.
      gold: all gold chunks.
    """

    correct: int
    predicted: int
    gold: int

    @property
    def precision(self) -> float:
        """Returns the share of predicted chunks that are correct."""
        return 100.0 * self.correct / max(self.predicted, 1)

    @property
    def recall(self) -> float:
        """Returns the share of gold chunks that are predicted."""
        return 100.0 * self.correct / max(self.gold, 1)

    @property
    def f1(self) -> float:
        """Returns the harmonic mean of precision and recall, which conlleval calls FB1."""
        return 200.0 * self.correct / max(self.predicted + self.gold, 1)


class TagScores(NamedTuple):
    """The scores of a test set.

    Attributes:
      tokens: how many tags there are.
      right: how many tags are right.
      chunks: the chunks of all types.
      types: the chunks of each type that either side has, sorted.
      by_sentence: `Chunks` of each sentence.
    """

    tokens: int
    right: int
    chunks: Chunks
    types: dict[str, Chunks]
    by_sentence: Int[np.ndarray, 'sentences 3']

    @property
    def accuracy(self) -> float:
        """Returns the share of right tags in percent."""
        return 100.0 * self.right / max(self.tokens, 1)

    def f1(self) -> dict[str, object]:
        """Computes F1 of all types and its 95 % interval over resampled sentences."""
        return bootstrap.estimate(lambda counts: _total(counts).f1, self.by_sentence)


def score(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> TagScores:
    """Scores the tags of sentences as conlleval does if an empty line follows each sentence."""
    sides = [[[_parse(tag) for tag in tags] for tags in sentences] for sentences in (gold, predicted)]
    by_sentence, types = np.zeros((len(gold), 3), np.int64), {}
    for sentence, kind, chunk_type in _chunks(*sides):
        by_sentence[sentence, kind] += 1
        types.setdefault(chunk_type, [0, 0, 0])[kind] += 1
    pairs = [pair for tags in zip(*sides, strict=True) for pair in zip(*tags, strict=True)]
    return TagScores(
        len(pairs),
        sum(first == second for first, second in pairs),
        _total(by_sentence),
        # A chunk that only the data's end closes is correct under the type '', which no chunk need have.
        {name: Chunks(*counts) for name, counts in sorted(types.items()) if any(counts[PREDICTED:])},
        by_sentence,
    )


def _chunks(
    gold: Sequence[Sequence[Tag]], predicted: Sequence[Sequence[Tag]]
) -> Iterator[tuple[int, int, str]]:
    """Yields the sentence, the field of `Chunks` and the type of each chunk that counts.

    The end of a sentence is a tag O. It does not end a chunk whose last prefix is `.`, nor a chunk without
    type whose last prefix has no rule. As in conlleval, such a chunk is correct in a later sentence or never.
    """
    before, agree = (_OUTSIDE, _OUTSIDE), False  # agree: both sides are in one and the same chunk so far
    for sentence, tags in enumerate(zip(gold, predicted, strict=True)):
        for now in (*zip(*tags, strict=True), (_OUTSIDE, _OUTSIDE)):
            starts = list(map(_starts, before, now))
            ends = list(map(_ends, before, now))
            if agree and all(ends):
                yield sentence, CORRECT, before[0].type
            for kind, tag, start in zip((GOLD, PREDICTED), now, starts, strict=True):
                if start:
                    yield sentence, kind, tag.type
            agree = now[0].type == now[1].type and (all(starts) or (agree and not any(ends)))
            before = now
    if agree:
        yield sentence, CORRECT, before[0].type


def _parse(tag: str) -> Tag:
    prefix, _, chunk_type = tag.partition('-')
    # Perl takes the text 0 for false, so for no type.
    return Tag(prefix, '' if chunk_type == '0' else chunk_type)


def _starts(before: Tag, now: Tag) -> bool:
    changed = now.prefix not in _UNTYPED and before.type != now.type
    return changed or now.prefix in _BRACKETS or (before.prefix, now.prefix) in _STARTS


def _ends(before: Tag, now: Tag) -> bool:
    changed = before.prefix not in _UNTYPED and before.type != now.type
    return changed or before.prefix in _BRACKETS or (before.prefix, now.prefix) in _ENDS


def _total(by_sentence: Int[np.ndarray, 'sentences 3']) -> Chunks:
    return Chunks(*by_sentence.sum(0).tolist())
