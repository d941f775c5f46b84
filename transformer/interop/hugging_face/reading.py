"""Reads models as Hugging Face transformers saves them (extra `export`)."""

import collections
import re
from collections.abc import Mapping

import numpy as np
from etils import epath

from transformer import files
from transformer.config import ConfigError, errors_in
from transformer.data import codec
from transformer.data.codec import Codecs, Labels
from transformer.data.tokenizers.hugging_face import HuggingFaceTokenizer
from transformer.interop import layout
from transformer.interop.arrays import read as arrays_of
from transformer.interop.foreign import (
    NEVER,
    Foreign,
    all_rows,
    check_matrix,
    check_name,
    first_task,
    json_object,
    never_written,
    one_text_tables,
    positions,
    reordered,
    unused,
    word_tables,
)
from transformer.interop.hugging_face import bert, clip, gpt2, marian, sentence, t5, tokenizer_files, vit
from transformer.interop.hugging_face.kind import (
    ACTIVATIONS,
    CONFIG,
    FILE,
    GENERATION,
    PIXELS,
    SEARCH,
    Kind,
    flat,
    shape,
)
from transformer.interop.layout import Arrays
from transformer.tokens import EOS, START, UNK

TORCH_FILE = 'pytorch_model.bin'
SHARDED = f'{FILE}.index.json', f'{TORCH_FILE}.index.json'
# Settings of the search that are also the model's.
_IDS = 'decoder_start_token_id', 'eos_token_id'
# Prefixes that PyTorch and programs around it put before the names of all arrays.
_WRAPPERS = 'module.', '_orig_mod.', 'model.'
# Settings that identify the kind of an early version's config.json, which has no model_type, and how its
# architectures begin.
_EARLY = {'type_vocab_size': ('bert', 'Bert'), 'n_embd': ('gpt2', 'GPT2')}
KINDS = {
    'bert': bert.KIND, 'clip': clip.KIND, 'gpt2': gpt2.KIND, 'marian': marian.KIND, 't5': t5.KIND,
    'vit': vit.KIND,
}  # fmt: skip
# The settings by which images are resized to the model's size, linearly, with pixels from -1 to 1: their
# shapes, and the values of numbers.
_NUMBERS = (float, [float])
_PIXELS = {
    'do_rescale?': True, 'rescale_factor?': float, 'do_normalize?': True, 'image_mean?': _NUMBERS,
    'image_std?': _NUMBERS, '*': object, 'do_resize?': True, 'resample?': (range(2, 3), None),
    'crop_pct?': None, 'size?': (files.SIZE, {'height': files.SIZE, 'width': files.SIZE}, None),
    'do_convert_rgb?': (bool, None),
}  # fmt: skip
_PIXEL_VALUES = {'rescale_factor': 1 / 255, 'image_mean': 0.5, 'image_std': 0.5}
# The defaults of settings that a config.json can leave out.
_DEFAULTS = {'id2label': {'0': 'LABEL_0', '1': 'LABEL_1'}, 'tie_word_embeddings': True}


def read(folder: epath.Path) -> Foreign:
    """Reads the model in a folder.

    Raises:
      ConfigError: a file is missing or damaged, or the model has a part that is unknown here.
    """
    with errors_in(folder):
        return _read(folder)


