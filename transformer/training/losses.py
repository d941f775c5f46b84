"""Label-smoothed cross-entropy, as sums that are added over all devices and divided once, at the end."""

import functools
import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.config import Config
from transformer.nn import ensemble, matmul, models
from transformer.tokens import Batch

Sums = dict[str, Float[Array, '']]
NAMES = ('loss', 'nll', 'correct', 'weight')
# The most logits per chunk, 192 MiB of float32, and the most tokens per chunk on a TPU.
CHUNK_LOGITS = 3 * 2**24
TPU_CHUNK = 4096


def cross_entropy_sums(
    logits: Float[Array, '*B V'], target: Int[Array, '*B'], weights: Float[Array, '*B'], eps_ls: float
) -> Sums:
    """Computes weighted sums over target tokens (§5.4).

    The label puts 1 - eps on the gold token and eps/(V - 1) on every other token. The label's entropy, the
    lowest value that any model can reach, is subtracted.

    Returns:
      - `loss`: the smoothed cross-entropy in nats.
      - `nll`: the same without smoothing.
      - `correct`: the weight of the tokens whose likeliest prediction is right.
      - `weight`: the weight of all tokens.
    """
    gold_logit, normalizer = _gold(logits, target)
    highest, total = jnp.max(logits, axis=-1), jnp.sum(logits, axis=-1)
    return _sums(logits.shape[-1], eps_ls, weights, gold_logit, normalizer, highest, total)


def _sums(
    size: int,
    eps_ls: float,
    weights: Float[Array, '*B'],
    gold_logit: Float[Array, '*B'],
    normalizer: Float[Array, '*B'],
    highest: Float[Array, '*B'],
    total: Float[Array, '*B'],
) -> Sums:
    """Computes `cross_entropy_sums` of tokens from their logits' normalizer (log Σ exp), maximum and sum."""
    gold = gold_logit - normalizer
    smoothed = -gold
    if eps_ls > 0:
        others = total - size * normalizer - gold
        rest = eps_ls / (size - 1)
        entropy = -sum(n * p * math.log(p) for n, p in ((1, 1 - eps_ls), (size - 1, rest)))
        smoothed = -(1 - eps_ls) * gold - rest * others - entropy
    correct = gold_logit >= highest
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
    """Computes `cross_entropy_sums` of the logits x tableᵀ, only some of which are in memory at a time.

    Only `loss` has a gradient.
    """
    flat = x.reshape(-1, x.shape[-1]), table, target.reshape(-1), weights.reshape(-1)
    return _by_chunks(eps_ls, *flat)


# Plain definition: nn/plain.py: sums.
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

    chunks = _chunks(_most_tokens(table), x, target, weights)
    return jax.lax.scan(add, dict.fromkeys(NAMES, jnp.zeros((), matmul.sum_type(x))), chunks)[0]


def _chunks_forward(eps_ls, x, table, target, weights):
    """Returns the sums, and the gradients of `loss`."""
    compute = functools.partial(sums_and_gradients, eps_ls)
    return jax.lax.platform_dependent(
        x, table, target, weights,
        tpu=functools.partial(compute, TPU_CHUNK, True),
        default=functools.partial(compute, _most_tokens(table), False),
    )  # fmt: skip


def sums_and_gradients(eps_ls, most, twice, x, table, target, weights):
    """Computes the sums and the gradients of `loss` while a chunk's logits are in memory.

    Args:
      most: the most tokens per chunk.
      twice: whether to compute the logits a second time when their maxima are known. A TPU's products compute
        maxima, exponentials and sums on their way to memory, where float32 logits are then never written.
        The exponentials are kept in the type of `x`.
    """
    size, dtype = table.shape[0], matmul.sum_type(x)

    def add(carry, chunk):
        sums, of_table = carry
        rows, target, weights = chunk
        logits = matmul.logits(rows, table)
        shift = jnp.max(logits, axis=-1)
        if twice:
            again, shift = jax.lax.optimization_barrier((rows, shift))
            logits = matmul.logits(again, table)
        # Another program of the same product can round differently, so its largest logit is not `shift`.
        highest = jnp.max(logits, axis=-1)
        is_gold = _is_gold(logits, target)
        gold_logit = jnp.sum(jnp.where(is_gold, logits, 0.0), axis=-1)
        powers = jnp.exp(logits - shift[:, None])
        total = jnp.sum(powers, axis=-1)
        of_chunk = gold_logit, shift + jnp.log(total), highest, jnp.sum(logits, axis=-1)
        sums = jax.tree.map(jnp.add, sums, _sums(size, eps_ls, weights, *of_chunk))
        if twice:
            powers = jax.lax.optimization_barrier(powers.astype(x.dtype)).astype(dtype)
        label = jnp.where(is_gold, 1 - eps_ls, eps_ls / (size - 1))
        slope = (weights[:, None] * (powers / total[:, None] - label)).astype(x.dtype)
        of_table += jax.lax.dot_general(slope, rows, (((0,), (0,)), ((), ())), preferred_element_type=dtype)
        return (sums, of_table), slope @ table

    empty = dict.fromkeys(NAMES, jnp.zeros((), dtype)), jnp.zeros(table.shape, dtype)
    (sums, of_table), of_x = jax.lax.scan(add, empty, _chunks(most, x, target, weights))
    return sums, (of_x.reshape(x.shape), of_table)


