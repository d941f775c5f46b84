"""Models that differ only in their seed predict better together than one with as many parameters."""

from experiments.claims import small_language
from experiments.claims.claim import Measurements, Verdict, by_name, spread
from experiments.claims.panels import JOINED, curves
from transformer.nn import cost

MEMBERS, SEEDS = 3, 3
# About three times the parameters of the small model.
LARGE = {'model.d_model': 124, 'model.d_ff': 512, 'model.h': 4}
ONE, TOGETHER, WIDE = NAMES = ('one', 'ensemble', 'wide')
SOURCE = 'Hansen and Salamon 1990; the ensembles of Table 2'
CRITERION = (
    f'small language models of the grammar, {small_language.UPDATES} updates: the mean probabilities of '
    f'{MEMBERS} seeds have a lower loss on dev than a model of {MEMBERS} times their parameters, and than '
    'each of them alone, with every seed'
)


def measure(seed: int) -> dict:
    """Measures the loss on dev of the best member, of all together and of the wide model; and parameters."""
    config, large = small_language.config({}), small_language.config(LARGE)
    seeds = range(MEMBERS * (seed - 1) + 1, MEMBERS * seed + 1)
    members = tuple(small_language.train(config, member) for member in seeds)
    wide = small_language.train(large, seed)
    losses = {
        ONE: min(small_language.loss(config, params) for params in members),
        TOGETHER: small_language.loss(config, members),
        WIDE: small_language.loss(large, wide),
    }
    models = {ONE: members[0], TOGETHER: members, WIDE: wide}
    return {'loss': losses, 'parameters': {name: cost.parameters(model) for name, model in models.items()}}


def judge(measurements: Measurements) -> Verdict:
    losses = by_name([m['loss'] for m in measurements])
    counts = measurements[0]['parameters']
    holds = all(t < min(one, wide) for one, t, wide in zip(*losses.values(), strict=True))
    parts = (f'{name} {spread(losses[name], ".3f")} ({counts[name]:,} parameters)' for name in NAMES)
    return Verdict(holds, f'loss on dev: {"; ".join(parts)}')


PANELS = (curves(NAMES, '', 'loss on dev', lambda m: {'': list(m['loss'].values())}, style=JOINED),)
