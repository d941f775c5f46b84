"""Trainings in other programs: Weights & Biases, which records them, and Optuna, which chooses them."""

import json
import pathlib
import re
import subprocess
import sys
import types

import pytest

from transformer.cli import main as cli
from transformer.config import config_dict

ROOT = pathlib.Path(__file__).parents[2]
STEPS = 4


@pytest.fixture
def config(tmp_path):
    """Writes a config file whose training takes few seconds."""
    for language, word in (('en', 'house'), ('de', 'Haus')):
        text = ''.join(f'{word} {number}\n' for number in range(40))
        (tmp_path / f'text.{language}').write_text(text)
    changes = {
        'model.N': 1, 'model.d_model': 16, 'model.d_ff': 16, 'model.h': 2, 'data.source': 'text',
        'data.dir': str(tmp_path), 'data.tokenizer': 'bytes', 'data.max_len': 16, 'data.batch_tokens': 256,
        'data.batching': 'packed', 'data.row_len': 16,
        'data.train': 'text', 'data.dev': 'text[:10%]', 'data.test': 'text[:10%]', 'train.steps': STEPS,
        'train.warmup_steps': 2, 'train.log_every': 1, 'train.eval_every': 2, 'decode.method': 'greedy',
        'decode.extra_len': 2,
    }  # fmt: skip
    file = tmp_path / 'small.py'
    file.write_text(
        'from transformer.config import config_dict\n\n'
        f'def get_config():\n    return config_dict({changes!r})\n'
    )
    return types.SimpleNamespace(file=file, changes=changes)


def train(config, folder, *more, project='mine'):
    call = ['run.py', f'--config={config.file}', f'--workdir={folder}', f'--wandb={project}']
    return cli.main([*call, '--no-evaluation', *more])


def test_metrics_go_to_weights_and_biases(config, tmp_path, monkeypatch):
    begun, logged, finished = [], [], []

    class FakeRun:
        log = staticmethod(lambda numbers, step: logged.append((step, numbers)))
        finish = staticmethod(lambda: finished.append(len(logged)))

    def init(**options):
        begun.append(options)
        if len(begun) > 2:
            raise RuntimeError('two are enough')
        return FakeRun()

    monkeypatch.setitem(sys.modules, 'wandb', types.SimpleNamespace(init=init))
    folder = tmp_path / 'run'
    assert train(config, folder) == 0
    [options] = begun
    assert (options['project'], options['name'], options['dir']) == ('mine', 'run', str(folder))
    assert options['config']['model']['d_model'] == 16 and options['resume'] == 'allow'
    lines = [json.loads(line) for line in (folder / 'metrics.jsonl').read_text().splitlines()]
    assert [{'step': step, **numbers} for step, numbers in logged] == lines
    assert {line['step'] for line in lines} == set(range(1, STEPS + 1)) and finished == [len(lines)]
    # Continued, it is the same run there.
    assert train(config, folder, '--config.train.steps=6') == 0
    assert begun[1]['id'] == options['id'] and [step for step, _ in logged[len(lines) :]] == [5, 6]
    assert train(config, tmp_path / 'other') == 2
    assert begun[2]['id'] != options['id']


def test_what_weights_and_biases_refuses_is_one_line(config, tmp_path, monkeypatch, capsys):
    def init(**options):
        raise RuntimeError('no API key\nfor this account')

    monkeypatch.setitem(sys.modules, 'wandb', types.SimpleNamespace(init=init))
    for flag, told in (('mine', '--wandb=mine: no API key for this account'), ('', '--wandb: ')):
        assert train(config, tmp_path / 'run', project=flag) == 2
        assert capsys.readouterr().err.strip().splitlines()[-1].startswith(f'error: {told}')


def test_without_its_package(config, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, 'wandb', None)
    assert train(config, tmp_path / 'run') == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith('error: --wandb: ') and not (tmp_path / 'run').exists()


def test_weights_and_biases_itself_offline(config, tmp_path):
    pytest.importorskip('wandb')
    command = [sys.executable, 'run.py', f'--config={config.file}', f'--workdir={tmp_path / "run"}']
    environment = {'WANDB_MODE': 'offline', 'PATH': '/usr/bin:/bin', 'HOME': str(tmp_path)}
    done = subprocess.run([*command, '--wandb=mine'], cwd=ROOT, env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    [recorded] = (tmp_path / 'run' / 'wandb').glob('offline-run-*/*.wandb')
    assert b'dev_loss' in recorded.read_bytes()


def test_the_example_with_optuna(config, tmp_path, monkeypatch):
    optuna = pytest.importorskip('optuna')
    page = (ROOT / 'experiments' / 'README.md').read_text()
    [example] = re.findall(r'```python\n(import optuna\n.*?)```', page, re.DOTALL)
    tiny = types.SimpleNamespace(get_config=lambda: config_dict(config.changes))
    monkeypatch.setitem(sys.modules, 'configs', types.SimpleNamespace(tiny=tiny))
    monkeypatch.chdir(tmp_path)
    studies = []
    create = optuna.create_study
    monkeypatch.setattr(optuna, 'create_study', lambda **how: studies.append(create(**how)) or studies[-1])
    few = example.replace('300, 50', f'{STEPS}, 2').replace('n_trials=20', 'n_trials=1')
    assert few.count(f' = {STEPS}, 2') == few.count('n_trials=1)') == 1
    for _ in range(2):
        exec(few, {})
    trials = studies[1].trials
    assert len(trials) == 2 and trials[0].value != trials[1].value
    results = [json.loads((tmp_path / 'runs' / 'optuna' / name / 'result.json').read_text()) for name in '01']
    for trial, result in zip(trials, results, strict=True):
        assert result['config']['train']['peak_lr'] == trial.params['peak_lr']
        assert result['scores']['dev']['perplexity'] == trial.value
