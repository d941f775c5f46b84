"""Reads CTranslate2's models that write texts: model.bin, vocabularies and config.json."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from etils import epath

from transformer import files
from transformer.config import ConfigError, errors_in
from transformer.data import codec
from transformer.data.codec import Codecs
from transformer.data.tokenizers.base import Tokenizer
from transformer.data.tokenizers.byte import ByteTokenizer
from transformer.data.tokenizers.foreign import read_foreign
from transformer.data.tokenizers.hugging_face import HuggingFaceTokenizer
from transformer.data.tokenizers.sentence_piece import SentencePieceTokenizer
from transformer.interop import layout
from transformer.interop.arrays import content_of
from transformer.interop.ctranslate2 import binary, names
from transformer.interop.foreign import (
    FIELDS,
    NUMBERED,
    Foreign,
    all_rows,
    check_matrix,
    first_task,
    in_order,
    json_object,
    list_tokenizer,
    list_tokenizers,
    never_written,
    numbered_tokenizer,
    one_text_tables,
    order_of,
    positions,
    reordered,
    text_lines,
    unused,
    word_tables,
)
from transformer.interop.layout import Arrays
from transformer.tokens import EOS, START, UNK

_ALONE = 'TransformerDecoderSpec'  # a decoder without an encoder
# Models of early versions do not record their number of heads.
_HEADS = {'TransformerBase': 8, 'TransformerBig': 16, 'TransformerSpec': None, _ALONE: None}
_DEFAULTS = {
    'unk_token': '<unk>', 'bos_token': '<s>', 'eos_token': '</s>', 'decoder_start_token': '<s>',
    'add_source_bos': False, 'add_source_eos': False, 'layer_norm_epsilon': None,
}  # fmt: skip
# The shape of config.json, in which the epsilon can be null.
_SETTINGS = {
    **{f'{name}?': type(value) for name, value in _DEFAULTS.items()}, 'layer_norm_epsilon?': (float, None),
    '*': object,
}  # fmt: skip
_EPSILON = 1e-5
# The names that the file of each vocabulary of a pair can have.
_VOCABULARIES = [(f'{field}_vocabulary', 'shared_vocabulary') for field in FIELDS]
# Numbers beside the arrays, with the only values that a model here can have; None allows any.
_FLAGS = {
    'start_from_zero_embedding': (0,), 'embeddings_merge': (0,), 'alignment_layer': None,
    'alignment_heads': None, 'scale_outputs': (0,), 'multi_query_attention': (0,),
    'alibi': (0,), 'alibi_use_positive_positions': None, 'scale_alibi': (0,),
}  # fmt: skip


def read(folder: epath.Path) -> Foreign:
    """Reads the model in a folder.

    Raises:
      ConfigError: a file is missing or damaged, or the model has a part that is unknown here.
    """
    with errors_in(folder):
        kind, arrays = binary.read_arrays(content_of(folder / names.FILE))
        settings = _DEFAULTS | json_object(folder / 'config.json', _SETTINGS, {})
        model = _model(folder, kind, arrays, settings)
        return model._replace(unused=unused(folder, {'config.json': _SETTINGS}))


def _model(folder: epath.Path, kind: str, arrays: Arrays, settings: Mapping) -> Foreign:
    if kind not in _HEADS:
        raise ConfigError(f'{names.FILE}: holds a {kind}; known are {", ".join(_HEADS)}')
    if kind == _ALONE:
        return _decoder_alone(folder, _side(arrays, 'decoder'), settings)
    begin, start = settings['bos_token'], settings['decoder_start_token']
    if settings['add_source_bos'] and begin != start:
        raise ConfigError(
            f'config.json: bos_token={begin}: a source can begin here with decoder_start_token={start} alone'
        )
    encoder, decoder = (_side(arrays, side) for side in names.SIDES)
    starts_blank = bool(decoder.pop('start_from_zero_embedding', 0))
    options, others = _options(encoder, _HEADS[kind]), _options(decoder, _HEADS[kind])
    if different := [key for key in options if options[key] != others[key]]:
        key = different[0]
        raise ConfigError(f'{key}: {options[key]} in the encoder, {others[key]} in the decoder')
    vocabularies = _read_vocabularies(folder, settings, _VOCABULARIES)
    orders = [_order(*side, settings) for side in zip(FIELDS, vocabularies, strict=True)]
    begins = settings['add_source_bos'], not starts_blank
    for field, order, its in zip(FIELDS, orders, begins, strict=True):
        if order[START] < 0 and its:
            raise ConfigError(f'decoder_start_token={start}: the {field} vocabulary lacks it')
    source = _table(encoder, 'encoder', 'embeddings/weight', orders[0])
    tables, bias = [source, *_written_tables(decoder, orders[1])], _bias(decoder, orders[1])
    words, given = word_tables(tables, bias, joint=vocabularies[0] == vocabularies[1])
    start = {'model.start': 'zeros' if starts_blank else 'learned'}
    codecs = _codecs(folder, vocabularies, orders, settings)
    changes = {**options, **words, **start, 'data.pieces': codec.size(codecs), **_special_kind(codecs)}
    sides = dict(zip(names.SIDES, (encoder, decoder), strict=True))
    return _with_layers('pair', changes, sides, given, codecs, settings)


def _decoder_alone(folder: epath.Path, decoder: Arrays, settings: Mapping) -> Foreign:
    """Reads a decoder without an encoder. Its texts must begin as if after another text, as ours do."""
    if not (folder / 'config.json').exists():
        raise ConfigError('config.json: missing')
    end, begin = settings['eos_token'], settings['bos_token']
    if begin != end:
        raise ConfigError(f'config.json: bos_token={begin}: a text begins here with eos_token={end} alone')
    options = _options(decoder, None)
    [tokens] = _read_vocabularies(folder, settings, [('vocabulary',)])
    tokenizer, order = _tokenizer(folder, tokens, settings)
    (words, softmax), bias = _written_tables(decoder, order), _bias(decoder, order)
    own, given = one_text_tables(tokenizer, words, None if np.array_equal(words, softmax) else softmax, bias)
    codecs = {'text': tokenizer}
    changes = {**options, **own, 'train.task': first_task('text'), 'model.d_model': words.shape[1]}
    changes |= _special_kind(codecs)
    return _with_layers('text', changes, {'decoder': decoder}, given, codecs, settings)


def _tokenizer(folder: epath.Path, tokens: list[str], settings: Mapping) -> tuple[Tokenizer, list[int]]:
    """Returns the tokenizer of single texts, and the places of its pieces in our order."""
    padding, end, unknown = names.PIECES[START], settings['eos_token'], settings['unk_token']
    special = {
        START: padding if padding in tokens else None,
        EOS: end,
        # One token can have both roles, such as GPT-2's.
        UNK: None if unknown == end else unknown,
    }
    if end not in tokens:
        raise ConfigError(f'eos_token={end}: the vocabulary lacks it')
    if (file := folder / names.TOKENIZER).exists():
        tokenizer = HuggingFaceTokenizer.from_file(file.read_bytes(), special)
        own, place = [*map(tokenizer.name, range(tokenizer.size))], {name: n for n, name in enumerate(tokens)}
        if lacking := [name for name in own if name is not None and name not in place]:
            raise ConfigError(f'{file.name}: has a piece {lacking[0]}, which the vocabulary lacks')
        return tokenizer, all_rows([place.get(name, -1) for name in own], len(tokens))
    order = order_of(tokens, special)
    if (file := folder / names.TOKENIZERS[0]).exists():
        return _sentencepiece(file, tokens, order), order
    if _are_bytes(tokens, order):
        return ByteTokenizer(), order
    return list_tokenizer(tokens, order), order


def _with_layers(
    form: str,
    changes: Mapping[str, object],
    sides: Mapping[str, Arrays],
    given: Arrays,
    codecs: Codecs,
    settings: Mapping,
) -> Foreign:
    """Adds the layers of each side to the options and parameters of the words."""
    first, arrays = next(iter(sides.items()))
    changes = {
        **changes,
        **dict(zip(('model.N', 'model.N_decoder'), map(_layers, sides.values()), strict=False)),
        'model.d_ff': np.size(_get(arrays, first, 'layer_0/ffn/linear_0/bias')),
        'model.norm_epsilon': settings['layer_norm_epsilon'] or _EPSILON,
    }
    theirs = {f'{side}/{name}': array for side, own in sides.items() for name, array in own.items()}
    layout.check_sizes(changes, theirs)
    params = layout.to_ours(names.table(changes, form), theirs, layout.parameter_shapes(changes), given)
    return Foreign(changes, params, codecs)


def _side(arrays: Arrays, side: str) -> Arrays:
    """Returns a side's arrays without its name, and the numbers that both sides share in early versions."""
    shared = {name: array for name, array in arrays.items() if '/' not in name}
    own = {name.removeprefix(f'{side}/'): a for name, a in arrays.items() if name.startswith(f'{side}/')}
    # An encoder can have several embeddings.
    return shared | {name.replace('embeddings_0/', 'embeddings/'): array for name, array in own.items()}


