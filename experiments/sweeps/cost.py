"""What the rows of a table cost, before they are trained: parameters, FLOPs, tokens, time and memory."""

import functools
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from experiments.compiled import tpu
from experiments.rendering import formats
from experiments.rendering.formats import Column
from experiments.speed import updates
from experiments.tables import rows as tables
from experiments.tables import scales
from transformer import config as configs
from transformer import parallel
from transformer.config import Config, ConfigError
from transformer.nn import cost as accounting
from transformer.nn import models
from transformer.training.step import initial_state

Measured = TypeVar('Measured')
P100 = 9.5  # TFLOP/s, as the paper counts
PAPER_DEVICES = 8
WHY_DIFFERENT = (
    'Table 2 counts hours x 8 devices x the 9.5 TFLOP/s of a P100 (12 h: 3.3e18, 3.5 days: 2.3e19); ours '
    'are the products of the model alone, so that their ratio is the share of the peak that was used.'
)


class Cost(NamedTuple):
    """What a training costs. Tokens are positions of one side, padding counted."""

    params: int
    update_flops: float
    run_flops: float
    tokens: int


def cost(config: Config) -> Cost:
    """The cost of a config, by formula."""
    update = accounting.update_flops(config)
    return Cost(
        params=accounting.parameters(models.parameter_shapes(config)),
        update_flops=update,
        run_flops=update * config.train.steps,
        tokens=config.data.batch_tokens * config.train.steps,
    )


def seconds_per_update(config: Config, count: int = 3, replicas: int = 0) -> float:
    """Measures an update on the devices at hand, without its compilation; arguments as for `timer`."""
    return timer(config, replicas)(count)


def timer(config: Config, replicas: int = 0) -> Callable[[int], float]:
    """Compiles an update on the devices at hand.

    Args:
      replicas: trainings that one program updates at once, each with a batch of its own; 0 is the plain
        program of one training.

    Returns:
      A function that makes so many updates, and gives the seconds of one.
    """
    step = updates.step(config)
    state = initial_state(config)
    batch = parallel.to_devices(updates.full_batch(config), config.train.microbatches)
    if replicas:
        step = jax.vmap(step)
        state = jax.tree.map(lambda leaf: jnp.stack([leaf] * replicas), state)
        batch = jax.tree.map(lambda leaf: jnp.stack([leaf] * replicas, axis=1), batch)
    update = parallel.map_update(step, remat=config.model.remat)
    state = parallel.replicate(state)

    def measure(count: int) -> float:
        nonlocal state
        start = time.perf_counter()
        for _ in range(count):
            state, _ = update(state, batch)
        jax.block_until_ready(state)
        return (time.perf_counter() - start) / count

    measure(1)
    return measure


def peak_memory(config: Config) -> float:
    """The memory of an update by XLA's plan, in GiB a device: state, batch and what lives in between."""
    update = parallel.map_update(updates.step(config), remat=config.model.remat)
    shapes = jax.eval_shape(functools.partial(initial_state, config))
    batch = parallel.to_devices(updates.full_batch(config), config.train.microbatches)
    found = update.compile(shapes, batch).memory_analysis()
    # The new state takes the memory of the old one, so it counts once.
    return (found.argument_size_in_bytes + found.temp_size_in_bytes) / 2**30


def print_plan(
    rows: Sequence[tables.Row],
    scale: str,
    different: Mapping[str, object],
    *,
    tflops: float | None,
    with_memory: bool,
    topology: str | None = None,
) -> None:
    """Prints a line for each row: its options, parameters, FLOPs, tokens and hours, ours and the paper's.

    Args:
      different: differences from the scale's base, as for `scales.config`.
      tflops: the speed of the training, TFLOP/s, which gives the hours; None measures updates instead.
      with_memory: whether to ask XLA for the memory of an update.
      topology: TPUs, whose compiler then gives hours and memory.

    Raises:
      ConfigError: a row does not fit into the memory of the TPUs.
    """
    resolved = [scales.config(row, scale, different) for row in rows]
    columns = _columns(rows, resolved, scale)
    if topology:
        costs = _measured(functools.partial(tpu.seconds_and_gib, topology), rows, resolved)
        seconds, gib = zip(*costs, strict=True)
        columns += [_numbers('s/update', seconds), _numbers('GiB', gib)]
    elif tflops is None:
        seconds = _measured(seconds_per_update, rows, resolved)
        columns.append(_numbers('s/update', seconds))
    else:
        seconds = [cost(config).update_flops / tflops / 1e12 for config in resolved]
    if with_memory:
        columns.append(_numbers('GiB', _measured(peak_memory, rows, resolved)))
    hours = [update * config.train.steps / 3600 for update, config in zip(seconds, resolved, strict=True)]
    columns.append(_numbers('hours', hours))
    measured = 's/update x steps, without evaluations'
    notes = [f'hours: {measured if tflops is None or topology else f"at {tflops:g} TFLOP/s"}']
    if topology:
        notes.append(
            f's/update: the longer of FLOPs and bytes at the peaks of {topology}; GiB a device; both by its '
            'compiler'
        )
    elif tflops is None or with_memory:
        device = jax.devices()[0]
        notes.append(
            f's/update and GiB a device: {jax.device_count()} x {device.device_kind} ({device.platform})'
        )
    if scale == 'paper' and any(map(_paper_flops, rows)):
        notes.append(WHY_DIFFERENT)
    for row in rows:
        changed = scales.changes(row, scale, different)
        other = [f'{key}={value}' for key, value in changed.items() if key not in tables.OPTIONS]
        if other:
            source = f' ({row.source})' if row.source else ''
            notes.append(f'{row.name}: {", ".join(other)}{source}')
    print(formats.terminal([column for column in columns if any(column.texts)], notes), end='')