def _read(folder: epath.Path) -> Foreign:
    shape_of_kind = {'model_type?': (str, None), 'architectures?': ([str], None), '*': object}
    settings = json_object(folder / CONFIG, shape_of_kind)
    name = settings.get('model_type') or _early(settings)
    if name not in KINDS:
        raise ConfigError(f'{CONFIG}: model_type={name}: known are {", ".join(KINDS)}')
    kind = KINDS[name]
    given = files.check_shape(flat(kind, settings), shape(kind), CONFIG)
    settings = _DEFAULTS | given
    arrays, ignored = _named(kind, _arrays(folder))
    kind.to_matrices(arrays)
    options = {
        ours: ACTIVATIONS.get(settings[theirs], settings[theirs]) for theirs, ours in kind.settings.items()
    }
    options['train.task'] = first_task(kind.form)
    options |= kind.options | kind.read(settings) | kind.beside(folder)
    layout.check_sizes(options, arrays)
    if kind.words is None:
        _check_pixels(folder, settings['image_size'])
        further, params, codecs, notes = _classes(settings, arrays)
    elif kind.form == 'image_text':
        further, params, codecs, notes = clip.read_words(folder, kind, settings, arrays)
    elif kind.numbered:
        further, params, codecs, notes = *_pair_words(folder, kind, settings, arrays), ()
    elif kind.form == 'pair':
        further, params, codecs, notes = *t5.read_words(folder, settings, arrays), ()
    else:
        further, params, codecs, notes = _text_words(folder, kind, settings, arrays)
    changes = options | further
    shapes = layout.parameter_shapes(changes)
    params = layout.to_ours(kind.table(changes), arrays, shapes, params)
    _check_search(folder, settings, codecs)
    known = {
        GENERATION: SEARCH | dict.fromkeys(_IDS, object),
        PIXELS: clip.APPLIED if kind.form == 'image_text' else _PIXELS,
    }
    if kind.words:
        known[tokenizer_files.SETTINGS] = tokenizer_files.settings_shape(folder, kind)
    if kind.form == 'pieces':
        known |= sentence.SHAPES
    others = sorted(given.keys() - {name.removesuffix('?') for name in shape(kind)})
    listed = ({CONFIG: others} if others else {}) | unused(folder, known)
    return Foreign(changes, params, codecs, ignored, listed, notes)


def _early(settings: Mapping) -> str | None:
    """Returns the kind of an early version's config.json, or None if it shows none."""
    architectures = settings.get('architectures') or ()
    for setting, (kind, beginning) in _EARLY.items():
        if settings.get(setting) and all(name.startswith(beginning) for name in architectures):
            return kind
    return None


def _check_search(folder: epath.Path, settings: Mapping, codecs: Codecs) -> None:
    """Raises ConfigError if the settings of the search force pieces or contradict the model."""
    search = json_object(folder / GENERATION, SEARCH | {'*': object}, {})
    for name in _IDS:
        value, known = search.get(name), [settings.get(name)]
        if name == 'eos_token_id' and isinstance(codecs.get('text'), HuggingFaceTokenizer):
            known.append(codecs['text'].order[EOS])
        if None not in (value, known[0]) and value not in known and value not in [[own] for own in known]:
            raise ConfigError(f'{GENERATION}: {name}={value}: expected {known[-1]}')


def _named(kind: Kind, arrays: Arrays) -> tuple[Arrays, tuple[str, ...]]:
    """Returns the model's arrays by their names in a whole model's file, and the names of ignored arrays."""
    plain = _plain(kind, list(arrays))
    alone = not any(name.startswith(kind.prefix) for name in plain)
    theirs = dict(zip((kind.prefix + name if alone else name for name in plain), arrays, strict=True))
    if len(theirs) < len(arrays):
        name = min(arrays.keys() - set(theirs.values()))
        raise ConfigError(f'{name}: another name in the file means the same array')
    ignored = [whole for whole in theirs if any(re.fullmatch(one, whole) for one in kind.ignored)]
    return (
        {whole: arrays[name] for whole, name in theirs.items() if whole not in ignored},
        tuple(theirs[whole] for whole in ignored),
    )


def _plain(kind: Kind, names: list[str]) -> list[str]:
    """Returns names as transformers writes them, without the changes of wrappers and early versions."""

    def wraps(prefix: str) -> bool:
        # All names of a whole model can begin with the kind's own prefix; then a wrapper is a second one.
        twice = prefix * 2 if prefix == kind.prefix else prefix
        return all(n.startswith(prefix) for n in names) and any(n.startswith(twice) for n in names)

    while found := [prefix for prefix in _WRAPPERS if wraps(prefix)]:
        names = [name.removeprefix(found[0]) for name in names]
    return [re.sub(r'\.gamma$', '.weight', re.sub(r'\.beta$', '.bias', name)) for name in names]


def _arrays(folder: epath.Path) -> Arrays:
    if single := [name for name in (FILE, TORCH_FILE) if (folder / name).exists()]:
        return arrays_of(folder / single[0])
    if several := [name for name in SHARDED if (folder / name).exists()]:
        return _in_several_files(folder, several[0])
    raise ConfigError(f'{FILE} or {TORCH_FILE}: missing')


