"""Devices and processes: the only file that names pmap, collectives and jax.distributed.

A step is written for one device and mapped over all of them. The rows of a batch are divided among
processes, then devices, then microbatches, so that microbatch i has the same rows on any number of them.
"""

import collections
import concurrent.futures
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import Array, Int

from transformer.config import ConfigError
from transformer.tokens import Batch

AXIS = 'data'
# Batches that `map_rows` has in progress on CPUs. The steps of a small model keep one core busy, so another
# batch can use the next core; and one program is compiled while another runs. Elsewhere they would only take
# twice the memory.
AT_ONCE = 2
# By default XLA takes barriers away when it compiles for CPUs. Then it finds what is computed again, and
# keeps it from the first time.
BARRIERS_STAY = {'xla_disable_hlo_passes': 'cse_barrier_expander'}
# Outputs of the programs that were started last, oldest first; some programs may still be running.
_started: collections.deque = collections.deque()


def join_processes() -> None:
    """Joins the run's other processes, which SLURM, a TPU pod, Open MPI or variables named JAX_* describe."""
    try:
        jax.distributed.initialize()
    except (ValueError, RuntimeError) as error:
        raise ConfigError(f'--distributed: {str(error).splitlines()[0]}') from None


def devices() -> list[jax.Device]:
    """All devices of the run, those of process 0 first."""
    return sorted(jax.devices(), key=lambda device: (device.process_index, device.id))


def is_primary() -> bool:
    """Whether this process is the one that writes files."""
    return jax.process_index() == 0


def process() -> tuple[int, int]:
    """The index of this process, and the number of processes."""
    return jax.process_index(), jax.process_count()


def to_devices(batch: Batch, microbatches: int) -> Batch:
    """Places the rows [R ...] of this process as [devices, microbatches of a device, their rows, ...].

    `microbatches` counts those of the whole batch, all processes together.
    """
    each = microbatches // device_count()
    split = lambda x: x.reshape(local_devices(), each, -1, *x.shape[1:])
    return jax.device_put(jax.tree.map(split, batch), _sharding(AXIS))


def replicate(tree):
    """Copies the tree to every device of this process, in the form that mapped steps take and return.

    In another form, the second step, whose state comes from the first, would be compiled again.
    """
    return jax.device_put(tree, _sharding())


def _sharding(*axes: str) -> jax.sharding.NamedSharding:
    mesh = jax.sharding.Mesh(np.array(_local_devices()), (AXIS,))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))


def map_update(step: Callable, on: Sequence[jax.Device] | None = None, *, remat: bool = False) -> '_Bounded':
    """`step(state, batch) -> (state, sums)` over all devices; the new state takes the old one's memory.

    Args:
      remat: whether the step computes again what it does not keep. On the CPUs of several processes XLA
        keeps everything anyway.
    """
    on = devices() if on is None else on
    mapped = jax.pmap(step, axis_name=AXIS, in_axes=(None, 0), out_axes=None, donate_argnums=0, devices=on)
    # With several processes jax.pmap makes global arrays of its arguments; its compiled program does not.
    stay = remat and on[0].platform == 'cpu' and jax.process_count() == 1
    # The next update takes the memory of the new state, so only the sums can be waited for.
    return _Bounded(mapped, lambda found: found[1], BARRIERS_STAY if stay else None)


def map_sums(step: Callable) -> '_Bounded':
    """`step(params, batch) -> sums` over all devices."""
    mapped = jax.pmap(step, axis_name=AXIS, in_axes=(None, 0), out_axes=None, devices=devices())
    return _Bounded(mapped, lambda found: found)


class _Bounded:
    """A mapped program with collectives; only one or two such programs are in flight at a time.

    On CPUs each device's part of a program waits in a thread for the other parts. With fewer threads
    than parts in flight, two programs can wait for each other until the process is aborted after 40 s.
    So on CPUs with several devices a program starts only when the one before it has ended. Elsewhere
    programs run in order, and the host may be one program ahead.

    `awaited` picks the part of the outputs that can be waited for; `options` are the compiler's.
    """

    def __init__(self, mapped: Callable, awaited: Callable, options: Mapping[str, str] | None = None):
        self.mapped, self._awaited, self._options = mapped, awaited, options
        self._programs = {}

    def compile(self, *arguments) -> jax.stages.Compiled:
        """The program for arguments of these shapes."""
        return self.mapped.lower(*arguments).compile(compiler_options=self._options)

    def __call__(self, *arguments):
        alone = device_count() > 1 and devices()[0].platform == 'cpu'
        wait_for_programs(0 if alone else 1)
        found = self._program(arguments)(*arguments)
        _started.append(self._awaited(found))
        return found

    def _program(self, arguments: Sequence) -> Callable:
        if self._options is None:
            return self.mapped
        shapes = tuple((x.shape, x.dtype) for x in jax.tree.leaves(arguments))
        if shapes not in self._programs:
            self._programs[shapes] = self.compile(*arguments)
        return self._programs[shapes]


def wait_for_programs(ahead: int) -> None:
    """Returns when at most `ahead` of the programs with collectives are still running."""
    while len(_started) > ahead:
        jax.block_until_ready(_started.popleft())


def map_rows(function: Callable, precision: str) -> Callable:
    """`function(params, key, rows) -> rows` over this process's devices, for batches of rows [R ...].

    R must be a multiple of `local_devices()`. Returns `(params, key, batches) -> results`, in the order of
    the batches, each as soon as it is ready. It must be closed where not all of them are read.
    """
    mapped, count = rows_program(function, _local_devices()), local_devices()

    def call(params, key, rows):
        split = jax.tree.map(lambda x: x.reshape(count, x.shape[0] // count, *x.shape[1:]), rows)
        with jax.default_matmul_precision(precision):
            found = mapped(params, key, split)
        return jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:]), found)

    def calls(params, key, batches: Iterable) -> Iterator:
        # On CPUs, a program with collectives may need the threads that these would take.
        wait_for_programs(0)
        # JAX runs what one thread starts one after the other.
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE if platform() == 'cpu' else 1) as pool:
            yield from pool.map(functools.partial(call, params, key), batches)

    return calls


def rows_program(function: Callable, on: Sequence[jax.Device]) -> Callable:
    """`function(params, key, rows) -> rows` mapped over devices, whose axis is the first one of the rows."""
    return jax.pmap(function, in_axes=(None, None, 0), devices=on)


def platform() -> str:
    """The kind of the devices: cpu, gpu or tpu."""
    return devices()[0].platform


def device_count() -> int:
    """The number of devices of the run."""
    return len(devices())


def local_devices() -> int:
    """The number of devices of this process."""
    return len(_local_devices())


def _local_devices() -> list[jax.Device]:
    return [device for device in devices() if device.process_index == jax.process_index()]


def sum_over_devices(tree):
    """Inside a mapped step: the sum over all devices."""
    return jax.lax.psum(tree, AXIS)


def device_index() -> Int[Array, '']:
    """Inside a mapped step: the place of this device in `devices()`."""
    return jax.lax.axis_index(AXIS)


def greatest(number: int) -> int:
    """The greatest of the numbers that the processes give; every process must call this."""
    if jax.process_count() == 1:
        return number
    return int(np.max(multihost_utils.process_allgather(np.asarray(number))))


def wait_for_all() -> None:
    """Returns when every process has called this: then all can read what one of them wrote before."""
    greatest(0)
