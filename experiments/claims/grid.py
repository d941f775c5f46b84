"""Images need positions, and it matters little whether these have one axis or two."""

from experiments.claims.claim import Measurements, Verdict, by_name, scores_of_test, spreads
from experiments.claims.panels import DOTS, curves
from transformer.config.tasks import models_with_all
from transformer.data.generated import pictures

# The task that classifies images.
_, (_IMAGES,) = models_with_all('image', 'classes')
SEEDS, UPDATES, ROWS = 3, 400, 64
LEAST, SHARE = 2.0, 0.5
# Options of each encoding of positions.
POSITIONS = {
    'none': {'model.positions': 'none'},
    'sinusoids': {'model.positions': 'sinusoidal'},
    'learned': {'model.positions': 'learned', 'model.max_len': 64},
    'sinusoids of the grid': {'model.positions': 'none', 'images.sinusoids': True},
}
MODEL = {
    'model.N': 2,
    'model.d_model': 32,
    'model.d_ff': 64,
    'model.h': 4,
    'model.norm': 'pre',
    'model.activation': 'gelu',
    'train.task': _IMAGES,
    'train.peak_lr': 2e-3,
    'images.pool': 'mean',
    'images.begin': 'zeros',
    'images.classes': len(pictures.CLASSES),
    'data.source': 'pictures',
    'data.name': None,
    'data.train': 'train[:20000]',
    'data.dev': 'dev[:1000]',
    'data.test': 'test',
    'data.batch_tokens': 64 * ROWS,
}
SOURCE = 'Dosovitskiy et al. 2021, appendix D.4'
CRITERION = (
    f'{UPDATES} updates with {ROWS} generated pictures of 8 x 8 patches: each encoding of positions names '
    f'the largest shape in at least {LEAST:g} % more of new pictures than no encoding, and the best encoding '
    f'is ahead of the worst by less than {SHARE:g} times what the worst is ahead of none, with every seed'
)


def measure(seed: int) -> dict:
    """Measures the share of pictures whose class is right, by encoding, in percent."""
    scores = {name: scores_of_test(MODEL | options, UPDATES, seed) for name, options in POSITIONS.items()}
    return {name: 100 * of_test['accuracy'] for name, of_test in scores.items()}


def judge(measurements: Measurements) -> Verdict:
    holds = []
    for shares in measurements:
        encodings = [share for name, share in shares.items() if name != 'none']
        ahead, apart = min(encodings) - shares['none'], max(encodings) - min(encodings)
        holds.append(ahead >= LEAST and apart < SHARE * ahead)
    return Verdict(all(holds), f'right, in percent: {spreads(by_name(measurements), ".1f")}')


PANELS = (curves([*POSITIONS], '', 'pictures right (%)', style=DOTS | {'color': 'C0'}, xmargin=0.4),)
