"""The likelihood of given texts under a model: log p of every piece.

Without a prompt all pieces are computed at once, as in the loss. Texts after a common prompt are read piece
by piece, as in a search, from the state after the prompt, which is computed once.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from transformer import parallel
from transformer.config import Config
from transformer.data.rows import padded
from transformer.inference import batch_shapes
from transformer.nn import cache, ensemble, models
from transformer.runs.restore import Trained
from transformer.tokens import START, Tokens
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
    config: Config, params: ensemble.Params, key: None, rows: dict[str, Tokens]
) -> Float[Array, 'R S']:
    del key
    logits = ensemble.logits(config, params, rows, None)
    return losses.log_likelihoods(logits, rows[models.fields(config)[-1]].tokens)


class Prompt(NamedTuple):
    """A prompt that a model that continues texts has read: a row of pieces, and the state after them."""

    text: Tokens
    state: object


def read_prompt(trained: Trained, pieces: list[int]) -> Prompt:
    """Computes the state after a prompt of at least one piece."""
    devices = parallel.local_device_count()
    text = padded([pieces] * devices, (devices, batch_shapes.padded_width(len(pieces))))
    program = batch_shapes.program(_read, trained.config)
    with contextlib.closing(program(trained.params, None, [text])) as outputs:
        [states] = outputs
    return Prompt(*jax.tree.map(lambda x: x[:1], (text, states)))


def log_likelihoods_after(
    trained: Trained, prompt: Prompt, rows: Sequence[list[int]], on_done: Callable[[float], None]
) -> list[Float[np.ndarray, ' pieces']]:
    """Computes log p of each piece of rows that each follow the prompt."""
    build = lambda indexes, shape: padded([rows[i] for i in indexes], shape)
    program, arguments = batch_shapes.program(_score_after, trained.config), ((trained.params, prompt), None)
    finish = lambda i, logp: logp[: len(rows[i])]
    return batch_shapes.run(program, arguments, [*map(len, rows)], build, on_done, finish)


def _read(config: Config, params: ensemble.Params, key: None, text: Tokens) -> object:
    del key
    return ensemble.start(config, params, ensemble.encode(config, params, text), 0)[1]


def _score_after(
    config: Config, inputs: tuple[ensemble.Params, Prompt], key: None, rows: Tokens
) -> Float[Array, 'R S']:
    del key
    (params, prompt), (count, width) = inputs, rows.tokens.shape
    # Of this state only the shape is used, so the compiled program does not read the prompt again.
    constants, room = ensemble.start(config, params, ensemble.encode(config, params, prompt.text), width)
    chosen = jnp.zeros(count, jnp.int32)
    constants = jax.tree.map(lambda x: x[chosen], constants)
    state = cache.of_sentences(cache.enlarge(prompt.state, room, 1), chosen, 1)

    def read(carry, token):
        last, state = carry
        logits, state = ensemble.step(config, params, constants, state, last)
        return (token, state), losses.log_likelihoods(logits, token)

    first = jnp.full(count, START, jnp.int32)
    return jax.lax.scan(read, (first, state), rows.tokens.T)[1].T