def _get(arrays: Arrays, side: str, name: str) -> np.ndarray:
    if name not in arrays:
        raise ConfigError(f'{names.FILE}: {side}/{name}: missing')
    return arrays[name]


def _table(arrays: Arrays, side: str, name: str, order: list[int]) -> np.ndarray:
    """Removes a table of words and returns it in our order."""
    path = f'{side}/{name}'
    table = check_matrix(path, _get(arrays, side, name))
    del arrays[name]
    return reordered(path, table, order)


def _written_tables(decoder: Arrays, order: list[int]) -> list[np.ndarray]:
    """Removes the embeddings and the softmax's matrix of a decoder's words and returns them in our order."""
    return [_table(decoder, 'decoder', name, order) for name in ('embeddings/weight', 'projection/weight')]


def _bias(decoder: Arrays, order: list[int]) -> np.ndarray:
    """Removes the softmax's bias and returns it in our order. By it, missing pieces are never written."""
    bias = never_written(order)
    if 'projection/bias' in decoder:
        bias += reordered('decoder/projection/bias', decoder.pop('projection/bias'), order)
    return bias


def _options(arrays: Arrays, heads: int | None) -> dict[str, object]:
    """Removes the numbers and the positions of a side, and returns the options that they set."""
    for name, possible in _FLAGS.items():
        value = arrays.pop(name, None)
        if value is not None and possible is not None and _number(name, value) not in possible:
            raise ConfigError(f'{names.FILE}: {name}={_number(name, value)}: no model here has it')
    number = lambda name, default: _number(name, arrays.pop(name, default))
    activation = number('activation', 0)
    if activation not in names.ACTIVATIONS:
        raise ConfigError(f'{names.FILE}: activation={activation}: no model here has it')
    activation = names.ACTIVATIONS[activation]
    if f'layer_0/ffn/linear_{names.GATE}/weight' in arrays:
        if activation != 'swish':
            raise ConfigError(f'{names.FILE}: a gate with {activation}: no model here has it')
        activation = 'swiglu'
    heads = number('num_heads', heads or 0)
    if not heads:
        raise ConfigError(f'{names.FILE}: num_heads: missing')
    scaled = number('embeddings/multiply_by_sqrt_depth', number('scale_embeddings', 1))
    options = {
        'model.h': heads,
        'model.norm': 'pre' if number('pre_norm', 1) else 'post',
        'model.norm_final': 'layer_norm/gamma' in arrays,
        'model.norm_embedding': 'layernorm_embedding/gamma' in arrays,
        'model.activation': activation,
        'model.scale_embeddings': bool(scaled),
    }
    return options | (_rotary(arrays, heads) or _positions(arrays))


