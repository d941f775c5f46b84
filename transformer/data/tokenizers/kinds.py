"""All kinds of tokenizers that a file can hold, and how its content says which."""

import base64
import hashlib
import json

from transformer.data.tokenizers import byte, codes, hugging_face, listed, sentence_piece
from transformer.data.tokenizers.base import FILE, Tokenizer

# The beginning of the content if each field has a tokenizer of its own.
_SEPARATE = b'{"tokenizer": "separate", "models": '
# Any other content is a SentencePiece model.
_BEGINNINGS = {
    codes.CODES: codes.CodesTokenizer,
    listed.PIECES: listed.PiecesTokenizer,
    sentence_piece.NUMBERED: sentence_piece.NumberedTokenizer,
    hugging_face.BEGIN: hugging_face.HuggingFaceTokenizer,
}


def read(content: bytes) -> 'AnyTokenizer':
    """Builds the tokenizer that a file's content describes; RuntimeError if it is damaged."""
    if content == byte.BYTES:
        return byte.ByteTokenizer()
    if not content.startswith(_SEPARATE):
        kinds = (kind for begin, kind in _BEGINNINGS.items() if content.startswith(begin))
        return next(kinds, sentence_piece.SentencePieceTokenizer)(content)
    try:
        models = {field: base64.b64decode(text) for field, text in json.loads(content)['models'].items()}
    except (ValueError, KeyError, AttributeError) as error:
        raise RuntimeError(f'damaged: {error}') from None
    return SeparateTokenizers({field: read(model) for field, model in models.items()})


class SeparateTokenizers:
    """One tokenizer per field; `size` is the largest one's."""

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


AnyTokenizer = Tokenizer | SeparateTokenizers
