"""Sweeps: their runs are separate processes, distinguished by files, and launched again if missing."""

import dataclasses
import errno
import fcntl
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import cloudpickle
import psutil
import pytest
from small_runs import SMALL, needs_slurm, until

from experiments import report, sweep
from experiments.sweeps import launch, runs
from experiments.tables import rows as tables
from experiments.tables import scales
from transformer import config as configs
from transformer import locks, progress
from transformer.config import ConfigError

PAIRS = [('a red dog', 'ein roter Hund'), ('two cats', 'zwei Katzen'), ('a dog', 'ein Hund')]


@pytest.fixture(scope='module')
def text(tmp_path_factory):
    """Writes a text so small that a run takes seconds, and returns its folder."""
    folder = tmp_path_factory.mktemp('text')
    for split, count in (('train', 40), ('val', 1), ('test_2016_flickr', 1)):
        for side, language in enumerate(('en', 'de')):
            lines = ''.join(f'{pair[side]} {i}\n' for i in range(count) for pair in PAIRS)
            (folder / f'{split}.{language}').write_text(lines)
    return folder


@pytest.fixture(autouse=True)
def _one_device(monkeypatch):
    """Gives each run one device, so that its processors are not divided among eight."""
    monkeypatch.setenv('XLA_FLAGS', f'{os.environ["XLA_FLAGS"]} --xla_force_host_platform_device_count=1')


@pytest.fixture
def call(text):
    """Returns the options of a sweep over this text."""
    return ['--table=3', '--scale=multi30k', *sets(SMALL | {'data.dir': text, 'decode.method': 'greedy'})]


def sets(changes: dict[str, object]) -> list[str]:
    return [f'--set={key}={value}' for key, value in changes.items()]


def resized(call: list[str], steps: int, checkpoint_every: int) -> list[str]:
    """Returns the options of a sweep with other numbers of updates."""
    sizes = {'train.steps': steps, 'train.checkpoint_every': checkpoint_every}
    return [word for word in call if word.split('=')[1] not in sizes] + sets(sizes)


def states(workdir: pathlib.Path) -> dict[str, runs.RunState]:
    found = runs.states(runs.read_sweep(workdir), workdir)
    return {state.run.name: state for state in found}


def process_of(run: runs.SweepRun) -> psutil.Process:
    """Waits for the process of run.py, and returns it."""
    for _ in range(1500):
        for process in psutil.process_iter(['cmdline']):
            words = process.info['cmdline'] or []
            # Not the shell that becomes it.
            if f'--workdir={run.folder}' in words and words[0] == sys.executable:
                return process
        time.sleep(0.3)
    raise AssertionError(f'{run.name} does not start')


def fail_and_kill(call: list[str], workdir: pathlib.Path) -> tuple[threading.Thread, list[str]]:
    """Prepares two rows with two seeds, of which one run fails and one is killed.

    Returns:
      The thread that kills, and the call.
    """
    (workdir / 'A1-seed1').mkdir(parents=True)
    (workdir / 'A1-seed1' / 'notes.txt').write_text('mine')
    killed = threading.Thread(target=lambda: process_of(run_of(workdir, 'base', 2)).kill(), daemon=True)
    killed.start()
    rows = ['run', *call, '--rows=base,A1', '--seeds=2', f'--workdir={workdir}']
    return killed, rows


def run_of(workdir: pathlib.Path, row: str, seed: int) -> runs.SweepRun:
    return runs.SweepRun(row, seed, 4, workdir.resolve(), ())


def check_failed(workdir: pathlib.Path) -> None:
    found = states(workdir)
    assert {name: state.state for name, state in found.items()} == {
        'base-seed1': 'done', 'base-seed2': 'failed', 'A1-seed1': 'failed', 'A1-seed2': 'done',
    }  # fmt: skip
    assert 'A1-seed1: not empty and holds no config.json' in found['A1-seed1'].error
    assert found['base-seed2'].error.startswith('killed by SIGKILL')
    assert found['base-seed1'].step == 4


def reported(workdir: pathlib.Path, capsys) -> tuple[dict[str, str], list[str]]:
    """Returns the report's column of our perplexities, and its notes on runs."""
    assert report.main(['report', '--table=3', f'--workdir={workdir}', '--format=markdown']) == 0
    lines = capsys.readouterr().out.splitlines()
    table = [[cell.strip() for cell in line.split('|')[1:-1]] for line in lines if line.startswith('|')]
    column = table[0].index('PPL ours')
    notes = [line for line in lines if '-seed' in line]
    return {row[0]: row[column] for row in table[2:] if row[0] in ('base', 'A1', 'E')}, notes


