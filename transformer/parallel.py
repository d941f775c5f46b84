"""Devices and processes: the only file that names pmap, collectives and jax.distributed.

A step is written for one device and mapped over all of them. The rows of a batch are divided among
processes, then devices, then microbatches, so microbatch i has the same rows on any number of devices.
"""

import collections
import concurrent.futures
import contextlib
import functools
import os
import signal
import socket
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import Array, Int

from transformer.config import ConfigError
from transformer.tokens import Batch

AXIS = 'data'
# Batches that `map_rows` runs at once on CPUs. A small model keeps only one core busy, so a second batch can
# use the next core, and one program can compile while another runs. On accelerators a second batch would only
# double the memory.
AT_ONCE = 2
# By default XLA removes barriers when it compiles for CPUs. It then notices that rematerialisation computes
# values twice, and stores the first values instead.
BARRIERS_STAY = {'xla_disable_hlo_passes': 'cse_barrier_expander'}
# Outputs of the last programs, oldest first. Some of the programs can still be running.
_started: collections.deque = collections.deque()


def join_processes() -> None:
    """Joins the run's other processes, which SLURM, a TPU pod, Open MPI or variables describe.

    The variables are JAX_COORDINATOR_ADDRESS, which JAX reads, JAX_NUM_PROCESSES and JAX_PROCESS_ID.

    Raises:
      ConfigError: JAX cannot join them.
    """
    variables = {'num_processes': 'JAX_NUM_PROCESSES', 'process_id': 'JAX_PROCESS_ID'}
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        numbers = {key: int(os.environ[name]) for key, name in variables.items() if name in os.environ}
        jax.distributed.initialize(**numbers)
    except (ValueError, RuntimeError) as error:
        raise ConfigError(f'--distributed: {str(error).splitlines()[0]}') from None
    # JAX's own handler only takes note of SIGTERM, so a process that still prepares data would continue.
    signal.signal(signal.SIGTERM, on_sigterm)
    counts = collections.Counter(device.process_index for device in devices())
    if len(set(counts.values())) > 1:
        raise ConfigError(
            f'--distributed: the processes have {sorted(counts.values())} devices, not equally many'
        )
    # CPUs connect at their first collective, for which each waits half a minute: now, not after one of them
    # has prepared data.
    greatest(0)


def devices() -> list[jax.Device]:
    """Returns all devices of the run, sorted by process and number.

    Raises:
      ConfigError: JAX cannot start them.
    """
    try:
        found = jax.devices()
    except (AssertionError, RuntimeError) as error:  # an AssertionError of JAX says nothing
        chosen = f'JAX_PLATFORMS={jax.config.jax_platforms}: ' if jax.config.jax_platforms else ''
        remedy = 'JAX_PLATFORMS=cpu uses the processors'
        raise ConfigError(f'{chosen}JAX cannot start its devices; {remedy}. {error}'.strip()) from None
    return sorted(found, key=lambda device: (device.process_index, device.id))


def is_primary() -> bool:
    """Returns whether this process is the one that writes files."""
    return jax.process_index() == 0


def process() -> tuple[int, int]:
    """Returns the index of this process, and the number of processes."""
    return jax.process_index(), jax.process_count()


def processes_here() -> int:
    """Counts the run's processes on this host. Every process must call this."""
    host = np.uint32(zlib.crc32(socket.gethostname().encode()))
    return int(np.sum(multihost_utils.process_allgather(host) == host))


def to_devices(batch: Batch, microbatches: int) -> Batch:
    """Places this process's rows [R ...] on its devices, as [devices, microbatches, rows, ...].

    Args:
      microbatches: their number in the whole batch, over all processes.
    """
    per_device = microbatches // device_count()
    split = lambda x: x.reshape(local_device_count(), per_device, -1, *x.shape[1:])
    return jax.device_put(jax.tree.map(split, batch), _sharding(AXIS))


def replicate(tree):
    """Copies the tree to every device of this process, with the sharding that mapped steps return.

    With another sharding, the second step, which gets the first step's state, would compile again.
    """
    return jax.device_put(tree, _sharding())


def _sharding(*axes: str) -> jax.sharding.NamedSharding:
    mesh = jax.sharding.Mesh(np.array(local_devices()), (AXIS,))
    return jax.sharding.NamedSharding(mesh, jax.P(*axes))


def map_update(step: Callable, on: Sequence[jax.Device] | None = None, *, remat: bool = False) -> '_Bounded':
    """Maps `step(state, batch) -> (state, sums)` over all devices. A new state reuses the old state's memory.

    Args:
      remat: whether the step rematerialises layers. On the CPUs of several processes, XLA still stores their
        values.
    """
    on = devices() if on is None else on
    mapped = jax.pmap(step, axis_name=AXIS, in_axes=(None, 0), out_axes=None, donate_argnums=0, devices=on)
    # With several processes jax.pmap makes global arrays of its arguments, but its compiled program does not.
    keep_barriers = remat and on[0].platform == 'cpu' and jax.process_count() == 1
    # The next update reuses the memory of the new state, so only the sums can be waited for.
    return _Bounded(mapped, lambda outputs: outputs[1], BARRIERS_STAY if keep_barriers else None)


