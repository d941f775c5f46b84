"""Describes a kind of model of Hugging Face transformers, for both directions."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from etils import epath

from transformer import files
from transformer.config import OPTIONS, Config, declare
from transformer.interop.layout import Arrays, ForeignArray

FILE, CONFIG, PIXELS = 'model.safetensors', 'config.json', 'preprocessor_config.json'
GENERATION = 'generation_config.json'
# Settings of a search that force or forbid pieces, so that they must be null. They are in config.json, too.
SEARCH = dict.fromkeys(
    ('forced_bos_token_id?', 'forced_decoder_ids?', 'suppress_tokens?', 'begin_suppress_tokens?')
)
# Their names and ours. Of several names there for one of ours, the first is written.
ACTIVATIONS = {
    'relu': 'relu',
    'gelu': 'gelu',
    'gelu_new': 'gelu_tanh',
    'gelu_fast': 'gelu_tanh',
    'gelu_pytorch_tanh': 'gelu_tanh',
    'quick_gelu': 'quick_gelu',
    'silu': 'swish',
    'swish': 'swish',
}


class WordTables(NamedTuple):
    """The names of the tables of words; None for a table that a kind lacks."""

    source: str
    target: str
    softmax: str
    bias: str | None


class Kind(NamedTuple):
    """A kind of model, as it is saved.

    Attributes:
      architecture: the class of transformers that loads all of it.
      form: the form of our model.
      prefix: the beginning of most names in the file of a whole model. Names in the file of a stack lack it.
      settings: names in config.json with our options of the same value, or of the same activation.
      fixed: names in config.json with the values that we can compute; the first is written.
      others: further names in config.json from which options follow, with their shapes.
      options: our options that all models of this kind have.
      table: their arrays and our parameters but for tables of words, from our options.
      words: the names of these tables; None if the kind has none.
      ignored: arrays in a file that are no part of the model that we compute: buffers, heads for other tasks.
      read: `(settings) -> options`, for options that follow from several settings.
      beside: `(folder) -> options`, for options that other files of the folder set.
      write: `(config) -> settings`, for settings that follow from several options.
      held: `(config) -> the values of options` that its models can have, beside `options` and `foreign.HELD`.
      parts: the objects in config.json whose settings are named PART.NAME here.
      numbered: whether source and target have SentencePiece models whose pieces lists number, as Marian's.
      to_matrices: changes arrays of another shape than our parameters in place; `from_matrices` undoes it.
    """

    architecture: str
    form: str
    prefix: str
    settings: Mapping[str, str]
    fixed: Mapping[str, tuple]
    others: Mapping[str, object]
    options: Mapping[str, object]
    table: Callable[[Mapping[str, object]], list[ForeignArray]]
    words: WordTables | None
    ignored: tuple[str, ...] = ()
    read: Callable[[Mapping], dict[str, object]] = lambda settings: {}
    beside: Callable[[epath.Path], dict[str, object]] = lambda folder: {}
    write: Callable[[Config], dict[str, object]] = lambda config: {}
    held: Callable[[Config], dict[str, tuple]] = lambda config: {}
    parts: tuple[str, ...] = ()
    numbered: bool = False
    to_matrices: Callable[[Arrays], None] = lambda arrays: None
    from_matrices: Callable[[Arrays, Config], None] = lambda arrays, config: None


def pair(name: str) -> tuple[str, str]:
    """Returns the names of a layer's weight and bias."""
    return f'{name}.weight', f'{name}.bias'


def shape(kind: Kind) -> dict[str, object]:
    """Returns the shape of config.json, for `files.check_shape`."""
    types = {
        name: tuple(ACTIVATIONS) if ours.endswith('.activation') else declare.plain_type(OPTIONS[ours])
        for name, ours in kind.settings.items()
    }
    return {
        **{name: {int: files.SIZE}.get(its_type, its_type) for name, its_type in types.items()},
        **{f'{name}?': values for name, values in kind.fixed.items()},
        **kind.others,
        'vocab_size?': files.SIZE,
        'tie_word_embeddings?': bool,
        'pruned_heads?': ({}, None),
        **SEARCH,
        'model_type?': (str, None),
        '*': object,
    }


def flat(kind: Kind, settings: Mapping) -> dict[str, object]:
    """Returns settings with those of the kind's parts as PART.NAME."""
    parts = {part: settings.get(part) or {} for part in kind.parts}
    files.check_shape(parts, {'*': {'*': object}}, CONFIG)
    rest = {name: value for name, value in settings.items() if name not in parts}
    return rest | {f'{part}.{name}': value for part in parts for name, value in parts[part].items()}


def nested(settings: Mapping) -> dict[str, object]:
    """Returns settings with those named PART.NAME in an object for each part."""
    found: dict[str, object] = {}
    for name, value in settings.items():
        part, _, own = name.rpartition('.')
        (found.setdefault(part, {}) if part else found)[own] = value
    return found


def their_activation(activation: str) -> str:
    """Returns their name of an activation."""
    return next(theirs for theirs, ours in ACTIVATIONS.items() if ours == activation)


def patches_to_matrices(name: str, arrays: Arrays) -> None:
    """Turns patches from channels of rows of pixels into rows of pixels of channels."""
    if name in arrays and arrays[name].ndim == 4:
        patches = arrays[name].transpose(0, 2, 3, 1)
        # Without -1, which numpy refuses where there are no patches.
        arrays[name] = patches.reshape(len(patches), math.prod(patches.shape[1:]))


def patches_from_matrices(name: str, arrays: Arrays, config: Config) -> None:
    """Undoes `patches_to_matrices`."""
    size, channels = config.images.patch, config.images.channels
    arrays[name] = arrays[name].reshape(-1, size, size, channels).transpose(0, 3, 1, 2)
