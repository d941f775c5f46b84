"""Generated tokens that small models learn in seconds, and what the claims about such models share."""

import functools
from collections.abc import Callable, Iterator

import jax
import numpy as np
from jaxtyping import Int

from experiments.claims import claim
from transformer.config import Config
from transformer.nn import models
from transformer.tokens import Batch, Tokens

FIRST = 3  # the first token after padding, end and unknown
VOCABULARY = 259  # the smallest vocabulary
MODEL = {
    'data.source': 'text',
    'data.pieces': VOCABULARY,
    'model.vocab_size': VOCABULARY,
    'model.N': 1,
    'train.peak_lr': 0.003,
    'train.clip_norm': 1.0,
}
LANGUAGE_MODEL = claim.LANGUAGE_MODEL | MODEL
ATTENTION = {'model.d_model': 64, 'model.d_ff': 128, 'model.h': 4}


def whole_rows(tokens: Int[np.ndarray, 'B T']) -> Tokens:
    """Rows without padding, each of one segment."""
    tokens = tokens.astype(np.int32)
    positions = np.broadcast_to(np.arange(tokens.shape[1], dtype=np.int32), tokens.shape)
    return Tokens(tokens, np.ones_like(tokens), positions)


def batches(generate: Callable[[np.random.Generator], Batch], seed: int, updates: int) -> Iterator[Batch]:
    """The batches of a training, from a function that generates one."""
    rng = np.random.default_rng(seed)
    return (generate(rng) for _ in range(updates))


@functools.cache
def logits(config: Config) -> Callable:
    """`(params, batch) -> logits`, compiled once for all seeds."""
    model = models.build(config)
    return jax.jit(lambda params, batch: model.apply({'params': params}, batch, train=False))
