"""Label-smoothed cross-entropy, as sums that are added over all devices and divided once, at the end."""

import functools
import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.nn import matmul

Sums = dict[str, Float[Array, '']]
NAMES = ('loss', 'nll', 'correct', 'weight')
# The most logits per chunk: 192 MiB of float32.
CHUNK_LOGITS = 3 * 2**24


def cross_entropy_sums(
    logits: Float[Array, '*B V'], target: Int[Array, '*B'], weights: Float[Array, '*B'], eps_ls: float
) -> Sums:
    """Weighted sums over target tokens (§5.4).

    The label puts 1 - eps on the gold token and eps/(V - 1) on every other token. The label's entropy, the
    lowest value that any model can reach, is subtracted.

    Returns:
      `loss`, the smoothed cross-entropy in nats; `nll`, the same without smoothing; `correct`, the weight
      of the tokens whose likeliest prediction is right; `weight`, the weight of all tokens.
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


def cross_entropy_sums_of_product(
    x: Float[Array, 'B T D'],
    table: Float[Array, 'V D'],
    target: Int[Array, 'B T'],
    weights: Float[Array, 'B T'],
    eps_ls: float,
) -> Sums:
    """`cross_entropy_sums` of the logits x tableᵀ, only some of which are in memory at a time.

    Only `loss` has a gradient.
    """
    flat = x.reshape(-1, x.shape[-1]), table, target.reshape(-1), weights.reshape(-1)
    return _by_chunks(eps_ls, *flat)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _by_chunks(
    eps_ls: float,
    x: Float[Array, 'N D'],
    table: Float[Array, 'V D'],
    target: Int[Array, 'N'],
    weights: Float[Array, 'N'],
) -> Sums:
    def add(total, chunk):
        rows, *labels = chunk
        sums = cross_entropy_sums(matmul.logits(rows, table), *labels, eps_ls)
        return jax.tree.map(jnp.add, total, sums), None

    chunks = _chunks(table.shape[0], x, target, weights)
    return jax.lax.scan(add, dict.fromkeys(NAMES, jnp.float32(0)), chunks)[0]


def _chunks_forward(eps_ls, x, table, target, weights):
    """Returns the sums, and the gradients of `loss`.

    Both are computed while a chunk's logits are in memory: logits are computed once, and not stored.
    """

    def add(carry, chunk):
        total, of_table = carry
        rows, *labels = chunk

        def loss(scores):
            sums = cross_entropy_sums(scores, *labels, eps_ls)
            return sums['loss'], sums

        (_, sums), slope = jax.value_and_grad(loss, has_aux=True)(matmul.logits(rows, table))
        slope = slope.astype(x.dtype)
        of_table += jax.lax.dot_general(
            slope, rows, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32
        )
        return (jax.tree.map(jnp.add, total, sums), of_table), slope @ table

    empty = dict.fromkeys(NAMES, jnp.float32(0)), jnp.zeros(table.shape, jnp.float32)
    (total, of_table), of_x = jax.lax.scan(add, empty, _chunks(table.shape[0], x, target, weights))
    return total, (of_x.reshape(x.shape), of_table)


def _chunks_backward(eps_ls, gradients, cotangents):
    of_x, of_table = gradients
    scale = cotangents['loss']
    return (of_x * scale).astype(of_x.dtype), (of_table * scale).astype(of_x.dtype), None, None


_by_chunks.defvjp(_chunks_forward, _chunks_backward)


def _chunks(vocabulary: int, *arrays: Array) -> list[Array]:
    """Splits arrays [N ...] into the fewest chunks [C, N/C ...] with at most `CHUNK_LOGITS` logits each."""
    rows, most = arrays[0].shape[0], max(CHUNK_LOGITS // vocabulary, 1)
    count = next(c for c in range(1, rows + 1) if rows % c == 0 and rows // c <= most)
    return [array.reshape(count, rows // count, *array.shape[1:]) for array in arrays]


def log_likelihoods(logits: Float[Array, '*B V'], target: Int[Array, '*B']) -> Float[Array, '*B']:
    """log p of every target token; `nll` is their negative weighted sum."""
    gold_logit, normalizer = _gold(logits, target)
    return gold_logit - normalizer


def _gold(
    logits: Float[Array, '*B V'], target: Int[Array, '*B']
) -> tuple[Float[Array, '*B'], Float[Array, '*B']]:
    """The logit of every target token, and the logarithm of its softmax's denominator."""
    # A sum, not a look-up: it reads the logits in the same pass as the sum of their exponentials.
    pieces = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
    is_gold = pieces == target[..., None]
    return jnp.sum(jnp.where(is_gold, logits, 0.0), axis=-1), jax.nn.logsumexp(logits, axis=-1)


def all_rows(tree):
    """Flattens microbatches [M, rows, ...] to [M·rows, ...], for a loss that treats all rows alike."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def means(sums: Mapping[str, float]) -> dict[str, float]:
    """Every sum per unit of weight; `nll` becomes `perplexity`, and `correct` becomes `accuracy`."""
    per_weight = {name: value / sums['weight'] for name, value in sums.items() if name != 'weight'}
    if 'nll' in per_weight:
        per_weight['perplexity'] = perplexity(per_weight.pop('nll'))
    if 'correct' in per_weight:
        per_weight['accuracy'] = per_weight.pop('correct')
    return per_weight


def training_means(sums: Mapping[str, float]) -> dict[str, float]:
    """Computes `means` of sums whose `loss` may be smoothed.

    In the result `loss` is without label smoothing, as on dev, and matches the perplexity; `objective` is
    what training minimises.
    """
    per_weight = means(sums)
    unsmoothed = sums.get('nll', sums['loss']) / sums['weight']
    return {'loss': unsmoothed, 'objective': per_weight.pop('loss'), **per_weight}


def perplexity(nats: float) -> float:
    """e to the mean negative log likelihood; infinity if that is too large for a double."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf
