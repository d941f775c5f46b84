"""One matrix for embedding and softmax takes fewer parameters and predicts better."""

from experiments.claims import small_language
from experiments.claims.claim import Measurements, Verdict, by_name, spread
from experiments.claims.panels import JOINED, curves
from transformer.nn import cost

TIED, FREE = VALUES = ('all', 'none')  # of model.tie_embeddings
SEEDS = 3
SOURCE = '§3.4; Press and Wolf 2017; Inan et al. 2017'
CRITERION = (
    f'small language models of the grammar, {small_language.UPDATES} updates: with one matrix for embedding '
    'and softmax they have fewer parameters and a lower loss on dev than with two, with every seed'
)


def measure(seed: int) -> dict:
    """Measures the loss on dev and counts the parameters, by `model.tie_embeddings`."""
    measured = {}
    for value in VALUES:
        config = small_language.config({'model.tie_embeddings': value})
        params = small_language.train(config, seed)
        loss = small_language.loss(config, params)
        measured[value] = {'loss': loss, 'parameters': cost.parameters(params)}
    return measured


def judge(measurements: Measurements) -> Verdict:
    losses = by_name(measurements, lambda m: m['loss'])
    counts = [measurements[0][value]['parameters'] for value in VALUES]
    fewer = all(m[TIED]['parameters'] < m[FREE]['parameters'] for m in measurements)
    holds = fewer and all(a < b for a, b in zip(losses[TIED], losses[FREE], strict=True))
    parts = (
        f'{name} {spread(losses[value], ".3f")} ({count:,} parameters)'
        for name, value, count in zip(('one matrix', 'two'), VALUES, counts, strict=True)
    )
    return Verdict(holds, f'loss on dev: {"; ".join(parts)}')


PANELS = (
    curves(
        ('one matrix', 'two'), '', 'loss on dev', lambda m: {'': [m[v]['loss'] for v in VALUES]}, style=JOINED
    ),
)
