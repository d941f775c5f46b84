"""Comparing trainings with committed curves: the band over seeds, the verdict, the reasons, the files."""

import json
import math
import os
import pathlib
import shutil
import signal

import numpy as np
import pytest
import toys
from etils import epath

from transformer import config as configs
from transformer.actions import on_track
from transformer.actions import train as action
from transformer.config import ConfigError
from transformer.runs import curve, metrics_file
from transformer.runs.workdir import Run
from transformer.training.loop import Stopped

ROOT = pathlib.Path(__file__).parents[2]
SEEDS = (1, 2, 3)
# What init_from.json holds.
START = {
    'workdir': 'w', 'checkpoint': 'latest', 'steps': [1], 'params_sha256': '0', 'taken': [], 'left': {},
}  # fmt: skip
STEPS = 45


@pytest.fixture(scope='module')
def texts(tmp_path_factory):
    """Sentences whose class is that of their last word."""
    folder, rng = tmp_path_factory.mktemp('texts'), np.random.default_rng(0)
    words = {
        'animal': ['dog', 'cat', 'cow'],
        'colour': ['red', 'blue', 'green'],
        'number': ['one', 'two', 'six'],
    }
    for split, count in (('train', 3000), ('dev', 300)):
        lines = []
        for _ in range(count):
            kind = str(rng.choice([*words]))
            middle = rng.choice([word for group in words.values() for word in group], rng.integers(1, 5))
            lines.append(f'{kind}\t{" ".join([*middle, rng.choice(words[kind])])}\n')
        (folder / f'{split}.tsv').write_text(''.join(lines))
    return folder


def config_of(texts, **changes):
    common = {
        'train__task': 'classify', 'data__source': 'table', 'data__train': 'train.tsv',
        'data__dev': 'dev.tsv', 'data__test': 'dev.tsv', 'data__columns': 'label=1,text=2',
        'data__batch_tokens': 1536, 'train__steps': STEPS, 'train__warmup_steps': 5,
        'train__peak_lr': 0.02, 'train__schedule': 'linear', 'train__decay_steps': STEPS,
        'train__log_every': 5, 'train__eval_every': 5, 'train__checkpoint_every': 15,
        'model__P_drop': 0.0,
    }  # fmt: skip
    return toys.config_of(texts, **(common | changes))


@pytest.fixture(scope='module')
def committed(texts, tmp_path_factory):
    """Trains three seeds, and keeps what is committed of a training."""
    folder = tmp_path_factory.mktemp('experiments')
    root, runs = folder / 'results', folder / 'runs'
    for seed in SEEDS:
        folder = runs / f'{seed}'
        toys.trained(config_of(texts, train__seed=seed), folder)
        kept = root / 'toy' / f'seed{seed}'
        kept.mkdir(parents=True)
        for name in ('result.json', curve.FILE):
            shutil.copy(folder / name, kept / name)
    return root


def described(work, root) -> dict[str, str]:
    lines = on_track.describe(work, root)
    return dict(line.split(': ', 1) for line in lines)


def losses(work) -> dict[int, float]:
    return dict(metrics_file.dev_losses(work.folder))


def test_training_stopped_at_a_third(texts, committed, tmp_path):
    stop = lambda step, numbers: step == STEPS // 3 and os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Stopped):
        config = config_of(texts, train__seed=4)
        action.run_training(config, epath.Path(tmp_path / 'w'), '', on_metrics=stop)
    lines = described(Run.open(tmp_path / 'w'), committed)
    assert lines['on track'].startswith(f'update {STEPS // 3}: ')
    assert not {'first apart', 'likely why', 'differs'} & {*lines}


CHANGES = {
    'train.peak_lr': ({'train__peak_lr': 0.01}, '0.01, 0.02 in the reference (x 0.5)'),
    'data.batch_tokens': ({'data__batch_tokens': 384}, '384, 1536 in the reference (x 0.25)'),
}


@pytest.mark.parametrize('option', CHANGES)
def test_changed_option_is_judged_and_named(texts, committed, tmp_path, option):
    changes, values = CHANGES[option]
    work = toys.trained(config_of(texts, train__seed=4, **changes), tmp_path / 'w', evaluate=False)
    lines = described(work, committed)
    curves = [curve.read(committed / f'toy/seed{seed}/{curve.FILE}').dev_losses() for seed in SEEDS]
    logs = np.log([[c[step] for step in curves[0]] for c in curves])
    deviation = math.sqrt(logs.var(axis=0, ddof=1).mean())
    far = np.abs(np.log(list(losses(work).values())) - logs.mean(axis=0)) > 3 * deviation * math.sqrt(4 / 3)
    # Seeds of this toy differ much, so that either verdict can be right; numpy says which is.
    verdict, why = ('behind', 'likely why') if far[-1] else ('on track', 'differs')
    assert lines[verdict].startswith(f'update {STEPS}: ')
    assert ('first apart' in lines) == far.any()
    if far.any():
        assert lines['first apart'].startswith(f'update {[*curves[0]][int(far.argmax())]:,}: ')
    assert f'{option} is {values}' in lines[why] and ';' not in lines[why]


