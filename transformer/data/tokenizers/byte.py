"""Bytes of UTF-8 as pieces."""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Int

from transformer.data.tokenizers.base import BLANK, SYMBOLS, Tokenizer, utf8
from transformer.tokens import EOS, PAD, UNK

BYTES = b'{"tokenizer": "bytes"}\n'  # the content; no SentencePiece model begins with it


class ByteTokenizer(Tokenizer):
    """A tokenizer whose pieces are bytes of UTF-8. A byte's piece is its value + 3."""

    size = 256 + len(SYMBOLS)

    def __init__(self):
        super().__init__(BYTES)

    def encode(self, text: str) -> list[int]:
        """Returns the pieces of one text, with EOS."""
        return self.encode_document(text).tolist()

    def encode_document(self, text: str) -> Int[np.ndarray, ' tokens']:
        """Returns the pieces of a text of any length, with EOS."""
        content = np.frombuffer(utf8(text), np.uint8).astype(np.int32) + len(SYMBOLS)
        return np.concatenate([content, np.array([EOS], np.int32)])

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Returns the place of each byte's character."""
        places = [(i, i + 1) for i, character in enumerate(text) for _ in utf8(character)]
        return [*places, (len(text), len(text))]

    def _text(self, ids: list[int]) -> str:
        # UTF-8 never contains the byte 255.
        values = (token - len(SYMBOLS) if UNK < token < self.size else 255 for token in ids if token != PAD)
        return bytes(values).decode(errors='replace')

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the pieces in readable form: a blank as "▁", printable ASCII as it is, others as <0x0A>."""
        return [SYMBOLS.get(int(token)) or _format_byte(int(token) - len(SYMBOLS)) for token in ids]


def _format_byte(byte: int) -> str:
    if byte == ord(' '):
        return BLANK
    return chr(byte) if 32 < byte < 127 else f'<0x{byte:02X}>'
