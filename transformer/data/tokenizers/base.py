"""Tokenizer: the base class of all tokenizers."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Int

from transformer.tokens import EOS, PAD, UNK

FILE = 'tokenizer.model'  # its name in a work directory
SYMBOLS = {PAD: '<pad>', EOS: '</s>', UNK: '<unk>'}
BLANK = '\u2581'  # how SentencePiece writes a blank, and so reads this character back as a blank


class ForAllFields:
    """A codec that all fields share.

    Attributes:
      special: the texts that are single pieces of their own, wherever they stand.
    """

    special: frozenset[str] = frozenset()

    def of(self, field: str) -> 'ForAllFields':
        """The codec of a field."""
        del field
        return self


class Tokenizer(ForAllFields):
    """Turns text into pieces and back; a kind of tokenizer has `encode_batch`, `pieces` and `_text`.

    Args:
      content: what its file holds.

    Attributes:
      size: the number of pieces.
    """

    file = FILE
    size: int

    def __init__(self, content: bytes):
        self.content = content
        self.sha256 = hashlib.sha256(content).hexdigest()

    def encode(self, text: str) -> list[int]:
        """The pieces of one text, with EOS."""
        return self.encode_batch([text], threads=1)[0]

    def encode_batch(self, texts: Sequence[str], *, threads: int | None = None) -> list[list[int]]:
        """The pieces of each text, with EOS; SentencePiece uses `threads`, by default one per processor."""
        raise NotImplementedError

    def encode_document(self, text: str) -> Int[np.ndarray, ' tokens']:
        """The pieces of a text of any length, with EOS."""
        return np.array(self.encode(text), np.int32)

    def decode(self, ids: Iterable[int] | np.ndarray, *, one_line: bool = False) -> str:
        """The text up to the first EOS, without PAD; with `one_line`, newlines become blanks.

        UNK, ids beyond the pieces and bytes that are not UTF-8 become U+FFFD or, with SentencePiece, a double
        question mark.
        """
        text = self._text(list(_before_end(ids)))
        return text.replace('\n', ' ') if one_line else text

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The pieces in readable form, with "▁" where a word begins if the tokenizer knows words."""
        raise NotImplementedError

    def _text(self, ids: list[int]) -> str:
        """The text of pieces, none of which is EOS."""
        raise NotImplementedError


def utf8(text: str) -> bytes:
    """Encodes a text in UTF-8; a lone surrogate, which UTF-8 cannot encode, becomes a question mark."""
    return text.encode('utf-8', 'replace')


def _before_end(ids: Iterable[int] | np.ndarray) -> Iterator[int]:
    for token in map(int, ids):
        if token == EOS:
            return
        yield token