def check_reported(workdir: pathlib.Path, capsys, *, failed: bool) -> None:
    shown, notes = reported(workdir, capsys)
    seeds = {name: cell.partition('(')[2] for name, cell in shown.items()}
    # E was not chosen.
    assert seeds == dict.fromkeys(('base', 'A1'), '1)' if failed else '2)')
    assert len(notes) == (2 if failed else 0)
    if failed:
        assert 'base-seed2: failed at step ' in notes[0] and 'killed by SIGKILL' in notes[0]
        assert 'A1-seed1: failed at step 0: ' in notes[1] and 'holds no config.json' in notes[1]


def results(workdir: pathlib.Path) -> dict[str, tuple[str, float]]:
    return {
        path.parent.name: (json.loads(path.read_text())['params_sha256'], path.stat().st_mtime)
        for path in workdir.glob('*/result.json')
    }


def test_a_sweep_on_this_machine(call, tmp_path, capsys):
    killed, argv = fail_and_kill(call, tmp_path)
    assert sweep.main(['sweep', *argv, '--parallel=2']) == 1
    killed.join()
    out = capsys.readouterr().out
    assert out.startswith(f'{tmp_path}: 4 of 4 runs to do\n')
    assert '2 of 4 runs are not done' in out
    check_failed(tmp_path)
    check_reported(tmp_path, capsys, failed=True)
    assert sweep.main(['sweep', 'status', f'--workdir={tmp_path}']) == 0
    shown = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert shown['A1-seed2'].split()[1:4] == ['done', '4/4', '0:00:00']
    assert 'failed' in shown['base-seed2'] and 'SIGKILL' in shown['base-seed2']
    assert shown[f'{tmp_path}:'] == f'{tmp_path}: 2 done, 2 failed'
    before = results(tmp_path)
    (tmp_path / 'A1-seed1' / 'notes.txt').unlink()
    assert sweep.main(['sweep', *argv, '--parallel=2']) == 0
    out = capsys.readouterr().out
    assert f'{tmp_path}: 2 of 4 runs to do' in out
    assert {line.split()[1] for line in out.splitlines()[1:]} == {'A1-seed1:', 'base-seed2:'}
    after = results(tmp_path)
    assert {state.state for state in states(tmp_path).values()} == {'done'} and len(after) == 4
    assert before.items() <= after.items()
    assert len({digest for digest, _ in after.values()}) == 4
    check_reported(tmp_path, capsys, failed=False)
    assert sweep.main(['sweep', *argv]) == 0
    assert capsys.readouterr().out == f'{tmp_path}: 0 of 4 runs to do\n'


def test_a_sweep_of_language_models(text, tmp_path, capsys):
    """Table, scale and measures are another task's; sweep and report are the same."""
    of_text = {'data.source': 'text', 'data.dir': text, 'data.dev': 'val', 'data.test': 'val'}
    of_text['train.average_last'] = 0
    call = ['--table=language', '--rows=base', *sets(SMALL | of_text), f'--workdir={tmp_path}']
    assert sweep.main(['sweep', 'run', *call]) == 0
    assert runs.read_sweep(tmp_path).scale == 'language'
    capsys.readouterr()
    assert report.main(['report', f'--workdir={tmp_path}', '--format=markdown']) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith('|')]
    header, _, base, *_ = [[cell.strip() for cell in line.split('|')[1:-1]] for line in lines]
    found = dict(zip(header, base, strict=True))
    scores = json.loads((tmp_path / 'base-seed1' / 'result.json').read_text())['scores']['dev']
    assert found['PPL ours'] == f'{scores["perplexity"]:.3f} (1)'
    assert found['PPL/word ours'] == f'{scores["word"]["perplexity"]:.3f} (1)'
    assert found['bits/byte ours'] == f'{scores["bits_per_byte"]:.4f} (1)'


ON_SLURM = ['--launcher=slurm', '--cpus=1', '--mem_gb=3', '--hours=0.5']


def test_ctrl_c_saves(call, tmp_path):
    """The run is where it stopped."""
    call = [*resized(call, 50_000, 50_000), '--rows=base', f'--workdir={tmp_path}']
    words = ['-m', 'experiments.sweep', 'run', *call]
    process = subprocess.Popen(
        [sys.executable, *words], cwd=launch.ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    (tmp_path / 'jobs').mkdir(exist_ok=True)
    until(lambda: (tmp_path / runs.SWEEP).exists() and states(tmp_path)['base-seed1'].step >= 3)
    # A process group of its own is what a terminal sends Ctrl-C to.
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=300)[1] == 'stopped\n'
    assert process.returncode == 128 + signal.SIGINT
    state = states(tmp_path)['base-seed1']
    assert state.state == 'stopped' and 3 <= state.step < 50000
    assert f'stopped by signal 15 at step {state.step}, which is saved' in state.run.file('log').read_text()


