"""Reads tokenizers that other programs made: SentencePiece models, and codes of subword-nmt."""

from collections.abc import Sequence

from etils import epath
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from transformer.config import ConfigError, Data
from transformer.data.tokenizers.base import Tokenizer
from transformer.data.tokenizers.codes import CODES, CodesTokenizer
from transformer.data.tokenizers.sentence_piece import SentencePieceTokenizer
from transformer.tokens import EOS, PAD, UNK


def read_given(data: Data, fields: Sequence[str]) -> dict[str, Tokenizer]:
    """Reads the tokenizers that `data.tokenizer_model` names, by field: one file for all, or one each."""
    separate = data.vocabulary == 'separate'
    names = data.tokenizer_model.split(',') if separate else [data.tokenizer_model]
    number = len(fields) if separate else 1
    if len(names) != number:
        raise ConfigError(
            f'data.tokenizer_model={data.tokenizer_model}: needs {number} files, has {len(names)}'
        )
    if '' in names:
        raise ConfigError(f'data.tokenizer_model={data.tokenizer_model}: an empty name')
    models = [read_foreign(name) for name in names]
    for name, one in zip(names, models, strict=True):
        if one.size != data.pieces:
            raise ConfigError(f'data.pieces={data.pieces}: data.tokenizer_model={name} has {one.size} pieces')
    return dict(zip(fields, models if separate else models * len(fields), strict=True))


def read_foreign(file: epath.PathLike) -> SentencePieceTokenizer | CodesTokenizer:
    """Reads a SentencePiece model of any type, or codes of subword-nmt, that another program made.

    The pieces of a model are reordered: padding, the end, the unknown piece, then all others as they were.
    Missing ones of the first three are added, and the start of a sentence is removed, so a model of
    `spm_train` keeps its number of pieces. Texts get the same pieces as from the file.
    """
    try:
        content = epath.Path(file).read_bytes()
        if content.startswith(CODES):
            return CodesTokenizer(content)
        return SentencePieceTokenizer(with_symbols_first(content))
    except OSError as error:
        raise ConfigError(f'data.tokenizer_model={file}: {error.strerror or error}') from None
    except ConfigError as error:
        raise ConfigError(f'data.tokenizer_model={file}: {error}') from None
    except (DecodeError, RuntimeError, ValueError):
        raise ConfigError(
            f'data.tokenizer_model={file}: neither a SentencePiece model nor codes of subword-nmt, which '
            'begin with "#version: 0.2"'
        ) from None


def with_symbols_first(model: bytes) -> bytes:
    """Moves PAD, EOS and UNK of a SentencePiece model to their ids in `transformer.tokens`.

    The start of a sentence is removed.

    Raises:
      DecodeError, ValueError: it is no SentencePiece model.
    """
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    kinds, spec = sentencepiece_model_pb2.ModelProto.SentencePiece, proto.trainer_spec
    ids = {spec.pad_piece: PAD, spec.eos_piece: EOS, spec.unk_piece: UNK}
    if not any(piece.type == kinds.UNKNOWN for piece in proto.pieces):
        raise ValueError('no unknown piece')
    first = [kinds(piece=name, score=0.0, type=kinds.CONTROL) for name in sorted(ids, key=ids.get)]
    first[UNK].type = kinds.UNKNOWN
    special = (kinds.CONTROL, kinds.UNKNOWN)
    # All but the three pieces at their old places, whatever their types, and the start of a sentence.
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


def names_of(file: epath.PathLike) -> list[str]:
    """Returns the pieces of a SentencePiece model that `read_foreign` reads, in the model's own order."""
    model = sentencepiece_model_pb2.ModelProto.FromString(epath.Path(file).read_bytes())
    return [piece.piece for piece in model.pieces]
