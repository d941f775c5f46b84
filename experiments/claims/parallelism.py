"""Recurrence cannot be computed in parallel within a sequence; self-attention can."""

import functools
import statistics

from experiments.claims.claim import LANGUAGE_MODEL, Measurements, Verdict, by_name, config_of, spreads
from experiments.claims.panels import curves
from experiments.sweeps import cost
from transformer.config import Config

LENGTHS, POSITIONS = (16, 64, 256), 2048
SEEDS, UPDATES = 5, 2  # each seed times all models and lengths once more
# Both have about the same number of parameters.
MODELS = {
    'Transformer': {'model.kind': 'transformer', 'model.h': 4, 'model.d_ff': 512, 'model.d_model': 128},
    'LSTM': {'model.kind': 'recurrent', 'model.cell': 'lstm', 'model.d_model': 156},
}
SOURCE = '§1, Table 1'
CRITERION = (
    f'training at {POSITIONS:,} positions an update: from rows of {LENGTHS[0]} to rows of {LENGTHS[-1]} '
    'an LSTM slows down by more than twice the factor of a Transformer (medians)'
)


def config(name: str, length: int) -> Config:
    """Returns a language model's config, whose batch has the same number of positions at every row length."""
    sizes = {'data.pieces': 1000, 'model.N': 2, 'data.batch_tokens': POSITIONS}
    return config_of(LANGUAGE_MODEL | sizes | {'data.max_len': length, 'data.row_len': length} | MODELS[name])


# All seeds share the compiled updates.
timer = functools.cache(cost.timer)


def measure(seed: int) -> dict:
    """Measures tokens per second by row length."""
    del seed
    speed = lambda name, length: POSITIONS / timer(config(name, length))(UPDATES)
    return {name: {str(length): speed(name, length) for length in LENGTHS} for name in MODELS}


def judge(measurements: Measurements) -> Verdict:
    first, last = str(LENGTHS[0]), str(LENGTHS[-1])
    slowdowns = by_name(measurements, lambda speeds: speeds[first] / speeds[last])
    # A median, so that a disturbed timing counts little.
    transformer, lstm = (statistics.median(slowdowns[name]) for name in MODELS)
    return Verdict(lstm > 2 * transformer, f'times slower: {spreads(slowdowns, ".2f")}')


PANELS = (curves(LENGTHS, 'positions of a row', 'tokens a second', ticks='log', legend=True, ylim=(0, None)),)
