"""Short paths between distant positions make it easier to learn what depends on them."""

import numpy as np

from experiments.claims import toys
from experiments.claims.claim import Measurements, Verdict, by_name, config_of, spreads
from experiments.claims.panels import curves
from transformer.config import Config
from transformer.nn import models
from transformer.tokens import Batch

LAGS, SEEDS = (5, 20, 80), 3
UPDATES, ROWS, TESTED = 200, 32, 256
SYMBOLS, DISTRACTORS = 16, 8
QUESTION = toys.FIRST + SYMBOLS + DISTRACTORS
# Without embeddings, all have about the same number of parameters.
LAYERS = {
    'RNN': {'model.kind': 'recurrent', 'model.cell': 'rnn_tanh', 'model.d_model': 128},
    'GRU': {'model.kind': 'recurrent', 'model.cell': 'gru', 'model.d_model': 74},
    'LSTM': {'model.kind': 'recurrent', 'model.cell': 'lstm', 'model.d_model': 64},
    'self-attention': {'model.kind': 'transformer', **toys.ATTENTION},
}
SOURCE = '§4'
CRITERION = (
    f'after {UPDATES} updates, the first piece recalled after {LAGS[-1]} others: a share above that of '
    'every recurrent cell by more than 0.5, with every seed, at about equal parameters'
)


def texts(rng: np.random.Generator, rows: int, lag: int) -> Batch:
    """Draws rows of a symbol, `lag` distractors, a question mark and the symbol again, the only target."""
    symbol = toys.FIRST + rng.integers(SYMBOLS, size=(rows, 1))
    between = toys.FIRST + SYMBOLS + rng.integers(DISTRACTORS, size=(rows, lag))
    text = toys.whole_rows(np.concatenate([symbol, between, np.full_like(symbol, QUESTION), symbol], axis=1))
    return {'text': text, 'weight': (text.positions == lag + 2).astype(np.float32)}


def accuracy(config: Config, params: models.Params, seed: int, lag: int) -> float:
    """Computes the share of new texts whose symbol is recalled at the end."""
    batch = texts(np.random.default_rng([seed, 1]), TESTED, lag)
    return float(np.mean(toys.answers(config, params, batch)[:, -1] == batch['text'].tokens[:, -1]))


def measure(seed: int) -> dict:
    """Measures the accuracy of each layer at each lag."""

    def at(config: Config, lag: int) -> float:
        params = toys.train(config, lambda rng: texts(rng, ROWS, lag), UPDATES, seed)
        return accuracy(config, params, seed, lag)

    configs = {name: config_of(toys.LANGUAGE_MODEL | layer) for name, layer in LAYERS.items()}
    return {name: {str(lag): at(config, lag) for lag in LAGS} for name, config in configs.items()}


def judge(measurements: Measurements) -> Verdict:
    last = by_name(measurements, lambda recalled: recalled[str(LAGS[-1])])
    attention = last.pop('self-attention')
    more = [a - b for values in last.values() for a, b in zip(attention, values, strict=True)]
    return Verdict(min(more) > 0.5, spreads({'self-attention': attention} | last, '.2f'))


PANELS = (
    curves(
        LAGS,
        'lag, pieces',
        'recalled',
        ticks='log',
        guide=('chance', 1 / SYMBOLS),
        legend=True,
        ylim=(0, 1.05),
    ),
)
