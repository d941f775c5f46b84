"""Predictions from small trainings: recomputed in numpy from the committed results."""

import datetime
import json
import math

import numpy as np
import pytest
import scipy.stats

from experiments.evidence import committed, prediction, prediction_tables, sealed
from experiments.reports.differences import Difference, seed_test
from experiments.tables import rows as tables
from experiments.tables.user_files import ROOT
from transformer.config import ConfigError

RESULTS = ROOT / 'experiments' / 'results'
PAPERS = {row.name: row.paper['PPL'] for row in tables.TABLE_3}
ROWS = [name for name in PAPERS if name != 'base']
Y = np.array([math.log(PAPERS[name] / PAPERS['base']) for name in ROWS])
SCALES = {'table3-grammar': range(2, 7), 'table3-multi30k': range(1, 4)}


def log_changes(folder: str, row: str, seeds) -> list[float]:
    """Computes the changes of log perplexity from base, from result.json alone."""

    def log_perplexity(name: str, seed: int) -> float:
        result = json.loads((RESULTS / folder / f'{name}-seed{seed}' / 'result.json').read_text())
        return math.log(result['scores']['dev']['perplexity'])

    return [log_perplexity(row, seed) - log_perplexity('base', seed) for seed in seeds]


@pytest.fixture(scope='module')
def means() -> dict[str, np.ndarray]:
    """Computes the mean change of each row of Table 3, by sweep."""
    return {
        folder: np.array([np.mean(log_changes(folder, row, seeds)) for row in ROWS])
        for folder, seeds in SCALES.items()
    }


def left_out(x: np.ndarray) -> np.ndarray:
    """Predicts each row with the least squares of the others."""
    rows = np.arange(len(x))
    slopes = [np.linalg.lstsq(x[rows != row, None], Y[rows != row], rcond=None)[0][0] for row in rows]
    return np.array(slopes) * x


def error(changes: np.ndarray) -> float:
    printed = np.array([PAPERS[name] for name in ROWS])
    return float(np.abs(PAPERS['base'] * np.exp(changes) - printed).mean())


def test_changes_of_the_committed_results(means):
    for folder, x in means.items():
        changes = committed.changes(folder)
        assert list(changes) == ROWS
        np.testing.assert_allclose([row.ours for row in changes.values()], x, atol=1e-9)
    assert prediction.papers_changes(ROWS) == pytest.approx(Y)


def test_slope_and_its_intervals():
    x, y = [1.0, 2.0, -3.0, 4.0], [2.0, 3.0, -7.0, 8.0]
    line = prediction.fit(x, y)
    slope = (2 + 6 + 21 + 32) / 30
    residuals = [y - slope * x for x, y in zip(x, y, strict=True)]
    sd = math.sqrt(sum(residual**2 for residual in residuals) / 3)
    assert line == (pytest.approx(slope), pytest.approx(sd), 3, 30)
    t = 3.18245  # from a table, with 3 degrees of freedom
    half = t * sd / math.sqrt(30)
    assert line.slope_interval() == pytest.approx((slope - half, slope + half), rel=1e-5)
    half = t * math.sqrt(sd**2 + 25 * sd**2 / 30)
    assert line.at(5.0) == pytest.approx((5 * slope, 5 * slope - half, 5 * slope + half), rel=1e-5)


def test_prediction_intervals_hold_as_often_as_they_say():
    rng, held = np.random.default_rng(0), 0
    for _ in range(400):
        x = rng.normal(size=6)
        y = 1.5 * x + rng.normal(0, 0.2, 6)
        predicted = prediction.fit(x[1:], y[1:]).at(float(x[0]))
        held += predicted.low <= y[0] <= predicted.high
    # 380 are expected of 400, with a standard deviation of 4.4.
    assert 366 <= held <= 392


def test_no_row_fits_its_own_slope(means):
    x = means['table3-grammar']
    lines = prediction.without_each(x, Y)
    np.testing.assert_allclose(
        [line.at(each).change for line, each in zip(lines, x, strict=True)], left_out(x)
    )
    # Another value of a row leaves its own prediction alone.
    other = Y + np.eye(len(Y))[3]
    assert prediction.without_each(x, other)[3].slope == lines[3].slope
    assert prediction.without_each(x, other)[4].slope != lines[4].slope


def test_mean_errors_of_table_3(means):
    grammar, captions = (prediction_tables.read_scale(folder) for folder in means)
    expected = [left_out(x) for x in means.values()]
    for scale, changes in zip((grammar, captions), expected, strict=True):
        np.testing.assert_allclose(scale.predicted, changes, atol=1e-9)
        assert prediction.mean_error(scale.predicted, scale.y) == pytest.approx(error(changes))
    both = np.mean(expected, axis=0)
    rounded = [round(error(changes), 3) for changes in (np.zeros(19), *expected, both)]
    assert rounded == [0.322, 0.135, 0.219, 0.152]


def test_resampled_seeds():
    """One draw by hand, and rows whose seeds agree, which every draw predicts alike."""
    by_seed = np.random.default_rng(1).normal(Y[:, None], 0.05, (19, 3))
    rows = [Difference(by_seed=dict(enumerate(changes))) for changes in by_seed.tolist()]
    resampled = prediction.resample(rows, Y, np.random.default_rng(4))
    chosen = np.random.default_rng(4).integers(3, size=(len(resampled), 3))
    for draw in (0, 11):
        np.testing.assert_allclose(resampled[draw], left_out(by_seed[:, chosen[draw]].mean(axis=1)))
    alike = [Difference(by_seed=dict.fromkeys(range(3), x)) for x in by_seed[:, 0].tolist()]
    same = prediction.resample(alike, Y, np.random.default_rng(0))
    np.testing.assert_allclose(same, np.broadcast_to(left_out(by_seed[:, 0]), same.shape))


def test_only_shared_seeds_are_resampled():
    rows = [Difference(by_seed={1: 0.1, 2: 0.2, 3: 9.0}), Difference(by_seed={1: 0.3, 2: 0.1})]
    resampled = prediction.resample(rows, [0.1, 0.2], np.random.default_rng(0))
    # The first row is predicted by the second's slope: 0.2 / x2 * x1.
    possible = {0.2 * 0.1 / 0.3, 0.2 * 0.15 / 0.2, 0.2 * 0.2 / 0.1}
    assert all(min(abs(value - each) for each in possible) < 1e-9 for value in resampled[:, 0].tolist())


def test_seeds_move_a_prediction_at_its_slope():
    changes = [-0.04, -0.05, -0.03]
    row = Difference(ours=-0.04, over_seeds=seed_test(changes))
    for slope in (1.3, -1.3):
        predicted = prediction.Line(slope, 0.1, 18, 0.2).by_seeds(row)
        half = 1.3 * 4.30265 * 0.01 / math.sqrt(3)
        expected = (-0.04 * slope, -0.04 * slope - half, -0.04 * slope + half)
        assert predicted == pytest.approx(expected, rel=1e-5)
    perplexities = prediction.Predicted(0.1, 0.0, 0.2).perplexities()
    assert perplexities == pytest.approx((4.92 * math.exp(0.1), 4.92, 4.92 * math.exp(0.2)))


@pytest.mark.parametrize('content', [sealed.read(), sealed.make('2026-11-27')], ids=['committed', 'made'])
def test_sealed_predictions(content):
    """By numpy and scipy alone, from the results and seeds that the file names."""
    datetime.date.fromisoformat(content['date'])
    source, further = content['slope_from'], content['rows_from']
    x = np.array([np.mean(log_changes(source['results'], row, source['seeds'])) for row in ROWS])
    slope = (x @ Y) / (x @ x)
    sd = math.sqrt(((Y - slope * x) ** 2).sum() / 18)
    assert content['slope'] == pytest.approx(slope, abs=1e-4) and content['base_perplexity'] == 4.92
    options = {row.name: row.changes for row in tables.FURTHER}
    assert [row['row'] for row in content['rows']] == [
        'pre-norm',
        'rotary',
        'relative',
        'swiglu',
        'no-embedding-dropout',
    ]
    for row in content['rows']:
        changes = log_changes(further['results'], row['row'], further['seeds'])
        change = slope * np.mean(changes)
        half = scipy.stats.t.ppf(0.975, 18) * sd * math.sqrt(1 + np.mean(changes) ** 2 / (x @ x))
        assert row['changes'] == options[row['row']]
        assert row['small_scale_change'] == pytest.approx(np.mean(changes), abs=1e-5)
        assert row['change'] == pytest.approx(change, abs=1e-4)
        assert row['change_interval'] == pytest.approx([change - half, change + half], abs=1e-4)
        assert row['perplexity'] == pytest.approx(4.92 * math.exp(change), abs=1e-3)
        ends = [4.92 * math.exp(change - half), 4.92 * math.exp(change + half)]
        assert row['interval'] == pytest.approx(ends, abs=1e-3)
        of_seeds = scipy.stats.ttest_1samp(changes, 0).confidence_interval(0.95)
        ends = [4.92 * math.exp(slope * end) for end in of_seeds]
        assert row['interval_over_seeds'] == pytest.approx(ends, abs=1e-3)
    assert [row['row'] for row in content['open']] == ['no-ffn', 'alibi']


def test_predictions_are_sealed_once(tmp_path):
    file = tmp_path / 'sealed.json'
    with pytest.raises(ConfigError, match='27.11.2026'):
        sealed.write(file, '27.11.2026')
    assert not file.exists()
    sealed.write(file, '2026-11-27')
    assert json.loads(file.read_text())['date'] == '2026-11-27'
    before = file.read_bytes()
    with pytest.raises(ConfigError, match='sealed.json'):
        sealed.write(file, '2026-11-28')
    assert file.read_bytes() == before
    # A parent that is a file is named, not the temporary file.
    with pytest.raises(NotADirectoryError) as error:
        sealed.write(file / 'x.json', '2026-11-28')
    assert error.value.filename == str(file / 'x.json')


def test_a_bleu_in_perplexity():
    """Over the rows of Table 3 with base's label smoothing."""
    names = [name for name in ROWS if name not in ('D3', 'D4')]
    bleu = {row.name: row.paper['BLEU'] for row in tables.TABLE_3}
    x = np.array([bleu[name] - bleu['base'] for name in names])
    y = np.array([math.log(PAPERS[name] / 4.92) for name in names])
    line = prediction_tables.bleu_line()
    assert line.slope == pytest.approx((x @ y) / (x @ x)) and line.freedom == 16
