"""What a compiled program costs, by its own text: FLOPs, steps one after the other, memory, seconds.

XLA's cost analysis counts the body of a loop once, however often it runs. Here it counts as often as the
program says that it runs.
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
# Seconds: how long a program is run again and again, and what is too long for it.
PATIENCE, LONG = 1.0, 10.0


class Instruction(NamedTuple):
    """One instruction.

    result: its type, with the layout. operation: as `fusion`. operands: names in the same computation.
    uses: all names that stand in it. called: the computations that it runs; of a loop, the body. trips: how
    often a loop runs, None where XLA does not know; 1 for all else. source: where it comes from in the
    traced program. text: all from the operands on.
    """

    result: str
    operation: str
    operands: tuple[str, ...]
    uses: tuple[str, ...]
    called: tuple[str, ...]
    trips: int | None
    source: str
    text: str

    @property
    def is_loop(self) -> bool:
        """Whether it runs its body again and again."""
        return self.operation == 'while'


class Program(NamedTuple):
    """A compiled program: instructions by name, in an order in which they can run, by computation.

    roots: the name of each computation's result.
    """

    text: str
    entry: str
    computations: dict[str, dict[str, Instruction]]
    roots: dict[str, str]


def parse(text: str) -> Program:
    """Reads the text of a compiled program."""
    lines = text.splitlines()
    # The header and the tables of source lines say nothing about costs.
    first = next(i for i, line in enumerate(lines) if _COMPUTATION.match(line))
    entry, computations, roots, name = '', {}, {}, ''
    for line in lines[first:]:
        if head := _COMPUTATION.match(line):
            name = head[2]
            computations[name] = {}
            entry = name if head[1] else entry
        elif found := _INSTRUCTION.match(line):
            computations[name][found[2]] = _instruction(found[3])
            if found[1]:
                roots[name] = found[2]
    program = Program(_METADATA.sub('', '\n'.join(lines[first:])), entry, computations, roots)
    for instructions in computations.values():
        for label, each in instructions.items():
            if each.trips is None:
                instructions[label] = each._replace(trips=_bound(program, instructions, each))
    return program


def _instruction(text: str) -> Instruction:
    source, text = _SOURCE.search(text), _METADATA.sub('', text)
    result = _until_closed(text, ' ')
    operation, _, rest = text[len(result) + 1 :].partition('(')
    known = _TRIPS.search(rest)
    if operation != 'while':
        trips = 1
    else:
        trips = int(known[1]) if known else None
    return Instruction(
        result,
        operation,
        operands=_names(_until_closed(rest, ')')),
        uses=_names(text),
        called=tuple(_CALLED.findall(text)),
        trips=trips,
        source=source[1] if source else '',
        text=rest,
    )


def _until_closed(text: str, end: str) -> str:
    """The text before the first `end` that stands in no brackets."""
    depth = 0
    for i, sign in enumerate(text):
        if depth == 0 and sign == end:
            return text[:i]
        depth += (sign in '([{') - (sign in ')]}')
    return text


def _names(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r'%([\w.-]+)', text))


def _bound(program: Program, around: Mapping[str, Instruction], loop: Instruction) -> int | None:
    """How often a loop runs whose counter goes from 0 by ones to a number; None if it is no such loop."""
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


def _plain(program: Program, inside: Mapping[str, Instruction], name: str) -> Instruction:
    """An instruction behind its copies; of a fusion of one operation that one, with the fusion's operands."""
    instruction = inside[name]
    while instruction.operation in ('copy', 'bitcast'):
        instruction = inside[instruction.operands[0]]
    if instruction.operation != 'fusion':
        return instruction
    fused = program.computations[instruction.called[0]]
    root = fused[program.roots[instruction.called[0]]]
    given = [fused[operand] for operand in root.operands]
    if any(each.operation != 'parameter' for each in given):
        return instruction
    places = (int(_WHOLE.match(each.text)[1]) for each in given)
    return root._replace(operands=tuple(instruction.operands[place] for place in places))


def steps(program: Program) -> int:
    """The trips of loops that must follow each other: of a nested loop, those of both multiplied.

    Returns:
      The sum along the critical path; 1 where there is no loop.

    Raises:
      ValueError: XLA does not know how often a loop runs.
    """
    return max(1, _steps(program, program.entry))


def _steps(program: Program, name: str) -> int:
    done: dict[str, int] = {}
    for instruction_name, instruction in program.computations[name].items():
        before = max((done[used] for used in instruction.uses if used in done), default=0)
        inner = max((_steps(program, called) for called in instruction.called), default=0)
        own = _known_trips(instruction) * max(1, inner) if instruction.is_loop else inner
        done[instruction_name] = before + own
    return max(done.values())


def flops(program: Program) -> float:
    """XLA's own count, with the body of each loop as often as it runs.

    Raises:
      ValueError: XLA does not know how often a loop runs.
    """
    return counted(program, program.entry)['flops'] + repeated(program, program.entry, 'flops')


def repeated(program: Program, name: str, cost: str) -> float:
    """What XLA's count of a computation leaves out: all trips of its loops but one.

    Args:
      cost: as `counted` names it.

    Raises:
      ValueError: XLA does not know how often a loop runs.
    """
    missing = 0.0
    for instruction in program.computations[name].values():
        trips = _known_trips(instruction)
        for called in instruction.called:
            missing += trips * repeated(program, called, cost)
        if instruction.is_loop:
            missing += (trips - 1) * counted(program, *instruction.called)[cost]
    return missing


def _known_trips(instruction: Instruction) -> int:
    if instruction.trips is None:
        raise ValueError(f'XLA does not know how often this loop runs: {instruction.source}')
    return instruction.trips


def counted(program: Program, name: str) -> dict[str, float]:
    """XLA's count of a computation as if it were a program: `flops`, `bytes accessed` and others."""
    text = program.text.replace('\nENTRY ', '\n').replace(f'\n%{name} (', f'\nENTRY %{name} (')
    module = xla_client.hlo.hlo_module_from_text(f'HloModule counted\n\n{text}\n')
    client = jax.extend.backend.get_backend()
    return xla_client._xla.hlo_module_cost_analysis(client, module)


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
