"""Learns a vocabulary of pieces from text: by SentencePiece (§5.1), of bytes by BPE, or of words."""

import collections
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import sentencepiece

from transformer.config import ConfigError
from transformer.data.tokenizers.base import BLANK, SYMBOLS
from transformer.data.tokenizers.hugging_face import learn_byte_level
from transformer.data.tokenizers.listed import PiecesTokenizer
from transformer.tokens import EOS, PAD, UNK

_LONGEST = 1 << 20  # bytes of a sentence that SentencePiece learns from
_RESERVED = '\u2585'  # SentencePiece leaves out sentences with it
_TYPES = {'bpe': 'bpe', 'characters': 'char'}  # by the values of data.tokenizer
_OPTIONS = {
    'normalization_rule_name': 'identity', 'remove_extra_whitespaces': False, 'add_dummy_prefix': True,
    'byte_fallback': True, 'character_coverage': 1.0, 'hard_vocab_limit': True,
    'pad_id': PAD, 'eos_id': EOS, 'unk_id': UNK, 'bos_id': -1,
    # One thread and no shuffling: the same sentences give the same bytes.
    'num_threads': 1, 'shuffle_input_sentence': False, 'max_sentence_length': _LONGEST, 'minloglevel': 2,
}  # fmt: skip


def train(
    sentences: Iterable[str],
    pieces: int,
    kind: Literal['bpe', 'byte_bpe', 'characters', 'words'] = 'bpe',
    words: Sequence[str] = (),
) -> bytes:
    """Learns a vocabulary of exactly `pieces` pieces and returns its model file.

    With BPE, every character of the sentences is a piece; byte-level BPE begins with bytes. Else the pieces
    are the most frequent characters, of which all others become their UTF-8 bytes, or words, of which all
    others are unknown. With BPE or characters `words` are pieces, too, each with the blank before it.

    Deviation: the paper names "byte-pair encoding"; SentencePiece reads raw text instead of
    tokenised words, so that no detokeniser is needed.
    """
    if words and kind not in _TYPES:
        raise ConfigError(f'data.tokenizer={kind}: for plain text; trees need {" or ".join(_TYPES)}')
    if kind == 'words':
        return _most_frequent(sentences, pieces)
    if kind == 'byte_bpe':
        return learn_byte_level(sentences, pieces).content
    model, failures = io.BytesIO(), []
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_noting(_readable(sentences), failures),
            model_writer=model,
            vocab_size=pieces,
            model_type=_TYPES[kind],
            user_defined_symbols=[BLANK + word for word in words],
            **_OPTIONS,
        )
    except RuntimeError as error:
        if failures:
            raise failures[0] from None
        if '!sentences_.empty()' in str(error):
            raise ConfigError('data.train: its text is empty') from None
        raise ConfigError(f'data.pieces={pieces}: {_cause(str(error))}') from None
    if kind == 'characters':
        _check_characters(model.getvalue(), pieces)
    return model.getvalue()


def _readable(sentences: Iterable[str]) -> Iterator[str]:
    """Divides sentences that SentencePiece would leave out without a word: long ones, at blanks."""
    most = _LONGEST // 4  # characters, each of at most 4 bytes
    for sentence in sentences:
        for part in sentence.split(_RESERVED):
            start = 0
            while len(part) - start > most and (start or len(part.encode()) > _LONGEST):
                end = part.rfind(' ', start + 1, start + most)
                end = end if end > 0 else start + most
                yield part[start:end]
                start = end + (part[end] == ' ')
            yield part[start:]


def _noting(sentences: Iterable[str], failures: list[BaseException]) -> Iterator[str]:
    """Yields the sentences, and notes what reading them raises: SentencePiece makes a RuntimeError of it."""
    try:
        yield from sentences
    except BaseException as error:
        failures.append(error)
        raise


def _most_frequent(sentences: Iterable[str], pieces: int) -> bytes:
    """Returns the tokenizer of the most frequent words, with their counts.

    Of equals, the first in the alphabet come first. A text's own <unk> is the unknown piece.
    """
    counts = collections.Counter(word for sentence in sentences for word in sentence.split(' ') if word)
    special = [*SYMBOLS.values()]
    ordinary = counts.keys() - set(special)
    if not ordinary:
        raise ConfigError('data.train: its text is empty')
    most = len(special) + len(ordinary)
    if not len(special) < pieces <= most:
        raise ConfigError(
            f'data.pieces={pieces}: the training text allows {len(special) + 1} at least and {most} at most'
        )
    words = sorted(ordinary, key=lambda word: (-counts[word], word))[: pieces - len(special)]
    counted = [0] * len(special) + [counts[word] for word in words]
    return PiecesTokenizer.from_pieces([*special, *words], ' ', end=True, counts=counted).content


def _check_characters(model: bytes, pieces: int) -> None:
    """Rejects too many or too few pieces, which SentencePiece accepts for characters."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    if processor.get_piece_size() < pieces:
        raise ConfigError(
            f'data.pieces={pieces}: the training text allows {processor.get_piece_size()} at most'
        )
    if processor.piece_to_id(BLANK) == UNK:
        raise ConfigError(f'data.pieces={pieces}: too few; the blank between words is not among them')


def _cause(message: str) -> str:
    if high := re.search(r'too high.*<= (\d+)', message):
        return f'the training text allows {high[1]} at most'
    if low := re.search(r'required_chars\. \d+ vs (\d+)', message):
        return f'the characters of the training text need {low[1]} at least'
    if 'char_model_trainer' in message:
        return 'too few; the 256 bytes and 3 special pieces are not among them'
    return ' '.join(message.split())
