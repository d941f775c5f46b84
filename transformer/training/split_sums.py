"""Computes a task's sums over all batches of a split, and their means."""

import functools

import jax

from transformer import parallel
from transformer.config import ConfigError
from transformer.data.batches import Batches
from transformer.data.prefetch import prefetch
from transformer.nn.ensemble import Params
from transformer.progress import Progress, counting, no_progress
from transformer.tokens import Batch
from transformer.training import losses
from transformer.training.step import ComputeSums, continuing

# What an evaluation step reads beside the batch: parameters, and the states that the batch's rows continue.
Evaluated = tuple[Params, tuple | None]


def evaluation_step(sums: ComputeSums, state: Evaluated, batch: Batch) -> tuple[losses.Sums, tuple | None]:
    """Computes the sums of microbatches [M, rows, ...] without dropout, as a step mapped over devices.

    Returns:
      The sums over all devices, and the states after the rows if the rows continue states.
    """
    params, carried = state
    totals = sums(params, continuing(batch, carried), None)
    carried = parallel.gather_parts(totals.pop('carried', None))
    return parallel.sum_over_devices(totals), carried


@functools.lru_cache(maxsize=4)
def _mapped_step(sums: ComputeSums):
    return parallel.map_sums(functools.partial(evaluation_step, sums))


def total(
    sums: ComputeSums,
    params: Params,
    batches: Batches,
    progress: Progress = no_progress,
    carried: tuple | None = None,
) -> dict[str, float]:
    """Computes a task's sums over all batches of a split.

    Args:
      carried: the states before the first batch, if each batch continues the one before (`data.carry`).
    """
    add = counting(progress, 'loss', batches.steps_per_epoch)
    put = functools.partial(parallel.to_devices, microbatches=batches.microbatches)
    step, of_batches = _mapped_step(sums), []
    for batch in prefetch(batches, 0, batches.steps_per_epoch, put, process=parallel.process()):
        new, carried = step((params, carried), batch)
        of_batches.append(new)
        add(1)
    # Not on the devices: float32 cannot count beyond 2^24.
    of_batches = jax.device_get(of_batches)
    return {name: sum(float(one[name]) for one in of_batches) for name in of_batches[0]}


def means(
    sums: ComputeSums,
    params: Params,
    batches: Batches,
    progress: Progress = no_progress,
    carried: tuple | None = None,
) -> dict[str, float]:
    """Computes every sum per unit of weight, as in `losses.means`.

    Raises:
      ConfigError: no example of the split has anything to predict.
    """
    totals = total(sums, params, batches, progress, carried)
    if not totals['weight']:
        raise ConfigError('data: no example of the split that is evaluated has anything to predict')
    return losses.means(totals)
