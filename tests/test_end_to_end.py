"""Whole runs as processes: killed, stopped and resumed, they end like an uninterrupted run."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parent.parent
STEPS = 60
OPTIONS = {
    'model.N': 1,
    'model.d_model': 32,
    'model.d_ff': 64,
    'model.h': 2,
    'model.P_drop': 0.2,
    'train.steps': STEPS,
    'train.log_every': 7,
    'train.eval_every': 10,
    'train.checkpoint_every': 10,
    'train.microbatches': 2,
    'data.batch_tokens': 1024,
    # So few that the steps cross epochs.
    'data.train_examples': 1000,
    'data.pieces': 600,
    # Sentences are translated at the end, of which few, and their first words, are enough.
    'data.dev': 'dev[:20]',
    'data.test': 'test[:20]',
    'decode.method': 'greedy',
    'decode.max_source_len': 8,
    'decode.extra_len': 0,
}


def command(workdir: pathlib.Path, *flags: str) -> list[str]:
    options = [f'--config.{key}={value}' for key, value in OPTIONS.items()]
    return [sys.executable, str(ROOT / 'run.py'), f'--workdir={workdir}', *options, *flags]


def start(workdir: pathlib.Path, *flags: str) -> subprocess.Popen:
    """Starts a training on one device, whose processors are not divided among eight."""
    environment = {
        **os.environ,
        'XLA_FLAGS': f'{os.environ["XLA_FLAGS"]} --xla_force_host_platform_device_count=1',
    }
    quiet = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.PIPE, 'text': True}
    return subprocess.Popen(command(workdir, *flags), cwd=ROOT, env=environment, **quiet)


def finish(workdir: pathlib.Path, *flags: str) -> dict:
    process = start(workdir, *flags)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    return json.loads((workdir / 'result.json').read_text())


def last_step(workdir: pathlib.Path) -> int:
    file = workdir / 'metrics.jsonl'
    lines = file.read_text().splitlines() if file.exists() else []
    return json.loads(lines[-1])['step'] if lines and lines[-1].endswith('}') else 0


def wait_for_step(process: subprocess.Popen, workdir: pathlib.Path, step: int) -> None:
    while last_step(workdir) < step:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)


@pytest.fixture(scope='module')
def through(tmp_path_factory) -> pathlib.Path:
    workdir = tmp_path_factory.mktemp('through') / 'w'
    result = finish(workdir)
    assert result['steps'] == STEPS and result['epochs'] > 2
    return workdir


def test_a_kill_and_a_sigterm(through, tmp_path):
    moments = random.Random()
    for part in range(2):
        # Its scores take longer than the sleep below, so that it never ends before the signal.
        process = start(tmp_path / 'w')
        # At random in each half, in the middle of epochs, of saves and of evaluations.
        wait_for_step(process, tmp_path / 'w', part * STEPS // 2 + moments.randrange(STEPS // 2 - 10))
        time.sleep(moments.random() * 0.5)
        if part == 1:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate()
            assert process.returncode == 143
            assert 'stopped by signal 15 at step' in errors.splitlines()[-1]
            stopped = int(errors.split('at step ')[-1].split(',')[0])
            assert (tmp_path / 'w' / 'checkpoints' / str(stopped)).exists()
        else:
            process.kill()
            process.communicate()
        assert not (tmp_path / 'w' / 'result.json').exists()
    assert_same(finish(tmp_path / 'w', '--no-evaluation'), through)


def assert_same(result: dict, through: pathlib.Path) -> None:
    expected = json.loads((through / 'result.json').read_text())
    for key in ('params_sha256', 'steps', 'tokens'):
        assert result[key] == expected[key]


def test_the_work_directory(through):
    names = {path.name for path in through.iterdir()}
    assert names == {
        'config.json', 'environment.json', 'tokenizer.model', 'data.lock.json', 'checkpoints',
        'metrics.jsonl', 'tensorboard', 'translations', 'figures', 'result.json', 'curve.json', 'data',
        '.lock', '.result.lock',
    }  # fmt: skip
    result = json.loads((through / 'result.json').read_text())
    assert set(result) == {
        'params', 'params_sha256', 'steps', 'epochs', 'tokens', 'seconds', 'tokens_per_second', 'config',
        'versions', 'hardware', 'evaluated', 'scores',
    }  # fmt: skip
    assert set(result['scores']) == {'dev', 'test', 'pronoun'}
    assert {'checkpoint', 'decode', 'loss', 'perplexity', 'bleu'} <= set(result['scores']['test'])
    assert 0.0 <= result['scores']['pronoun']['pronoun_accuracy'] <= 1.0
    for split, lines in (('dev', 20), ('test', 20), ('pronoun', 1000)):
        assert len((through / 'translations' / f'{split}.latest.txt').read_text().split('\n')) == lines + 1
    assert (through / 'figures' / 'attention.png').stat().st_size > 10_000
    lines = [json.loads(line) for line in (through / 'metrics.jsonl').read_text().splitlines()]
    assert {'loss', 'tokens_per_second', 'learning_rate'} <= set(lines[0])
    assert lines[-1]['step'] == STEPS and 'dev_loss' in lines[-1]
    kept = {path.name for path in (through / 'checkpoints').iterdir() if path.name.isdecimal()}
    assert {str(STEPS), str(STEPS - 10)} <= kept and len(kept) <= 3
