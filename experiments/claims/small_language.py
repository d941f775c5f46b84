"""Trains small language models of the grammar's German, for the claims that compare them."""

import math
from collections.abc import Mapping

from experiments.claims import claim
from experiments.claims.claim import config_of, prepared
from transformer.config import Config
from transformer.nn.ensemble import Params
from transformer.tasks import sums_of, task_of
from transformer.training import split_sums

UPDATES = 150
SIZES = {'model.N': 1, 'model.d_model': 64, 'model.d_ff': 256, 'model.h': 4, 'train.peak_lr': 0.003}
DATA = claim.GRAMMAR | {'data.language': 'de', 'data.pieces': 600, 'data.batch_tokens': 1024}
MODEL = claim.LANGUAGE_MODEL | SIZES | DATA


def config(changes: Mapping[str, object]) -> Config:
    """Returns the config of the small model with changes."""
    return config_of(MODEL | dict(changes))


def train(config: Config, seed: int, updates: int | None = None) -> Params:
    """Trains a model for a number of updates, `UPDATES` by default."""
    return claim.train_on(prepared(config), config, updates or UPDATES, seed).params


def loss(config: Config, params: Params) -> float:
    """Computes the loss of a model or an ensemble on dev, in nats per piece."""
    batches = task_of(config).batches(config, prepared(config), 'dev')
    return split_sums.means(sums_of(config), params, batches)['loss']


def bits_per_character(config: Config, params: Params) -> float:
    """Computes a model's bits per character of the texts of dev, ends of sentences included."""
    data = prepared(config)
    total = split_sums.total(sums_of(config), params, task_of(config).batches(config, data, 'dev'))
    characters = sum(len(text) + 1 for text in data.texts('dev')['text'])
    return total['loss'] / math.log(2) / characters