def _chunks_backward(eps_ls, gradients, cotangents):
    of_x, of_table = gradients
    scale = cotangents['loss']
    return (of_x * scale).astype(of_x.dtype), (of_table * scale).astype(of_x.dtype), None, None


_by_chunks.defvjp(_chunks_forward, _chunks_backward)


def _most_tokens(table: Float[Array, 'V D']) -> int:
    return max(CHUNK_LOGITS // table.shape[0], 1)


def _chunks(most: int, *arrays: Array) -> list[Array]:
    """Splits arrays [N ...] into the fewest chunks [C, N/C ...] with N/C at most `most`."""
    rows = arrays[0].shape[0]
    count = next(c for c in range(1, rows + 1) if rows % c == 0 and rows // c <= most)
    return [array.reshape(count, rows // count, *array.shape[1:]) for array in arrays]


def log_likelihoods(logits: Float[Array, '*B V'], target: Int[Array, '*B']) -> Float[Array, '*B']:
    """Computes log p of every target token. `nll` is their negative weighted sum."""
    gold_logit, normalizer = _gold(logits, target)
    return gold_logit - normalizer


def _gold(
    logits: Float[Array, '*B V'], target: Int[Array, '*B']
) -> tuple[Float[Array, '*B'], Float[Array, '*B']]:
    """Computes the logit of every target token, and the logarithm of its softmax's denominator."""
    gold_logit = jnp.sum(jnp.where(_is_gold(logits, target), logits, 0.0), axis=-1)
    return gold_logit, jax.nn.logsumexp(logits, axis=-1)


def _is_gold(logits: Float[Array, '*B V'], target: Int[Array, '*B']) -> Bool[Array, '*B V']:
    """Marks every target token's logit, so that a sum reads it in the same pass as other sums."""
    pieces = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
    return pieces == target[..., None]


def predicted_sums(
    config: Config, params: ensemble.Params, batch: Batch, key: Array | None, weights: Float[Array, 'M B T']
) -> Sums:
    """Computes the loss sums over predicted tokens, with dropout and label smoothing if there is a key."""
    batch, weights = all_rows((batch, weights))
    return model_sums(config, params, batch, key, batch[models.fields(config)[-1]].tokens, weights)


def model_sums(
    config: Config, params: ensemble.Params, batch: Batch, key: Array | None, target: Array, weights: Array
) -> Sums:
    """Computes a model's or ensemble's loss sums, with dropout and label smoothing if there is a key."""
    labels = target, weights, config.train.eps_ls if key is not None else 0.0
    if isinstance(params, tuple):
        return cross_entropy_sums(ensemble.logits(config, params, batch, key), *labels)
    return cross_entropy_sums_of_product(*ensemble.factors(config, params, batch, key), *labels)


def all_rows(tree):
    """Flattens microbatches [M, rows, ...] to [M·rows, ...], for a loss that treats all rows alike."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def class_sums(
    logits: Float[Array, '*B K'], target: Int[Array, '*B'], weights: Float[Array, '*B'], eps_ls: float
) -> Sums:
    """Computes `cross_entropy_sums` of classes, which have no perplexity because they are no tokens."""
    sums = cross_entropy_sums(logits, target, weights, eps_ls)
    return {'unsmoothed' if name == 'nll' else name: value for name, value in sums.items()}


def means(sums: Mapping[str, float]) -> dict[str, float]:
    """Computes every sum per unit of weight, with `nll` as `perplexity` and `correct` as `accuracy`.

    A sum with a weight of its own, such as `next` beside `next_weight`, is divided by that weight.
    """
    own = [name for name in sums if f'{name}_weight' in sums]
    per_weight = {
        name: value / sums[f'{name}_weight' if name in own else 'weight']
        for name, value in sums.items()
        if name not in ('weight', 'unsmoothed') and name.removesuffix('_weight') not in set(own) - {name}
    }
    if 'nll' in per_weight:
        per_weight['perplexity'] = perplexity(per_weight.pop('nll'))
    if 'correct' in per_weight:
        per_weight['accuracy'] = per_weight.pop('correct')
    return per_weight


def training_means(sums: Mapping[str, float]) -> dict[str, float]:
    """Computes `means` of sums whose `loss` can be smoothed.

    In the result, `loss` is without label smoothing, as on dev, and matches the perplexity. Training
    minimises `objective`.
    """
    per_weight = means(sums)
    unsmoothed = sums.get('nll', sums.get('unsmoothed', sums['loss'])) / sums['weight']
    return {'loss': unsmoothed, 'objective': per_weight.pop('loss'), **per_weight}


def perplexity(nats: float) -> float:
    """Computes e to the mean negative log likelihood, or infinity if that is too large for a double."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf
