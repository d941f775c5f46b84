"""The rows of a sweep, each with each seed a training of its own, on this machine or on SLURM.

A run is one process of run.py in one folder of the sweep's work directory. What is known of it stands in
files alone, so that any other process can tell: `jobs/<run>.lock` is locked while it runs,
`jobs/<run>.json` says how it ended, `jobs/<run>.log` is what it printed.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, NamedTuple

import submitit

from experiments import tables
from transformer import config as configs
from transformer.config import ConfigError

ROOT = pathlib.Path(__file__).resolve().parent.parent  # of the checkout: where run.py is
SWEEP = 'sweep.json'
LAUNCHERS = ('local', 'slurm')
STATES = ('done', 'running', 'queued', 'failed', 'stopped', 'missing')
MISSING = ('failed', 'stopped', 'missing')
_STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)
# Seconds that a run has between the signal that asks it to stop and the end of its job.
_TIME_TO_SAVE = 120


@dataclasses.dataclass(frozen=True)
class Run:
    """A row of a table with a seed."""

    row: str
    seed: int
    steps: int
    batch_tokens: int
    workdir: pathlib.Path  # of the sweep
    options: tuple[str, ...]  # of run.py

    @property
    def name(self) -> str:
        """As in the names of its files."""
        return f'{self.row}-seed{self.seed}'

    @property
    def folder(self) -> pathlib.Path:
        """Its work directory."""
        return self.workdir / self.name

    def file(self, kind: str) -> pathlib.Path:
        """What the sweep keeps of it: lock, json or log."""
        return self.workdir / 'jobs' / f'{self.name}.{kind}'

    def command(self) -> list[str]:
        """The call of run.py."""
        return [sys.executable, 'run.py', *self.options, f'--workdir={self.folder}']


@dataclasses.dataclass(frozen=True)
class Sweep:
    """What a work directory was launched with."""

    table: str
    scale: str
    different: dict[str, object]  # of the scale's base config
    runs: tuple[tuple[str, int], ...]  # rows and seeds
    jobs: Mapping[str, str] = dataclasses.field(default_factory=dict)  # on SLURM, by name of the run

    def all_runs(self, workdir: pathlib.Path) -> list[Run]:
        """The runs in the table's order, seed by seed.

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
    config = tables.config(row, sweep.scale, different)
    options = tables.options(row, sweep.scale, different)
    return Run(row.name, seed, config.train.steps, config.data.batch_tokens, workdir, tuple(options))


def read_sweep(workdir: pathlib.Path) -> Sweep:
    """What a work directory was launched with.

    Raises:
      ConfigError: nothing was.
    """
    try:
        content = json.loads((workdir / SWEEP).read_text())
        content['runs'] = tuple((row, seed) for row, seed in content['runs'])
        return Sweep(**content)
    except FileNotFoundError:
        raise ConfigError(f'{workdir}: no sweep was launched there (it holds no {SWEEP})') from None
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f'{workdir / SWEEP}: damaged: {error}') from None


def write_sweep(workdir: pathlib.Path, sweep: Sweep) -> None:
    """Says what the work directory is launched with."""
    _write_json(workdir / SWEEP, dataclasses.asdict(sweep))


def _write_json(file: pathlib.Path, content: dict[str, object]) -> None:
    """Writes a file whole or not at all."""
    temporary = file.with_name(f'.{file.name}.{os.getpid()}')
    temporary.write_text(json.dumps(content, indent=2) + '\n')
    temporary.replace(file)


def joined(workdir: pathlib.Path, new: Sweep) -> Sweep:
    """The sweep with what was launched in its work directory before.

    Raises:
      ConfigError: that was another one.
    """
    if not (workdir / SWEEP).exists():
        return new
    old = read_sweep(workdir)
    for flag, before, now in (
        ('table', old.table, new.table),
        ('scale', old.scale, new.scale),
        ('set', _learned(old.different), _learned(new.different)),
    ):
        if before != now:
            raise ConfigError(
                f'{workdir}: launched with --{flag}={before}, now {now}; choose another --workdir'
            )
    return dataclasses.replace(new, runs=tuple(dict.fromkeys(old.runs + new.runs)), jobs=old.jobs)


def _learned(different: dict[str, object]) -> str:
    """The differences that change what is learned."""
    shown = (f'{k}={v}' for k, v in different.items() if not configs.OPTIONS[k].metadata['free'])
    return ','.join(sorted(shown)) or 'none'


