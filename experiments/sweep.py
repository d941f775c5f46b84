"""Sweeps over the rows of a table.

    python -m experiments.sweep plan --table=3 --scale=paper
    python -m experiments.sweep run --table=3 --scale=grammar --seeds=3 --workdir=FOLDER
    python -m experiments.sweep status --workdir=FOLDER

`run` called again runs what is missing.
"""

import dataclasses
import datetime
import functools
import itertools
import math
import pathlib
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from tabulate import tabulate

from experiments import command, launch, runs, tables
from transformer import accounting, parallel, train
from transformer import config as configs
from transformer.config import Config, ConfigError
from transformer.nn import models

P100 = 9.5  # TFLOP/s, as the paper counts
PAPER_DEVICES = 8
COLUMNS = ('N', 'd_model', 'd_ff', 'h', 'd_k', 'd_v', 'P_drop')
WHY_DIFFERENT = (
    'Table 2 counts hours x 8 devices x the 9.5 TFLOP/s of a P100 (12 h: 3.3e18, 3.5 days: 2.3e19); ours\n'
    'are the products of the model alone, so that their ratio is the share of the peak that was used.'
)


class Plan(NamedTuple):
    """What a row costs; FLOPs and tokens (of either side, padding counted) of the whole run."""

    params: int
    update_flops: float
    run_flops: float
    tokens: int


def plan(config: Config) -> Plan:
    """The cost of a config, by formula."""
    update = accounting.update_flops(config)
    return Plan(
        params=accounting.parameters(models.parameter_shapes(config)),
        update_flops=update,
        run_flops=update * config.train.steps,
        tokens=config.data.batch_tokens * config.train.steps,
    )


