"""The runs of a sweep, each a row with a seed, and how far they are.

All that is known of a run stands in files, so that any process can read it: `jobs/<run>.lock` is locked
while it runs, `jobs/<run>.json` says how it ended, and `jobs/<run>.log` is what it printed.
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
from transformer import config as configs
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
        """A file that the sweep keeps about it; `kind` is lock, json or log."""
        return self.workdir / 'jobs' / f'{self.name}.{kind}'

    def command(self) -> list[str]:
        """The command that trains it."""
        return [sys.executable, 'run.py', *self.options, f'--workdir={self.folder}']


@dataclasses.dataclass(frozen=True)
class Sweep:
    """What a work directory was launched with."""

    table: str
    scale: str
    different: dict[str, object]  # what differs from the scale's base config
    runs: tuple[tuple[str, int], ...]  # rows and seeds
    jobs: Mapping[str, str] = dataclasses.field(default_factory=dict)  # SLURM's, by name of the run
    # Of rows from a file of the user's own: how their configs differ from the paper's base.
    written: Mapping[str, Mapping[str, object]] = dataclasses.field(default_factory=dict)

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


def described(sweep: Sweep) -> Sweep:
    """The sweep with what its rows are written down, where their table or scale is a file that may change.

    Raises:
      ConfigError: a row is impossible at this scale.
    """
    if not user_files.is_file(sweep.table) and not user_files.is_file(sweep.scale):
        return sweep
    names = dict.fromkeys(row for row, _ in sweep.runs)
    base, written = configs.resolve(configs.config_dict()), {}
    for row in tables.rows(sweep.table, ','.join(names)):
        config = scales.config(row, sweep.scale, sweep.different)
        changed = configs.differences(base, config).items()
        written[row.name] = {key: value for key, (_, value) in changed if key != FOLDER}
    return dataclasses.replace(sweep, written=written)


def check_unchanged(sweep: Sweep, workdir: pathlib.Path) -> None:
    """Raises ConfigError where a row's file says something else than when the sweep was launched."""
    base = configs.flatten(configs.resolve(configs.config_dict()))
    for name, now in described(sweep).written.items():
        then = sweep.written.get(name, now)
        for key in {**then, **now}:
            old, new = then.get(key, base[key]), now.get(key, base[key])
            if old != new:
                file = sweep.table if user_files.is_file(sweep.table) else sweep.scale
                raise ConfigError(
                    f'{file}: row {name} has changed since {workdir} was launched: {key} was {old!r} and is '
                    f'{new!r}; change it back, or choose another --workdir'
                )


def read_sweep(workdir: pathlib.Path) -> Sweep:
    """What a work directory was launched with.

    Raises:
      ConfigError: no sweep was launched there, its file is damaged, or a file of the user's own that it
        names has changed or is missing.
    """
    try:
        content = json.loads((workdir / SWEEP).read_text())
        content['runs'] = tuple((row, seed) for row, seed in content['runs'])
        sweep = Sweep(**content)
        own_files = user_files.is_file(sweep.table) or user_files.is_file(sweep.scale)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f'{workdir}: no sweep was launched there (it holds no {SWEEP})') from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f'{workdir / SWEEP}: damaged: {error}') from None
    try:
        scales.scale_config(sweep.scale, sweep.different)
        tables.rows(sweep.table, ','.join(row for row, _ in sweep.runs))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        damaged = '' if own_files else f'{workdir / SWEEP}: damaged: '
        raise ConfigError(f'{damaged}{error}') from None
    check_unchanged(sweep, workdir)
    return sweep


def folder(table: str, scale: str) -> pathlib.Path:
    """The work directory of a sweep where none is named."""
    name = user_files.stem(table) if user_files.is_file(table) else f'table{table}'
    return pathlib.Path('runs', f'{name}-{user_files.stem(scale)}')


@contextlib.contextmanager
def alone(workdir: pathlib.Path) -> Iterator[None]:
    """Keeps other processes from launching runs of the sweep; waits while one of them does."""
    (workdir / 'jobs').mkdir(parents=True, exist_ok=True)
    with locks.exclusive(workdir / 'jobs' / 'sweep.lock'):
        yield


def write_sweep(workdir: pathlib.Path, sweep: Sweep) -> None:
    """Records what the work directory is launched with."""
    files.write_json(workdir / SWEEP, dataclasses.asdict(sweep))


