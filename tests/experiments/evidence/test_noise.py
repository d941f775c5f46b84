"""The noise of single trainings: recomputed from the committed final scores, and where the truth is known."""

import json
import math

import numpy as np
import pytest
import scipy.stats

from experiments.evidence import noise, noise_tables, trainings
from experiments.evidence.noise import Noise
from experiments.tables import rows as tables
from transformer.config import ConfigError

FINAL = json.loads(trainings.FILE.read_text())['trainings']
BLEU = [row.paper['BLEU'] for row in tables.TABLE_3]
PPL = [row.paper['PPL'] for row in tables.TABLE_3]
NAMES = [row.name for row in tables.TABLE_3]
# From a table of the distributions, with 20 degrees of freedom.
T, CHI_SQUARED = 2.0860, (34.1696, 9.5908)


def final_scores(test_set: str, score: str) -> np.ndarray:
    """Returns the final scores of the five externally tuned settings, [settings seeds]."""
    return np.array([FINAL[f'ext-{setting}'][test_set][score] for setting in range(5)])


def deviation(test_set: str, score: str) -> float:
    return math.sqrt(final_scores(test_set, score).var(axis=1, ddof=1).mean())


def test_committed_scores_are_complete():
    assert list(FINAL) == [*(f'ext-{setting}' for setting in range(5)), 'self-0']
    assert all(final_scores(t, s).shape == (5, 5) for t in trainings.TEST_SETS for s in trainings.SCORES)
    # One training was evaluated for the last time 660 updates before its end.
    steps = [step for setting in range(5) for step in FINAL[f'ext-{setting}']['steps']]
    assert sorted(steps) == [132_673] + [133_333] * 24
    assert trainings.read() == FINAL


@pytest.mark.parametrize('test_set', trainings.TEST_SETS)
@pytest.mark.parametrize('column, score', [('BLEU', 'bleu'), ('PPL', 'loss')])
def test_pooled_deviation(test_set, column, score):
    expected, spread = deviation(test_set, score), noise.of_column(test_set, column)
    assert spread.deviation == pytest.approx(expected) and spread.freedom == 20
    bounds = [expected * math.sqrt(20 / quantile) for quantile in CHI_SQUARED]
    assert spread.interval() == pytest.approx(bounds, rel=1e-4)
    # Two single trainings, the difference of which has twice the variance.
    limit = noise.compare(spread._replace(of_logarithm=False), 30.0, 30.0, None).limit
    assert limit == pytest.approx(T * math.sqrt(2) * expected, rel=1e-4)


def test_settings_of_unequal_sizes_are_pooled_by_freedom():
    pooled = noise.pool([[1.0, 3.0], [10.0, 10.0, 16.0]])
    # Squares 2 and 24, with 1 and 2 degrees of freedom.
    assert pooled == (pytest.approx(math.sqrt(26 / 3)), 3, False)


def test_a_column_without_trainings():
    assert noise.of_column('newstest2013', 'F1') is None


def test_rounding_adds_to_the_limit():
    spread = Noise(0.13, 20)
    assert noise.compare(spread, 25.4, 25.8, 1).limit == pytest.approx(
        T * math.sqrt(2 * 0.13**2 + 2 * 0.1**2 / 12), rel=1e-4
    )
    coarse, fine = (noise.compare(spread, 25.4, 25.8, decimals).limit for decimals in (0, 2))
    assert coarse == pytest.approx(T * math.sqrt(2 * 0.13**2 + 2 / 12), rel=1e-4) and coarse > fine


def test_noise_of_a_perplexity_grows_with_it():
    """The delta method against perplexities of simulated losses."""
    spread, rng = Noise(0.02, 20, of_logarithm=True), np.random.default_rng(0)
    losses = rng.normal(math.log(6.0), 0.02, 100_000)
    assert spread.at(6.0) == pytest.approx(np.exp(losses).std(), rel=0.02)
    limit = noise.compare(spread, 6.0, 3.0, None).limit
    assert limit == pytest.approx(T * 0.02 * math.hypot(6.0, 3.0), rel=1e-4)