def _number(name: str, value: np.ndarray | int) -> int:
    """Returns a whole number that is stored beside the arrays."""
    value = np.asarray(value)
    if value.size != 1 or value.dtype.kind not in 'iu':
        raise ConfigError(f'{names.FILE}: {name}: expected one whole number')
    return int(value.item())


def _rotary(arrays: Arrays, heads: int) -> dict[str, object]:
    """Removes the numbers of rotary positions in the layers, and returns the options that they set."""
    numbers = [name for name in arrays if '/self_attention/rotary_' in name]
    if numbers and not any(name.endswith('rotary_interleave') for name in numbers):
        raise ConfigError(f'{names.FILE}: rotary_interleave: missing')
    whole = np.size(arrays.get('layer_0/self_attention/layer_norm/gamma', ())) // heads
    possible = {'rotary_dim': (0, whole), 'rotary_interleave': (0, 1), 'rotary_base': (10000,)}
    for name in numbers:
        value, kind = arrays.pop(name), name.split('/')[-1]
        if value.size != 1 or value.item() not in possible.get(kind, ()):
            raise ConfigError(f'{names.FILE}: {name}={value.tolist()}: no model here has it')
        if kind == 'rotary_interleave':
            # The same in all layers.
            possible[kind] = (value.item(),)
    if not numbers:
        return {}
    pairs = 'interleaved' if possible['rotary_interleave'] == (1,) else 'halves'
    return {'model.positions': 'rotary', 'model.rotary_pairs': pairs}


def _positions(arrays: Arrays) -> dict[str, object]:
    """Returns the options of positions, and removes the encodings if they are sinusoids."""
    name = 'position_encodings/encodings'
    if name not in arrays:
        return {'model.positions': 'sinusoidal', 'model.sinusoid': 't2t', 'model.first_position': 1}
    options = positions(name, arrays[name])
    if options['model.positions'] == 'sinusoidal':
        del arrays[name]
    return options


def _layers(arrays: Arrays) -> int:
    return len({match[0] for name in arrays if (match := re.match(r'layer_\d+/', name))})


