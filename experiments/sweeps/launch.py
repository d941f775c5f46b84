"""Launches the runs of a sweep, each as a process of run.py, on this machine or on SLURM."""

import contextlib
import itertools
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

import submitit

from experiments.sweeps.runs import RunState, SweepRun, is_done, state
from experiments.tables.user_files import ROOT
from transformer import files, locks
from transformer.config import ConfigError
from transformer.runs.process import visible_gpus

LAUNCHERS = ('local', 'slurm')
# Seconds from the signal that asks a run to stop to the end of its job.
_TIME_TO_SAVE = 120


class Job:
    """The function that a launcher calls: runs run.py in a process, and waits for its end.

    Args:
      environment: environment variables of the process; variables with None are removed.
      cores: the CPU cores that the process may use; if empty, the launcher's.
    """

    def __init__(
        self, run: SweepRun, environment: Mapping[str, str | None] | None = None, cores: Sequence[int] = ()
    ):
        self._run, self._environment, self._cores = run, environment or {}, cores
        self._process_id: int | None = None

    def __call__(self) -> None:
        """Trains unless another process is training the run or it is done, and records the end as JSON."""
        run = self._run
        try:
            with locks.exclusive(run.file('lock'), wait=2) as lock:
                if is_done(run):
                    return
                run.file('json').unlink(missing_ok=True)
                with run.file('log').open('ab') as log:
                    began = log.tell()
                    status = self._execute(log, lock)
                error = _error(status, run.file('log'), began)
                outcome = {'options': run.options, 'status': status, 'error': error}
                files.write_json(run.file('json'), outcome)
        except locks.Held:
            return
        if status:
            raise RuntimeError(f'{run.name}: {error}')

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        """Lets the run save and stop before preemption or a time limit ends its job, and queues it again."""
        if self._process_id is not None:
            os.kill(self._process_id, signal.SIGTERM)
            # WNOWAIT leaves the exit status to the interrupted `process.wait`.
            os.waitid(os.P_PID, self._process_id, os.WEXITED | os.WNOWAIT)
        return submitit.helpers.DelayedSubmission(self)

    def _execute(self, log: IO[bytes], lock: int | None) -> int:
        # Logs are UTF-8 in every locale.
        environment = {**os.environ, 'PYTHONIOENCODING': 'utf-8', **self._environment}
        # SLURM warns every process of the job by USR2, which the run ignores: `checkpoint` passes it on as
        # SIGTERM. In its own session, the run does not get the terminal's Ctrl-C.
        process, must_stop = None, False

        def stop(*_) -> None:
            nonlocal must_stop
            # Noted first: the next signal may arrive while this one is handled.
            is_first, must_stop = not must_stop, True
            if process and is_first:
                process.terminate()

        # Ctrl-C causes several signals, from the terminal and from the sweep. Python's default handler raises
        # an exception at each SIGINT: it may arrive while `wait` holds a lock, which then stays locked.
        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            process = subprocess.Popen(
                ['sh', '-c', 'trap "" USR2; exec "$@"', 'sh', *self._run.command()],
                cwd=ROOT,
                env={key: value for key, value in environment.items() if value is not None},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # The lock is held as long as this process or the run lives.
                pass_fds=() if lock is None else (lock,),
            )
            if self._cores:
                # Set before Python starts in the process and counts its cores.
                os.sched_setaffinity(process.pid, self._cores)
            self._process_id = process.pid
            if must_stop:
                process.terminate()
            return process.wait()
        except BaseException:
            # The job ends after `checkpoint`; it must leave no process behind.
            if process:
                process.terminate()
                process.wait()
            raise
        finally:
            self._process_id = None
            for number, handler in before.items():
                signal.signal(number, handler)


def _error(status: int, log: pathlib.Path, began: int) -> str:
    """Describes in one line why a process failed, by its log after the byte `began` ('' if it did not)."""
    if status == 0:
        return ''
    if status < 0:
        hint = ' (by the system where memory ran out)' if status == -signal.SIGKILL else ''
        return f'killed by {signal.Signals(-status).name}{hint}'
    with log.open('rb') as file:
        file.seek(began)
        lines = [line for line in file.read().decode(errors='replace').splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r'error: |[\w.]+(Error|Exception)\b', line)]
    return (errors or lines or [f'exit status {status}'])[-1].removeprefix('error: ').strip()