def joined(workdir: pathlib.Path, new: Sweep) -> Sweep:
    """The sweep together with the runs that were launched in its work directory before.

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
        ('set', _shown(old.different), _shown(new.different)),
    ):
        if before != now:
            raise ConfigError(
                f'{workdir}: launched with --{flag}={before}, now {now}; choose another --workdir'
            )
    moved = {key: value for key, value in old.different.items() if key == FOLDER}
    return dataclasses.replace(
        new,
        written=dict(old.written) | dict(new.written),
        different=moved | new.different,
        runs=tuple(dict.fromkeys(old.runs + new.runs)),
        jobs=old.jobs,
    )


def _shown(different: dict[str, object]) -> str:
    """What differs, without the folder of the data."""
    return ','.join(sorted(f'{key}={value}' for key, value in different.items() if key != FOLDER)) or 'none'


class State(NamedTuple):
    """How far a run is."""

    run: Run
    state: str  # one of STATES
    step: int
    seconds_per_step: float | None  # of updates alone
    error: str


def states(sweep: Sweep, workdir: pathlib.Path) -> list[State]:
    """How far every run of a sweep is.

    Raises:
      ConfigError: as for `Sweep.all_runs`, or the sweep has jobs on a SLURM that does not answer.
    """
    queued = _queued(sweep.jobs)
    return [state(run, queued) for run in sweep.all_runs(workdir)]


def state(run: Run, queued: set[str]) -> State:
    """How far a run is, given the names of the runs that wait or run on SLURM."""
    step, seconds = _progress(run)
    if locks.is_held(run.file('lock')):
        return State(run, 'running', step, seconds, '')
    if is_done(run):
        return State(run, 'done', step, seconds, '')
    if run.name in queued:
        return State(run, 'queued', step, seconds, '')
    status, error = _ended(run)
    if status:
        return State(run, 'stopped' if status in _STOPPED else 'failed', step, seconds, error)
    # The process that watched it was killed too, or the folder was removed.
    return State(run, 'stopped' if step else 'missing', step, seconds, '')


def is_done(run: Run) -> bool:
    """Whether a run has ended well and its result is still there."""
    return _ended(run)[0] == 0 and (run.folder / 'result.json').exists()


def _ended(run: Run) -> tuple[int | None, str]:
    """The exit status and the error of the last process with these options; None if there was none."""
    if not run.file('json').exists():
        return None, ''
    last = read_json(run.file('json'), ('options', 'status', 'error'))
    same = _without_folder(last['options']) == _without_folder(run.options)
    return (last['status'], last['error']) if same else (None, '')


def _without_folder(options: Sequence[str]) -> list[str]:
    """Options of run.py without the folder of the data, which may move."""
    return [option for option in options if not option.startswith(f'--config.{FOLDER}=')]


def read_json(file: pathlib.Path, keys: Sequence[str]) -> dict:
    """The JSON object of a file.

    Args:
      keys: what it must hold.

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
    """What runs that are done took besides their updates.

    Attributes:
      training: seconds of training, with its evaluations on dev, for each second of updates.
      scoring: seconds of a process besides its training: from its start, and for the scores at its end.
    """

    training: float
    scoring: float


def pace(states: Sequence[State]) -> Pace | None:
    """The mean of the runs that are done; None if there is none that tells."""
    found = []
    for state in states:
        result, ended = state.run.folder / 'result.json', state.run.file('json')
        if state.state != 'done' or not state.seconds_per_step or not ended.exists():
            continue
        training = read_json(result, ('seconds', 'steps')) if result.exists() else {'steps': 0}
        process = read_json(ended, ('status',))
        # A process that resumed took only a part of the training's seconds; older sweeps kept no seconds.
        if training['steps'] and process.get('from_step') == 0:
            updates = training['steps'] * state.seconds_per_step
            found.append((training['seconds'] / updates, process['seconds'] - training['seconds']))
    if not found:
        return None
    return Pace(*(statistics.mean(numbers) for numbers in zip(*found, strict=True)))


def seconds_left(states: Sequence[State]) -> list[float | None]:
    """The seconds that are left of each run, evaluations and final scores counted; None where unknown.

    Updates take the seconds of the run's own last ones, or the mean of the other runs' if it has none.
    Evaluations take what they took in the runs that are done (`pace`); nothing before one is.
    """
    known = [state.seconds_per_step for state in states if state.seconds_per_step is not None]
    mean, extra = statistics.mean(known) if known else None, pace(states) or Pace(1.0, 0.0)
    found = []
    for state in states:
        of_update = state.seconds_per_step or mean
        if state.state == 'done' or of_update is None:
            found.append(0.0 if state.state == 'done' else None)
            continue
        updates = max(state.run.steps - state.step, 0)
        found.append(updates * of_update * extra.training + extra.scoring)
    return found


def _progress(run: Run) -> tuple[int, float | None]:
    """The last step that was reported (0 if none), and the seconds of a step at that time."""
    step, seconds = 0, None
    for line in metrics(run.folder):
        step = line['step']
        if line.get('tokens_per_second'):
            # Padding counts as tokens here, so this is too long: by a tenth in packed rows, more in bucketed.
            seconds = run.batch_tokens / line['tokens_per_second']
    return step, seconds


def metrics(folder: pathlib.Path) -> Iterator[dict[str, float]]:
    """The lines of metrics.jsonl, without a last line that is still being written.

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
