"""Trainings that a signal stops while dev is scored, and what is recorded of a training."""

import contextlib
import json
import shutil
import signal
import statistics
import types

import jax
import pytest
import toys
from etils import epath

from transformer import config as configs
from transformer import parallel
from transformer.actions import evaluate as evaluation
from transformer.actions import train as action
from transformer.config import ConfigError
from transformer.runs import metrics, owner, restore, workdir
from transformer.runs.checkpoint import Checkpoints
from transformer.runs.workdir import Run
from transformer.tasks.contract import Scored
from transformer.training import loop, split_sums

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
        train__patience=9, train__matmul_precision='highest', decode__beam=1, decode__extra_len=2,
    )  # fmt: skip


@pytest.fixture(scope='module')
def precisions() -> set[str]:
    """Returns the precisions of products after the updates of `finished`."""
    return set()


@pytest.fixture(scope='module')
def finished(config, precisions, tmp_path_factory):
    folder = tmp_path_factory.mktemp('whole') / 'w'
    note = lambda *_: precisions.add(jax.config.jax_default_matmul_precision)
    action.train(config, folder, on_metrics=note, evaluate=False)
    return folder


@pytest.fixture(scope='module')
def whole(finished):
    return record(finished)


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


def test_products_have_the_precision_of_the_config(finished, precisions, monkeypatch):
    """In a training, and in an evaluation."""
    note = lambda *_: precisions.add(jax.config.jax_default_matmul_precision) or Scored({}, {}, [])
    monkeypatch.setattr(evaluation, 'task_of', lambda _: types.SimpleNamespace(evaluate=note))
    evaluation.score_split(*restore.load(Run.open(finished)), None, 'dev')
    assert precisions == {'highest'}


def test_the_speed_leaves_out_compilation(finished):
    """All batches have one shape, and each update is reported."""
    lines = [json.loads(line) for line in (finished / 'metrics.jsonl').read_text().splitlines()]
    assert ['tokens_per_second' in line for line in lines] == [False] + [True] * (STEPS - 1)
    # The seconds have it.
    assert lines[0]['seconds'] > 0
    result = json.loads((finished / 'result.json').read_text())
    speeds = [line['tokens_per_second'] for line in lines[1:]]
    assert result['tokens_per_second'] == round(statistics.median(speeds), 1)


def test_a_repeated_training_keeps_its_machine_speed_and_curve(config, finished, tmp_path, monkeypatch):
    folder = tmp_path / 'w'
    shutil.copytree(finished, folder)
    before = {name: (folder / name).read_bytes() for name in ('result.json', 'curve.json')}
    (folder / 'metrics.jsonl').unlink()
    elsewhere = {'versions': {'jax': '9'}, 'hardware': {'platform': 'tpu'}}
    monkeypatch.setattr(action.process, 'environment', lambda: elsewhere)
    action.train(config, folder, evaluate=False)
    assert json.loads((folder / 'result.json').read_text()) == json.loads(before['result.json'])
    assert (folder / 'curve.json').read_bytes() == before['curve.json']


def test_scores_stay_only_with_the_options_that_made_them(config, finished, tmp_path):
    folder = tmp_path / 'w'
    shutil.copytree(finished, folder)
    scored = action.train(config, folder)
    assert scored['evaluated'] and scored['scores']['dev']['bleu']
    assert action.train(config, folder, evaluate=False)['scores'] == scored['scores']
    for changes in ({'decode.extra_len': 3}, {'train.scored': 'latest'}, {'train.average_last': 2}):
        shutil.rmtree(folder)
        shutil.copytree(finished, folder)
        assert action.train(config, folder)['scores'] == scored['scores']
        unscored = action.train(configs.replace(config, changes), folder, evaluate=False)
        assert (unscored['evaluated'], unscored['scores']) == (False, {})


