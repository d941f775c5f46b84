"""Reads models as Hugging Face transformers saves them (extra `export`)."""

import re
from collections.abc import Mapping

import numpy as np
from etils import epath

from transformer import files
from transformer.config import ConfigError
from transformer.data import codec
from transformer.data.codec import Codecs, Labels
from transformer.interop import layout
from transformer.interop.arrays import read_safetensors, read_torch
from transformer.interop.foreign import (
    Foreign,
    all_rows,
    check_axes,
    json_object,
    never_written,
    one_text_tables,
    positions,
    reordered,
    unused,
    word_tables,
)
from transformer.interop.hugging_face import bert, gpt2, marian, tokenizer_files, vit
from transformer.interop.hugging_face.kind import CONFIG, FILE, GENERATION, PIXELS, SEARCH, Kind, shape
from transformer.interop.layout import Arrays
from transformer.tokens import EOS, START

TORCH_FILE = 'pytorch_model.bin'
SHARDED = f'{FILE}.index.json', f'{TORCH_FILE}.index.json'
# A setting by which a config.json without model_type, of an early version, is known.
_EARLY = {'type_vocab_size': 'bert', 'n_embd': 'gpt2'}
KINDS = {'bert': bert.KIND, 'gpt2': gpt2.KIND, 'marian': marian.KIND, 'vit': vit.KIND}
# The settings by which pixels are from -1 to 1: their shapes, and the values of numbers.
_NUMBERS = (float, [float])
_PIXELS = {
    'do_rescale?': True, 'rescale_factor?': float, 'do_normalize?': True, 'image_mean?': _NUMBERS,
    'image_std?': _NUMBERS, '*': object,
}  # fmt: skip
# How images are resized: to the model's size, linearly.
_RESIZED = {
    'do_resize?': True, 'resample?': (range(2, 3), None), 'crop_pct?': None,
    'size?': (files.SIZE, {'height': files.SIZE, 'width': files.SIZE}, None), 'do_convert_rgb?': (bool, None),
}  # fmt: skip
_PIXEL_VALUES = {'rescale_factor': 1 / 255, 'image_mean': 0.5, 'image_std': 0.5}
# What a config.json can leave out.
_DEFAULTS = {'id2label': {'0': 'LABEL_0', '1': 'LABEL_1'}, 'tie_word_embeddings': True}


def read(folder: epath.Path) -> Foreign:
    """Reads the model in a folder; ConfigError says what is damaged, or unknown here."""
    try:
        return _read(folder)
    except ConfigError as error:
        raise ConfigError(f'{folder}: {error}') from None


def _read(folder: epath.Path) -> Foreign:
    settings = json_object(folder / CONFIG, {'model_type?': (str, None), '*': object})
    early = next((kind for setting, kind in _EARLY.items() if settings.get(setting)), None)
    name = settings.get('model_type') or early
    if name not in KINDS:
        raise ConfigError(f'{CONFIG}: model_type={name}: known are {", ".join(KINDS)}')
    kind = KINDS[name]
    settings = _DEFAULTS | files.check_shape(settings, shape(kind), CONFIG)
    arrays, ignored = _named(kind, _arrays(folder))
    kind.to_matrices(arrays)
    options = {ours: settings[theirs] for theirs, ours in kind.settings.items()}
    options |= kind.options | kind.read(settings) | kind.beside(folder)
    layout.check_sizes(options, arrays)
    if kind.words is None:
        _check_pixels(folder, settings['image_size'])
        further, params, codecs = _classes(settings)
    elif kind.form == 'pair':
        further, params, codecs = _pair_words(folder, kind, settings, arrays)
    else:
        further, params, codecs = _text_words(folder, kind, settings, arrays)
    changes = options | further
    shapes = layout.parameter_shapes(changes)
    params = layout.to_ours(kind.table(changes), arrays, shapes, params)
    json_object(folder / GENERATION, SEARCH | {'*': object}, {})
    known = {CONFIG: shape(kind), GENERATION: SEARCH, PIXELS: _PIXELS | _RESIZED}
    if kind.words:
        known[tokenizer_files.SETTINGS] = tokenizer_files.settings_shape(folder, kind)
    return Foreign(changes, params, codecs, ignored, unused(folder, known))


