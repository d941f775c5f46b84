"""Plans, trains and watches the rows of a table.

python -m experiments.sweep plan --table=3 --scale=paper
python -m experiments.sweep run --table=3 --scale=grammar --seeds=3
python -m experiments.sweep status --table=3 --scale=grammar
"""

import contextlib
import dataclasses
import datetime
import itertools
import math
import pathlib
import re
import shutil
import sys
from collections.abc import Sequence

from absl import flags
from tabulate import tabulate

from experiments.compiled import tpu
from experiments.reports.results import check_tasks
from experiments.sweeps import cost, launch, runs
from experiments.tables import rows as tables
from experiments.tables import scales, user_files
from experiments.tables.table import printed_scores
from transformer import locks
from transformer.cli.flags import Call, Command, Flag, Program, parse_changes, parse_numbers, parse_pairs
from transformer.cli.main import run_program
from transformer.config import ConfigError
from transformer.progress import Heartbeat
from transformer.tasks import task_of


def print_plan(call: Call) -> None:
    """Prints the cost of each row."""
    values = call.flags
    given = [name for name in ('tflops', 'time', 'topology') if values[name].value]
    if len(given) > 1:
        raise ConfigError(f'--{given[0]} and --{given[1]}: both set the speed; give one of them')
    if values.topology and values.memory:
        raise ConfigError(f'--memory: --topology={values.topology} prints the memory already')
    accumulate = parse_numbers('accumulate', values.accumulate)
    if accumulate and not values.topology:
        raise ConfigError(
            f'--accumulate={values.accumulate}: needs --topology, whose compiler estimates the times'
        )
    if values.topology:
        tpu.prepare()
    speed = values.tflops or cost.PAPER_DEVICES * cost.P100
    cost.print_plan(
        _rows(values),
        _scale(values),
        _different(values),
        tflops=None if values.time else speed,
        with_memory=values.memory,
        topology=values.topology,
        accumulate=accumulate,
    )


def run_rows(call: Call) -> int:
    """Trains the rows and seeds that have no result yet.

    Returns:
      The exit status: 0, or 1 if a run is not done; on SLURM 0 once the runs are submitted.
    """
    values = call.flags
    if ignored := [name for name in ON_SLURM if values[name].present and values.launcher != 'slurm']:
        raise ConfigError(f'--{ignored[0]}: for SLURM only; needs --launcher=slurm')
    workdir = _workdir(values)
    new = _requested_sweep(values, workdir)
    chosen = new.runs
    resources = _resources(values) if values.launcher == 'slurm' else {}
    runs.join(workdir, new).all_runs(workdir)
    (workdir / 'jobs').mkdir(parents=True, exist_ok=True)
    with locks.exclusive(workdir / 'jobs' / 'sweep.lock'):
        sweep = runs.join(workdir, new)
        states = [s for s in runs.states(sweep, workdir) if (s.run.row, s.run.seed) in chosen]
        missing = [s.run for s in states if s.state in runs.MISSING]
        # By seed, so that an interrupted sweep has all rows for some seeds; the longest runs first, so that
        # no long run is alone at the end.
        missing.sort(key=lambda run: (run.seed, -run.steps))
        print(f'{workdir}: {len(missing)} of {len(states)} runs to do', flush=True)
        for aside in filter(None, (runs.set_aside(sweep, run) for run in missing)):
            print(f'{aside}: begun with other options, and moved here', flush=True)
        if resources and missing:
            jobs = launch.on_slurm(missing, workdir, values.parallel or 256, resources)
            sweep = dataclasses.replace(sweep, jobs={**sweep.jobs, **jobs})
            print(f'submitted as {", ".join(sorted({job.partition("_")[0] for job in jobs.values()}))}')
        runs.write_sweep(workdir, sweep)
    if resources:
        return 0
    ended = launch.on_this_machine(missing, workdir, values.parallel or 1, values.gpus)

    def say(seconds: float) -> None:
        # The runs continue if nobody reads the line any more, or a file that it needs is damaged.
        with contextlib.suppress(OSError, ConfigError):
            print(_running(runs.states(sweep, workdir)), flush=True)

    with launch.exit_at_sigterm(), Heartbeat(say, every=MINUTE):
        for number, state in enumerate(ended, 1):
            error = f': {state.error}' if state.error else ''
            print(f'[{number}/{len(missing)}] {state.run.name}: {state.state}{error}', flush=True)
    # Runs of another process count, too.
    left = [s for s in runs.states(sweep, workdir) if (s.run.row, s.run.seed) in chosen and s.state != 'done']
    if left:
        print(f'{len(left)} of {len(states)} runs are not done; the same command continues them')
    return 1 if left else 0


