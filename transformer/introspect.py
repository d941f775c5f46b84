"""What a model attends to."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from transformer.nn import models
from transformer.tasks.translation.translate import Translator


class Attention(NamedTuple):
    """The attention of one sentence and a translation of it, by layer (N) and head (H)."""

    source: list[str]
    target: list[str]
    encoder: Float[np.ndarray, 'N H S S']
    decoder: Float[np.ndarray, 'N H T T']
    cross: Float[np.ndarray, 'N H T S']


def attention(translator: Translator, sentence: str, translation: str) -> Attention:
    """The attention weights of the model when it reads `sentence` and is made to say `translation`."""
    source, target = translator.tokenizer.encode_batch([sentence, translation])
    batch = {}
    for name, tokens in (('source', source), ('target', target)):
        row = jnp.asarray(tokens)[None]
        batch[name] = row
        batch[f'{name}_segments'] = jnp.ones_like(row)
        batch[f'{name}_positions'] = jnp.arange(len(tokens))[None]
    model = models.build(translator.config)

    @jax.jit
    def run(params, batch):
        _, kept = model.apply({'params': params}, batch, train=False, mutable=['intermediates'])
        return kept['intermediates']

    with jax.default_matmul_precision(translator.config.train.matmul_precision):
        kept = run(translator.params, batch)

    def weights(stack: str, kind: str) -> Float[np.ndarray, 'N H Q K']:
        layers = [kept[stack][f'layer_{i}'][kind]['weights'][0][0] for i in range(len(kept[stack]))]
        return np.stack([np.asarray(layer) for layer in layers])

    return Attention(
        source=translator.tokenizer.pieces(source),
        target=translator.tokenizer.pieces(target),
        encoder=weights('encoder', 'self_attention'),
        decoder=weights('decoder', 'self_attention'),
        cross=weights('decoder', 'cross_attention'),
    )
