"""Tokenizers, which turn text into pieces and back: SentencePiece (§5.1), bytes, or subword-nmt's codes."""

import base64
import functools
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import sentencepiece
from jaxtyping import Int

from transformer.config import ConfigError
from transformer.tokens import EOS, PAD, START, UNK

FILE = 'tokenizer.model'  # its name in a work directory

# The content of the file if the pieces are bytes; no SentencePiece model begins with it.
BYTES = b'{"tokenizer": "bytes"}\n'

# The beginning of the content if each field has a tokenizer of its own.
_SEPARATE = b'{"tokenizer": "separate", "models": '

# The beginning of the content if it lists the pieces.
_PIECES = b'{"tokenizer": "pieces", '

# The beginning of the content if it lists the pieces of a SentencePiece model in another order.
_NUMBERED = b'{"tokenizer": "numbered", '

# The beginning of the codes of subword-nmt, and how they mark the end of a word.
CODES = b'#version: '
_WORD_END = '</w>'
_AFTER_BYTES = 3 + 256  # the end of a word as a piece of its own
_SYMBOLS = {PAD: '<pad>', EOS: '</s>', UNK: '<unk>'}
_BLOCK = 1 << 16  # characters of a document that are encoded together, plus the rest of their line
_BLANK = '\u2581'  # how SentencePiece writes a blank, and so reads this character back as a blank


