"""One SentencePiece BPE vocabulary for both languages (§5.1) that loses nothing of a text."""

import functools
import hashlib
import io
import os
import re
from collections.abc import Iterable, Sequence

import numpy as np
import sentencepiece

from transformer.config import ConfigError

PAD, EOS, UNK = 0, 1, 2

_BLANK = '\u2581'  # SentencePiece writes blanks so, and would read it back as one
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
    """The model file of a vocabulary of exactly `pieces` pieces, learned from `sentences`.

    Every character of the sentences is a piece; other characters become their UTF-8 bytes, so that
    no text is unknown.

    Deviation: the paper names "byte-pair encoding"; SentencePiece reads raw text instead of words
    that were tokenised before, so that no detokeniser is needed.

    Raises:
      ConfigError: the sentences do not allow this number of pieces.
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


class Tokenizer:
    """Text to pieces and back.

    `decode(encode(text)) == text` for every text, blanks and control characters included, but for a
    newline, which becomes a blank: a translation is one line.
    """

    def __init__(self, model: bytes):
        self.model = model
        self.sha256 = hashlib.sha256(model).hexdigest()
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.size: int = self._processor.get_piece_size()

    def encode(self, text: str) -> list[int]:
        """The pieces of one text, with EOS."""
        return self.encode_batch([text], threads=1)[0]

    def encode_batch(self, texts: Sequence[str], *, threads: int | None = None) -> list[list[int]]:
        """The pieces of each text, with EOS; as many threads as processors if `threads` is none."""
        lists = self._processor.encode(list(texts), num_threads=threads or os.cpu_count() or 1)
        for index, text in enumerate(texts):
            if _BLANK in text:
                lists[index] = self._encode_around_blanks(text)
            lists[index].append(EOS)
        return lists

    def decode(self, ids: Iterable[int] | np.ndarray) -> str:
        """The text up to the first EOS; PAD reads as nothing.

        An embedding may have more rows than there are pieces: those beyond read as UNK, a double
        question mark.
        """
        kept = []
        for token in map(int, ids):
            if token == EOS:
                break
            kept.append(token if token < self.size else UNK)
        return self._processor.decode(kept).replace('\n', ' ')

    @functools.cached_property
    def _blank_bytes(self) -> list[int]:
        return [self._processor.piece_to_id(f'<0x{byte:02X}>') for byte in _BLANK.encode()]

    def _encode_around_blanks(self, text: str) -> list[int]:
        first, *rest = text.split(_BLANK)
        ids = self._processor.encode(first)
        for part in rest:
            # NUL is never part of a piece: it keeps the word behind it from starting with a blank.
            ids += self._blank_bytes + self._processor.encode('\0' + part)[2:]
        return ids

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The pieces as they are written in the vocabulary, "▁" where a word begins."""
        return [self._processor.id_to_piece(int(token)) for token in ids]
