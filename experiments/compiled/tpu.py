"""Compiles programs with the TPU's own compiler and counts their costs (extra `tpu`; no TPU is needed)."""

import collections
import functools
import importlib.util
import math
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
from jax.experimental import topologies
from jax.experimental.pallas import tpu as pallas_tpu
from jax.stages import Compiled, Lowered

from experiments.compiled import hlo, lower
from transformer import config as configs
from transformer.cli.terminal import terminal_width
from transformer.config import Config, ConfigError
from transformer.nn.kernels.short import UNSUITED

# Without these variables the compiler looks for a TPU, and waits if another program uses it.
_ENVIRONMENT = {
    'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
    'TPU_ACCELERATOR_TYPE': 'v5litepod-1',
    'TPU_SKIP_MDS_QUERY': '1',
    'TPU_WORKER_HOSTNAMES': 'localhost',
}
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_COLLECTIVE = re.compile(r'(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(-start)?')
# With collectives, the operations that take time; others without an estimate are free, or scalars.
_LONG = ('fusion', 'copy', 'convolution', 'scatter', 'sort', 'conditional', 'rng-bit-generator')
# The products in each kernel of attention, and its operands with positions last: queries, then keys.
_PRODUCTS = {
    'splash_mha_fwd': 2, 'splash_mha_dkv': 4, 'splash_mha_dq': 3,
    'short_attention_means': 2, 'short_attention_gradients': 5,
}  # fmt: skip
_OPERANDS = re.compile(r'operand_layout_constraints=\{(.*?\})\}')
_ENTRIES = re.compile(r'(?:bf16|f32)\[(\d+,\d+,[\d,]+)\]')
_ARRAY = re.compile(r'[a-z]+(\d*)\[([\d,]*)\]')
SHOWN = 10  # how many of the costliest instructions are printed
LARGEST = 4  # how many shapes of the largest arrays are printed


class Chip(NamedTuple):
    """A device of a topology."""

    kind: str
    flops: float  # the peak per second, in bfloat16
    bandwidth: float  # bytes per second of its memory (HBM)
    memory: float  # bytes
    flops_per_cycle: float  # the peak, in bfloat16


class Cost(NamedTuple):
    """A program's cost on one device."""

    flops: float
    bytes_accessed: float  # XLA's count, which includes the chip's fast memory
    cycles: float  # the compiler's estimate for all instructions that have one, one after the other
    memory: dict[str, int]  # bytes by kind
    collectives: dict[str, int]  # the number of instructions of each kind
    costliest: list[tuple[float, str, str]]  # the instructions with the most cycles: share, name, source
    not_estimated: dict[str, int]  # the instructions by kind that take time, but have no estimate
    largest: list[tuple[int, str, int]]  # the largest arrays made: bytes without padding, shape, number
    kernel_flops: float  # attention kernels' FLOPs by formula, without regard to masks


def prepare() -> None:
    """Prepares the compiler; must run before JAX looks for devices."""
    if not importlib.util.find_spec('libtpu'):
        raise ConfigError("--topology: the compiler for TPUs is not installed: pip install '.[tpu]'")
    os.environ.update({name: value for name, value in _ENVIRONMENT.items() if name not in os.environ})
    # JAX itself runs everything on the CPU.
    jax.config.update('jax_platforms', 'cpu')


def devices_of(topology: str) -> list[jax.Device]:
    """Returns the devices of a topology such as v5e:2x4, for which programs can be compiled."""
    # With 0 chips the compiler would end the process.
    if not re.fullmatch(r'\w+:[1-9]\d*(x[1-9]\d*)*', topology):
        raise ConfigError(f'--topology={topology}: expected a chip and a grid, such as v5e:2x4')
    chips = math.prod(map(int, topology.partition(':')[2].split('x')))
    # By default a host has four chips.
    one_chip = {'chips_per_host_bounds': (1, 1, 1)} if chips == 1 else {}
    try:
        devices = topologies.get_topology_desc(topology, 'tpu', **one_chip).devices
    except jax.errors.JaxRuntimeError as error:
        reason = str(error).partition(': ')[2].splitlines()[0]
        raise ConfigError(f'--topology={topology}: {reason}') from None
    # On such a machine, a training has other programs.
    if devices[0].device_kind in UNSUITED:
        raise ConfigError(f'--topology={topology}: attention has no kernel for {devices[0].device_kind}')
    return devices