def read(content: bytes) -> 'AnyTokenizer':
    """Builds the tokenizer that a file's content describes; RuntimeError if it is damaged."""
    if content == BYTES:
        return ByteTokenizer()
    if content.startswith(CODES):
        return CodesTokenizer(content)
    if content.startswith(_PIECES):
        return PiecesTokenizer(content)
    if content.startswith(_NUMBERED):
        return NumberedTokenizer(content)
    if not content.startswith(_SEPARATE):
        return Tokenizer(content)
    try:
        models = {field: base64.b64decode(text) for field, text in json.loads(content)['models'].items()}
    except (ValueError, KeyError, AttributeError) as error:
        raise RuntimeError(f'damaged: {error}') from None
    return SeparateTokenizers({field: read(model) for field, model in models.items()})


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
    """Turns text into the pieces of a SentencePiece model and back.

    With a model from `train`, `decode(encode(text)) == text` for every text, including blanks and control
    characters. A model from another program may normalise the text.
    """

    file = FILE

    def __init__(self, content: bytes):
        self.content = self.model = content
        self.sha256 = hashlib.sha256(content).hexdigest()
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=content)
        self.size: int = self._processor.get_piece_size()

    def encode(self, text: str) -> list[int]:
        """The pieces of one text, with EOS."""
        return self.encode_batch([text], threads=1)[0]

    def encode_batch(self, texts: Sequence[str], *, threads: int | None = None) -> list[list[int]]:
        """The pieces of each text, with EOS; `threads=None` uses every processor."""
        texts = [_utf8(text).decode() for text in texts]
        lists = self._processor.encode(texts, num_threads=threads or os.cpu_count() or 1)
        for index, text in enumerate(texts):
            if _BLANK in text and self._keeps_nul:
                lists[index] = self._encode_around_blanks(text)
            lists[index].append(EOS)
        return lists

    def encode_document(self, text: str) -> Int[np.ndarray, ' tokens']:
        """The pieces of a text of any length, with EOS, encoded in blocks of whole lines."""
        if not self._keeps_nul:
            return np.array(self.encode(text), np.int32)
        first, *rest = _blocks(text)
        whole, *parts = self.encode_batch([first, *('\0' + block for block in rest)])
        arrays = [np.array(whole[:-1], np.int32), *(np.array(ids[2:-1], np.int32) for ids in parts)]
        return np.concatenate([*arrays, np.array([EOS], np.int32)])

    def decode(self, ids: Iterable[int] | np.ndarray, *, one_line: bool = False) -> str:
        """The text up to the first EOS, without PAD; with `one_line`, newlines become blanks.

        An embedding may have more rows than there are pieces: ids beyond the pieces are decoded as UNK, a
        double question mark.
        """
        known = [token if token < self.size else UNK for token in _before_end(ids)]
        text = self._processor.decode(known)
        return text.replace('\n', ' ') if one_line else text

    @functools.cached_property
    def _keeps_nul(self) -> bool:
        """Whether bytes are pieces and NUL stays a piece of its own after the blank that begins a text."""
        begins = [self._processor.id_to_piece(token) for token in self._processor.encode('\0')]
        return begins == [_BLANK, '<0x00>']

    @functools.cached_property
    def _blank_bytes(self) -> list[int]:
        return [self._processor.piece_to_id(f'<0x{byte:02X}>') for byte in _BLANK.encode()]

    def _encode_around_blanks(self, text: str) -> list[int]:
        first, *rest = text.split(_BLANK)
        ids = self._processor.encode(first)
        for part in rest:
            # NUL never joins other characters in a piece, so the word after it does not start with a blank.
            ids += self._blank_bytes + self._processor.encode('\0' + part)[2:]
        return ids

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The pieces as the vocabulary writes them, with "▁" where a word begins."""
        return [self._processor.id_to_piece(int(token)) for token in ids]


class CodesTokenizer(ForAllFields):
    """Cuts text as subword-nmt does with codes that it learned (Sennrich et al. 2016).

    The pieces are bytes, the end of a word, the characters of the codes, inside and at the end of a word, and
    what the codes join. Other characters become their UTF-8 bytes. Words are separated by single blanks.

    Args:
      content: a file of codes, of version 0.2.

    Raises:
      ConfigError: another version, a damaged line, or no package `tokenizers`.
    """

    file = FILE

    def __init__(self, content: bytes):
        self.content = content
        self.sha256 = hashlib.sha256(content).hexdigest()
        head, *lines = content.decode().rstrip('\n').split('\n')
        if head.strip() != '#version: 0.2':
            raise ConfigError(f'codes of subword-nmt must begin with "#version: 0.2", not with "{head}"')
        merges = [tuple(line.strip('\r ').split(' ')) for line in lines]
        if wrong := [n for n, merge in enumerate(merges, 2) if len(merge) != 2]:
            raise ConfigError(f'line {wrong[0]}: not two symbols')
        made = set(map(''.join, merges))
        for number, merge in enumerate(merges, 2):
            if lacking := [s for s in merge if len(s.removesuffix(_WORD_END)) > 1 and s not in made]:
                raise ConfigError(f'line {number}: no line makes "{lacking[0]}"')
        symbols = dict.fromkeys(symbol.removesuffix(_WORD_END) for merge in merges for symbol in merge)
        characters = dict.fromkeys(''.join(symbols))
        names = [*characters, *(c + _WORD_END for c in characters), *map(''.join, merges)]
        in_bytes = [f'<0x{byte:02X}>' for byte in range(256)]
        self._names = [*_SYMBOLS.values(), *in_bytes, _WORD_END, *dict.fromkeys(names)]
        self.size = len(self._names)
        try:
            import tokenizers
        except ModuleNotFoundError:
            raise ConfigError("codes of subword-nmt need tokenizers: pip install '.[tokenizers]'") from None
        vocabulary = {name: number for number, name in enumerate(self._names)}
        bpe = tokenizers.models.BPE(vocabulary, merges, unk_token=_SYMBOLS[UNK], end_of_word_suffix=_WORD_END)
        self._tokenizer = tokenizers.Tokenizer(bpe)
        self._tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(' ', 'removed')

    def encode(self, text: str) -> list[int]:
        """The pieces of one text, with EOS."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str], *, threads: int | None = None) -> list[list[int]]:
        """The pieces of each text, with EOS; `threads` has no effect."""
        del threads
        texts = [_utf8(text).decode() for text in texts]
        return [
            [*self._with_bytes(text, one.ids, one.offsets), EOS]
            for text, one in zip(texts, self._tokenizer.encode_batch(texts), strict=True)
        ]

    def _with_bytes(self, text: str, ids: Sequence[int], offsets: Sequence[tuple[int, int]]) -> Iterator[int]:
        """Replaces each unknown character by its bytes and, at the end of a word, the piece for that."""
        for token, (start, end) in zip(ids, offsets, strict=True):
            if token != UNK:
                yield token
                continue
            yield from (len(_SYMBOLS) + byte for byte in text[start:end].encode())
            if text[end : end + 1] in ('', ' '):
                yield _AFTER_BYTES

    def encode_document(self, text: str) -> Int[np.ndarray, ' tokens']:
        """The pieces of a text of any length, with EOS."""
        return np.array(self.encode(text), np.int32)

    def decode(self, ids: Iterable[int] | np.ndarray, *, one_line: bool = False) -> str:
        """The text up to the first EOS, without PAD; with `one_line`, newlines become blanks.

        Bytes that are not UTF-8, UNK and ids beyond the pieces are decoded as U+FFFD.
        """
        content = b''.join(
            bytes([token - len(_SYMBOLS)])
            if UNK < token < _AFTER_BYTES
            else self._names[token].encode()
            if UNK < token < self.size
            else b'\xff'  # UTF-8 never contains this byte.
            for token in _before_end(ids)
            if token != PAD
        )
        text = content.decode(errors='replace').replace(_WORD_END, ' ').removesuffix(' ')
        return text.replace('\n', ' ') if one_line else text

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The pieces of a text, with "▁" where a word begins."""
        names, begins = [], True
        for token in map(int, ids):
            name = self._names[token]
            names.append((_BLANK if begins and token >= len(_SYMBOLS) else '') + name.removesuffix(_WORD_END))
            begins = name.endswith(_WORD_END)
        return names


class PiecesTokenizer(ForAllFields):
    """Cuts text into the pieces of a list: its characters, or what stands between blanks.

    Args:
      content: JSON with `pieces`, in the order of `tokens`; `joiner`, which stands between pieces in a text;
        and `begin` and `end`, whether the pieces of a text follow START, and EOS follows them.
    """

    file = FILE

    def __init__(self, content: bytes):
        self.content = content
        self.sha256 = hashlib.sha256(content).hexdigest()
        try:
            values = json.loads(content)
            self._pieces, self._joiner, self._end = (values[name] for name in ('pieces', 'joiner', 'end'))
        except (ValueError, KeyError) as error:
            raise RuntimeError(f'damaged: {error}') from None
        # Earlier files have no `begin`.
        self._begin = values.get('begin', False)
        self._ids = {piece: number for number, piece in enumerate(self._pieces) if number > UNK}
        self.size = len(self._pieces)

    @classmethod
    def from_pieces(
        cls, pieces: Sequence[str], joiner: str, *, end: bool, begin: bool = False
    ) -> 'PiecesTokenizer':
        """Makes one of a list of pieces."""
        values = {'joiner': joiner, 'begin': begin, 'end': end, 'pieces': pieces}
        values = json.dumps(values, ensure_ascii=False)
        return cls(_PIECES + values[1:].encode() + b'\n')

    def encode(self, text: str) -> list[int]:
        """The pieces of one text; UNK for those that are not in the list."""
        parts = filter(None, text.split(self._joiner)) if self._joiner else text
        ids = [self._ids.get(part, UNK) for part in parts]
        return [*[START] * self._begin, *ids, *[EOS] * self._end]

    def encode_batch(self, texts: Sequence[str], *, threads: int | None = None) -> list[list[int]]:
        """The pieces of each text; `threads` has no effect."""
        del threads
        return list(map(self.encode, texts))

    def encode_document(self, text: str) -> Int[np.ndarray, ' tokens']:
        """The pieces of a text of any length."""
        return np.array(self.encode(text), np.int32)

    def decode(self, ids: Iterable[int] | np.ndarray, *, one_line: bool = False) -> str:
        """The text up to the first EOS, without PAD; UNK and ids beyond the pieces are U+FFFD."""
        known = (token for token in _before_end(ids) if token != PAD)
        text = self._joiner.join(self._pieces[t] if UNK < t < self.size else '\ufffd' for t in known)
        return text.replace('\n', ' ') if one_line else text

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The pieces as the list writes them."""
        return [self._pieces[int(token)] for token in ids]


