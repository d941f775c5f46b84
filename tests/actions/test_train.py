"""Trainings that a signal stops while dev is scored."""

import json
import signal

import pytest
import toys

from transformer.actions import train as action
from transformer.runs.checkpoint import Checkpoints
from transformer.training import loop

STEPS, EVERY = 6, 2


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp('text')
    pairs = [('a red dog', 'ein roter Hund'), ('two cats', 'zwei Katzen'), ('dog', 'Hund'), ('a', 'ein')]
    # On eight devices, sixteen sentences are translated in two batches.
    for split, count in (('train', 40), ('dev', 4)):
        for side, language in enumerate(('en', 'de')):
            lines = (f'{pair[side]} {i}\n' for i in range(count) for pair in pairs)
            (folder / f'{split}.{language}').write_text(''.join(lines))
    return toys.config_of(
        folder, data__source='text', data__train='train', data__dev='dev', data__test='dev',
        train__steps=STEPS, train__eval_every=EVERY, train__watch_every=EVERY, train__checkpoint_every=EVERY,
        train__patience=9, decode__beam=1, decode__extra_len=2,
    )  # fmt: skip


@pytest.fixture(scope='module')
def whole(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp('whole') / 'w'
    action.train(config, folder, evaluate=False)
    return record(folder)


def record(folder) -> tuple:
    """Reads what a training leaves, without its times."""
    timed = {'seconds', 'tokens_per_second'}
    lines = [json.loads(line) for line in (folder / 'metrics.jsonl').read_text().splitlines()]
    lines = [{key: value for key, value in line.items() if key not in timed} for line in lines]
    result = json.loads((folder / 'result.json').read_text())
    checkpoints = Checkpoints(folder / 'checkpoints', 1, read_only=True)
    contents = [checkpoints.content(step) for step in checkpoints.steps()]
    for content in contents:
        del content['meta']['seconds']
    checkpoints.close()
    return lines, [result[key] for key in ('params_sha256', 'steps', 'tokens')], contents


def stop_at(monkeypatch, stage: str, done: int, evaluation: int) -> list[tuple[str, int]]:
    """Sends a signal once an evaluation has so much of a stage, and returns the list of all its reports."""
    reports, make = [], loop.stopping_progress

    def stopping_progress(stop_signal):
        progress = make(stop_signal)

        def report(*now) -> None:
            reports.append(now[:2])
            if reports.count((stage, done)) == evaluation:
                signal.raise_signal(signal.SIGTERM)
            progress(*now)

        return report

    monkeypatch.setattr(loop, 'stopping_progress', stopping_progress)
    return reports


@pytest.mark.parametrize(('step', 'stage', 'done'), [(EVERY, 'translations', 8), (STEPS, 'loss', 1)])
def test_a_signal_ends_scoring_before_its_next_batch(config, whole, tmp_path, monkeypatch, step, stage, done):
    reports = stop_at(monkeypatch, stage, done, step // EVERY)
    with pytest.raises(loop.Stopped) as stopped:
        action.train(config, tmp_path / 'w', evaluate=False)
    assert (stopped.value.signal_number, reports[-1]) == (signal.SIGTERM, (stage, done))
    assert (tmp_path / 'w' / 'checkpoints' / f'{step}').exists()
    # Scores of a part of dev are not written.
    lines = [json.loads(line) for line in (tmp_path / 'w' / 'metrics.jsonl').read_text().splitlines()]
    assert [line['step'] for line in lines] == [*range(1, step + 1)]
    assert not [key for key in lines[-1] if key.startswith('dev_')]
    monkeypatch.undo()
    action.train(config, tmp_path / 'w', evaluate=False)
    assert record(tmp_path / 'w') == whole


def test_a_signal_at_the_last_step_ends_the_command_before_it_scores(config, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(action, '_score_training', lambda *args: pytest.fail('scored'))

    def stop(step: int, numbers: dict) -> None:
        if step == STEPS:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(loop.Stopped) as stopped:
        action.train(config, tmp_path / 'w', on_metrics=stop)
    assert stopped.value.signal_number == signal.SIGTERM
    monkeypatch.undo()
    action.train(config, tmp_path / 'w', evaluate=False)
    assert record(tmp_path / 'w') == whole