def test_the_best_is_by_what_training_computes(config, tmp_path):
    """Neither a score of translations that is not watched, nor one that `watch` does not give."""
    changed = configs.replace(config, {'train.best_by': 'chrf'})
    with pytest.raises(ConfigError, match="train.best_by='chrf'.* loss, perplexity, bleu$"):
        action.train(changed, tmp_path / 'w', evaluate=False)
    assert not (tmp_path / 'w').exists()
    changed = configs.replace(config, {'train.best_by': 'perplexity', 'train.steps': EVERY})
    action.train(changed, tmp_path / 'w', evaluate=False)
    run = Run.open(epath.Path(tmp_path / 'w'))
    cost = action._dev_scores(changed, None, None, None).cost
    assert cost({'dev_perplexity': 3.0}) == 3.0 and restore.origin(run, 'best').steps == [EVERY]
    # More BLEU costs less.
    by_bleu = configs.replace(config, {'train.best_by': 'bleu'})
    cost = action._dev_scores(by_bleu, None, None, None).cost
    assert cost({'dev_bleu': 3.0}) == -3.0 and cost({}) is None


def test_a_failure_of_the_first_process_ends_the_others(config, tmp_path, monkeypatch):
    """Whatever only it does is in a block of `together`, and no block holds what waits for the others."""
    together, depth, seen = parallel.together, [], set()

    @contextlib.contextmanager
    def counted():
        with together():
            depth.append(1)
            try:
                yield
            finally:
                depth.pop()

    def watch(place, name: str) -> None:
        function = getattr(place, name)

        def call(*arguments, **named):
            # All processes read checkpoints.
            if not named.get('read_only', not getattr([*arguments, None][0], '_writes', True)):
                seen.add((name, bool(depth)))
            return function(*arguments, **named)

        monkeypatch.setattr(place, name, call)

    monkeypatch.setattr(parallel, 'together', counted)
    alone = [
        (workdir, 'claim'), (workdir, 'check_claim'), (workdir, 'write_lines'), (workdir, 'update_result'),
        (workdir, 'write_evaluation'), (owner, 'hold'), (metrics.Metrics, '__init__'),
        (metrics.Metrics, 'write'), (Checkpoints, '__init__'), (Checkpoints, 'save'), (Checkpoints, 'wait'),
        (Checkpoints, 'restore_newest'), (restore, 'load_and_report'),
    ]  # fmt: skip
    all_of_them = [(parallel, 'greatest'), (split_sums, 'means'), (evaluation, 'score_split')]
    for place, name in (*alone, *all_of_them):
        watch(place, name)
    # It waits once more, when all is saved.
    monkeypatch.setattr(Checkpoints, 'close', lambda self: None)
    changed = configs.replace(config, {'train.steps': EVERY, 'train.watch_every': 0})
    action.train(changed, tmp_path / 'w')
    run, texts = Run.open(epath.Path(tmp_path / 'w')), epath.Path(config.data.dir)
    evaluation.evaluate(run, ['dev'])
    evaluation.evaluate_files(run, {'source': texts / 'dev.en', 'target': texts / 'dev.de'})
    evaluation.evaluate_own(run, 'scored', {'data.test': 'dev', 'data.dir': str(texts)})
    monkeypatch.setattr(
        action.process, 'stop_signals', lambda: contextlib.nullcontext(lambda: signal.SIGTERM)
    )
    with pytest.raises(loop.Stopped):
        action.train(configs.replace(changed, {'train.steps': STEPS}), tmp_path / 'w')
    assert seen == {(name, True) for _, name in alone} | {(name, False) for _, name in all_of_them}


def test_a_process_with_other_options_than_the_first_one_ends(config, finished, tmp_path, monkeypatch):
    shutil.copytree(finished, tmp_path / 'w')
    monkeypatch.setattr(parallel, 'is_primary', lambda: False)
    with pytest.raises(ConfigError, match='train.seed is 0 there and 5 now'):
        action.train(configs.replace(config, {'train.seed': 5}), tmp_path / 'w', evaluate=False)
