"""How likely a model finds given texts: log p of every piece, all at once, as the loss computes it."""

import functools
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from transformer import parallel
from transformer.config import Config
from transformer.inference import batch_shapes
from transformer.nn import ensemble, models
from transformer.runs.restore import Trained
from transformer.tokens import Batch, Tokens
from transformer.training import losses

# Logits of one device's batch: 256 MiB of float32. On CPUs two batches are in progress.
BATCH_LOGITS = 2**26


def log_likelihoods(
    trained: Trained, rows: Sequence[dict[str, list[int]]], on_done: Callable[[float], None]
) -> list[Float[np.ndarray, ' pieces']]:
    """log p of each piece of the last field that the model reads, given the other fields.

    Args:
      rows: the pieces of every field.
      on_done: gets the number of rows of every batch that is done.
    """
    config = trained.config
    scored = fields(config)[-1]
    lengths = [max(map(len, row.values())) for row in rows]
    positions = min(batch_shapes.BATCH_POSITIONS, BATCH_LOGITS // config.model.vocab_size)

    def build(indexes: list[int], shape: tuple[int, int]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        return {
            field: batch_shapes.padded([rows[i][field] for i in indexes], shape) for field in fields(config)
        }

    def finish(i: int, logp: Float[np.ndarray, ' S']) -> Float[np.ndarray, ' pieces']:
        return logp[: len(rows[i][scored])]

    arguments = trained.params, None
    return batch_shapes.run(_program(config), arguments, lengths, build, finish, on_done, positions)


def sums(
    config: Config, params: ensemble.Params, batch: Batch, key: Array | None, weights: Float[Array, 'M B T']
) -> losses.Sums:
    """The sums over the tokens that a model predicts; with a key there are dropout and label smoothing.

    Args:
      batch: of microbatches, [M, rows, ...].
    """
    batch, weights = losses.all_rows((batch, weights))
    target, eps_ls = batch[fields(config)[-1]].tokens, config.train.eps_ls if key is not None else 0.0
    if isinstance(params, tuple):
        logits = ensemble.logits(config, params, batch, key)
        return losses.cross_entropy_sums(logits, target, weights, eps_ls)
    factors = ensemble.factors(config, params, batch, key)
    return losses.cross_entropy_sums_of_product(*factors, target, weights, eps_ls)


def fields(config: Config) -> tuple[str, ...]:
    """The fields that a config's model reads, the one that it predicts last."""
    return models.build(config).FIELDS


@functools.lru_cache(maxsize=4)
def _program(config: Config) -> Callable:
    """`(params, None, batches of rows) -> log p [R T] of each`, compiled once for each shape."""
    return parallel.map_rows(functools.partial(_score, config), config.train.matmul_precision)


def _score(
    config: Config,
    params: ensemble.Params,
    key: None,
    rows: dict[str, tuple[Int[Array, 'R S'], Int[Array, 'R S']]],
) -> Float[Array, 'R S']:
    del key
    batch = {
        field: Tokens(tokens, segments, jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape))
        for field, (tokens, segments) in rows.items()
    }
    logits = ensemble.logits(config, params, batch, None)
    return losses.log_likelihoods(logits, batch[fields(config)[-1]].tokens)
