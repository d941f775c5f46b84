"""The report: numbers by hand from results that are written here, and the page in a browser."""

import csv
import dataclasses
import io
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
import pytest
import sacrebleu
import scipy.stats
from PIL import Image

from experiments import report
from experiments.rendering import curves, formats
from experiments.reports import columns, differences, notes, results
from experiments.sweeps import launch, runs
from experiments.tables import rows as tables
from experiments.tables import scales
from transformer import config as configs
from transformer.config import ConfigError
from transformer.nn import cost
from transformer.tasks import bootstrap
from transformer.tasks.translation import bleu

pytestmark = pytest.mark.usefixtures('all_resamples')

REFERENCES = [f'der Hund {i} läuft heute schnell über die große Straße' for i in range(60)]
# Row, seed, perplexity, BLEU and how many of the translations are wrong.
REACHED = [
    ('base', 1, 5.0, 30.0, 20), ('base', 2, 5.2, 32.0, 20), ('A1', 1, 5.6, 28.0, 45),
    ('A1', 2, 5.8, 26.0, 21), ('C1', 1, 7.0, 20.0, 55), ('D3', 2, 4.9, 31.5, 20), ('big', 1, 4.0, 29.0, 20),
]  # fmt: skip


@pytest.fixture(scope='module')
def swept(tmp_path_factory):
    """Writes a sweep of six rows: two with all seeds, three with one, one that failed. Read only."""
    folder = tmp_path_factory.mktemp('swept')
    asked = tuple((row, seed) for row in ('base', 'A1', 'C1', 'D3', 'E', 'big') for seed in (1, 2))
    sweep = runs.Sweep('3', 'grammar', {'train.beta2': 0.99}, asked)
    runs.write_sweep(folder, sweep)
    by_seed = {(run.row, run.seed): run for run in sweep.all_runs(folder)}
    for row, seed, perplexity, score, wrong in REACHED:
        write_run(by_seed[row, seed], perplexity, score, wrong)
    failed = by_seed['E', 1]
    failed.file('json').parent.mkdir()
    ended = {'options': failed.options, 'status': 1, 'error': 'MemoryError: 3 GiB'}
    failed.file('json').write_text(json.dumps(ended))
    return folder


@pytest.fixture(autouse=True)
def _texts(monkeypatch):
    monkeypatch.setattr(differences, 'read_texts', lambda folder, split: {'target': REFERENCES})


@pytest.fixture
def _no_flops(monkeypatch):
    """Leaves out the count of FLOPs, which takes seconds a row of committed results."""
    monkeypatch.setattr(columns.cost, 'update_flops', lambda config: 1.0)


@pytest.fixture
def workdir(swept, tmp_path):
    """Copies the sweep, for tests that change it."""
    return shutil.copytree(swept, tmp_path, dirs_exist_ok=True)


@pytest.fixture(scope='module')
def rendered(swept):
    """Returns a function that renders the sweep's report in a format, each format once."""
    texts = {}

    def render(form: str, capsys) -> str:
        if form not in texts:
            texts[form] = shown(swept, capsys, f'--format={form}')
        return texts[form]

    return render


def edit(file: pathlib.Path, change: Callable[[dict], object]) -> None:
    """Changes a result.json in place."""
    result = json.loads(file.read_text())
    change(result)
    file.write_text(json.dumps(result))


def write_run(run: runs.SweepRun, perplexity: float, score: float, wrong: int) -> None:
    (row,) = tables.rows('3', run.row)
    config = scales.config(row, 'grammar', {'train.beta2': 0.99, 'train.seed': run.seed})
    scores = {'checkpoint': 'best', 'perplexity': perplexity, 'bleu': {'sacrebleu': {'score': score}}}
    result = {
        'params': 1_234_567, 'steps': run.steps, 'tokens': 900 * run.steps, 'seconds': 1800.0 * run.seed,
        'tokens_per_second': 1000.0 / run.seed,
        'config': dataclasses.asdict(config), 'scores': {'dev': scores},
        'hardware': {'devices': 1, 'device': 'cpu', 'cpus': 2},
    }  # fmt: skip
    (run.folder / 'translations').mkdir(parents=True)
    (run.folder / 'result.json').write_text(json.dumps(result))
    lines = ['die Katze schläft' if i < wrong else line for i, line in enumerate(REFERENCES)]
    (run.folder / 'translations' / 'dev.best.txt').write_text(''.join(f'{line}\n' for line in lines))
    steps = ''.join(f'{{"step": {step}, "dev_loss": {perplexity + 100 / step}}}\n' for step in (50, 100, 150))
    (run.folder / 'metrics.jsonl').write_text(steps)


def shown(workdir: pathlib.Path, capsys, *options: str) -> str:
    assert report.main(['report', f'--workdir={workdir}', *options]) == 0
    return capsys.readouterr().out


def cells(out: str) -> dict[str, dict[str, str]]:
    """Parses the rows of a Markdown table by name and column."""
    lines = [line.strip().strip('|') for line in out.splitlines() if line.startswith('|')]
    header, _, *rows = ([cell.strip() for cell in line.split('|')] for line in lines)
    return {row[0]: dict(zip(header, row, strict=True)) for row in rows}


def test_an_evaluation_before_the_end_of_a_training_is_no_result(workdir, capsys):
    before = cells(shown(workdir, capsys, '--format=markdown'))
    file = workdir / 'A1-seed2' / 'result.json'
    file.write_text(json.dumps({'scores': {'dev': json.loads(file.read_text())['scores']['dev']}}))
    after = cells(shown(workdir, capsys, '--format=markdown'))
    assert before['A1']['BLEU ours'].endswith('(2)') and after['A1']['BLEU ours'].endswith('(1)')
    assert {row: cell for row, cell in after.items() if row != 'A1'}.keys() == before.keys() - {'A1'}
    assert report.main(['report', str(workdir / 'A1-seed1'), str(file.parent), '--split=dev']) == 2
    assert 'A1-seed2: holds no result.json of a training' in capsys.readouterr().err
    assert not runs.has_result(file.parent) and runs.has_result(workdir / 'A1-seed1')


def test_the_numbers(rendered, capsys):
    out = rendered('markdown', capsys)
    found = cells(out)
    assert list(found) == ['base', 'A1', 'C1', 'D3', 'E', 'big']
    assert ': A2, A3, A4, B1, B2, C2' in out
    a1 = found['A1']
    assert (a1['PPL'], a1['PPL ours']) == ('5.29', f'5.700 ±{statistics.stdev([5.6, 5.8]):.3f} (2)')
    assert (a1['ΔPPL'], a1['ΔPPL ours']) == ('+0.37', '+0.600')
    assert (a1['BLEU'], a1['BLEU ours']) == ('24.9', '27.00 ±1.41 (2)')
    # Differences of 0.6 and 0.6, and of -2 and -6.
    assert (a1['ΔPPL 95%'], a1['ΔBLEU']) == ('[+0.600, +0.600]', '-0.9')
    half = scipy.stats.t.ppf(0.975, 1) * statistics.stdev([-2, -6]) / 2**0.5
    assert (a1['ΔBLEU ours'], a1['ΔBLEU 95%']) == ('-4.00 ≈', f'[{-4 - half:+.2f}, {-4 + half:+.2f}]')
    assert a1['p seeds'] == f'{scipy.stats.ttest_rel([28, 26], [30, 32]).pvalue:.3f}'
    # Over the one seed that base has too.
    assert (found['C1']['PPL ours'], found['C1']['ΔPPL ours']) == ('7.000 (1)', '+2.000')
    assert (found['C1']['ΔPPL 95%'], found['C1']['p seeds']) == ('', '')
    assert found['D3']['ΔBLEU ours'] == '-0.50'
    assert found['E']['PPL ours'] == 'failed'
    assert (found['E']['PPL'], found['E']['ΔPPL'], found['E']['ΔPPL ours']) == ('4.92', '+0.00 ≈', '')
    assert (found['base']['params'], found['base']['params ours']) == ('65M', '1.23M')
    assert (found['base']['hours'], found['C1']['hours']) == ('0.75', '0.5')
    assert found['big']['FLOPs ours'] == '4.65e+13'


def test_what_a_row_became(rendered, capsys):
    found = cells(rendered('markdown', capsys))
    assert (found['base']['N'], found['base']['h'], found['base']['P_drop']) == ('6 → 3', '8 → 4', '0.1')
    assert (found['C1']['N'], found['C1']['h'], found['D3']['eps_ls']) == ('2 → 1', '', '0')
    assert (found['A1']['h'], found['A1']['d_k']) == ('1', '512 → 64')
    assert found['E']['other'] == 'positions=learned'
    assert found['big']['steps'] == '300K → 4.5K'


def test_significance_over_sentences_is_the_worst_of_the_seeds(rendered, capsys):
    found = cells(rendered('markdown', capsys))
    # A1's second seed has one sentence more wrong than base's.
    p, seeds = found['A1']['p sentences'].split()
    assert 0.1 < float(p) < 0.9 and seeds == '(2)'
    # D3's translates as base's does.
    assert found['D3']['p sentences'] == '1.000 (1)'
    p, seeds = found['C1']['p sentences'].split()
    # One in 1,001, the least that 1,000 resamples can give.
    assert p == '<0.001' and seeds == '(1)'
    assert (found['base']['p sentences'], found['E']['p sentences']) == ('', '')