def test_p_belongs_to_the_limit():
    spread = Noise(0.2, 20)
    at_limit = noise.compare(spread, 20 + T * math.sqrt(2) * 0.2, 20.0, None)
    assert at_limit.p == pytest.approx(0.05, abs=1e-4)
    inside, beyond = (noise.compare(spread, 20 + d, 20.0, None) for d in (0.58, -0.6))
    assert (inside.is_significant, beyond.is_significant) == (False, True)
    assert inside.p > 0.05 > beyond.p and beyond.difference == pytest.approx(-0.6)


def test_ends_of_the_interval_are_known_deviations():
    spread = Noise(0.13, 20)
    for end, bound in zip(spread.ends(), spread.interval(), strict=True):
        assert noise.compare(end, 1.0, 1.0, None).limit == pytest.approx(1.95996 * math.sqrt(2) * bound, 1e-5)


def test_t_limits_hold_as_often_as_they_say():
    """Against simulated trainings: five settings give the deviation, two further runs a difference."""
    rng, within = np.random.default_rng(0), 0
    for _ in range(400):
        settings = rng.normal(rng.normal(size=(5, 1)), 0.3, (5, 5))
        pair = rng.normal(0.0, 0.3, 2)
        within += not noise.compare(noise.pool(settings.tolist()), *pair.tolist(), None).is_significant
    # 380 are expected of 400, with a standard deviation of 4.4.
    assert 366 <= within <= 392


def by_chance(values: list[float], sd: np.ndarray, decimals: int) -> list[str]:
    """Lists the rows within the limit, by numpy alone."""
    rounding = 2 * 10.0 ** (-2 * decimals) / 12
    limit = T * np.sqrt(sd[1:] ** 2 + sd[0] ** 2 + rounding)
    inside = abs(np.array(values[1:]) - values[0]) < limit
    return [name for name, is_inside in zip(NAMES[1:], inside, strict=True) if is_inside]


def test_verdicts_on_table_3():
    judge = lambda column, test_set: [
        name
        for name, verdict in noise_tables.judge_table_3(column, noise.of_column(test_set, column)).items()
        if not verdict.is_significant
    ]
    for test_set in trainings.TEST_SETS:
        sd = np.full(20, deviation(test_set, 'bleu'))
        assert judge('BLEU', test_set) == by_chance(BLEU, sd, 1)
        assert judge('PPL', test_set) == by_chance(PPL, deviation(test_set, 'loss') * np.array(PPL), 2)
    assert judge('BLEU', 'newstest2013') == ['A2', 'A3', 'C3', 'C5', 'D2', 'D4', 'E']
    assert judge('PPL', 'newstest2013') == ['A3', 'D2', 'E']
    # The four rows at 0.4 depend on the test set.
    assert set(judge('BLEU', 'newstest2014')) - set(judge('BLEU', 'newstest2013')) == {'A4', 'B2', 'C6', 'C7'}


def test_rank_correlation_is_spearmans():
    rng = np.random.default_rng(0)
    scores, other = rng.integers(0, 6, (5, 12)), rng.integers(0, 6, 12)  # with ties
    expected = [scipy.stats.spearmanr(row, other).statistic for row in scores]
    np.testing.assert_allclose(noise.rank_correlation(scores, other), expected)
    assert np.isnan(noise.rank_correlation(np.ones(12), other))


def test_ceiling_against_a_plain_simulation():
    """Two further runs' noise, one row and one run at a time, with another generator."""
    sd, rng, correlations = deviation('newstest2013', 'bleu'), np.random.default_rng(7), []
    for _ in range(1500):
        spread = sd * math.sqrt(20 / rng.chisquare(20))
        run = [
            round(score + rng.uniform(-0.05, 0.05) + rng.normal(0, spread) + rng.normal(0, spread), 1)
            for score in BLEU[1:]
        ]
        correlations.append(scipy.stats.spearmanr(run, BLEU[1:]).statistic)
    ceiling = noise.ceiling(noise.of_column('newstest2013', 'BLEU'), BLEU[1:], 1)
    assert ceiling.mean == pytest.approx(np.mean(correlations), abs=0.006)
    np.testing.assert_allclose(ceiling[1:], np.quantile(correlations, [0.025, 0.975]), atol=0.02)