class Job:
    """What the launcher executes: run.py in a process of its own, watched."""

    def __init__(self, run: Run, environment: Mapping[str, str | None]):
        """Takes what differs in the environment; None is taken out of it."""
        self._run, self._environment = run, environment
        self._process_id: int | None = None

    def __call__(self) -> None:
        """Trains, unless another process does; how it ended stands in the run's json.

        Raises:
          RuntimeError: it did not end well.
        """
        run = self._run
        with run.file('lock').open('a') as lock:
            if not _locked(lock):
                return
            run.file('json').unlink(missing_ok=True)
            with run.file('log').open('ab') as log:
                began = log.tell()
                status = self._execute(log, lock)
            error = _error(status, run.file('log'), began)
            ended = {'options': run.options, 'status': status, 'error': error}
            _write_json(run.file('json'), ended)
        if status:
            raise RuntimeError(f'{run.name}: {error}')

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        """Before the job ends by preemption or its time limit: lets the run save; the job to requeue."""
        if self._process_id is not None:
            os.kill(self._process_id, signal.SIGTERM)
            # This interrupts the wait for the same process, which is left to collect it.
            os.waitid(os.P_PID, self._process_id, os.WEXITED | os.WNOWAIT)
            self._process_id = None
        return submitit.helpers.DelayedSubmission(self)

    def _execute(self, log: IO[bytes], lock: IO[str]) -> int:
        environment = {**os.environ, **self._environment}
        # SLURM sends its warning to every process of the job; here `checkpoint` passes it on. A session of
        # its own keeps Ctrl-C from reaching the run twice.
        process = subprocess.Popen(
            ['sh', '-c', 'trap "" USR2; exec "$@"', 'sh', *self._run.command()],
            cwd=ROOT,
            env={key: value for key, value in environment.items() if value is not None},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # As long as either lives, the run is running.
            pass_fds=[lock.fileno()],
        )
        self._process_id = process.pid
        try:
            return process.wait()
        except BaseException:
            # Ctrl-C, or the end of the job behind `checkpoint`: nothing stays behind.
            process.terminate()
            process.wait()
            raise


def _locked(file: IO[str], patience: float = 2.0) -> bool:
    """Locks a file; whoever asks for a run's state has it for an instant."""
    end = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(0.1)


def _error(status: int, log: pathlib.Path, began: int) -> str:
    """Why a process ended, in one line; empty where it ended well."""
    if status == 0:
        return ''
    if status < 0:
        hint = ' (by the system where memory ran out)' if status == -signal.SIGKILL else ''
        return f'killed by {signal.Signals(-status).name}{hint}'
    with log.open('rb') as file:
        file.seek(began)
        lines = [line for line in file.read().decode(errors='replace').splitlines() if line.strip()]
    told = [line for line in lines if re.match(r'error: |[\w.]+(Error|Exception)\b', line)]
    return (told or lines or [f'exit status {status}'])[-1].removeprefix('error: ').strip()


class State(NamedTuple):
    """How far a run is."""

    run: Run
    state: str  # one of STATES
    step: int
    seconds_per_step: float | None
    error: str

    @property
    def seconds(self) -> float | None:
        """What is left of its training, evaluations not counted; None before its speed is known."""
        if self.seconds_per_step is None:
            return None
        return max(self.run.steps - self.step, 0) * self.seconds_per_step


def states(sweep: Sweep, workdir: pathlib.Path) -> list[State]:
    """How far every run of a sweep is."""
    queued = _queued(sweep.jobs)
    return [_state(run, queued) for run in sweep.all_runs(workdir)]


def _state(run: Run, queued: set[str]) -> State:
    step, seconds = _progress(run)
    if _is_locked(run.file('lock')):
        return State(run, 'running', step, seconds, '')
    if run.name in queued:
        return State(run, 'queued', step, seconds, '')
    ended = json.loads(run.file('json').read_text()) if run.file('json').exists() else None
    if ended is None or ended['options'] != list(run.options):
        return State(run, 'stopped' if step else 'missing', step, seconds, '')
    if ended['status'] == 0:
        return State(run, 'done', step, seconds, '')
    stopped = ended['status'] in _STOPPED or ended['status'] == -signal.SIGTERM
    return State(run, 'stopped' if stopped else 'failed', step, seconds, ended['error'])


