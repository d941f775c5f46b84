"""Calls one model, or several models whose probabilities are averaged.

`logits`, `encode`, `start` and `step` take one model's parameters, or a tuple of parameters. With a tuple,
memory, constants and state are tuples too, and the logits are log(1/n sum p). So a search need not know the
number of models.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8

from transformer.config import Config
from transformer.nn import models
from transformer.tokens import Batch, Tokens

Params = models.Params | tuple[models.Params, ...]


def log_mean(logits: Sequence[Float[Array, '*B V']]) -> Float[Array, '*B V']:
    """Computes the logarithm of the models' mean probabilities from their logits."""
    logp = jax.nn.log_softmax(jnp.stack(logits), axis=-1)
    return jax.nn.logsumexp(logp, axis=0) - math.log(len(logits))


def logits(config: Config, params: Params, batch: Batch, key: Array | None) -> Float[Array, 'B ... V']:
    """Computes the model's logits for a batch, without dropout if `key` is None."""
    if isinstance(params, tuple):
        return log_mean([logits(config, one, batch, key) for one in params])
    return _dropping(config, params, batch, key, '__call__')


def mean_logits(config: Config, params: Params, batch: Batch, key: Array | None) -> Float[Array, 'B ... V']:
    """Computes the mean of the models' outputs, where these are no logits of one distribution."""
    if isinstance(params, tuple):
        return jnp.mean(jnp.stack([logits(config, one, batch, key) for one in params]), axis=0)
    return logits(config, params, batch, key)


def factors(
    config: Config, params: models.Params, batch: Batch, key: Array | None
) -> tuple[Float[Array, 'B T D'], Float[Array, 'V D']]:
    """Computes one model's vectors and softmax matrix, whose product is the logits."""
    return _dropping(config, params, batch, key, 'factors')


def factors_and_classes(
    config: Config, params: models.Params, batch: Batch, key: Array | None
) -> tuple[tuple[Float[Array, 'B T D'], Float[Array, 'V D']], Float[Array, 'B K']]:
    """Computes `factors`, and the logits of each pair's class, in one pass."""
    return _dropping(config, params, batch, key, 'factors_and_classes')


def read_on(config: Config, params: models.Params, batch: Batch, key: Array | None):
    """Computes `factors` of rows that continue the batch's `carried`, and one model's state after them."""
    return _dropping(config, params, batch, key, 'read_on')


def _dropping(config: Config, params: models.Params, batch: Batch, key: Array | None, method: str):
    rngs = {} if key is None else {'dropout': key}
    return _apply(config, params, method, batch, train=key is not None, rngs=rngs)


def _apply(config: Config, params: models.Params, method: str, *arguments, **options):
    return models.build(config).apply({'params': params}, *arguments, method=method, **options)


def encode(config: Config, params: Params, source: Tokens | UInt8[Array, 'B h w c']):
    """Computes the memory of a source, texts or images. A prompt's memory is the prompt itself."""
    if isinstance(params, tuple):
        return tuple(encode(config, one, source) for one in params)
    return _apply(config, params, 'encode', source)


def start(config: Config, params: Params, memory, max_len: int):
    """Returns constants, and the state before the first token, with room for `max_len` tokens."""
    if isinstance(params, tuple):
        started = [start(config, one, part, max_len) for one, part in zip(params, memory, strict=True)]
        return tuple(zip(*started, strict=True))
    return _apply(config, params, 'start', memory, max_len)


def step(config: Config, params: Params, constants, state, tokens: Int[Array, 'R']):
    """Computes the logits [R V] of the token that follows `tokens`, and the state after `tokens`."""
    if isinstance(params, tuple):
        parts = zip(params, constants, state, strict=True)
        steps = [step(config, *part, tokens) for part in parts]
        scores, states = zip(*steps, strict=True)
        return log_mean(scores), states
    return _apply(config, params, 'step', constants, state, tokens)
