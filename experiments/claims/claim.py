"""What a claim is, and the training that several of them need."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from transformer import config as configs
from transformer import parallel
from transformer.config import Config
from transformer.data.dataset import Dataset
from transformer.nn import models
from transformer.runs import process
from transformer.tasks import sums_of, task_of
from transformer.tokens import Batch
from transformer.training.step import initial_state, train_step

# What a claim's measurement found with one seed; JSON.
Found = Mapping[str, object]


class Verdict(NamedTuple):
    """Whether a claim holds, and the number that decides it, with its spread over the seeds."""

    holds: bool
    number: str


class Claim(NamedTuple):
    """Something that a paper says, and how it is tested.

    Attributes:
      statement: what the paper says.
      source: where.
      criterion: when it holds; written down before anything was measured, unless the README of the results
        says otherwise.
      seeds: how many times it is measured.
      measure: takes a seed.
      judge: takes what was found with each seed.
      draw: draws what was found with each seed on the axes of `panels` pictures side by side.
      spread: what the numbers of the verdict are, with their spread in brackets.
      why: what explains the result, where it needs an explanation.
    """

    statement: str
    source: str
    criterion: str
    seeds: int
    measure: Callable[[int], Found]
    judge: Callable[[Sequence[Found]], Verdict]
    draw: Callable[[Sequence, Sequence[Found]], None]
    panels: int = 1
    spread: str = 'mean [least, greatest] over the seeds'
    why: str = ''


def config_of(changes: Mapping[str, object]) -> Config:
    """A small model in float32 with a constant learning rate after a short warm-up, and `changes` in it."""
    small = {
        'model.P_drop': 0.0,
        'train.schedule': 'constant',
        'train.warmup_steps': 20,
        'train.eps_ls': 0.0,
        'train.average_last': 0,
        'train.microbatches': parallel.device_count(),
    }
    return configs.resolve(configs.config_dict(small | dict(changes)))


@functools.cache
def prepared(config: Config) -> Dataset:
    """The corpus of a config, in the user's cache."""
    return task_of(config).prepare(config, process.cache_folder() / 'corpora', lambda *_: None)


def train(config: Config, batches: Iterable[Batch], seed: int) -> models.Params:
    """The parameters after an update with each of some batches, from those that the seed draws.

    Dropout, if there is any, is drawn by the seed of the config.
    """
    first = initial_state(configs.replace(config, {'train.seed': seed}))
    state, update = parallel.replicate(first), _update(config)
    for batch in batches:
        state, _ = update(state, parallel.to_devices(batch, config.train.microbatches))
    return jax.device_get(state.params)


@functools.cache
def _update(config: Config) -> Callable:
    """The program of an update, which several seeds share."""
    return parallel.map_update(functools.partial(train_step, config, sums_of(config)))


def by_training(judge: Callable[[Found], Verdict]) -> Callable[[Sequence[Found]], Verdict]:
    """What `Claim.judge` takes, of a judge of one training: a claim holds if it holds in each."""

    def judge_all(found: Sequence[Found]) -> Verdict:
        verdicts = [judge(one) for one in found]
        return Verdict(all(v.holds for v in verdicts), '; then '.join(v.number for v in verdicts))

    return judge_all


# Of the numbers that `interval` writes.
OVER_PAIRS = 'mean [95 % bootstrap interval] over the pairs of sentences, by training'


def spread(values: Sequence[float], form: str = '.3g') -> str:
    """The mean of a value over the seeds, and between its least and its greatest."""
    mean = sum(values) / len(values)
    return f'{mean:{form}} [{min(values):{form}}, {max(values):{form}}]'


def interval(values: Sequence[float], form: str = '.3g') -> str:
    """The mean of a value over sentences, two of which are a pair, and its 95 % bootstrap interval."""
    pairs = np.reshape(np.asarray(values, float), (-1, 2)).mean(axis=1)
    means = np.random.default_rng(0).choice(pairs, (1000, len(pairs))).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return f'{pairs.mean():{form}} [{low:{form}}, {high:{form}}]'
