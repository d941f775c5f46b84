"""Rows longer than those of training, by the kind of positions."""

import functools
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np

from experiments.claims.claim import Claim, Found, Verdict, config_of, spread, train
from transformer.config import Config
from transformer.nn import models
from transformer.tokens import Batch, Tokens

POSITIONS = ('sinusoidal', 'learned', 'rotary', 'relative')  # values of model.positions
TRAINED, LONGEST, SEEDS = 32, 128, 3  # positions of a row
UPDATES, ROWS, TESTED = 500, 64, 256
LAG, SYMBOLS = 4, 16
FIRST = 3  # after padding, the end and the unknown piece
VOCABULARY = 259  # the least there is
MODEL = {
    'train.task': 'language',
    'data.source': 'text',
    'data.pieces': VOCABULARY,
    'model.kind': 'decoder',
    'model.vocab_size': VOCABULARY,
    'model.N': 1,
    'model.d_model': 64,
    'model.d_ff': 128,
    'model.h': 4,
    'train.peak_lr': 0.003,
    'train.clip_norm': 1.0,
}


def texts(draw: np.random.Generator, rows: int, length: int) -> Batch:
    """Random symbols, each few of which are repeated once; the repetition alone is scored."""
    symbols = FIRST + draw.integers(SYMBOLS, size=(rows, length // (2 * LAG), 1, LAG))
    tokens = np.repeat(symbols, 2, axis=2).reshape(rows, length).astype(np.int32)
    positions = np.broadcast_to(np.arange(length, dtype=np.int32), tokens.shape)
    weight = (positions // LAG % 2).astype(np.float32)
    return {'text': Tokens(tokens, np.ones_like(tokens), positions), 'weight': weight}


def batches(seed: int) -> Iterator[Batch]:
    """The batches of a training."""
    draw = np.random.default_rng(seed)
    return (texts(draw, ROWS, TRAINED) for _ in range(UPDATES))


def accuracy(config: Config, params: models.Params, seed: int) -> list[float]:
    """The share of repeated symbols that are told, in new rows, for every 2·LAG positions."""
    batch = texts(np.random.default_rng([seed, 1]), TESTED, LONGEST)
    answers = np.argmax(_logits(config)(params, batch), axis=-1)
    right = (answers == batch['text'].tokens) * batch['weight']
    return (right.mean(axis=0).reshape(-1, 2 * LAG).sum(axis=1) / LAG).tolist()


@functools.cache
def _logits(config: Config) -> Callable:
    """The program of the logits, which several seeds share."""
    model = models.build(config)
    return jax.jit(lambda params, batch: model.apply({'params': params}, batch, train=False))


def measure(seed: int) -> Found:
    """The accuracy along the row with every kind of positions."""
    found = {}
    for name in POSITIONS:
        config = config_of(MODEL | {'model.positions': name})
        found[name] = accuracy(config, train(config, batches(seed), seed), seed)
    return found


def within_and_beyond(one: Found, name: str) -> tuple[float, float]:
    """The mean accuracy at positions that training had, and at later ones."""
    blocks = TRAINED // (2 * LAG)
    return float(np.mean(one[name][:blocks])), float(np.mean(one[name][blocks:]))


def judge(found: Sequence[Found]) -> Verdict:
    """By the accuracy of sinusoids."""
    told = []
    for name in POSITIONS:
        within, beyond = zip(*(within_and_beyond(one, name) for one in found), strict=True)
        told.append(f'{name} {spread(within, ".2f")}, beyond {spread(beyond, ".2f")}')
    pairs = [within_and_beyond(one, 'sinusoidal') for one in found]
    holds = all(within > 0.9 and beyond > 0.9 * within for within, beyond in pairs)
    return Verdict(holds, f'symbols told: {"; ".join(told)}')


def draw(axes: Sequence, found: Sequence[Found]) -> None:
    """The accuracy along the row, each seed a line."""
    places = np.arange(0, LONGEST, 2 * LAG) + 2 * LAG
    for i, name in enumerate(POSITIONS):
        for one in found:
            label = name if one is found[0] else None
            axes[0].plot(places, one[name], color=f'C{i}', marker='.', linewidth=0.8, label=label)
    axes[0].axvline(TRAINED, color='0.7', linestyle=':', label='end of trained rows')
    axes[0].set(ylim=(0, 1.05), xlabel='position', ylabel='symbols told')
    # Above the curves, whose fall it would hide elsewhere.
    axes[0].legend(loc='center right', bbox_to_anchor=(1, 0.78), fontsize='small')


CLAIM = Claim(
    statement='Sinusoids may allow the model to extrapolate to sequences longer than those of training.',
    source='§3.5',
    criterion=(
        f'one layer repeats symbols from {LAG} positions before, after {UPDATES} updates with rows of '
        f'{TRAINED}: with sinusoids more than 0.9 of them at these positions, and at positions {TRAINED} to '
        f'{LONGEST} more than 0.9 of that share, with every seed; the other kinds stand beside it'
    ),
    seeds=SEEDS,
    measure=measure,
    judge=judge,
    draw=draw,
    why=(
        'The model does what the claim offsets shows to be possible where it was trained, but nothing in '
        'training asks for the same at positions that it never sees. It fails on them as if they were '
        'untrained rows of a table (learned). Only relative positions, where all distances that occur were '
        'trained, go on without loss. The paper says "may", and did not test it.'
    ),
)
