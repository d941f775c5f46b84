"""The runs of a sweep, each a row with a seed: their commands, and their progress as files record it.

`jobs/<run>.lock` is locked while the run trains, `jobs/<run>.json` records how it ended, and `jobs/<run>.log`
contains its output.
"""

import dataclasses
import itertools
import json
import operator
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from etils import epath

from experiments.tables import rows as tables
from experiments.tables import scales, user_files
from transformer import config as configs
from transformer import files, locks
from transformer.config import Config, ConfigError
from transformer.runs import metrics_file
from transformer.runs import workdir as workdirs

SWEEP = 'sweep.json'
STATES = ('done', 'running', 'queued', 'failed', 'stopped', 'missing')
MISSING = ('failed', 'stopped', 'missing')
FOLDER = 'data.dir'  # the option that may change while a sweep runs
_STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGTERM)


@dataclasses.dataclass(frozen=True)
class SweepRun:
    """A row of a table with a seed."""

    row: str
    seed: int
    steps: int
    workdir: pathlib.Path  # the sweep's
    options: tuple[str, ...]  # for run.py
    config: Config | None = None  # None if only the commands are needed

    @property
    def name(self) -> str:
        """Returns the name, with which the names of its files begin."""
        return f'{self.row}-seed{self.seed}'

    @property
    def folder(self) -> pathlib.Path:
        """Returns its work directory."""
        return self.workdir / self.name

    def file(self, kind: str) -> pathlib.Path:
        """Returns the run's lock, json or log file in the sweep's folder."""
        return self.workdir / 'jobs' / f'{self.name}.{kind}'

    def command(self) -> list[str]:
        """Returns the command that trains it."""
        return [sys.executable, 'run.py', *self.options, f'--workdir={self.folder}']


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The rows and seeds that were launched in a work directory."""

    table: str
    scale: str
    different: dict[str, object]  # changes of the scale's base config
    runs: tuple[tuple[str, int], ...]  # rows and seeds
    jobs: Mapping[str, str] = dataclasses.field(default_factory=dict)  # on SLURM, by the run's name

    def all_runs(self, workdir: pathlib.Path) -> list[SweepRun]:
        """Lists the runs in the order of the table's rows, then by seed."""
        runs = []
        for row in tables.rows(self.table):
            for seed in sorted(seed for name, seed in self.runs if name == row.name):
                different = self.different | {'train.seed': seed}
                config = scales.config(row, self.scale, different)
                options = tuple(scales.options(row, self.scale, different))
                runs.append(SweepRun(row.name, seed, config.train.steps, workdir.resolve(), options, config))
        return runs


def read_sweep(workdir: pathlib.Path, **named: str | None) -> Sweep:
    """Reads the sweep of a work directory.

    Args:
      named: values of flags such as --table, which must be the sweep's own.

    Raises:
      ConfigError: there is no sweep, it is damaged, or a flag names another one.
    """
    own_files = False
    try:
        content = json.loads((workdir / SWEEP).read_bytes())
        content.pop('written', None)  # of earlier versions
        content['runs'] = tuple((row, operator.index(seed)) for row, seed in content['runs'])
        sweep = Sweep(**content)
        own_files = user_files.is_file(sweep.table) or user_files.is_file(sweep.scale)
        scales.scale_config(sweep.scale, sweep.different)
        if user_files.is_file(sweep.table):
            sweep = _without_removed_rows(workdir, sweep)
        tables.rows(sweep.table, ','.join(row for row, _ in sweep.runs))
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f'{workdir}: no sweep was launched there (it holds no {SWEEP})') from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        damaged = '' if own_files else f'{workdir / SWEEP}: damaged: '
        raise ConfigError(f'{damaged}{error}') from None
    for flag, value in named.items():
        if value not in (None, getattr(sweep, flag)):
            raise ConfigError(f'--{flag}={value}: {workdir} has {flag} {getattr(sweep, flag)}')
    return sweep


def _extends(new: str, old: str) -> bool:
    """Returns whether a grid has all rows of another, and the same base."""
    if not (tables.is_grid(new) and tables.is_grid(old)):
        return False
    rows, others = tables.rows(new), tables.rows(old)
    return rows[0] == others[0] and all(row in rows for row in others)


