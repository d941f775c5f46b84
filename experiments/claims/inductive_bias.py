"""A convolutional network is ahead of a Vision Transformer with few pictures, and less so with many."""

from experiments.claims import grid
from experiments.claims.claim import Measurements, Verdict, scores_of_test, spread
from experiments.claims.panels import curves

PICTURES, SEEDS, UPDATES = (500, 3000, 20000), 3, 400
TRANSFORMER, NETWORK = 'Vision Transformer', 'residual network'
# Options that are not the model's.
SHARED = {key: value for key, value in grid.MODEL.items() if not key.startswith('model.')}
# Both have about the same number of parameters.
MODELS = {
    TRANSFORMER: grid.MODEL | {'model.positions': 'learned', 'model.max_len': 64},
    NETWORK: SHARED
    | {'model.kind': 'convolutional', 'model.positions': 'none', 'model.N': 3, 'model.d_model': 32},
}
SOURCE = 'Dosovitskiy et al. 2021, §4.3'
CRITERION = (
    f'{UPDATES} updates with {grid.ROWS} generated pictures: with {PICTURES[0]} different ones the residual '
    'network names the largest shape of more new pictures than the Vision Transformer, and is ahead by more '
    f'than with {PICTURES[-1]:,}, with every seed, at about equal parameters'
)


def measure(seed: int) -> dict:
    """Measures the share of pictures whose class is right, by model and number of pictures, in percent."""

    def share(options: dict, pictures: int) -> float:
        changes = options | {'data.train': f'train[:{pictures}]'}
        return 100 * scores_of_test(changes, UPDATES, seed)['accuracy']

    return {
        name: {str(count): share(options, count) for count in PICTURES} for name, options in MODELS.items()
    }


def judge(measurements: Measurements) -> Verdict:
    ahead = {
        count: [m[NETWORK][str(count)] - m[TRANSFORMER][str(count)] for m in measurements]
        for count in PICTURES
    }
    few, many = ahead[PICTURES[0]], ahead[PICTURES[-1]]
    holds = all(a > 0 and b < a for a, b in zip(few, many, strict=True))
    leads = '; '.join(f'{count:,} pictures {spread(by_seed, "+.1f")}' for count, by_seed in ahead.items())
    return Verdict(holds, f'points by which the residual network is ahead: {leads}')


PANELS = (
    curves(
        PICTURES,
        'pictures',
        'new pictures right (%)',
        lambda shares: {name: list(by_count.values()) for name, by_count in shares.items()},
        ticks='log',
        legend=True,
    ),
)
