"""Reads compiled programs (HLO): FLOPs, bytes, sequential loop steps, memory, seconds.

XLA's cost analysis counts the body of a loop once. These counts multiply it by the loop's number of trips.
"""

import re
import time
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.extend
from jax.stages import Compiled
from jaxlib import xla_client

_COMPUTATION = re.compile(r'^(ENTRY )?%([\w.-]+) \(.*\{$')
_INSTRUCTION = re.compile(r'^\s+(ROOT )?%([\w.-]+) = (.*)$')
_METADATA = re.compile(r', metadata=\{[^{}]*\}')
_SOURCE = re.compile(r'op_name="([^"]*)"')
_CALLED = re.compile(r'(?:calls|to_apply|body)=%([\w.-]+)')
_CONDITION = re.compile(r'condition=%([\w.-]+)')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_INDEX = re.compile(r'index=(\d+)')
_WHOLE = re.compile(r'(\d+)\)')
# Seconds: a program is timed for PATIENCE in total; a program slower than LONG runs once.
PATIENCE, LONG = 1.0, 10.0


class Instruction(NamedTuple):
    """One instruction; `text` is everything after the opening bracket of its operands."""

    operation: str
    result: str  # the types and shapes of what it makes, with layouts
    operands: tuple[str, ...]  # names in the same computation
    uses: tuple[str, ...]  # all names in its text
    called: tuple[str, ...]  # the computations that it runs: for a loop the body, not the condition
    trips: int | None  # how often a loop runs, None if unknown; 1 for other instructions
    source: str  # the operation of the traced program
    text: str


class CompiledProgram(NamedTuple):
    """A compiled program."""

    text: str  # without metadata
    entry: str  # the computation that runs first
    computations: dict[str, dict[str, Instruction]]  # by name; instructions in an order that can run
    roots: dict[str, str]  # each computation's result


def parse(text: str) -> CompiledProgram:
    """Parses the text of a compiled program."""
    lines = text.splitlines()
    # Skips the header and the tables of source lines.
    first = next(i for i, line in enumerate(lines) if _COMPUTATION.match(line))
    entry, computations, roots, name = '', {}, {}, ''
    for line in lines[first:]:
        if head := _COMPUTATION.match(line):
            name = head[2]
            computations[name] = {}
            entry = name if head[1] else entry
        elif match := _INSTRUCTION.match(line):
            computations[name][match[2]] = _instruction(match[3])
            if match[1]:
                roots[name] = match[2]
    program = CompiledProgram(_METADATA.sub('', '\n'.join(lines[first:])), entry, computations, roots)
    for instructions in computations.values():
        for label, instruction in instructions.items():
            if instruction.trips is None:
                trips = _bound(program, instructions, instruction)
                instructions[label] = instruction._replace(trips=trips)
    return program


def _instruction(text: str) -> Instruction:
    source, text = _SOURCE.search(text), _METADATA.sub('', text)
    result = _until_closed(text, ' ')
    operation, _, rest = text[len(result) + 1 :].partition('(')
    trips = 1
    if operation == 'while':
        known = _TRIPS.search(rest)
        trips = int(known[1]) if known else None
    operands, called = _names(_until_closed(rest, ')')), tuple(_CALLED.findall(text))
    source = source[1] if source else ''
    return Instruction(operation, result, operands, _names(text), called, trips, source, rest)


def _until_closed(text: str, end: str) -> str:
    """Returns the text before the first `end` outside brackets."""
    depth = 0
    for i, sign in enumerate(text):
        if depth == 0 and sign == end:
            return text[:i]
        depth += (sign in '([{') - (sign in ')]}')
    return text


def _names(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r'%([\w.-]+)', text))


