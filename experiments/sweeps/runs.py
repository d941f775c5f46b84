"""Sweeps: the runs of a table, each a row with a seed, and their progress.

Any process can read a run's progress from files: `jobs/<run>.lock` is locked while it runs,
`jobs/<run>.json` records how it ended, and `jobs/<run>.log` holds its output.
"""

import contextlib
import dataclasses
import json
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from experiments.tables import rows as tables
from experiments.tables import scales, user_files
from transformer import files, locks
from transformer.config import ConfigError

SWEEP = 'sweep.json'
STATES = ('done', 'running', 'queued', 'failed', 'stopped', 'missing')
MISSING = ('failed', 'stopped', 'missing')
FOLDER = 'data.dir'  # the option that may change while a sweep runs
_STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGTERM)


@dataclasses.dataclass(frozen=True)
class Run:
    """A row of a table with a seed."""

    row: str
    seed: int
    steps: int
    batch_tokens: int
    workdir: pathlib.Path  # of the sweep
    options: tuple[str, ...]  # for run.py

    @property
    def name(self) -> str:
        """The name, which its files begin with."""
        return f'{self.row}-seed{self.seed}'

    @property
    def folder(self) -> pathlib.Path:
        """Its work directory."""
        return self.workdir / self.name

    def file(self, kind: str) -> pathlib.Path:
        """A file of the sweep about it; `kind` is lock, json or log."""
        return self.workdir / 'jobs' / f'{self.name}.{kind}'

    def command(self) -> list[str]:
        """The command that trains it."""
        return [sys.executable, 'run.py', *self.options, f'--workdir={self.folder}']


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The rows and seeds that were launched in a work directory."""

    table: str
    scale: str
    different: dict[str, object]  # changes of the scale's base config
    runs: tuple[tuple[str, int], ...]  # rows and seeds
    jobs: Mapping[str, str] = dataclasses.field(default_factory=dict)  # SLURM's, by name of the run

    def all_runs(self, workdir: pathlib.Path) -> list[Run]:
        """The runs in the order of the table's rows, then by seed.

        Raises:
          ConfigError: a row is impossible at this scale.
        """
        wanted = {row for row, _ in self.runs}
        rows = {row.name: row for row in tables.rows(self.table) if row.name in wanted}
        return [
            _run(rows[name], seed, self, workdir.resolve())
            for name in rows
            for seed in sorted(seed for row, seed in self.runs if row == name)
        ]


def _run(row: tables.Row, seed: int, sweep: Sweep, workdir: pathlib.Path) -> Run:
    different = sweep.different | {'train.seed': seed}
    config = scales.config(row, sweep.scale, different)
    options = scales.options(row, sweep.scale, different)
    return Run(row.name, seed, config.train.steps, config.data.batch_tokens, workdir, tuple(options))


def read_sweep(workdir: pathlib.Path) -> Sweep:
    """Reads the sweep of a work directory.

    Raises:
      ConfigError: no sweep was launched there, its file is damaged, or a user's own file that it names has
        no such rows any more.
    """
    own_files = False
    try:
        content = json.loads((workdir / SWEEP).read_text())
        content.pop('written', None)  # of earlier versions
        content['runs'] = tuple((row, seed) for row, seed in content['runs'])
        sweep = Sweep(**content)
        own_files = user_files.is_file(sweep.table) or user_files.is_file(sweep.scale)
        scales.scale_config(sweep.scale, sweep.different)
        tables.rows(sweep.table, ','.join(row for row, _ in sweep.runs))
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f'{workdir}: no sweep was launched there (it holds no {SWEEP})') from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        damaged = '' if own_files else f'{workdir / SWEEP}: damaged: '
        raise ConfigError(f'{damaged}{error}') from None
    return sweep


def check_named(workdir: pathlib.Path, sweep: Sweep, **named: str | None) -> None:
    """Raises ConfigError where flags such as --table name another value than the sweep has."""
    for flag, value in named.items():
        if value not in (None, getattr(sweep, flag)):
            raise ConfigError(f'--{flag}={value}: {workdir} has {flag} {getattr(sweep, flag)}')


def folder(table: str, scale: str) -> pathlib.Path:
    """The default work directory of a sweep."""
    name = user_files.stem(table) if user_files.is_file(table) else f'table{table}'
    return pathlib.Path('runs', f'{name}-{user_files.stem(scale)}')


@contextlib.contextmanager
def alone(workdir: pathlib.Path) -> Iterator[None]:
    """Lets one process at a time launch runs of the sweep; the others wait."""
    (workdir / 'jobs').mkdir(parents=True, exist_ok=True)
    with locks.exclusive(workdir / 'jobs' / 'sweep.lock'):
        yield


def write_sweep(workdir: pathlib.Path, sweep: Sweep) -> None:
    """Writes the sweep of a work directory."""
    files.write_json(workdir / SWEEP, dataclasses.asdict(sweep))


def join(workdir: pathlib.Path, new: Sweep) -> Sweep:
    """Adds the runs that were launched in the sweep's work directory before.

    Raises:
      ConfigError: the directory belongs to another sweep or to a single training.
    """
    if (workdir / 'config.json').exists():
        raise ConfigError(f'{workdir}: the work directory of one training; choose another --workdir')
    if not (workdir / SWEEP).exists():
        return new
    old = read_sweep(workdir)
    for flag, before, now in (
        ('table', old.table, new.table),
        ('scale', old.scale, new.scale),
        ('set', _changes_text(old.different), _changes_text(new.different)),
    ):
        if before != now:
            raise ConfigError(
                f'{workdir}: launched with --{flag}={before}, now {now}; choose another --workdir'
            )
    moved = {key: value for key, value in old.different.items() if key == FOLDER}
    runs = tuple(dict.fromkeys(old.runs + new.runs))
    return dataclasses.replace(new, different=moved | new.different, runs=runs, jobs=old.jobs)


def _changes_text(different: dict[str, object]) -> str:
    """The changes as one text, without the folder of the data."""
    return ','.join(sorted(f'{key}={value}' for key, value in different.items() if key != FOLDER)) or 'none'


class State(NamedTuple):
    """The progress of a run."""

    run: Run
    state: str  # one of STATES
    step: int
    seconds_per_step: float | None  # of updates alone
    error: str


def states(sweep: Sweep, workdir: pathlib.Path) -> list[State]:
    """The progress of every run of a sweep.

    Raises:
      ConfigError: as for `Sweep.all_runs`, or the sweep has jobs on a SLURM that does not answer.
    """
    queued = _queued(sweep.jobs)
    return [state(run, queued) for run in sweep.all_runs(workdir)]


def state(run: Run, queued: set[str]) -> State:
    """The progress of a run.

    Args:
      queued: the names of the runs that wait or run on SLURM.
    """
    # The lock first: a process writes how it ended before it frees the lock.
    is_running = locks.is_held(run.file('lock'))
    step, seconds = _progress(run)
    status, error = _last_exit(run)
    if is_running:
        name, error = 'running', ''
    elif _has_result(run, status):
        name = 'done'
    elif run.name in queued:
        name, error = 'queued', ''
    elif status:
        name = 'stopped' if status in _STOPPED else 'failed'
    else:
        # The process that watched it was killed too, or the folder was removed.
        name, error = 'stopped' if step else 'missing', ''
    return State(run, name, step, seconds, error)


def is_done(run: Run) -> bool:
    """Whether a run has succeeded and its result is still there."""
    return _has_result(run, _last_exit(run)[0])


def _has_result(run: Run, status: int | None) -> bool:
    return status == 0 and (run.folder / 'result.json').exists()


def _last_exit(run: Run) -> tuple[int | None, str]:
    """The exit status and the error of the last process with these options; None if there was none."""
    if not run.file('json').exists():
        return None, ''
    last = read_json(run.file('json'), ('options', 'status', 'error'))
    same = _without_folder(last['options']) == _without_folder(run.options)
    return (last['status'], last['error']) if same else (None, '')


def _without_folder(options: Sequence[str]) -> list[str]:
    """Options of run.py without the folder of the data, which may change."""
    return [option for option in options if not option.startswith(f'--config.{FOLDER}=')]


def read_json(file: pathlib.Path, keys: Sequence[str]) -> dict:
    """Reads a JSON object.

    Args:
      keys: that it must hold.

    Raises:
      ConfigError: the file holds no such object.
      OSError: the file cannot be read.
    """
    try:
        content = json.loads(file.read_bytes())
        return content | {key: content[key] for key in keys}
    except (ValueError, TypeError, KeyError):
        raise ConfigError(f'{file}: damaged') from None


class Pace(NamedTuple):
    """How long runs take besides their updates.

    Attributes:
      training: seconds of training, with its evaluations on dev, for each second of updates.
      scoring: seconds of a process besides its training: its start, and the scores at its end.
    """

    training: float
    scoring: float


def pace(states: Sequence[State]) -> Pace | None:
    """The mean over the runs that are done; None if no run gives an estimate."""
    paces = []
    for state in states:
        result, last = state.run.folder / 'result.json', state.run.file('json')
        if state.state != 'done' or not state.seconds_per_step or not last.exists():
            continue
        training, process = read_json(result, ()), read_json(last, ('status',))
        # A process that resumed spent only a part of the training's seconds; older sweeps recorded none.
        if training.get('steps') and process.get('from_step') == 0:
            updates = training['steps'] * state.seconds_per_step
            paces.append((training['seconds'] / updates, process['seconds'] - training['seconds']))
    return Pace(*map(statistics.mean, zip(*paces, strict=True))) if paces else None


def seconds_left(states: Sequence[State]) -> list[float | None]:
    """The seconds that each run still needs, with evaluations and final scores; None where unknown.

    An update takes as long as the run's last ones, or as the mean of the other runs. Evaluations take as
    long as in the runs that are done (`pace`), and count as nothing before one is.
    """
    known = [state.seconds_per_step for state in states if state.seconds_per_step is not None]
    mean, extra = statistics.mean(known) if known else None, pace(states) or Pace(1.0, 0.0)

    def seconds(state: State) -> float | None:
        per_step = state.seconds_per_step or mean
        if state.state == 'done':
            return 0.0
        updates = max(state.run.steps - state.step, 0)
        return None if per_step is None else updates * per_step * extra.training + extra.scoring

    return [seconds(state) for state in states]


def _progress(run: Run) -> tuple[int, float | None]:
    """The last reported step (0 if none), and the seconds of a step at that time."""
    step, seconds = 0, None
    for line in metrics(run.folder):
        step = line['step']
        if line.get('tokens_per_second'):
            # Padding counts as tokens here, so this is too long: by a tenth in packed rows, more in bucketed.
            seconds = run.batch_tokens / line['tokens_per_second']
    return step, seconds


def metrics(folder: pathlib.Path) -> Iterator[dict[str, float]]:
    """Yields the lines of metrics.jsonl, without a last line that is still being written.

    Raises:
      ConfigError: a line is damaged.
    """
    try:
        lines = (folder / 'metrics.jsonl').read_bytes().split(b'\n')[:-1]
    except FileNotFoundError:
        return
    for number, line in enumerate(lines, 1):
        try:
            content = json.loads(line)
            yield {'step': int(content['step'])} | content
        except (ValueError, TypeError, KeyError):
            raise ConfigError(f'{folder / "metrics.jsonl"}: line {number} is damaged') from None


def _queued(jobs: Mapping[str, str]) -> set[str]:
    """The names of the runs whose jobs wait or run on SLURM.

    Raises:
      ConfigError: SLURM does not answer.
    """
    if not jobs or not shutil.which('squeue'):
        return set()
    command = ['squeue', '--noheader', '--array', '--format=%i']
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ConfigError(f'squeue: {" ".join(done.stderr.split())}')
    known = set(done.stdout.split())
    return {name for name, job in jobs.items() if job in known}