def _is_locked(file: pathlib.Path) -> bool:
    if not file.exists():
        return False
    with file.open('a') as lock:
        return not _locked(lock, patience=0)


def _progress(run: Run) -> tuple[int, float | None]:
    """The last step that was reported, and the seconds of one at that time, if any was."""
    step, seconds = 0, None
    for line in metrics(run.folder):
        step = line['step']
        if 'tokens_per_second' in line:
            # The batch may be a little emptier than its size.
            seconds = run.batch_tokens / line['tokens_per_second']
    return step, seconds


def metrics(folder: pathlib.Path) -> Iterator[dict[str, float]]:
    """The lines of metrics.jsonl; a last line that is being written is left out."""
    try:
        lines = (folder / 'metrics.jsonl').read_bytes().split(b'\n')[:-1]
    except FileNotFoundError:
        return
    yield from map(json.loads, lines)


def _queued(jobs: Mapping[str, str]) -> set[str]:
    """The runs whose jobs wait or run on SLURM."""
    if not jobs or not shutil.which('squeue'):
        return set()
    command = ['squeue', '--noheader', '--array', '--format=%i', '--states=PENDING,RUNNING,REQUEUED']
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    known = set(done.stdout.split())
    return {name for name, job in jobs.items() if job in known}


def on_this_machine(runs: Sequence[Run], workdir: pathlib.Path, parallel: int, gpus: int) -> Iterator[State]:
    """Executes runs, at most `parallel` at a time; each run's state when it has ended.

    Args:
      gpus: of each; with 0 all see what this process sees.
    """
    executor = submitit.AutoExecutor(workdir / 'jobs' / 'submitit', cluster='local')
    executor.update_parameters(timeout_min=10 * 365 * 24 * 60)
    waiting, active = list(runs), {}
    try:
        while waiting or active:
            for slot in range(parallel):
                if slot not in active and waiting:
                    run = waiting.pop(0)
                    with _errors_to(workdir / 'jobs' / 'launcher.log'):
                        active[slot] = run, executor.submit(Job(run, _devices(slot, gpus)))
            time.sleep(0.2)
            for slot, (run, job) in list(active.items()):
                if job.done():
                    del active[slot]
                    yield _state(run, set())
    finally:
        for _, job in active.values():
            job.cancel()
        while any(_is_locked(run.file('lock')) for run, _ in active.values()):
            time.sleep(0.2)


@contextlib.contextmanager
def _errors_to(file: pathlib.Path) -> Iterator[None]:
    """Processes that start here write their errors to a file: how Ctrl-C ends them is no news."""
    terminal = os.dup(sys.__stderr__.fileno())
    try:
        with file.open('a') as log:
            os.dup2(log.fileno(), sys.__stderr__.fileno())
            yield
    finally:
        os.dup2(terminal, sys.__stderr__.fileno())
        os.close(terminal)


def _devices(slot: int, gpus: int) -> dict[str, str | None]:
    """Which GPUs a run sees: those of its slot, or whatever the launching process does."""
    name = 'CUDA_VISIBLE_DEVICES'
    if gpus:
        return {name: ','.join(str(slot * gpus + i) for i in range(gpus))}
    # The launcher hides all from a job that asks for none.
    return {name: os.environ.get(name)}


def check_slurm() -> None:
    """Raises ConfigError where there is no SLURM."""
    if not shutil.which('sbatch'):
        raise ConfigError('--launcher=slurm: there is no sbatch on this machine')


def on_slurm(
    runs: Sequence[Run], workdir: pathlib.Path, parallel: int, resources: Mapping[str, object]
) -> dict[str, str]:
    """Submits runs as one job array, requeued when preempted or out of time; the job of each run.

    Args:
      resources: parameters of submitit's executor.

    Raises:
      ConfigError: SLURM refuses.
    """
    executor = submitit.AutoExecutor(
        workdir / 'jobs' / 'submitit', cluster='slurm', slurm_max_num_timeout=1000
    )
    executor.update_parameters(
        slurm_array_parallelism=parallel, slurm_signal_delay_s=_TIME_TO_SAVE, **resources
    )
    try:
        with executor.batch():
            jobs = [executor.submit(Job(run, {})) for run in runs]
    except submitit.core.utils.FailedJobError as error:
        raise ConfigError(f'sbatch: {str(error).strip().splitlines()[-1]}') from None
    return {run.name: job.job_id for run, job in zip(runs, jobs, strict=True)}
