"""The Vision Transformer, an encoder that classifies images (Dosovitskiy et al. 2021)."""

from collections.abc import Mapping

from transformer.config import Config
from transformer.interop import layout
from transformer.interop.hugging_face.kind import Kind, pair, patches_from_matrices, patches_to_matrices
from transformer.interop.layout import Arrays, ForeignArray

_PATCH, _CLASS, _POSITIONS = (
    f'vit.embeddings.{name}'
    for name in ('patch_embeddings.projection.weight', 'cls_token', 'position_embeddings')
)
HEAD = pair('classifier')
_PIXELS = {3: 'rgb', 1: 'grey'}  # by channels


def _table(options: Mapping[str, object]) -> list[ForeignArray]:
    entries = [
        *layout.linear((_PATCH, _PATCH.replace('weight', 'bias')), 'patch'),
        ForeignArray(_CLASS, ('class_token',)),
        ForeignArray(_POSITIONS, ('positions/table',)),
        *layout.norm(pair('vit.layernorm'), 'encoder/final'),
        *layout.linear(HEAD, 'head'),
    ]
    for i in range(options['model.N']):
        theirs, ours = f'vit.encoder.layer.{i}', f'encoder/layer_{i}'
        for name in ('query', 'key', 'value'):
            there = f'{theirs}.attention.attention.{name}'
            entries += layout.linear(pair(there), f'{ours}/self_attention/{name}')
        entries += layout.linear(pair(f'{theirs}.attention.output.dense'), f'{ours}/self_attention/output')
        entries += layout.norm(pair(f'{theirs}.layernorm_before'), f'{ours}/self_attention_sublayer')
        entries += layout.linear(pair(f'{theirs}.intermediate.dense'), f'{ours}/feed_forward/inner')
        entries += layout.linear(pair(f'{theirs}.output.dense'), f'{ours}/feed_forward/outer')
        entries += layout.norm(pair(f'{theirs}.layernorm_after'), f'{ours}/feed_forward_sublayer')
    return entries


def _read(settings: Mapping) -> dict[str, object]:
    return {
        'data.source': 'folders',
        'model.max_len': (settings['image_size'] // settings['patch_size']) ** 2 + 1,
        'images.pixels': _PIXELS[settings['num_channels']],
    }


def _write(config: Config) -> dict[str, object]:
    return {'num_channels': config.images.channels}


def _to_matrices(arrays: Arrays) -> None:
    for name, leading in ((_CLASS, (1, 1)), (_POSITIONS, (1,))):
        # `layout.to_ours` refuses arrays of other shapes.
        if name in arrays and arrays[name].shape[:-1][: len(leading)] == leading:
            arrays[name] = arrays[name].reshape(arrays[name].shape[len(leading) :])
    patches_to_matrices(_PATCH, arrays)


def _from_matrices(arrays: Arrays, config: Config) -> None:
    patches_from_matrices(_PATCH, arrays, config)
    arrays[_CLASS] = arrays[_CLASS][None, None]
    # Their table has no rows for further patches.
    arrays[_POSITIONS] = arrays[_POSITIONS][None, : config.images.positions]


KIND = Kind(
    architecture='ViTForImageClassification',
    form='image_classes',
    prefix='vit.',
    settings={
        'num_hidden_layers': 'model.N',
        'hidden_size': 'model.d_model',
        'intermediate_size': 'model.d_ff',
        'num_attention_heads': 'model.h',
        'hidden_act': 'model.activation',
        'layer_norm_eps': 'model.norm_epsilon',
        'hidden_dropout_prob': 'model.P_drop',
        'attention_probs_dropout_prob': 'model.P_drop_attention',
        'image_size': 'images.size',
        'patch_size': 'images.patch',
    },
    fixed={'qkv_bias': (True,)},
    others={
        # Three channels, or one.
        'num_channels': (range(3, 4), range(1, 2)),
        'id2label?': {'*': str},
        'problem_type?': ('single_label_classification', None),
    },
    options={
        'model.positions': 'learned',
        'model.norm': 'pre',
        'model.norm_final': True,
        'images.pool': 'token',
        'images.stem': 'patches',
        'images.patch_bias': True,
        'images.sinusoids': False,
    },
    table=_table,
    words=None,
    ignored=(r'vit\.pooler\..*',),
    read=_read,
    write=_write,
    to_matrices=_to_matrices,
    from_matrices=_from_matrices,
)
