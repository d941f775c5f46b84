"""Lists of pieces: characters, or words between blanks."""

import json
from collections.abc import Iterable, Sequence

from transformer import files
from transformer.data.tokenizers.base import BLANK, Tokenizer
from transformer.tokens import EOS, PAD, START, UNK

PIECES = b'{"tokenizer": "pieces", '  # the beginning of the content
_SHAPE = {'tokenizer': str, 'pieces': [str], 'joiner': str, 'begin?': bool, 'end': bool, 'counts?': [int]}


class PiecesTokenizer(Tokenizer):
    """A tokenizer that cuts text into the pieces of a list: its characters, or words between blanks.

    Args:
      content: JSON with `pieces`, in the order of `tokens`; `joiner`, the text between pieces; and `begin`
        and `end`, whether START precedes the pieces of a text, and EOS follows them. It can have `counts`.

    Attributes:
      counts: how often the text that the list was learned from has each piece, if the file says so.
    """

    def __init__(self, content: bytes):
        super().__init__(content)
        try:
            values = files.parse_json(content, _SHAPE, self.file)
        except ValueError as error:
            raise RuntimeError(str(error)) from None
        self._pieces, self._joiner, self._end = (values[name] for name in ('pieces', 'joiner', 'end'))
        # Earlier files have no `begin`.
        self._begin, self.counts = values.get('begin', False), values.get('counts')
        if self.counts is not None and len(self.counts) != len(self._pieces):
            raise RuntimeError(f'{self.file}: has {len(self._pieces)} pieces and {len(self.counts)} counts')
        self._ids = {piece: number for number, piece in enumerate(self._pieces) if number > UNK}
        self.size = len(self._pieces)

    @classmethod
    def from_pieces(
        cls,
        pieces: Sequence[str],
        joiner: str,
        *,
        end: bool,
        begin: bool = False,
        counts: Sequence[int] | None = None,
    ) -> 'PiecesTokenizer':
        """Makes a tokenizer of a list of pieces."""
        values = {'joiner': joiner, 'begin': begin, 'end': end, 'pieces': pieces}
        values |= {} if counts is None else {'counts': counts}
        values = json.dumps(values, ensure_ascii=False)
        return cls(PIECES + values[1:].encode() + b'\n')

    def encode(self, text: str) -> list[int]:
        """Returns the pieces of one text, with UNK for those that are not in the list."""
        parts = filter(None, text.split(self._joiner)) if self._joiner else text
        ids = [self._ids.get(part, UNK) for part in parts]
        return [*[START] * self._begin, *ids, *[EOS] * self._end]

    def _text(self, ids: list[int]) -> str:
        known = (token for token in ids if token != PAD)
        return self._joiner.join(self._pieces[t] if UNK < t < self.size else '\ufffd' for t in known)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the pieces as the list writes them."""
        return [self._pieces[int(token)] for token in ids]

    def marked(self, ids: Iterable[int]) -> list[str]:
        """Returns the pieces, with "▁" before each if they are words."""
        ids = [*map(int, ids)]
        words = self._joiner == ' '
        pieces = zip(ids, self.pieces(ids), strict=True)
        return [BLANK + piece if words and token > UNK else piece for token, piece in pieces]
