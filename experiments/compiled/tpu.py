"""What a program costs on TPUs, by the TPU's own compiler; no TPU is needed, only its compiler (extra `tpu`).

What a chip can do is what JAX says of it (jax.experimental.pallas.tpu.TpuInfo).
"""

import functools
import importlib.util
import math
import os
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
from jax.experimental import topologies
from jax.experimental.pallas import tpu as pallas_tpu
from jax.stages import Compiled, Lowered

from experiments.compiled import hlo, lower, traffic
from transformer.cli.terminal import terminal_width
from transformer.config import Config, ConfigError

# Without these the compiler looks for the TPU that it runs on, and waits for a program that holds one.
_ENVIRONMENT = {
    'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
    'TPU_ACCELERATOR_TYPE': 'v5litepod-1',
    'TPU_SKIP_MDS_QUERY': '1',
    'TPU_WORKER_HOSTNAMES': 'localhost',
}
SHOWN = 10  # of the largest arrays, and of the costliest instructions


class Chip(NamedTuple):
    """A device of a topology: FLOPs and bytes of its memory (HBM) a second, and that memory in bytes."""

    kind: str
    flops: float
    bandwidth: float
    memory: float


class Cost(NamedTuple):
    """What a program costs on one device.

    bytes_accessed: XLA's count, which takes the chip's fast memory for memory too. hbm_bytes: what the
    instructions read and write in HBM, with the padding of the arrays' tiles. cycles: the compiler's
    estimate of all instructions, one after the other. memory: bytes by kind. collectives: how many of each
    kind, and their bytes. arrays: the largest in HBM, as bytes, type and source. costliest: instructions by
    their share of the cycles, with name and source.
    """

    flops: float
    bytes_accessed: float
    hbm_bytes: float
    cycles: float
    memory: dict[str, int]
    collectives: dict[str, list[float]]
    arrays: list[tuple[int, str, str]]
    costliest: list[tuple[float, str, str]]


def prepare() -> None:
    """Prepares the compiler; to be called before JAX looks for devices.

    Raises:
      ConfigError: it is not installed.
    """
    if not importlib.util.find_spec('libtpu'):
        raise ConfigError("--topology: the compiler for TPUs is not installed: pip install '.[tpu]'")
    os.environ.update({name: value for name, value in _ENVIRONMENT.items() if name not in os.environ})
    # Everything else runs on the CPU.
    jax.config.update('jax_platforms', 'cpu')


def devices_of(topology: str) -> list[jax.Device]:
    """The devices of a topology such as v5e:2x4, which programs can be compiled for.

    Raises:
      ConfigError: the compiler knows no such topology.
    """
    # The compiler ends the process at 0 chips.
    if not re.fullmatch(r'\w+:[1-9]\d*(x[1-9]\d*)*', topology):
        raise ConfigError(f'--topology={topology}: expected a chip and its numbers, such as v5e:2x4')
    chips = math.prod(map(int, topology.partition(':')[2].split('x')))
    # Without this, a host has four chips.
    alone = {'chips_per_host_bounds': (1, 1, 1)} if chips == 1 else {}
    try:
        return topologies.get_topology_desc(topology, 'tpu', **alone).devices
    except jax.errors.JaxRuntimeError as error:
        said = str(error).partition(': ')[2].splitlines()[0]
        raise ConfigError(f'--topology={topology}: {said}') from None


def chip_of(topology: str, device: jax.Device) -> Chip:
    """What a device of a topology can do.

    Raises:
      ConfigError: JAX does not know the chip.
    """
    name = topology.partition(':')[0]
    try:
        version = pallas_tpu.ChipVersion(name)
    except ValueError:
        known = ', '.join(chip.value for chip in pallas_tpu.ChipVersion)
        raise ConfigError(f'--topology={topology}: JAX knows no chip {name}; it knows {known}') from None
    core, cores = pallas_tpu.get_tpu_info_for_chip(version, 1), device.num_cores
    return Chip(
        device.device_kind,
        cores * core.bf16_ops_per_second,
        cores * core.mem_bw_bytes_per_second,
        cores * core.hbm_capacity_bytes,
    )


def update(config: Config, devices: list[jax.Device]) -> Compiled:
    """A training's update of full rows, compiled for some devices.

    Raises:
      ConfigError: the devices cannot share the microbatches, or it does not fit into their memory.
    """
    what = f'an update with train.accumulate={config.train.accumulate}'
    return _compiled(what, 'a larger train.accumulate', lower.update(config, devices))


def search(config: Config, rows: int, devices: list[jax.Device]) -> Compiled:
    """The search of rows on each device as long as a full row of a training, compiled for some devices.

    Raises:
      ConfigError: it does not fit into the memory of a device.
    """
    what = f'the search of {rows} sentences with decode.beam={config.decode.beam}'
    return _compiled(what, 'a smaller decode.beam', lower.search(config, rows, devices))


def _compiled(what: str, smaller: str, lowered: Lowered) -> Compiled:
    """Compiles a program; says what takes less memory where it does not fit.

    Raises:
      ConfigError: it does not fit into the memory of a device.
    """
    try:
        return lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        code, _, said = str(error).partition(': ')
        if code == 'RESOURCE_EXHAUSTED':
            raise ConfigError(
                f"{what} does not fit into the TPU's memory; {smaller} takes less. {said.splitlines()[0]}"
            ) from None
        raise


