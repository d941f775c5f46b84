"""CTranslate2's names of the arrays and activations of an encoder and a decoder, or of a decoder alone."""

from collections.abc import Mapping

from transformer.interop import layout
from transformer.interop.layout import ForeignArray
from transformer.tokens import EOS, START, UNK

FILE = 'model.bin'
# SentencePiece models beside it: of the source or of both sides, and of the target.
TOKENIZERS = 'sentencepiece.model', 'target_sentencepiece.model'
SIDES = 'encoder', 'decoder'
# The library `tokenizers`' files: for single texts or both sides, and for two different sides.
TOKENIZER = 'tokenizer.json'
OF_SIDES = 'source_tokenizer.json', 'target_tokenizer.json'
# CTranslate2's names of our pieces that are no part of a text.
PIECES = {START: '<pad>', EOS: '</s>', UNK: '<unk>'}
ACTIVATIONS = {0: 'relu', 1: 'gelu_tanh', 2: 'swish', 3: 'gelu', 4: 'quick_gelu'}
GATE = '0_noact'  # the number of swiglu's second input layer, beside the activation swish


def table(changes: Mapping[str, object], form: str) -> list[ForeignArray]:
    """Returns the entries of all arrays but the embeddings, for a form of models: pair or text."""
    entries = []
    depths = dict(zip(SIDES, (changes['model.N'], changes.get('model.N_decoder')), strict=True))
    places = dict(zip(SIDES, ('source_positions', 'target_positions'), strict=True))
    if form == 'text':
        depths, places = {'decoder': changes['model.N']}, {'decoder': 'positions'}
    for side, depth in depths.items():
        layer_norm = lambda name: (f'{name}/layer_norm/gamma', f'{name}/layer_norm/beta')
        weights = lambda name, n: (f'{name}/linear_{n}/weight', f'{name}/linear_{n}/bias')
        if changes['model.positions'] == 'learned':
            entries.append(ForeignArray(f'{side}/position_encodings/encodings', (f'{places[side]}/table',)))
        if changes['model.norm_embedding']:
            names = f'{side}/layernorm_embedding/gamma', f'{side}/layernorm_embedding/beta'
            entries += layout.norm(names, places[side])
        if changes['model.norm_final']:
            entries += layout.norm(layer_norm(side), f'{side}/final')
        for i in range(depth):
            layer = f'{side}/layer_{i}'
            attention, cross = f'{layer}/self_attention', f'{layer}/cross_attention'
            inputs = [f'{attention}/{name}' for name in ('query', 'key', 'value')]
            entries += layout.linear(weights(attention, 0), *inputs)
            entries += layout.linear(weights(attention, 1), f'{attention}/output')
            entries += layout.norm(layer_norm(attention), f'{attention}_sublayer')
            if side == 'decoder' and form == 'pair':
                theirs = f'{layer}/attention'
                entries += layout.linear(weights(theirs, 0), f'{cross}/query')
                entries += layout.linear(weights(theirs, 1), f'{cross}/key', f'{cross}/value')
                entries += layout.linear(weights(theirs, 2), f'{cross}/output')
                entries += layout.norm(layer_norm(theirs), f'{cross}_sublayer')
            parts = {0: 'inner', 1: 'outer'}
            if changes['model.activation'] == 'swiglu':
                parts[GATE] = 'gate'
            for n, name in parts.items():
                entries += layout.linear(weights(f'{layer}/ffn', n), f'{layer}/feed_forward/{name}')
            entries += layout.norm(layer_norm(f'{layer}/ffn'), f'{layer}/feed_forward_sublayer')
    return entries