def _bound(program: CompiledProgram, around: Mapping[str, Instruction], loop: Instruction) -> int | None:
    """Counts the trips of a loop from 0 in steps of 1 to a constant, or returns None for any other loop."""
    condition, body = _CONDITION.search(loop.text)[1], loop.called[0]
    inside = program.computations[condition]
    test = _plain(program, inside, program.roots[condition])
    if test.operation != 'compare' or 'direction=LT' not in test.text:
        return None
    counter, bound = (_plain(program, inside, name) for name in test.operands)
    place, end = _INDEX.search(counter.text), _WHOLE.match(bound.text)
    if counter.operation != 'get-tuple-element' or bound.operation != 'constant' or not end:
        return None
    inside = program.computations[body]
    if {inside[program.roots[body]].operation, around[loop.operands[0]].operation} != {'tuple'}:
        return None
    element = lambda inside, results: _plain(program, inside, inside[results].operands[int(place[1])])
    step, first = element(inside, program.roots[body]), element(around, loop.operands[0])
    if step.operation != 'add' or (first.operation, first.text[:2]) != ('constant', '0)'):
        return None
    before, one = (_plain(program, inside, name) for name in step.operands)
    by_one = (one.operation, one.text[:2]) == ('constant', '1)')
    same = before.operation == 'get-tuple-element' and _INDEX.search(before.text)[1] == place[1]
    return int(end[1]) if same and by_one else None


def _plain(program: CompiledProgram, inside: Mapping[str, Instruction], name: str) -> Instruction:
    """Follows copies to their source instruction, and replaces a fusion of one operation by the operation."""
    instruction = inside[name]
    while instruction.operation in ('copy', 'bitcast'):
        instruction = inside[instruction.operands[0]]
    if instruction.operation != 'fusion':
        return instruction
    fused = program.computations[instruction.called[0]]
    root = fused[program.roots[instruction.called[0]]]
    parameters = [fused[operand] for operand in root.operands]
    if any(parameter.operation != 'parameter' for parameter in parameters):
        return instruction
    places = (int(_WHOLE.match(parameter.text)[1]) for parameter in parameters)
    return root._replace(operands=tuple(instruction.operands[place] for place in places))


def steps(program: CompiledProgram) -> int:
    """Counts the loop trips on the critical path, where nested loops multiply (1 without loops)."""
    return max(1, _steps(program, program.entry))


def _steps(program: CompiledProgram, name: str) -> int:
    done: dict[str, int] = {}
    for instruction_name, instruction in program.computations[name].items():
        before = max((done[used] for used in instruction.uses if used in done), default=0)
        inner = max((_steps(program, called) for called in instruction.called), default=0)
        own = _known_trips(instruction) * max(1, inner) if instruction.operation == 'while' else inner
        done[instruction_name] = before + own
    return max(done.values())


def flops(program: CompiledProgram) -> float:
    """Returns XLA's count of floating-point operations, with loop bodies multiplied by their trips."""
    return counted(program, program.entry)['flops'] + repeated(program, program.entry, 'flops')


def repeated(program: CompiledProgram, name: str, cost: str) -> float:
    """Computes the part of a cost, such as `flops`, that XLA omits: the second and later trips of loops."""
    missing = 0.0
    for instruction in program.computations[name].values():
        trips = _known_trips(instruction)
        for called in instruction.called:
            missing += trips * repeated(program, called, cost)
        if instruction.operation == 'while':
            missing += (trips - 1) * counted(program, *instruction.called)[cost]
    return missing


def _known_trips(instruction: Instruction) -> int:
    if instruction.trips is None:
        raise ValueError(f'XLA does not know how often this loop runs: {instruction.source}')
    return instruction.trips


def counted(program: CompiledProgram, name: str) -> dict[str, float]:
    """Runs XLA's cost analysis of a computation as a whole program: `flops`, `bytes accessed` and others."""
    text = program.text.replace('\nENTRY ', '\n').replace(f'\n%{name} (', f'\nENTRY %{name} (')
    # In jax 0.7 the functions of `hlo` are in `_xla`.
    hlo = getattr(xla_client, 'hlo', xla_client._xla)
    module = hlo.hlo_module_from_text(f'HloModule counted\n\n{text}\n')
    return xla_client._xla.hlo_module_cost_analysis(jax.extend.backend.get_backend(), module)


def seconds(compiled: Compiled, *args) -> float:
    """Measures the seconds of the fastest of two or more runs after a warm-up; a slow program runs once.

    The fastest run counts, because other work on the machine only slows runs down.
    """
    times: list[float] = []
    while len(times) < 3 or (sum(times) < PATIENCE and len(times) < 100):
        start = time.perf_counter()
        jax.block_until_ready(compiled(*args))
        times.append(time.perf_counter() - start)
        if times[0] > LONG:
            break
    return min(times[1:] or times)
