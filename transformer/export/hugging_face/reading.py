"""Reads BERT and GPT-2 as Hugging Face transformers saves them (extra `export`)."""

import json
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from etils import epath

from transformer.config import FORM, ConfigError
from transformer.data.hugging_face_tokenizer import HuggingFaceTokenizer
from transformer.export import layout
from transformer.export.arrays import read_safetensors, read_torch
from transformer.export.foreign import NEVER, Foreign, learned_positions, reordered, smoothing
from transformer.export.hugging_face import early_tokenizers, names
from transformer.export.layout import Arrays
from transformer.tokens import EOS, PAD, UNK

FILE, TORCH_FILE = 'model.safetensors', 'pytorch_model.bin'
SHARDED = f'{FILE}.index.json', f'{TORCH_FILE}.index.json'
CONFIG, TOKENIZER = 'config.json', 'tokenizer.json'


class _Kind(NamedTuple):
    """How one kind of model is read.

    Attributes:
      options: the changes of our default config, from the content of config.json.
      required: settings of config.json with the only values that we can compute.
      table: their arrays and our parameters, by the number of layers.
      words: the name of the table of words.
      bias: the name of the softmax's bias; None if the model has none.
      head: how the names of a head begin, and the arrays of its width that stand for a head if there is none.
      special: the tokens that stand for PAD, EOS and UNK; None for those that the model lacks.
    """

    options: Callable[[Mapping], dict[str, object]]
    required: Mapping[str, tuple]
    table: Callable[[int], list[layout.Entry]]
    words: str
    bias: str | None
    head: tuple[str, Callable[[int], Arrays]] | None
    special: tuple[str | None, str, str | None]


def read(folder: epath.Path) -> Foreign:
    """Reads the model in a folder; ConfigError says what is damaged, or unknown here."""
    try:
        return _read(folder)
    except ConfigError as error:
        raise ConfigError(f'{folder}: {error}') from None


def _read(folder: epath.Path) -> Foreign:
    settings = _json(folder / CONFIG)
    kind = settings.get('model_type') or _kind_of_early(settings)
    if kind not in _KINDS:
        raise ConfigError(f'{CONFIG}: model_type={kind}: known are {", ".join(_KINDS)}')
    how = _KINDS[kind]
    for name, possible in how.required.items():
        if name in settings and settings[name] not in possible:
            raise ConfigError(f'{CONFIG}: {name}={settings[name]}: no model here has it')
    try:
        options = how.options(settings)
    except KeyError as error:
        raise ConfigError(f'{CONFIG}: lacks {error}') from None
    arrays = {name.removeprefix(names.PREFIXES[kind]): array for name, array in _arrays(folder).items()}
    ignored = tuple(filter(re.compile('|'.join(names.IGNORED[kind])).fullmatch, arrays))
    arrays = {name: array for name, array in arrays.items() if name not in ignored}
    if how.words not in arrays:
        raise ConfigError(f'{how.words}: missing')
    words = arrays.pop(how.words)
    codec = _tokenizer(folder, how.special)
    if max(codec.order) >= len(words):
        raise ConfigError(f'{TOKENIZER}: has a piece {max(codec.order)}, the model only {len(words)}')
    # Rows beyond the tokenizer's pieces follow.
    order = [*codec.order, *sorted(set(range(len(words))) - set(codec.order))]
    bias = np.where(np.array(order) < 0, NEVER, 0.0).astype(np.float32)
    if how.bias in arrays:
        bias += reordered(arrays.pop(how.bias), order)
    if how.head and not any(name.startswith(how.head[0]) for name in arrays):
        arrays |= how.head[1](words.shape[1])
    changes = {
        **options,
        'model.vocab_size': len(order),
        'model.softmax_bias': True,
        'model.scale_embeddings': False,
        'data.pieces': codec.size,
        **smoothing(bias),
    }
    given = {'embedding/table': reordered(words, order), 'softmax_bias': bias}
    shapes = layout.parameter_shapes(changes).items()
    rest = {path: shape for path, shape in shapes if path not in given}
    params = given | layout.to_ours(how.table(options['model.N']), arrays, rest)
    return Foreign(changes, params, codec, ignored)


def _kind_of_early(settings: Mapping) -> str | None:
    """The kind of a model whose config.json, of an early version, does not name it."""
    return next((kind for setting, kind in names.EARLY.items() if settings.get(setting)), None)


