"""The more pairs a contrastive loss compares, the more images and texts find each other."""

from experiments.claims.claim import SCENES, Measurements, Verdict, by_name, scores_of_test, spreads
from experiments.claims.panels import curves
from transformer.config.tasks import tasks_with

# The task of two encoders.
[_TOWERS] = tasks_with('towers')
ROWS, PAIRS, UPDATES, SEEDS = (4, 16, 64), 256, 150, 3
MODEL = SCENES | {
    'model.N': 2,
    'model.d_model': 32,
    'model.d_ff': 64,
    'model.h': 4,
    'model.norm': 'pre',
    'model.positions': 'learned',
    'model.max_len': 40,
    'train.task': _TOWERS,
    'train.peak_lr': 2e-3,
    'images.patch': 8,
    'data.train': 'train[:20000]',
    'data.dev': 'dev[:500]',
    'data.test': 'test[:500]',
    'data.batch_tokens': SCENES['data.row_len'] * PAIRS,
}
SOURCE = 'Radford et al. 2021, §2.3; Chen et al. 2020, §5.2'
CRITERION = (
    f'{UPDATES} updates of {PAIRS} generated pictures with their sentences: among 500 new ones, R@1 of the '
    f'sentences of a picture is higher with a loss over {ROWS[1]} pairs than over {ROWS[0]}, and again with '
    f'{ROWS[2]}, with every seed'
)


def measure(seed: int) -> dict:
    """Measures R@1 of the texts of an image, by the number of pairs that are compared, in percent."""
    shares = {}
    for rows in ROWS:
        scores = scores_of_test(MODEL | {'train.microbatches': PAIRS // rows}, UPDATES, seed)
        shares[str(rows)] = 100 * scores['text_of_image']['r1']['score']
    return shares


def judge(measurements: Measurements) -> Verdict:
    few, some, many = by_name(measurements).values()
    holds = all(a < b < c for a, b, c in zip(few, some, many, strict=True))
    return Verdict(holds, f'R@1, in percent, by pairs compared: {spreads(by_name(measurements), ".1f")}')


PANELS = (curves(ROWS, 'pairs that are compared', 'texts of images, R@1 (%)', ticks='log'),)