def chip_of(topology: str, device: jax.Device) -> Chip:
    """Returns the peaks and memory of a topology's device, from JAX's own table (`pallas.tpu.TpuInfo`)."""
    name = topology.partition(':')[0]
    try:
        version = pallas_tpu.ChipVersion(name)
    except ValueError:
        known = ', '.join(chip.value for chip in pallas_tpu.ChipVersion)
        raise ConfigError(f'--topology={topology}: unknown chip {name}; choose from {known}') from None
    core, cores = pallas_tpu.get_tpu_info_for_chip(version, 1), device.num_cores
    return Chip(
        device.device_kind,
        cores * core.bf16_ops_per_second,
        cores * core.mem_bw_bytes_per_second,
        cores * core.hbm_capacity_bytes,
        cores * core.num_mxus * 2 * core.mxu_column_size**2,
    )


def compile_update(config: Config, devices: list[jax.Device]) -> Compiled:
    """Compiles a training update with full rows."""
    config = configs.with_accumulation(config, devices[0].platform, len(devices))
    what = f'an update with train.accumulate={config.train.accumulate}'
    return _compile(what, 'a larger train.accumulate', lower.update(config, devices))


def compile_search(config: Config, rows: int, devices: list[jax.Device]) -> Compiled:
    """Compiles a search; each device gets `rows` sentences as long as a full training row."""
    what = f'the search of {rows} sentences with decode.beam={config.decode.beam}'
    return _compile(what, 'a smaller decode.beam', lower.search(config, rows, devices))


def _compile(what: str, remedy: str, lowered: Lowered) -> Compiled:
    try:
        return lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        code, _, reason = str(error).partition(': ')
        if code == 'RESOURCE_EXHAUSTED':
            raise ConfigError(
                f"{what} does not fit into the TPU's memory; {remedy} needs less. {reason.splitlines()[0]}"
            ) from None
        raise


def cost(program: Compiled, *, of_step: bool = False) -> Cost:
    """Counts the cost of a program, or of one step of a search.

    The number of steps of a search depends on its sentences, so the loop over steps counts once; other loops
    count as often as they run. The memory is always the whole program's.
    """
    parsed, memory = hlo.parse(program.as_text()), program.memory_analysis()
    name = parsed.entry
    if of_step:
        # The costliest loop handles all sentences, with caches for the longest outputs.
        instructions = (i for computation in parsed.computations.values() for i in computation.values())
        bodies = [instruction.called[0] for instruction in instructions if instruction.trips is None]
        name = max(bodies, key=lambda body: sum(cycles for cycles, _, _ in _cycles(parsed, body)))
    # XLA's count for TPUs includes the padding of arrays; it exists only for whole programs.
    counts = hlo.counted(parsed, name) if of_step else program.cost_analysis()
    repeated = functools.partial(hlo.repeated, parsed, name)
    by_cycles = sorted(_cycles(parsed, name), reverse=True)
    cycles = sum(count for count, _, _ in by_cycles)
    kinds = ('argument', 'output', 'alias', 'temp', 'generated_code')
    executed = [instruction for _, instruction, _ in _executed(parsed, name)]
    kernels = sum(times * _kernel_flops(label, each) for label, each, times in _executed(parsed, name))
    operations = (_COLLECTIVE.fullmatch(instruction.operation) for instruction in executed)
    silent = (_kind(i) for i in executed if not _CYCLES.search(i.text))
    return Cost(
        counts['flops'] + repeated('flops'),
        counts['bytes accessed'] + repeated('bytes accessed'),
        cycles,
        {kind: getattr(memory, f'{kind}_size_in_bytes') for kind in kinds},
        dict(collections.Counter(match[1] for match in operations if match)),
        [(count / cycles, label, source) for count, label, source in by_cycles[:SHOWN] if count],
        dict(collections.Counter(filter(None, silent))),
        _largest(executed),
        kernels,
    )


