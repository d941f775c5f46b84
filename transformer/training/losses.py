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

# Totals by name. Sums of rows that continue earlier rows also have `carried`, the state after the rows.
Sums = dict[str, Float[Array, ''] | tuple]
NAMES = ('loss', 'nll', 'correct', 'weight')
# The most logits per chunk, 192 MiB of float32, and the most tokens per chunk on a TPU.
CHUNK_LOGITS = 3 * 2**24
TPU_CHUNK = 4096
# How far from its shift the largest logit of a row may be: e^±60 times the pieces' number is in float32.
ROOM = 60.0


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

    chunks = _chunks(_most_tokens(table), (x, target, weights))
    return jax.lax.scan(add, dict.fromkeys(NAMES, jnp.zeros((), matmul.sum_type(x))), chunks)[0]


def _chunks_forward(eps_ls, x, table, target, weights):
    """Returns the sums, and the gradients of `loss`."""
    elsewhere = functools.partial(sums_and_gradients, eps_ls, _most_tokens(table), None)
    on_tpu = lambda x, table, *labels: sums_and_gradients(
        eps_ls, TPU_CHUNK, shifts(TPU_CHUNK, x, table), x, table, *labels
    )
    return jax.lax.platform_dependent(x, table, target, weights, tpu=on_tpu, default=elsewhere)


def shifts(most: int, x: Float[Array, 'N D'], table: Float[Array, 'V D']) -> Float[Array, 'N']:
    """Computes a number near the largest logit of every row, where possible without the logits.

    No logit exceeds |x| max |e| (Cauchy and Schwarz), and the largest is at least their mean. So if the two
    are at most 2 ROOM apart, the bound less ROOM is within ROOM of the largest logit. Otherwise the logits of
    `most` tokens at a time are computed to find the largest.
    """
    dtype = matmul.sum_type(x)
    norm = lambda rows: jnp.sqrt(jnp.sum(jnp.square(rows.astype(dtype)), axis=-1))
    bound = norm(x) * jnp.max(norm(table))
    near = jnp.max(bound - _sum_of_logits(x, table) / table.shape[0]) <= 2 * ROOM

    def largest():
        by_chunks = jax.lax.map(lambda rows: jnp.max(matmul.logits(rows, table), axis=-1), _chunks(most, x))
        return by_chunks.reshape(-1)

    return jax.lax.cond(near, lambda: bound - ROOM, largest)


def _sum_of_logits(x: Float[Array, 'N D'], table: Float[Array, 'V D']) -> Float[Array, 'N']:
    dtype = matmul.sum_type(x)
    return jnp.sum(x.astype(dtype) * jnp.sum(table, axis=0, dtype=dtype)[None], axis=-1)


def sums_and_gradients(eps_ls, most, shift, x, table, target, weights):
    """Computes the sums and the gradients of `loss` while a chunk's logits are in memory.

    Args:
      most: the most tokens per chunk.
      shift: a number near the largest logit of every row; None if it is searched among the logits. A TPU's
        products compute exponentials of a known shift, and their sums, on their way to memory, so float32
        logits are never written to it. These exponentials are kept in the type of `x`.
    """
    size, dtype = table.shape[0], matmul.sum_type(x)

    def add(carry, chunk):
        sums, of_table = carry
        # A TPU's product is slower if it slices its rows itself.
        rows, target, weights, sum_of_logits, known = jax.lax.optimization_barrier(chunk)
        logits = matmul.logits(rows, table)
        is_gold = _is_gold(logits, target)
        gold_logit = jnp.sum(jnp.where(is_gold, logits, 0.0), axis=-1)
        highest = jnp.max(logits, axis=-1)
        shift = highest if known is None else known
        powers = jnp.exp(logits - shift[:, None])
        total = jnp.sum(powers, axis=-1)
        of_chunk = gold_logit, shift + jnp.log(total), highest, sum_of_logits
        sums = jax.tree.map(jnp.add, sums, _sums(size, eps_ls, weights, *of_chunk))
        if known is not None:
            powers = jax.lax.optimization_barrier(powers.astype(x.dtype)).astype(dtype)
            # From a rounded probability near 1, its label would leave little but the rounding.
            powers = jnp.where(is_gold, jnp.exp(gold_logit - shift)[:, None], powers)
        label = jnp.where(is_gold, 1 - eps_ls, eps_ls / (size - 1))
        slope = (weights[:, None] * (powers / total[:, None] - label)).astype(x.dtype)
        of_table += jnp.einsum('NV,ND->VD', slope, rows, preferred_element_type=dtype)
        return (sums, of_table), slope @ table

    empty = dict.fromkeys(NAMES, jnp.zeros((), dtype)), jnp.zeros(table.shape, dtype)
    chunks = _chunks(most, (x, target, weights, _sum_of_logits(x, table), shift))
    (sums, of_table), of_x = jax.lax.scan(add, empty, chunks)
    return sums, (of_x.reshape(x.shape), of_table)


def _chunks_backward(eps_ls, gradients, cotangents):
    of_x, of_table = gradients
    scale = cotangents['loss']
    return (of_x * scale).astype(of_x.dtype), (of_table * scale).astype(of_x.dtype), None, None


_by_chunks.defvjp(_chunks_forward, _chunks_backward)