def _in_several_files(folder: epath.Path, index: str) -> Arrays:
    """Reads the arrays of the files that an index names."""
    places = json_object(folder / index, {'weight_map': {'*': str}, '*': object})['weight_map']
    found = {file: arrays_of(folder / check_name(file, index)) for file in sorted(set(places.values()))}
    if lacking := [name for name, file in places.items() if name not in found[file]]:
        raise ConfigError(f'{index}: {lacking[0]}: not in {places[lacking[0]]}')
    return {name: array for part in found.values() for name, array in part.items()}


def _pop_table(arrays: Arrays, name: str) -> np.ndarray:
    if name not in arrays:
        raise ConfigError(f'{name}: missing')
    return check_matrix(name, arrays.pop(name))


def _check_tied(setting: str, tables: Mapping[str, np.ndarray | None]) -> None:
    """Raises ConfigError if tables differ although a setting makes them one. None is a missing table."""
    (first, table), *others = [(name, table) for name, table in tables.items() if table is not None]
    for name, other in others:
        if not np.array_equal(table, other):
            raise ConfigError(f'{CONFIG}: {setting}=True: {name} differs from {first}')


def _check_pixels(folder: epath.Path, length: int) -> None:
    """Raises ConfigError if images are not resized to a square, with pixels from -1 to 1, as here."""
    settings = json_object(folder / PIXELS, _PIXELS, {})
    for name, value in settings.items():
        # Such as do_center_crop.
        if name.startswith('do_') and value and f'{name}?' not in _PIXELS:
            raise ConfigError(f'{PIXELS}: {name}={value}: images here are only resized')
    size = settings.get('size') or length
    if size not in (length, {'height': length, 'width': length}):
        raise ConfigError(f'{PIXELS}: size={size}: the model reads {length} x {length} pixels')
    for name, expected in _PIXEL_VALUES.items():
        if not np.allclose(settings.get(name, expected), expected, rtol=1e-4, atol=0.0):
            raise ConfigError(f'{PIXELS}: {name}={settings[name]}: pixels here are from -1 to 1')


def _classes(settings: Mapping, arrays: Arrays) -> tuple[dict[str, object], Arrays, Codecs, tuple[str, ...]]:
    """Returns the options, parameters, codecs and notes of a classifier, which has no tables of words.

    A head that the file lacks is added, as zeros.
    """
    names = settings['id2label']
    if names.keys() != {str(number) for number in range(len(names))}:
        raise ConfigError(f'{CONFIG}: id2label: expected the names of the classes 0, 1, 2, ...')
    ordered = [names[str(number)] for number in range(len(names))]
    twice = {name for name, times in collections.Counter(ordered).items() if times > 1}
    ordered = [f'{name} ({number})' if name in twice else name for number, name in enumerate(ordered)]
    if len(set(ordered)) < len(ordered):
        raise ConfigError(f'{CONFIG}: id2label: has a name twice')
    labels, notes = Labels(tuple(ordered)), ()
    if twice:
        notes = (f'has several classes named {", ".join(sorted(twice))}, which here end with their numbers',)
    if not arrays.keys() & set(vit.HEAD):
        weight, bias = vit.HEAD
        arrays[weight] = np.zeros((labels.size, settings['hidden_size']), np.float32)
        arrays[bias] = np.zeros(labels.size, np.float32)
        notes += ('has no head: all classes are equally likely until it is trained',)
    return {'images.classes': labels.size}, {}, {'image': None, 'label': labels}, notes


