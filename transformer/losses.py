"""Label-smoothed cross-entropy, as sums: they are added over all devices and divided once, at the end."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Sums = dict[str, Float[Array, '']]


def cross_entropy_sums(
    logits: Float[Array, 'B T V'], target: Int[Array, 'B T'], weights: Float[Array, 'B T'], eps_ls: float
) -> Sums:
    """Weighted sums over target tokens (§5.4).

    The label puts 1 - eps on the gold token and eps/(V - 1) on every other one. Its entropy, the lowest
    value that any model can reach, is subtracted.

    Returns:
      `loss`, the smoothed cross-entropy in nats; `nll`, the same without smoothing; `correct`, the weight
      of the tokens whose likeliest prediction is right; `weight`, that of all tokens.
    """
    size = logits.shape[-1]
    gold_logit, normalizer = _gold(logits, target)
    gold = gold_logit - normalizer
    smoothed = -gold
    if eps_ls > 0:
        others = jnp.sum(logits, axis=-1) - size * normalizer - gold
        rest = eps_ls / (size - 1)
        entropy = -sum(n * p * math.log(p) for n, p in ((1, 1 - eps_ls), (size - 1, rest)))
        smoothed = -(1 - eps_ls) * gold - rest * others - entropy
    correct = gold_logit >= jnp.max(logits, axis=-1)
    return {
        'loss': jnp.sum(weights * smoothed),
        'nll': -jnp.sum(weights * gold),
        'correct': jnp.sum(weights * correct),
        'weight': jnp.sum(weights),
    }


def log_likelihoods(logits: Float[Array, 'B T V'], target: Int[Array, 'B T']) -> Float[Array, 'B T']:
    """log p of every target token; their negative sum is `nll`."""
    gold_logit, normalizer = _gold(logits, target)
    return gold_logit - normalizer


def _gold(
    logits: Float[Array, 'B T V'], target: Int[Array, 'B T']
) -> tuple[Float[Array, 'B T'], Float[Array, 'B T']]:
    """The logit of every target token, and the logarithm by which it is normalised."""
    normalizer = jax.nn.logsumexp(logits, axis=-1)
    return jnp.take_along_axis(logits, target[..., None], axis=-1)[..., 0], normalizer


def means(sums: dict[str, float]) -> dict[str, float]:
    """Means per unit of weight: `loss` and, where the sums are known, `perplexity` and `accuracy`."""
    found = {'loss': sums['loss'] / sums['weight']}
    if 'nll' in sums:
        found['perplexity'] = perplexity(sums['nll'] / sums['weight'])
    if 'correct' in sums:
        found['accuracy'] = sums['correct'] / sums['weight']
    return found


def training_means(sums: dict[str, float]) -> dict[str, float]:
    """As `means`, of sums whose `loss` may be smoothed.

    Here `loss` is without label smoothing, on one scale with that of dev, and fits the perplexity;
    `objective` is what the training minimises.
    """
    found = means(sums)
    unsmoothed = sums.get('nll', sums['loss']) / sums['weight']
    return {'loss': unsmoothed, 'objective': found.pop('loss'), **found}


def perplexity(nats: float) -> float:
    """e to the mean negative log likelihood; infinity where that is too large for a double."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf
