"""Marks of printed differences that may be chance, and the ceiling of their rank correlation, in reports."""

import csv
import dataclasses
import io
import json

import pytest

from experiments import report
from experiments.evidence import noise
from experiments.reports import columns, printed, results
from experiments.sweeps import runs
from experiments.tables import rows as tables
from experiments.tables.user_files import ROOT

SWEEP = ROOT / 'experiments' / 'results' / 'table3-grammar-0.2'  # with one seed
BY_CHANCE = {'PPL': ['A3', 'D2', 'E'], 'BLEU': ['A2', 'A3', 'C3', 'C5', 'D2', 'D4', 'E']}


@pytest.fixture(autouse=True)
def _no_flops(monkeypatch):
    """Replaces the counting of FLOPs, which takes seconds a row."""
    monkeypatch.setattr(columns.cost, 'update_flops', lambda config: 1.0)


@pytest.fixture
def comparison():
    return results.of_sweep(runs.read_sweep(SWEEP), SWEEP)


def shown(capsys, *options: str) -> str:
    assert report.main(['report', f'--workdir={SWEEP}', *options]) == 0
    return capsys.readouterr().out


def test_verdicts_and_ceilings(comparison):
    for score, decimals in zip(comparison.scores, (2, 1), strict=True):
        column = score.measure.heading
        spread = noise.of_column('newstest2013', column)
        assert printed.noise_of(comparison, score) == spread
        verdicts = printed.verdicts(comparison, score)
        assert [name for name, verdict in verdicts.items() if not verdict.is_significant] == BY_CHANCE[column]
        papers = {row.name: row.paper[column] for row in tables.TABLE_3}
        assert verdicts['C7'] == noise.compare(spread, papers['C7'], papers['base'], decimals)
        others = [score for name, score in papers.items() if name != 'base']
        assert printed.ceiling(comparison, score) == noise.ceiling(spread, others, decimals)


def test_marks_in_every_format(capsys):
    out = shown(capsys, '--format=csv')
    records = {row['row']: row for row in csv.DictReader(io.StringIO(out))}
    for column, rows in BY_CHANCE.items():
        key = f'{column}_told_from_base_paper'
        assert [name for name, record in records.items() if record[key] == 'False'] == rows
        assert records['base'][key] == '' and records['C1'][key] == 'True'
    as_json = json.loads(shown(capsys, '--format=json'))
    assert [row['row'] for row in as_json['rows'] if row['BLEU_told_from_base_paper'] is False] == BY_CHANCE[
        'BLEU'
    ]
    assert as_json['rows'][0]['BLEU_told_from_base_paper'] is None
    assert any('0.91 [0.80, 0.98]' in note for note in as_json['notes'])
    for form, mark in (('terminal', '-0.1 ≈'), ('html', '-0.1 ≈'), ('latex', r'$-$0.1 $\approx$')):
        out = shown(capsys, f'--format={form}')
        # Rows D4 and E; base's difference is empty, and A4's is beyond the limit.
        assert out.count(mark) == 2 and out.count(mark.replace('1', '4')) == 0


def test_notes_name_the_rows(capsys):
    out = shown(capsys, '--format=markdown')
    assert 'ΔPPL 3 of 19: A3, D2, E; ΔBLEU 7 of 19: A2, A3, C3, C5, D2, D4, E\n' in out
    assert 'ΔPPL 0.99 [0.99, 1.00], ΔBLEU 0.91 [0.80, 0.98]' in out


def test_a_table_without_noise_is_not_judged(comparison):
    for name in ('4', 'further', 'language', 'architectures'):
        assert tables.TABLES[name].noise == ''
    unjudged = dataclasses.replace(comparison, table=comparison.table._replace(noise=''))
    for score in comparison.scores:
        assert printed.verdicts(unjudged, score) == {} and printed.ceiling(unjudged, score) is None


def test_table_2_is_compared_within_a_language(tmp_path):
    sweep = runs.Sweep('2', 'grammar', {}, tuple((row.name, 1) for row in tables.TABLE_2))
    runs.write_sweep(tmp_path, sweep)
    comparison = results.of_sweep(sweep, tmp_path)
    perplexity, bleu = comparison.scores
    verdicts = printed.verdicts(comparison, bleu)
    assert list(verdicts) == ['big-en-de'] and verdicts['big-en-de'].is_significant
    assert verdicts['big-en-de'] == noise.compare(noise.of_column('newstest2014', 'BLEU'), 28.4, 27.3, 1)
    assert printed.verdicts(comparison, perplexity) == {}