def _requested_sweep(values: flags.FlagValues, workdir: pathlib.Path) -> runs.Sweep:
    """Returns the sweep that a call names: by a table and its base or, with --workdir alone, by the folder.

    Of the folder's sweep, --rows and --seeds choose other rows or seeds than those that it has.
    """
    named = any(values[name].present for name in ('table', 'grid', 'scale', 'set'))
    if named or not values['workdir'].present or not (workdir / runs.SWEEP).exists():
        chosen = tuple(itertools.product([row.name for row in _rows(values)], _seeds(values.seeds)))
        return runs.Sweep(_table(values), _scale(values), _different(values), chosen)
    sweep = dataclasses.replace(runs.read_sweep(workdir), jobs={})
    if not (values['rows'].present or values['seeds'].present):
        return sweep
    if not sweep.runs:
        raise ConfigError(f'{workdir}: has no row of its table any more; name the --table')
    rows, seeds = (dict.fromkeys(part) for part in zip(*sweep.runs, strict=True))
    if values['rows'].present:
        rows = [row.name for row in tables.rows(sweep.table, values.rows)]
    if values['seeds'].present:
        seeds = _seeds(values.seeds)
    return dataclasses.replace(sweep, runs=tuple(itertools.product(rows, seeds)))


def _resources(values: flags.FlagValues) -> dict[str, object]:
    """Returns the resources of a SLURM job, under submitit's names."""
    if not shutil.which('sbatch'):
        raise ConfigError('--launcher=slurm: there is no sbatch on this machine')
    resources = {
        'timeout_min': math.ceil(60 * values.hours),
        'cpus_per_task': values.cpus,
        'mem_gb': values.mem_gb,
    }
    if values.gpus:
        resources['gpus_per_node'] = values.gpus
    if values.sbatch:
        resources['slurm_additional_parameters'] = parse_pairs('sbatch', values.sbatch)
    return resources


def _seeds(text: str) -> range:
    """Parses --seeds: 3 means the seeds 1, 2 and 3, and 2-6 the seeds 2 to 6."""
    match = re.fullmatch(r'(?:(\d+)-)?(\d+)', text, re.ASCII)
    first, last = (int(match[1] or 1), int(match[2])) if match else (0, 0)
    if not 1 <= first <= last < MOST_SEEDS:
        raise ConfigError(
            f'--seeds={text}: give 3 for the seeds 1 to 3, or a range such as 2-6; below {MOST_SEEDS:,}'
        )
    return range(first, last + 1)


def _table(values: flags.FlagValues) -> str:
    """Returns the name of the table, or the description of the grid."""
    if values.grid and values['table'].present:
        raise ConfigError('--grid: instead of --table; give one of them')
    for word in values.grid:
        if not tables.is_grid(word):
            raise ConfigError(f'--grid={word}: expected OPTION=VALUE,VALUE')
    return ' '.join(values.grid) if values.grid else user_files.stored_name(values.table)


def _rows(values: flags.FlagValues) -> tuple[tables.Row, ...]:
    """Returns the chosen rows.

    Raises:
      ConfigError: the rows' task has none of the table's scores at this scale, or they have several.
    """
    rows, table = tables.rows(_table(values), values.rows), tables.table(_table(values))
    resolved = {row.name: scales.config(row, _scale(values), _different(values)) for row in rows}
    check_tasks(resolved, 'rows')
    config = resolved[rows[0].name]
    if not printed_scores(table, task_of(config)):
        raise ConfigError(
            f"--scale={_scale(values)}: trains {config.train.task}, which has none of this table's scores "
            f'({", ".join(table.measures)}); choose a scale of another task'
        )
    return rows