def map_sums(step: Callable) -> '_Bounded':
    """Maps `step(state, batch) -> outputs` over all devices. The state stays as it is."""
    mapped = jax.pmap(step, axis_name=AXIS, in_axes=(None, 0), out_axes=None, devices=devices())
    return _Bounded(mapped, lambda outputs: outputs)


class _Bounded:
    """A mapped program with collectives, of which only one or two are in flight at a time.

    On CPUs each device's part of a program waits in a thread for the other parts. With fewer threads
    than parts in flight, two programs can deadlock, and after 40 s the process is aborted. So on CPUs
    with several devices a program starts only when the previous one has ended. Elsewhere programs run in
    order, and the host can be one program ahead.

    Args:
      awaited: picks the part of the outputs to wait for.
      options: options of the compiler.
    """

    def __init__(self, mapped: Callable, awaited: Callable, options: Mapping[str, str] | None = None):
        self.mapped, self._awaited, self._options = mapped, awaited, options
        self._programs = {}

    def compile(self, *arguments) -> jax.stages.Compiled:
        """Compiles the program for arguments of these shapes."""
        return self.mapped.lower(*arguments).compile(compiler_options=self._options)

    def __call__(self, *arguments):
        one_at_a_time = device_count() > 1 and devices()[0].platform == 'cpu'
        wait_for_programs(0 if one_at_a_time else 1)
        outputs = self._program(arguments)(*arguments)
        _started.append(self._awaited(outputs))
        return outputs

    def _program(self, arguments: Sequence) -> Callable:
        if self._options is None:
            return self.mapped
        shapes = tuple((x.shape, x.dtype) for x in jax.tree.leaves(arguments))
        if shapes not in self._programs:
            self._programs[shapes] = self.compile(*arguments)
        return self._programs[shapes]


def wait_for_programs(ahead: int) -> None:
    """Waits until at most `ahead` of the programs with collectives are still running."""
    while len(_started) > ahead:
        jax.block_until_ready(_started.popleft())


def map_rows(function: Callable, precision: str) -> Callable:
    """Maps `function(params, key, rows) -> rows` over this process's devices.

    Returns:
      `(params, key, batches) -> results`, an iterator in the order of the batches, which must be closed
      unless it is read to its end. A batch has rows [R ...], and R is a multiple of `local_device_count()`.
    """
    mapped, count = rows_program(function, local_devices()), local_device_count()

    def call(params, key, rows):
        split = jax.tree.map(lambda x: x.reshape(count, x.shape[0] // count, *x.shape[1:]), rows)
        with jax.default_matmul_precision(precision):
            outputs = mapped(params, key, split)
        return jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:]), outputs)

    def calls(params, key, batches: Iterable) -> Iterator:
        # On CPUs, these programs could take the threads that a program with collectives needs.
        wait_for_programs(0)
        # JAX runs one thread's programs one after the other.
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE if platform() == 'cpu' else 1) as pool:
            yield from pool.map(functools.partial(call, params, key), batches)

    return calls


def rows_program(function: Callable, on: Sequence[jax.Device]) -> Callable:
    """Maps `function(params, key, rows) -> rows` over devices, along the first axis of the rows."""
    return jax.pmap(function, in_axes=(None, None, 0), devices=on)


def platform() -> str:
    """Returns the kind of the devices: cpu, gpu or tpu."""
    return devices()[0].platform


def device_count() -> int:
    """Returns the number of devices of the run."""
    return len(devices())


def local_device_count() -> int:
    """Returns the number of devices of this process."""
    return len(local_devices())


def local_devices() -> list[jax.Device]:
    """Returns the devices of this process, sorted by number."""
    return [device for device in devices() if device.process_index == jax.process_index()]


def sum_over_devices(tree):
    """Computes the sum over all devices, inside a mapped step."""
    return jax.lax.psum(tree, AXIS)


def own_part(tree, count: int):
    """Takes this device's `count` entries of each array's first axis, inside a mapped step."""
    return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, device_index() * count, count), tree)


def gather_parts(tree):
    """Joins all devices' parts of each array along the first axis, inside a mapped step."""
    return jax.tree.map(lambda x: jax.lax.all_gather(x, AXIS, tiled=True), tree)


def device_index() -> Int[Array, '']:
    """Returns the index of this device in `devices()`, inside a mapped step."""
    return jax.lax.axis_index(AXIS)


def greatest(number: int) -> int:
    """Returns the greatest number that any process passes. Every process must call this."""
    if jax.process_count() == 1:
        return number
    if platform() == 'cpu':  # as in `_Bounded`
        wait_for_programs(0)
    return int(np.max(multihost_utils.process_allgather(np.asarray(number))))


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Waits at the end of a block for all processes, so that all can read files that one of them wrote in it.

    Every process must enter it. If it fails in one process, it fails in all.
    """
    try:
        yield
    except Exception:
        greatest(1)
        raise
    if greatest(0):
        raise ConfigError('another process of this run has failed; its message says why')