def test_sigterm_saves_where_sigint_is_ignored(call, tmp_path):
    """As in what a script starts with `&`; the run compiles, and a second SIGTERM does not leave it."""
    call = [*resized(call, 50_000, 50_000), '--rows=base', f'--workdir={tmp_path}']
    words = ['-m', 'experiments.sweep', 'run', *call]
    process = subprocess.Popen(
        ['sh', '-c', 'trap "" INT; exec "$@"', 'sh', sys.executable, *words],
        cwd=launch.ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    log = tmp_path / 'jobs' / 'base-seed1.log'
    # The line is the last one before the first update compiles.
    until(lambda: log.exists() and 'work directory: ' in log.read_text())
    process.send_signal(signal.SIGTERM)
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=300)[1] == 'stopped\n'
    assert process.returncode == 128 + signal.SIGTERM
    state = states(tmp_path)['base-seed1']
    assert state.state == 'stopped' and not locks.is_held(state.run.file('lock'))
    assert f'stopped by signal 15 at step {state.step}, which is saved' in log.read_text()


def test_a_run_that_has_not_started_does_not_start(tmp_path):
    """The sweep ends while the process of its launcher imports what it needs."""
    run = scripted(tmp_path, f'open({str(tmp_path / "started")!r}, "w")')
    sleep, ended = time.sleep, []

    def end_once(seconds: float) -> None:
        if not ended:
            ended.append(True)
            sys.exit(143)
        sleep(seconds)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time, 'sleep', end_once)
        with pytest.raises(SystemExit):
            next(launch.on_this_machine([run], tmp_path, 1, 0))
    assert not (tmp_path / 'started').exists() and not locks.is_held(run.file('lock'))


@pytest.mark.slurm
@needs_slurm
def test_a_sweep_on_slurm(call, tmp_path, capsys):
    killed, argv = fail_and_kill(call, tmp_path)
    argv += ON_SLURM
    assert sweep.main(['sweep', *argv]) == 0
    assert '4 of 4 runs to do\nsubmitted as ' in capsys.readouterr().out
    assert {'queued', 'running'} & {state.state for state in states(tmp_path).values()}
    # What waits or runs is not submitted again.
    assert sweep.main(['sweep', *argv]) == 0
    assert capsys.readouterr().out == f'{tmp_path}: 0 of 4 runs to do\n'
    wait(tmp_path)
    killed.join()
    check_failed(tmp_path)
    check_reported(tmp_path, capsys, failed=True)
    before = results(tmp_path)
    (tmp_path / 'A1-seed1' / 'notes.txt').unlink()
    assert sweep.main(['sweep', *argv]) == 0
    assert f'{tmp_path}: 2 of 4 runs to do' in capsys.readouterr().out
    wait(tmp_path)
    after = results(tmp_path)
    assert {state.state for state in states(tmp_path).values()} == {'done'} and len(after) == 4
    assert before.items() <= after.items()
    check_reported(tmp_path, capsys, failed=False)


@pytest.mark.slurm
@needs_slurm
def test_a_preempted_run_is_queued_again_and_resumes(call, tmp_path):
    """With the parameters of a run that nothing interrupted; only the preemption made it save."""
    call = [*resized(call, 150, 1000), '--rows=A1']
    assert sweep.main(['sweep', 'run', *call, f'--workdir={tmp_path / "once"}']) == 0
    workdir = tmp_path / 'preempted'
    assert sweep.main(['sweep', 'run', *call, *ON_SLURM, f'--workdir={workdir}']) == 0
    process_of(runs.SweepRun('A1', 1, 150, workdir.resolve(), ()))
    until(lambda: states(workdir)['A1-seed1'].step >= 20)
    (job,) = runs.read_sweep(workdir).jobs.values()
    subprocess.run(['scancel', '--signal=USR2', job], check=True)
    wait(workdir)
    state = states(workdir)['A1-seed1']
    assert (state.state, state.step) == ('done', 150)
    log = state.run.file('log').read_text()
    assert 20 <= int(log.partition('stopped by signal 15 at step ')[2].partition(',')[0]) < 150
    assert results(workdir)['A1-seed1'][0] == results(tmp_path / 'once')['A1-seed1'][0]


def wait(workdir: pathlib.Path) -> None:
    until(lambda: not {'queued', 'running'} & {state.state for state in states(workdir).values()})


@dataclasses.dataclass(frozen=True)
class Scripted(runs.SweepRun):
    """A run of a Python program instead of run.py."""

    def command(self) -> list[str]:
        return [sys.executable, '-c', self.options[0]]


def scripted(workdir: pathlib.Path, program: str) -> Scripted:
    (workdir / 'jobs').mkdir(exist_ok=True)
    return Scripted('base', 1, 100, workdir, (program,))


def finish(run: Scripted) -> None:
    """Makes what a training leaves."""
    run.folder.mkdir()
    (run.folder / 'result.json').write_text('{}')


