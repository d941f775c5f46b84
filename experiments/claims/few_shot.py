"""A decoder answers from the examples in its prompt as soon as one of its heads copies from them."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool

from experiments.claims import claim, toys
from experiments.claims.claim import OVER_SEEDS, Measurements, Verdict, config_of, spreads
from experiments.claims.panels import curves
from transformer.config import Config
from transformer.inference.attention import weights_of_rows
from transformer.nn import models
from transformer.tokens import Batch

SYMBOLS, TABLES, PAIRS, SEEDS = 16, 8, 16, 3
UPDATES, EVERY, ROWS, TESTED = 1500, 50, 32, 512
# The value of each key in each table that recurs.
RECURRING = np.random.default_rng(0).permuted(np.tile(np.arange(SYMBOLS), (TABLES, 1)), axis=1)
LAYERS = {'1 layer': 1, '2 layers': 2}
MODEL = {'model.d_model': 64, 'model.d_ff': 256, 'model.h': 4, 'model.norm': 'pre', 'train.peak_lr': 0.002}
STEPS = range(EVERY, UPDATES + 1, EVERY)
ENOUGH, APART = 0.95, 100
SOURCE = 'Brown et al. 2020, §1; Olsson et al. 2022'
CRITERION = (
    f'{UPDATES} updates on texts of {PAIRS} keys with their values, by a table that is new in each text or '
    f'one of {TABLES} that recur: with two layers at least {ENOUGH:.0%} of the values of earlier keys are '
    'right, by a new table, and of the values of other keys after half of the pairs, by a recurring one; '
    f'one half of the former is right within {APART} updates of the moment at which a head first gives more '
    'than half of its attention to the values to copy; with one layer less than half is right; with every '
    'seed'
)


class Texts(NamedTuple):
    """Texts of keys with their values.

    Attributes:
      batch: the pieces. The values of earlier keys, and all values of a table that recurs, have a weight.
      recurring: marks the texts of a table that recurs.
      same: marks for each pair the earlier pairs with the same key.
    """

    batch: Batch
    recurring: Bool[np.ndarray, 'B']
    same: Bool[np.ndarray, 'B P P']


def texts(rng: np.random.Generator, rows: int) -> Texts:
    """Draws texts, every second one of a table that recurs."""
    recurring = np.arange(rows) % 2 == 1
    new = rng.permuted(np.tile(np.arange(SYMBOLS), (rows, 1)), axis=1)
    table = np.where(recurring[:, None], RECURRING[rng.integers(TABLES, size=rows)], new)
    keys = rng.integers(SYMBOLS, size=(rows, PAIRS))
    values = np.take_along_axis(table, keys, axis=1)
    pairs = toys.FIRST + np.stack([keys, SYMBOLS + values], axis=-1)
    same = np.tril(keys[:, :, None] == keys[:, None], -1)
    weight = np.zeros(pairs.shape, np.float32)
    weight[..., 1] = same.any(axis=-1) | recurring[:, None]
    text = toys.whole_rows(pairs.reshape(rows, -1))
    return Texts({'text': text, 'weight': weight.reshape(rows, -1)}, recurring, same)


def copying(config: Config, params: models.Params, tested: Texts) -> float:
    """Computes how much attention the values to copy get from the keys that were just read.

    It is the mean over the texts of new tables, of the head that gives most. A piece is read at the position
    after its own.
    """
    of_all = weights_of_rows(config, params, tested.batch)['decoder/self_attention']
    weights = of_all[:, ~tested.recurring]
    asked = tested.same[~tested.recurring]
    from_keys_to_values = weights[..., 1::2, 2::2]
    given = np.einsum('nbhpq,bpq->nhbp', from_keys_to_values, asked[..., :-1])
    return float(given[..., asked.any(axis=-1)].mean(axis=-1).max())


def measure(seed: int) -> dict:
    """Measures recall and copying during the training, and the answers by number of examples after it."""
    tested, measured = texts(np.random.default_rng([seed, 1]), TESTED), {}
    known = tested.same.any(axis=-1)
    for name, layers in LAYERS.items():
        config = config_of(toys.LANGUAGE_MODEL | MODEL | {'model.N': layers})
        rng, found = np.random.default_rng(seed), {'recalled': [], 'copying': []}
        batches = (texts(rng, ROWS).batch for _ in range(UPDATES))
        for step, state in enumerate(claim.checkpoints(config, batches, seed), 1):
            if step in STEPS:
                params = jax.device_get(state)
                answers = toys.answers(config, params, tested.batch)
                right = (answers == tested.batch['text'].tokens)[:, 1::2]
                found['recalled'].append(float(right[known & ~tested.recurring[:, None]].mean()))
                found['copying'].append(copying(config, params, tested))
        unseen = ~known & tested.recurring[:, None]
        found['applied'] = [float(right[:, n][unseen[:, n]].mean()) for n in range(PAIRS)]
        measured[name] = found
    return measured


def passed(values: list[float]) -> float:
    """Returns the update at which a value is first above one half."""
    return next((step for step, value in zip(STEPS, values, strict=True) if value > 0.5), float('inf'))


def judge(measurements: Measurements) -> Verdict:
    one, two = ([m[name] for m in measurements] for name in LAYERS)
    recalled = {name: [m[name]['recalled'][-1] for m in measurements] for name in LAYERS}
    applied = [float(np.mean(m['applied'][PAIRS // 2 :])) for m in two]
    moments = {part: [passed(m[part]) for m in two] for part in ('recalled', 'copying')}
    apart = [abs(a - b) for a, b in zip(*moments.values(), strict=True)]
    holds = min(*recalled['2 layers'], *applied) >= ENOUGH and max(apart) <= APART
    holds = holds and max(recalled['1 layer']) < 0.5
    numbers = {f'recalled by {name}': values for name, values in recalled.items()} | {'applied': applied}
    when = '; '.join(f'{part} at {", ".join(map(str, steps))}' for part, steps in moments.items())
    return Verdict(holds, f'{spreads(numbers, ".3f")}; one half of {when} updates')


NUMBERS = f'{OVER_SEEDS}, and the updates by seed'
PANELS = (
    curves(
        STEPS,
        'updates',
        'share',
        lambda m: {
            'recalled': m['2 layers']['recalled'],
            'attention to copy': m['2 layers']['copying'],
            'recalled by 1 layer': m['1 layer']['recalled'],
        },
        legend=True,
        ylim=(0, 1.05),
    ),
    curves(
        range(PAIRS),
        'examples in the prompt',
        'right for keys not among them',
        lambda m: {name: m[name]['applied'] for name in LAYERS},
        legend=True,
        ylim=(0, 1.05),
    ),
)