def test_notes(rendered, capsys):
    out = rendered('markdown', capsys)
    ours = {'A1': 0.6, 'C1': 2.0, 'D3': -0.3, 'big': -1.0}
    paper = {'A1': 0.37, 'C1': 1.19, 'D3': -0.25, 'big': -0.59}
    assert scipy.stats.spearmanr(list(ours.values()), list(paper.values())).statistic == 1
    # BLEU: ours -4, -10, -0.5, -1; the paper's -0.9, -2.1, -0.5, +0.6.
    assert re.search(r'ΔPPL .*: 1.00 \(.*4 rows', out) and re.search(r'ΔBLEU .*: 0.80 \(.*4 rows', out)
    assert 'scale grammar, train.beta2=0.99' in out
    assert 'train.lr_constant=0.4, train.steps=1500, train.warmup_steps=150' in out
    assert 'E-seed1: failed at step 0: MemoryError: 3 GiB\n' in out
    assert 'missing: C1-seed2, D3-seed1, E-seed2, big-seed2\n' in out
    assert '1 x cpu (2 CPU cores)' in out


def test_what_a_scale_is():
    description = scales.describe('grammar')
    assert 'configs/tiny.py with model.N=3, ' in description and 'train.lr_constant=0.4' in description
    assert scales.describe('paper') == scales.describe('configs/tiny.py') == ''


def test_results_alone_are_enough(workdir, capsys):
    for path in [*workdir.glob('*/translations'), workdir / 'jobs']:
        shutil.rmtree(path)
    out = shown(workdir, capsys, '--format=markdown')
    assert cells(out)['A1']['ΔBLEU ours'] == '-4.00 ≈' and 'p sentences' not in out
    assert 'A1-seed1 holds no translations of dev' in out


