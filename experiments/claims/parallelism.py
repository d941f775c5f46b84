"""Training speed by the length of rows: a Transformer computes all positions at once, an LSTM does not."""

import functools
import statistics
from collections.abc import Callable, Sequence

from experiments.claims.claim import Claim, Found, Verdict, config_of, spread
from experiments.sweeps import cost
from transformer.config import Config

LENGTHS, POSITIONS = (16, 64, 256), 2048
TURNS, UPDATES = 5, 2
MODELS = {
    'Transformer': {'model.kind': 'decoder', 'model.h': 4, 'model.d_ff': 512, 'model.d_model': 128},
    'LSTM': {'model.kind': 'recurrent', 'model.cell': 'lstm', 'model.d_model': 156},
}


def config(name: str, length: int) -> Config:
    """A language model; both have about as many parameters, and a batch as many positions at every length."""
    return config_of(
        {
            'train.task': 'language',
            'data.source': 'text',
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


def measure(seed: int) -> Found:
    """Tokens a second by length; each seed is one more turn of all models and lengths."""
    del seed
    speed = lambda name, length: POSITIONS / timer(name, length)(UPDATES)
    return {name: {str(length): speed(name, length) for length in LENGTHS} for name in MODELS}


def slowdown(one: Found) -> dict[str, float]:
    """By what factor each model is slower with the longest rows than with the shortest."""
    first, last = str(LENGTHS[0]), str(LENGTHS[-1])
    return {name: one[name][first] / one[name][last] for name in MODELS}


def judge(found: Sequence[Found]) -> Verdict:
    """By the median of these factors, in which a turn beside other work counts little."""
    factors = {name: [slowdown(one)[name] for one in found] for name in MODELS}
    transformer, lstm = (statistics.median(factors[name]) for name in MODELS)
    told = [f'{name} {spread(values, ".2f")}' for name, values in factors.items()]
    return Verdict(lstm > 2 * transformer, f'times slower: {"; ".join(told)}')


def draw(axes: Sequence, found: Sequence[Found]) -> None:
    """Tokens a second by length, each turn a line."""
    for i, name in enumerate(MODELS):
        for one in found:
            label = name if one is found[0] else None
            axes[0].plot(LENGTHS, list(one[name].values()), color=f'C{i}', marker='.', label=label)
    axes[0].set(xscale='log', xlabel='positions of a row', ylabel='tokens a second')
    axes[0].set_ylim(bottom=0)
    axes[0].set_xticks(LENGTHS, list(map(str, LENGTHS)))
    axes[0].minorticks_off()
    axes[0].legend()


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
    draw=draw,
    why=(
        'Two CPU cores have little to compute in parallel: a step of 8 rows, as there are of rows of 256, '
        'keeps them as busy as one of 128 rows. What a device with thousands of cores would wait for is '
        'counted in experiments.complexity: n steps one after the other, where self-attention has one.'
    ),
)
