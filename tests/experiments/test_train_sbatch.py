"""experiments/train.sbatch: one training as a job of SLURM, queued again until it is finished."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from small_runs import SMALL, needs_slurm, until

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = ROOT / 'experiments' / 'train.sbatch'
CONFIG = """
from transformer.config import config_dict


def get_config():
    return config_dict({options})
"""
ENDED = ('COMPLETED', 'FAILED', 'TIMEOUT', 'CANCELLED', 'OUT_OF_MEMORY', 'NODE_FAIL')
# Tools of SLURM that write down how they are called.
SRUN = '#!/bin/bash\nprintf "%s\\n" "$@" > "$CALLS/srun"\nexit "$STATUS"\n'
SCONTROL = '#!/bin/bash\nprintf "%s\\n" "$@" > "$CALLS/scontrol"\n'


def run_script(folder: pathlib.Path, status: int, *arguments: str, **environment: str) -> tuple[int, dict]:
    """Runs the script with an srun that ends with a status. Returns its status, and SLURM's tools' calls."""
    for name, program in {'srun': SRUN, 'scontrol': SCONTROL}.items():
        (folder / name).write_text(program)
        (folder / name).chmod(0o755)
    calls = folder / 'calls'
    calls.mkdir()
    tools = {'PATH': f'{folder}:{os.environ["PATH"]}', 'CALLS': str(calls), 'STATUS': str(status)}
    inherited = {key: value for key, value in os.environ.items() if not key.startswith('SLURM')}
    ended = subprocess.run(
        ['bash', SCRIPT, *arguments], env=inherited | tools | {'SLURM_JOB_ID': '7'} | environment, cwd=folder
    )
    return ended.returncode, {path.name: path.read_text().splitlines() for path in calls.iterdir()}


@pytest.mark.parametrize('status', [0, 2, 3, 137, 143])
def test_only_what_was_stopped_is_queued_again(tmp_path, status):
    ended, calls = run_script(tmp_path, status, '--config=FILE')
    assert calls.get('scontrol') == (['requeue', '7'] if status == 143 else None)
    assert ended == (0 if status == 143 else status)


@pytest.mark.parametrize(
    'environment, cpus, python',
    [
        ({}, [], '.venv/bin/python'),
        ({'SLURM_CPUS_PER_TASK': '4', 'PYTHON': '/a b/python'}, ['--cpus-per-task=4'], '/a b/python'),
    ],
)
def test_arguments_are_passed_on(tmp_path, environment, cpus, python):
    arguments = ['--config=FILE', '--config.data.dir=a folder', '--workdir=*']
    _, calls = run_script(tmp_path, 0, *arguments, **environment)
    assert calls['srun'] == [*cpus, '--kill-on-bad-exit=0', python, 'run.py', '--distributed', *arguments]


def test_options_of_sbatch_precede_all_commands():
    """Later ones would be ignored."""
    lines = SCRIPT.read_text().splitlines()
    options = [number for number, line in enumerate(lines) if line.startswith('#SBATCH ')]
    commands = [number for number, line in enumerate(lines) if line and not line.startswith('#')]
    assert options and max(options) < min(commands)


def write_config(folder: pathlib.Path, steps: int) -> pathlib.Path:
    """Writes a small text, and the config of a training on it, which does not save before its end."""
    for split in ('train', 'dev'):
        for language, line in (('en', 'two cats'), ('de', 'zwei Katzen')):
            (folder / f'{split}.{language}').write_text(''.join(f'{line} {i}\n' for i in range(40)))
    text = {'source': 'text', 'dir': str(folder), 'train': 'train', 'dev': 'dev', 'test': 'dev'}
    rare = dict.fromkeys(('train.eval_every', 'train.checkpoint_every'), 10**6)
    options = SMALL | {f'data.{key}': value for key, value in text.items()} | rare
    options |= {'data.max_len': 16, 'train.steps': steps, 'train.log_every': 100}
    file = folder / 'config.py'
    file.write_text(CONFIG.format(options=options))
    return file


def job_state(job: str) -> tuple[str, int]:
    """Returns the state of a job, and how often it was queued again."""
    shown = subprocess.check_output(['scontrol', 'show', 'job', job], text=True)
    return re.search(r'JobState=(\w+)', shown)[1], int(re.search(r'Restarts=(\d+)', shown)[1])


def until_job(job: str, state: str, restarts: int) -> None:
    """Waits until a job has this state after so many restarts, or fails when it has ended otherwise."""

    def reached() -> bool:
        now, done = job_state(job)
        if now == state and done >= restarts:
            return True
        assert now not in ENDED, now
        return False

    until(reached)


@pytest.mark.slurm
@needs_slurm
def test_a_job_continues_after_its_time_limit(tmp_path, monkeypatch):
    """With the parameters of a training that nothing interrupted; only the end of its time made it save."""
    monkeypatch.setenv('XLA_FLAGS', f'{os.environ["XLA_FLAGS"]} --xla_force_host_platform_device_count=1')
    monkeypatch.setenv('PYTHON', sys.executable)
    # No machine is fast enough to finish it in a minute. When it has been stopped, fewer steps will do.
    config, log = write_config(tmp_path, steps=10**7), tmp_path / 'log'
    # A minute more than the script asks to be stopped before.
    sbatch = ['sbatch', '--parsable', '--time=6', '--mem=3000', f'--output={log}']
    call = [f'--config={config}', f'--workdir={tmp_path / "job"}']
    job = subprocess.check_output([*sbatch, SCRIPT, *call], cwd=ROOT, text=True).strip()
    try:
        until_job(job, 'PENDING', restarts=1)
        stopped = re.search(r'stopped by signal 15 at step (\d+)', log.read_text())
        steps = int(stopped[1]) + 20
        write_config(tmp_path, steps)
        # Else SLURM waits for two minutes.
        subprocess.run(['scontrol', 'update', f'JobId={job}', 'StartTime=now+5'], check=True)
        until_job(job, 'COMPLETED', restarts=1)
    finally:
        subprocess.run(['scancel', job], check=True)
    # Of both starts, in this order.
    assert stopped[0] in log.read_text().partition(f'resuming from step {stopped[1]} of {steps}')[0]
    once = [sys.executable, 'run.py', f'--config={config}', f'--workdir={tmp_path / "once"}']
    subprocess.run(once, cwd=ROOT, check=True, capture_output=True)
    ended = [json.loads((tmp_path / name / 'result.json').read_text()) for name in ('job', 'once')]
    assert [result['steps'] for result in ended] == [steps, steps]
    assert ended[0]['params_sha256'] == ended[1]['params_sha256']