def _scale(values: flags.FlagValues) -> str:
    return scales.stored_name(values.scale) if values.scale else scales.default_scale(_table(values))


def _workdir(values: flags.FlagValues) -> pathlib.Path:
    return pathlib.Path(values.workdir or runs.folder(_table(values), _scale(values)))


def _different(values: flags.FlagValues) -> dict[str, object]:
    """Returns the changes of the scale's base that flags --set make."""
    changes = parse_changes(values.set)
    if 'train.seed' in changes:
        raise ConfigError('--set=train.seed: a sweep sets it; choose seeds with --seeds')
    if both := [word for word in values.grid if word.partition('=')[0] in changes]:
        raise ConfigError(f'--grid={both[0]}: --set sets this option too; give one of them')
    return changes


def print_status(call: Call) -> None:
    """Prints the progress of each run, and the time until all of them are done."""
    values, workdir = call.flags, _workdir(call.flags)
    table = _table(values) if values['table'].present or values.grid else None
    named = {'table': table, 'scale': _scale(values) if values['scale'].present else None}
    states = runs.states(runs.read_sweep(workdir, **named), workdir)
    lines = [
        [s.run.name, s.state, f'{s.step}/{s.run.steps}', _duration(seconds), s.error]
        for s, seconds in zip(states, runs.seconds_left(states), strict=True)
    ]
    align = ('left', 'left', 'right', 'right', 'left')
    print(tabulate(lines, ['run', 'state', 'step', 'left', 'error'], 'simple', colalign=align))
    counts = {name: [s.state for s in states].count(name) for name in runs.STATES}
    summary = ', '.join(f'{count} {name}' for name, count in counts.items() if count)
    print(f'{workdir}: {summary}{_total_left(states)}')


def _running(states: list[runs.RunState]) -> str:
    """Describes how far the running runs of a sweep are, in one line."""
    running = ', '.join(f'{s.run.name} {s.step}/{s.run.steps}' for s in states if s.state == 'running')
    done = sum(s.state == 'done' for s in states)
    return f'{done} of {len(states)} done; running: {running or "soon"}{_total_left(states)}'


def _total_left(states: list[runs.RunState]) -> str:
    """Describes the time until all runs are done, or returns '' if no run is running or a time is unknown."""
    running = sum(s.state == 'running' for s in states)
    # Runs that failed or were stopped wait until `run` is called again.
    left = zip(states, runs.seconds_left(states), strict=True)
    seconds = [rest for state, rest in left if state.state in ('running', 'queued', 'missing')]
    if not running or None in seconds:
        return ''
    return f'; {_duration(sum(seconds) / running)} left with {running} at a time'


def _duration(seconds: float | None) -> str:
    return '' if seconds is None else str(datetime.timedelta(seconds=round(seconds)))


def print_rows(call: Call) -> None:
    """Prints the changes of each row at several scales."""
    values = call.flags
    rows = tables.rows(_table(values), values.rows)
    written_for = tables.table(_table(values)).rows[0].scale
    names = OF_TABLES if written_for in (None, *OF_TABLES) else [written_for]
    if values.scale:
        names = [_scale(values)]
    cost.print_rows(rows, names, markdown=values.format == 'markdown')


