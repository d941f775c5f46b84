"""Recalling the first piece of a text after a lag: what is learned in a fixed number of updates."""

import functools
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np

from experiments.claims.claim import Claim, Found, Verdict, config_of, spread, train
from transformer.config import Config
from transformer.nn import models
from transformer.tokens import Batch, Tokens

LAGS, SEEDS = (5, 20, 80), 3
UPDATES, ROWS, TESTED = 200, 32, 256
SYMBOLS, DISTRACTORS = 16, 8
FIRST = 3  # after padding, the end and the unknown piece
ASK = FIRST + SYMBOLS + DISTRACTORS
VOCABULARY = 259  # the least there is
# About as many parameters in every layer.
LAYERS = {
    'RNN': {'model.kind': 'recurrent', 'model.cell': 'rnn_tanh', 'model.d_model': 128},
    'GRU': {'model.kind': 'recurrent', 'model.cell': 'gru', 'model.d_model': 74},
    'LSTM': {'model.kind': 'recurrent', 'model.cell': 'lstm', 'model.d_model': 64},
    'self-attention': {'model.kind': 'decoder', 'model.h': 4, 'model.d_ff': 128, 'model.d_model': 64},
}


def texts(draw: np.random.Generator, rows: int, lag: int) -> Batch:
    """A symbol, as many distractors as the lag, a question mark, and the symbol, which alone is scored."""
    symbol = FIRST + draw.integers(SYMBOLS, size=(rows, 1))
    between = FIRST + SYMBOLS + draw.integers(DISTRACTORS, size=(rows, lag))
    tokens = np.concatenate([symbol, between, np.full_like(symbol, ASK), symbol], axis=1).astype(np.int32)
    positions = np.broadcast_to(np.arange(lag + 3, dtype=np.int32), tokens.shape)
    weight = (positions == lag + 2).astype(np.float32)
    return {'text': Tokens(tokens, np.ones_like(tokens), positions), 'weight': weight}


def batches(seed: int, lag: int) -> Iterator[Batch]:
    """The batches of a training."""
    draw = np.random.default_rng(seed)
    return (texts(draw, ROWS, lag) for _ in range(UPDATES))


def accuracy(config: Config, params: models.Params, seed: int, lag: int) -> float:
    """The share of new texts whose symbol is recalled."""
    batch = texts(np.random.default_rng([seed, 1]), TESTED, lag)
    answers = np.argmax(_last_logits(config)(params, batch), axis=-1)
    return float(np.mean(answers == batch['text'].tokens[:, -1]))


@functools.cache
def _last_logits(config: Config) -> Callable:
    """The program of the logits at the last position, which several seeds share."""
    model = models.build(config)
    return jax.jit(lambda params, batch: model.apply({'params': params}, batch, train=False)[:, -1])


def measure(seed: int) -> Found:
    """The accuracy by lag of every kind of layer."""
    found = {}
    for name, layer in LAYERS.items():
        config = config_of(
            {
                'train.task': 'language',
                'data.source': 'text',
                'data.pieces': VOCABULARY,
                'model.vocab_size': VOCABULARY,
                'model.N': 1,
                'train.peak_lr': 0.003,
                'train.clip_norm': 1.0,
                **layer,
            }
        )
        found[name] = {str(lag): _accuracy(config, seed, lag) for lag in LAGS}
    return found


def _accuracy(config: Config, seed: int, lag: int) -> float:
    return accuracy(config, train(config, batches(seed, lag), seed), seed, lag)


def judge(found: Sequence[Found]) -> Verdict:
    """By the accuracy at the longest lag."""
    last = {name: [one[name][str(LAGS[-1])] for one in found] for name in LAYERS}
    attention = last.pop('self-attention')
    pairs = [a - b for values in last.values() for a, b in zip(attention, values, strict=True)]
    told = [f'{name} {spread(values, ".2f")}' for name, values in last.items()]
    return Verdict(min(pairs) > 0.5, '; '.join([f'self-attention {spread(attention, ".2f")}', *told]))


def draw(axes: Sequence, found: Sequence[Found]) -> None:
    """The accuracy by lag, each seed a line."""
    for i, name in enumerate(LAYERS):
        for one in found:
            label = name if one is found[0] else None
            axes[0].plot(LAGS, list(one[name].values()), color=f'C{i}', marker='.', label=label)
    axes[0].axhline(1 / SYMBOLS, color='0.7', linestyle=':', label='chance')
    axes[0].set(xscale='log', ylim=(0, 1.05), xlabel='lag, pieces', ylabel='recalled')
    axes[0].set_xticks(LAGS, list(map(str, LAGS)), minor=False)
    axes[0].minorticks_off()
    axes[0].legend()


CLAIM = Claim(
    statement='Short paths between distant positions make it easier to learn what depends on them.',
    source='§4',
    criterion=(
        f'after {UPDATES} updates, the first piece recalled after {LAGS[-1]} others: a share above that of '
        'every recurrent cell by more than 0.5, with every seed, at about equal parameters'
    ),
    seeds=SEEDS,
    measure=measure,
    judge=judge,
    draw=draw,
)