def _text_words(
    folder: epath.Path, kind: Kind, settings: Mapping, arrays: Arrays
) -> tuple[dict[str, object], Arrays, Codecs, tuple[str, ...]]:
    """Returns the options, parameters, tokenizer and notes of a single-text model's tables of words."""
    names = kind.words
    if settings['tie_word_embeddings'] and names.softmax in arrays:
        # Of two tables that are one, a file can have either.
        arrays.setdefault(names.source, arrays[names.softmax])
    words, softmax = _pop_table(arrays, names.source), arrays.pop(names.softmax, None)
    tokenizer = tokenizer_files.read(folder, kind)
    lacking = _without_row(tokenizer, len(words))
    expected = {'vocab_size': len(words)}
    if kind.form == 'text':
        expected |= dict.fromkeys(('bos_token_id', 'eos_token_id'), tokenizer.order[EOS])
    for setting, there in expected.items():
        value = settings.get(setting)
        # A small model can keep GPT-2's own ids, which none of its pieces has.
        beyond = setting != 'vocab_size' and isinstance(value, int) and value >= len(words)
        if value not in (None, there) and not beyond:
            raise ConfigError(f'{CONFIG}: {setting}={value}: the files beside it have {there}')
    order = all_rows(tokenizer.order, len(words) + len(lacking))
    rows = lambda name, array: reordered(name, array, order, zeros=len(lacking))
    bias = never_written(order)
    if names.bias in arrays:
        bias += rows(names.bias, arrays.pop(names.bias))
    bias[[order.index(number) for number in lacking]] = NEVER
    table = rows(names.source, words)
    if settings['tie_word_embeddings']:
        _check_tied('tie_word_embeddings', {names.source: words, names.softmax: softmax})
        softmax = None
    elif softmax is None:
        raise ConfigError(f'{names.softmax}: missing')
    else:
        softmax = rows(names.softmax, softmax)
    changes, params = one_text_tables(tokenizer, table, softmax, bias)
    pieces = ', '.join(tokenizer.name(tokenizer.order.index(number)) for number in lacking)
    notes = (f'has no rows for {pieces}, which get zeros and are never written',) if lacking else ()
    return changes | {'model.scale_embeddings': False}, params, {'text': tokenizer}, notes


def _without_row(tokenizer: HuggingFaceTokenizer, rows: int) -> list[int]:
    """Returns the numbers there of added tokens without a row in the table of words, such as a padding.

    Raises:
      ConfigError: another piece has no row.
    """
    beyond = sorted(number for number in tokenizer.order if number >= rows)
    added = {token['id'] for token in tokenizer.model.get('added_tokens', ())}
    needed = {tokenizer.order[EOS], tokenizer.order[UNK]}
    if beyond != [*range(rows, rows + len(beyond))] or not added - needed >= set(beyond):
        file = tokenizer_files.TOKENIZER
        raise ConfigError(f'{file}: has a piece {max(tokenizer.order)}, the model only {rows}')
    return beyond


def _pair_words(
    folder: epath.Path, kind: Kind, settings: Mapping, arrays: Arrays
) -> tuple[dict[str, object], Arrays, Codecs]:
    """Returns the options and parameters of an encoder-decoder's words and positions, and its tokenizers."""
    names, shared = kind.words, arrays.pop(marian.SHARED, None)
    if shared is not None:
        # A file can also have the two tables that this one replaces.
        arrays.update({name: shared for name in (names.source, names.target) if name not in arrays})
    # Of tables that are one, a file can have any.
    same = [(names.target, names.softmax)] if settings['tie_word_embeddings'] else []
    if settings.get('share_encoder_decoder_embeddings', True):
        same += [(names.source, names.target), (names.target, names.source)]
    for name, other in same:
        if other in arrays:
            arrays.setdefault(name, arrays[other])
    source, target = _pop_table(arrays, names.source), _pop_table(arrays, names.target)
    if settings.get('share_encoder_decoder_embeddings', True):
        tables = {names.source: source, names.target: target, marian.SHARED: shared}
        _check_tied('share_encoder_decoder_embeddings', tables)
    for setting, table in (('vocab_size', source), ('decoder_vocab_size', target)):
        if settings.get(setting, len(table)) != len(table):
            raise ConfigError(f'{CONFIG}: {setting}={settings[setting]}: the model has {len(table)} words')
    if settings['tie_word_embeddings']:
        # A file can have the softmax's table all the same.
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
    """Returns the options of positions, and removes the tables if they are sinusoids."""
    options = [positions(name, arrays[name]) for name in marian.POSITIONS if name in arrays]
    if not options:
        return {'model.positions': 'sinusoidal', 'model.sinusoid': 'halves', 'model.first_position': 0}
    if options[0]['model.positions'] == 'sinusoidal' and all(one == options[0] for one in options):
        for name in marian.POSITIONS:
            arrays.pop(name, None)
    return options[0]