def _columns(rows: Sequence[tables.Row], resolved: Sequence[Config], scale: str) -> list[Column]:
    """What each row is, and what it costs by formula."""
    costs = [cost(config) for config in resolved]
    paper_flops = [_paper_flops(row) if scale == 'paper' else '' for row in rows]
    options = [
        Column(
            key.partition('.')[2],
            'option',
            [tables.shown(key, tables.value_of(config, key)) for config in resolved],
        )
        for key in tables.OPTIONS
    ]
    return [
        Column('row', 'row', [row.name for row in rows]),
        *options,
        Column('params', 'cost', [f'{each.params / 1e6:.2f}M' for each in costs]),
        Column('paper', 'cost', [_printed(row, 'params', '{:g}M') for row in rows]),
        Column('FLOPs/update', 'cost', [f'{each.update_flops:.2e}' for each in costs]),
        Column('FLOPs', 'cost', [f'{each.run_flops:.2e}' for each in costs]),
        Column('Table 2', 'cost', paper_flops),
        Column('tokens', 'cost', [f'{each.tokens:.2e}' for each in costs]),
    ]


def print_rows(rows: Sequence[tables.Row], names: Sequence[str], *, markdown: bool) -> None:
    """Prints how each row differs from the base of several scales.

    Raises:
      ConfigError: a row is impossible at one of them.
    """
    columns, notes = [Column('row', 'row', [row.name for row in rows])], []
    for name in names:
        base = configs.flatten(scales.config(tables.Row('base', {}), name))
        told = []
        for row in rows:
            scales.config(row, name)  # a row that is impossible here is told
            changed = scales.changes(row, name).items()
            told.append(', '.join(_told(key, value) for key, value in changed if value != base[key]))
        columns.append(Column(name, 'text', [text or 'as base' for text in told]))
        sizes = [key for key in tables.OPTIONS if key not in ('model.d_k', 'model.d_v')]
        notes.append(f'base at the scale {name}: {", ".join(_told(key, base[key]) for key in sizes)}')
    print(formats.markdown(columns, notes) if markdown else formats.terminal(columns, notes), end='')


def _told(key: str, value: object) -> str:
    return f'{key.partition(".")[2]} {tables.shown(key, value)}'


def _numbers(heading: str, numbers: Iterable[float]) -> Column:
    return Column(heading, 'cost', [f'{number:.3g}' for number in numbers])


def _measured(
    measure: Callable[[Config], Measured], rows: Iterable[tables.Row], resolved: Iterable[Config]
) -> list[Measured]:
    """Measures every row, with a dot on standard error for each."""
    known, found = functools.cache(measure), []
    for row, config in zip(rows, resolved, strict=True):
        try:
            # Rows that differ in these alone have the same program.
            found.append(known(configs.replace(config, {'train.steps': 1, 'train.average_last': 0})))
        except ConfigError as error:
            raise ConfigError(f'{row.name}: {error}') from None
        print('.', end='', file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def _printed(row: tables.Row, key: str, form: str) -> str:
    return form.format(row.paper[key]) if key in row.paper else ''


def _paper_flops(row: tables.Row) -> str:
    """What Table 2 prints for the row; base and big of Table 3 are its first two models."""
    if row in tables.TABLE_3:
        row = {'base': tables.TABLE_2[0], 'big': tables.TABLE_2[1]}.get(row.name, row)
    return _printed(row, 'FLOPs', '{:.1e}')