def _without_removed_rows(workdir: pathlib.Path, sweep: Sweep) -> Sweep:
    """Drops the runs of rows that the table no longer has.

    Raises:
      ConfigError: such a run was finished.
    """
    names = {row.name for row in tables.rows(sweep.table)}
    removed = [(row, seed) for row, seed in sweep.runs if row not in names]
    for row, seed in removed:
        if has_result(workdir / f'{row}-seed{seed}'):
            raise ConfigError(
                f'{workdir}: the table {sweep.table} no longer has the row {row}, which was trained there; '
                'put the row back, or remove its folders'
            )
    return dataclasses.replace(sweep, runs=tuple(run for run in sweep.runs if run not in removed))


def folder(table: str, scale: str) -> pathlib.Path:
    """Returns the default work directory of a sweep."""
    if tables.is_grid(table):
        # Without the groups of the options.
        name = re.sub(r'(?<![^ ])\w+\.', '', table).replace(' ', '-').replace('/', '_')
    else:
        name = user_files.stem(table) if user_files.is_file(table) else f'table{table}'
    return pathlib.Path('runs', files.short_name(f'{name}-{user_files.stem(scale)}'))


def write_sweep(workdir: pathlib.Path, sweep: Sweep) -> None:
    """Writes the sweep of a work directory."""
    files.write_json(workdir / SWEEP, dataclasses.asdict(sweep))


def join(workdir: pathlib.Path, new: Sweep) -> Sweep:
    """Adds the runs launched earlier in the work directory to `new`.

    Raises:
      ConfigError: the work directory belongs to another sweep, or to a training.
    """
    if (workdir / 'config.json').exists():
        raise ConfigError(f'{workdir}: the work directory of one training; choose another --workdir')
    if not (workdir / SWEEP).exists():
        return new
    old = read_sweep(workdir)
    before, now = (
        {'table': sweep.table, 'scale': sweep.scale, 'set': _changes_text(sweep)} for sweep in (old, new)
    )
    for flag, value in before.items():
        if value != now[flag] and not (flag == 'table' and _extends(new.table, old.table)):
            raise ConfigError(
                f'{workdir}: launched with --{flag}={value}, now {now[flag]}; choose another --workdir'
            )
    moved = {key: value for key, value in old.different.items() if key == FOLDER}
    runs = tuple(dict.fromkeys(old.runs + new.runs))
    return dataclasses.replace(new, different=moved | new.different, runs=runs, jobs=old.jobs)


def set_aside(sweep: Sweep, run: SweepRun) -> pathlib.Path | None:
    """Moves the folder of a run that did not finish, and whose row has changed since, out of its way.

    Returns:
      The folder's new place, or None if no folder was moved.
    """
    folder = epath.Path(run.folder)
    if not (folder / 'config.json').exists() or has_result(folder):
        return None
    [row] = tables.rows(sweep.table, run.row)
    config = scales.config(row, sweep.scale, sweep.different | {'train.seed': run.seed})
    old = workdirs.Run.open(folder).config
    if not workdirs.holds_work(folder) or not differences(old, config):
        return None
    names = (run.folder.with_name(f'{run.name}.superseded-{number}') for number in itertools.count(1))
    aside = next(name for name in names if not name.exists())
    return run.folder.rename(aside)


def _changes_text(sweep: Sweep) -> str:
    changes = sorted(f'{key}={value}' for key, value in sweep.different.items() if key != FOLDER)
    return ','.join(changes) or 'none'


class RunState(NamedTuple):
    """The progress of a run."""

    run: SweepRun
    state: str  # one of STATES
    step: int
    seconds_per_step: float | None  # with evaluations
    error: str


def states(sweep: Sweep, workdir: pathlib.Path) -> list[RunState]:
    """Reads the progress of every run of a sweep."""
    queued = _queued(sweep.jobs)
    return [state(run, queued) for run in sweep.all_runs(workdir)]


def state(run: SweepRun, queued: set[str]) -> RunState:
    """Reads the progress of a run; `queued` contains the names of runs that wait or run on SLURM."""
    # The lock first: a process records how it ended before it releases the lock.
    is_running = locks.is_held(run.file('lock'))
    step, seconds, damage = _progress(run)
    status, error = _last_exit(run)
    if is_running:
        name, error = 'running', ''
    elif is_done(run):
        name, step = 'done', step or run.steps
    elif run.name in queued:
        name, error = 'queued', ''
    elif status:
        name = 'stopped' if status in _STOPPED else 'failed'
    else:
        # The process that waited for it was also killed, or the folder was removed.
        name, error = 'stopped' if step else 'missing', ''
    return RunState(run, name, step, seconds, error or damage)


