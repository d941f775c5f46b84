"""Tables of the noise of single trainings, and of the differences in the paper's Tables 2 and 3 beyond it."""

from collections.abc import Mapping, Sequence

import numpy as np
import scipy.stats

from experiments.evidence import committed, noise, trainings
from experiments.evidence.noise import Noise, NoiseVerdict
from experiments.evidence.sections import Section, interval, table
from experiments.rendering.formats import p_value
from experiments.reports import differences
from experiments.tables import rows as tables

# Table 2's other systems: their names, and BLEU into German and into French.
PREVIOUS = (
    ('ByteNet', 23.75, None),
    ('Deep-Att + PosUnk', None, 39.2),
    ('GNMT + RL', 24.6, 39.92),
    ('ConvS2S', 25.16, 40.46),
    ('MoE', 26.03, 40.56),
    ('Deep-Att + PosUnk Ensemble', None, 40.4),
    ('GNMT + RL Ensemble', 26.30, 41.16),
    ('ConvS2S Ensemble', 26.36, 41.29),
)
_LANGUAGES = ('EN-DE', 'EN-FR')
_DECIMALS = {'PPL': 2, 'BLEU': 1}  # of Table 3's columns
_SCORES = {'bleu': ('BLEU', 3), 'loss': ('loss', 4)}  # names and decimals
_ASSUMPTIONS = (
    'Assumed: a score is normal around the mean of its setting, with the same deviation everywhere. Two '
    'single trainings then differ by less than t(0.975, 20) * sqrt(2) * deviation in 95 % of cases.',
    "The settings are not the paper's: German to English, pre-norm, other widths, WMT 2017, NAdamW, other "
    "batches and pieces. How far the seeds moved the paper's own trainings is unknown.",
    'The trainings of self-tuning are not pooled, because they end after 107,337 to 399,999 updates.',
)


def sections() -> list[Section]:
    """Makes all tables of the noise."""
    return [_deviations(), _smoothing(), _table_3(), _table_2(), _ceilings()]


def _deviations() -> Section:
    """Makes the table of the deviations over seeds."""
    rows = []
    for test_set in trainings.TEST_SETS:
        for score, (name, decimals) in _SCORES.items():
            samples = trainings.samples(test_set, score)
            pooled, form = noise.pool(samples), f'.{decimals}f'
            of_settings = [float(np.std(sample, ddof=1)) for sample in samples]
            limit = noise.compare(pooled, 0.0, 0.0, None).limit
            self_tuned = trainings.samples(test_set, score, ['self-0'])
            rows.append(
                (
                    f'{name}, {test_set}',
                    f'{pooled.deviation:{form}}',
                    interval(*pooled.interval(), form),
                    f'{limit:{form}}',
                    f'{min(of_settings):{form}} to {max(of_settings):{form}}',
                    p_value(float(scipy.stats.bartlett(*samples).pvalue)),
                    p_value(_seed_p(samples)),
                    f'{noise.pool([*samples, *self_tuned]).deviation:{form}}',
                )
            )
    headings = 'deviation', '95%', 'two differ by', 'of a setting', 'p settings', 'p seeds', 'with self-tuned'
    notes = [
        'deviation: over five seeds, pooled over five settings (20 degrees of freedom), with its chi-squared '
        'interval. two differ by: the greatest difference of two single trainings in 95 % of cases. of a '
        'setting: the least and the greatest deviation. p settings: the probability of deviations so unequal '
        'if all settings had the same (Bartlett). p seeds: the probability of settings so alike by seed if '
        'seeds had no common effect (analysis of variance); the settings share their seeds.',
        *_ASSUMPTIONS,
    ]
    return Section('Deviation over seeds of public trainings', table('score', rows, *headings), notes)


