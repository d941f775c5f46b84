"""Reads BERT and GPT-2 as Hugging Face transformers saves them (extra `export`)."""

import json
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from etils import epath

from transformer.config import FORM, ConfigError
from transformer.data.library_tokenizer import LibraryTokenizer
from transformer.export import layout
from transformer.export.foreign import NEVER, Foreign, reordered
from transformer.export.hugging_face import names
from transformer.export.layout import Arrays
from transformer.tokens import EOS, PAD, UNK

FILE, CONFIG, TOKENIZER = 'model.safetensors', 'config.json', 'tokenizer.json'


class _Kind(NamedTuple):
    """How one kind of model is read.

    Attributes:
      options: the changes of our default config, from the content of config.json.
      required: settings of config.json with the only values that we can compute.
      table: their arrays and our parameters, by the number of layers.
      words: the name of the table of words.
      special: the tokens that stand for PAD, EOS and UNK; None for those that the model lacks.
    """

    options: Callable[[Mapping], dict[str, object]]
    required: Mapping[str, tuple]
    table: Callable[[int], list[layout.Entry]]
    words: str
    special: tuple[str | None, str, str | None]


def read(folder: epath.Path) -> Foreign:
    """Reads the model in a folder; ConfigError says what is damaged, or unknown here."""
    try:
        return _read(folder)
    except ConfigError as error:
        raise ConfigError(f'{folder}: {error}') from None


def _read(folder: epath.Path) -> Foreign:
    settings = _json(folder / CONFIG)
    kind = settings.get('model_type')
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
    arrays = {
        name: array
        for name, array in arrays.items()
        if not any(re.fullmatch(pattern, name) for pattern in names.IGNORED[kind])
    }
    if how.words not in arrays:
        raise ConfigError(f'{how.words}: missing')
    words = arrays.pop(how.words)
    codec = _tokenizer(folder, how.special)
    order = codec.order
    if max(order) >= len(words):
        raise ConfigError(f'{TOKENIZER}: has a piece {max(order)}, the model only {len(words)}')
    # Rows beyond the tokenizer's pieces follow.
    order = [*order, *sorted(set(range(len(words))) - set(order))]
    missing = np.where(np.array(order) < 0, NEVER, 0.0).astype(np.float32)
    changes = {
        **options,
        'model.vocab_size': len(order),
        'model.softmax_bias': True,
        'model.scale_embeddings': False,
        'data.source': 'text',
        'data.name': None,
        'data.pieces': codec.size,
    }
    given = {'embedding/table': reordered(words, order)}
    if 'cls.predictions.bias' in arrays:
        given['softmax_bias'] = missing + reordered(arrays.pop('cls.predictions.bias'), order)
    else:
        given['softmax_bias'] = missing
    shapes, table = layout.shapes(changes), how.table(options['model.N'])
    if kind == 'bert' and any(name.startswith('cls.') for name in arrays):
        table += names.bert_head()
    elif kind == 'bert':
        given |= _identity(shapes)
    rest = {path: shape for path, shape in shapes.items() if path not in given}
    return Foreign(changes, given | layout.to_ours(table, arrays, rest), codec)


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
    try:
        import safetensors.numpy
    except ModuleNotFoundError:
        raise ConfigError("this needs safetensors: pip install '.[export]'") from None
    try:
        return safetensors.numpy.load((folder / FILE).read_bytes())
    except FileNotFoundError:
        raise ConfigError(f'{FILE}: missing') from None
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise ConfigError(f'{FILE}: damaged, or of a type that numpy lacks: {error}') from None


def _tokenizer(folder: epath.Path, special: tuple[str | None, str, str | None]) -> LibraryTokenizer:
    try:
        content = (folder / TOKENIZER).read_text(encoding='utf-8')
    except FileNotFoundError:
        raise ConfigError(f'{TOKENIZER}: missing') from None
    return LibraryTokenizer.from_file(content, dict(zip((PAD, EOS, UNK), special, strict=True)))


def _identity(shapes: Mapping[str, tuple]) -> Arrays:
    """A head for masked words that changes nothing but the scale, for a file that has none."""
    width = shapes['head/kernel'][0]
    return {
        'head/kernel': np.eye(width, dtype=np.float32),
        'head/bias': np.zeros(width, np.float32),
        'head_norm/layer/scale': np.ones(width, np.float32),
        'head_norm/layer/bias': np.zeros(width, np.float32),
    }


def _first_task(form: str) -> str:
    return next(task for task, its_form in FORM.items() if its_form == form)


def _activation(settings: Mapping, name: str) -> str:
    if settings[name] not in names.ACTIVATIONS:
        raise ConfigError(f'{CONFIG}: {name}={settings[name]}: no model here has it')
    return names.ACTIVATIONS[settings[name]]


def _bert(settings: Mapping) -> dict[str, object]:
    length = settings['max_position_embeddings']
    return {
        'train.task': _first_task('encoder'),
        'model.N': settings['num_hidden_layers'],
        'model.d_model': settings['hidden_size'],
        'model.d_ff': settings['intermediate_size'],
        'model.h': settings['num_attention_heads'],
        'model.activation': _activation(settings, 'hidden_act'),
        'model.norm_epsilon': settings['layer_norm_eps'],
        'model.norm_embedding': True,
        'model.positions': 'learned',
        'model.max_len': length,
        'model.token_types': settings['type_vocab_size'],
        'model.P_drop': settings['hidden_dropout_prob'],
        'model.P_drop_attention': settings['attention_probs_dropout_prob'],
        'data.max_len': min(256, length),
    }


def _gpt2(settings: Mapping) -> dict[str, object]:
    length = settings['n_positions']
    more = min(50, length // 2)
    return {
        'train.task': _first_task('text'),
        'model.N': settings['n_layer'],
        'model.d_model': settings['n_embd'],
        'model.d_ff': settings.get('n_inner') or 4 * settings['n_embd'],
        'model.h': settings['n_head'],
        'model.activation': _activation(settings, 'activation_function'),
        'model.norm': 'pre',
        'model.norm_epsilon': settings['layer_norm_epsilon'],
        'model.positions': 'learned',
        'model.max_len': length,
        'model.P_drop': settings['resid_pdrop'],
        'model.P_drop_embedding': settings['embd_pdrop'],
        'model.P_drop_attention': settings['attn_pdrop'],
        'data.max_len': min(256, length),
        'decode.extra_len': more,
        'decode.max_source_len': min(256, length - more),
    }


_KINDS = {
    'bert': _Kind(
        _bert,
        {'position_embedding_type': ('absolute',), 'is_decoder': (False,), 'tie_word_embeddings': (True,)},
        names.bert,
        'embeddings.word_embeddings.weight',
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
        (None, '<|endoftext|>', None),
    ),
}
