"""GPT-2, a decoder that continues texts (Radford et al. 2019)."""

from collections.abc import Mapping

from transformer import files
from transformer.config import Config
from transformer.interop import layout
from transformer.interop.foreign import learned_positions
from transformer.interop.hugging_face.kind import Kind, WordTables, pair
from transformer.interop.layout import ForeignArray


def _table(options: Mapping[str, object]) -> list[ForeignArray]:
    """Returns the entries of GPT-2, whose matrices are [inputs, outputs] like ours."""
    linear = lambda name, *ours: layout.linear(pair(name), *ours, transposed=False)
    entries = [
        ForeignArray('transformer.wpe.weight', ('positions/table',)),
        *layout.norm(pair('transformer.ln_f'), 'decoder/final'),
    ]
    for i in range(options['model.N']):
        theirs, ours = f'transformer.h.{i}', f'decoder/layer_{i}'
        inputs = [f'{ours}/self_attention/{name}' for name in ('query', 'key', 'value')]
        entries += linear(f'{theirs}.attn.c_attn', *inputs)
        entries += linear(f'{theirs}.attn.c_proj', f'{ours}/self_attention/output')
        entries += layout.norm(pair(f'{theirs}.ln_1'), f'{ours}/self_attention_sublayer')
        entries += linear(f'{theirs}.mlp.c_fc', f'{ours}/feed_forward/inner')
        entries += linear(f'{theirs}.mlp.c_proj', f'{ours}/feed_forward/outer')
        entries += layout.norm(pair(f'{theirs}.ln_2'), f'{ours}/feed_forward_sublayer')
    return entries


def _read(settings: Mapping) -> dict[str, object]:
    return {
        **learned_positions(settings['n_positions']),
        'model.d_ff': settings.get('n_inner') or 4 * settings['n_embd'],
    }


def _write(config: Config) -> dict[str, object]:
    return {'n_positions': config.model.max_len, 'n_inner': config.model.d_ff}


KIND = Kind(
    architecture='GPT2LMHeadModel',
    form='text',
    prefix='transformer.',
    settings={
        'n_layer': 'model.N',
        'n_embd': 'model.d_model',
        'n_head': 'model.h',
        'activation_function': 'model.activation',
        'layer_norm_epsilon': 'model.norm_epsilon',
        'resid_pdrop': 'model.P_drop',
        'embd_pdrop': 'model.P_drop_embedding',
        'attn_pdrop': 'model.P_drop_attention',
    },
    fixed={
        'scale_attn_weights': (True,),
        'scale_attn_by_inverse_layer_idx': (False,),
        'add_cross_attention': (False,),
    },
    others={'n_positions': files.SIZE, 'n_inner?': (files.SIZE, None)},
    options={
        'model.positions': 'learned',
        'model.norm': 'pre',
        'model.norm_final': True,
        'model.norm_embedding': False,
    },
    table=_table,
    words=WordTables('transformer.wte.weight', 'transformer.wte.weight', 'lm_head.weight', None),
    ignored=(r'transformer\.h\.\d+\.attn\.(masked_)?bias',),
    read=_read,
    write=_write,
)