@pytest.mark.usefixtures('_no_flops')
def test_rows_without_a_seed_of_base_need_no_texts(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(differences, 'read_texts', lambda *_: pytest.fail('texts were read'))
    shutil.copytree(launch.ROOT / 'experiments' / 'results' / 'table4-genia', tmp_path / 'w')
    sweep = json.loads((tmp_path / 'w' / 'sweep.json').read_text())
    sweep['runs'].remove(['transformer', 1])
    (tmp_path / 'w' / 'sweep.json').write_text(json.dumps(sweep))
    out = shown(tmp_path / 'w', capsys, '--format=markdown')
    assert 'F1 ours' in out and 'ΔF1 ours' not in out


def test_equal_scores_are_no_difference():
    lines = [*REFERENCES[:20], *['die Katze'] * 40]
    trailing = [f'{line} ' for line in lines]
    wrong = ['nichts'] * 60
    same, also, (difference, p) = bleu.significance(lines, [trailing, lines, wrong], REFERENCES, 'de')
    assert same == also == (0.0, 1.0)
    assert difference < -10 and p < 0.01
    assert bleu.significance(wrong, [['gar'] * 60], REFERENCES, 'de') == [(0.0, 1.0)]


def test_p_of_equal_systems_is_uniform(monkeypatch):
    """Pairs of systems with equal shares of wrong words: p is below 0.05 in 5 % and below 0.5 in 50 %."""
    monkeypatch.setattr(bootstrap, 'RESAMPLES', 200)
    rng = np.random.default_rng(0)
    words = rng.integers(0, 50, (100, 10))

    def system() -> list[str]:
        wrong = rng.random(words.shape) < 0.15
        return [' '.join(map(str, line)) for line in np.where(wrong, 99, words)]

    references = [' '.join(map(str, line)) for line in words]
    p = np.array([bleu.significance(system(), [system()], references, 'en')[0][1] for _ in range(200)])
    # 10 and 100 are expected of 200, with standard deviations of 3.1 and 7.1.
    assert 3 <= np.sum(p < 0.05) <= 18
    assert 82 <= np.sum(p < 0.5) <= 118


@pytest.mark.parametrize('end', ['', ' 98 97'])
def test_p_is_the_share_of_resamples_as_far_from_the_difference(monkeypatch, end):
    """sacreBLEU's corpus score of each resample, drawn as `bootstrap` draws them.

    Without the end, the outputs are as long as the references; with it, they are longer.
    """
    monkeypatch.setattr(bootstrap, 'RESAMPLES', 200)
    rng = np.random.default_rng(3)
    words = rng.integers(0, 20, (30, 8))
    first, second, references = (
        [' '.join(map(str, line)) for line in np.where(rng.random(words.shape) < share, 99, words)]
        for share in (0.2, 0.15, 0)
    )
    first, second = ([f'{line}{end}' for line in lines] for lines in (first, second))
    ((difference, p),) = bleu.significance(first, [second], references, 'en')
    metric = sacrebleu.BLEU()
    score = lambda lines, sample: metric.corpus_score(
        [lines[i] for i in sample], [[references[i] for i in sample]]
    )
    of = lambda sample: score(second, sample).score - score(first, sample).score
    assert difference == pytest.approx(of(range(30)))
    drawn = np.random.default_rng(0).integers(0, 30, (200, 30))
    far = sum(abs(of(sample) - difference) >= abs(difference) for sample in drawn)
    assert 10 < far < 180 and p == (far + 1) / 201


@pytest.mark.parametrize('score', ['sacrebleu', 'moses'])
def test_resamples_without_matches_are_scored_as_sacrebleu_does(score):
    """Of four sentences one has all matches of four words: a third of the resamples lack it."""
    references = [f'{i} eins zwei drei vier' for i in range(4)]
    lines = [references[0], 'eins zwei', 'drei', '']
    tokenized = {'tokenize': 'none', 'smooth_method': 'none'} if score == 'moses' else {}
    metric, drawn = sacrebleu.BLEU(**tokenized), list(bootstrap.draws(4))
    of = lambda texts, sample: (
        metric.corpus_score([texts[i] for i in sample], [[references[i] for i in sample]]).score
    )
    for first, second in ((lines, references), (references, lines)):
        ((difference, p),) = bleu.significance(first, [second], references, 'en', score)
        assert difference == pytest.approx(of(second, range(4)) - of(first, range(4)))
        resampled = np.array([of(second, sample) - of(first, sample) for sample in drawn])
        assert p == bootstrap.two_sided_p(difference, resampled)
    assert len([sample for sample in drawn if 0 not in sample]) > 200


def test_intervals_end_where_the_score_does():
    lines = [f'eins zwei drei vier {i}' for i in range(200)]
    scores = bleu.score_all(['eins zwei drei fünf 0', *lines[1:]], lines, ('en', 'de'))
    for name in ('sacrebleu', 'chrf'):
        low, high = scores[name]['interval']
        assert low < scores[name]['score'] < high == 100


def test_the_significance_of_a_score_is_of_that_score():
    """Table 2 prints the paper's BLEU, which takes typographic quotes for plain ones."""
    quoted = [f'Er sagte: „{line}“' for line in REFERENCES]
    plain = [f'Er sagte: "{line}"' for line in REFERENCES]
    wrong = ['nichts', *quoted[1:]]
    difference, p = bleu.significance(quoted, [plain], quoted, 'de', 'sacrebleu')[0]
    assert difference < -5 and p < 0.01
    assert bleu.significance(quoted, [plain], quoted, 'de', 'paper') == [(0.0, 1.0)]
    for score in ('sacrebleu', 'chrf', 'moses', 'paper'):
        found = bleu.score_all(wrong, quoted, ('en', 'de'))[score]['score']
        ((difference, _),) = bleu.significance(quoted, [wrong], quoted, 'de', score)
        assert difference == pytest.approx(found - 100)
    for score, language in (('meteor', 'de'), ('moses', 'zh')):
        with pytest.raises(ConfigError, match=f'bleu.{score}: no score of raw text'):
            bleu.significance(quoted, [plain], quoted, language, score)


def test_seed_test():
    ours, of_base = [83.0, 85.5, 84.0], [81.0, 84.0, 83.5]
    shared = [a - b for a, b in zip(ours, of_base, strict=True)]
    expected = scipy.stats.ttest_rel(ours, of_base)
    found = differences.seed_test(shared)
    assert found.p == pytest.approx(expected.pvalue) and not found.is_significant
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert found.low < 0 < found.high
    # Less noise, and the same mean.
    assert differences.seed_test([1.3, 1.4, 1.3]).is_significant
    # One seed tells nothing; equal differences leave no doubt.
    assert differences.seed_test([9.0]) is None
    assert differences.seed_test([0.0, 0.0]) == (0.0, 0.0, 1.0)
    assert differences.seed_test([0.5, 0.5]).is_significant


def test_rows_that_may_equal_base_are_marked(workdir, capsys):
    """Even if the sentences differ: A1 is worse with both seeds, by 2 and by 6."""
    lines = ''.join('die Katze schläft\n' if i < 45 else f'{line}\n' for i, line in enumerate(REFERENCES))
    (workdir / 'A1-seed2' / 'translations' / 'dev.best.txt').write_text(lines)
    out = shown(workdir, capsys, '--format=markdown')
    assert cells(out)['A1']['p sentences'].split()[0] == '<0.001'
    assert cells(out)['A1']['ΔBLEU ours'] == '-4.00 ≈' and cells(out)['A1']['ΔPPL ours'] == '+0.600'
    assert re.search(r'by BLEU \(≈\), 1 of the 1 rows.*: A1\n', out)
    assert re.search(r'by PPL \(≈\), 0 of the 1 rows.*: none\n', out)
    assert ': C1, D3, big\n' in out


def test_seeds_that_disagree(swept):
    comparison = results.of_sweep(runs.read_sweep(swept), swept)
    tests = {'A1': [(2.0, 0.001), (-2.0, 0.001)], 'C1': [(-2.0, 0.001), (-1.0, 0.04), (0.0, 1.0)]}
    _, a1, c1, d3, *_ = columns.score_records(comparison, comparison.scores[1], tests)
    assert a1['runs_disagree'] is True
    assert (c1['runs_disagree'], c1['p_greatest']) == (False, 1.0)
    assert d3['runs_disagree'] is d3['p_greatest'] is None


def test_a_result_of_other_steps_is_none(workdir, capsys):
    file = workdir / 'C1-seed1' / 'result.json'
    file.write_text(file.read_text().replace('"steps": 1500, "tokens"', '"steps": 1499, "tokens"'))
    out = shown(workdir, capsys, '--format=markdown')
    assert cells(out)['C1']['PPL ours'] == 'stopped' and 'stopped: C1-seed1\n' in out


def test_a_training_that_stopped_early_has_ended(workdir):
    sweep = runs.read_sweep(workdir)
    run = next(run for run in sweep.all_runs(workdir) if run.name == 'C1-seed1')
    (row,) = tables.rows('3', 'C1')
    config = scales.config(row, 'grammar', sweep.different)
    file = run.folder / 'result.json'
    for steps, patience, asked, ended in (
        (run.steps, 0, 0, True),
        (450, 0, 0, False),
        (450, 2, 2, True),
        # It is trained on with more patience, or with more steps.
        (450, 2, 3, False),
        (run.steps + 150, 2, 2, False),
    ):
        edit(file, lambda result: result.update(steps=steps))
        edit(file, lambda result: result['config']['train'].update(patience=patience))
        found = results._result_of(run, configs.replace(config, {'train.patience': asked}), 'dev')
        assert (found is not None) == ended, (steps, patience, asked)


def test_flops_are_those_of_the_updates_that_were_made(workdir, capsys):
    for steps in (600, 450):
        for name in ('base-seed1', 'C1-seed1'):
            made = steps if name == 'C1-seed1' else 600
            edit(workdir / name / 'result.json', lambda result: result.update(steps=made))
        call = [str(workdir / 'base-seed1'), str(workdir / 'C1-seed1'), '--split=dev', '--format=csv']
        assert report.main(['report', *call]) == 0
        base, row = csv.DictReader(io.StringIO(capsys.readouterr().out))
        (config,) = (scales.config(r, 'grammar', {'train.beta2': 0.99}) for r in tables.rows('3', 'C1'))
        assert float(row['FLOPs']) == steps * cost.update_flops(config)
        assert float(base['FLOPs']) > float(row['FLOPs'])


@pytest.mark.parametrize(
    'name, score, rows, seeds',
    [
        ('table3-grammar', 'PPL', 20, 5),
        ('table3-multi30k', 'PPL', 20, 3),
        ('further-grammar', 'PPL', 19, 3),
        ('architectures', 'PPL', 6, 1),
        ('table4-genia', 'F1', 3, '[12]'),
    ],
)
def test_the_committed_tables_are_of_the_committed_results(capsys, monkeypatch, name, score, rows, seeds):
    if rows > 6:
        # Counting FLOPs takes seconds a row.
        monkeypatch.setattr(columns.cost, 'update_flops', lambda config: 1.0)
    folder = launch.ROOT / 'experiments' / 'results' / name
    committed = cells((folder / 'table.md').read_text())
    found = cells(shown(folder, capsys, '--format=markdown'))
    for name_of_row, row in found.items() if rows > 6 else ():
        row['FLOPs ours'] = committed[name_of_row]['FLOPs ours']
    assert committed == found
    done = [row for row, cell in found.items() if re.search(rf' \({seeds}\)$', cell[f'{score} ours'])]
    assert len(found) == rows and done == list(found)
    if name == 'table3-grammar':
        readme = (folder.parent / 'README.md').read_text()
        assert cells(readme[readme.index('| row ') :].partition('\n\n')[0]) == committed


def test_a_result_of_a_folder_elsewhere_counts(workdir, capsys):
    file = workdir / 'C1-seed1' / 'result.json'
    assert '"dir": null' in file.read_text()
    file.write_text(file.read_text().replace('"dir": null', '"dir": "elsewhere"'))
    assert cells(shown(workdir, capsys, '--format=markdown'))['C1']['PPL ours'] == '7.000 (1)'


def test_rows_that_a_scale_cannot_tell_from_base(tmp_path, capsys):
    asked = tuple((row, 1) for row in ('base', 'A1', 'C1', 'C2'))
    runs.write_sweep(tmp_path, runs.Sweep('3', 'grammar', {'model.N': 1, 'model.P_drop': 0.5}, asked))
    out = shown(tmp_path, capsys, '--format=markdown')
    assert 'same as base at this scale: C1, C2\n' in out
    # D2 and big are impossible there, but nobody asked for them.
    assert list(cells(out)) == ['base', 'A1', 'C1', 'C2'] and cells(out)['A1']['PPL ours'] == 'missing'


def test_changes_of_rows_that_are_written_for_no_scale(tmp_path, capsys, monkeypatch):
    own = (tables.Row('deep', {'model.N': 6}), tables.Row('same', {'model.N': 3, 'model.norm': 'pre'}))
    monkeypatch.setitem(tables.TABLES, 'own', tables.Table((tables.TABLE_3[0], *own), 'dev'))
    asked = (('base', 1), ('deep', 1), ('same', 1))
    runs.write_sweep(tmp_path, runs.Sweep('own', 'grammar', {}, asked))
    found = cells(shown(tmp_path, capsys, '--format=markdown'))
    assert [found[row]['N'] for row in ('base', 'deep', 'same')] == ['6 → 3', '6', '']
    # The updates are base's, which are written for another scale.
    assert 'steps' not in found['deep'] and found['same']['other'] == 'norm=pre'


def test_classes_that_a_row_leaves_open_are_the_datas():
    classify = {'train.task': 'classify', 'data.source': 'table', 'data.train': 'a.tsv', 'data.dev': 'a.tsv',
                'data.columns': 'text=1,label=2', 'data.dir': '/data'}  # fmt: skip
    row = configs.resolve_values(classify)
    made_by = configs.replace(row, {'classify.classes': 2})
    assert row.classify.classes is None
    assert runs.differences(made_by, row) == {} and runs.differences(row, made_by)
    assert runs.differences(made_by, configs.replace(row, {'model.h': 4})).keys() == {'model.h'}
    three = configs.replace(row, {'classify.classes': 3})
    assert runs.differences(made_by, three) == {'classify.classes': (2, 3)}


def test_a_sweep_of_a_task_with_classes_is_reported(tmp_path):
    scale = tmp_path / 'scale.py'
    scale.write_text(
        'from transformer.config import config_dict\n\n\ndef get_config():\n    return config_dict('
        "{'train.task': 'classify', 'data.source': 'table', 'data.train': 'a.tsv', 'data.dev': 'a.tsv', "
        "'data.test': 'a.tsv', 'data.columns': 'text=1,label=2', 'data.dir': '/data', 'model.N': 1})\n"
    )
    names = 'P_drop=0.1', 'P_drop=0.2'
    runs.write_sweep(
        tmp_path, runs.Sweep('model.P_drop=0.1,0.2', str(scale), {}, tuple((n, 1) for n in names))
    )
    swept = runs.read_sweep(tmp_path)
    first, second = swept.all_runs(tmp_path)
    made_by = configs.replace(first.config, {'classify.classes': 2})
    result = {
        'params': 1, 'steps': first.steps, 'tokens': 1, 'seconds': 1.0, 'config': dataclasses.asdict(made_by),
        'scores': dict.fromkeys(('dev', 'test'), {'checkpoint': 'latest', 'loss': 0.5}),
        'hardware': {'devices': 1, 'device': 'cpu', 'cpus': 2},
    }  # fmt: skip
    first.folder.mkdir()
    (first.folder / 'result.json').write_text(json.dumps(result))
    done, missing = results.of_sweep(swept, tmp_path).rows
    assert [len(row.done) for row in (done, missing)] == [1, 0]
    assert columns.costs(done)['FLOPs'] == cost.update_flops(made_by) * first.steps
    assert columns.costs(missing)['FLOPs'] is None
    # Without a result, the folder of an unfinished training is not moved.
    (first.folder / 'result.json').unlink()
    (first.folder / 'config.json').write_text(configs.to_json(made_by))
    (first.folder / 'data.lock.json').write_text('{}')
    (first.folder / 'checkpoints' / '2').mkdir(parents=True)
    assert runs.set_aside(swept, first) is None


def test_rows_of_different_tasks_are_not_compared():
    of_text = {'data.source': 'text', 'data.language': 'en'}
    rows = {task: configs.resolve_values({'train.task': task, **of_text}) for task in ('language', 'masked')}
    with pytest.raises(ConfigError, match='language has train.task=language and masked has'):
        results.check_tasks(rows, 'rows')
    results.check_tasks({'a': rows['masked'], 'b': rows['masked']}, 'rows')


def test_a_grid_of_json_files_is_no_file():
    grid = 'data.train=small.json,large.json'
    assert tables.is_grid(grid) and not tables.is_grid('mine.json')
    assert [row.name for row in tables.table(grid).rows] == ['train=small.json', 'train=large.json']


def test_a_sweep_without_runs(tmp_path):
    with pytest.raises(ConfigError, match='has no run'):
        results.of_sweep(runs.Sweep('3', 'grammar', {}, ()), tmp_path)


@pytest.mark.parametrize(
    ('key', 'value'),
    [
        ('scores', None),
        ('scores', []),
        ('scores', {'dev': None}),
        ('scores', {'dev': {'checkpoint': 'best', 'decode': None}}),
        ('hardware', {}),
        ('seconds', 'long'),
        ('steps', None),
    ],
)
def test_a_result_of_wrong_types_is_a_mistake(workdir, key, value):
    edit(workdir / 'A1-seed1' / 'result.json', lambda result: result.update({key: value}))
    with pytest.raises(ConfigError, match=rf'A1-seed1/result.json: {key}\b'):
        results.of_sweep(runs.read_sweep(workdir), workdir)


@pytest.mark.parametrize('damage', [{'perplexity': '5.1'}, {'bleu': {'sacrebleu': {'interval': 3}}}])
def test_a_score_that_is_no_number_is_named_with_its_run(workdir, damage):
    edit(workdir / 'A1-seed1' / 'result.json', lambda result: result['scores']['dev'].update(damage))
    (key,) = damage
    with pytest.raises(ConfigError, match=rf'A1-seed1: result.json: {key}\b'):
        results.of_sweep(runs.read_sweep(workdir), workdir)


def test_columns_that_no_row_changes_are_left_out(tmp_path, capsys):
    runs.write_sweep(tmp_path, runs.Sweep('3', 'grammar', {}, (('base', 1), ('A1', 1), ('D2', 1))))
    out = shown(tmp_path, capsys, '--format=markdown')
    assert cells(out)['base'].keys() & {'N', 'd_model', 'h', 'd_k', 'P_drop', 'steps'} == {
        'h',
        'd_k',
        'P_drop',
    }
    assert '- In every row: N 6 → 3, d_model 512 → 64, d_ff 2048 → 256, eps_ls 0.1, steps 100K' in out


def test_no_correlation_where_the_paper_has_no_numbers(tmp_path, capsys):
    asked = (('base', 1), ('rmsnorm', 1), ('gelu', 1))
    runs.write_sweep(tmp_path, runs.Sweep('further', 'grammar', {}, asked))
    out = shown(tmp_path, capsys, '--format=markdown')
    assert list(cells(out)) == ['base', 'rmsnorm', 'gelu']
    assert 'missing: base-seed1' in out and 'Rank correlation' not in out


def test_correlation_over_seeds():
    of = lambda paper, *ours: differences.Difference(
        paper, statistics.mean(ours), by_seed=dict(enumerate(ours))
    )
    rows = [of(1.0, 1.0, 1.0), of(2.0, 2.0, 4.0), of(3.0, 3.0, 0.0), of(4.0, 4.0, 9.0)]
    found = differences.correlation(rows)
    assert (found.value, found.rows, found.seeds) == (pytest.approx(0.8), 4, 2)
    # Two seeds can be drawn in three ways, which say nothing of others.
    assert found.low is None and notes.describe_correlation(found) == '0.80 (Spearman, 4 rows, p 0.33)'
    # The first two seeds alone have 1.0, the third alone 0.4.
    rows = [of(1.0, 1.0, 1.0, 1.0), of(2.0, 2.0, 2.0, 4.0), of(3.0, 3.0, 3.0, 0.0), of(4.0, 4.0, 4.0, 9.0)]
    found = differences.correlation(rows)
    assert (found.seeds, found.low, found.high) == (3, pytest.approx(0.4), pytest.approx(1.0))
    assert '3 resampled seeds' in notes.describe_correlation(found)
    assert notes.describe_correlation(found).endswith('[0.40, 1.00])')
    # Only seeds that all rows have are drawn; a row without either number does not count.
    fewer = [*rows, of(5.0, 5.0), differences.Difference(None, 1.0), differences.Difference(1.0, None)]
    found = differences.correlation(fewer)
    assert (found.rows, found.seeds, found.low) == (5, 1, None)
    assert 'seeds' not in notes.describe_correlation(found)
    # Numbers can be equal: two of the six orders agree or disagree as much as [3, 2, 3] with [0, 2, 0].
    tied = [of(0.0, 3.0), of(2.0, 2.0), of(0.0, 3.0)]
    assert differences.correlation(tied).p == pytest.approx(1 / 3)


def test_the_p_of_a_correlation_over_few_rows_counts_orders():
    """Of the 24 orders of four rows one agrees with the paper in full, and one disagrees in full."""
    of = lambda *ours: [differences.Difference(float(i), float(x)) for i, x in enumerate(ours)]
    assert differences.correlation(of(0, 1, 2, 3)).p == pytest.approx(2 / 24)
    assert differences.correlation(of(3, 2, 1, 0)).p == pytest.approx(2 / 24)


def test_the_interval_is_of_means_over_as_many_seeds():
    """Against every way to draw five seeds out of five."""
    paper, draw = range(6), np.random.default_rng(0)
    ours = np.arange(6.0)[:, None] + draw.normal(0, 3, (6, 5))
    rows = [
        differences.Difference(float(row), float(each.mean()), by_seed=dict(enumerate(each.tolist())))
        for row, each in zip(paper, ours, strict=True)
    ]

    def correlations(seeds: np.ndarray) -> np.ndarray:
        """Computes 1 - 6 Σd² / n(n² - 1) of the ranks of the means over each row of seeds."""
        ranks = scipy.stats.rankdata(ours[:, seeds].mean(axis=2), axis=0)
        return 1 - 6 * np.sum((ranks - np.arange(1, 7)[:, None]) ** 2, axis=0) / (6 * 35)

    every = correlations(np.array([*itertools.product(range(5), repeat=5)]))
    found = differences.correlation(rows)
    np.testing.assert_allclose([found.low, found.high], np.quantile(every, [0.025, 0.975]), atol=0.06)
    assert found.low > correlations(np.arange(5)[:, None]).min() + 0.1


def test_no_correlation_where_nothing_differs():
    same = [differences.Difference(float(row), 2.0) for row in range(4)]
    assert differences.correlation(same) is differences.correlation(same[:2]) is None


def test_table_2_has_the_papers_bleu_on_the_test_set(tmp_path, capsys):
    sweep = runs.Sweep('2', 'grammar', {}, tuple((row.name, 1) for row in tables.TABLE_2))
    runs.write_sweep(tmp_path, sweep)
    run = sweep.all_runs(tmp_path)[0]
    config = scales.config(tables.TABLE_2[0], 'grammar', {'train.seed': 1})
    scores = {'checkpoint': 'best', 'perplexity': 3.0, 'bleu': {'paper': {'score': 27.5}}}
    run.folder.mkdir()
    result = {
        'params': 5, 'steps': run.steps, 'seconds': 60.0, 'config': dataclasses.asdict(config),
        'hardware': {'devices': 8, 'device': 'TPU v2', 'cpus': 96}, 'scores': {'test': scores},
    }  # fmt: skip
    (run.folder / 'result.json').write_text(json.dumps(result))
    out = shown(tmp_path, capsys, '--format=markdown')
    found = cells(out)
    assert [cell['BLEU'] for cell in found.values()] == ['27.3', '28.4', '38.1', '41.8']
    assert [cell['BLEU ours'] for cell in found.values()] == ['27.50 (1)', 'missing', 'missing', 'missing']
    assert (found['big-en-de']['FLOPs'], 'PPL' in found['big-en-de']) == ('2.3e+19', False)
    # Only within a language.
    assert (found['big-en-de']['ΔBLEU'], found['big-en-fr']['ΔBLEU']) == ('+1.1', '')
    assert "the paper's BLEU" in out and '8 x TPU v2 (96 CPU cores)' in out


def language_run(run: runs.SweepRun, scores: dict[str, object], table: str = 'language') -> None:
    """Writes the result that a language model's training leaves."""
    (row,) = tables.rows(table, run.row)
    config = scales.config(row, 'language', {'train.seed': run.seed})
    context = {'window': 64, 'stride': 64, 'least': 0, 'mean': 21.5}
    dev = {
        'checkpoint': 'best', 'steps': run.steps, 'tokens': 1000, 'decode': {'method': 'sample'},
        'loss': 0.5, 'accuracy': 0.9, 'pieces': 4000, 'bytes': 20000, 'context': context, **scores,
    }  # fmt: skip
    result = {
        'params': 400_000, 'steps': run.steps, 'seconds': 360.0, 'config': dataclasses.asdict(config),
        'hardware': {'devices': 1, 'device': 'cpu', 'cpus': 2}, 'scores': {'dev': dev},
    }  # fmt: skip
    run.folder.mkdir()
    (run.folder / 'result.json').write_text(json.dumps(result))


def language_scores(perplexity: float, word: float, bits: float, grammatical: float | None) -> dict:
    scores = {'perplexity': perplexity, 'word': {'perplexity': word, 'count': 3000}, 'bits_per_byte': bits}
    return scores if grammatical is None else scores | {'grammatical': grammatical}


def test_a_language_model_has_its_own_measures(tmp_path, capsys):
    asked = tuple((row, seed) for row in ('base', 'one-head', 'relu') for seed in (1, 2))
    sweep = runs.Sweep('language', 'language', {}, asked)
    runs.write_sweep(tmp_path, sweep)
    by_seed = {(run.row, run.seed): run for run in sweep.all_runs(tmp_path)}
    language_run(by_seed['base', 1], language_scores(3.0, 9.0, 0.625, 0.93))
    language_run(by_seed['base', 2], language_scores(3.5, 9.5, 0.75, 0.95))
    language_run(by_seed['one-head', 1], language_scores(3.25, 10.0, 0.6875, 0.9))
    out = shown(tmp_path, capsys, '--format=markdown')
    found = cells(out)
    assert list(found) == ['base', 'one-head', 'relu']
    base, head = found['base'], found['one-head']
    assert base['PPL ours'] == f'3.250 ±{statistics.stdev([3.0, 3.5]):.3f} (2)'
    assert base['PPL/word ours'] == f'9.250 ±{statistics.stdev([9.0, 9.5]):.3f} (2)'
    assert base['bits/byte ours'] == f'0.6875 ±{statistics.stdev([0.625, 0.75]):.4f} (2)'
    assert base['grammatical ours'] == f'94.0 % ±{100 * statistics.stdev([0.93, 0.95]):.1f} % (2)'
    # Over the one seed that both have.
    assert (head['PPL ours'], head['ΔPPL ours']) == ('3.250 (1)', '+0.250')
    assert (head['ΔPPL/word ours'], head['Δbits/byte ours']) == ('+1.000', '+0.0625')
    assert head['Δgrammatical ours'] == '-3.0 %'
    assert found['relu']['PPL ours'] == 'missing'
    # The row is written for this scale, which is not a smaller copy of the paper's.
    assert head['h'] == '1' and '→' not in out
    assert not {'p sentences', 'BLEU', 'BLEU ours', 'PPL'} & set(base)
    assert 'bootstrap' not in out and 'Rank correlation' not in out
    for form in ('terminal', 'html'):
        assert 'bits/byte ours' in shown(tmp_path, capsys, f'--format={form}')
    assert ' & bits/byte' in shown(tmp_path, capsys, '--format=latex')


def test_learning_curves_share_their_axes():
    """Steps from 0 to 100 and losses from 1 to 3, with 5 % beside them, are 192 x 106 pixels."""
    page = curves.learning_curves(
        {'base': [[(0, 3.0), (100, 1.0)]], 'lr$x_$ < 1': [[(50, 2.0)], []], 'none': []}, 'base'
    )
    svg = ElementTree.fromstring(page[page.index('<svg') : page.index('</figure>')])
    points = lambda parent: [line.get('points') for line in parent.iter('polyline')]
    axes, *plots = svg.find('defs/g'), *svg.findall('g')
    x, y = 192 * 5 / 110, 106 * 0.1 / 2.2
    ends = f'{34 + x:.1f},{20 + y:.1f} {226 - x:.1f},{126 - y:.1f}'
    assert points(axes.find('g')) == points(plots[0]) == [ends]
    assert points(plots[1]) == ['128.0,73.0 132.0,73.0']
    assert [plot.find('text').text for plot in plots] == ['base', 'lr$x_$ < 1']
    assert [plot.find('use').get('href') for plot in plots] == ['#axes'] * 2
    labels = [text.text for text in axes.iter('text')]
    assert labels == ['0', '50', '100', '1', '2', '3']
    # Each label is at its step or loss.
    places = [text.get('x') for text in axes.iter('text')][:3] + [
        text.get('y') for text in axes.iter('text')
    ][3:]
    assert places == [f'{at:.1f}' for at in (34 + x, 130, 226 - x, 126 - y + 3.5, 76.5, 20 + y + 3.5)]
    marks = [path.get('d') for path in axes.iter('path')]
    assert marks[0] == f'M{34 + x:.1f} 126v3' and marks[3] == f'M34 {126 - y:.1f}h-3'


def test_four_curves_are_in_a_line():
    page = curves.learning_curves({str(i): [[(0, 1.0), (9, 2.0)]] for i in range(6)}, 'a < b')
    svg = ElementTree.fromstring(page[page.index('<svg') : page.index('</figure>')])
    assert svg.get('viewBox') == f'0 0 {4 * 230} {2 * 158}'
    places = [(0, 0), (230, 0), (460, 0), (690, 0), (0, 158), (230, 158)]
    assert [plot.get('transform') for plot in svg.findall('g')] == [f'translate({x},{y})' for x, y in places]
    assert 'the runs of a &lt; b.' in page


@pytest.mark.parametrize(
    ('low', 'high', 'ticks'),
    [(0, 40, [0, 10, 20, 30, 40]), (-0.5, 1.5, [-0.5, 0, 0.5, 1, 1.5]), (1e5, 1.9e5, [1e5, 1.5e5])],
)
def test_ticks_are_round_numbers(low, high, ticks):
    assert curves.ticks(low, high) == ticks
    assert all(low <= tick <= high for tick in ticks)


def test_curves_of_one_point():
    page = curves.learning_curves({'base': [[(0, 0.0)]]}, 'base')
    assert '<polyline points="128.0,73.0 132.0,73.0"/>' in page
    assert curves.learning_curves({'base': []}, 'base').startswith('<p>No learning curves')


def test_a_score_that_a_result_lacks_is_an_empty_cell(tmp_path, capsys):
    """Text that no grammar judges has no share of grammatical samples."""
    sweep = runs.Sweep('language', 'language', {}, (('base', 1), ('base', 2), ('relu', 1)))
    runs.write_sweep(tmp_path, sweep)
    for run in sweep.all_runs(tmp_path):
        share = 0.5 if (run.row, run.seed) == ('base', 1) else None
        language_run(run, language_scores(3.0, 9.0, 0.7, share))
    out = shown(tmp_path, capsys, '--format=markdown', '--table=language')
    found = cells(out)
    assert (found['base']['PPL ours'], found['base']['grammatical ours']) == (
        '3.000 ±0.000 (2)',
        '50.0 % (1)',
    )
    # The column of differences would be empty.
    assert found['relu']['grammatical ours'] == '' and 'Δgrammatical ours' not in found['relu']
    assert re.findall(r'(\w+), and so not counted in it: (.*)', out) == [
        ('grammatical', 'base-seed2, relu-seed1')
    ]
    edit(tmp_path / 'base-seed1' / 'result.json', lambda r: r['scores']['dev'].update(grammatical=None))
    assert 'not counted in it' not in shown(tmp_path, capsys, '--format=markdown')


def test_a_table_of_translation_with_a_language_model(tmp_path, capsys):
    """Table 3's rows on a language model: its own measures, perplexities beside the paper's, and no BLEU."""
    sweep = runs.Sweep('3', 'language', {}, (('base', 1), ('A1', 1), ('C1', 1)))
    runs.write_sweep(tmp_path, sweep)
    for run, perplexity in zip(sweep.all_runs(tmp_path)[:2], (3.0, 3.5), strict=True):
        language_run(run, language_scores(perplexity, 9.0, 0.7, 0.9), '3')
    found = cells(shown(tmp_path, capsys, '--format=markdown'))
    a1 = found['A1']
    assert (a1['PPL ours'], a1['ΔPPL'], a1['ΔPPL ours']) == ('3.500 (1)', '+0.37', '+0.500')
    assert not {'BLEU', 'BLEU ours', 'p sentences'} & set(a1) and found['C1']['PPL ours'] == 'missing'


def test_a_table_with_another_measure(workdir, capsys, monkeypatch):
    """A table names its measures; the report knows none."""
    chrf = tables.Measure('chrF', 'chrF', 'bleu.chrf.score', 1)
    rows = tables.rows('3', 'base,A1,C1,D3,E,big')
    monkeypatch.setitem(tables.TABLES, '3', tables.Table(rows, 'dev', (chrf,)))
    for file in workdir.glob('*/result.json'):
        score = {'score': 50.0 + int(file.parent.name[-1])}
        edit(file, lambda result, score=score: result['scores']['dev']['bleu'].update(chrf=score))
    out = shown(workdir, capsys, '--format=markdown')
    assert cells(out)['A1']['chrF ours'] == f'51.5 ±{statistics.stdev([51, 52]):.1f} (2)'
    assert not {'PPL', 'PPL ours', 'BLEU', 'p sentences', 'chrF'} & set(cells(out)['A1'])
    # A path that no run has, such as a mistyped one, is noted.
    mistyped = chrf._replace(name='F', path='bleu.chrff.score')
    monkeypatch.setitem(tables.TABLES, '3', tables.Table(rows, 'dev', (chrf, mistyped)))
    noted = shown(workdir, capsys, '--format=markdown')
    assert 'No run has F (bleu.chrff.score) on dev' in noted and 'No run has chrF' not in noted
    # A table can also name a task's measure.
    monkeypatch.setitem(tables.TABLES, '3', tables.Table(rows, 'dev', ('chrf', 'perplexity')))
    named = cells(shown(workdir, capsys, '--format=markdown'))['A1']
    assert named['chrf ours'].startswith('51.50 ±') and named['PPL'] == '5.29'


def test_sentences_are_tested_by_the_bleu_that_the_table_prints(workdir, capsys, monkeypatch):
    """Table 2's is the paper's, for which typographic quotes are plain ones."""
    measure = tables.TABLES['2'].measures[1]
    rows = tables.rows('3', 'base,A1,C1,D3,E,big')
    monkeypatch.setitem(tables.TABLES, '3', tables.Table(rows, 'dev', (measure,)))
    typographic = [f'Er sagte: „{line}“' for line in REFERENCES]
    monkeypatch.setattr(differences, 'read_texts', lambda folder, split: {'target': typographic})
    for run in runs.read_sweep(workdir).all_runs(workdir):
        file = run.folder / 'result.json'
        if file.exists():
            edit(file, lambda result: result['scores']['dev'].update(bleu={'paper': {'score': 100.0}}))
            quotes = ('„', '“') if run.row == 'base' else ('"', '"')
            lines = [f'Er sagte: {quotes[0]}{line}{quotes[1]}\n' for line in REFERENCES]
            (run.folder / 'translations' / 'dev.best.txt').write_text(''.join(lines))
    found = cells(shown(workdir, capsys, '--format=markdown'))
    assert found['A1']['p sentences'] == '1.000 (2)'


def test_a_table_names_its_base_and_whether_to_print_the_speed(workdir, capsys, monkeypatch):
    perplexity = tables.Measure('PPL', 'perplexity', 'perplexity', 1, ('PPL',))
    rows = tables.rows('3', 'base,A1,C1,D3,E,big')
    table = tables.Table(rows, 'dev', (perplexity,), base='A1', speed=True)
    assert 'tokens/s' not in cells(shown(workdir, capsys, '--format=markdown'))['base']
    monkeypatch.setitem(tables.TABLES, '3', table)
    speeds = [
        json.loads(file.read_text())['tokens_per_second'] for file in workdir.glob('base-*/result.json')
    ]
    found = cells(shown(workdir, capsys, '--format=markdown'))
    assert found['A1']['ΔPPL'] == '' and found['base']['ΔPPL'] == '-0.37'
    assert speeds and found['base']['tokens/s'] == f'{statistics.mean(speeds):,.0f}'


def test_a_result_of_another_task_is_refused(tmp_path, capsys):
    sweep = runs.Sweep('3', 'grammar', {}, (('base', 1),))
    runs.write_sweep(tmp_path, sweep)
    (run,) = sweep.all_runs(tmp_path)
    language_run(run, language_scores(3.0, 9.0, 0.7, 0.9))
    assert report.main(['report', f'--workdir={tmp_path}']) == 2
    error = capsys.readouterr().err
    assert 'base-seed1: made by another config: ' in error and error.count('\n') == 1


def test_a_perplexity_too_large_for_a_number(workdir, capsys):
    for path in workdir.glob('A1-seed*/result.json'):
        path.write_text(path.read_text().replace('"perplexity": 5.', '"perplexity": Infinity, "was": 5.'))
    with (workdir / 'A1-seed1' / 'metrics.jsonl').open('a') as file:
        file.write('{"step": 200, "dev_loss": null}\n')
    found = cells(shown(workdir, capsys, '--format=markdown'))
    assert (found['A1']['PPL ours'], found['A1']['ΔPPL ours']) == ('inf (2)', '')
    assert found['A1']['ΔBLEU ours'] == '-4.00 ≈'
    assert '<figure class="curves">' in shown(workdir, capsys, '--format=html')


def test_latex(rendered, capsys):
    out = rendered('latex', capsys)
    assert '\\begin{tabular}{@{}lrrr' in out and '\\toprule' in out
    assert ' & $d_{\\mathrm{model}}$ & ' in out and ' & $d_k$ & ' in out
    assert ' & $\\Delta$PPL & ' in out and '6 $\\to$ 3' in out
    assert '-' not in re.sub(r'\$-\$|%.*|caption.*|label.*', '', out)
    # With a caption each; the first, with the label, says what the table is.
    assert out.count('\\begin{table}') == out.count('\\caption{') == out.count('\\begin{tabular}')
    assert out.count('\\label{tab:table-3-at-') == 1 < out.count('\\begin{table}')
    assert out.count('\\ref{tab:table-3-at-') == out.count('\\begin{table}') - 1
    assert '5.700 $\\pm$0.141 (2)' in out and ' & $-$4.00 $\\approx$ & ' in out
    table = out.rpartition('\\end{tabular}')[0]
    assert all(ord(letter) < 128 for letter in table)
    lines = [line.split(' & ') for line in table.splitlines() if line.endswith(r'\\')]
    # Every part begins with the names of the rows.
    assert [line[0] for line in lines].count('A1') == out.count('\\begin{tabular}') > 1


def test_numbers_in_latex():
    texts = ['1e-05', '4.57e+12', '-0.5', '[-1.2, +3]', 'a-b', 'rate=1e-09', 'wmt14-de']
    expected = [
        '$10^{-5}$', '$4.57 \\cdot 10^{12}$', '$-$0.5', '[$-$1.2, +3]', 'a-b', 'rate=$10^{-9}$', 'wmt14-de'
    ]  # fmt: skip
    assert list(map(formats._escape, texts)) == expected


def test_a_pipe_in_markdown_begins_no_cell():
    columns = [formats.Column('row', 'row', ['a|b\nc']), formats.Column('c|d', 'score', ['1'])]
    assert [line.count(' | ') for line in formats.markdown(columns, []).splitlines()[:3:2]] == [1, 1]
    assert 'a\\|b c' in formats.markdown(columns, [])


def test_caption_and_label_in_latex(workdir, capsys):
    out = shown(workdir, capsys, '--format=latex', '--caption=How $d_k$ matters', '--label=tab:d_k')
    assert out.count('\\caption{How $d_k$ matters}\n\\label{tab:d_k}\n') == 1 == out.count('\\label')
    # What would have been the caption is kept as a comment.
    [comment] = re.findall(r'^% Table 3 at .*: perplexity.*', out, re.MULTILINE)
    for argv in (['--label=a}b', '--format=latex'], ['--label=a'], ['--caption=a', '--format=html']):
        assert report.main(['report', f'--workdir={workdir}', *argv]) == 2
        assert argv[0].partition('=')[0] in capsys.readouterr().err


def test_columns_of_one_heading_are_chosen_together():
    table = [formats.Column('row', 'row', ['row0'])]
    table += [formats.Column(name, 'score', [name + str(k)]) for k, name in enumerate(['p', 'x', 'p'], 1)]
    assert [column.texts for column in formats.choose(table, 'p')] == [['row0'], ['p1'], ['p3']]


def test_chosen_columns(workdir, capsys):
    chosen = cells(shown(workdir, capsys, '--format=markdown', '--columns=BLEU ours,PPL'))
    assert list(chosen['base']) == ['row', 'BLEU ours', 'PPL']
    # The caption names the measures that are shown.
    for heading, said in (('BLEU ours', False), ('ΔPPL 95%', True)):
        out = shown(workdir, capsys, '--format=markdown', f'--columns={heading}')
        assert ('perplexity' in out) is said
    for argv in (['--columns=PLP'], ['--columns=PPL', '--format=csv']):
        assert report.main(['report', f'--workdir={workdir}', *argv]) == 2
        assert argv[-1] in capsys.readouterr().err


@pytest.mark.skipif(shutil.which('pdflatex') is None, reason='needs pdflatex with booktabs')
@pytest.mark.parametrize('name', ['table3-grammar', 'further-grammar', 'table3-multi30k'])
def test_latex_fits_a_page(tmp_path, capsys, name):
    table = shown(launch.ROOT / 'experiments' / 'results' / name, capsys, '--format=latex')
    head = '\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n'
    (tmp_path / 'table.tex').write_text(f'{head}{table}\\end{{document}}\n')
    call = ['pdflatex', '-interaction=nonstopmode', '-halt-on-error', 'table.tex']
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert not re.search('Overfull|too large', done.stdout), done.stdout


@pytest.mark.usefixtures('_no_flops')
@pytest.mark.parametrize('width, parts', [(80, 4), (120, 2), (200, 1)])
def test_the_terminal_is_not_wider_than_it_is(capsys, monkeypatch, width, parts):
    monkeypatch.setenv('COLUMNS', str(width))
    out = shown(launch.ROOT / 'experiments' / 'results' / 'further-grammar', capsys)
    assert max(map(len, out.splitlines())) <= width
    lines = out.splitlines()
    # The scores come first; the names of the rows stand before every part.
    assert lines[0].split()[:3] == ['row', 'PPL', 'PPL']
    names = [line.split()[0] for line in lines if line]
    assert names.count('row') == names.count('pre-norm') == names.count('xavier') == parts
    assert '1.210 ±0.008' in out and '(3)' not in out and '8 → 4' in out and 'positions=rotary' in out


@pytest.mark.usefixtures('_no_flops')
def test_a_text_wider_than_the_terminal_takes_several_lines(capsys, monkeypatch):
    folder = launch.ROOT / 'experiments' / 'results' / 'architectures'
    others = [cell['other'] for cell in cells(shown(folder, capsys, '--format=markdown')).values()]
    monkeypatch.setenv('COLUMNS', '80')
    lines = shown(folder, capsys).splitlines()
    assert max(map(len, others)) > 80 >= max(map(len, lines))
    assert all(word in ' '.join(lines) for other in others for word in other.split())


@pytest.mark.usefixtures('_no_flops')
def test_a_pipe_has_no_width(capsys, monkeypatch):
    monkeypatch.delenv('COLUMNS', raising=False)
    lines = shown(launch.ROOT / 'experiments' / 'results' / 'table3-grammar', capsys).splitlines()
    assert [line.split()[0] for line in lines if line].count('A1') == 1
    assert 'PPL ours' in lines[0] and lines[0].endswith('hours')


def test_numbers_for_programs(rendered, capsys):
    """Without rounding, as numbers, with what they count in their names."""
    deviation = statistics.stdev([5.6, 5.8])
    told = json.loads(rendered('json', capsys))
    a1 = next(row for row in told['rows'] if row['row'] == 'A1')
    assert a1['PPL_mean'] == statistics.mean([5.6, 5.8]) and a1['PPL_stdev'] == deviation
    assert (a1['PPL_paper'], a1['PPL_runs'], a1['BLEU_difference']) == (5.29, 2, -4.0)
    assert (a1['model.h'], a1['model.d_k'], a1['train.steps']) == (1, 64, 1500)
    assert (a1['params'], a1['training_seconds_mean'], a1['params_paper']) == (1_234_567, 2700.0, None)
    assert a1['tokens_per_second'] == statistics.mean([1000.0, 500.0])
    assert a1['BLEU_runs_disagree'] is False and 0.1 < a1['BLEU_p_greatest'] < 0.9
    assert (a1['PPL_told_from_base'], a1['BLEU_told_from_base']) == (True, False)
    assert a1['BLEU_difference_low'] < 0 < a1['BLEU_difference_high'] and a1['BLEU_p_over_seeds'] > 0.05
    (failed,) = [row for row in told['rows'] if row['row'] == 'E']
    assert failed['PPL_mean'] is None and (failed['runs_done'], failed['runs_missing']) == (0, 2)
    assert [run['PPL'] for run in told['runs'] if run['row'] == 'A1'] == [5.6, 5.8]
    assert told['base'] == 'base' and any('MemoryError' in note for note in told['notes'])
    lines = list(csv.DictReader(io.StringIO(rendered('csv', capsys))))
    assert [line['row'] for line in lines] == ['base', 'A1', 'C1', 'D3', 'E', 'big']
    assert float(lines[1]['PPL_stdev']) == deviation and lines[4]['PPL_mean'] == ''
    assert lines[4]['model.positions'] == 'learned'


def rescore(workdir: pathlib.Path, run: str, **scores) -> None:
    """Writes what an evaluation in another way would have left as a run's scores."""
    edit(workdir / run / 'result.json', lambda result: result['scores']['dev'].update(scores))


def test_only_what_was_scored_alike_is_compared(workdir, capsys):
    rescore(workdir, 'C1-seed1', checkpoint='30', decode={'method': 'greedy'}, perplexity=99.0)
    rescore(workdir, 'A1-seed2', decode={'beam': 8}, perplexity=88.0)
    out = shown(workdir, capsys, '--format=markdown')
    found = cells(out)
    # A row of which nothing can be compared is marked; else what differs does not count.
    assert (found['C1']['PPL ours'], found['C1']['ΔPPL ours'], found['C1']['p sentences']) == (
        '99.000* (1)',
        '',
        '',
    )
    assert (found['A1']['PPL ours'], found['A1']['ΔPPL ours']) == ('5.600 (1)', '+0.600')
    assert (
        '(*): A1-seed2: decode.beam=8, not 4; '
        'C1-seed1: checkpoint 30, not best, decode.method=greedy, not beam\n'
    ) in out
    assert re.search(r'ΔPPL .*: 1.00 \(.*3 rows', out)
    told = json.loads(shown(workdir, capsys, '--format=json'))
    assert {row['row']: row['scored_as_base'] for row in told['rows']}['C1'] is False


def test_a_row_that_is_meant_to_score_another_checkpoint_is_compared():
    done = lambda name: results.Done('one', pathlib.Path(), 1, {'scores': {'dev': {'checkpoint': name}}})
    best, latest = map(done, ('best', 'latest'))
    assert results._unlike(best, latest, 'dev', {}) == 'checkpoint best, not latest'
    for option in ('train.patience', 'train.scored', 'train.best_by', 'train.average_last'):
        assert results._unlike(best, latest, 'dev', {option: 5}) == ''


def test_rows_with_another_tokenizer_are_named(workdir, rendered, capsys):
    assert 'tokenizer' not in rendered('markdown', capsys)
    folders = [f'{workdir / name}' for name in ('base-seed1', 'A1-seed1')]
    edit(workdir / 'A1-seed1' / 'result.json', lambda result: result['config']['data'].update(pieces=600))
    out = any_runs(capsys, *folders, '--split=dev')
    assert re.search(r'tokenizer than base-seed1, .*ΔPPL.*: A1-seed1\n', out)


def test_another_tokenizer_of_the_same_options_is_noticed(tmp_path, capsys):
    """A run that starts from another one has its tokenizer."""
    for name in ('scratch', 'finetuned'):
        (tmp_path / name).mkdir()
        committed = launch.ROOT / 'experiments' / 'results' / 'finetuning' / f'{name}.json'
        shutil.copy(committed, tmp_path / name / 'result.json')
    folders = [str(tmp_path / name) for name in ('scratch', 'finetuned')]
    out = any_runs(capsys, *folders)
    assert re.search(r'tokenizer than scratch.*: finetuned', out)
    assert 'The same as' not in out and cells(out)['finetuned']['ΔPPL']
    # By the tokenizers themselves, where they are known.
    for folder in folders:
        lock = {'tokenizer_sha256': 'a', 'checksums': {}}
        pathlib.Path(folder, 'data.lock.json').write_text(json.dumps(lock))
    assert 'tokenizer' not in any_runs(capsys, *folders)


def test_runs_of_images_are_alike_if_their_classes_are(tmp_path, capsys):
    """Data of images alone have no tokenizer, and no text."""
    committed, folders = launch.ROOT / 'experiments' / 'results' / 'cifar10', []
    for seed, digest in ((1, 'a'), (2, 'a'), (3, 'b')):
        folder = tmp_path / f'vit{seed}'
        folder.mkdir()
        shutil.copy(committed / f'vit-seed{seed}' / 'result.json', folder)
        lock = {'fields': {'image': {'type': 'image'}, 'label': {'type': 'label'}},
                'checksums': {'test.label.bin': digest, 'test.image.bin': str(seed)}}  # fmt: skip
        (folder / 'data.lock.json').write_text(json.dumps(lock))
        folders.append(str(folder))
    found = cells(any_runs(capsys, *folders))
    assert found['vit2']['Δaccuracy'] and not found['vit3']['Δaccuracy']


def any_runs(capsys, *words: str) -> str:
    """Prints and returns a report of runs that need not belong to a sweep."""
    assert report.main(['report', *words, '--format=markdown']) == 0
    return capsys.readouterr().out


@pytest.mark.usefixtures('_no_flops')
def test_options_that_mean_nothing_for_a_row(capsys):
    """As d_ff for an LSTM; and base has the name that its table gives it."""
    folder = launch.ROOT / 'experiments' / 'results' / 'architectures'
    out = shown(folder, capsys, '--format=markdown')
    found = cells(out)
    assert (found['transformer']['d_ff'], found['lstm']['d_ff'], found['lstm']['h']) == ('256', '-', '-')
    assert (found['lstm-attention']['N'], found['convolutional']['N']) == ('2', '')
    assert ' base' not in out
    rows = json.loads(shown(folder, capsys, '--format=json'))['rows']
    lstm = next(row for row in rows if row['row'] == 'lstm')
    assert (lstm['model.d_ff'], lstm['model.h'], lstm['model.d_model']) == (None, None, 142)
    # Nor for base, or for any row.
    runs_of = lambda *names: [str(folder / f'{name}-seed1') for name in names]
    out = any_runs(capsys, *runs_of('lstm', 'gru-attention'))
    assert 'd_ff' not in out and cells(out)['gru-attention-seed1']['d_model'] == '238'
    found = cells(any_runs(capsys, *runs_of('lstm', 'transformer')))
    assert (found['lstm-seed1']['d_ff'], found['transformer-seed1']['d_ff']) == ('-', '256')


def test_every_word_of_a_heading_is_shown(capsys, monkeypatch):
    scores = [formats.Column('row', 'row', ['base'])]
    scores += [formats.Column(f'ΔBLEU 1-9 {last}', 'score', ['1']) for last in ('ours', '95%')]
    for width in ('30', '200'):
        monkeypatch.setenv('COLUMNS', width)
        assert all(word in formats.terminal(scores, []) for word in ('1-9 ours', '1-9 95%'))
    assert all(word in formats.latex(scores, []) for word in ('1-9 ours', '1-9 95\\%'))


def test_base_scored_otherwise_once_is_what_differs(workdir, capsys):
    rescore(workdir, 'base-seed2', checkpoint='30', perplexity=99.0)
    out = shown(workdir, capsys, '--format=markdown')
    # As most: of two runs of base, the first.
    assert cells(out)['base']['PPL ours'] == '5.000 (1)' and cells(out)['A1']['ΔPPL ours'] == '+0.600'
    assert 'base-seed2: checkpoint 30, not best\n' in out


def test_later_evaluations_do_not_change_a_report(workdir, capsys):
    before = shown(workdir, capsys)
    for file in workdir.glob('*/result.json'):
        later = {'checkpoint': '30', 'perplexity': 999.0}
        edit(file, lambda result, later=later: result.update(evaluations={'dev.30': later}))
    assert shown(workdir, capsys) == before


def test_a_report_of_any_runs(workdir, capsys, monkeypatch):
    folders = [f'{workdir / name}' for name in ('C1-seed1', 'base-seed1', 'A1-seed2')]
    call = [*folders, '--split=dev']
    out = any_runs(capsys, *call, '--base=base-seed1')
    found = cells(out)
    assert list(found) == ['C1-seed1', 'base-seed1', 'A1-seed2']
    first = found['C1-seed1']
    assert (first['PPL'], first['ΔPPL'], first['ΔBLEU']) == ('7.000', '+2.000', '-10.00')
    assert (first['p sentences'], found['base-seed1']['p sentences']) == ('<0.001', '')
    # The options in which they differ.
    options = {'N', 'N_decoder', 'h', 'd_k', 'd_v', 'seed'}
    assert options < set(first) and not {'d_model', 'steps', 'other', 'PPL ours'} & set(first)
    assert (found['base-seed1']['N'], first['N'], found['A1-seed2']['seed']) == ('3', '1', '2')
    # What no run has is not explained.
    alone = any_runs(capsys, folders[0], '--split=dev')
    assert 'p sentences' in out and 'Δ:' in out and 'p sentences' not in alone and 'Δ:' not in alone
    assert 'both have' not in out  # these are no seeds
    # Without --base the first; a row scored otherwise is marked whatever its options.
    rescore(workdir, 'A1-seed2', decode={'beam': 8})
    out = any_runs(capsys, *call)
    assert cells(out)['base-seed1']['ΔPPL'] == '-2.000' and cells(out)['A1-seed2']['PPL'] == '5.800*'
    assert '(*): A1-seed2: decode.beam=8' in out


def test_a_scale_has_the_name_of_its_config(monkeypatch):
    """As a sweep records it: `tiny` for configs/tiny.py."""
    asked = {}

    def read_sweep(folder, **named):
        asked.update(named, folder=str(folder))
        raise ConfigError('asked')

    monkeypatch.setattr(runs, 'read_sweep', read_sweep)
    for name in ('tiny', 'configs/tiny.py'):
        assert report.main(['report', '--table=3', f'--scale={name}']) == 2
        assert asked == {
            'table': '3',
            'scale': 'configs/tiny.py',
            'folder': str(runs.folder('3', 'configs/tiny.py')),
        }


def test_mistakes_in_a_report_of_any_runs(swept, capsys):
    folders = [f'{swept / name}' for name in ('C1-seed1', 'base-seed1', 'A1-seed2')]
    for words, part in (
        ([f'{swept / "E-seed2"}'], 'E-seed2: holds no result.json'),
        ([*folders, '--base=big'], '--base=big: choose one of C1-seed1, base-seed1, A1-seed2'),
        ([*folders, '--split=test'], '--split=test'),
        ([*folders, f'--workdir={swept}'], '--workdir: '),
        ([f'--workdir={swept}', '--base=A1'], '--base: '),
        ([folders[0], folders[0]], 'named twice'),
    ):
        split = [] if '--split' in words[-1] else ['--split=dev']
        assert report.main(['report', *words, *split]) == 2
        error = capsys.readouterr().err
        assert part in error and error.count('\n') == 1, error


@pytest.mark.usefixtures('_no_flops')
def test_one_seed_has_neither_deviation_nor_test(capsys):
    told = shown(launch.ROOT / 'experiments' / 'results' / 'table3-grammar-0.2', capsys, '--format=markdown')
    assert 'mean (seeds)' in told
    assert '±' not in told and 'p seeds' not in told
    ours = [cell for row in cells(told).values() for name, cell in row.items() if name.endswith(' ours')]
    assert ours and not any('≈' in cell for cell in ours)


def test_another_stride_is_not_scored_alike(workdir, capsys):
    rescore(workdir, 'C1-seed1', context={'stride': 8})
    out = shown(workdir, capsys, '--format=markdown')
    assert 'C1-seed1: data.stride=8, not None' in out and cells(out)['C1']['ΔPPL ours'] == ''


def test_what_is_not_a_file_is_written_to_and_not_replaced(swept, rendered, tmp_path, capsys):
    pipe, said = tmp_path / 'pipe', rendered('markdown', capsys)
    os.mkfifo(pipe)
    # Its buffer holds a report, so nothing waits for the other side.
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), encoding='utf-8') as reading:
        shown(swept, capsys, '--format=markdown', f'--output={pipe}')
        assert reading.read() == said
    assert pipe.is_fifo()


