"""Training speed by row length: a Transformer computes all positions at once, an LSTM one by one."""

import functools
import statistics
from collections.abc import Callable, Sequence

from experiments.claims.claim import LANGUAGE_MODEL, Claim, Measurement, Verdict, by_name, config_of, spreads
from experiments.claims.panels import curves
from experiments.sweeps import cost
from transformer.config import Config

LENGTHS, POSITIONS = (16, 64, 256), 2048
TURNS, UPDATES = 5, 2
# Both have about as many parameters.
MODELS = {
    'Transformer': {'model.kind': 'transformer', 'model.h': 4, 'model.d_ff': 512, 'model.d_model': 128},
    'LSTM': {'model.kind': 'recurrent', 'model.cell': 'lstm', 'model.d_model': 156},
}


def config(name: str, length: int) -> Config:
    """A language model whose batch has the same number of positions at every row length."""
    return config_of(
        {
            **LANGUAGE_MODEL,
            'data.pieces': 1000,
            'data.max_len': length,
            'data.row_len': length,
            'data.batch_tokens': POSITIONS,
            'model.vocab_size': 1000,
            'model.N': 2,
            **MODELS[name],
        }
    )


@functools.cache
def timer(name: str, length: int) -> Callable[[int], float]:
    """Times updates, compiled once."""
    return cost.timer(config(name, length))


def measure(seed: int) -> Measurement:
    """Tokens a second by row length; each seed is one more turn of all models and lengths."""
    del seed
    speed = lambda name, length: POSITIONS / timer(name, length)(UPDATES)
    return {name: {str(length): speed(name, length) for length in LENGTHS} for name in MODELS}


def judge(measurements: Sequence[Measurement]) -> Verdict:
    """Compares the median slowdown from the shortest to the longest rows: a disturbed turn counts little."""
    first, last = str(LENGTHS[0]), str(LENGTHS[-1])
    slowdowns = by_name(measurements, lambda m: {name: m[name][first] / m[name][last] for name in MODELS})
    transformer, lstm = (statistics.median(slowdowns[name]) for name in MODELS)
    return Verdict(lstm > 2 * transformer, f'times slower: {spreads(slowdowns, ".2f")}')


CLAIM = Claim(
    statement='Recurrence cannot be computed in parallel within a sequence; self-attention can.',
    source='§1, Table 1',
    criterion=(
        f'training at {POSITIONS:,} positions an update: from rows of {LENGTHS[0]} to rows of {LENGTHS[-1]} '
        'an LSTM slows down by more than twice the factor of a Transformer (medians)'
    ),
    seeds=TURNS,
    measure=measure,
    judge=judge,
    panels=(
        curves(LENGTHS, 'positions of a row', 'tokens a second', ticks='log', legend=True, ylim=(0, None)),
    ),
    why=(
        'Two CPU cores have little to compute in parallel: a step of 8 rows, as there are of rows of 256, '
        'keeps them as busy as one of 128 rows. What a device with thousands of cores would wait for is '
        'counted in experiments.complexity: n steps one after the other, where self-attention has one.'
    ),
)
