"""Trains small models for the claims, and formats statistics over seeds or over pairs of sentences."""

import collections
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from transformer import config as configs
from transformer import parallel
from transformer.config import Config, declare
from transformer.config.tasks import tasks_with
from transformer.data.dataset import Dataset
from transformer.nn import models
from transformer.runs import process
from transformer.runs.restore import Trained
from transformer.tasks import prepare, sums_of, task_of
from transformer.tokens import Batch
from transformer.training.step import initial_state, train_step

# These explain the numbers of a verdict and their brackets.
OVER_SEEDS = 'mean [least, greatest] over the seeds'
OVER_PAIRS = 'mean [95 % bootstrap interval] over the pairs of sentences, by training'
# A claim's measurements with one seed, as JSON, and with all seeds.
Measurement = Mapping[str, object]
Measurements = Sequence[Measurement]


class Verdict(NamedTuple):
    """The verdict on a claim, and the numbers that decide it."""

    holds: bool
    number: str


# The task whose models predict a text.
[_LANGUAGE] = tasks_with('continues')
LANGUAGE_MODEL = {'train.task': _LANGUAGE, 'data.source': 'text'}
GRAMMAR = {'data.source': 'grammar', 'data.name': None}
GRAMMAR |= {'data.batching': 'packed', 'data.row_len': 32, 'data.max_len': 32}
SCENES = {'data.source': 'scenes', 'data.name': None, 'data.language': 'en'}
SCENES |= {'data.tokenizer': 'words', 'data.pieces': 109}
SCENES |= {'data.batching': 'padded', 'data.row_len': 40, 'data.max_len': 40}


def config_of(changes: Mapping[str, object]) -> Config:
    """Returns a config with `changes` and, unless they differ, without dropout and with a constant rate."""
    defaults = {
        'model.P_drop': 0.0,
        'train.schedule': 'constant',
        'train.warmup_steps': 20,
        'train.eps_ls': 0.0,
        'train.average_last': 0,
        'train.microbatches': parallel.device_count(),
    }
    # A contrastive loss has no label smoothing.
    used, _ = declare.drop_unused(configs.OPTIONS, configs.read_values(defaults | dict(changes)), changes)
    return configs.resolve_values(used)


@functools.cache
def prepared(config: Config) -> Dataset:
    """Prepares the data of a config in the user's cache."""
    return prepare(config, process.cache_folder() / 'corpora')


def train(config: Config, batches: Iterable[Batch], seed: int) -> models.Params:
    """Trains with an update per batch; `seed` draws the initial parameters, `train.seed` the dropout."""
    [last] = collections.deque(checkpoints(config, batches, seed), maxlen=1)
    return jax.device_get(last)


def checkpoints(config: Config, batches: Iterable[Batch], seed: int) -> Iterator[models.Params]:
    """Trains as `train` does, and yields the parameters after each update, valid until the next one."""
    first = initial_state(configs.replace(config, {'train.seed': seed}))
    state, update = parallel.replicate(first), _update(config)
    for batch in batches:
        state, _ = update(state, parallel.to_devices(batch, config.train.microbatches))
        yield state.params


@functools.cache
def _update(config: Config) -> Callable:
    return parallel.map_update(functools.partial(train_step, config, sums_of(config)))


def train_on(dataset: Dataset, config: Config, updates: int, seed: int) -> Trained:
    """Trains on a dataset; `seed` draws the initial parameters and the order of the batches."""
    order = task_of(config).batches(configs.replace(config, {'train.seed': seed}), dataset, 'train')
    return Trained(config, train(config, map(order.batch, range(updates)), seed), dataset.codecs)


def scores_of_test(changes: Mapping[str, object], updates: int, seed: int) -> dict[str, object]:
    """Trains on the data of a config, given by its changes, and returns the scores of test."""
    config = config_of(changes)
    dataset = prepared(config)
    trained = train_on(dataset, config, updates, seed)
    return task_of(config).evaluate(trained, dataset, 'test').scores


def by_name(measurements: Measurements, number: Callable = lambda value: value) -> dict[str, list[float]]:
    """Returns, by name, `number(measurement)` with each seed."""
    return {name: [number(m[name]) for m in measurements] for name in measurements[0]}


def by_training(judge: Callable[[Measurement], Verdict]) -> Callable[[Measurements], Verdict]:
    """Turns a judge of one training into a claim's judge: the claim must hold in every training."""

    def judge_all(measurements: Measurements) -> Verdict:
        verdicts = [judge(measurement) for measurement in measurements]
        return Verdict(all(v.holds for v in verdicts), '; then '.join(v.number for v in verdicts))

    return judge_all


def spread(values: Sequence[float], form: str = '.3g') -> str:
    """Formats the mean over the seeds, with the least and the greatest value in brackets."""
    mean = sum(values) / len(values)
    return f'{mean:{form}} [{min(values):{form}}, {max(values):{form}}]'


def spreads(values: Mapping[str, Sequence[float]], form: str, separator: str = '; ') -> str:
    """Formats the spread of each name's values."""
    return separator.join(f'{name} {spread(by_seed, form)}' for name, by_seed in values.items())


def interval(values: Sequence[float], form: str = '.3g') -> str:
    """Formats the mean over sentences and its 95 % bootstrap interval; sentences 2k and 2k + 1 are a pair."""
    pairs = np.reshape(np.asarray(values, float), (-1, 2)).mean(axis=1)
    means = np.random.default_rng(0).choice(pairs, (1000, len(pairs))).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return f'{pairs.mean():{form}} [{low:{form}}, {high:{form}}]'