def test_mistakes_are_one_line(workdir, tmp_path, capsys):
    (tmp_path / 'empty').mkdir()
    other = json.loads((workdir / 'A1-seed2' / 'result.json').read_text())
    for argv, part in (
        ([], '--workdir: '),
        ([f'--workdir={tmp_path / "empty"}'], 'no sweep was launched there'),
        ([f'--workdir={workdir}', '--table=2'], '--table=2: '),
        (['now'], 'now: holds no result.json'),
        ([f'--workdir={workdir}', '--format=pdf'], 'format'),
        ([f'--workdir={workdir}', f'--output={workdir}'], f'--output={workdir}: '),
        ([f'--workdir={workdir}'], "A1-seed2: made by another config: model.h is 2, the row says 1"),
        ([f'--workdir={workdir}'], 'A1-seed2/result.json: model.foo: no such option'),
        ([f'--workdir={workdir}'], 'A1-seed2/result.json: damaged'),
    ):  # fmt: skip
        if 'another config' in part or 'model.foo' in part:
            other['config']['model'] |= {'h': 2} if 'another' in part else {'foo': 2}
            (workdir / 'A1-seed2' / 'result.json').write_text(json.dumps(other))
        if 'damaged' in part:
            (workdir / 'A1-seed2' / 'result.json').write_text('[]')
        assert report.main(['report', *argv]) == 2
        error = capsys.readouterr().err
        assert part in error and error.count('\n') == 1