def _most_tokens(table: Float[Array, 'V D']) -> int:
    return max(CHUNK_LOGITS // table.shape[0], 1)


def _chunks(most: int, arrays):
    """Splits a tree of arrays [N ...] into the fewest chunks [C, N/C ...] with N/C at most `most`.

    These are N chunks of one token if N is a prime above `most`.
    """
    rows = jax.tree.leaves(arrays)[0].shape[0]
    count = next(c for c in range(1, rows + 1) if rows % c == 0 and rows // c <= most)
    return jax.tree.map(lambda array: array.reshape(count, rows // count, *array.shape[1:]), arrays)


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


def written_sums(config: Config, params: ensemble.Params, batch: Batch, key: Array | None) -> Sums:
    """Computes `predicted_sums` over every piece and end of the text that a model writes."""
    weights = (batch[models.fields(config)[-1]].segments > 0).astype(jnp.float32)
    return predicted_sums(config, params, batch, key, weights)


def smoothing(config: Config, key: Array | None) -> float:
    """Returns the label smoothing (§5.4), which is 0 without a key: outside training."""
    return config.train.eps_ls if key is not None else 0.0


def model_sums(
    config: Config, params: ensemble.Params, batch: Batch, key: Array | None, target: Array, weights: Array
) -> Sums:
    """Computes a model's or ensemble's loss sums, with dropout and label smoothing if there is a key."""
    labels = target, weights, smoothing(config, key)
    if isinstance(params, tuple):
        return cross_entropy_sums(ensemble.logits(config, params, batch, key), *labels)
    return cross_entropy_sums_of_product(*ensemble.factors(config, params, batch, key), *labels)


def carried_sums(
    config: Config, params: ensemble.Params, batch: Batch, key: Array | None, weights: Float[Array, 'M B T']
) -> Sums:
    """Computes `predicted_sums` of rows that continue the batch's `carried`, and the new `carried`."""
    microbatches = weights.shape[0]
    batch, weights = all_rows((batch, weights))
    labels = batch[models.fields(config)[-1]].tokens, weights, smoothing(config, key)
    if isinstance(params, tuple):
        pairs = zip(params, batch['carried'], strict=True)
        read = [ensemble.read_on(config, one, batch | {'carried': state}, key) for one, state in pairs]
        factors, carried = zip(*read, strict=True)
        logits = ensemble.log_mean([matmul.logits(*of_one) for of_one in factors])
        sums = cross_entropy_sums(logits, *labels)
    else:
        factors, carried = ensemble.read_on(config, params, batch, key)
        sums = cross_entropy_sums_of_product(*factors, *labels)
    split = lambda x: x.reshape(microbatches, -1, *x.shape[1:])
    return sums | {'carried': jax.tree.map(split, carried)}


def all_rows(tree):
    """Flattens microbatches [M, rows, ...] to [M·rows, ...], for a loss that treats all rows alike."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def class_sums(
    config: Config, key: Array | None, logits: Float[Array, '*B K'], target: Int[Array, '*B'], weights: Array
) -> Sums:
    """Computes `cross_entropy_sums` of classes, which have no perplexity because they are no tokens."""
    sums = cross_entropy_sums(logits, target, weights, smoothing(config, key))
    return {'unsmoothed' if name == 'nll' else name: value for name, value in sums.items()}


def pair_sums(
    a: Float[Array, 'M N D'],
    b: Float[Array, 'M N D'],
    weights: Float[Array, 'M N'],
    others: tuple[Array, Array, Array],
    first: int | Int[Array, ''],
) -> Sums:
    """Computes the cross-entropy of each pair among others (Radford et al. 2021, figure 3).

        loss_i = -1/2 (log softmax_j(a_i · b_j)_i + log softmax_j(b_i · a_j)_i)

    Pairs without weight are no negatives. All others are, even if two pairs have the same a.

    Args:
      others: a, b and weights [M P ...] of the pairs j.
      first: the number of the first pair i among them.

    Returns:
      - `loss`: the loss in nats.
      - `correct`: the mean weight of both directions' likeliest partners that are right, equally likely ones
        included.
      - `guess`: the loss if all partners were equally likely, ln of their number.
      - `weight`: the weight of all pairs.
    """
    all_a, all_b, all_weights = others
    own = jnp.broadcast_to(first + jnp.arange(weights.shape[1]), weights.shape)
    directions = []
    for queries, candidates in ((a, all_b), (b, all_a)):
        logits = jnp.einsum('MID,MJD->MIJ', queries, candidates, precision=jax.lax.Precision.HIGHEST)
        logits = jnp.where(all_weights[:, None] > 0, logits, -1e9)
        directions.append(cross_entropy_sums(logits, own, weights, 0.0))
    pairs = jnp.sum(all_weights > 0, axis=1)
    return {
        **{name: sum(one[name] for one in directions) / 2 for name in ('loss', 'correct')},
        'guess': jnp.sum(jnp.sum(weights, axis=1) * jnp.log(jnp.maximum(pairs, 1))),
        'weight': jnp.sum(weights),
    }


def means(sums: Mapping[str, float]) -> dict[str, float]:
    """Computes every sum per unit of weight, with `nll` as `perplexity` and `correct` as `accuracy`.

    A sum with a weight of its own, such as `next` beside `next_weight`, is divided by that weight. A mean
    over a weight of zero is not a number.
    """
    own_weights = {f'{name}_weight' for name in sums}
    per_weight = {
        name: _mean(value, sums.get(f'{name}_weight', sums['weight']))
        for name, value in sums.items()
        if name not in {'weight', 'unsmoothed', *own_weights}
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
    unsmoothed = _mean(sums.get('nll', sums.get('unsmoothed', sums['loss'])), sums['weight'])
    return {'loss': unsmoothed, 'objective': per_weight.pop('loss'), **per_weight}


def _mean(total: float, weight: float) -> float:
    return total / weight if weight else math.nan


def perplexity(nats: float) -> float:
    """Computes e to the mean negative log likelihood, or infinity if that is too large for a double."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf
