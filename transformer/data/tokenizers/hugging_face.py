"""Tokenizers that Hugging Face's library `tokenizers` reads: WordPiece, byte-level BPE and others."""

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Int

from transformer import files
from transformer.config import ConfigError
from transformer.config.extras import needing
from transformer.data.tokenizers.base import BLANK, SYMBOLS, Tokenizer, utf8
from transformer.tokens import EOS, PAD, UNK

BEGIN = b'{"tokenizer": "hugging_face", "order": '
# The marks of a piece inside a word, and of a piece that begins a word.
_INSIDE, _BLANKS = '##', ('\u0120', BLANK)
_SHAPE = {'tokenizer': str, 'order': [range(-1, 1 << 31)], 'model': dict}
# The characters by which GPT-2 writes bytes: printable ones stand for themselves, the others follow Latin-1.
_PRINTABLE = {*range(33, 127), *range(161, 173), *range(174, 256)}
_BYTES = {chr(byte): byte for byte in _PRINTABLE}
_BYTES |= {chr(256 + n): byte for n, byte in enumerate(sorted({*range(256)} - _PRINTABLE))}
# The end of a text in GPT-2's vocabulary, which has neither padding nor an unknown piece.
_END = '<|endoftext|>'


class HuggingFaceTokenizer(Tokenizer):
    """A tokenizer of the library, with its pieces in our order.

    Args:
      content: JSON with `order`, the number there of each of our pieces (-1 for a piece of ours alone), and
        `model`, the content of a tokenizer.json.

    Raises:
      RuntimeError: the content is damaged.
      ConfigError: the library is not installed.
    """

    def __init__(self, content: bytes):
        super().__init__(content)
        tokenizers = load_library()
        try:
            values = files.parse_json(content, _SHAPE, self.file)
        except ValueError as error:
            raise RuntimeError(str(error)) from None
        self.order: list[int] = values['order']
        self.model: dict = values['model']
        with _library_errors():
            self._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(self.model))
        # The model limits the length of a text, not its tokenizer.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._ours = {theirs: ours for ours, theirs in enumerate(self.order) if theirs >= 0}
        added = self._tokenizer.get_added_tokens_decoder()
        # The library's `id_to_token` gives an added token as its normaliser changes it.
        self._added = {number: token.content for number, token in added.items()}
        self._special = {number for number, token in added.items() if token.special}
        self.special = frozenset(self._added[number] for number in self._special)
        self.size = len(self.order)
        # Whether pieces inside words are marked, not those that begin words.
        self._marks_inside = type(self._tokenizer.model).__name__ == 'WordPiece'
        self._writes_bytes = type(self._tokenizer.decoder).__name__ == 'ByteLevel'
        # A language model here begins every text as if after another one, so its tokenizer need not.
        with _library_errors():
            ids = self._tokenizer.encode('a').ids
            nothing, nul = (self._tokenizer.encode(text).ids for text in ('', self.gap))
        self.begins_with_end = len(ids) > 1 and self._ours.get(ids[0]) == EOS
        if nul == nothing and self.order and self.name(UNK) in self.special:
            self.gap = self.name(UNK)

    @classmethod
    def from_file(
        cls, content: str | bytes, special: Mapping[int, str | None], name: str = 'tokenizer.json'
    ) -> 'HuggingFaceTokenizer':
        """Reads a tokenizer.json.

        Args:
          special: the token that stands for each of our first pieces.
          name: the file's, for errors.

        Raises:
          ConfigError: the file is damaged, or lacks one of these tokens.
        """
        try:
            model = files.parse_json(content, dict, name)
            vocabulary = cls(_content([], model))._tokenizer.get_vocab(with_added_tokens=True)
        except RuntimeError:
            raise ConfigError(f'{name}: damaged, or of a kind that the library cannot read') from None
        if lacking := [token for token in special.values() if token is not None and token not in vocabulary]:
            raise ConfigError(f'{name}: has no piece {lacking[0]}')
        first = [-1 if special[n] is None else vocabulary[special[n]] for n in sorted(special)]
        others = sorted(set(vocabulary.values()) - set(first))
        made = cls(_content([*first, *others], model))
        try:
            made.encode_columns(['a', 'a\ta'])
        except KeyError as error:
            raise ConfigError(f'{name}: damaged: has no piece {error}, which it puts around texts') from None
        return made

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the pieces of each text, with EOS and those that the tokenizer puts around it."""
        safe = [utf8(text).decode() for text in texts]
        return [self._row(one.ids) for one in self._tokenizer.encode_batch(safe)]

    def _row(self, ids: Sequence[int]) -> list[int]:
        """Returns our pieces for the library's, with EOS but without the end of another text before them."""
        row = [self._ours[n] for n in ids[int(self.begins_with_end) :]]
        return row if row[-1:] == [EOS] else [*row, EOS]

    def ordinary_pieces(self) -> Int[np.ndarray, ' pieces']:
        """Returns the pieces of text, without those that the tokenizer puts around one."""
        there = self.order[len(SYMBOLS) :]
        return np.array(
            [n for n, one in enumerate(there, len(SYMBOLS)) if one not in self._special], np.int64
        )

    def encode_columns(self, lines: Sequence[str]) -> list[list[int]]:
        """Returns the pieces of each line.

        One or two texts are joined as the tokenizer joins them, more each with EOS.
        """
        texts = [tuple(utf8(text).decode() for text in line.split('\t')) for line in lines]
        rows = super().encode_columns(
            [line if len(t) > 2 else '' for line, t in zip(lines, texts, strict=True)]
        )
        joined = [i for i, columns in enumerate(texts) if len(columns) <= 2]
        inputs = [texts[i] if len(texts[i]) == 2 else texts[i][0] for i in joined]
        for i, one in zip(joined, self._tokenizer.encode_batch(inputs), strict=True):
            rows[i] = self._row(one.ids)
        return rows

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Returns the places of the pieces. Those that the tokenizer puts around a text are empty."""
        encoded = self._tokenizer.encode(utf8(text).decode())
        skipped = int(self.begins_with_end)
        places = list(encoded.offsets[skipped:])
        ends = len(encoded.ids) > skipped and self._ours[encoded.ids[-1]] == EOS
        return places if ends else [*places, (len(text), len(text))]

    def _text(self, ids: list[int]) -> str:
        # The library leaves special pieces out.
        theirs = [self.order[token] for token in ids if token < self.size and token not in (PAD, UNK)]
        return self._tokenizer.decode([number for number in theirs if number >= 0])

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the pieces, with "▁" where a word begins, and special ones in the form <...>."""
        return [self._piece(int(token)) for token in ids]

    def readable(self, ids: Iterable[int]) -> list[str]:
        """Returns the pieces. Byte-level ones are text or, if it cannot be printed, codes such as <0x0A>."""
        return [self._readable(int(token)) for token in ids]

    def name(self, token: int) -> str | None:
        """Returns the library's name of a piece, or None if the library lacks it."""
        theirs = self.order[token]
        return None if theirs < 0 else self._added.get(theirs) or self._tokenizer.id_to_token(theirs)

    def _piece(self, token: int) -> str:
        theirs = self.order[token] if token < self.size else -1
        if theirs < 0 or token <= UNK or theirs in self._special:
            return f'<{token}>' if theirs < 0 else f'<{self.name(token).strip("<|>[]")}>'
        piece = self._tokenizer.id_to_token(theirs)
        if piece.startswith(_BLANKS):
            return BLANK + piece[1:]
        if self._marks_inside:
            return piece.removeprefix(_INSIDE) if piece.startswith(_INSIDE) else BLANK + piece
        return piece

    def _readable(self, token: int) -> str:
        piece = self._piece(token)
        name = piece.removeprefix(BLANK)
        if not self._writes_bytes or not _BYTES.keys() >= {*name}:
            return piece
        content = bytes(_BYTES[character] for character in name)
        text = content.decode(errors='replace')
        if '\ufffd' in text or not text.isprintable():
            text = ''.join(f'<0x{byte:02X}>' for byte in content)
        return piece.removesuffix(name) + text


def learn_byte_level(sentences: Iterable[str], pieces: int) -> HuggingFaceTokenizer:
    """Learns byte-level BPE as GPT-2 cuts text (Radford et al. 2019, §2.2): no text has unknown pieces.

    Of the pieces, 256 are bytes, and padding and the unknown piece are ours alone.

    Raises:
      ConfigError: the text does not have that many pieces, or the library is not installed.
    """
    library, least = load_library(), len(SYMBOLS) + 256
    if pieces < least:
        raise ConfigError(f'data.pieces={pieces}: byte-level BPE has {least} at least')
    levels = library.pre_tokenizers.ByteLevel
    learned = library.Tokenizer(library.models.BPE())
    learned.pre_tokenizer = levels(add_prefix_space=False)
    learned.decoder = library.decoders.ByteLevel()
    learned.post_processor = library.processors.ByteLevel(trim_offsets=False)
    trainer = library.trainers.BpeTrainer(
        vocab_size=pieces - 2, min_frequency=2, special_tokens=[_END], initial_alphabet=levels.alphabet(),
        show_progress=False,
    )  # fmt: skip
    learned.train_from_iterator(sentences, trainer)
    made = HuggingFaceTokenizer.from_file(learned.to_str(), {PAD: None, EOS: _END, UNK: None})
    if made.size < pieces:
        raise ConfigError(f'data.pieces={pieces}: the training text allows {made.size} at most')
    return made


def load_library():
    """Returns the module `tokenizers`. Raises ConfigError if it is not installed."""
    with needing('this tokenizer', 'tokenizers'):
        import tokenizers
    return tokenizers


@contextlib.contextmanager
def _library_errors() -> Iterator[None]:
    """Raises RuntimeError instead of an error of the library.

    The error can be a panic of Rust, which is no Exception, and prints a trace to standard error itself.
    """
    with contextlib.ExitStack() as stack:
        if sys.__stderr__:
            own = os.dup(2)
            stack.callback(os.close, own)
            stack.callback(os.dup2, own, 2)
            os.dup2(stack.enter_context(open(os.devnull, 'wb')).fileno(), 2)
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            raise RuntimeError(f'damaged: {error}') from None


def _content(order: Sequence[int], model: object) -> bytes:
    return BEGIN + f'{json.dumps(list(order))}, "model": {json.dumps(model)}}}\n'.encode()
