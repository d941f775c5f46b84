"""CLIP, an encoder of images and one of texts with vectors in one space (Radford et al. 2021)."""

import functools
from collections.abc import Mapping, Sequence

import numpy as np
from etils import epath

from transformer import files
from transformer.config import Config, ConfigError
from transformer.data.codec import Codecs
from transformer.data.tokenizers.base import Tokenizer
from transformer.interop import layout
from transformer.interop.foreign import HELD, all_rows, in_their_order, json_object, reordered, their_order
from transformer.interop.hugging_face import tokenizer_files
from transformer.interop.hugging_face.kind import (
    PIXELS,
    Kind,
    WordTables,
    pair,
    patches_from_matrices,
    patches_to_matrices,
)
from transformer.interop.layout import Arrays, ForeignArray
from transformer.tokens import EOS, PAD

_WORDS, _SCALE = 'text_model.embeddings.token_embedding.weight', 'logit_scale'
_PATCH, _CLASS, _PLACES = (
    f'vision_model.embeddings.{name}'
    for name in ('patch_embedding.weight', 'class_embedding', 'position_embedding.weight')
)
# Each tower: our name, the settings of its layers, and the names of its final norm and of its projection.
_TOWERS = (
    ('text', 'text', 'model', 'final_layer_norm'),
    ('image', 'vision', 'image_model', 'post_layernorm'),
)
# By which the pixels of images are changed, where a folder does not say so.
_MEAN, _STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
APPLIED = {
    'image_mean?': [float], 'image_std?': [float], 'do_normalize?': True, 'do_rescale?': True,
    'rescale_factor?': float, 'do_center_crop?': bool,
}  # fmt: skip


def _table(options: Mapping[str, object]) -> list[ForeignArray]:
    places = 'text_model.embeddings.position_embedding.weight'
    entries = [
        ForeignArray(_PATCH, ('image/patch/kernel',), transposed=True),
        ForeignArray(_CLASS, ('image/class_token',)),
        ForeignArray(_PLACES, ('image/positions/table',)),
        *layout.norm(pair('vision_model.pre_layrnorm'), 'image/positions'),
        ForeignArray(places, ('text/positions/table',)),
        ForeignArray('visual_projection.weight', ('image/projection/kernel',), transposed=True),
        ForeignArray('text_projection.weight', ('text/projection/kernel',), transposed=True),
    ]
    for ours, theirs, group, final in _TOWERS:
        entries += layout.norm(pair(f'{theirs}_model.{final}'), f'{ours}/encoder/final')
        for i in range(options[f'{group}.N']):
            there, here = f'{theirs}_model.encoder.layers.{i}', f'{ours}/encoder/layer_{i}'
            for part, own in (('q', 'query'), ('k', 'key'), ('v', 'value'), ('out', 'output')):
                names = pair(f'{there}.self_attn.{part}_proj')
                entries += layout.linear(names, f'{here}/self_attention/{own}')
            entries += layout.norm(pair(f'{there}.layer_norm1'), f'{here}/self_attention_sublayer')
            entries += layout.linear(pair(f'{there}.mlp.fc1'), f'{here}/feed_forward/inner')
            entries += layout.linear(pair(f'{there}.mlp.fc2'), f'{here}/feed_forward/outer')
            entries += layout.norm(pair(f'{there}.layer_norm2'), f'{here}/feed_forward_sublayer')
    return entries


def _read(settings: Mapping) -> dict[str, object]:
    for name in ('layer_norm_eps', 'attention_dropout'):
        text, image = (settings[f'{part}_config.{name}'] for part in ('text', 'vision'))
        if text != image:
            raise ConfigError(f'config.json: {name}: {text} of texts, but {image} of images; here it is one')
    length = settings['text_config.max_position_embeddings']
    return {
        'model.max_len': length,
        'data.batching': 'padded',
        'data.max_len': length,
        'data.row_len': length,
    }


def _write(config: Config) -> dict[str, object]:
    return {
        'text_config.max_position_embeddings': config.model.max_len,
        'vision_config.layer_norm_eps': config.model.norm_epsilon,
        'vision_config.attention_dropout': config.model.P_drop_attention,
        'vision_config.num_channels': 3,
        'text_config.model_type': 'clip_text_model',
        'vision_config.model_type': 'clip_vision_model',
        **{f'{part}_config.projection_dim': config.contrastive.d_e for part in ('text', 'vision')},
    }


