"""Codes that subword-nmt learned (Sennrich et al. 2016)."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Bool

from transformer.config import ConfigError
from transformer.data.tokenizers.base import BLANK, SYMBOLS, Tokenizer, utf8
from transformer.data.tokenizers.hugging_face import load_library
from transformer.tokens import EOS, PAD, UNK

CODES = b'#version: '  # the beginning of the content
_WORD_END = '</w>'  # marks the end of a word in codes
_AFTER_BYTES = 3 + 256  # the end of a word as a piece of its own


class CodesTokenizer(Tokenizer):
    """A tokenizer that cuts text as subword-nmt does with its codes.

    The pieces are bytes, the end of a word, the characters of the codes, inside and at the end of a word, and
    the symbols that the codes make. Other characters become their UTF-8 bytes. Single blanks separate words.

    Args:
      content: a file of codes, of version 0.2.

    Raises:
      ConfigError: another version, a damaged line, or no package `tokenizers`.
    """

    def __init__(self, content: bytes):
        super().__init__(content)
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
        merges = [*dict.fromkeys(merges)]  # of equal lines subword-nmt uses the first
        symbols = dict.fromkeys(symbol.removesuffix(_WORD_END) for merge in merges for symbol in merge)
        characters = dict.fromkeys(''.join(symbols))
        names = [*characters, *(c + _WORD_END for c in characters), *map(''.join, merges)]
        in_bytes = [f'<0x{byte:02X}>' for byte in range(256)]
        self._names = [*SYMBOLS.values(), *in_bytes, _WORD_END, *dict.fromkeys(names)]
        self.size = len(self._names)
        tokenizers = load_library()
        vocabulary = {name: number for number, name in enumerate(self._names)}
        bpe = tokenizers.models.BPE(vocabulary, merges, unk_token=SYMBOLS[UNK], end_of_word_suffix=_WORD_END)
        self._tokenizer = tokenizers.Tokenizer(bpe)
        self._tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(' ', 'removed')

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the pieces of each text, with EOS."""
        texts = [utf8(text).decode() for text in texts]
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
            yield from (len(SYMBOLS) + byte for byte in text[start:end].encode())
            if text[end : end + 1] in ('', ' '):
                yield _AFTER_BYTES

    def encode_around(self, text: str, gap: str) -> list[list[int]]:
        """Returns the pieces before, between and after the gaps of a text, with EOS. U+FFFD replaces NULs."""
        parts: list[list[int]] = [[]]
        nul, before = len(SYMBOLS), EOS
        for token in self.encode(text.replace('\0', '\ufffd').replace(gap, '\0')):
            if token == nul:
                parts.append([])
            # The end of a word that is a gap is a part of it.
            elif (before, token) != (nul, _AFTER_BYTES):
                parts[-1].append(token)
            before = token
        return parts

    def begins_words(self) -> Bool[np.ndarray, ' pieces']:
        """Raises ConfigError: whether a piece begins a word depends on the piece before it."""
        raise ConfigError('codes of subword-nmt mark only the ends of words; leave out data.tokenizer_model')

    def _text(self, ids: list[int]) -> str:
        content = b''.join(
            bytes([token - len(SYMBOLS)])
            if UNK < token < _AFTER_BYTES
            else self._text_of(token).encode()
            if UNK < token < self.size
            else b'\xff'  # UTF-8 never contains this byte.
            for token in ids
            if token != PAD
        )
        return content.decode(errors='replace').removesuffix(' ')

    def _text_of(self, token: int) -> str:
        """Returns the text of a piece, with a blank if it ends a word."""
        name = self._names[token]
        return f'{name.removesuffix(_WORD_END)} ' if name.endswith(_WORD_END) else name

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the pieces of a text, with "▁" where a word begins."""
        names, begins = [], True
        for token in map(int, ids):
            name = self._names[token]
            names.append((BLANK if begins and token >= len(SYMBOLS) else '') + name.removesuffix(_WORD_END))
            begins = name.endswith(_WORD_END)
        return names
