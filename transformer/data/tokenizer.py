"""Tokenizers, which turn text into pieces and back without loss: SentencePiece BPE (§5.1), or bytes."""

import base64
import functools
import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import sentencepiece
from etils import epath
from google.protobuf.message import DecodeError
from jaxtyping import Int
from sentencepiece import sentencepiece_model_pb2

from transformer.config import ConfigError, Data
from transformer.tokens import EOS, PAD, UNK

FILE = 'tokenizer.model'  # its name in a work directory

# The content of the file if the pieces are bytes; no SentencePiece model begins with it.
BYTES = b'{"tokenizer": "bytes"}\n'

# The beginning of the content if each field has a tokenizer of its own.
_SEPARATE = b'{"tokenizer": "separate", "models": '
_SYMBOLS = {PAD: '<pad>', EOS: '</s>', UNK: '<unk>'}
_BLOCK = 1 << 16  # characters of a document that are encoded together, plus the rest of their line
_BLANK = '\u2581'  # how SentencePiece writes a blank, and so reads this character back as a blank
_OPTIONS = {
    'model_type': 'bpe',
    'normalization_rule_name': 'identity',
    'remove_extra_whitespaces': False,
    'add_dummy_prefix': True,
    'byte_fallback': True,
    'character_coverage': 1.0,
    'hard_vocab_limit': True,
    'pad_id': PAD,
    'eos_id': EOS,
    'unk_id': UNK,
    'bos_id': -1,
    # One thread and no shuffling: the same sentences give the same bytes.
    'num_threads': 1,
    'shuffle_input_sentence': False,
    'max_sentence_length': 1 << 20,
    'minloglevel': 2,
}


def train(sentences: Iterable[str], pieces: int) -> bytes:
    """Learns a BPE vocabulary of exactly `pieces` pieces and returns its model file.

    Every character of the sentences is a piece; other characters become their UTF-8 bytes, so that
    no text is unknown.

    Deviation: the paper names "byte-pair encoding"; SentencePiece reads raw text instead of
    tokenised words, so that no detokeniser is needed.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences), model_writer=model, vocab_size=pieces, **_OPTIONS
        )
    except RuntimeError as error:
        raise ConfigError(f'data.pieces={pieces}: {_cause(str(error))}') from None
    return model.getvalue()


def _cause(message: str) -> str:
    if high := re.search(r'too high.*<= (\d+)', message):
        return f'the training text allows {high[1]} at most'
    if low := re.search(r'required_chars\. \d+ vs (\d+)', message):
        return f'the characters of the training text need {low[1]} at least'
    if '!sentences_.empty()' in message:
        return 'the training text is empty'
    return ' '.join(message.split())


def read(content: bytes) -> 'AnyTokenizer':
    """Builds the tokenizer that a file's content describes; RuntimeError if it is damaged."""
    if content == BYTES:
        return ByteTokenizer()
    if not content.startswith(_SEPARATE):
        return Tokenizer(content)
    try:
        models = {field: base64.b64decode(text) for field, text in json.loads(content)['models'].items()}
    except (ValueError, KeyError, AttributeError) as error:
        raise RuntimeError(f'damaged: {error}') from None
    return SeparateTokenizers({field: Tokenizer(model) for field, model in models.items()})


def read_given(data: Data, fields: Sequence[str]) -> 'Tokenizer | SeparateTokenizers':
    """Reads the tokenizer that `data.tokenizer_model` names: one file for all fields, or one per field."""
    separate = data.vocabulary == 'separate'
    names = data.tokenizer_model.split(',') if separate else [data.tokenizer_model]
    number = len(fields) if separate else 1
    if len(names) != number:
        raise ConfigError(
            f'data.tokenizer_model={data.tokenizer_model}: needs {number} files, has {len(names)}'
        )
    models = [read_foreign(name) for name in names]
    for name, one in zip(names, models, strict=True):
        if one.size != data.pieces:
            raise ConfigError(f'data.pieces={data.pieces}: data.tokenizer_model={name} has {one.size} pieces')
    return SeparateTokenizers(dict(zip(fields, models, strict=True))) if separate else models[0]


def read_foreign(file: epath.PathLike) -> 'Tokenizer':
    """Reads a SentencePiece model of any type that another program made.

    Its pieces are reordered: padding, the end, the unknown piece, then all others as they were. Those of the
    first three that are missing are added, and the start of a sentence is removed, so a model of `spm_train`
    keeps its number of pieces. Texts get the same pieces as from the file.
    """
    try:
        return Tokenizer(with_symbols_first(epath.Path(file).read_bytes()))
    except OSError as error:
        raise ConfigError(f'data.tokenizer_model={file}: {error.strerror or error}') from None
    except (DecodeError, RuntimeError, ValueError):
        raise ConfigError(f'data.tokenizer_model={file}: not a SentencePiece model') from None


def with_symbols_first(model: bytes) -> bytes:
    """Moves PAD, EOS and UNK of a SentencePiece model to their ids in `transformer.tokens`.

    The start of a sentence is removed. DecodeError or ValueError if it is not a SentencePiece model.
    """
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    kinds, spec = sentencepiece_model_pb2.ModelProto.SentencePiece, proto.trainer_spec
    ids = {spec.pad_piece: PAD, spec.eos_piece: EOS, spec.unk_piece: UNK}
    if not any(piece.type == kinds.UNKNOWN for piece in proto.pieces):
        raise ValueError('no unknown piece')
    first = [kinds(piece=name, score=0.0, type=kinds.CONTROL) for name in sorted(ids, key=ids.get)]
    first[UNK].type = kinds.UNKNOWN
    special = (kinds.CONTROL, kinds.UNKNOWN)
    # The three pieces at their old places, whatever their types, and the start of a sentence.
    others = [
        piece
        for piece in proto.pieces
        if piece.piece not in ids and not (piece.type in special and piece.piece == spec.bos_piece)
    ]
    del proto.pieces[:]
    proto.pieces.extend([*first, *others])
    spec.pad_id, spec.eos_id, spec.unk_id, spec.bos_id = PAD, EOS, UNK, -1
    spec.vocab_size = len(proto.pieces)
    return proto.SerializeToString(deterministic=True)


class ForAllFields:
    """A codec that all fields share."""

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
        self.content = content
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


class SeparateTokenizers:
    """One tokenizer per field, all of the same size."""

    file = FILE

    def __init__(self, by_field: dict[str, Tokenizer]):
        self._by_field = by_field
        encoded = {field: base64.b64encode(one.content).decode() for field, one in by_field.items()}
        self.content = _SEPARATE + json.dumps(encoded).encode() + b'}\n'
        self.sha256 = hashlib.sha256(self.content).hexdigest()
        self.size: int = max(one.size for one in by_field.values())

    def of(self, field: str) -> Tokenizer:
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


AnyTokenizer = Tokenizer | ByteTokenizer | SeparateTokenizers


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
