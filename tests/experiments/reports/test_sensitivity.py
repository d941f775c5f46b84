"""How the agreement of a table with the paper changes with an option, from sweeps side by side."""

import json
import pathlib
import statistics

import pytest
import scipy.stats

from experiments import report
from experiments.sweeps import launch, runs
from experiments.tables import rows as tables

COMMITTED = launch.ROOT / 'experiments' / 'results' / 'table3-grammar'
SEEDS = (2, 3, 4)
ROWS = {row.name: row.paper.get('PPL') for row in tables.TABLES['3'].rows}
# The row that the other sweep lacks.
LEFT_OUT = 'E'


def result(row: str, seed: int) -> dict:
    return json.loads((COMMITTED / f'{row}-seed{seed}' / 'result.json').read_text())


@pytest.fixture
def other(tmp_path) -> pathlib.Path:
    """Writes a sweep at half the learning rate, with three of the five seeds and the paper's perplexities."""
    asked = tuple((row, seed) for row in ROWS if row != LEFT_OUT for seed in SEEDS)
    sweep = runs.Sweep('3', 'grammar', {'train.lr_constant': 0.2}, asked)
    runs.write_sweep(tmp_path, sweep)
    for run in sweep.all_runs(tmp_path):
        made = result(run.row, run.seed)
        made['config']['train']['lr_constant'] = 0.2
        made['scores']['dev']['perplexity'] = ROWS[run.row] + run.seed
        run.folder.mkdir()
        (run.folder / 'result.json').write_text(json.dumps(made))
    return tmp_path


def shown(capsys, *options: str) -> str:
    assert report.main(['report', f'--workdir={COMMITTED}', *options]) == 0
    return capsys.readouterr().out


def refused(capsys, *options: str) -> str:
    assert report.main(['report', *options]) == 2
    return capsys.readouterr().err


def test_the_correlation_is_over_the_runs_that_all_sweeps_have(other, capsys):
    lines = shown(capsys, f'--sensitivity={other}', '--format=markdown').splitlines()
    cells = [[cell.strip() for cell in line.strip('|').split('|')] for line in lines if '|' in line]
    headings, ours, theirs = cells[0], cells[2], cells[3]
    assert headings[:5] == ['sweep', 'train.lr_constant', 'base PPL', 'ΔPPL correlation', 'bootstrap']
    perplexity = lambda row, seed: result(row, seed)['scores']['dev']['perplexity']
    rows = [row for row in ROWS if row not in ('base', LEFT_OUT)]
    found = [
        statistics.mean(perplexity(row, seed) - perplexity('base', seed) for seed in SEEDS) for row in rows
    ]
    papers = [ROWS[row] - ROWS['base'] for row in rows]
    base = statistics.mean(perplexity('base', seed) for seed in SEEDS)
    correlation = scipy.stats.spearmanr(papers, found).statistic
    assert (
        ours[:4] == [str(COMMITTED), '0.4', f'{base:.3f}', f'{correlation:.2f}'] and 0.5 < correlation < 0.99
    )
    assert theirs[:5] == [str(other), '0.2', '7.920', '1.00', '[1.00, 1.00]']
    assert 'seeds 2, 3, 4; PPL: 18 of 19 rows; BLEU: 18 of 19 rows.' in lines[-1]
    chosen = shown(capsys, f'--sensitivity={other}', '--format=markdown', '--columns=base PPL')
    assert [cell.strip() for cell in chosen.splitlines()[0].split('|')] == ['', 'sweep', 'base PPL', '']


def test_one_seed_has_no_interval(other, capsys):
    for row in ROWS:
        if row != LEFT_OUT:
            for seed in SEEDS[1:]:
                (other / f'{row}-seed{seed}' / 'result.json').unlink()
    out = shown(capsys, f'--sensitivity={other}')
    assert 'bootstrap' not in out and 'seed 2;' in out


def test_sweeps_that_cannot_be_compared(other, tmp_path, capsys):
    both = (f'--workdir={COMMITTED}', f'--sensitivity={other}')
    multi30k = COMMITTED.parent / 'table3-multi30k'
    error = refused(capsys, f'--workdir={COMMITTED}', f'--sensitivity={multi30k}')
    assert 'multi30k' in error and 'grammar' in error
    assert 'terminal, markdown, latex\n' in refused(capsys, *both, '--format=csv')
    assert '--sensitivity: ' in refused(capsys, str(COMMITTED / 'base-seed2'), f'--sensitivity={other}')
    again = other / '..' / other.name
    assert f'--sensitivity={again}: ' in refused(capsys, *both, f'--sensitivity={again}')
    (tmp_path / 'same').mkdir()
    runs.write_sweep(tmp_path / 'same', runs.Sweep('3', 'grammar', {}, (('base', 2),)))
    error = refused(capsys, f'--workdir={COMMITTED}', f'--sensitivity={tmp_path / "same"}')
    assert f'{COMMITTED}, {tmp_path / "same"}: ' in error
    assert '--split: ' in refused(capsys, *both, '--split=dev')
    for row in ROWS:
        if row not in ('base', 'A1', LEFT_OUT):
            (other / f'{row}-seed2' / 'result.json').unlink()
    assert 'three rows' in refused(capsys, *both)
    for seed in SEEDS:
        (other / f'base-seed{seed}' / 'result.json').unlink()
    assert 'no seed of base' in refused(capsys, *both)