def read_words(
    folder: epath.Path, kind: Kind, settings: Mapping, arrays: Arrays
) -> tuple[dict[str, object], Arrays, Codecs, tuple[str, ...]]:
    """Returns the options, parameters, codecs and notes that follow from a model's words and pixels.

    Their pixels have a mean and a deviation of their own. Ours, from -1 to 1, are brought to them by the
    patches' matrix and positions.
    """
    for name in (_WORDS, _SCALE, _PATCH, _PLACES):
        if name not in arrays:
            raise ConfigError(f'{name}: missing')
    places = (settings['vision_config.image_size'] // settings['vision_config.patch_size']) ** 2 + 1
    if arrays[_PLACES].shape[:1] != (places,):
        raise ConfigError(f'{_PLACES}: has shape {arrays[_PLACES].shape}, expected {places} rows')
    pixels = json_object(folder / PIXELS, APPLIED | {'*': object}, {})
    if not np.isclose(factor := pixels.get('rescale_factor', 1 / 255), 1 / 255):
        raise ConfigError(
            f'{PIXELS}: rescale_factor={factor}: expected 1/255, so that pixels are from 0 to 1'
        )
    _bring_pixels(arrays, pixels.get('image_mean', _MEAN), pixels.get('image_std', _STD))
    words, tokenizer = arrays.pop(_WORDS), tokenizer_files.read(folder, kind)
    table = reordered(_WORDS, words, all_rows(tokenizer.order, len(words)))
    _check_end(settings.get('text_config.eos_token_id'), tokenizer.order)
    changes = {'model.vocab_size': len(table), 'data.pieces': tokenizer.size}
    params = {'text/embedding/table': table, 'log_scale': arrays.pop(_SCALE).astype(np.float32)}
    notes = ('has images cut to a square, which here are resized to one',)
    codecs = {'image': None, 'text': tokenizer}
    return changes, params, codecs, notes if pixels.get('do_center_crop', True) else ()


def _check_end(number: object, order: Sequence[int]) -> None:
    """Raises ConfigError if the vector of a text there is not the one of its end."""
    # With 2 it is the vector of the text's largest number, as in early versions.
    if number not in (None, order[EOS]) and (number != 2 or order[EOS] != max(order)):
        raise ConfigError(
            f'config.json: text_config.eos_token_id={number}: the end of the tokenizer is {order[EOS]}'
        )


def _bring_pixels(arrays: Arrays, mean: list[float], std: list[float]) -> None:
    """Changes patches so that they read y from -1 to 1 in place of x = (y / 2 + 1/2 - mean) / std."""
    if len(mean) != 3 or len(std) != 3 or not all(std):
        raise ConfigError(f'{PIXELS}: image_mean and image_std: expected three numbers each')
    patch, shift = arrays[_PATCH].astype(np.float64), (0.5 - np.array(mean)) / std
    if patch.ndim != 2 or patch.shape[1] % 3:
        raise ConfigError(f'{_PATCH}: has shape {patch.shape}, expected a matrix of pixels of three channels')
    channels = patch.reshape(len(patch), -1, 3)
    places = arrays[_PLACES].astype(np.float64)
    if places.shape[1:] == (len(patch),):
        places[1:] += (channels @ shift).sum(axis=1)
    arrays[_PLACES] = places.astype(np.float32)
    arrays[_PATCH] = (channels * (0.5 / np.array(std))).reshape(patch.shape).astype(np.float32)


def write_words(config: Config, ours: Arrays, tokenizer: Tokenizer, arrays: Arrays) -> dict[str, object]:
    """Adds the table of words, the scale and the patches' bias, and returns the settings of words."""
    table = ours['text/embedding/table']
    scaled = table * np.float32(config.model.d_model**0.5) if config.model.scale_embeddings else table
    order = their_order(tokenizer, config.model.vocab_size)
    arrays[_WORDS], arrays[_SCALE] = in_their_order(scaled, order), ours['log_scale']
    # Patches there have no bias, but each has a position.
    arrays[_PLACES][1:] += ours.get('image/patch/bias', np.float32(0))
    end, pad = (int(order[piece]) for piece in (EOS, PAD))
    return {
        'text_config.vocab_size': int((order >= 0).sum()),
        'text_config.eos_token_id': end,
        'text_config.bos_token_id': end,
        'text_config.pad_token_id': pad if pad >= 0 else end,
    }


_OF_LAYERS = {
    'num_hidden_layers': 'N',
    'hidden_size': 'd_model',
    'intermediate_size': 'd_ff',
    'num_attention_heads': 'h',
    'hidden_act': 'activation',
}
KIND = Kind(
    architecture='CLIPModel',
    form='image_text',
    prefix='text_model.',
    parts=('text_config', 'vision_config'),
    settings={
        **{
            f'{theirs}_config.{name}': f'{group}.{option}'
            for _, theirs, group, _ in _TOWERS
            for name, option in _OF_LAYERS.items()
        },
        'text_config.layer_norm_eps': 'model.norm_epsilon',
        'text_config.attention_dropout': 'model.P_drop_attention',
        'vision_config.image_size': 'images.size',
        'vision_config.patch_size': 'images.patch',
        'projection_dim': 'contrastive.d_e',
    },
    fixed={},
    others={
        'text_config.max_position_embeddings': files.SIZE,
        'text_config.eos_token_id?': object,
        'vision_config.layer_norm_eps': float,
        'vision_config.attention_dropout': float,
        'vision_config.num_channels?': (range(3, 4),),
    },
    options={
        'model.positions': 'learned',
        'model.norm': 'pre',
        'model.norm_final': True,
        'model.norm_embedding': False,
        'model.token_types': 0,
        'model.P_drop': 0.0,
        'model.scale_embeddings': False,
        'image_model.positions': 'learned',
        'image_model.norm': 'pre',
        'image_model.norm_embedding': True,
        'images.pool': 'token',
        'images.stem': 'patches',
        'images.sinusoids': False,
        'images.pixels': 'rgb',
        'images.patch_bias': False,
        'contrastive.causal': True,
    },
    table=_table,
    words=WordTables(_WORDS, _WORDS, _WORDS, None),
    ignored=(r'(text|vision)_model\.embeddings\.position_ids',),
    read=_read,
    write=_write,
    held=lambda config: {
        'image_model.activation': HELD['model.activation'],
        # Neither changes what a trained model computes, or it is in an array there.
        'model.P_drop': (config.model.P_drop,),
        'model.scale_embeddings': (True, False),
        'images.patch_bias': (True, False),
    },
    to_matrices=functools.partial(patches_to_matrices, _PATCH),
    from_matrices=functools.partial(patches_from_matrices, _PATCH),
)
