"""BERT, an encoder with a head for masked words (Devlin et al. 2019)."""

from collections.abc import Mapping

import numpy as np

from transformer import files
from transformer.config import Config, ConfigError
from transformer.interop import layout
from transformer.interop.foreign import learned_positions
from transformer.interop.hugging_face import sentence
from transformer.interop.hugging_face.kind import Kind, WordTables, pair
from transformer.interop.layout import Arrays, ForeignArray

_HEAD, _HEAD_NORM = 'cls.predictions.transform.dense', 'cls.predictions.transform.LayerNorm'
_BIAS, _DECODER = 'cls.predictions.bias', 'cls.predictions.decoder.weight'
_DECODER_BIAS = 'cls.predictions.decoder.bias'
_WORDS = 'bert.embeddings.word_embeddings.weight'
_TYPES = 'bert.embeddings.token_type_embeddings.weight'


def _table(options: Mapping[str, object]) -> list[ForeignArray]:
    head_norm = zip(pair(_HEAD_NORM), ('scale', 'bias'), strict=True)
    entries = [
        ForeignArray('bert.embeddings.position_embeddings.weight', ('positions/table',)),
        *layout.norm(pair('bert.embeddings.LayerNorm'), 'positions'),
        *layout.linear(pair(_HEAD), 'head'),
        *(ForeignArray(name, (f'head_norm/layer/{part}',)) for name, part in head_norm),
    ]
    if options['model.token_types']:
        entries.append(ForeignArray(_TYPES, ('positions/token_types',)))
    # Only ours: an import ignores both layers.
    if options.get('masked.next_sentence'):
        entries += layout.linear(pair('bert.pooler.dense'), 'pooler')
        entries += layout.linear(pair('cls.seq_relationship'), 'next_sentence')
    for i in range(options['model.N']):
        theirs, ours = f'bert.encoder.layer.{i}', f'encoder/layer_{i}'
        for name in ('query', 'key', 'value'):
            entries += layout.linear(pair(f'{theirs}.attention.self.{name}'), f'{ours}/self_attention/{name}')
        entries += layout.linear(pair(f'{theirs}.attention.output.dense'), f'{ours}/self_attention/output')
        entries += layout.norm(
            pair(f'{theirs}.attention.output.LayerNorm'), f'{ours}/self_attention_sublayer'
        )
        entries += layout.linear(pair(f'{theirs}.intermediate.dense'), f'{ours}/feed_forward/inner')
        entries += layout.linear(pair(f'{theirs}.output.dense'), f'{ours}/feed_forward/outer')
        entries += layout.norm(pair(f'{theirs}.output.LayerNorm'), f'{ours}/feed_forward_sublayer')
    return entries


def _read(settings: Mapping) -> dict[str, object]:
    positions = learned_positions(settings['max_position_embeddings'])
    # BERT writes no text.
    positions = {key: value for key, value in positions.items() if not key.startswith('decode.')}
    return positions | {'model.token_types': settings['type_vocab_size']}


def _write(config: Config) -> dict[str, object]:
    return {'max_position_embeddings': config.model.max_len, 'type_vocab_size': config.model.token_types or 1}


def _with_a_head(arrays: Arrays) -> None:
    """Adds a head whose matrix is the identity if the file has none, as with sentence encoders."""
    if _DECODER_BIAS in arrays:
        bias = arrays.pop(_DECODER_BIAS)
        if not np.array_equal(bias, arrays.setdefault(_BIAS, bias)):
            raise ConfigError(f'{_DECODER_BIAS}: differs from {_BIAS}, which is the same parameter')
    norm = 'bert.embeddings.LayerNorm.weight'
    if norm in arrays and not any(name.startswith('cls.predictions.') for name in arrays):
        zeros, ones = np.zeros_like(arrays[norm]), np.ones_like(arrays[norm])
        head = np.diag(ones), zeros, ones, zeros
        arrays |= dict(zip((*pair(_HEAD), *pair(_HEAD_NORM)), head, strict=True))


def _complete(arrays: Arrays, config: Config) -> None:
    """Adds the arrays that BERT always has."""
    if not config.model.token_types:
        arrays[_TYPES] = np.zeros((1, config.model.d_model), np.float32)
    if _DECODER in arrays:
        arrays[_DECODER_BIAS] = arrays[_BIAS]


KIND = Kind(
    architecture='BertForMaskedLM',
    form='pieces',
    prefix='bert.',
    settings={
        'num_hidden_layers': 'model.N',
        'hidden_size': 'model.d_model',
        'intermediate_size': 'model.d_ff',
        'num_attention_heads': 'model.h',
        'hidden_act': 'model.activation',
        'layer_norm_eps': 'model.norm_epsilon',
        'hidden_dropout_prob': 'model.P_drop',
        'attention_probs_dropout_prob': 'model.P_drop_attention',
    },
    fixed={'position_embedding_type': ('absolute',), 'is_decoder': (False,)},
    others={'max_position_embeddings': files.SIZE, 'type_vocab_size': files.SIZE},
    options={
        'model.positions': 'learned',
        'model.norm': 'post',
        'model.norm_final': False,
        'model.norm_embedding': True,
    },
    table=_table,
    words=WordTables(_WORDS, _WORDS, _DECODER, _BIAS),
    ignored=(
        r'bert\.embeddings\.position_ids', r'bert\.pooler\..*', r'cls\.seq_relationship\..*',
        r'(bert\.)?(classifier|qa_outputs)\..*',
    ),
    read=_read,
    beside=sentence.read,
    write=_write,
    to_matrices=_with_a_head,
    from_matrices=_complete,
)  # fmt: skip