def test_committed_curve_is_of_its_result(committed):
    for folder in (committed / 'toy').iterdir():
        result, kept = json.loads((folder / 'result.json').read_text()), curve.read(folder / curve.FILE)
        assert kept.params_sha256 == result['params_sha256']
        assert kept.points[-1]['dev_loss'] == float(f'{result["scores"]["dev"]["loss"]:.5g}')


def test_progress_shows_the_reference_of_the_same_config_alone(committed):
    work = Run.open(committed.with_name('runs') / '1')
    note = on_track.notes(work.config, work.manifest, committed)
    curves = [curve.read(file).dev_losses() for file in sorted(committed.glob('*/*/curve.json'))]
    means = {step: math.exp(np.mean([math.log(c[step]) for c in curves])) for step in curves[0]}
    assert note({5: curves[0][5]}) == f'reference {means[5]:.4g}'
    assert note({5: means[5] * 2, 10: means[10]}) == f'reference {means[10]:.4g}, on track, apart at 5'
    assert note({5: means[5], 7: 1.0}) == ''
    other = configs.replace(work.config, {'train.peak_lr': 0.01})
    assert on_track.notes(other, work.manifest, committed)({5: 1.0}) == ''


@pytest.mark.parametrize(
    'damage',
    [
        lambda folder: (folder / 'curve.json').write_text(''),
        lambda folder: (folder / 'curve.json').write_text('{"params_sha256": "", "data": {}, "points": []}'),
        lambda folder: (folder / 'result.json').unlink(),
    ],
    ids=['an empty curve', 'a curve without data', 'a curve alone'],
)
def test_a_damaged_reference_ends_no_training(committed, tmp_path, caplog, damage):
    shutil.copytree(committed, tmp_path / 'results')
    folder = next((tmp_path / 'results' / 'toy').iterdir())
    damage(folder)
    work = Run.open(committed.with_name('runs') / '1')
    assert on_track.notes(work.config, work.manifest, tmp_path / 'results')({5: 1.0}) == ''
    assert str(folder) in caplog.text
    with pytest.raises(ConfigError, match=str(folder)):
        on_track.references(work.config, work.manifest, tmp_path / 'results')


def test_no_reference_for_other_data_or_four_options(committed):
    work = Run.open(committed.with_name('runs') / '1')
    three = {'model.d_ff': 32, 'model.P_drop': 0.2, 'train.peak_lr': 0.01}
    changed = configs.replace(work.config, three)
    found = on_track.references(changed, work.manifest, committed)
    assert [len(one.differences) for one in found] == [3, 3, 3]
    four = configs.replace(changed, {'train.eps_ls': 0.2})
    assert on_track.references(four, work.manifest, committed) == []
    sums = {name: digest[::-1] for name, digest in work.manifest['checksums'].items()}
    assert on_track.references(work.config, {'checksums': sums}, committed) == []
    # Losses of other options of the task cannot be compared.
    other_task = configs.replace(work.config, {'classify.pool': 'first'})
    assert on_track.references(other_task, work.manifest, committed) == []


def test_nearest_references_alone(committed, tmp_path):
    shutil.copytree(committed, tmp_path / 'results')
    result = tmp_path / 'results/toy/seed3/result.json'
    content = json.loads(result.read_text())
    content['config']['train']['peak_lr'] = 0.01
    result.write_text(json.dumps(content))
    work = Run.open(committed.with_name('runs') / '1')
    for peak_lr, names in ((0.02, ['toy/seed1', 'toy/seed2']), (0.01, ['toy/seed3'])):
        config = configs.replace(work.config, {'train.peak_lr': peak_lr})
        found = on_track.references(config, work.manifest, tmp_path / 'results')
        assert [(one.name, one.differences) for one in found] == [(name, {}) for name in names]


