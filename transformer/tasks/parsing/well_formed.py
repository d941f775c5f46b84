"""The grammar of outputs that are trees over a sentence's words (`decode.well_formed`)."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from transformer.data import trees
from transformer.data.tokenizers.base import BLANK
from transformer.tokens import EOS

_OTHER, _WORD, _OPEN, _CLOSE = range(4)


class Written(NamedTuple):
    """What hypotheses have written so far.

    Attributes:
      labels: the numbers of the labels of open constituents, from the outermost.
      depth: how many constituents are open.
      words: how many words are still to be written.
      left: how many pieces can still be written, the end included.
      empty: whether the innermost open constituent has no part yet.
    """

    labels: Int[Array, 'R D']
    depth: Int[Array, 'R']
    words: Int[Array, 'R']
    left: Int[Array, 'R']
    empty: Bool[Array, 'R']


class Brackets(NamedTuple):
    """Allows exactly the linearised trees over a number of words.

    Each closing bracket has the label of the innermost open constituent, none is empty, and the output ends
    within its limit.

    Attributes:
      kinds: each piece's kind: a word, an opening or a closing bracket, or another piece, which no tree has.
      labels: the number of each bracket's label.
    """

    kinds: tuple[int, ...]
    labels: tuple[int, ...]

    @classmethod
    def of(cls, pieces: Sequence[str], size: int, *, tags: bool) -> 'Brackets':
        """Classifies a tokenizer's pieces.

        Args:
          size: rows of the model's softmax, which may be more.
          tags: whether any piece that is a whole word can stand for a word, as its tag; else `trees.WORD`.
        """
        names = {piece[2:] for piece in pieces if piece.startswith(f'{BLANK}(')}
        names &= {piece[2:] for piece in pieces if piece.startswith(f'{BLANK})')}
        numbers = {name: number for number, name in enumerate(sorted(names - {''}))}

        def kind(piece: str) -> int:
            sign, name = piece[1:2], piece[2:]
            if not piece.startswith(BLANK) or not sign:
                return _OTHER
            if sign in '()':
                return {'(': _OPEN, ')': _CLOSE}[sign] if name in numbers else _OTHER
            return _WORD if tags or piece[1:] == trees.WORD else _OTHER

        pieces = [*pieces, *[''] * (size - len(pieces))]
        return cls(tuple(map(kind, pieces)), tuple(numbers.get(piece[2:], -1) for piece in pieces))

    def start(self, limits: Int[Array, 'B'], number: Int[Array, 'B'], longest: int) -> Written:
        """Computes the state before the first piece.

        Args:
          limits: each output's most pieces, the end included.
          number: each sentence's words, of which no more are written than fit.
          longest: the greatest limit.
        """
        rows, zeros = len(limits), jnp.zeros_like(limits)
        # A constituent needs two brackets, and one is room for the end.
        labels = jnp.zeros((rows, longest // 2 + 1), jnp.int32)
        return Written(labels, zeros, jnp.minimum(number, limits - 1), limits, zeros > 0)

    def advance(self, written: Written, tokens: Int[Array, 'R']) -> tuple[Written, Bool[Array, 'R V']]:
        """Computes what is written after one more piece, and which pieces may follow."""
        kinds, labels = jnp.asarray(self.kinds), jnp.asarray(self.labels)
        kind, label = kinds[tokens], labels[tokens]
        opens, closes, is_word = (kind == k for k in (_OPEN, _CLOSE, _WORD))
        here = jnp.arange(written.labels.shape[1])[None] == written.depth[:, None]
        after = Written(
            labels=jnp.where(here & opens[:, None], label[:, None], written.labels),
            depth=written.depth + opens - closes,
            words=written.words - is_word,
            # The start is no piece of the output.
            left=written.left - (kind != _OTHER),
            empty=jnp.where(kind == _OTHER, written.empty, opens),
        )
        column, row = lambda x: x[:, None], lambda x: x[None]
        innermost = jnp.take_along_axis(after.labels, column(jnp.maximum(after.depth - 1, 0)), axis=1)
        # Behind one more opening bracket: itself, all words, as many closing brackets, and the end.
        fits = after.left >= after.words + after.depth + 3
        allowed = row(kinds == _WORD) & column(after.words > 0)
        allowed |= row(kinds == _OPEN) & column((after.words > 0) & fits)
        closable = row(kinds == _CLOSE) & (row(labels) == innermost)
        allowed |= closable & column((after.depth > 0) & ~after.empty)
        allowed |= row(jnp.arange(len(kinds)) == EOS) & column((after.depth == 0) & (after.words == 0))
        return after, allowed
