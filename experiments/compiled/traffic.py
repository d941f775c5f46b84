"""What the instructions of a program for TPUs read and write, and how long the compiler thinks they take."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from experiments.compiled.hlo import Instruction, Program

_ARRAY = re.compile(r'\b([a-z]+\d*[a-z\d]*)\[([\d,]*)\](?:\{([^{}]*)\})?')
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_COLLECTIVE = re.compile(r'(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(-start)?')
# These move nothing: they name what is there, wait for what was started, or stand for what they call.
_FREE = re.compile(
    r'parameter|constant|tuple|get-tuple-element|bitcast|after-all|partition-id|opt-barrier|while|call|.*-done'
)
# Bits of a number.
_BITS = {'pred': 8, 'bf16': 16, 'token': 0} | {
    f'{kind}{bits}': bits for kind in 'suf' for bits in (4, 8, 16, 32, 64)
}


class Array(NamedTuple):
    """An array: its type, its bytes in memory, and whether it lies in HBM."""

    type: str
    size: int
    in_hbm: bool


class Ran(NamedTuple):
    """An instruction that runs; bytes and cycles are those of all its runs.

    moved: what it reads and writes in HBM. written: all that it writes. largest: the largest array in HBM
    that it writes. cycles: the compiler's estimate. collective: its kind, if it is one.
    """

    name: str
    source: str
    moved: int
    written: int
    largest: Array | None
    cycles: int
    collective: str


def ran(program: Program, computation: str, times: int = 1) -> Iterator[Ran]:
    """The instructions that run in a computation and in its loops; a loop of unknown length runs once."""
    instructions = program.computations[computation]
    for name, instruction in instructions.items():
        if instruction.operation in ('while', 'call'):
            yield from ran(program, instruction.called[0], times * (instruction.trips or 1))
        if _FREE.fullmatch(instruction.operation):
            continue
        written, read = _written(program, instructions, name), _read(program, instructions, name)
        in_hbm = [array for array in written if array.in_hbm]
        cycles, collective = _CYCLES.search(instruction.text), _COLLECTIVE.fullmatch(instruction.operation)
        yield Ran(
            name,
            instruction.source,
            times * sum(array.size for array in (*read, *in_hbm) if array.in_hbm),
            times * sum(array.size for array in written),
            max(in_hbm, key=lambda array: array.size, default=None),
            times * int(cycles[1]) if cycles else 0,
            collective[1] if collective else '',
        )


def arrays(result: str) -> list[Array]:
    """The arrays of a type, with the bytes that they take in memory.

    `bf16[384,64]{1,0:T(8,128)(2,1)S(1)}` has its last axis first in memory, in tiles of 8 x 128, which fill
    up both axes, and lies in the fast memory S(1).
    """
    found = []
    for kind, axes, layout in _ARRAY.findall(result):
        sizes = [int(axis) for axis in axes.split(',') if axis]
        order, _, rest = layout.partition(':')
        tile = re.match(r'T\(([\d,]+)\)', rest)
        places = [int(place) for place in order.split(',') if place]
        for place, least in zip(places, reversed(tile[1].split(',')) if tile else (), strict=False):
            sizes[place] += -sizes[place] % int(least)
        size = math.prod(sizes) * _bits(kind) // 8
        found.append(Array(f'{kind}[{axes}]', size, 'S(' not in rest))
    return found


def _bits(kind: str) -> int:
    # As f8e4m3fn.
    return 8 if kind.startswith('f8') else _BITS[kind]


def _written(program: Program, instructions: Mapping[str, Instruction], name: str) -> list[Array]:
    """What an instruction writes; where it changes an array in place, only the part."""
    instruction = instructions[name]
    found, operation = arrays(instruction.result), instruction.operation
    if operation == 'copy-start':
        return found[:1]
    if operation in ('slice-start', 'all-gather-start', 'collective-permute-start'):
        # After what they read.
        return found[1:2]
    if operation == 'fusion':
        instructions = program.computations[instruction.called[0]]
        instruction = instructions[program.roots[instruction.called[0]]]
        while instruction.operation == 'bitcast':
            instruction = instructions[instruction.operands[0]]
    if instruction.operation == 'dynamic-update-slice':
        part = arrays(instructions[instruction.operands[1]].result)[0]
        return [part._replace(in_hbm=found[0].in_hbm)]
    return found


def _read(program: Program, instructions: Mapping[str, Instruction], name: str) -> list[Array]:
    """What an instruction reads: of an array that it only cuts or changes in place, the part."""
    instruction, found = instructions[name], []
    inside: Mapping[str, Instruction] = {}
    if instruction.operation == 'fusion':
        inside = program.computations[instruction.called[0]]
    parameters = [label for label, each in inside.items() if each.operation == 'parameter']
    parameters.sort(key=lambda label: int(re.match(r'\d+', inside[label].text)[0]))
    for place, operand in enumerate(instruction.operands):
        whole = arrays(instructions[operand].result)
        users = [each for each in inside.values() if inside and parameters[place] in each.operands]
        parts = [_part(each, parameters[place]) for each in users] or [_part(instruction, operand)]
        if None in parts:
            found += whole
        else:
            found += [whole[0]._replace(size=size) for size in parts]
    return found


def _part(user: Instruction, operand: str) -> int | None:
    """The bytes that an instruction reads of an operand, if they are only a part of it."""
    if user.operands[0] != operand:
        return None
    if user.operation in ('slice', 'dynamic-slice'):
        return arrays(user.result)[0].size
    if user.operation == 'slice-start':
        return arrays(user.result)[1].size
    return 0 if user.operation == 'dynamic-update-slice' else None