SCALE = ('table', 'grid', 'rows', 'scale', 'set')
MOST_SEEDS = 10_000
MINUTE = 60.0  # between two lines about the runs
OF_TABLES = ('paper', 'multi30k', 'grammar')  # scales for the paper's rows
_BASE = f'the base of the rows: {", ".join(scales.SCALES)}, or a config, by its file or name'
FLAGS = {
    'table': Flag(str, '3', f'{", ".join(tables.TABLES)}, or a file of your own', 'NAME'),
    'grid': Flag(
        str,
        [],
        'instead of a table: values of an option, such as model.h=1,4; repeated, all combinations',
        'OPTION=VALUES',
        many=True,
    ),
    'rows': Flag(str, None, 'names of rows, separated by commas (default: all)', 'NAMES'),
    'scale': Flag(str, None, f'{_BASE} (default: the scale of the table)', 'NAME'),
    'set': Flag(str, [], 'change of that base; may be repeated', 'OPTION=VALUE', many=True),
    'tflops': Flag(
        float, None, "the speed of the training in TFLOP/s (default: the paper's 76)", 'N', least=1e-6
    ),
    'time': Flag(bool, False, 'measure updates on the devices at hand'),
    'memory': Flag(bool, False, 'ask XLA for the memory of an update'),
    'format': Flag(str, 'terminal', 'the format of the table', 'NAME', choices=('terminal', 'markdown')),
    'topology': Flag(str, None, 'compile for TPUs, such as v5e:2x4, with their own compiler', 'NAME'),
    'accumulate': Flag(
        str, '', 'with --topology: values of train.accumulate, of which the fastest is shown', 'NUMBERS'
    ),
    'workdir': Flag(str, None, 'folder of the sweep (default: runs/table<table>-<scale>)', 'FOLDER'),
    'seeds': Flag(str, '1', 'seeds of each row: 3 means 1 to 3, 2-6 means 2 to 6', 'N'),
    'launcher': Flag(str, 'local', 'this machine or a SLURM cluster', 'NAME', choices=launch.LAUNCHERS),
    'parallel': Flag(int, None, 'the most runs at a time (default: 1; on SLURM 256)', 'N', least=1),
    'gpus': Flag(int, 0, 'GPUs of each run; on this machine 0 means all', 'N', least=0),
    'cpus': Flag(int, 2, 'CPU cores of a run on SLURM', 'N', least=1),
    'mem_gb': Flag(float, 8.0, 'memory of a run on SLURM, in GB', 'N', least=0.1),
    'hours': Flag(float, 24.0, 'time limit on SLURM, after which a job is queued again', 'N', least=0.1),
    'sbatch': Flag(str, [], 'an option of sbatch, such as partition=gpu', 'OPTION=VALUE', many=True),
}
ON_SLURM = ('cpus', 'mem_gb', 'hours', 'sbatch')
COMMANDS = {
    'plan': Command(
        'Print the cost of each row: parameters, FLOPs, tokens and hours.',
        print_plan,
        (*SCALE, 'tflops', 'time', 'memory', 'topology', 'accumulate'),
        examples=(
            '{} plan --table=3 --scale=paper',
            '{} plan --scale=grammar --time --memory',
            '{} plan --topology=v5e:1x1 --accumulate=1,2,4,8',
        ),
    ),
    'rows': Command(
        'Print the changes of each row at --scale. Default: paper, multi30k and grammar, or the own scale '
        'of a table that is written for another one.',
        print_rows,
        ('table', 'grid', 'rows', 'scale', 'format'),
        examples=('{} rows --table=3', '{} rows --table=further --scale=grammar'),
        own={'scale': FLAGS['scale']._replace(meaning=f'{_BASE} (default: see above)')},
    ),
    'run': Command(
        'Train every row with every seed; called again, also with --workdir alone, train only what is '
        'missing.',
        run_rows,
        (*SCALE, 'workdir', 'seeds', 'parallel', 'launcher', 'gpus', *ON_SLURM),
        examples=(
            '{} run --table=3 --scale=grammar --seeds=3',
            '{} run --grid=model.h=1,4,8 --scale=configs/tiny.py',
            '{} run --rows=base,A1 --launcher=slurm --gpus=1',
        ),
    ),
    'status': Command(
        'Print the progress of each run, and the time until all of them are done.',
        print_status,
        ('workdir', 'table', 'grid', 'scale'),
        examples=('{} status --workdir=FOLDER',),
    ),
}


def main(argv: Sequence[str]) -> int:
    """Runs one command and returns the exit status."""
    return run_program(argv, Program('python -m experiments.sweep', __doc__, COMMANDS, FLAGS))


if __name__ == '__main__':
    sys.exit(main(sys.argv))