def blank_batch(config: Config) -> dict[str, np.ndarray]:
    """A batch of full rows, as large as the config's are."""
    data = config.data
    width = data.row_len if data.batching == 'packed' else accounting.BUCKET_LENGTH
    rows = max(data.batch_tokens // width // config.train.microbatches, 1) * config.train.microbatches
    draw = np.random.default_rng(0)
    batch = {}
    for side in ('source', 'target'):
        batch[side] = draw.integers(3, data.pieces, (rows, width), np.int32)
        batch[f'{side}_segments'] = np.ones((rows, width), np.int32)
        batch[f'{side}_positions'] = np.tile(np.arange(width, dtype=np.int32), (rows, 1))
    return batch


def seconds_per_update(config: Config, updates: int = 3, replicas: int = 0) -> float:
    """The time of an update on the devices at hand, the compilation not counted.

    Args:
      replicas: of the training that one program updates at once, each with a batch; 0 is a plain one.
    """
    step = functools.partial(train.train_step, config)
    state = train.initial_state(config)
    batch = parallel.to_devices(blank_batch(config), config.train.microbatches)
    if replicas:
        step = jax.vmap(step)
        state = jax.tree.map(lambda leaf: jnp.stack([leaf] * replicas), state)
        batch = jax.tree.map(lambda leaf: jnp.stack([leaf] * replicas, axis=1), batch)
    update = parallel.map_update(step)
    state, _ = update(parallel.replicate(state), batch)
    jax.block_until_ready(state)
    start = time.perf_counter()
    for _ in range(updates):
        state, _ = update(state, batch)
    jax.block_until_ready(state)
    return (time.perf_counter() - start) / updates


def peak_memory(config: Config) -> float:
    """The memory of an update by XLA's plan, GiB a device: state, batch and what lives in between."""
    update = parallel.map_update(functools.partial(train.train_step, config))
    shapes = jax.eval_shape(functools.partial(train.initial_state, config))
    batch = parallel.to_devices(blank_batch(config), config.train.microbatches)
    found = update.lower(shapes, batch).compile().memory_analysis()
    # The state is given up for the new one, so it counts once.
    return (found.argument_size_in_bytes + found.temp_size_in_bytes) / 2**30


def print_plan(values: flags.FlagValues) -> None:
    """A line a row: what it changes, parameters, FLOPs, tokens and hours, ours and the paper's."""
    rows = {row.name: row for row in tables.rows(values.table, values.rows)}
    different = _different(values)
    resolved = {name: tables.config(row, values.scale, different) for name, row in rows.items()}
    plans = {name: plan(config) for name, config in resolved.items()}
    header = ['row', *COLUMNS, 'eps_ls', 'steps', 'params', 'paper', 'FLOPs/update', 'FLOPs', 'Table 2']
    header += ['tokens', 'hours']
    lines = []
    for name, config in resolved.items():
        cost = plans[name]
        lines.append(
            [
                name,
                *(f'{getattr(config.model, column):g}' for column in COLUMNS),
                f'{config.train.eps_ls:g}',
                f'{config.train.steps / 1000:g}K',
                f'{cost.params / 1e6:.2f}M',
                _printed(rows[name], 'params', '{:g}M'),
                f'{cost.update_flops:.2e}',
                f'{cost.run_flops:.2e}',
                _paper_flops(rows[name]) if values.scale == 'paper' else '',
                f'{cost.tokens:.2e}',
                f'{cost.run_flops / values.tflops / 1e12 / 3600:.3g}',
            ]
        )
    for title, wanted, measure in (
        ('s/update', values.time, seconds_per_update),
        ('GiB', values.memory, peak_memory),
    ):
        if wanted:
            _append(header, lines, title, resolved.values(), measure)
    print(_table(lines, header))
    print(f'hours: at {values.tflops:g} TFLOP/s')
    if values.time or values.memory:
        device = jax.devices()[0]
        print(f's/update and GiB a device: {jax.device_count()} x {device.device_kind} ({device.platform})')
    if values.scale == 'paper' and any(map(_paper_flops, rows.values())):
        print(WHY_DIFFERENT)
    for name, row in rows.items():
        if other := {
            k: v for k, v in tables.changes(row, values.scale, different).items() if not _in_columns(k)
        }:
            source = f' ({row.source})' if row.source else ''
            print(f'{name}: {", ".join(f"{key}={value}" for key, value in other.items())}{source}')


def _append(
    header: list[str], lines: list[list[str]], title: str, rows: Iterable[Config], measure: Callable
) -> None:
    known = functools.cache(measure)
    header.append(title)
    for line, config in zip(lines, rows, strict=True):
        # What a program is made of: neither how long it runs nor what is done beside it.
        free = {'train.steps': 1, 'train.average_last': 0}
        line.append(f'{known(configs.replace(config, free)):.3g}')
        print('.', end='', file=sys.stderr, flush=True)
    print(file=sys.stderr)


def _in_columns(key: str) -> bool:
    return key.split('.')[1] in (*COLUMNS, 'eps_ls', 'steps')


def _printed(row: tables.Row, key: str, form: str) -> str:
    return form.format(row.paper[key]) if key in row.paper else ''


def _paper_flops(row: tables.Row) -> str:
    """What Table 2 prints of the two models that it has."""
    of_table_2 = {'base': tables.TABLE_2[0], 'big': tables.TABLE_2[1]}.get(row.name, row)
    return _printed(of_table_2, 'FLOPs', '{:.1e}')


def _table(lines: list[list[str]], header: list[str]) -> str:
    """Aligned columns; all but the first to the right, as they are."""
    return tabulate(
        lines, header, 'simple', colalign=['left'] + ['right'] * (len(header) - 1), disable_numparse=True
    )


def _different(values: flags.FlagValues) -> dict[str, object]:
    """What --set says."""
    found = dict(_pair('set', said) for said in values.set)
    if 'train.seed' in found:
        raise ConfigError('--set=train.seed: --seeds says how many')
    return {key: configs.parse_value(key, value) for key, value in found.items()}


def _workdir(values: flags.FlagValues) -> pathlib.Path:
    return pathlib.Path(values.workdir or f'runs/table{values.table}-{values.scale}')


def run_rows(values: flags.FlagValues) -> int:
    """Runs what is missing of the rows and seeds; the exit status."""
    rows = tables.rows(values.table, values.rows)
    asked = tuple(itertools.product([row.name for row in rows], range(1, values.seeds + 1)))
    workdir = _workdir(values)
    new = runs.Sweep(values.table, values.scale, _different(values), asked)
    resources = _resources(values) if values.launcher == 'slurm' else {}
    runs.joined(workdir, new).all_runs(workdir)
    with runs.alone(workdir):
        sweep = runs.joined(workdir, new)
        mine = [s for s in runs.states(sweep, workdir) if (s.run.row, s.run.seed) in asked]
        missing = [s.run for s in mine if s.state in runs.MISSING]
        print(f'{workdir}: {len(missing)} of {len(mine)} runs to do', flush=True)
        if resources and missing:
            jobs = launch.on_slurm(missing, workdir, values.parallel or 256, resources)
            sweep = dataclasses.replace(sweep, jobs={**sweep.jobs, **jobs})
            print(f'submitted as {", ".join(sorted({job.partition("_")[0] for job in jobs.values()}))}')
        runs.write_sweep(workdir, sweep)
    if resources:
        return 0
    ended = launch.on_this_machine(missing, workdir, values.parallel or 1, values.gpus)
    for number, state in enumerate(ended, 1):
        error = f': {state.error}' if state.error else ''
        print(f'[{number}/{len(missing)}] {state.run.name}: {state.state}{error}', flush=True)
    left = [s for s in runs.states(sweep, workdir) if s.run in missing and s.state != 'done']
    if left:
        print(f'{len(left)} of {len(mine)} runs are not done; the same command goes on with them')
    return 1 if left else 0


def _resources(values: flags.FlagValues) -> dict[str, object]:
    """What a job asks of SLURM, as submitit calls it.

    Raises:
      ConfigError: there is no SLURM, or a flag is no option of it.
    """
    launch.check_slurm()
    found = {
        'timeout_min': math.ceil(60 * values.hours),
        'cpus_per_task': values.cpus,
        'mem_gb': values.mem_gb,
    }
    if values.gpus:
        found['gpus_per_node'] = values.gpus
    if values.sbatch:
        found['slurm_additional_parameters'] = dict(_pair('sbatch', said) for said in values.sbatch)
    return found


def _pair(flag: str, said: str) -> tuple[str, str]:
    key, equals, value = said.partition('=')
    if not equals:
        raise ConfigError(f'--{flag}={said}: expected OPTION=VALUE')
    return key, value


def print_status(values: flags.FlagValues) -> None:
    """A line a run, and how long all of them will take."""
    workdir = _workdir(values)
    states = runs.states(runs.read_sweep(workdir), workdir)
    lines = [[s.run.name, s.state, f'{s.step}/{s.run.steps}', _duration(s.seconds), s.error] for s in states]
    align = ('left', 'left', 'right', 'right', 'left')
    print(tabulate(lines, ['run', 'state', 'step', 'left', 'error'], 'simple', colalign=align))
    counts = {name: [s.state for s in states].count(name) for name in runs.STATES}
    told = ', '.join(f'{count} {name}' for name, count in counts.items() if count)
    print(f'{workdir}: {told}{_all_left(states)}')


def _all_left(states: list[runs.State]) -> str:
    """The training that is left, where what was trained says how long that is."""
    known = [s.seconds_per_step for s in states if s.seconds_per_step is not None]
    running = sum(s.state == 'running' for s in states)
    if not known or not running:
        return ''
    mean = sum(known) / len(known)
    # What failed or was stopped waits for a relaunch.
    coming = [s for s in states if s.state in ('running', 'queued', 'missing')]
    seconds = sum((s.run.steps - s.step) * (s.seconds_per_step or mean) for s in coming)
    return f'; {_duration(seconds / running)} of training left with {running} at a time'


def _duration(seconds: float | None) -> str:
    return '' if seconds is None else str(datetime.timedelta(seconds=round(seconds)))


def main(argv: Sequence[str]) -> int:
    """Executes one command; returns the exit status."""
    values = flags.FlagValues()
    own = {'flag_values': values}
    flags.DEFINE_string('table', '3', f'one of {", ".join(tables.TABLES)}', **own)
    flags.DEFINE_string('rows', None, 'rows, comma-separated; all if none', **own)
    flags.DEFINE_string('scale', 'paper', f'one of {", ".join(tables.SCALES)}', **own)
    flags.DEFINE_multi_string('set', [], 'OPTION=VALUE of the base that rows differ from', **own)
    flags.DEFINE_float('tflops', PAPER_DEVICES * P100, 'TFLOP/s of the training', lower_bound=1e-6, **own)
    flags.DEFINE_boolean('time', False, 'measure updates on the devices at hand', **own)
    flags.DEFINE_boolean('memory', False, 'ask XLA for the memory of an update', **own)
    flags.DEFINE_string('workdir', None, 'of the sweep; runs/table<table>-<scale> if none', **own)
    flags.DEFINE_integer('seeds', 1, 'runs of a row, with the seeds from 1 on', lower_bound=1, **own)
    flags.DEFINE_enum('launcher', 'local', launch.LAUNCHERS, 'where to run', **own)
    flags.DEFINE_integer(
        'parallel', None, 'runs at a time at most; 1, or 256 on SLURM, if none', lower_bound=1, **own
    )
    flags.DEFINE_integer('gpus', 0, 'of a run; on this machine 0 is all that there are', lower_bound=0, **own)
    flags.DEFINE_integer('cpus', 2, 'of a run on SLURM', lower_bound=1, **own)
    flags.DEFINE_float('mem_gb', 8, 'of a run on SLURM', lower_bound=0.1, **own)
    flags.DEFINE_float('hours', 24, 'of a job on SLURM; then it is queued again', lower_bound=0.1, **own)
    flags.DEFINE_multi_string('sbatch', [], 'OPTION=VALUE of sbatch, as partition=gpu', **own)
    return command.run(argv, values, {'plan': print_plan, 'run': run_rows, 'status': print_status})


if __name__ == '__main__':
    sys.exit(main(sys.argv))