def on_this_machine(
    runs: Sequence[SweepRun], workdir: pathlib.Path, parallel: int, gpus: int
) -> Iterator[RunState]:
    """Executes at most `parallel` runs at a time, and yields each run's state when it has ended.

    Concurrent runs divide the CPU cores, so that they do not wait for each other. With `gpus` 0, all runs
    see this process's GPUs.
    """
    devices, cores = [_devices(slot, gpus) for slot in range(parallel)], _cores(parallel, len(runs))
    executor = submitit.AutoExecutor(workdir / 'jobs' / 'submitit', cluster='local')
    executor.update_parameters(timeout_min=10 * 365 * 24 * 60)
    waiting, active = list(runs), {}
    try:
        while waiting or active:
            for slot in range(parallel):
                if slot not in active and waiting:
                    run = waiting.pop(0)
                    with _errors_to(workdir / 'jobs' / 'launcher.log'):
                        active[slot] = run, executor.submit(Job(run, devices[slot], cores[slot]))
            time.sleep(0.2)
            for slot, (run, job) in list(active.items()):
                # The run may outlive a killed job.
                if job.done() and not locks.is_held(run.file('lock')):
                    del active[slot]
                    yield state(run, set())
    finally:
        # Repeated until the runs have ended: a starting launcher ignores the signal, or has no lock yet.
        while any(not job.done() or locks.is_held(run.file('lock')) for run, job in active.values()):
            for _, job in active.values():
                if not job.done():
                    # The launcher passes it on to its run. submitit's own `cancel` sends SIGINT, which is
                    # ignored in what a script starts with `&`.
                    os.kill(int(job.job_id), signal.SIGTERM)
            time.sleep(0.2)


@contextlib.contextmanager
def exit_at_sigterm() -> Iterator[None]:
    """Makes SIGTERM raise SystemExit in the main thread, so that it stops the runs as Ctrl-C does.

    Further SIGTERMs are ignored, so that the runs are waited for.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame) -> None:
        del frame
        signal.signal(number, signal.SIG_IGN)
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    except SystemExit:
        # As the terminal says after Ctrl-C.
        print('stopped', file=sys.stderr)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _errors_to(file: pathlib.Path) -> Iterator[None]:
    """Sends the standard error of processes started in this context to a file, such as errors at Ctrl-C."""
    terminal = os.dup(sys.__stderr__.fileno())
    try:
        with file.open('a') as log:
            os.dup2(log.fileno(), sys.__stderr__.fileno())
            yield
    finally:
        os.dup2(terminal, sys.__stderr__.fileno())
        os.close(terminal)


def _cores(parallel: int, runs: int) -> list[Sequence[int]]:
    """Divides the CPU cores among the slots, adjacent cores together.

    Returns:
      Each slot's cores: none if the system does not number them.
    """
    if not hasattr(os, 'sched_getaffinity'):
        return [()] * parallel
    cores = sorted(os.sched_getaffinity(0))
    count = max(min(parallel, runs, len(cores)), 1)
    edges = [share * len(cores) // count for share in range(count + 1)]
    shares = [cores[start:end] for start, end in itertools.pairwise(edges)]
    return [shares[slot % count] for slot in range(parallel)]


def _devices(slot: int, gpus: int) -> dict[str, str | None]:
    """Returns a run's GPUs as an environment variable: its slot's or, with `gpus` 0, this process's GPUs."""
    name = 'CUDA_VISIBLE_DEVICES'
    visible = os.environ.get(name)
    if not gpus:
        # Without the variable, submitit hides all GPUs from a job that asks for none.
        return {name: visible}
    last = (slot + 1) * gpus
    # If the variable is not set, GPUs are numbered from 0. If it is empty, no GPU is visible.
    numbers = map(str, range(visible_gpus())) if visible is None else visible.split(',')
    devices = [number for number in numbers if number]
    if len(devices) < last:
        unset = f'and {len(devices)} were found; if there are more, set {name}'
        found = unset if visible is None else f'{name} is {visible!r}'
        raise ConfigError(f'--gpus={gpus}: {slot + 1} runs at a time need {last}, {found}')
    return {name: ','.join(devices[slot * gpus : last])}


def on_slurm(
    runs: Sequence[SweepRun], workdir: pathlib.Path, parallel: int, resources: Mapping[str, object]
) -> dict[str, str]:
    """Submits runs as one job array, whose jobs are queued again after preemption or their time limit.

    Args:
      resources: parameters of submitit's executor.

    Returns:
      Each run's job, by the run's name.
    """
    folder = workdir / 'jobs' / 'submitit'
    executor = submitit.AutoExecutor(folder, cluster='slurm', slurm_max_num_timeout=1000)
    executor.update_parameters(
        slurm_array_parallelism=parallel, slurm_signal_delay_s=_TIME_TO_SAVE, **resources
    )
    try:
        with executor.batch():
            jobs = [executor.submit(Job(run)) for run in runs]
    except submitit.core.utils.FailedJobError as error:
        raise ConfigError(f'--launcher=slurm: {str(error).strip().splitlines()[-1]}') from None
    return {run.name: job.job_id for run, job in zip(runs, jobs, strict=True)}
