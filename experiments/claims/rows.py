"""Rows of Table 3 at the scale of the grammar after some of its updates, which several claims compare."""

import functools

from experiments.claims.claim import train
from experiments.tables import rows as tables
from experiments.tables import scales
from transformer import config as configs
from transformer import parallel
from transformer.config import Config
from transformer.data.dataset import Dataset
from transformer.runs.restore import Trained
from transformer.tasks import sums_of
from transformer.tasks.translation import task as translation
from transformer.training import split_sums

UPDATES, SEEDS = 300, 3


@functools.cache
def config_of(row: str) -> Config:
    """The config of a row, by its name; with as few microbatches as possible, which is faster."""
    [found] = [each for each in tables.table('3').rows if each.name == row]
    changes = {'train.steps': UPDATES, 'train.microbatches': parallel.device_count()}
    return scales.config(found, 'grammar', changes)


def corpus() -> Dataset:
    """The grammar's, which all rows share."""
    return prepared(config_of('base'))


@functools.cache
def trained(row: str, seed: int) -> Trained:
    """A row after its updates; claims that are measured together train it once."""
    config = config_of(row)
    order = translation.batches(configs.replace(config, {'train.seed': seed}), corpus(), 'train')
    params = train(config, map(order.batch, range(UPDATES)), seed)
    return Trained(config, params, corpus().codec)


def means(row: str, seed: int) -> dict[str, float]:
    """Perplexity and the share of pieces predicted right, on dev."""
    model = trained(row, seed)
    batches = translation.batches(model.config, corpus(), 'dev')
    found = split_sums.means(sums_of(model.config), model.params, batches)
    return {key: found[key] for key in ('perplexity', 'accuracy')}