def test_ceiling_falls_with_noise():
    ceilings = [noise.ceiling(Noise(sd, 20), BLEU[1:], 1).mean for sd in (0.0, 0.1, 0.3, 30.0)]
    # Without noise a second run prints the same; with much it is unrelated.
    assert ceilings[0] == pytest.approx(1.0) and ceilings == sorted(ceilings, reverse=True)
    assert abs(ceilings[-1]) < 0.1
    once = noise.ceiling(Noise(0.1, 20), BLEU[1:], 1, runs=1).mean
    assert ceilings[1] < once < 1


def test_equal_second_runs_have_no_correlation():
    """Scores far below the rounding make every second run of three rows equal, in most draws."""
    with np.errstate(all='raise'):
        ceiling = noise.ceiling(Noise(0.4, 20), [0.0, 0.0, 1.0], 0)
    assert -1 <= ceiling.low <= ceiling.mean <= ceiling.high <= 1


def test_ceiling_is_a_little_high_and_its_interval_holds():
    calibration = noise.calibrate(Noise(0.13, 20), BLEU[1:], 1, trials=200)
    assert 0 < calibration.ceiling - calibration.truth < 0.02
    assert 0.9 < calibration.coverage <= 1
    # As if the printed scores were the true ones, it would be too high by more.
    once = noise.ceiling(Noise(0.13, 20), BLEU[1:], 1, runs=1).mean
    assert once - calibration.truth > 0.02


HEADER = 'run\tset\tseed\tstep\ttest_bleu\ttest_loss\tdev_bleu\tdev_loss'


def test_collect_takes_the_last_evaluation(tmp_path):
    lines = [
        HEADER,
        'ext\t0\t1\t200\t30.5\t1.4\t29.5\t1.5',
        'ext\t0\t1\t100\t20.5\t2.4\t19.5\t2.5',
        'ext\t0\t0\t100\t31.5\t1.3\t28.5\t1.6',
        'self\t0\t0\t300\t32.5\t1.2\t27.5\t1.7',
    ]
    (tmp_path / 'runs.tsv').write_text('\n'.join(lines) + '\n')
    settings = trainings.collect(tmp_path)['trainings']
    assert settings == {
        'ext-0': {
            'seeds': [0, 1],
            'steps': [100, 200],
            'newstest2013': {'bleu': [28.5, 29.5], 'loss': [1.6, 1.5]},
            'newstest2014': {'bleu': [31.5, 30.5], 'loss': [1.3, 1.4]},
        },
        'self-0': {
            'seeds': [0],
            'steps': [300],
            'newstest2013': {'bleu': [27.5], 'loss': [1.7]},
            'newstest2014': {'bleu': [32.5], 'loss': [1.2]},
        },
    }


@pytest.mark.parametrize(
    'text, named',
    [
        (None, 'runs.tsv'),
        ('', 'run'),
        (HEADER.replace('\tdev_loss', '') + '\n', 'dev_loss'),
        (f'{HEADER}\next\t0\t1\t200\t30.5\t1.4\tnone\t1.5\n', 'line 2'),
        (f'{HEADER}\next\t0\t1\t200\t30.5\n', 'line 2'),
        (f'{HEADER}\next\t0\t1\t200\t30.5\t1.4\tnan\t1.5\n', 'ext-0, seed 1'),
        (f'{HEADER}\n', 'no evaluation'),
        ('run\t\xfc\n'.encode('latin-1'), 'UTF-8'),
    ],
)
def test_collect_refuses_other_files(tmp_path, text, named):
    if text is not None:
        (tmp_path / 'runs.tsv').write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=named):
        trainings.collect(tmp_path)
