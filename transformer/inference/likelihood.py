"""The likelihood of given texts under a model: log p of every piece, all at once, as in the loss."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Array, Float

from transformer.config import Config
from transformer.data.rows import padded
from transformer.inference import batch_shapes
from transformer.nn import ensemble, models
from transformer.runs.restore import Trained
from transformer.tokens import Tokens
from transformer.training import losses

# Logits of one device's batch: 256 MiB of float32. On CPUs, two batches are in progress at a time.
BATCH_LOGITS = 2**26


def log_likelihoods(
    trained: Trained, rows: Sequence[dict[str, list[int]]], on_done: Callable[[float], None]
) -> list[Float[np.ndarray, ' pieces']]:
    """Computes log p of each piece of the model's last field, given the other fields and earlier pieces.

    Args:
      rows: the pieces of every field.
      on_done: called with the number of rows of each finished batch.
    """
    config = trained.config
    scored = models.fields(config)[-1]
    lengths = [max(map(len, row.values())) for row in rows]
    positions = min(batch_shapes.BATCH_POSITIONS, BATCH_LOGITS // config.model.vocab_size)

    def build(indexes: list[int], shape: tuple[int, int]) -> dict[str, Tokens]:
        return {field: padded([rows[i][field] for i in indexes], shape) for field in models.fields(config)}

    program, arguments = batch_shapes.program(_score, config), (trained.params, None)
    finish = lambda i, logp: logp[: len(rows[i][scored])]
    return batch_shapes.run(program, arguments, lengths, build, on_done, finish, positions)


def _score(
    config: Config,
    params: ensemble.Params,
    key: None,
    rows: dict[str, Tokens],
) -> Float[Array, 'R S']:
    del key
    logits = ensemble.logits(config, params, rows, None)
    return losses.log_likelihoods(logits, rows[models.fields(config)[-1]].tokens)
