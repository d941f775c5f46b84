"""Trains rows of Table 3 at the scale of the grammar for a few updates, for the claims that compare them."""

import functools

from experiments.claims.claim import prepared, train_on
from experiments.tables import rows as tables
from experiments.tables import scales
from transformer import parallel
from transformer.config import Config
from transformer.data.dataset import Dataset
from transformer.runs.restore import Trained
from transformer.tasks import sums_of, task_of
from transformer.training import split_sums

UPDATES, SEEDS = 300, 3


@functools.cache
def config_of(row: str) -> Config:
    """Returns a row's config, with as few microbatches as possible, which is faster."""
    [row_of_table] = tables.rows('3', row)
    fewest = {'train.steps': UPDATES, 'train.microbatches': parallel.device_count()}
    return scales.config(row_of_table, 'grammar', fewest)


def corpus() -> Dataset:
    """Prepares the grammar's sentences, which all rows share."""
    return prepared(config_of('base'))


@functools.cache
def trained(row: str, seed: int) -> Trained:
    """Trains a row's model, once for all claims measured in one call."""
    return train_on(corpus(), config_of(row), UPDATES, seed)


def means(row: str, seed: int) -> dict[str, float]:
    """Measures a row's perplexity and share of correctly predicted pieces on dev."""
    model = trained(row, seed)
    batches = task_of(model.config).batches(model.config, corpus(), 'dev')
    scores = split_sums.means(sums_of(model.config), model.params, batches)
    return {key: scores[key] for key in ('perplexity', 'accuracy')}