def _named(kind: Kind, arrays: Arrays) -> tuple[Arrays, tuple[str, ...]]:
    """The arrays of the model by their names in the file of a whole model, and the names of all others."""
    alone = not any(name.startswith(kind.prefix) for name in arrays)
    names = {name: kind.prefix + name if alone else name for name in arrays}
    ignored = tuple(n for n, whole in names.items() if any(re.fullmatch(one, whole) for one in kind.ignored))
    return {whole: arrays[n] for n, whole in names.items() if n not in ignored}, ignored


def _arrays(folder: epath.Path) -> Arrays:
    for name, read_file in ((FILE, read_safetensors), (TORCH_FILE, read_torch)):
        if (folder / name).exists():
            return read_file(folder / name)
    if several := [name for name in SHARDED if (folder / name).exists()]:
        raise ConfigError(f'{several[0]}: arrays in several files are not read here; save the model as one')
    raise ConfigError(f'{FILE} or {TORCH_FILE}: missing')


def _pop_table(arrays: Arrays, name: str) -> np.ndarray:
    if name not in arrays:
        raise ConfigError(f'{name}: missing')
    return check_axes(name, arrays.pop(name), 2)


def _check_tied(setting: str, tables: Mapping[str, np.ndarray | None]) -> None:
    """Raises ConfigError if tables differ that are one by a setting; None is a table that is not there."""
    (first, table), *others = [(name, table) for name, table in tables.items() if table is not None]
    for name, other in others:
        if not np.array_equal(table, other):
            raise ConfigError(f'{CONFIG}: {setting}=True: {name} differs from {first}')


def _check_pixels(folder: epath.Path, length: int) -> None:
    """Raises ConfigError if images are not resized to a square, with pixels from -1 to 1, as here."""
    settings = json_object(folder / PIXELS, _PIXELS | _RESIZED, {})
    for name, value in settings.items():
        # Such as do_center_crop.
        if name.startswith('do_') and value and f'{name}?' not in _PIXELS | _RESIZED:
            raise ConfigError(f'{PIXELS}: {name}={value}: images here are only resized')
    size = settings.get('size') or length
    if size not in (length, {'height': length, 'width': length}):
        raise ConfigError(f'{PIXELS}: size={size}: the model reads {length} x {length} pixels')
    for name, expected in _PIXEL_VALUES.items():
        if not np.allclose(settings.get(name, expected), expected, rtol=1e-4, atol=0.0):
            raise ConfigError(f'{PIXELS}: {name}={settings[name]}: pixels here are from -1 to 1')


def _classes(settings: Mapping) -> tuple[dict[str, object], Arrays, Codecs]:
    """The options and parameters of classes, of which there are none, and their names."""
    names = settings['id2label']
    if names.keys() != {str(number) for number in range(len(names))}:
        raise ConfigError(f'{CONFIG}: id2label: expected the names of the classes 0, 1, 2, ...')
    labels = Labels(tuple(names[str(number)] for number in range(len(names))))
    return {'images.classes': labels.size}, {}, {'image': None, 'label': labels}


