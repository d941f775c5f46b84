"""The fewer the examples, the more dropout is best."""

from experiments.claims import small_language
from experiments.claims.claim import OVER_SEEDS, Measurements, Verdict, by_name, spreads
from experiments.claims.panels import curves

EXAMPLES, RATES, SEEDS = (300, 12000), (0.0, 0.1, 0.3), 3
SOURCE = '§6.2, rows D of Table 3; Srivastava et al. 2014'
CRITERION = (
    f'small language models of the grammar, {small_language.UPDATES} updates: of P_drop '
    f'{", ".join(map(str, RATES))}, the one with the least loss on dev is greater for {EXAMPLES[0]} '
    f'sentences than for {EXAMPLES[1]:,}, with every seed'
)


def measure(seed: int) -> dict:
    """Measures the loss on dev by the number of examples and P_drop."""

    def loss(examples: int, rate: float) -> float:
        config = small_language.config({'data.train_examples': examples, 'model.P_drop': rate})
        return small_language.loss(config, small_language.train(config, seed))

    return {str(examples): {str(rate): loss(examples, rate) for rate in RATES} for examples in EXAMPLES}


def judge(measurements: Measurements) -> Verdict:
    best = by_name(measurements, lambda losses: min(losses, key=losses.get))
    few, many = ([float(rate) for rate in best[str(examples)]] for examples in EXAMPLES)
    parts = [
        f'{examples} sentences: P_drop {", ".join(best[examples])}; '
        + spreads({f'loss with {rate}': [m[examples][rate] for m in measurements] for rate in m}, '.3f', ', ')
        for examples, m in measurements[0].items()
    ]
    return Verdict(all(a > b for a, b in zip(few, many, strict=True)), f'best {"; ".join(parts)}')


NUMBERS = f'best P_drop by seed, and the loss as {OVER_SEEDS}'
PANELS = (
    curves(
        RATES,
        'P_drop',
        'loss on dev',
        lambda m: {f'{name} sentences': list(losses.values()) for name, losses in m.items()},
        legend=True,
    ),
)
