"""How Hugging Face transformers names the arrays and activations of BERT and GPT-2."""

from transformer.export import layout
from transformer.export.layout import Entry

ACTIVATIONS = {
    'relu': 'relu',
    'gelu': 'gelu',
    'gelu_new': 'gelu_tanh',
    'gelu_pytorch_tanh': 'gelu_tanh',
    'silu': 'swish',
    'swish': 'swish',
}
# In a file, but no part of the model that we compute: buffers, and heads for other tasks.
IGNORED = {
    'bert': (
        r'embeddings\.position_ids', r'pooler\..*', r'cls\.seq_relationship\..*',
        r'cls\.predictions\.decoder\..*', r'(classifier|qa_outputs)\..*',
    ),
    'gpt2': (r'h\.\d+\.attn\.(masked_)?bias', r'lm_head\.weight'),
}  # fmt: skip
# A setting by which a config.json without model_type is known.
EARLY = {'type_vocab_size': 'bert', 'n_embd': 'gpt2'}
# What begins the names in a file of a whole model; the file of a stack alone has none.
PREFIXES = {'bert': 'bert.', 'gpt2': 'transformer.'}


def _pair(name: str) -> tuple[str, str]:
    return f'{name}.weight', f'{name}.bias'


def bert(layers: int) -> list[Entry]:
    """BERT's encoder and its head for masked words, but for the table of words."""
    head_norm = zip(_pair('cls.predictions.transform.LayerNorm'), ('scale', 'bias'), strict=True)
    entries = [
        Entry('embeddings.position_embeddings.weight', ('positions/table',)),
        Entry('embeddings.token_type_embeddings.weight', ('positions/token_types',)),
        *layout.norm(_pair('embeddings.LayerNorm'), 'positions'),
        *layout.linear(_pair('cls.predictions.transform.dense'), 'head'),
        *(Entry(name, (f'head_norm/layer/{part}',)) for name, part in head_norm),
    ]
    for i in range(layers):
        theirs, ours = f'encoder.layer.{i}', f'encoder/layer_{i}'
        for name in ('query', 'key', 'value'):
            there = f'{theirs}.attention.self.{name}'
            entries += layout.linear(_pair(there), f'{ours}/self_attention/{name}')
        entries += layout.linear(_pair(f'{theirs}.attention.output.dense'), f'{ours}/self_attention/output')
        entries += layout.norm(
            _pair(f'{theirs}.attention.output.LayerNorm'), f'{ours}/self_attention_sublayer'
        )
        entries += layout.linear(_pair(f'{theirs}.intermediate.dense'), f'{ours}/feed_forward/inner')
        entries += layout.linear(_pair(f'{theirs}.output.dense'), f'{ours}/feed_forward/outer')
        entries += layout.norm(_pair(f'{theirs}.output.LayerNorm'), f'{ours}/feed_forward_sublayer')
    return entries


def gpt2(layers: int) -> list[Entry]:
    """GPT-2, but for the table of words; its matrices are [inputs, outputs], as ours."""
    linear = lambda name, *ours: layout.linear(_pair(name), *ours, transposed=False)
    entries = [Entry('wpe.weight', ('positions/table',)), *layout.norm(_pair('ln_f'), 'decoder/final')]
    for i in range(layers):
        theirs, ours = f'h.{i}', f'decoder/layer_{i}'
        inputs = [f'{ours}/self_attention/{name}' for name in ('query', 'key', 'value')]
        entries += linear(f'{theirs}.attn.c_attn', *inputs)
        entries += linear(f'{theirs}.attn.c_proj', f'{ours}/self_attention/output')
        entries += layout.norm(_pair(f'{theirs}.ln_1'), f'{ours}/self_attention_sublayer')
        entries += linear(f'{theirs}.mlp.c_fc', f'{ours}/feed_forward/inner')
        entries += linear(f'{theirs}.mlp.c_proj', f'{ours}/feed_forward/outer')
        entries += layout.norm(_pair(f'{theirs}.ln_2'), f'{ours}/feed_forward_sublayer')
    return entries
