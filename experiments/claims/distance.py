"""Lower layers attend to nearer positions than upper ones."""

import functools

import numpy as np
from jaxtyping import Float

from experiments.claims import small_language
from experiments.claims.claim import Measurements, Verdict, prepared, spreads
from experiments.claims.panels import curves
from transformer.data.generated.grammar.sentences import sentence_pairs
from transformer.data.rows import padded
from transformer.inference.attention import weights_of_rows
from transformer.tokens import Tokens

LAYERS, SENTENCES, ROOM, SEEDS = 3, 200, 40, 3
UPDATES = 250
# English, because the grammar has its trees.
CHANGES = {'model.N': LAYERS, 'data.language': 'en'}
SOURCE = 'Vig and Belinkov 2019; Clark et al. 2019, §3.1'
CRITERION = (
    f'language models of {LAYERS} layers, {UPDATES} updates on the English of the grammar: the mean distance '
    f'between a position and what it attends to, over {SENTENCES} sentences of dev and all heads, is lower '
    'in the first layer than in the last, with every seed'
)


@functools.cache
def attention(seed: int) -> tuple[Float[np.ndarray, 'N H B T T'], Tokens]:
    """Trains a model, once for all claims measured in one call, and computes its attention weights.

    The query and the key at a position belong to the piece before it, which the model has just read.
    """
    config = small_language.config(CHANGES)
    params = small_language.train(config, seed, UPDATES)
    english = [source for source, _ in sentence_pairs('dev')[:SENTENCES]]
    text = padded(prepared(config).codecs['text'].encode_batch(english), (SENTENCES, ROOM))
    weights = weights_of_rows(config, params, {'text': text})['decoder/self_attention']
    return weights.swapaxes(1, 2), text


def measure(seed: int) -> dict:
    """Measures the mean distance of each layer, and the distance of even attention."""
    weights, text = attention(seed)
    places = np.arange(ROOM)
    apart = (places[:, None] - places) * np.ones((len(text.tokens), 1, 1))
    real = text.segments > 0
    of = lambda weights: float((weights * apart).sum(axis=-1)[..., real].mean())
    even = np.tril(np.ones((ROOM, ROOM))) / (places[:, None] + 1)
    return {'layers': [of(layer) for layer in weights], 'even': of(even[None])}


def judge(measurements: Measurements) -> Verdict:
    layers = {f'layer {n + 1}': [m['layers'][n] for m in measurements] for n in range(LAYERS)}
    holds = all(m['layers'][0] < m['layers'][-1] for m in measurements)
    layers['even attention'] = [m['even'] for m in measurements]
    return Verdict(holds, f'mean distance in pieces: {spreads(layers, ".2f")}')


PANELS = (
    curves(
        range(1, LAYERS + 1),
        'layer',
        'mean distance, pieces',
        lambda m: {'weights': m['layers'], 'even': [m['even']] * LAYERS},
        ticks='linear',
        legend=True,
        ylim=(0, None),
    ),
)
