"""A recurrent network remembers twenty to fifty steps, with gates longer, and attention whatever it reads."""

import numpy as np

from experiments.claims import recall, toys
from experiments.claims.claim import Measurements, Verdict, by_name, config_of
from experiments.claims.panels import curves
from transformer.config import Config
from transformer.nn import models
from transformer.tokens import Batch

LAGS, SEEDS = (5, 10, 20, 40, 80, 160), 3
UPDATES, ROWS, TESTED = 300, 30, 300  # rows have each lag equally often
# The bias of an LSTM's forget gate begins with 1 in every model here.
RNN, GRU, LSTM, ATTENTION = recall.LAYERS
SOURCE = '§1, §4; lectures on recurrent networks; Jozefowicz et al. 2015 for the bias of the forget gate'
CRITERION = (
    f'{UPDATES} updates on texts with all lags from {LAGS[0]} to {LAGS[-1]}, at about equal parameters; the '
    'horizon is the greatest lag up to which more than half of the pieces are recalled at every lag: it '
    f'is at most 50 for the RNN, longer for the GRU and the LSTM whose forget bias begins with 1, and '
    f'{LAGS[-1]} for self-attention, with every seed'
)


def texts(rng: np.random.Generator, rows: int) -> Batch:
    """Draws texts of one length, with one of `LAGS` distractors between a symbol and the question."""
    lags = np.tile(LAGS, rows // len(LAGS))
    symbol = toys.FIRST + rng.integers(recall.SYMBOLS, size=(rows, 1))
    tokens = toys.FIRST + recall.SYMBOLS + rng.integers(recall.DISTRACTORS, size=(rows, LAGS[-1] + 3))
    tokens[:, -2:] = np.concatenate([np.full_like(symbol, recall.QUESTION), symbol], axis=1)
    np.put_along_axis(tokens, LAGS[-1] - lags[:, None], symbol, axis=1)
    text = toys.whole_rows(tokens)
    return {'text': text, 'weight': (text.positions == LAGS[-1] + 2).astype(np.float32)}


def shares(config: Config, params: models.Params, seed: int) -> dict[str, float]:
    """Computes the share of new texts whose symbol is recalled, by lag."""
    batch = texts(np.random.default_rng([seed, 1]), TESTED)
    right = toys.answers(config, params, batch)[:, -1] == batch['text'].tokens[:, -1]
    by_lag = right.reshape(-1, len(LAGS)).mean(axis=0).tolist()
    return dict(zip(map(str, LAGS), by_lag, strict=True))


def measure(seed: int) -> dict:
    """Measures the share recalled of each kind of layer at each lag."""
    measured = {}
    for name, layer in recall.LAYERS.items():
        config = config_of(toys.LANGUAGE_MODEL | layer)
        params = toys.train(config, lambda rng: texts(rng, ROWS), UPDATES, seed)
        measured[name] = shares(config, params, seed)
    return measured


def horizon(recalled: dict[str, float]) -> int:
    """Returns the greatest lag up to which more than half is recalled, or 0."""
    failed = [lag for lag in LAGS if recalled[str(lag)] <= 0.5]
    return max((lag for lag in LAGS if lag < min(failed, default=LAGS[-1] + 1)), default=0)


def judge(measurements: Measurements) -> Verdict:
    horizons = by_name(measurements, horizon)
    gated = zip(horizons[RNN], horizons[GRU], horizons[LSTM], strict=True)
    holds = all(rnn <= 50 and min(gru, lstm) > rnn for rnn, gru, lstm in gated)
    holds = holds and min(horizons[ATTENTION]) == LAGS[-1]
    parts = (f'{name} {", ".join(map(str, values))}' for name, values in horizons.items())
    return Verdict(holds, f'horizon by seed: {"; ".join(parts)}')


NUMBERS = 'greatest lag by seed'
PANELS = (
    curves(
        LAGS, 'lag, pieces', 'recalled', ticks='log', guide=('one half', 0.5), legend=True, ylim=(0, 1.05)
    ),
)