def _seed_p(samples: Sequence[Sequence[float]]) -> float:
    """Tests by analysis of variance whether settings share an effect of the seed."""
    residuals = np.array(samples)
    residuals -= residuals.mean(axis=1, keepdims=True)
    settings, seeds = residuals.shape
    of_seeds = settings * float((residuals.mean(axis=0) ** 2).sum())
    freedom = seeds - 1, (settings - 1) * (seeds - 1)
    ratio = (of_seeds / freedom[0]) / ((float((residuals**2).sum()) - of_seeds) / freedom[1])
    return float(scipy.stats.f.sf(ratio, *freedom))


def _smoothing() -> Section:
    """Makes the table of the changes that label smoothing alone makes."""
    rows = []
    for test_set in trainings.TEST_SETS:
        for score, (name, decimals) in _SCORES.items():
            form = f'.{decimals}f' if score == 'loss' else '.2f'
            smoothed, plain = trainings.samples(test_set, score, [trainings.SMOOTHED, trainings.PLAIN])
            test = differences.seed_test([a - b for a, b in zip(smoothed, plain, strict=True)])
            means = [f'{np.mean(values):{form}}' for values in (plain, smoothed)]
            middle, half = (test.low + test.high) / 2, (test.high - test.low) / 2
            change = f'{middle:+{form}}', f'±{half:{form}}', p_value(test.p)
            rows.append((f'{name}, {test_set}', *means, *change))
    notes = ['Paired t-test over the five seeds that both settings have; they differ in nothing else.']
    columns = table('score', rows, 'without', 'with', 'difference', '95%', 'p')
    return Section('Label smoothing of 0.1 alone', columns, notes)


def judge_table_3(column: str, spread: Noise) -> dict[str, NoiseVerdict]:
    """Judges each row's difference from base in a column of Table 3, by name."""
    base, *others = tables.TABLE_3
    return {
        row.name: noise.compare(spread, row.paper[column], base.paper[column], _DECIMALS[column])
        for row in others
    }


def _table_3() -> Section:
    """Makes Table 3 with marks on the differences within the noise."""
    cells, headings, notes = [[row.name for row in tables.TABLE_3]], [], []
    for column, decimals in _DECIMALS.items():
        spread = noise.of_column(tables.TABLES['3'].noise, column)
        verdicts = judge_table_3(column, spread)
        cells += [
            [f'{row.paper[column]:.{decimals}f}' for row in tables.TABLE_3],
            ['', *(_difference(verdict, decimals) for verdict in verdicts.values())],
            ['', *(f'{verdict.limit:.3f}' for verdict in verdicts.values())],
            ['', *(p_value(verdict.p) for verdict in verdicts.values())],
        ]
        headings += [column, f'Δ{column}', f'limit {column}', f'p {column}']
        rows = _by_chance(verdicts)
        least, most = (len(_by_chance(judge_table_3(column, end))) for end in spread.ends())
        with_other = _by_chance(judge_table_3(column, noise.of_column('newstest2014', column)))
        notes.append(
            f'{column}: chance may explain the differences (≈) of {len(rows)} of {len(verdicts)} rows: '
            f'{", ".join(rows)}. At the ends of the interval of the deviation there are {least} and {most} '
            f'such rows; with the deviation on newstest2014 {len(with_other)}: {", ".join(with_other)}.'
        )
    notes += [
        'limit: the greatest difference that chance explains, with 95 % confidence, by the noise on '
        'newstest2013. It includes rounding, as a uniform error of both numbers (to 0.01 for PPL, 0.1 for '
        "BLEU). A perplexity's deviation is the perplexity times the loss's deviation (delta method).",
        'Not corrected for the number of rows: of 20 rows just like base, one would be beyond its limit. All '
        'differences share base, so a lucky base moves all of them.',
    ]
    columns = table('row', list(zip(*cells, strict=True)), *headings)
    return Section("The paper's Table 3: what is beyond noise", columns, notes)


def _by_chance(verdicts: Mapping[str, NoiseVerdict]) -> list[str]:
    return [name for name, verdict in verdicts.items() if not verdict.is_significant]


def _difference(verdict: NoiseVerdict, decimals: int) -> str:
    return f'{verdict.difference:+.{decimals}f}{"" if verdict.is_significant else " ≈"}'


