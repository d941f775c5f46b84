"""How likely a model finds a split's targets, and the accuracy of its pronouns."""

import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from transformer import losses, parallel
from transformer.config import Config
from transformer.data import grammar
from transformer.data.batches import Batches, prefetch
from transformer.nn import models


def evaluation_step(config: Config, params: models.Params, batch: models.Batch) -> losses.Sums:
    """The sums of this device's rows, without dropout and smoothing; to be mapped over devices."""
    rows = jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), batch)
    logits = models.build(config).apply({'params': params}, rows, train=False)
    return parallel.sum_over_devices(losses.cross_entropy_sums(logits, rows['target'], 0.0))


@functools.lru_cache(maxsize=2)
def _mapped_step(config: Config):
    return parallel.map_sums(functools.partial(evaluation_step, config))


def likelihood(config: Config, params: models.Params, batches: Batches) -> dict[str, float]:
    """Loss in nats and perplexity per target token, its end counted, and the share predicted right."""
    total = losses.no_sums()
    put = functools.partial(parallel.to_devices, microbatches=config.train.microbatches)
    for batch in prefetch(batches, 0, batches.steps_per_epoch, put, process=parallel.process()):
        total = jax.tree.map(jnp.add, total, _mapped_step(config)(params, batch))
    tokens = float(total['tokens'])
    loss = float(total['nll']) / tokens
    perplexity = math.exp(loss) if loss < 700 else math.inf
    return {'loss': loss, 'perplexity': perplexity, 'accuracy': float(total['correct']) / tokens}


def pronoun_accuracy(translations: Sequence[str]) -> float:
    """The share of the grammar's pronoun set whose translation has the right pronoun."""
    items = grammar.pronoun_items()
    right = [grammar.has_pronoun(t, i.pronoun) for t, i in zip(translations, items, strict=True)]
    return sum(right) / len(right)