def _json(file: epath.Path) -> dict:
    try:
        content = json.loads(file.read_text())
    except FileNotFoundError:
        raise ConfigError(f'{file.name}: missing') from None
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise ConfigError(f'{file.name}: damaged')
    return content


def _arrays(folder: epath.Path) -> Arrays:
    for name, read_file in ((FILE, read_safetensors), (TORCH_FILE, read_torch)):
        if (folder / name).exists():
            return read_file(folder / name)
    if several := [name for name in SHARDED if (folder / name).exists()]:
        raise ConfigError(f'{several[0]}: arrays in several files are not read here; save the model as one')
    raise ConfigError(f'{FILE} or {TORCH_FILE}: missing')


def _tokenizer(folder: epath.Path, special: tuple[str | None, str, str | None]) -> HuggingFaceTokenizer:
    file = folder / TOKENIZER
    content = file.read_text(encoding='utf-8') if file.exists() else early_tokenizers.read(folder)
    return HuggingFaceTokenizer.from_file(content, dict(zip((PAD, EOS, UNK), special, strict=True)))


def _identity_head(width: int) -> Arrays:
    """A head of BERT whose matrix is the identity."""
    linear, norm = 'cls.predictions.transform.dense', 'cls.predictions.transform.LayerNorm'
    zeros, ones = np.zeros(width, np.float32), np.ones(width, np.float32)
    return {
        f'{linear}.weight': np.diag(ones),
        f'{linear}.bias': zeros,
        f'{norm}.weight': ones,
        f'{norm}.bias': zeros,
    }


def _first_task(form: str) -> str:
    return next(task for task, its_form in FORM.items() if its_form == form)


def _activation(settings: Mapping, name: str) -> str:
    if settings[name] not in names.ACTIVATIONS:
        raise ConfigError(f'{CONFIG}: {name}={settings[name]}: no model here has it')
    return names.ACTIVATIONS[settings[name]]


def _bert(settings: Mapping) -> dict[str, object]:
    positions = learned_positions(settings['max_position_embeddings'])
    return {
        # It writes no text.
        **{key: value for key, value in positions.items() if not key.startswith('decode.')},
        'train.task': _first_task('encoder'),
        'model.N': settings['num_hidden_layers'],
        'model.d_model': settings['hidden_size'],
        'model.d_ff': settings['intermediate_size'],
        'model.h': settings['num_attention_heads'],
        'model.activation': _activation(settings, 'hidden_act'),
        'model.norm_epsilon': settings['layer_norm_eps'],
        'model.norm_embedding': True,
        'model.token_types': settings['type_vocab_size'],
        'model.P_drop': settings['hidden_dropout_prob'],
        'model.P_drop_attention': settings['attention_probs_dropout_prob'],
    }


def _gpt2(settings: Mapping) -> dict[str, object]:
    return {
        **learned_positions(settings['n_positions']),
        'train.task': _first_task('text'),
        'model.N': settings['n_layer'],
        'model.d_model': settings['n_embd'],
        'model.d_ff': settings.get('n_inner') or 4 * settings['n_embd'],
        'model.h': settings['n_head'],
        'model.activation': _activation(settings, 'activation_function'),
        'model.norm': 'pre',
        'model.norm_epsilon': settings['layer_norm_epsilon'],
        'model.P_drop': settings['resid_pdrop'],
        'model.P_drop_embedding': settings['embd_pdrop'],
        'model.P_drop_attention': settings['attn_pdrop'],
    }


_KINDS = {
    'bert': _Kind(
        _bert,
        {'position_embedding_type': ('absolute',), 'is_decoder': (False,), 'tie_word_embeddings': (True,)},
        names.bert,
        'embeddings.word_embeddings.weight',
        'cls.predictions.bias',
        ('cls.predictions.transform.', _identity_head),
        # What replaces a hidden piece here is UNK.
        ('[PAD]', '[SEP]', '[MASK]'),
    ),
    'gpt2': _Kind(
        _gpt2,
        {
            'scale_attn_weights': (True,),
            'scale_attn_by_inverse_layer_idx': (False,),
            'add_cross_attention': (False,),
            'tie_word_embeddings': (True,),
        },
        names.gpt2,
        'wte.weight',
        None,
        None,
        (None, '<|endoftext|>', None),
    ),
}