def test_damaged_metrics_of_a_finished_run(workdir, capsys):
    with (workdir / 'C1-seed1' / 'metrics.jsonl').open('a') as file:
        file.write('{"loss": 1}\n')
    assert cells(shown(workdir, capsys, '--format=markdown'))['C1']['PPL ours'] == '7.000 (1)'
    # The page draws them.
    assert report.main(['report', f'--workdir={workdir}', '--format=html']) == 2
    assert 'C1-seed1/metrics.jsonl: line 4: damaged' in capsys.readouterr().err


@pytest.mark.parametrize('words', ['run.py config', '-m experiments.report experiments/results/grammar'])
def test_a_reader_that_leaves_early_is_no_error(words):
    environment = {key: value for key, value in os.environ.items() if key != 'PYTHONUNBUFFERED'}
    reading, writing = os.pipe()
    os.close(reading)
    call = [sys.executable, *words.split()]
    done = subprocess.run(call, cwd=launch.ROOT, stdout=writing, stderr=subprocess.PIPE, env=environment)
    os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b'')


def test_the_page(swept, tmp_path, capsys, opened):
    file = tmp_path / 'table.html'
    assert shown(swept, capsys, '--format=html', f'--output={file}') == f'{file}\n'
    page = opened(file, 1500, 900)
    assert page.title() == 'Table 3 at the scale grammar, train.beta2=0.99'
    names = lambda: page.locator('tbody td:first-child').all_inner_texts()
    paper = ['base', 'A1', 'C1', 'D3', 'E', 'big']
    assert names() == paper
    head = page.get_by_role('button', name='BLEU ours', exact=True)
    head.click()
    assert names()[:5] == ['C1', 'A1', 'big', 'base', 'D3']
    head.click()
    assert names()[:5] == ['D3', 'base', 'big', 'A1', 'C1']
    assert set(names()) == set(paper)
    head.click()
    assert names() == paper
    page.get_by_role('button', name='steps', exact=True).click()
    assert names()[:2] == ['base', 'big']
    page.get_by_role('button', name='other', exact=True).click()
    assert names()[0] == 'E'
    # <0.001 is a number.
    page.get_by_role('button', name='p sentences', exact=True).click()
    assert names()[:2] == ['C1', 'A1']
    page.get_by_role('button', name='row', exact=True).click()
    page.get_by_role('button', name='row', exact=True).click()
    assert names() == sorted(paper, key=str.lower, reverse=True)
    # Curves of each row that was trained; their text is text.
    texts = page.locator('figure text').all_text_contents()
    assert set(paper) - {'E'} <= set(texts) and 'E' not in texts
    widths = 'all => all.map(use => use.getBoundingClientRect().width)'
    frames = page.locator('figure use').evaluate_all(widths)
    assert len(frames) == 5 and min(frames) > 100
    assert page.locator('li', has_text='MemoryError').is_visible()


