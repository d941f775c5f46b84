"""The likelihood of given texts under a model: log p of every piece, all at once, as in the loss."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Array, Float, Int

from transformer.config import Config
from transformer.inference import batch_shapes
from transformer.nn import ensemble, models
from transformer.runs.restore import Trained
from transformer.tokens import Batch
from transformer.training import losses

# Logits of one device's batch: 256 MiB of float32. On CPUs, two batches are in progress at a time.
BATCH_LOGITS = 2**26


def log_likelihoods(
    trained: Trained, rows: Sequence[dict[str, list[int]]], on_done: Callable[[float], None]
) -> list[Float[np.ndarray, ' pieces']]:
    """log p of each piece of the model's last field, given the other fields and earlier pieces.

    Args:
      rows: the pieces of every field.
      on_done: called with the number of rows of each finished batch.
    """
    config = trained.config
    scored = fields(config)[-1]
    lengths = [max(map(len, row.values())) for row in rows]
    positions = min(batch_shapes.BATCH_POSITIONS, BATCH_LOGITS // config.model.vocab_size)

    def build(indexes: list[int], shape: tuple[int, int]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        padded = lambda field: batch_shapes.padded([rows[i][field] for i in indexes], shape)
        return {field: padded(field) for field in fields(config)}

    program, arguments = batch_shapes.program(_score, config), (trained.params, None)
    finish = lambda i, logp: logp[: len(rows[i][scored])]
    return batch_shapes.run(program, arguments, lengths, build, on_done, finish, positions)


def sums(
    config: Config, params: ensemble.Params, batch: Batch, key: Array | None, weights: Float[Array, 'M B T']
) -> losses.Sums:
    """The loss sums over the tokens that a model predicts; with a key, under dropout and label smoothing."""
    batch, weights = losses.all_rows((batch, weights))
    return cross_entropy_sums(config, params, batch, key, batch[fields(config)[-1]].tokens, weights)


def cross_entropy_sums(
    config: Config, params: ensemble.Params, batch: Batch, key: Array | None, target: Array, weights: Array
) -> losses.Sums:
    """A model's or ensemble's loss sums over rows; with a key, under dropout and label smoothing."""
    labels = target, weights, config.train.eps_ls if key is not None else 0.0
    if isinstance(params, tuple):
        return losses.cross_entropy_sums(ensemble.logits(config, params, batch, key), *labels)
    return losses.cross_entropy_sums_of_product(*ensemble.factors(config, params, batch, key), *labels)


def fields(config: Config) -> tuple[str, ...]:
    """The fields that a config's model reads; it predicts the last one."""
    return models.build(config).FIELDS


def _score(
    config: Config,
    params: ensemble.Params,
    key: None,
    rows: dict[str, tuple[Int[Array, 'R S'], Int[Array, 'R S']]],
) -> Float[Array, 'R S']:
    del key
    batch = {field: batch_shapes.text_of(*parts) for field, parts in rows.items()}
    logits = ensemble.logits(config, params, batch, None)
    return losses.log_likelihoods(logits, batch[fields(config)[-1]].tokens)