def cost(program: Compiled, *, of_step: bool = False) -> Cost:
    """The cost of a program, or of one step of the search that it is.

    A search's loops end when its sentences do, so nobody knows their trips; all others count as often as
    they run. The memory is always that of the whole program.
    """
    parsed, memory = hlo.parse(program.as_text()), program.memory_analysis()
    name = parsed.entry
    if of_step:
        # The costliest one has all sentences, and room for the longest outputs.
        everything = (i for inside in parsed.computations.values() for i in inside.values())
        bodies = [i.called[0] for i in everything if i.trips is None]
        name = max(bodies, key=lambda body: sum(each.cycles for each in traffic.ran(parsed, body)))
    # XLA's count for the TPU knows the padding of arrays; of a part of the program there is no such count.
    counts = hlo.counted(parsed, name) if of_step else program.cost_analysis()
    missing = functools.partial(hlo.repeated, parsed, name)
    ran = list(traffic.ran(parsed, name))
    cycles = sum(each.cycles for each in ran)
    collectives: dict[str, list[int]] = {}
    for each in ran:
        if each.collective:
            found = collectives.setdefault(each.collective, [0, 0])
            found[0], found[1] = found[0] + 1, found[1] + each.written
    kinds = ('argument', 'output', 'alias', 'temp', 'generated_code')
    return Cost(
        counts['flops'] + missing('flops'),
        counts['bytes accessed'] + missing('bytes accessed'),
        sum(each.moved for each in ran),
        cycles,
        {kind: getattr(memory, f'{kind}_size_in_bytes') for kind in kinds},
        collectives,
        [(each.largest.size, each.largest.type, each.source) for each in _top(ran, _largest)],
        [(each.cycles / max(cycles, 1), each.name, each.source) for each in _top(ran, lambda r: r.cycles)],
    )


def _top(ran: list[traffic.Ran], number: Callable[[traffic.Ran], int]) -> list[traffic.Ran]:
    return sorted((each for each in ran if number(each)), key=number, reverse=True)[:SHOWN]


def _largest(ran: traffic.Ran) -> int:
    return ran.largest.size if ran.largest else 0


def roofline(cost: Cost, chip: Chip) -> dict[str, float]:
    """Seconds that FLOPs and bytes take at the chip's peaks, and the share that FLOPs have in the longer.

    `hbm` and `hbm_utilisation` are by what HBM moves; with `products` they bound the time from below. `bytes`
    and `utilisation` are by XLA's count of bytes, as if all of them came from HBM.
    """
    products, moved = cost.flops / chip.flops, cost.bytes_accessed / chip.bandwidth
    hbm = cost.hbm_bytes / chip.bandwidth
    return {
        'products': products,
        'bytes': moved,
        'hbm': hbm,
        'utilisation': products / max(products, moved),
        'hbm_utilisation': products / max(products, hbm),
    }


def needed(cost: Cost) -> int:
    """The bytes of memory that a program needs on a device; what it changes in place counts once."""
    memory = cost.memory
    return sum(memory.values()) - 2 * memory['alias']


def seconds_and_gib(topology: str, config: Config) -> tuple[float, float]:
    """The least seconds of an update on TPUs, and the GiB that it needs on each.

    Raises:
      ConfigError: there is no such topology, or the update does not fit.
    """
    devices = devices_of(topology)
    found, chip = cost(update(config, devices)), chip_of(topology, devices[0])
    least = roofline(found, chip)
    return max(least['products'], least['hbm']), gib(needed(found))


def lines(cost: Cost, chip: Chip, formula: float | None = None) -> Iterator[str]:
    """What a program costs, for a terminal.

    Args:
      formula: the FLOPs that it should have.
    """
    found = roofline(cost, chip)
    told = f'{cost.flops / formula:.3f} of the formula' if formula else ''
    milliseconds = lambda name: f'{1000 * found[name]:.3g} ms'
    share = lambda name: f'utilisation {found[name]:.0%}'
    yield f'FLOPs           {cost.flops:.3e}  {milliseconds("products")} at the peak; {told}'.rstrip('; ')
    yield f'bytes accessed  {cost.bytes_accessed:.3e}  {milliseconds("bytes")}; {share("utilisation")}'
    yield f'  of HBM alone  {cost.hbm_bytes:.3e}  {milliseconds("hbm")}; {share("hbm_utilisation")}'
    kinds = ', '.join(f'{kind} {gib(size):.2f}' for kind, size in cost.memory.items())
    yield f'memory          {gib(needed(cost)):.2f} of {gib(chip.memory):.1f} GiB: {kinds}'
    each = (f'{count} {kind} of {moved:.3e} bytes' for kind, (count, moved) in cost.collectives.items())
    yield f'collectives     {", ".join(each) or "none"}'
    yield 'largest arrays in HBM'
    for size, kind, source in cost.arrays:
        yield _line(f'{size / 2**20:.1f} MiB', kind, source)
    yield "costliest by the compiler's estimate"
    for part, name, source in cost.costliest:
        yield _line(f'{part:.2%}', name, source)


def gib(size: float) -> float:
    """Bytes in GiB."""
    return size / 2**30


def _line(size: str, name: str, source: str) -> str:
    """A line as wide as the terminal; where an instruction comes from is cut at its beginning."""
    source = re.sub(r'^.*closed_call/', '', source)
    start = f'  {size:>11}  {name}  '
    room = max(terminal_width() - len(start), 0)
    return (start + (source if len(source) <= room else f'...{source[len(source) - room + 3 :]}')).rstrip()