def _largest(instructions: Sequence[hlo.Instruction]) -> list[tuple[int, str, int]]:
    """Lists the shapes of the largest arrays that instructions make, each with its bytes and number."""
    silent = ('parameter', 'constant', 'get-tuple-element', 'bitcast', 'tuple')
    made = (
        i for i in instructions if i.operation not in silent and not i.operation.endswith(('-start', '-done'))
    )
    shapes = collections.Counter(match[0] for i in made for match in _ARRAY.finditer(i.result))

    def size(shape: str) -> int:
        bits, sides = _ARRAY.fullmatch(shape).groups()
        # A truth value, `pred`, takes a byte.
        return math.prod(int(side) for side in sides.split(',') if side) * int(bits or 8) // 8

    return sorted(((size(shape), shape, count) for shape, count in shapes.items()), reverse=True)[:LARGEST]


def _kind(instruction: hlo.Instruction) -> str | None:
    """Returns the kind of an instruction that takes time, or None for any other instruction."""
    if instruction.operation == 'custom-call':
        return 'kernel' if '"tpu_custom_call"' in instruction.text else None
    if instruction.operation.endswith('-start'):
        return f'asynchronous {instruction.operation.removesuffix("-start")}'
    takes_time = instruction.operation in _LONG or _COLLECTIVE.fullmatch(instruction.operation)
    return instruction.operation if takes_time else None


def _kernel_flops(name: str, instruction: hlo.Instruction) -> float:
    """Counts an attention kernel's FLOPs without regard to its mask, or 0 for another instruction."""
    products = next((count for kernel, count in _PRODUCTS.items() if name.startswith(kernel)), 0)
    if not products:
        return 0.0
    operands = _ENTRIES.findall(_OPERANDS.search(instruction.text)[1])
    query, key = ([*map(int, sides.split(','))] for sides in operands[:2])
    return 2.0 * products * math.prod(query) * key[-1]


def _executed(
    program: hlo.CompiledProgram, computation: str, times: int = 1
) -> Iterator[tuple[str, hlo.Instruction, int]]:
    """Yields (name, instruction, runs) of all that a computation executes; unknown loops count once."""
    for name, instruction in program.computations[computation].items():
        if instruction.operation in ('while', 'call'):
            yield from _executed(program, instruction.called[0], times * (instruction.trips or 1))
        else:
            yield name, instruction, times


def _cycles(program: hlo.CompiledProgram, computation: str) -> list[tuple[int, str, str]]:
    """Lists the compiler's estimate of each instruction's cycles, in all runs: cycles, name, source."""
    estimates = []
    for name, instruction, times in _executed(program, computation):
        estimate = _CYCLES.search(instruction.text)
        estimates.append((times * int(estimate[1]) if estimate else 0, name, instruction.source))
    return estimates


def roofline(cost: Cost, chip: Chip, formula: float | None = None) -> dict[str, float]:
    """Computes the seconds that the FLOPs (`products`), the `bytes` and the `cycles` take on the chip.

    FLOPs and bytes are at the chip's peaks. `utilisation` divides the time of the expected FLOPs, `formula`,
    by the cycles' time: what a program computes twice counts once. Kernels have neither FLOPs nor cycles
    here, so with them, or without a formula, it divides the time of the program's FLOPs. XLA counts all
    bytes as if from HBM, and so ranks programs wrongly that use the fast memory.
    """
    products, moved = cost.flops / chip.flops, cost.bytes_accessed / chip.bandwidth
    seconds = cost.cycles * chip.flops_per_cycle / chip.flops
    useful = cost.flops if formula is None or cost.kernel_flops else formula
    utilisation = useful / chip.flops / seconds
    return {'products': products, 'bytes': moved, 'cycles': seconds, 'utilisation': utilisation}