@pytest.mark.parametrize(
    'program, state, error',
    [
        ('print("error: no data\\nbye"); exit(2)', 'failed', 'no data'),
        ('raise MemoryError("3 GiB")', 'failed', 'MemoryError: 3 GiB'),
        ('exit(3)', 'failed', 'exit status 3'),
        ('exit(143)', 'stopped', 'exit status 143'),
        ('import os; os.kill(os.getpid(), 15)', 'stopped', 'killed by SIGTERM'),
        (
            'import os; os.kill(os.getpid(), 9)',
            'failed',
            'killed by SIGKILL (by the system where memory ran out)',
        ),
        ('pass', 'done', ''),
    ],
)  # fmt: skip
def test_how_a_run_ended(tmp_path, program, state, error):
    run = scripted(tmp_path, program)
    run.file('log').write_text('error: of the time before\n')
    job = launch.Job(run)
    if state == 'done':
        finish(run)
        job()
    else:
        with pytest.raises(RuntimeError, match='base-seed1: '):
            job()
    for queued in [set(), {run.name}] if state == 'done' else [set()]:
        found = runs.state(run, queued)
        assert (found.state, found.error) == (state, error)
    assert runs.state(dataclasses.replace(run, options=('other',)), set()).state == 'missing'


def test_what_is_done_is_not_done_again(tmp_path):
    run = scripted(tmp_path, 'print("once")')
    launch.Job(run)()
    # What it should have made is not there.
    assert runs.state(run, set()).state == 'missing'
    finish(run)
    assert runs.state(run, set()).state == 'done'
    launch.Job(run)()
    assert run.file('log').read_text() == 'once\n'
    shutil.rmtree(run.folder)
    launch.Job(run)()
    assert run.file('log').read_text() == 'once\nonce\n'


def test_ctrl_c_while_a_run_saves_does_not_leave_it(tmp_path):
    """The launcher sends another SIGINT right after that of the terminal."""
    program = (
        'import os, signal, sys, time\n'
        'def save(*_):\n'
        '    os.kill(os.getppid(), signal.SIGINT)\n'
        '    time.sleep(0.5)\n'
        '    print("saved", flush=True)\n'
        '    os._exit(143)\n'
        'signal.signal(signal.SIGTERM, save)\n'
        'os.kill(os.getppid(), signal.SIGINT)\n'
        'time.sleep(60)\n'
    )
    run, before = scripted(tmp_path, program), signal.getsignal(signal.SIGINT)
    with pytest.raises(RuntimeError, match='base-seed1: saved'):
        launch.Job(run)()
    found = runs.state(run, set())
    assert (found.state, found.error) == ('stopped', 'saved')
    assert signal.getsignal(signal.SIGINT) is before


def test_slurm_that_does_not_answer(tmp_path, monkeypatch):
    squeue = tmp_path / 'squeue'
    squeue.write_text('#!/bin/sh\necho "squeue: error: no\ncontroller" >&2; exit 1\n')
    squeue.chmod(0o755)
    monkeypatch.setenv('PATH', f'{tmp_path}:{os.environ["PATH"]}')
    with pytest.raises(ConfigError, match='^squeue: squeue: error: no controller$'):
        runs._queued({'base-seed1': '7_0'})
    squeue.write_text('#!/bin/sh\nprintf "7_0\\n7_2\\n"\n')
    assert runs._queued({'a': '7_0', 'b': '7_1', 'c': '7_2'}) == {'a', 'c'}
    assert runs._queued({}) == set()


def test_the_time_that_is_left(tmp_path):
    run = scripted(tmp_path, 'pass')
    at = lambda state, step, seconds: runs.RunState(run, state, step, seconds, '')
    found = [at('done', 100, 1.0), at('running', 40, 3.0), at('running', 50, None), at('missing', 0, None)]
    assert runs.seconds_left(found) == [0.0, 60 * 3, 50 * 2, 100 * 2]
    # Two at a time. What failed waits for a relaunch.
    shown = sweep._total_left([*found, at('failed', 10, None)])
    assert shown == '; 0:04:00 left with 2 at a time'
    assert sweep._total_left([at('missing', 0, None)]) == ''


def test_the_environment_of_a_run(tmp_path, monkeypatch):
    monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
    program = 'import os; print(os.environ.get("CUDA_VISIBLE_DEVICES"))'
    run = scripted(tmp_path, program)
    monkeypatch.setattr(launch, 'visible_gpus', lambda: 9)
    for environment in (launch._devices(2, 3), {'CUDA_VISIBLE_DEVICES': None}):
        run.file('json').unlink(missing_ok=True)
        launch.Job(run, environment)()
    assert run.file('log').read_text() == '6,7,8\nNone\n'
    with pytest.raises(ConfigError, match='--gpus=3: 4 runs at a time need 12, and 9 were found'):
        launch._devices(3, 3)
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '4,6,7')
    assert launch._devices(1, 1) == {'CUDA_VISIBLE_DEVICES': '6'}
    with pytest.raises(ConfigError, match='--gpus=2: 2 runs at a time need 4'):
        launch._devices(1, 2)
    # All are hidden.
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '')
    with pytest.raises(ConfigError, match="need 1, CUDA_VISIBLE_DEVICES is ''"):
        launch._devices(0, 1)


