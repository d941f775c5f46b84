"""The number of programs with collectives in flight, and that a busy machine does not stop them."""

import collections
import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer import parallel
from transformer.config import ConfigError

ROOT = pathlib.Path(__file__).parent.parent
EVALUATIONS = 40
TRIES = int(os.environ.get('TRANSFORMER_TEST_STRESS', '0'))
STRESS = f"""
import functools, jax, numpy as np
from configs import tiny
from transformer import config, parallel
from transformer.runs import process
from transformer import tasks
from transformer.training import split_sums, step

prepared_config = config.resolve(tiny.get_config())
of = tasks.task_of(prepared_config)
dataset = tasks.prepare(prepared_config, process.cache_folder() / 'corpora')
dev = of.batches(prepared_config, dataset, 'dev')
params = parallel.replicate(step.initial_state(prepared_config).params)
sums = tasks.sums_of(prepared_config)
found = {{split_sums.means(sums, params, dev)['loss'] for _ in range({EVALUATIONS})}}
assert len(found) == 1 and parallel.device_count() == 2
print('ended')
"""
STOPPED = """
import os, signal
from transformer import parallel
parallel.join_processes()
print(parallel.process(), flush=True)
os.kill(os.getpid(), signal.SIGTERM)
print('not stopped')
"""
TOGETHER = """
import sys
from transformer import parallel
parallel.join_processes()
with parallel.together():
    pass
try:
    with parallel.together():
        if sys.argv[1]:
            raise OSError(sys.argv[1])
except Exception as error:
    print(f'raised: {type(error).__name__}: {error}', flush=True)
"""
HERE = """
import socket, sys
socket.gethostname = lambda: sys.argv[1]
from transformer import parallel
parallel.join_processes()
print('here:', parallel.processes_here())
"""
BUSY = """
import jax, jax.numpy as jnp
step = jax.jit(lambda x: jnp.tanh(x @ x))
x = jnp.ones((700, 700))
while True:
    x = step(x)
    x.block_until_ready()
"""


@pytest.fixture
def waited(monkeypatch) -> list:
    """Returns the list of the numbers of programs that were waited for, in order."""
    seen = []
    monkeypatch.setattr(parallel.jax, 'block_until_ready', lambda x: seen.append(int(x[0])) or x)
    monkeypatch.setattr(parallel, '_started', collections.deque())
    return seen


def started(monkeypatch, devices: list, count: int, waited: list) -> list[list[int]]:
    """Starts `count` programs, and lists after each one the programs that had been waited for."""
    monkeypatch.setattr(parallel, 'devices', lambda: devices)
    numbers = iter(range(count))
    program = parallel._Bounded(lambda: np.array([next(numbers)]), lambda found: found)
    found = []
    for _ in range(count):
        program()
        found.append(list(waited))
    return found


def test_on_several_cpu_devices_a_program_starts_when_the_one_before_has_ended(monkeypatch, waited):
    found = started(monkeypatch, jax.devices()[:2], 3, waited)
    assert found == [[], [0], [0, 1]]
    parallel.wait_for_programs(0)
    assert waited == [0, 1, 2]


def test_elsewhere_one_program_may_run_ahead(monkeypatch, waited):
    assert started(monkeypatch, jax.devices()[:1], 4, waited) == [[], [], [0], [0, 1]]


def test_updates_and_sums_share_the_bound(monkeypatch):
    """A training step and an evaluation have collectives that could wait for each other."""
    monkeypatch.setattr(parallel, '_started', collections.deque())
    update = parallel.map_update(lambda state, batch: (state + 1, parallel.sum_over_devices(batch.sum())))
    sums = parallel.map_sums(lambda state, batch: parallel.sum_over_devices(batch.sum()))
    batch = parallel.to_devices({'x': np.ones((16, 3), np.int32)}, 8)['x']
    state = parallel.replicate(jnp.int32(0))
    for _ in range(3):
        state, whole = update(state, batch)
        assert len(parallel._started) == 1
        again = sums(state, batch)
        assert len(parallel._started) == 1
    assert int(whole) == int(again) == 48 and int(state) == 3
    program = parallel.map_rows(lambda params, key, rows: rows * params, 'float32')
    batches = [np.full((8, 2), n, np.int32) for n in range(5)]
    for n, rows in enumerate(program(2, 0, batches)):
        np.testing.assert_array_equal(rows, np.full((8, 2), 2 * n))
    assert n == 4 and not parallel._started


def test_processes_ask_each_other_when_no_program_runs(monkeypatch):
    monkeypatch.setattr(parallel, '_started', collections.deque([jnp.ones(())]))
    monkeypatch.setattr(parallel.jax, 'process_count', lambda: 2)
    waiting = []

    def ask_all(number):
        waiting.append(len(parallel._started))
        return np.array([number, 3])

    monkeypatch.setattr(parallel.multihost_utils, 'process_allgather', ask_all)
    assert (parallel.greatest(1), parallel.greatest(5), waiting) == (3, 5, [0, 0])