def is_done(run: SweepRun) -> bool:
    """Returns whether a run has succeeded and its result is there, perhaps without the sweep's `jobs`."""
    if not (run.folder / 'result.json').exists():
        return False
    return _last_exit(run)[0] == 0 if run.file('json').exists() else _has_own_result(run)


def has_result(folder: pathlib.Path | epath.Path) -> bool:
    """Returns whether a training has ended in a folder. Evaluations before its end write result.json, too.

    Raises:
      ConfigError: the file is damaged.
    """
    file = pathlib.Path(folder) / 'result.json'
    return file.exists() and 'config' in read_json(file, ())


def _has_own_result(run: SweepRun) -> bool:
    """Returns whether the config and the steps of a run's result are the run's."""
    try:
        result = read_json(run.folder / 'result.json', ('config', 'steps'))
        made_by = configs.from_json(json.dumps(result['config']))
    except ConfigError:
        return False
    is_same = run.config is not None and not differences(made_by, run.config)
    is_scored = result.get('scores') and result.get('evaluated', True)
    return bool(is_same and is_scored) and has_ended(result, made_by, run.config)


def differences(made_by: Config, wanted: Config) -> dict[str, tuple[object, object]]:
    """Returns both values of the options in which a run's config differs from its row's.

    A number of classes that the row leaves open is the data's.
    """
    differ = configs.differences(made_by, wanted, free=False)
    return {k: both for k, both in differ.items() if not (k.endswith('.classes') and both[1] is None)}


def has_ended(result: Mapping, made_by: Config, wanted: Config) -> bool:
    """Returns whether a training has made the wanted updates, or has stopped early by `train.patience`."""
    steps = wanted.train.steps
    may_stop = 0 < wanted.train.patience == made_by.train.patience and made_by.train.steps == steps
    return result['steps'] == steps or (may_stop and result['steps'] < steps)


def _last_exit(run: SweepRun) -> tuple[int | None, str]:
    """Reads the exit status (None without a process) and the error of the last process with these options."""
    if not run.file('json').exists():
        return None, ''
    last = files.read_json(run.file('json'), {'options': [str], 'status': int, 'error': str, '*': object})
    before, now = (
        [option for option in options if not option.startswith(f'--config.{FOLDER}=')]
        for options in (last['options'], run.options)
    )
    return (last['status'], last['error']) if before == now else (None, '')


def read_json(file: pathlib.Path, keys: Sequence[str]) -> dict:
    """Reads a JSON object, also with infinite numbers. Raises ConfigError if damaged or without a key."""
    try:
        content = json.loads(file.read_bytes())
        return content | {key: content[key] for key in keys}
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ConfigError(f'{file}: damaged') from None


def seconds_left(states: Sequence[RunState]) -> list[float | None]:
    """Estimates the seconds that each run still takes, at its own speed or else the others' mean."""
    known = [state.seconds_per_step for state in states if state.seconds_per_step is not None]
    mean = statistics.mean(known) if known else None

    def seconds(state: RunState) -> float | None:
        if state.state == 'done':
            return 0.0
        per_step = state.seconds_per_step or mean
        return None if per_step is None else max(state.run.steps - state.step, 0) * per_step

    return list(map(seconds, states))


def _progress(run: SweepRun) -> tuple[int, float | None, str]:
    """Reads the last reported step (0 if none), the mean seconds of a step so far, and what is damaged."""
    step, times, error = 0, [], ''
    try:
        for line in metrics_file.read(run.folder):
            step = line['step']
            if line.get('seconds'):
                times.append((step, line['seconds']))
    except ConfigError as damage:
        error = str(damage)
    if not times:
        return step, None, error
    # Before the first report there was compilation.
    (first, start), (last, end) = times[0], times[-1]
    return step, (end - start) / (last - first) if last > first else None, error


def _queued(jobs: Mapping[str, str]) -> set[str]:
    """Asks SLURM for the names of the runs whose jobs wait or run there."""
    if not jobs or not shutil.which('squeue'):
        return set()
    command = ['squeue', '--noheader', '--array', '--format=%i']
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ConfigError(f'squeue: {" ".join(done.stderr.split())}')
    known = set(done.stdout.split())
    return {name for name, job in jobs.items() if job in known}
