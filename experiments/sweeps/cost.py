"""Plans a table: the parameters, FLOPs, tokens, time and memory that its rows need."""

import functools
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import jax

from experiments.compiled import tpu
from experiments.rendering import formats
from experiments.rendering.formats import Column
from experiments.speed import updates
from experiments.tables import rows as tables
from experiments.tables import scales
from experiments.tables.table import OPTIONS, shown, values_of
from transformer import config as configs
from transformer.config import Config, errors_in
from transformer.nn import cost as nn_cost

P100 = 9.5  # TFLOP/s, as the paper counts
PAPER_DEVICES = 8


def timer(config: Config) -> Callable[[int], float]:
    """Compiles an update on the devices at hand, and returns `count -> mean seconds of count updates`."""
    run = updates.make_passes(config, [updates.full_batch(config)])
    run(1)

    def measure(count: int) -> float:
        start = time.perf_counter()
        run(count)
        return (time.perf_counter() - start) / count

    return measure


def print_plan(
    rows: Sequence[tables.Row],
    scale: str,
    different: Mapping[str, object],
    *,
    tflops: float | None,
    with_memory: bool,
    topology: str | None = None,
    accumulate: Sequence[int] = (),
) -> None:
    """Prints a line for each row: options, parameters, FLOPs, tokens, hours, and what the paper prints.

    Args:
      different: changes of the scale's base, as for `scales.config`.
      tflops: the training speed in TFLOP/s, which gives the hours; None measures updates instead.
      with_memory: whether to ask XLA for the memory of an update.
      topology: TPUs whose compiler estimates hours and memory instead.
      accumulate: with a topology, values of `train.accumulate` of which the fastest is shown.
    """
    resolved = [scales.config(row, scale, different) for row in rows]
    columns = _columns(rows, resolved, scale)
    by_speed = tflops is not None and not topology
    if topology:
        estimates = _measure(functools.partial(tpu.estimate, topology, accumulate), rows, resolved)
        seconds, gib, chunks = zip(*estimates, strict=True)
        columns += [_numbers('s/update', seconds), _numbers('GiB', gib), _numbers('accumulate', chunks)]
    elif by_speed:
        seconds = [nn_cost.update_flops(config) / tflops / 1e12 for config in resolved]
    else:
        seconds = _measure(lambda config: timer(config)(3), rows, resolved)
        columns.append(_numbers('s/update', seconds))
    if with_memory:
        columns.append(_numbers('GiB', _measure(updates.peak_memory, rows, resolved)))
    hours = [update * config.train.steps / 3600 for update, config in zip(seconds, resolved, strict=True)]
    columns.append(_numbers('hours', hours))
    how = (
        f'at {tflops:g} TFLOP/s (--tflops), not measured here (--time)'
        if by_speed
        else 's/update x steps, without evaluations'
    )
    notes = [f'hours: {how}; {sum(hours):.3g} in all, for one seed']
    if topology:
        notes.append(
            f"s/update: by the estimate of cycles of {topology}'s compiler; GiB per device: by its plan"
        )
    elif not by_speed or with_memory:
        device = jax.devices()[0]
        what = ' and '.join(['s/update'] * (not by_speed) + ['GiB per device'] * with_memory)
        notes.append(f'{what}: {jax.device_count()} x {device.device_kind} ({device.platform})')
    notes += filter(None, (_other_changes(row, scale, different) for row in rows))
    print(formats.terminal([column for column in columns if any(column.texts)], notes), end='')


def _other_changes(row: tables.Row, scale: str, different: Mapping[str, object]) -> str:
    """Formats a row's changes of options that have no column, or returns '' if there are none."""
    changes = scales.changes(row, scale, different)
    others = [f'{key}={value}' for key, value in changes.items() if key not in OPTIONS]
    source = f' ({row.source})' if row.source else ''
    return f'{row.name}: {", ".join(others)}{source}' if others else ''


def _columns(rows: Sequence[tables.Row], resolved: Sequence[Config], scale: str) -> list[Column]:
    """Makes the columns of each row's options, and of the costs that follow from its config."""
    columns = [Column('row', 'row', [row.name for row in rows])]
    values = [values_of(config, OPTIONS) for config in resolved]
    for key in OPTIONS:
        texts = [shown(key, of_row[key]) for of_row in values]
        columns.append(Column(key.partition('.')[2], 'option', texts))
    parameters = list(map(nn_cost.model_parameters, resolved))
    flops, steps = list(map(nn_cost.update_flops, resolved)), [config.train.steps for config in resolved]
    # Positions of one side, including padding.
    tokens = [nn_cost.update_rows(config) * nn_cost.row_length(config) for config in resolved]
    total = lambda per_update: [f'{n * count:.2e}' for n, count in zip(per_update, steps, strict=True)]
    costs = {
        'params': [f'{count / 1e6:.2f}M' for count in parameters],
        'paper': [_printed(row, 'params', '{:g}M') for row in rows],
        'FLOPs/update': [f'{number:.2e}' for number in flops],
        'FLOPs': total(flops),
        'Table 2': [_paper_flops(row) if scale == 'paper' else '' for row in rows],
        'tokens': total(tokens),
    }
    return [*columns, *(Column(name, 'cost', texts) for name, texts in costs.items())]


def print_rows(rows: Sequence[tables.Row], names: Sequence[str], *, markdown: bool) -> None:
    """Prints how each row differs from the base of several scales."""
    columns, notes = [Column('row', 'row', [row.name for row in rows])], []
    for name in names:
        base = configs.flatten(scales.config(tables.Row('base', {}), name))
        texts = []
        for row in rows:
            scales.config(row, name)  # raises if the row is impossible
            changes = scales.changes(row, name).items()
            texts.append(', '.join(_option(key, value) for key, value in changes if value != base[key]))
        columns.append(Column(name, 'text', [text or 'as base' for text in texts]))
        sizes = [key for key in OPTIONS if key not in ('model.d_k', 'model.d_v')]
        notes.append(f'base at the scale {name}: {", ".join(_option(key, base[key]) for key in sizes)}')
    print(formats.markdown(columns, notes) if markdown else formats.terminal(columns, notes), end='')


def _option(key: str, value: object) -> str:
    return f'{key.partition(".")[2]} {shown(key, value)}'


def _numbers(heading: str, numbers: Iterable[float]) -> Column:
    return Column(heading, 'cost', [f'{number:.3g}' for number in numbers])


def _measure(measure: Callable, rows: Iterable[tables.Row], resolved: Iterable[Config]) -> list:
    """Measures every row, and prints a dot for each on standard error."""
    measure, results = functools.cache(measure), []
    for row, config in zip(rows, resolved, strict=True):
        with errors_in(row.name):
            # Rows that differ only in these options share a program.
            results.append(measure(configs.replace(config, {'train.steps': 1, 'train.average_last': 0})))
        print('.', end='', file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return results


def _printed(row: tables.Row, key: str, form: str) -> str:
    return form.format(row.paper[key]) if key in row.paper else ''


def _paper_flops(row: tables.Row) -> str:
    """Formats a row's FLOPs in Table 2, whose first two rows are base and big of Table 3."""
    if row in tables.TABLE_3:
        row = {'base': tables.TABLE_2[0], 'big': tables.TABLE_2[1]}.get(row.name, row)
    return _printed(row, 'FLOPs', '{:.1e}')