class NumberedTokenizer(ForAllFields):
    """Cuts text by a SentencePiece model whose pieces are numbered by a list, as Marian's are.

    A text can begin with a piece such as >>fr<<, which names the language to translate into.

    Args:
      content: JSON with `pieces`, in the order of `tokens`, and `model`, the SentencePiece model.
    """

    file = FILE

    def __init__(self, content: bytes):
        self.content = content
        self.sha256 = hashlib.sha256(content).hexdigest()
        try:
            values = json.loads(content)
            self._pieces, self.model = values['pieces'], base64.b64decode(values['model'])
        except (ValueError, KeyError) as error:
            raise RuntimeError(f'damaged: {error}') from None
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=self.model)
        self._ids = {piece: number for number, piece in enumerate(self._pieces)}
        self.size = len(self._pieces)

    @classmethod
    def from_pieces(cls, pieces: Sequence[str], model: bytes) -> 'NumberedTokenizer':
        """Makes one of a list of pieces and a SentencePiece model."""
        values = json.dumps({'model': base64.b64encode(model).decode(), 'pieces': pieces}, ensure_ascii=False)
        return cls(_NUMBERED + values[1:].encode() + b'\n')

    def encode(self, text: str) -> list[int]:
        """The pieces of one text, with EOS; UNK for those that are not in the list."""
        return self.encode_batch([text], threads=1)[0]

    def encode_batch(self, texts: Sequence[str], *, threads: int | None = None) -> list[list[int]]:
        """The pieces of each text, with EOS; `threads=None` uses every processor."""
        texts = [_utf8(text).decode() for text in texts]
        languages = [match[0] if (match := re.match('>>.*?<<', text)) else '' for text in texts]
        rest = [text[len(language) :] for text, language in zip(texts, languages, strict=True)]
        lists = self._processor.encode(rest, out_type=str, num_threads=threads or os.cpu_count() or 1)
        rows = [[language, *row] if language else row for language, row in zip(languages, lists, strict=True)]
        return [[*(self._ids.get(piece, UNK) for piece in row), EOS] for row in rows]

    def encode_document(self, text: str) -> Int[np.ndarray, ' tokens']:
        """The pieces of a text of any length, with EOS."""
        return np.array(self.encode(text), np.int32)

    def decode(self, ids: Iterable[int] | np.ndarray, *, one_line: bool = False) -> str:
        """The text up to the first EOS, without PAD; ids beyond the pieces are decoded as UNK."""
        known = [token if token < self.size else UNK for token in _before_end(ids) if token != PAD]
        text = self._processor.decode([self._pieces[token] for token in known])
        return text.replace('\n', ' ') if one_line else text

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The pieces as the list writes them."""
        return [self._pieces[int(token)] for token in ids]


class SeparateTokenizers:
    """One tokenizer per field; `size` is the largest one's."""

    file = FILE

    def __init__(self, by_field: 'dict[str, OneTokenizer]'):
        self._by_field = by_field
        encoded = {field: base64.b64encode(one.content).decode() for field, one in by_field.items()}
        self.content = _SEPARATE + json.dumps(encoded).encode() + b'}\n'
        self.sha256 = hashlib.sha256(self.content).hexdigest()
        self.size: int = max(one.size for one in by_field.values())

    def of(self, field: str) -> 'OneTokenizer':
        """The tokenizer of a field."""
        return self._by_field[field]


