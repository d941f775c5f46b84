"""Runs programs over rows of pieces, in batches of similar lengths and few shapes."""

import contextlib
import functools
import math
from collections.abc import Callable, Sequence

import jax

from transformer import parallel
from transformer.config import Config
from transformer.data.rows import padded
from transformer.runs.restore import Trained

# Positions of one device's batch. At beam 4, a base model's caches then take about 1 GB. On CPUs, two batches
# are in progress at a time.
BATCH_POSITIONS = 4096
# A TPU's step of 128 sentences takes a tenth less for each than a step of 64.
MOST_ROWS, MOST_ROWS_ON_TPUS = 64, 128
# Up to this number, rows are a conversation rather than a file, and get few shapes, which are soon compiled.
FEW_ROWS = 32
# For few rows: the rows of a small batch, the most rows that are split into small batches, the least width,
# and the factor between widths.
SMALL, MOST_SMALL, NARROW, WIDER = 4, 16, 32, 4


def batches(
    lengths: list[int], devices: int, positions: int = BATCH_POSITIONS
) -> list[tuple[list[int], tuple[int, int]]]:
    """Groups rows of similar lengths.

    Many rows are batched longest first, with little padding. Few rows get few shapes, so that a single
    line rarely waits for compilation.

    Returns:
      Each batch's row indexes and shape.
    """
    longest_first = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    if len(lengths) <= FEW_ROWS:
        return _of_few_shapes(lengths, longest_first, devices, positions)
    most_rows = MOST_ROWS_ON_TPUS if parallel.platform() == 'tpu' else MOST_ROWS
    plan, start = [], 0
    while start < len(longest_first):
        width = padded_width(lengths[longest_first[start]])
        most = 2 ** int(math.log2(max(1, min(most_rows, positions // width))))
        batch = longest_first[start : start + devices * most]
        # Only the last batch can have fewer rows than others of its width.
        rows = 2 ** math.ceil(math.log2(math.ceil(len(batch) / devices)))
        plan.append((batch, (devices * rows, width)))
        start += len(batch)
    return plan


def _of_few_shapes(
    lengths: list[int], order: list[int], devices: int, positions: int
) -> list[tuple[list[int], tuple[int, int]]]:
    groups: dict[int, list[int]] = {}
    for i in order:
        groups.setdefault(_wide(lengths[i]), []).append(i)
    plan = []
    for width, indexes in groups.items():
        # Many small batches would wait for each other.
        most = SMALL if len(indexes) <= MOST_SMALL else FEW_ROWS
        rows = devices * max(1, min(most, positions // width) // devices)
        plan += [(indexes[start : start + rows], (rows, width)) for start in range(0, len(indexes), rows)]
    return plan


@functools.lru_cache(maxsize=16)
def program(function: Callable, config: Config, *more: object) -> Callable:
    """Compiles `function(config, *more, params, key, rows)` into `(params, key, batches) -> outputs`."""
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
    """Runs a program over rows in batches of few shapes.

    Args:
      program: as `program` returns it. It gets `arguments` and the batches.
      lengths: the rows' lengths.
      build: makes a batch from the indexes of its rows and its shape.
      on_done: called with the number of rows of each finished batch.
      finish: makes a row's result from its index and outputs.

    Returns:
      The result of each row.
    """
    results: list = [None] * len(lengths)
    plan = batches(lengths, parallel.local_device_count(), positions)
    with contextlib.closing(program(*arguments, [build(*batch) for batch in plan])) as outputs:
        for (indexes, _), batch in zip(plan, outputs, strict=True):
            for row, i in enumerate(indexes):
                results[i] = finish(i, jax.tree.map(lambda x, row=row: x[row], batch))
            on_done(len(indexes))
    return results


def run_pieces(
    function: Callable, trained: Trained, rows: Sequence[list[int]], on_done: Callable[[int], None]
) -> list:
    """Runs `function(config, params, None, pieces)` over rows of pieces, and returns each row's output."""
    build = lambda indexes, shape: padded([rows[i] for i in indexes], shape)
    arguments = trained.params, None
    return run(program(function, trained.config), arguments, [*map(len, rows)], build, on_done)


def padded_width(length: int) -> int:
    """Returns the least of 8, 12, 16, 24, 32, 48, 64, ... that a row fits into."""
    power = max(8, 2 ** math.ceil(math.log2(max(length, 1))))
    return power * 3 // 4 if power > 8 and length <= power * 3 // 4 else power


def _wide(length: int) -> int:
    """Returns the least of 32, 128, 512, ... that a row fits into."""
    width = NARROW
    while width < length:
        width *= WIDER
    return width
