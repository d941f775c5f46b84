"""What a compiled program costs, by its own text: FLOPs, steps one after the other, memory, seconds.

XLA's cost analysis counts the body of a loop once, however often it runs. Here it counts as often as the
program says that it runs.
"""

import re
import time
from typing import NamedTuple

import jax
import jax.extend
from jax.stages import Compiled
from jaxlib import xla_client

_COMPUTATION = re.compile(r'^(ENTRY )?%([\w.-]+) \(.*\{$')
_INSTRUCTION = re.compile(r'^\s+(?:ROOT )?%([\w.-]+) = (.*)$')
_METADATA = re.compile(r', metadata=\{[^{}]*\}')
_CALLED = re.compile(r'(?:calls|to_apply|body)=%([\w.-]+)')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
# Seconds: how long a program is run again and again, and what is too long for it.
PATIENCE, LONG = 1.0, 10.0


class Instruction(NamedTuple):
    """One instruction.

    uses: the names that stand in it; those of the same computation are its operands. called: the
      computations that it runs; of a loop, the body. trips: how often a loop runs; 1 for all else.
    """

    uses: tuple[str, ...]
    called: tuple[str, ...]
    trips: int
    is_loop: bool


class Program(NamedTuple):
    """A compiled program: instructions by name, in an order in which they can run, by computation."""

    text: str
    entry: str
    computations: dict[str, dict[str, Instruction]]


def parse(text: str) -> Program:
    """Reads the text of a compiled program.

    Raises:
      ValueError: XLA does not know how often a loop runs.
    """
    lines = _METADATA.sub('', text).splitlines()
    # The header and the tables of source lines say nothing about costs.
    first = next(i for i, line in enumerate(lines) if _COMPUTATION.match(line))
    entry, computations, inside = '', {}, {}
    for line in lines[first:]:
        if head := _COMPUTATION.match(line):
            inside = computations[head[2]] = {}
            entry = head[2] if head[1] else entry
        elif found := _INSTRUCTION.match(line):
            inside[found[1]] = _instruction(found[2])
    return Program('\n'.join(lines[first:]), entry, computations)


def _instruction(text: str) -> Instruction:
    is_loop = ', body=%' in text
    trips = _TRIPS.search(text)
    if is_loop and not trips:
        raise ValueError(f'XLA does not know how often this loop runs: {text}')
    uses = tuple(re.findall(r'%([\w.-]+)', text))
    return Instruction(uses, tuple(_CALLED.findall(text)), int(trips[1]) if is_loop else 1, is_loop)


def steps(program: Program) -> int:
    """The trips of loops that must follow each other: of a nested loop, those of both multiplied.

    Returns:
      The sum along the critical path; 1 where there is no loop.
    """
    return max(1, _steps(program, program.entry))


def _steps(program: Program, name: str) -> int:
    done: dict[str, int] = {}
    for instruction_name, instruction in program.computations[name].items():
        before = max((done[used] for used in instruction.uses if used in done), default=0)
        inner = max((_steps(program, called) for called in instruction.called), default=0)
        own = instruction.trips * max(1, inner) if instruction.is_loop else inner
        done[instruction_name] = before + own
    return max(done.values())


def flops(program: Program) -> float:
    """XLA's own count, with the body of each loop as often as it runs."""
    return _counted(program, program.entry) + _repeated(program, program.entry)


def _repeated(program: Program, name: str) -> float:
    """What XLA's count of a computation leaves out: all trips of its loops but one."""
    missing = 0.0
    for instruction in program.computations[name].values():
        for called in instruction.called:
            missing += instruction.trips * _repeated(program, called)
        if instruction.is_loop:
            missing += (instruction.trips - 1) * _counted(program, *instruction.called)
    return missing


def _counted(program: Program, name: str) -> float:
    """XLA's count of a computation as if it were a program."""
    text = program.text.replace('\nENTRY ', '\n').replace(f'\n%{name} (', f'\nENTRY %{name} (')
    module = xla_client.hlo.hlo_module_from_text(f'HloModule counted\n\n{text}\n')
    client = jax.extend.backend.get_backend()
    return xla_client._xla.hlo_module_cost_analysis(client, module)['flops']


def temporary_bytes(compiled: Compiled) -> int:
    """What the program allocates beside its inputs and outputs."""
    return compiled.memory_analysis().temp_size_in_bytes


def needed_bytes(compiled: Compiled) -> int:
    """All that the program holds: inputs, outputs and what is between them."""
    found = compiled.memory_analysis()
    return found.temp_size_in_bytes + found.argument_size_in_bytes + found.output_size_in_bytes


def seconds(compiled: Compiled, *args) -> float:
    """The fastest run: of what slows down the others, the program knows nothing.

    After a first run there are two or more, for a second in all. A program that takes long runs once.
    """
    times: list[float] = []
    while len(times) < 3 or (sum(times) < PATIENCE and len(times) < 100):
        start = time.perf_counter()
        jax.block_until_ready(compiled(*args))
        times.append(time.perf_counter() - start)
        if times[0] > LONG:
            break
    return min(times[1:] or times)