def test_runs_at_once_share_the_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(os, 'sched_getaffinity', lambda process: {7, 2, 3, 5, 11})
    assert launch._cores(1, 9) == [[2, 3, 5, 7, 11]]
    assert launch._cores(2, 9) == [[2, 3], [5, 7, 11]]
    assert launch._cores(7, 9) == [[2], [3], [5], [7], [11], [2], [3]]
    # A single run has all of them, whatever could go on beside it.
    assert launch._cores(3, 1)[0] == [2, 3, 5, 7, 11]
    monkeypatch.undo()
    last = max(os.sched_getaffinity(0))
    run = scripted(tmp_path, 'import os; print(os.sched_getaffinity(0))')
    launch.Job(run, cores=[last])()
    assert run.file('log').read_text() == f'{{{last}}}\n'
    assert os.sched_getaffinity(0) == os.sched_getaffinity(os.getppid())
    monkeypatch.delattr(os, 'sched_getaffinity')
    assert launch._cores(2, 9) == [(), ()]


def test_a_folder_without_rows_needs_its_table(tmp_path, capsys):
    runs.write_sweep(tmp_path, runs.Sweep('3', 'grammar', {}, ()))
    assert sweep.main(['sweep', 'run', f'--workdir={tmp_path}', '--seeds=2']) == 2
    assert '--table' in capsys.readouterr().err


def test_seed_by_seed_the_longest_first(tmp_path, monkeypatch):
    launched = []
    monkeypatch.setattr(launch, 'on_this_machine', lambda missing, *_: launched.extend(missing) or [])
    call = ['sweep', 'run', '--scale=grammar', '--rows=base,A1,big', f'--workdir={tmp_path}']
    assert sweep.main([*call, '--seeds=2']) == sweep.main([*call, '--seeds=2-3']) == 1
    rows = 'big', 'base', 'A1'
    assert [run.name for run in launched] == [f'{row}-seed{seed}' for seed in (1, 2, 2, 3) for row in rows]
    assert set(runs.read_sweep(tmp_path).runs) == set(itertools.product(rows, [1, 2, 3]))


