"""All kinds of tokenizers that a file can hold, by the beginning of its content."""

from transformer.data.tokenizers import byte, codes, hugging_face, listed, sentence_piece
from transformer.data.tokenizers.base import Tokenizer

# Any other content is a SentencePiece model.
_BEGINNINGS = {
    codes.CODES: codes.CodesTokenizer,
    listed.PIECES: listed.PiecesTokenizer,
    sentence_piece.NUMBERED: sentence_piece.NumberedTokenizer,
    hugging_face.BEGIN: hugging_face.HuggingFaceTokenizer,
}


def read(content: bytes) -> Tokenizer:
    """Builds the tokenizer that a file's content describes.

    Raises:
      RuntimeError, ValueError: the content is damaged.
      ConfigError: the library that this kind needs is not installed.
    """
    if not content:
        raise RuntimeError('empty')
    if content == byte.BYTES:
        return byte.ByteTokenizer()
    kinds = (kind for begin, kind in _BEGINNINGS.items() if content.startswith(begin))
    return next(kinds, sentence_piece.SentencePieceTokenizer)(content)
