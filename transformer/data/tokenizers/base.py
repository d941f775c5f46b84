"""Tokenizer: the base class of all tokenizers."""

import hashlib
import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Bool, Int

from transformer.config import ConfigError
from transformer.tokens import EOS, PAD, UNK

FILE = 'tokenizer.model'  # its name in a work directory
SYMBOLS = {PAD: '<pad>', EOS: '</s>', UNK: '<unk>'}
BLANK = '\u2581'  # SentencePiece writes a blank like this, and so reads this character back as a blank


class Tokenizer:
    """A tokenizer, text to pieces and back. A kind has `encode` or `encode_batch`, `pieces` and `_text`.

    Args:
      content: the content of its file.

    Attributes:
      size: the number of pieces.
      gap: what stands for a gap in a text; never part of a longer piece.
      special: the texts that are single pieces of their own, wherever they occur.
    """

    file = FILE
    size: int
    gap = '\0'
    special: frozenset[str] = frozenset()

    def __init__(self, content: bytes):
        self.content = content
        self.sha256 = hashlib.sha256(content).hexdigest()

    def ordinary_pieces(self) -> Int[np.ndarray, ' pieces']:
        """Returns the pieces of text: all but padding, the end, the unknown piece and special ones."""
        return np.arange(len(SYMBOLS), self.size)

    def encode(self, text: str) -> list[int]:
        """Returns the pieces of one text, with EOS."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the pieces of each text, with EOS."""
        return [self.encode(text) for text in texts]

    def encode_around(self, text: str, gap: str) -> list[list[int]]:
        """Returns the pieces before, between and after the gaps of a text, with EOS.

        The blank before a gap is a part of it. U+FFFD replaces what stands for a gap in the text itself.

        Raises:
          ConfigError: the pieces do not show where the gaps are.
        """
        around, with_one = self.encode(''), self.encode(self.gap)
        mark = None if with_one == around else with_one[-2]
        given = text
        if gap != self.gap:
            text = text.replace(self.gap, '\ufffd').replace(gap, self.gap)
        tokens, gaps = self.encode(text), text.count(self.gap)
        if tokens.count(mark) > gaps:
            # The unknown piece stands for other characters, too.
            places = [self.gap in text[begin:end] for begin, end in self.offsets(text)]
        else:
            places = [True] * len(tokens)
        parts: list[list[int]] = [[]]
        for token, is_gap in zip(tokens, places, strict=True):
            if token != mark or not is_gap:
                parts[-1].append(token)
                continue
            if parts[-1] and self.pieces(parts[-1][-1:]) == [BLANK]:
                parts[-1].pop()
            parts.append([])
        if len(parts) != gaps + 1:
            raise ConfigError(f'{given!r}: the pieces do not show where its gaps are')
        return parts

    def encode_columns(self, lines: Sequence[str]) -> list[list[int]]:
        """Returns the pieces of each line's texts, which tabs separate. Each text ends in EOS."""
        texts = [line.split('\t') for line in lines]
        encoded = iter(self.encode_batch([text for of_line in texts for text in of_line]))
        return [[piece for _ in of_line for piece in next(encoded)] for of_line in texts]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Returns the first character of each piece of a text, EOS included, and the one after its last.

        A piece that stands for no characters, such as EOS, begins and ends at the same place.

        Raises:
          ConfigError: this kind of tokenizer does not know the places of its pieces.
        """
        raise ConfigError(f'{type(self).__name__}: its pieces do not show which characters they stand for')

    def word_places(self, words: Sequence[str]) -> tuple[list[int], int]:
        """Finds the piece with which each word begins, in the text of words with a blank between them.

        Returns:
          The places of the pieces, and the number of all pieces.
        """
        starts = np.cumsum([0, *(len(word) + 1 for word in words)])[:-1]
        ends = np.array([end for _, end in self.offsets(' '.join(words))])
        return np.searchsorted(np.maximum.accumulate(ends), starts, side='right').tolist(), len(ends)

    def encode_document(self, text: str) -> Int[np.ndarray, ' tokens']:
        """Returns the pieces of a text of any length, with EOS."""
        return np.array(self.encode(text), np.int32)

    def decode(self, ids: Iterable[int] | np.ndarray, *, one_line: bool = False) -> str:
        """Returns the text up to the first EOS, without PAD. With `one_line`, newlines become blanks.

        Bytes that are not UTF-8 become U+FFFD. So do UNK and ids beyond the pieces, but SentencePiece writes
        a double question mark between blanks for these, and a tokenizer of Hugging Face's leaves them out.
        """
        text = self._text(list(itertools.takewhile(lambda token: token != EOS, map(int, ids))))
        return text.replace('\n', ' ') if one_line else text

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the pieces in readable form. All but lists of pieces have "▁" where a word begins."""
        raise NotImplementedError

    def readable(self, ids: Iterable[int]) -> list[str]:
        """Returns the pieces as people read them, which can be the same for several pieces."""
        return self.pieces(ids)

    def marked(self, ids: Iterable[int]) -> list[str]:
        """Returns readable pieces with "▁" where a word begins, if the tokenizer knows words."""
        return self.readable(ids)

    def begins_words(self) -> Bool[np.ndarray, ' pieces']:
        """Returns whether each piece begins a word.

        Raises:
          ConfigError: no piece does.
        """
        begins = np.array([piece.startswith(BLANK) for piece in self.marked(range(self.size))])
        if not begins.any():
            raise ConfigError('the tokenizer has no pieces that begin words; choose data.tokenizer=bpe')
        return begins

    def _text(self, ids: list[int]) -> str:
        """Returns the text of pieces, none of which is EOS."""
        raise NotImplementedError


def utf8(text: str) -> bytes:
    """Encodes a text in UTF-8, with a question mark for a lone surrogate, which UTF-8 cannot encode."""
    return text.encode('utf-8', 'replace')