def test_reasons_beside_options(committed, tmp_path):
    """Other training data and a warm start are named; without any reason, code is."""
    shutil.copytree(committed / 'toy/seed1', tmp_path / 'results/toy/seed1')
    shutil.copytree(committed.with_name('runs') / '1', tmp_path / 'w')
    work = Run.open(tmp_path / 'w')
    lines = described(work, tmp_path / 'results')
    assert '3.0 % (assumed' in lines['deviation of the dev loss'] and not {'likely why', 'differs'} & {*lines}
    behind = [line | {'dev_loss': 9.0} for line in metrics_file.read(work.folder) if 'dev_loss' in line]
    (tmp_path / 'w/metrics.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in behind))
    lines = described(work, tmp_path / 'results')
    assert lines['likely why'].startswith('no option or data differ')
    sums = work.manifest['checksums']
    work.manifest['checksums'] = {n: d[::-1] if n.startswith('train.') else d for n, d in sums.items()}
    assert described(work, tmp_path / 'results')['likely why'] == 'other training data'
    work.manifest['checksums'] = sums
    (tmp_path / 'w/init_from.json').write_text(json.dumps(START))
    assert described(work, tmp_path / 'results')['likely why'].startswith('the training started from other')


@pytest.mark.parametrize(
    ('losses', 'curves', 'verdict', 'first'),
    [
        ({1: 1.0, 2: 1.0}, [{1: 1.0, 2: 1.0}], 'on track', None),
        ({1: 1.13, 2: 1.14}, [{1: 1.0, 2: 1.0}], 'behind', 2),
        ({1: 1.2, 2: 0.8}, [{1: 1.0, 2: 1.0}], 'ahead', 1),
        ({1: 2.0, 2: 1.0}, [{1: 1.0, 2: 1.0, 3: 9.0}], 'on track', 1),
        ({3: 1.0}, [{1: 1.0}], 'not comparable', None),
        # A loss of 0 has no logarithm.
        ({1: 0.0}, [{1: 1.0}], 'not comparable', None),
        # Two seeds that differ by 2 ln 1.1: their deviation is 2 ln(1.1) / sqrt(2).
        ({1: 1.1**5.1}, [{1: 1.1}, {1: 1 / 1.1}], 'on track', None),
        ({1: 1.1**5.3}, [{1: 1.1}, {1: 1 / 1.1}], 'behind', 1),
    ],
)
def test_verdicts(losses, curves, verdict, first):
    result = on_track.compare(losses, curves)
    assert (result.verdict, result.first and result.first.step) == (verdict, first)


def test_deviation_is_pooled_over_updates():
    """At update 1 the logarithms are ±0.1, of variance 0.02; at update 2 they are equal."""
    one, other = {1: math.exp(0.1), 2: 3.0}, {1: math.exp(-0.1), 2: 3.0, 3: 9.0}
    assert on_track.spread([one, other]) == pytest.approx(math.sqrt((0.02 + 0.0) / 2))
    assert on_track.spread([one]) == on_track.spread([{1: 1.0}, {2: 1.0}]) == on_track.DEVIATION


def test_thinned_curve_prefers_evaluations():
    lines = [{'step': s, 'loss': 1 / (s + 1), 'seconds': 1.0} for s in range(200)]
    for line in lines[::5]:
        line |= {'dev_loss': 2.123456, 'dev_perplexity': 8.0, 'dev_bleu': 3.0}
    points = curve.thinned(lines)
    assert len(points) == 60 and [p['step'] for p in points] == sorted(p['step'] for p in points)
    assert [p['step'] for p in points if 'dev_loss' in p] == [*range(0, 200, 5)]
    assert points[0] == {'step': 0, 'loss': 1.0, 'dev_loss': 2.1235, 'dev_bleu': 3.0}
    few = curve.thinned(lines, 5)
    assert [p['step'] for p in few] == [0, 50, 100, 145, 195]


def test_base_on_wmt_was_never_trained():
    """The file of the public scores, read again here, gives the band."""
    config = configs.resolve(configs.config_dict())
    manifest = {'checksums': {'dev.source.bin': '0'}}
    assert on_track.references(config, manifest) == []
    band = on_track.public_band()
    trainings = json.loads((ROOT / 'experiments/evidence/wmt17_de-en.json').read_text())['trainings']
    scores = [trainings[f'ext-{i}']['newstest2013'] for i in range(5)]
    for name, digits in (('loss', 2), ('bleu', 1)):
        values = [x for one in scores for x in one[name]]
        assert f'{min(values):.{digits}f} to {max(values):.{digits}f}' in band
    none, public = on_track._without_reference(config, on_track.RESULTS)
    assert none.startswith('reference: none') and band in public
    other = configs.replace(config, {'data.name': 'wmt17_translate/de-en'})
    assert on_track._without_reference(other, on_track.RESULTS) == [none]


@pytest.mark.parametrize('file', sorted(on_track.RESULTS.glob('**/curve.json')), ids=str)
def test_committed_curves(file):
    kept, result = curve.read(file), json.loads((file.parent / 'result.json').read_text())
    assert kept.params_sha256 == result['params_sha256'] and 2 <= len(kept.points) <= curve.POINTS
    assert kept.points[-1]['step'] == result['steps']
    scores = result['scores']['dev']
    # Windows read what is cut of a long text in training.
    if scores['checkpoint'] == 'latest' and 'window' not in scores.get('context', {}):
        assert kept.points[-1]['dev_loss'] == pytest.approx(scores['loss'], rel=1e-4)
