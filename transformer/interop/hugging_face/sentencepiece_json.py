"""Writes a SentencePiece model as the library `tokenizers` has it: the content of a tokenizer.json."""

from collections.abc import Sequence

from sentencepiece import sentencepiece_model_pb2

from transformer.config import ConfigError
from transformer.tokens import EOS, UNK

_BLANK = '\u2581'
_BPE, _CHAR, _UNIGRAM = 2, 4, 1


def convert(model: bytes, names: Sequence[str], *, begins: bool) -> dict[str, object]:
    """Returns the content of a tokenizer.json that cuts texts into the same pieces.

    Args:
      model: a SentencePiece model with our first pieces.
      names: the names of PAD, EOS and UNK.
      begins: whether EOS begins a text, as if after another text, or ends it.

    Raises:
      ConfigError: the model changes texts before it cuts them, or has pieces that the user defined.
    """
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    normalizer, kinds = proto.normalizer_spec, sentencepiece_model_pb2.ModelProto.SentencePiece
    changes = normalizer.precompiled_charsmap or normalizer.remove_extra_whitespaces
    before = normalizer.add_dummy_prefix and not proto.trainer_spec.treat_whitespace_as_suffix
    if changes or not before or not normalizer.escape_whitespaces:
        raise ConfigError(
            'data.tokenizer_model: it changes texts, or has no blank before words; huggingface has no file '
            'for it'
        )
    if any(piece.type == kinds.USER_DEFINED for piece in proto.pieces):
        raise ConfigError('data.tokenizer_model: it has pieces of its user; huggingface has no file for it')
    pieces = [*names, *(piece.piece for piece in proto.pieces[len(names) :])]
    plain = dict.fromkeys(('single_word', 'lstrip', 'rstrip'), False)
    # A gap stands for a word with the blank before it, which the normaliser adds to both.
    special = [
        {'id': number, 'content': name, 'special': True, 'normalized': number == UNK, **plain}
        for number, name in enumerate(names)
    ]
    return {
        'version': '1.0',
        'truncation': None,
        'padding': None,
        'added_tokens': special,
        'normalizer': {
            'type': 'Sequence',
            'normalizers': [
                {'type': 'Prepend', 'prepend': _BLANK},
                {'type': 'Replace', 'pattern': {'String': ' '}, 'content': _BLANK},
            ],
        },
        'pre_tokenizer': None,
        'post_processor': template(names[EOS], EOS, begins=begins),
        'decoder': {
            'type': 'Sequence',
            'decoders': [
                {'type': 'Replace', 'pattern': {'String': _BLANK}, 'content': ' '},
                {'type': 'ByteFallback'},
                {'type': 'Fuse'},
                {'type': 'Strip', 'content': ' ', 'start': 1, 'stop': 0},
            ],
        },
        'model': _model(proto, pieces, names[UNK]),
    }


def template(end: str, number: int, *, begins: bool) -> dict[str, object]:
    """Returns the step of a tokenizer.json that puts the end piece before a text, or after it."""
    piece = {'SpecialToken': {'id': end, 'type_id': 0}}
    first, second = ({'Sequence': {'id': text, 'type_id': 0}} for text in 'AB')
    return {
        'type': 'TemplateProcessing',
        'single': [piece, first] if begins else [first, piece],
        'pair': [piece, first, second] if begins else [first, second, piece],
        'special_tokens': {end: {'id': end, 'ids': [number], 'tokens': [end]}},
    }


def _model(proto, pieces: list[str], unknown: str) -> dict[str, object]:
    kind, with_bytes = proto.trainer_spec.model_type, proto.trainer_spec.byte_fallback
    if kind == _UNIGRAM:
        scores = [[name, piece.score] for name, piece in zip(pieces, proto.pieces, strict=True)]
        return {'type': 'Unigram', 'unk_id': UNK, 'vocab': scores, 'byte_fallback': with_bytes}
    if kind not in (_BPE, _CHAR):
        raise ConfigError('data.tokenizer_model: neither BPE, unigram nor characters')
    return {
        'type': 'BPE',
        'dropout': None,
        'unk_token': unknown,
        'continuing_subword_prefix': None,
        'end_of_word_suffix': None,
        'fuse_unk': False,
        'byte_fallback': with_bytes,
        'ignore_merges': False,
        'vocab': {piece: number for number, piece in enumerate(pieces)},
        'merges': _merges(proto) if kind == _BPE else [],
    }


def _merges(proto) -> list[list[str]]:
    """Returns the pairs of pieces that BPE joins, in the order of the joined pieces' scores."""
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    scores = {piece.piece: piece.score for piece in proto.pieces if piece.type == kinds.NORMAL}
    joined = sorted((piece for piece in scores if len(piece) > 1), key=lambda piece: -scores[piece])
    return [
        [piece[:cut], piece[cut:]]
        for piece in joined
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
