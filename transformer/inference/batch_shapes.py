"""Runs programs over rows of pieces, in batches of about one length and of few shapes."""

import contextlib
import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from transformer import parallel
from transformer.config import Config
from transformer.tokens import Tokens

# Positions of one device's batch; at beam 4 the caches of a base model then take about 1 GB. On CPUs two
# batches are in progress.
BATCH_POSITIONS = 4096
MOST_ROWS = 64
# So many rows are a conversation rather than a file: they get few shapes, whose programs are soon there.
FEW_ROWS = 32
# Where there are few: rows of a small batch, the most rows that are still split into small batches, and the
# least width and its factor.
SMALL, MOST_SMALL, NARROW, WIDER = 4, 16, 32, 4


def batches(
    lengths: list[int], devices: int, positions: int = BATCH_POSITIONS
) -> list[tuple[list[int], tuple[int, int]]]:
    """Groups rows of about one length: the indexes of each batch's rows, and the shape that they get.

    Many rows are batched longest first, with little padding. Few rows get few shapes, so that a line that
    comes alone hardly ever waits for a program to be compiled.
    """
    longest_first = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    if len(lengths) <= FEW_ROWS:
        return _of_few_shapes(lengths, longest_first, devices, positions)
    planned, start = [], 0
    while start < len(longest_first):
        width = _width(lengths[longest_first[start]])
        most = 2 ** int(math.log2(max(1, min(MOST_ROWS, positions // width))))
        batch = longest_first[start : start + devices * most]
        # Only the last batch may have fewer rows than others of its width.
        rows = 2 ** math.ceil(math.log2(math.ceil(len(batch) / devices)))
        planned.append((batch, (devices * rows, width)))
        start += len(batch)
    return planned


def _of_few_shapes(
    lengths: list[int], order: list[int], devices: int, positions: int
) -> list[tuple[list[int], tuple[int, int]]]:
    groups: dict[int, list[int]] = {}
    for i in order:
        groups.setdefault(_wide(lengths[i]), []).append(i)
    planned = []
    for width, indexes in groups.items():
        # Many small batches would wait for each other.
        most = SMALL if len(indexes) <= MOST_SMALL else FEW_ROWS
        each = devices * max(1, min(most, positions // width) // devices)
        planned += [(indexes[start : start + each], (each, width)) for start in range(0, len(indexes), each)]
    return planned


@functools.lru_cache(maxsize=16)
def program(function: Callable, config: Config, *more: object) -> Callable:
    """`(params, key, batches) -> outputs` of `function(config, *more, params, key, rows)`, compiled."""
    return parallel.map_rows(functools.partial(function, config, *more), config.train.matmul_precision)


def run(
    program: Callable,
    arguments: tuple,
    lengths: list[int],
    build: Callable[[list[int], tuple[int, int]], object],
    on_done: Callable[[int], None],
    finish: Callable[[int, object], object] = lambda row, outputs: outputs,
    positions: int = BATCH_POSITIONS,
) -> list:
    """Runs a program over rows in batches of few shapes; returns the result of each row.

    Args:
      program: as `program` returns it; it gets `arguments` and the batches.
      lengths: of the rows.
      build: makes the batch of some rows, given their indexes and the batch's shape.
      on_done: gets the number of rows of every batch that is done.
      finish: makes the result of a row of its index and its outputs.
    """
    results: list = [None] * len(lengths)
    planned = batches(lengths, parallel.local_devices(), positions)
    with contextlib.closing(program(*arguments, [build(*one) for one in planned])) as outputs:
        for (indexes, _), found in zip(planned, outputs, strict=True):
            for row, i in enumerate(indexes):
                results[i] = finish(i, jax.tree.map(lambda x, row=row: x[row], found))
            on_done(len(indexes))
    return results


def padded(
    rows: list[list[int]], shape: tuple[int, int]
) -> tuple[Int[np.ndarray, 'B S'], Int[np.ndarray, 'B S']]:
    """Tokens and segments of rows in a batch of some shape, filled up with empty rows."""
    tokens, segments = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    for place, pieces in enumerate(rows):
        tokens[place, : len(pieces)] = pieces
        segments[place, : len(pieces)] = 1
    return tokens, segments


def text_of(tokens: Int[Array, 'R S'], segments: Int[Array, 'R S']) -> Tokens:
    """Rows of one text each, with their positions; traced."""
    return Tokens(tokens, segments, jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape))


def _width(length: int) -> int:
    """The least of 8, 12, 16, 24, 32, 48, 64, ... that a row fits into."""
    power = max(8, 2 ** math.ceil(math.log2(max(length, 1))))
    return power * 3 // 4 if power > 8 and length <= power * 3 // 4 else power


def _wide(length: int) -> int:
    """The least of 32, 128, 512, ... that a row fits into."""
    width = NARROW
    while width < length:
        width *= WIDER
    return width