def _table_2() -> Section:
    """Makes Table 2 with marks on the differences within the noise."""
    papers = {row.name: row.paper for row in tables.TABLE_2}
    ours = {
        size: [papers[f'{size}-{language.lower()}'][language] for language in _LANGUAGES]
        for size in ('base', 'big')
    }
    spread = noise.of_column(tables.TABLES['2'].noise, _LANGUAGES[0])

    def cells(language: int, score: float | None) -> list[str]:
        """Formats the score, and its differences from base and big."""
        if score is None:
            return [''] * (1 + len(ours))
        verdicts = [noise.compare(spread, score, scores[language], 1) for scores in ours.values()]
        return [f'{score:g}', *(_difference(v, 2) if v.difference else '' for v in verdicts)]

    systems = [*PREVIOUS, *((f'Transformer ({size})', *scores) for size, scores in ours.items())]
    rows = [(name, *cells(0, german), *cells(1, french)) for name, german, french in systems]
    headings = [
        f'{language}{end}' for language in _LANGUAGES for end in ('', *(f' Δ{size}' for size in ours))
    ]
    limit, low, high = (noise.compare(each, 0.0, 0.0, 1).limit for each in (spread, *spread.ends()))
    notes = [
        f"Δbase, Δbig: the system minus the paper's model. ≈: within {limit:.2f} BLEU, so it may be chance "
        f'(at the ends of the interval of the deviation: {low:.2f} and {high:.2f}).',
        'By the noise on newstest2014, German to English, with rounding to 0.1; French is assumed to be as '
        'noisy. The paper averages checkpoints here, and ensembles average models, which the public '
        'trainings do not: their noise may be less.',
    ]
    return Section("The paper's Table 2: what is beyond noise", table('system', rows, *headings), notes)


def _ceilings() -> Section:
    """Makes the table of the ceilings of the rank correlation."""
    rows = []
    for column, decimals in _DECIMALS.items():
        spread = noise.of_column(tables.TABLES['3'].noise, column)
        printed = [row.paper[column] for row in tables.TABLE_3[1:]]
        second, once = (noise.ceiling(spread, printed, decimals, runs=runs) for runs in (2, 1))
        calibration = noise.calibrate(spread, printed, decimals)
        rows.append(
            (
                column,
                f'{second.mean:.3f}',
                interval(second.low, second.high, '.3f'),
                *(f'{_correlation(folder, column):.2f}' for folder in committed.TABLE_3.values()),
                f'{once.mean:.3f}',
                f'{calibration.truth:.3f}',
                f'{calibration.ceiling:.3f}',
                f'{calibration.coverage:.1%}',
            )
        )
    headings = 'ceiling', '95%', *committed.TABLE_3, 'noise once', 'two runs', 'its ceiling', 'covered'
    notes = [
        "ceiling: Spearman's correlation, over the 19 rows of Table 3, of the printed scores with a second "
        f'run of the paper; the mean and the middle 95 % of {noise.DRAWS:,} simulated runs. '
        f'{", ".join(committed.TABLE_3)}: the correlation of our committed results at that scale.',
        'A second run is simulated as the printed score plus the noise of two runs, because the printed '
        'score is noisy, too; then it is rounded. noise once: the ceiling if the printed scores were the '
        'true ones, which is too high.',
        'A check where the truth is known: the printed scores are taken for the true ones, and two runs of '
        'them are simulated. two runs: the mean correlation of the two. its ceiling: the mean ceiling as '
        'computed from the first run; its excess is the bias of starting from printed scores. covered: how '
        'often its interval contains the correlation of the two.',
    ]
    columns = table('score', rows, *headings)
    return Section('Ceiling of the rank correlation with Table 3', columns, notes)


def _correlation(folder: str, column: str) -> float:
    """Computes the rank correlation of a committed sweep with the paper's Table 3."""
    comparison = committed.comparison(folder)
    (score,) = (score for score in comparison.scores if score.measure.heading == column)
    return differences.correlation(differences.differences(comparison, score).values()).value
