"""T5's encoder-decoder, versions 1.0 and 1.1 (Raffel et al. 2020; Shazeer 2020)."""

from collections.abc import Mapping

import numpy as np
from etils import epath

from transformer import files
from transformer.config import Config, ConfigError
from transformer.data.codec import Codecs
from transformer.data.tokenizers.base import Tokenizer
from transformer.data.tokenizers.hugging_face import HuggingFaceTokenizer
from transformer.interop.foreign import all_rows, in_their_order, pair_tables, reordered, their_order
from transformer.interop.hugging_face import tokenizer_files
from transformer.interop.hugging_face.kind import CONFIG, Kind, WordTables
from transformer.interop.layout import Arrays, ForeignArray
from transformer.tokens import EOS, PAD, START

SHARED = 'shared.weight'
_SOFTMAX = 'lm_head.weight'
_TABLES = SHARED, 'encoder.embed_tokens.weight', 'decoder.embed_tokens.weight'
_ACTIVATIONS = {'relu': 'relu', 'gated-gelu': 'geglu'}
# What transformers makes of these names, and a config.json can contradict.
_MEANINGS = {
    'relu': {'dense_act_fn': 'relu', 'is_gated_act': False},
    'gated-gelu': {'dense_act_fn': 'gelu_new', 'is_gated_act': True},
}
_ATTENTION = {'SelfAttention': 'self_attention'}
_KERNELS = {'q': 'query', 'k': 'key', 'v': 'value', 'o': 'output'}
# The settings that all models have here: T5's buckets, and the numbers of our first pieces.
_NUMBERS = {
    'relative_attention_num_buckets': 32,
    'relative_attention_max_distance': 128,
    'pad_token_id': PAD,
    'decoder_start_token_id': START,
    'eos_token_id': EOS,
}
# The kernels of the feed-forward layers, without and with a gate.
_PLAIN, _GATED = {'wi': 'inner', 'wo': 'outer'}, {'wi_0': 'inner', 'wi_1': 'gate', 'wo': 'outer'}


def _table(options: Mapping[str, object]) -> list[ForeignArray]:
    entries = []
    feed_forward = _GATED if options['model.activation'] == 'geglu' else _PLAIN
    for side, depth, parts in (
        ('encoder', options['model.N'], _ATTENTION),
        ('decoder', options['model.N_decoder'], _ATTENTION | {'EncDecAttention': 'cross_attention'}),
    ):
        buckets = f'{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight'
        entries.append(ForeignArray(buckets, (f'{side}/positions/table',)))
        entries.append(ForeignArray(f'{side}.final_layer_norm.weight', (f'{side}/final/norm/rms/scale',)))
        kernels = {name: (_KERNELS, there) for there, name in parts.items()}
        kernels['feed_forward'] = (feed_forward, 'DenseReluDense')
        for i in range(depth):
            for number, (name, (names, there)) in enumerate(kernels.items()):
                theirs, ours = f'{side}.block.{i}.layer.{number}', f'{side}/layer_{i}/{name}'
                entries += [
                    ForeignArray(f'{theirs}.{there}.{one}.weight', (f'{ours}/{own}/kernel',), transposed=True)
                    for one, own in names.items()
                ]
                entries.append(
                    ForeignArray(f'{theirs}.layer_norm.weight', (f'{ours}_sublayer/norm/rms/scale',))
                )
    return entries


def _read(settings: Mapping) -> dict[str, object]:
    dropout, activation = settings['dropout_rate'], settings.get('feed_forward_proj', 'relu')
    for name, value in _MEANINGS[activation].items():
        if settings.get(name, value) != value:
            raise ConfigError(
                f'{CONFIG}: {name}={settings[name]}: with feed_forward_proj={activation} it is {value}'
            )
    return {
        'model.N_decoder': settings.get('num_decoder_layers') or settings['num_layers'],
        'model.d_v': settings['d_kv'],
        'model.activation': _ACTIVATIONS[activation],
        'model.P_drop_attention': dropout,
        'model.P_drop_relu': dropout,
    }


def _write(config: Config) -> dict[str, object]:
    names = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}
    return {
        'num_decoder_layers': config.model.N_decoder,
        'feed_forward_proj': names[config.model.activation],
        'is_encoder_decoder': True,
        **_NUMBERS,
    }


def _held(config: Config) -> dict[str, tuple]:
    m = config.model
    return {
        'model.activation': tuple(_ACTIVATIONS.values()),
        'model.tie_embeddings': ('all', 'inputs'),
        # Versions of transformers differ in what a scaled softmax with a matrix of its own is.
        'model.scale_logits': (True, False) if m.tie_embeddings == 'all' else (False,),
        'model.d_k': (m.d_k,),
        'model.d_v': (m.d_k,),
    }


