"""Trains small models on generated tokens in seconds, for the claims about such models."""

import functools
from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Int

from experiments.claims import claim
from transformer.config import Config
from transformer.nn import ensemble, models
from transformer.tokens import Batch, Tokens

FIRST = 3  # the first token after padding, end and unknown
VOCABULARY = 259  # the smallest size that the config allows
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
    """Makes rows without padding, each of one segment."""
    tokens = tokens.astype(np.int32)
    positions = np.broadcast_to(np.arange(tokens.shape[1], dtype=np.int32), tokens.shape)
    return Tokens(tokens, np.ones_like(tokens), positions)


def train(config: Config, generate: Callable[[np.random.Generator], Batch], updates: int, seed: int):
    """Trains on generated batches, and returns the parameters."""
    rng = np.random.default_rng(seed)
    return claim.train(config, (generate(rng) for _ in range(updates)), seed)


def answers(config: Config, params: models.Params, batch: Batch) -> Int[np.ndarray, 'B T']:
    """Computes the likeliest token at each position."""
    return np.argmax(logits(config)(params, batch), axis=-1)


@functools.cache
def logits(config: Config) -> Callable:
    """Returns `(params, batch) -> logits`, compiled once for all seeds."""
    return jax.jit(lambda params, batch: ensemble.logits(config, params, batch, None))
