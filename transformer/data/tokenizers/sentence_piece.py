"""SentencePiece tokenizers (§5.1), including Marian's, where a vocabulary file numbers the pieces."""

import base64
import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import sentencepiece
from jaxtyping import Int

from transformer import files
from transformer.data.tokenizers.base import BLANK, Tokenizer, utf8
from transformer.tokens import EOS, PAD, UNK

# The beginning of the content if it lists the pieces of a SentencePiece model in another order.
NUMBERED = b'{"tokenizer": "numbered", '
_BLOCK = 1 << 16  # characters of a document that are encoded together, plus the rest of their line


class SentencePieceTokenizer(Tokenizer):
    """A tokenizer with the pieces of a SentencePiece model.

    With a model from `train`, `decode(encode(text)) == text` for every text in Unicode, including blanks and
    control characters. A model from another program can normalise the text.
    """

    def __init__(self, content: bytes):
        super().__init__(content)
        self.model = content
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=content)
        self.size: int = self._processor.get_piece_size()

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the pieces of each text, with EOS."""
        texts = [utf8(text).decode() for text in texts]
        lists = self._processor.encode(texts, num_threads=os.cpu_count() or 1)
        for index, text in enumerate(texts):
            if BLANK in text and self._keeps_nul:
                lists[index] = self._encode_around_blanks(text)
            lists[index].append(EOS)
        return lists

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Returns the places of the pieces, of which several can be bytes of one character."""
        safe = utf8(text).decode()
        first, *rest = safe.split(BLANK) if self._keeps_nul else [safe]
        spans, start = self._spans(first), len(first)
        for part in rest:
            # As `_encode_around_blanks` does.
            spans += [(start, start + 1)] * len(self._blank_bytes)
            spans += [(start + begin, start + end) for begin, end in self._spans('\0' + part)[2:]]
            start += 1 + len(part)
        return [*spans, (len(safe), len(safe))]

    def _spans(self, text: str) -> list[tuple[int, int]]:
        # The library counts bytes.
        place = [i for i, character in enumerate(text) for _ in character.encode()] + [len(text)]
        spans, end = [], 0
        for piece in reversed(self._processor.encode_as_proto(text).pieces):
            # Of the bytes of a character the library gives the character to the last one alone.
            of_byte = piece.begin == piece.end and self._processor.is_byte(piece.id)
            end = end if of_byte else piece.end
            spans.append((place[piece.begin], place[end]))
        return spans[::-1]

    def encode_document(self, text: str) -> Int[np.ndarray, ' tokens']:
        """Returns the pieces of a text of any length, with EOS, encoded in blocks of whole lines."""
        if not self._keeps_nul:
            return np.array(self.encode(text), np.int32)
        first, *rest = _blocks(text)
        whole, *parts = self.encode_batch([first, *('\0' + block for block in rest)])
        arrays = [np.array(whole[:-1], np.int32), *(np.array(ids[2:-1], np.int32) for ids in parts)]
        return np.concatenate([*arrays, np.array([EOS], np.int32)])

    def _text(self, ids: list[int]) -> str:
        # An embedding can have more rows than there are pieces.
        return self._processor.decode([token if token < self.size else UNK for token in ids])

    @functools.cached_property
    def _keeps_nul(self) -> bool:
        """Returns whether bytes are pieces and NUL stays a piece after the blank that begins a text."""
        begins = [self._processor.id_to_piece(token) for token in self._processor.encode('\0')]
        return begins == [BLANK, '<0x00>']

    @functools.cached_property
    def _blank_bytes(self) -> list[int]:
        return [self._processor.piece_to_id(f'<0x{byte:02X}>') for byte in BLANK.encode()]

    def _encode_around_blanks(self, text: str) -> list[int]:
        first, *rest = text.split(BLANK)
        ids = self._processor.encode(first)
        for part in rest:
            # NUL never joins other characters in a piece, so the word after it does not start with a blank.
            ids += self._blank_bytes + self._processor.encode('\0' + part)[2:]
        return ids

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the pieces as the vocabulary writes them, with "▁" where a word begins."""
        return [self._processor.id_to_piece(int(token)) for token in ids]


class NumberedTokenizer(Tokenizer):
    """A tokenizer of a SentencePiece model whose pieces are numbered by a list, as Marian's are.

    A text can begin with a piece such as >>fr<<, which names the language to translate into.

    Args:
      content: JSON with `pieces`, in the order of `tokens`, and `model`, the SentencePiece model.
    """

    def __init__(self, content: bytes):
        super().__init__(content)
        try:
            values = files.parse_json(content, {'tokenizer': str, 'pieces': [str], 'model': str}, self.file)
            self._pieces, self.model = values['pieces'], base64.b64decode(values['model'])
        except ValueError as error:
            raise RuntimeError(str(error)) from None
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=self.model)
        self._ids = {piece: number for number, piece in enumerate(self._pieces)}
        self.size = len(self._pieces)

    @classmethod
    def from_pieces(cls, pieces: Sequence[str], model: bytes) -> 'NumberedTokenizer':
        """Makes a tokenizer of a list of pieces and a SentencePiece model."""
        values = json.dumps({'model': base64.b64encode(model).decode(), 'pieces': pieces}, ensure_ascii=False)
        return cls(NUMBERED + values[1:].encode() + b'\n')

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the pieces of each text, with EOS, and UNK for those that are not in the list."""
        texts = [utf8(text).decode() for text in texts]
        languages = [match[0] if (match := re.match('>>.*?<<', text)) else '' for text in texts]
        rest = [text[len(language) :] for text, language in zip(texts, languages, strict=True)]
        lists = self._processor.encode(rest, out_type=str, num_threads=os.cpu_count() or 1)
        rows = [[language, *row] if language else row for language, row in zip(languages, lists, strict=True)]
        return [[*(self._ids.get(piece, UNK) for piece in row), EOS] for row in rows]

    def _text(self, ids: list[int]) -> str:
        known = [token if token < self.size else UNK for token in ids if token != PAD]
        return self._processor.decode([self._pieces[token] for token in known])

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the pieces as the list writes them."""
        return [self._pieces[int(token)] for token in ids]


def _blocks(text: str) -> Iterator[str]:
    """Yields a text in parts that end after a newline, each of about `_BLOCK` characters or one line."""
    start = 0
    while True:
        end = text.find('\n', start + _BLOCK) + 1
        if end in (0, len(text)):
            yield text[start:]
            return
        yield text[start:end]
        start = end