def test_two_batches_of_rows_are_in_work_at_a_time(monkeypatch):
    both, inside, most = threading.Barrier(2, timeout=60), [], []

    def meet(params, key, rows):
        inside.append(rows)
        both.wait()
        most.append(len(inside))
        both.wait()
        inside.pop()
        return rows

    monkeypatch.setattr(parallel, 'rows_program', lambda function, on: meet)
    batches = [np.full((parallel.local_device_count(), 1), n) for n in range(4)]
    found = parallel.map_rows(meet, 'float32')(None, None, batches)
    assert [int(rows[0, 0]) for rows in found] == [0, 1, 2, 3]
    assert most == [2] * 4


def test_elsewhere_batches_go_one_by_one_and_no_more_start_once_closed(monkeypatch):
    begun = []

    def begin(params, key, rows):
        begun.append(int(rows.flat[0]))
        time.sleep(0.05)
        return rows

    monkeypatch.setattr(parallel, 'rows_program', lambda function, on: begin)
    monkeypatch.setattr(parallel, 'platform', lambda: 'gpu')
    batches = [np.full((parallel.local_device_count(), 1), n) for n in range(100)]
    with contextlib.closing(parallel.map_rows(begin, 'float32')(None, None, batches)) as found:
        next(found)
    assert begun == list(range(len(begun))) and len(begun) < 100


def test_rows_of_any_shape_go_to_the_devices():
    batch = {'image': np.arange(16 * 2 * 3).reshape(16, 2, 3), 'label': np.arange(16)}
    placed = parallel.to_devices(batch, 8)
    assert placed['image'].shape == (8, 1, 2, 2, 3) and placed['label'].shape == (8, 1, 2)
    np.testing.assert_array_equal(np.asarray(placed['image']).reshape(16, 2, 3), batch['image'])


def start_processes(program: str, arguments: list[str]) -> list[subprocess.Popen]:
    """Starts a process of one run for each argument."""
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        address = f'127.0.0.1:{free.getsockname()[1]}'
    run = {'JAX_COORDINATOR_ADDRESS': address, 'JAX_NUM_PROCESSES': str(len(arguments))}
    # With the eight devices of these tests in each, two cores have too few threads for the collectives: the
    # result is there, but at times one of them never ends, nor does its process.
    run['XLA_FLAGS'] = '--xla_force_host_platform_device_count=1'
    return [
        subprocess.Popen(
            [sys.executable, '-c', program, argument],
            cwd=ROOT,
            env=os.environ | run | {'JAX_PROCESS_ID': str(number)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for number, argument in enumerate(arguments)
    ]


def test_sigterm_stops_a_process_that_has_joined_others():
    """Until the training takes over the signal, which then saves."""
    (process,) = start_processes(STOPPED, [''])
    assert process.communicate(timeout=60)[0] == '(0, 1)\n'
    assert process.returncode == -signal.SIGTERM


def test_the_processes_of_a_host_are_counted():
    running = start_processes(HERE, ['first', 'second', 'first'])
    outputs = [process.communicate(timeout=60)[0] for process in running]
    # Gloo prints to the same place.
    assert [re.findall(r'here: (\d)', output) for output in outputs] == [['2'], ['1'], ['2']]
    assert parallel.processes_here() == 1


def test_processes_with_unequal_devices_are_refused(monkeypatch):
    monkeypatch.setattr(parallel.jax.distributed, 'initialize', lambda: None)
    of_processes = [mock.Mock(spec=jax.Device, process_index=index, id=0) for index in (0, 1, 1)]
    monkeypatch.setattr(parallel.jax, 'devices', lambda: of_processes)
    with pytest.raises(ConfigError, match=r'--distributed: .*\[1, 2\]'):
        parallel.join_processes()


def test_what_fails_in_one_process_ends_all():
    running = start_processes(TOGETHER, ['', 'disk full', ''])
    outputs = [process.communicate(timeout=60)[0] for process in running]
    raised = [re.findall(r'raised: (.*)', output) for output in outputs]
    assert [found[0].partition(':')[0] for found in raised] == ['ConfigError', 'OSError', 'ConfigError']


@pytest.mark.stress
@pytest.mark.skipif(not TRIES, reason='keeps all processors busy: TRANSFORMER_TEST_STRESS says how often')
def test_evaluation_on_a_busy_machine(tmp_path):
    """Without the bound, two programs in flight wait for each other and the process is aborted."""
    flags = '--xla_force_host_platform_device_count=2 --xla_cpu_collective_call_terminate_timeout_seconds=12'
    environment = {**os.environ, 'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': flags}
    environment['TRANSFORMER_CACHE'] = str(tmp_path)
    idle = environment | {'XLA_FLAGS': ''}
    others = [subprocess.Popen([sys.executable, '-c', BUSY], env=idle) for _ in range(2)]
    try:
        for _ in range(TRIES):
            done = subprocess.run(
                [sys.executable, '-c', STRESS], cwd=ROOT, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0 and done.stdout == 'ended\n', done.stderr[-2000:]
    finally:
        for other in others:
            other.kill()
            other.wait()