def read_words(
    folder: epath.Path, settings: Mapping, arrays: Arrays
) -> tuple[dict[str, object], Arrays, Codecs]:
    """Returns the options and parameters of words, and the tokenizers."""
    tables = {name: arrays.pop(name) for name in _TABLES if name in arrays}
    softmax = arrays.pop(_SOFTMAX, None)
    if not tables:
        raise ConfigError(f'{SHARED}: missing')
    (first, table), *others = tables.items()
    for name, other in others:
        if not np.array_equal(table, other):
            raise ConfigError(f'{name}: differs from {first}')
    tokenizer, options = tokenizer_files.read_shared(folder, KIND)
    order = tokenizer.order if isinstance(tokenizer, HuggingFaceTokenizer) else [*range(tokenizer.size)]
    if settings.get('vocab_size', len(table)) != len(table):
        raise ConfigError(f'{CONFIG}: vocab_size={settings["vocab_size"]}: {first} has {len(table)} rows')
    if max(order) >= len(table):
        raise ConfigError(f'the tokenizer has a piece {max(order)}, but {first} only {len(table)} rows')
    if order[: EOS + 1] != [PAD, EOS]:
        numbers = ' and '.join(map(str, order[: EOS + 1]))
        raise ConfigError(
            f'{tokenizer_files.SETTINGS}: padding and the end are {numbers}; {CONFIG} has {PAD} and {EOS}'
        )
    order = all_rows(order, len(table))
    params = {'embedding/table': reordered(first, table, order)}
    if softmax is None and not settings['tie_word_embeddings']:
        raise ConfigError(f'{_SOFTMAX}: missing')
    tied = softmax is None or np.array_equal(softmax, table)
    if not tied:
        params['softmax/table'] = reordered(_SOFTMAX, softmax, order)
    changes = {
        'model.vocab_size': len(table),
        'model.tie_embeddings': 'all' if tied else 'inputs',
        'model.scale_logits': settings.get('scale_decoder_outputs', settings['tie_word_embeddings']),
        'data.pieces': tokenizer.size,
    }
    return changes | options, params, {'source': tokenizer, 'target': tokenizer}


def write_words(config: Config, ours: Arrays, tokenizer: Tokenizer, arrays: Arrays) -> dict[str, object]:
    """Adds the tables of words, and returns the settings that follow."""
    m = config.model
    table, _, softmax, _ = pair_tables(m, ours)
    order = their_order(tokenizer, m.vocab_size)
    if order[[PAD, EOS]].tolist() != [_NUMBERS['pad_token_id'], _NUMBERS['eos_token_id']]:
        raise ConfigError('data.tokenizer: pieces 0 and 1 of a T5 of huggingface are padding and the end')
    arrays[SHARED] = in_their_order(table, order)
    # Early versions scale the logits of a tied softmax, and no others.
    if not (m.tie_embeddings == 'all' and m.scale_logits):
        arrays[_SOFTMAX] = in_their_order(softmax, order)
    return {
        'vocab_size': int((order >= 0).sum()),
        'tie_word_embeddings': m.scale_logits,
        'scale_decoder_outputs': m.scale_logits,
    }


KIND = Kind(
    architecture='T5ForConditionalGeneration',
    form='pair',
    # The names of a whole model have no prefix of their own.
    prefix='',
    settings={
        'num_layers': 'model.N',
        'd_model': 'model.d_model',
        'd_ff': 'model.d_ff',
        'num_heads': 'model.h',
        'd_kv': 'model.d_k',
        'layer_norm_epsilon': 'model.norm_epsilon',
        'dropout_rate': 'model.P_drop',
    },
    fixed={'is_decoder': (False,)},
    others={
        **{f'{name}?': range(value, value + 1) for name, value in _NUMBERS.items()},
        'num_decoder_layers?': (files.SIZE, None),
        'feed_forward_proj?': tuple(_ACTIVATIONS),
        'scale_decoder_outputs?': bool,
        'dense_act_fn?': str,
        'is_gated_act?': bool,
    },
    options={
        'model.positions': 'buckets',
        'model.norm': 'pre',
        'model.norm_type': 'rmsnorm',
        'model.norm_final': True,
        'model.norm_embedding': False,
        'model.attention_scale': 'none',
        'model.biases': 'none',
        'model.scale_embeddings': False,
        'model.start': 'learned',
        'model.softmax_bias': False,
    },
    table=_table,
    words=WordTables(SHARED, SHARED, _SOFTMAX, None),
    # Early files have a table of positions between the stacks, which is not used.
    ignored=(r'decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight',),
    read=_read,
    write=_write,
    held=_held,
)