def _text_words(
    folder: epath.Path, kind: Kind, settings: Mapping, arrays: Arrays
) -> tuple[dict[str, object], Arrays, Codecs]:
    """The options and parameters of words, for a model of single texts, and its tokenizer."""
    names = kind.words
    words, softmax = _pop_table(arrays, names.source), arrays.pop(names.softmax, None)
    tokenizer = tokenizer_files.read(folder, kind)
    if max(tokenizer.order) >= len(words):
        file = tokenizer_files.TOKENIZER
        raise ConfigError(f'{file}: has a piece {max(tokenizer.order)}, the model only {len(words)}')
    expected = {'vocab_size': len(words)}
    if kind.form == 'text':
        expected |= dict.fromkeys(('bos_token_id', 'eos_token_id'), tokenizer.order[EOS])
    for setting, there in expected.items():
        value = settings.get(setting)
        # A small model can keep GPT-2's own ids, which none of its pieces has.
        beyond = setting != 'vocab_size' and isinstance(value, int) and value >= len(words)
        if value not in (None, there) and not beyond:
            raise ConfigError(f'{CONFIG}: {setting}={value}: the files beside it have {there}')
    order = all_rows(tokenizer.order, len(words))
    bias = never_written(order)
    if names.bias in arrays:
        bias += reordered(names.bias, arrays.pop(names.bias), order)
    table = reordered(names.source, words, order)
    if settings['tie_word_embeddings']:
        _check_tied('tie_word_embeddings', {names.source: words, names.softmax: softmax})
        softmax = None
    elif softmax is None:
        raise ConfigError(f'{names.softmax}: missing')
    else:
        softmax = reordered(names.softmax, softmax, order)
    changes, params = one_text_tables(tokenizer, table, softmax, bias)
    return changes | {'model.scale_embeddings': False}, params, {'text': tokenizer}


def _pair_words(
    folder: epath.Path, kind: Kind, settings: Mapping, arrays: Arrays
) -> tuple[dict[str, object], Arrays, Codecs]:
    """The options and parameters of words and positions, for an encoder-decoder, and its tokenizers."""
    names, shared = kind.words, arrays.pop(marian.SHARED, None)
    if shared is not None:
        # A file can also have the two that are this one.
        arrays.update({name: shared for name in (names.source, names.target) if name not in arrays})
    source, target = _pop_table(arrays, names.source), _pop_table(arrays, names.target)
    if settings.get('share_encoder_decoder_embeddings', True):
        tables = {names.source: source, names.target: target, marian.SHARED: shared}
        _check_tied('share_encoder_decoder_embeddings', tables)
    for setting, table in (('vocab_size', source), ('decoder_vocab_size', target)):
        if settings.get(setting, len(table)) != len(table):
            raise ConfigError(f'{CONFIG}: {setting}={settings[setting]}: the model has {len(table)} words')
    if settings['tie_word_embeddings']:
        # A file can have it all the same.
        tables = {names.target: target, names.softmax: arrays.pop(names.softmax, None)}
        _check_tied('tie_word_embeddings', tables)
        softmax = target
    else:
        softmax = _pop_table(arrays, names.softmax)
    codecs, orders, joint = tokenizer_files.read_pair(folder, settings)
    for table, order, file in zip((source, target), orders, tokenizer_files.vocabularies(joint), strict=True):
        if max(order) >= len(table):
            raise ConfigError(f'{file}: has a piece {max(order)}, the model only {len(table)}')
    orders = [all_rows(order, len(table)) for order, table in zip(orders, (source, target), strict=True)]
    tables = [
        reordered(name, table, order)
        for name, table, order in zip(names[:3], (source, target, softmax), (*orders, orders[1]), strict=True)
    ]
    bias = never_written(orders[1])
    if names.bias in arrays:
        bias += reordered(names.bias, arrays.pop(names.bias).reshape(-1), orders[1])
    zeros = not tables[1][START].any()
    if zeros:
        # The softmax has a row for the start all the same, and a tied table holds it.
        for table in tables[:2]:
            if not table[START].any():
                table[START] = tables[2][START]
    words, params = word_tables(tables, bias, joint=joint)
    start = {'model.start': 'zeros' if zeros else 'learned'}
    return _pair_positions(arrays) | words | start | {'data.pieces': codec.size(codecs)}, params, codecs


def _pair_positions(arrays: Arrays) -> dict[str, object]:
    """The options of positions; removes the tables if they are sinusoids."""
    options = [positions(name, arrays[name]) for name in marian.POSITIONS if name in arrays]
    if not options:
        return {'model.positions': 'sinusoidal', 'model.sinusoid': 'halves', 'model.first_position': 0}
    if options[0]['model.positions'] == 'sinusoidal' and all(one == options[0] for one in options):
        for name in marian.POSITIONS:
            arrays.pop(name, None)
    return options[0]