def needed(cost: Cost) -> int:
    """Computes the bytes that a program needs on a device; arrays changed in place count once."""
    return sum(cost.memory.values()) - 2 * cost.memory['alias']


class Estimate(NamedTuple):
    """An update's seconds by its cycles, and the GiB that it needs, on each TPU of a topology."""

    seconds: float
    gib: float
    accumulate: int


def estimate(topology: str, accumulate: Sequence[int], config: Config) -> Estimate:
    """Estimates an update: the fastest among values of `train.accumulate`, or with the config's own.

    Raises:
      ConfigError: it fits into the memory with none of them.
    """
    devices = devices_of(topology)
    chip = chip_of(topology, devices[0])

    def of(config: Config) -> Estimate:
        costs = cost(compile_update(config, devices))
        chunks = configs.with_accumulation(config, devices[0].platform, len(devices)).train.accumulate
        return Estimate(roofline(costs, chip)['cycles'], needed(costs) / 2**30, chunks)

    found, refused = [], None
    for tried in [configs.replace(config, {'train.accumulate': chunks}) for chunks in accumulate] or [config]:
        try:
            found.append(of(tried))
        except ConfigError as error:
            refused = error
    if not found:
        raise refused
    return min(found)


def lines(cost: Cost, chip: Chip, formula: float | None = None, once: float | None = None) -> Iterator[str]:
    """Yields a program's cost as lines for a terminal.

    Args:
      formula: the expected number of FLOPs.
      once: the bytes that a step of a search must read at least once.
    """
    times = roofline(cost, chip, formula)
    yield (
        f'cycles          {cost.cycles:.3e}  {1000 * times["cycles"]:.3g} ms; '
        f'utilisation {times["utilisation"]:.0%}'
    )
    silent = ', '.join(f'{count} {kind}' for kind, count in cost.not_estimated.items())
    yield f'not estimated   {silent or "nothing"}'
    for label, flops in {'FLOPs': cost.flops, "kernels' FLOPs": cost.kernel_flops}.items():
        share = f'; {flops / formula:.3f} of the formula' if formula else ''
        if flops:
            yield f'{label:14}  {flops:.3e}  {1000 * flops / chip.flops:.3g} ms at the peak{share}'
    yield f'bytes accessed  {cost.bytes_accessed:.3e}  {1000 * times["bytes"]:.3g} ms at the peak'
    if once:
        least = once / chip.bandwidth
        yield (
            f'least bytes     {once:.3e}  {1000 * least:.3g} ms to read the parameters and caches once; the '
            f'cycles take {times["cycles"] / least:.2f} times as long'
        )
    kinds = ', '.join(f'{kind} {size / 2**30:.2f}' for kind, size in cost.memory.items())
    yield f'memory          {needed(cost) / 2**30:.2f} of {chip.memory / 2**30:.1f} GiB: {kinds}'
    collectives = ', '.join(f'{count} {kind}' for kind, count in cost.collectives.items())
    yield f'collectives     {collectives or "none"}'
    yield 'largest arrays  ' + ', '.join(
        f'{count} x {shape} ({size / 2**20:.0f} MiB)' for size, shape, count in cost.largest
    )
    yield "most cycles, by the compiler's estimate:"
    for share, name, source in cost.costliest:
        source = re.sub(r'^.*closed_call/', '', source)
        start = f'  {share:>7.2%}  {name}  '
        room = max(terminal_width() - len(start), 0)
        # The end of a source says more than its beginning.
        yield start + (source if len(source) <= room else f'...{source[len(source) - int(room) + 3 :]}')
