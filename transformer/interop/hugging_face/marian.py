"""Marian's encoder-decoder, the paper's base model but for its positions (Junczys-Dowmunt et al. 2018)."""

from collections.abc import Mapping

from transformer import files
from transformer.config import Config, ConfigError
from transformer.interop import layout
from transformer.interop.hugging_face.kind import CONFIG, Kind, WordTables, pair
from transformer.interop.hugging_face.tokenizer_files import languages
from transformer.interop.layout import ForeignArray
from transformer.tokens import EOS, START

# LayerNorm's epsilon is in its code, not in its config.
EPSILON = 1e-5
SIDES = 'encoder', 'decoder'
SHARED = 'model.shared.weight'
# The positions of both sides, which a file can lack: sinusoids in halves.
POSITIONS = tuple(f'model.{side}.embed_positions.weight' for side in SIDES)


def _table(options: Mapping[str, object]) -> list[ForeignArray]:
    entries = []
    if options['model.positions'] == 'learned':
        ours = 'source_positions/table', 'target_positions/table'
        entries += [ForeignArray(theirs, (own,)) for theirs, own in zip(POSITIONS, ours, strict=True)]
    attention = {'self_attn': 'self_attention'}
    for side, depth, parts in (
        ('encoder', options['model.N'], attention),
        ('decoder', options['model.N_decoder'], attention | {'encoder_attn': 'cross_attention'}),
    ):
        for i in range(depth):
            theirs, ours = f'model.{side}.layers.{i}', f'{side}/layer_{i}'
            for there, here in parts.items():
                for part, own in (('q', 'query'), ('k', 'key'), ('v', 'value'), ('out', 'output')):
                    entries += layout.linear(pair(f'{theirs}.{there}.{part}_proj'), f'{ours}/{here}/{own}')
                entries += layout.norm(pair(f'{theirs}.{there}_layer_norm'), f'{ours}/{here}_sublayer')
            entries += layout.linear(pair(f'{theirs}.fc1'), f'{ours}/feed_forward/inner')
            entries += layout.linear(pair(f'{theirs}.fc2'), f'{ours}/feed_forward/outer')
            entries += layout.norm(pair(f'{theirs}.final_layer_norm'), f'{ours}/feed_forward_sublayer')
    return entries


def _read(settings: Mapping) -> dict[str, object]:
    for here, there in (
        ('encoder_attention_heads', 'decoder_attention_heads'),
        ('encoder_ffn_dim', 'decoder_ffn_dim'),
    ):
        if settings[here] != settings[there]:
            raise ConfigError(
                f'{CONFIG}: {here}={settings[here]}, {there}={settings[there]}: both sides here have the same'
            )
    return {'model.norm_epsilon': EPSILON}


def _write(config: Config) -> dict[str, object]:
    m, decode = config.model, config.decode
    longest = decode.max_source_len + decode.extra_len
    return {
        'decoder_attention_heads': m.h,
        'decoder_ffn_dim': m.d_ff,
        'max_position_embeddings': m.max_len if m.positions == 'learned' else longest,
        'is_encoder_decoder': True,
        'pad_token_id': START,
        'decoder_start_token_id': START,
        'eos_token_id': EOS,
        'forced_eos_token_id': EOS,
        'bos_token_id': None,
    }


KIND = Kind(
    architecture='MarianMTModel',
    form='pair',
    prefix='model.',
    settings={
        'encoder_layers': 'model.N',
        'decoder_layers': 'model.N_decoder',
        'd_model': 'model.d_model',
        'encoder_ffn_dim': 'model.d_ff',
        'encoder_attention_heads': 'model.h',
        'activation_function': 'model.activation',
        'scale_embedding': 'model.scale_embeddings',
        'dropout': 'model.P_drop',
        'attention_dropout': 'model.P_drop_attention',
        'activation_dropout': 'model.P_drop_relu',
    },
    fixed={'is_decoder': (False,)},
    others={
        'decoder_attention_heads': files.SIZE,
        'decoder_ffn_dim': files.SIZE,
        'decoder_start_token_id': files.COUNT,
        'eos_token_id': files.COUNT,
        'decoder_vocab_size?': files.SIZE,
        'share_encoder_decoder_embeddings?': bool,
    },
    options={'model.norm': 'post', 'model.norm_final': False, 'model.norm_embedding': False},
    table=_table,
    words=WordTables(
        'model.encoder.embed_tokens.weight',
        'model.decoder.embed_tokens.weight',
        'lm_head.weight',
        'final_logits_bias',
    ),
    read=_read,
    beside=languages,
    write=_write,
    numbered=True,
)