class ByteTokenizer(ForAllFields):
    """Turns text into its UTF-8 bytes and back; a byte's piece is its value + 3."""

    file = FILE
    content = BYTES
    sha256 = hashlib.sha256(BYTES).hexdigest()
    size = 256 + len(_SYMBOLS)

    def encode(self, text: str) -> list[int]:
        """The pieces of one text, with EOS."""
        return self.encode_document(text).tolist()

    def encode_batch(self, texts: Sequence[str], *, threads: int | None = None) -> list[list[int]]:
        """The pieces of each text, with EOS; `threads` has no effect."""
        del threads
        return [self.encode(text) for text in texts]

    def encode_document(self, text: str) -> Int[np.ndarray, ' tokens']:
        """The pieces of a text of any length, with EOS."""
        content = np.frombuffer(_utf8(text), np.uint8).astype(np.int32) + len(_SYMBOLS)
        return np.concatenate([content, np.array([EOS], np.int32)])

    def decode(self, ids: Iterable[int] | np.ndarray, *, one_line: bool = False) -> str:
        """The text up to the first EOS, without PAD; with `one_line`, newlines become blanks.

        Bytes that are not UTF-8, UNK and ids beyond the pieces are decoded as U+FFFD.
        """
        # UTF-8 never contains the byte 255.
        content = bytes(
            token - len(_SYMBOLS) if UNK < token < self.size else 255
            for token in _before_end(ids)
            if token != PAD
        )
        text = content.decode(errors='replace')
        return text.replace('\n', ' ') if one_line else text

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The pieces in readable form: a blank as "▁", printable ASCII as it is, other bytes as <0x0A>."""
        return [_SYMBOLS.get(int(token)) or _format_byte(int(token) - len(_SYMBOLS)) for token in ids]


OneTokenizer = Tokenizer | CodesTokenizer | PiecesTokenizer | NumberedTokenizer
AnyTokenizer = OneTokenizer | ByteTokenizer | SeparateTokenizers


def _format_byte(byte: int) -> str:
    if byte == ord(' '):
        return '▁'
    return chr(byte) if 32 < byte < 127 else f'<0x{byte:02X}>'


def _utf8(text: str) -> bytes:
    """Encodes a text in UTF-8; a lone surrogate, which UTF-8 cannot encode, becomes a question mark."""
    return text.encode('utf-8', 'replace')


def _before_end(ids: Iterable[int] | np.ndarray) -> Iterator[int]:
    """Yields the ids before the first EOS."""
    for token in map(int, ids):
        if token == EOS:
            return
        yield token


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