def test_the_page_on_a_phone(rendered, tmp_path, capsys, opened):
    file = tmp_path / 'table.html'
    file.write_text(rendered('html', capsys))
    page = opened(file, 390, 844)
    assert page.evaluate('document.documentElement.scrollWidth') <= 390
    cell = lambda column: page.locator('thead th', has_text=column).first
    assert cell('PPL').bounding_box()['x'] < 150
    assert not cell('d_model').is_visible()
    page.get_by_label('what the rows are').check()
    assert cell('d_model').is_visible()
    # The names stay where the table scrolls.
    before = page.locator('tbody td').first.bounding_box()['x']
    page.locator('.scroll').first.evaluate('table => table.scrollTo(500, 0)')
    assert page.locator('tbody td').first.bounding_box()['x'] == before


def test_the_page_shows_that_it_sorts_and_scrolls(rendered, tmp_path, capsys, opened):
    file = tmp_path / 'table.html'
    file.write_text(rendered('html', capsys))
    page = opened(file, 390, 844)
    arrows = page.locator('th button').evaluate_all(
        'all => all.map(b => getComputedStyle(b, "::after").content)'
    )
    assert all('↕' in arrow for arrow in arrows)
    assert page.locator('#more').is_visible() and page.locator('.scroll').count() == 2

    def edge(region):
        """Returns the median lightness beside the right edge."""
        with Image.open(io.BytesIO(region.screenshot())) as image:
            return np.median(np.asarray(image.convert('L'))[:, -4])

    for region in page.locator('.scroll').all():
        # There is a shadow where more can be seen, and none at the end.
        assert region.get_attribute('tabindex') == '0' and edge(region) < 230
        region.evaluate('region => region.scrollTo(9999, 0)')
        assert edge(region) == 255
    page.set_viewport_size({'width': 2400, 'height': 900})
    assert not page.locator('#more').is_visible()
