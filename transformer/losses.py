"""Label-smoothed cross-entropy as sums, so that one division by the tokens of all devices is the last."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Sums = dict[str, Float[Array, '']]


def cross_entropy_sums(logits: Float[Array, 'B T V'], target: Int[Array, 'B T'], eps_ls: float) -> Sums:
    """Sums over the real target tokens (§5.4).

    The label puts 1 - eps on the gold token and eps/(V - 1) on every other one; its entropy, which no
    model can go below, is subtracted.

    Returns:
      loss: smoothed cross-entropy in nats; nll: the same without smoothing; correct: tokens whose
      likeliest prediction is right; tokens: real tokens, the end of a sentence among them.
    """
    size = logits.shape[-1]
    weights = (target != 0).astype(jnp.float32)
    normalizer = jax.nn.logsumexp(logits, axis=-1)
    gold_logit = jnp.take_along_axis(logits, target[..., None], axis=-1)[..., 0]
    gold = gold_logit - normalizer
    others = jnp.sum(logits, axis=-1) - size * normalizer - gold
    rest = eps_ls / (size - 1)
    entropy = -sum(n * p * math.log(p) for n, p in ((1, 1 - eps_ls), (size - 1, rest)) if p > 0)
    smoothed = -(1 - eps_ls) * gold - rest * others - entropy
    correct = gold_logit >= jnp.max(logits, axis=-1)
    return {
        'loss': jnp.sum(weights * smoothed),
        'nll': -jnp.sum(weights * gold),
        'correct': jnp.sum(weights * correct),
        'tokens': jnp.sum(weights),
    }


def no_sums() -> Sums:
    """The sums over nothing."""
    return {name: jnp.float32(0) for name in ('loss', 'nll', 'correct', 'tokens')}