def test_a_corrected_row_begins_anew_and_what_was_begun_is_moved_aside(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(launch, 'on_this_machine', lambda missing, *_: [])
    table = 'from experiments.tables.rows import Row, Table\nTABLE = Table(%s, "dev")\n'
    mine, workdir = tmp_path / 'mine.py', tmp_path / 'w'
    argv = ['sweep', 'run', f'--table={mine}', '--scale=grammar', '--seeds=1', f'--workdir={workdir}']
    written = lambda changes: mine.write_text(table % f'(Row("base", {{}}), Row("A", {changes}))')
    written({'model.h': 2})
    assert sweep.main(argv) == 1
    begun = runs.read_sweep(workdir)
    for run in begun.all_runs(workdir):
        (run.folder / 'checkpoints' / '5').mkdir(parents=True)
        row = [row for row in tables.rows(begun.table) if row.name == run.row]
        # Begun with other steps, as a row may be.
        config = scales.config(*row, begun.scale, {'train.seed': run.seed, 'train.steps': 7})
        (run.folder / 'data.lock.json').write_text('{}')
        (run.folder / 'config.json').write_text(configs.to_json(config))
    written({'model.h': 1})
    for number in (1, 2):
        capsys.readouterr()
        assert sweep.main(argv) == 1
        moved = workdir / f'A-seed1.superseded-{number}'
        assert str(moved) in capsys.readouterr().out
        assert (moved / 'checkpoints' / '5').exists() and not (workdir / 'A-seed1').exists()
        assert (workdir / 'base-seed1' / 'checkpoints' / '5').exists()
        shutil.copytree(moved, workdir / 'A-seed1')
    # What was finished stays where it is.
    config = (workdir / 'A-seed1' / 'config.json').read_text()
    (workdir / 'A-seed1' / 'result.json').write_text(f'{{"config": {config}}}')
    assert sweep.main(argv) == 1
    assert (workdir / 'A-seed1').exists() and not (workdir / 'A-seed1.superseded-3').exists()


def test_a_line_a_minute_says_how_far_the_runs_are(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(progress, 'PATIENCE', 0.01)
    monkeypatch.setattr(sweep, 'MINUTE', 0.01)
    monkeypatch.setattr(sweep, 'print', lambda line, **_: lines.append(line), raising=False)

    def launched(missing, *_):
        base, _ = missing
        base.folder.mkdir()
        (base.folder / 'metrics.jsonl').write_text(
            '{"step": 50, "seconds": 80.0}\n{"step": 150, "seconds": 180.0}\n'
        )
        with locks.exclusive(base.file('lock'), wait=0):
            until(lambda: sum('base-seed1 150/1500' in line for line in lines) > 1, 60)
        yield from ()

    monkeypatch.setattr(launch, 'on_this_machine', launched)
    call = ['sweep', 'run', '--scale=grammar', '--rows=base,A1', '--seeds=1', f'--workdir={tmp_path}']
    assert sweep.main(call) == 1
    # 1,350 of 1,500 updates at a second each, and A1's 1,500.
    line = '0 of 2 done; running: base-seed1 150/1500; 0:47:30 left with 1 at a time'
    assert line in lines


def test_a_run_that_runs_is_left_alone(tmp_path):
    run = scripted(tmp_path, 'import time; time.sleep(60)')
    with locks.exclusive(run.file('lock'), wait=0):
        assert runs.state(run, {run.name}).state == 'running'
        launch.Job(run)()
    assert not run.file('log').exists()
    assert runs.state(run, {run.name}).state == 'queued'
    assert runs.state(run, set()).state == 'missing'


def test_what_another_process_trains_is_not_done(tmp_path, capsys):
    call = ['sweep', 'run', '--scale=grammar', '--rows=base', f'--workdir={tmp_path}']
    (tmp_path / 'jobs').mkdir()
    with locks.exclusive(run_of(tmp_path, 'base', 1).file('lock'), wait=0):
        assert sweep.main(call) == 1
    assert '0 of 1 runs to do' in capsys.readouterr().out


def test_who_looks_does_not_run(tmp_path):
    run = scripted(tmp_path, 'pass')
    with run.file('lock').open('a') as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not locks.is_held(run.file('lock'))


@pytest.mark.parametrize('number', [errno.ENOLCK, errno.EIO])
def test_no_lock_is_held_where_there_are_none(tmp_path, monkeypatch, number):
    def flock(*_):
        raise OSError(number, 'flock')

    monkeypatch.setattr(fcntl, 'flock', flock)
    (tmp_path / 'lock').touch()
    if number == errno.EIO:
        with pytest.raises(OSError, match='flock'):
            locks.is_held(tmp_path / 'lock')
    else:
        assert not locks.is_held(tmp_path / 'lock')


def test_a_run_outlives_who_watches_it(tmp_path):
    """The lock is the run's too: nothing starts a second one."""
    run = scripted(tmp_path, 'import time; print("here", flush=True); time.sleep(30)')
    program = 'import pickle, sys; pickle.load(sys.stdin.buffer)()'
    watcher = subprocess.Popen([sys.executable, '-c', program], stdin=subprocess.PIPE, cwd=launch.ROOT)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    watcher.stdin.write(cloudpickle.dumps(launch.Job(run)))
    watcher.stdin.close()
    until(lambda: run.file('log').exists() and 'here' in run.file('log').read_text())
    children = psutil.Process(watcher.pid).children()
    watcher.kill()
    watcher.wait()
    assert runs.state(run, set()).state == 'running'
    for child in children:
        child.kill()
    until(lambda: not locks.is_held(run.file('lock')))
    assert runs.state(run, set()).state == 'missing'


def test_preemption_saves_and_gives_the_job_back(tmp_path):
    """The scheduler's signal reaches every process; the run gets one SIGTERM, and is waited for."""
    program = '\n'.join(
        [
            'import os, pathlib, signal, sys, time',
            'def save(*_): time.sleep(1); pathlib.Path("SAVED").touch(); sys.exit(143)',
            'signal.signal(signal.SIGTERM, save)',
            'os.kill(os.getpid(), signal.SIGUSR2)',
            'pathlib.Path("READY").touch()',
            'time.sleep(60)',
        ]
    )
    saved, ready = tmp_path / 'saved', tmp_path / 'ready'
    run = scripted(tmp_path, program.replace('SAVED', str(saved)).replace('READY', str(ready)))
    job = launch.Job(run)
    given_back = []

    def preempted(*_):
        given_back.append(job.checkpoint())
        assert saved.exists()
        sys.exit(1)

    before = signal.signal(signal.SIGUSR2, preempted)

    def scheduler():
        while not ready.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGUSR2)

    threading.Thread(target=scheduler).start()
    try:
        with pytest.raises(SystemExit):
            job()
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert given_back[0].function is job
    assert not locks.is_held(run.file('lock'))
    assert not run.file('json').exists()


def test_progress(tmp_path):
    run = scripted(tmp_path, 'pass')
    assert runs._progress(run) == (0, None, '')
    run.folder.mkdir()
    # Ten seconds to compile, then two for an update and ten for an evaluation.
    lines = '{"step": 5, "seconds": 20.0}\n{"step": 10, "seconds": 30.0}\n{"step": 10, "dev_loss": 1.0}\n'
    (run.folder / 'metrics.jsonl').write_text(lines + '{"step": 15, "tok')
    state = runs.state(run, set())
    # 90 of 100 steps are left.
    assert (state.state, state.step, runs.seconds_left([state])) == ('stopped', 10, [180.0])
    (run.folder / 'metrics.jsonl').write_text(lines + '{"step": 15, "seconds": 50.0}\n')
    assert runs.seconds_left([runs.state(run, set())]) == [85 * 3.0]
    # A step with compilation says little of the others.
    (run.folder / 'metrics.jsonl').write_text('{"step": 5, "seconds": 20.0}\n')
    assert runs.seconds_left([runs.state(run, set())]) == [None]
    (run.folder / 'metrics.jsonl').write_text('{"step": 10}\n{"step": ?}\n')
    state = runs.state(run, set())
    assert (state.state, state.step) == ('stopped', 10) and 'metrics.jsonl: line 2' in state.error


def test_a_damaged_record_of_a_run_is_a_mistake(tmp_path):
    run = scripted(tmp_path, 'pass')
    run.file('json').write_text('{"options": null, "status": 0, "error": ""}')
    with pytest.raises(ConfigError, match='base-seed1.json: options'):
        runs.state(run, set())


def test_brackets_without_end_are_damage(tmp_path):
    (tmp_path / 'result.json').write_text('[' * 10**5)
    with pytest.raises(ConfigError, match='result.json: damaged'):
        runs.read_json(tmp_path / 'result.json', [])


def test_a_result_without_the_sweeps_jobs_is_done(tmp_path):
    (run,) = runs.Sweep('3', 'grammar', {}, (('base', 1),)).all_runs(tmp_path)
    finish(run)
    assert not runs.is_done(run)
    result = {'steps': 1500, 'config': dataclasses.asdict(run.config), 'scores': {'dev': {}}}
    # A result whose scoring was killed is none.
    (run.folder / 'result.json').write_text(json.dumps(result | {'scores': {}, 'evaluated': False}))
    assert not runs.is_done(run)
    (run.folder / 'result.json').write_text(json.dumps(result))
    state = runs.state(run, set())
    assert (state.state, state.step) == ('done', 1500)
    (run.folder / 'result.json').write_text(json.dumps({**result, 'steps': 300}))
    assert not runs.is_done(run)
    (other,) = runs.Sweep('3', 'grammar', {'train.beta2': 0.9}, (('base', 1),)).all_runs(tmp_path)
    (run.folder / 'result.json').write_text(json.dumps(result))
    assert not runs.is_done(other)


@pytest.mark.parametrize('error', [BrokenPipeError(), ConfigError('damaged')])
def test_a_line_that_cannot_be_printed_ends_no_run(tmp_path, monkeypatch, error):
    lines = []

    def fail(*_):
        lines.append(1)
        raise error

    def launched(*_):
        # The second line shows that the thread has survived the first.
        until(lambda: len(lines) > 1, 60)
        yield from ()

    monkeypatch.setattr(progress, 'PATIENCE', 0.01)
    monkeypatch.setattr(sweep, 'MINUTE', 0.01)
    monkeypatch.setattr(sweep, '_running', fail)
    monkeypatch.setattr(launch, 'on_this_machine', launched)
    assert sweep.main(['sweep', 'run', '--scale=grammar', '--rows=base', f'--workdir={tmp_path}']) == 1


def test_the_data_of_a_sweep_may_move(tmp_path):
    old = runs.Sweep('3', 'multi30k', {'train.beta2': 0.9, 'data.dir': 'here'}, (('base', 1),))
    runs.write_sweep(tmp_path, old)
    (run,) = old.all_runs(tmp_path)
    finish(run)
    run.file('json').parent.mkdir()
    run.file('json').write_text(json.dumps({'options': run.options, 'status': 0, 'error': ''}))
    moved = runs.join(tmp_path, dataclasses.replace(old, different={**old.different, 'data.dir': 'there'}))
    assert moved.different == {'train.beta2': 0.9, 'data.dir': 'there'}
    (run,) = moved.all_runs(tmp_path)
    assert '--config.data.dir=there' in run.options and runs.is_done(run)
    # Where it is not named, it is where it was.
    assert runs.join(tmp_path, dataclasses.replace(old, different={'train.beta2': 0.9})) == old


def test_a_folder_alone_continues_its_sweep(tmp_path, monkeypatch):
    missing = []
    monkeypatch.setattr(launch, 'on_this_machine', lambda runs, *_: missing.append(runs) or iter(()))
    begun = (('h=1', 1), ('h=2', 1), ('h=1', 2))
    old = runs.Sweep('model.h=1,2,4', 'grammar', {'train.beta2': 0.9}, begun)
    runs.write_sweep(tmp_path, old)
    for flags, expected in (
        ((), [('h=1', 1), ('h=2', 1), ('h=1', 2)]),
        (('--seeds=3-3',), [('h=1', 3), ('h=2', 3)]),
        (('--rows=h=1',), [('h=1', 1), ('h=1', 2), ('h=1', 3)]),
        (('--rows=h=4', '--seeds=1'), [('h=4', 1)]),
    ):
        assert sweep.main(['sweep', 'run', f'--workdir={tmp_path}', *flags]) == 1
        assert [(run.row, run.seed) for run in missing.pop()] == expected
    found = runs.read_sweep(tmp_path)
    assert (found.table, found.different) == (old.table, old.different)
    assert found.runs == (*old.runs, ('h=1', 3), ('h=2', 3), ('h=4', 1))


def test_a_grid_can_grow(tmp_path):
    old = runs.Sweep('model.h=1,2', 'grammar', {}, (('h=1', 1), ('h=2', 1)))
    runs.write_sweep(tmp_path, old)
    joined = runs.join(tmp_path, runs.Sweep('model.h=1,2,4', 'grammar', {}, (('h=4', 1),)))
    assert joined.table == 'model.h=1,2,4' and joined.runs == (*old.runs, ('h=4', 1))
    # Another base, a row less, and rows of other options are another sweep.
    for table in ('model.h=2,1', 'model.h=1,4', 'model.h=1,2 model.N=1,2', '3'):
        with pytest.raises(ConfigError, match='launched with --table'):
            runs.join(tmp_path, dataclasses.replace(old, table=table, runs=()))


def test_a_sweep_goes_on_as_it_began(tmp_path, capsys):
    def launched(*changes: str) -> str:
        status = sweep.main(['sweep', 'run', '--scale=grammar', f'--workdir={tmp_path}', *changes])
        error = capsys.readouterr().err
        assert status == 2 and error.count('\n') == 1
        return error

    old = runs.Sweep('3', 'grammar', {'train.beta2': 0.9, 'train.log_every': 10}, (('base', 1),))
    runs.write_sweep(tmp_path, old)
    assert runs.read_sweep(tmp_path) == old
    assert 'launched with --table=3, now further; choose another --workdir' in launched('--table=further')
    assert 'launched with --set=train.beta2=0.9,train.log_every=10, now none' in launched()
    more = dataclasses.replace(old, runs=(('A1', 1), ('base', 1)))
    runs.write_sweep(tmp_path, dataclasses.replace(old, jobs={'base-seed1': '7_0'}))
    joined = runs.join(tmp_path, more)
    assert (joined.runs, joined.jobs) == ((('base', 1), ('A1', 1)), {'base-seed1': '7_0'})
    (tmp_path / 'config.json').touch()
    assert 'the work directory of one training' in launched()
    (tmp_path / 'config.json').unlink()
    content = (tmp_path / runs.SWEEP).read_text()
    for damage in (
        content[:-9],
        content.replace('beta2', 'beta3'),
        content.replace('"base"', '"bass"'),
        content.replace('1\n', '"1"\n'),
        '[]',
        '[' * 10**5,
    ):
        (tmp_path / runs.SWEEP).write_text(damage)
        assert 'sweep.json: damaged' in launched()


def test_the_task_that_rows_will_have_decides(capsys):
    call = ['sweep', 'plan', '--table=4', '--scale=grammar', '--rows=transformer', '--tflops=1']
    assert sweep.main([*call, '--set=train.task=parsing']) == 0
    assert sweep.main(call) == 2


def test_mistakes_are_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(shutil, 'which', lambda name: None)
    for argv, part in (
        (['status', f'--workdir={tmp_path}'], f'{tmp_path}: '),
        (['status', f'--workdir={__file__}'], f'{__file__}: '),
        (['run', '--set=train.steps'], '--set=train.steps: '),
        (['run', '--set=train.seed=1'], '--set=train.seed: '),
        *(
            (['run', f'--seeds={seeds}'], f'--seeds={seeds}: ')
            for seeds in ('', '0', '2-', '3-2', '1,2', '9' * 9)
        ),
        (['run', '--set=train.stepz=1'], "did you mean 'train.steps'"),
        (['run', '--set=model.d_model=7'], 'row base: model.h=8: d_model=7'),
        (['run', '--rows=A1,Z'], '--rows=Z'),
        (['plan', '--table=4', '--scale=grammar'], '--scale=grammar: '),
        (['run', '--table=4', '--scale=grammar'], 'f1, complete, exact, repaired'),
        (['plan', '--table=2', '--rows=base-en-de', '--scale=grammar-trees'], 'BLEU: '),
        (['run', '--launcher=cloud'], 'launcher'),
        (['run', '--launcher=slurm', '--rows=base', f'--workdir={tmp_path}'], '--launcher=slurm: '),
    ):
        assert sweep.main(['sweep', *argv]) == 2
        error = capsys.readouterr().err
        assert part in error and error.count('\n') == 1