def _read_vocabularies(
    folder: epath.Path, settings: Mapping, possible: Sequence[tuple[str, ...]]
) -> list[list[str]]:
    """Reads the tokens of each vocabulary, whose file has one of several names.

    The unknown token is appended if the file lacks it.
    """
    vocabularies = []
    for stems in possible:
        wanted = [f'{stem}.{end}' for stem in stems for end in ('json', 'txt')]
        file = next((folder / name for name in wanted if (folder / name).exists()), None)
        if file is None:
            raise ConfigError(f'{" or ".join(wanted)}: missing')
        is_json = file.suffix == '.json'
        tokens = files.read_json(file, [str], file.name) if is_json else text_lines(file)
        if len(set(tokens)) < len(tokens):
            twice = next(token for number, token in enumerate(tokens) if token in tokens[:number])
            raise ConfigError(f'{file.name}: has "{twice}" twice')
        unknown = settings['unk_token']
        vocabularies.append(tokens if unknown in tokens else [*tokens, unknown])
    return vocabularies


def _order(field: str, tokens: list[str], settings: Mapping) -> list[int]:
    start, end, unknown = (settings[f'{name}_token'] for name in ('decoder_start', 'eos', 'unk'))
    if end not in tokens:
        raise ConfigError(f'eos_token={end}: the {field} vocabulary lacks it')
    return order_of(tokens, {START: start, EOS: end, UNK: unknown})


def _sentencepiece(file: epath.Path, tokens: list[str], order: list[int]) -> SentencePieceTokenizer:
    try:
        tokenizer = read_foreign(file)
    except ConfigError:
        raise ConfigError(f'{file.name}: damaged') from None
    pieces = tokenizer.pieces(range(UNK + 1, tokenizer.size))
    if pieces != [tokens[n] for n in order[UNK + 1 : tokenizer.size]]:
        raise ConfigError(f'{file.name}: has other pieces than the vocabulary')
    return tokenizer


def _codecs(
    folder: epath.Path, vocabularies: list[list[str]], orders: list[list[int]], settings: Mapping
) -> Codecs:
    begin, end = settings['add_source_bos'], settings['add_source_eos']
    models, numbered, library = (
        [folder / name for name in some] for some in (names.TOKENIZERS, NUMBERED.values(), names.OF_SIDES)
    )
    both = list(zip(vocabularies, orders, strict=True))
    if (joint := folder / names.TOKENIZER).exists():
        library = [joint] * len(FIELDS)
    if library[0].exists():
        tokenizers = [_library_tokenizer(file, *its) for file, its in zip(library, both, strict=True)]
    elif models[0].exists():
        models = [model if model.exists() else models[0] for model in models]
        tokenizers = [_sentencepiece(model, *its) for model, its in zip(models, both, strict=True)]
    elif numbered[0].exists():
        pieces = [_without_unused(in_order(*its)) for its in both]
        tokenizers = [numbered_tokenizer(*its) for its in zip(numbered, pieces, strict=True)]
    elif all(_are_bytes(*its) for its in both):
        tokenizers = [ByteTokenizer() for _ in FIELDS]
    else:
        return list_tokenizers(vocabularies, orders, begin=begin, end=end)
    if begin or not end:
        raise ConfigError(
            'config.json: here, add_source_bos is false and add_source_eos is true with these tokenizers'
        )
    return dict(zip(FIELDS, tokenizers, strict=True))


def _library_tokenizer(file: epath.Path, tokens: list[str], order: list[int]) -> HuggingFaceTokenizer:
    if not file.exists():
        raise ConfigError(f'{file.name}: missing')
    pieces = _without_unused(in_order(tokens, order))
    special = {n: None if re.fullmatch(r'<none \d+>', pieces[n]) else pieces[n] for n in (START, EOS, UNK)}
    tokenizer = HuggingFaceTokenizer.from_file(file.read_bytes(), special, file.name)
    if [tokenizer.name(n) for n in range(UNK + 1, tokenizer.size)] != pieces[UNK + 1 :]:
        raise ConfigError(f'{file.name}: has other pieces than the vocabulary')
    return tokenizer


def _are_bytes(tokens: list[str], order: list[int]) -> bool:
    """Returns whether the pieces are the bytes as `writing.tokens` names them."""
    pieces, size = in_order(tokens, order), ByteTokenizer.size
    return pieces[UNK + 1 : size] == ByteTokenizer().pieces(range(UNK + 1, size))


def _special_kind(codecs: Codecs) -> dict[str, object]:
    """Returns the option of a kind of tokenizer that has no file."""
    are_bytes = all(isinstance(one, ByteTokenizer) for one in codecs.values())
    return {'data.tokenizer': 'bytes'} if are_bytes else {}


def _without_unused(pieces: list[str]) -> list[str]:
    """Removes the names at the end that `writing.tokens` gives to rows without a piece."""
    end = len(pieces)
    while re.fullmatch(r'<unused \d+>', pieces[end - 1]):
        end -= 1
    return pieces[:end]
