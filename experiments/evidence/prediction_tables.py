"""Tables of how well small trainings predict the paper's perplexities, and of the sealed predictions."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from experiments.evidence import committed, noise, prediction, sealed
from experiments.evidence.prediction import Line
from experiments.evidence.sections import Section, interval, table
from experiments.rendering.formats import p_value
from experiments.reports.differences import CONFIDENCE, Difference
from experiments.tables import rows as tables

# The BLEU that submissions to MLCommons AlgoPerf must reach with pre-norm and with post-norm, by test set.
# Tuned trainings set these targets.
PUBLIC = {'newstest2013': (30.8491, 30.0779), 'newstest2014': (30.7219, 29.8982)}
# Label smoothing moves perplexity and BLEU apart, so these rows cannot convert one into the other.
_SMOOTHING = ('D3', 'D4')
_PAPERS = {row.name: row.paper for row in tables.TABLE_3}


class SmallScale(NamedTuple):
    """Table 3 at a small scale.

    Attributes:
      rows: each row's change of log perplexity from base, by name.
      x: the mean changes.
      y: the paper's changes.
      lines: for each row, the line through the other rows.
      predicted: each row's change, by that line.
    """

    rows: dict[str, Difference]
    x: list[float]
    y: list[float]
    lines: list[Line]
    predicted: np.ndarray


def read_scale(folder: str) -> SmallScale:
    """Reads a committed sweep of Table 3, and predicts each row by the others."""
    rows = committed.changes(folder)
    x, y = [row.ours for row in rows.values()], prediction.papers_changes(list(rows))
    lines = prediction.without_each(x, y)
    predicted = np.array([line.at(change).change for line, change in zip(lines, x, strict=True)])
    return SmallScale(rows, x, y, lines, predicted)


def sections() -> list[Section]:
    """Makes all tables of the predictions."""
    scales = {name: read_scale(folder) for name, folder in committed.TABLE_3.items()}
    return [_summary(scales), _left_out(scales), _sealed(), _public()]


def _summary(scales: Mapping[str, SmallScale]) -> Section:
    """Makes the table of the slopes and the mean errors."""
    rng, resampled, rows = np.random.default_rng(0), [], []
    for name, scale in scales.items():
        line, x, y = prediction.fit(scale.x, scale.y), scale.x, scale.y
        resampled.append(prediction.resample(list(scale.rows.values()), y, rng))
        intervals = [line_without.at(change) for line_without, change in zip(scale.lines, x, strict=True)]
        covered = sum(each.low <= change <= each.high for each, change in zip(intervals, y, strict=True))
        seeds = len(next(iter(scale.rows.values())).by_seed)
        rows.append(
            (
                f'{name} ({seeds} seeds)',
                f'{line.slope:.3f}',
                interval(*line.slope_interval(), '.3f'),
                f'{prediction.mean_error(scale.predicted, y):.3f}',
                _middle(prediction.mean_error(resampled[-1], y)),
                f'{covered} of {len(y)}',
            )
        )
    both = np.mean([scale.predicted for scale in scales.values()], axis=0)
    of_both = _middle(prediction.mean_error(np.mean(resampled, axis=0), y))
    no_change = prediction.mean_error(np.zeros(len(y)), y)
    rows = [
        ('no change', '', '', f'{no_change:.3f}', '', ''),
        *rows,
        ('mean of both predictions', '', '', f'{prediction.mean_error(both, y):.3f}', of_both, ''),
        ('a second run of the paper', '', '', f'{_second_run():.3f}', '', ''),
    ]
    headings = 'slope', 'slope 95%', 'mean error', 'over resampled seeds', 'within 95%'
    notes = [
        f"The paper's change of log perplexity from base ({prediction.BASE}) is predicted as slope times our "
        'mean change over seeds. slope: least squares through the origin over all 19 rows, with '
        'its 95 % interval.',
        'mean error: in perplexity, over the 19 rows, each predicted with the slope of the 18 others. over '
        'resampled seeds: the middle 95 % if the seeds of all rows are resampled together, usually narrower '
        "than a confidence interval. within 95%: the rows whose printed perplexity is in the prediction's "
        'interval.',
        'no change: every row is predicted as base. a second run of the paper: its mean distance from the '
        'printed perplexities, by the noise of public trainings on newstest2013.',
    ]
    return Section('Perplexity predicted from small trainings', table('from', rows, *headings), notes)


def _middle(values: np.ndarray) -> str:
    low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return interval(low, high, '.3f')


def _second_run() -> float:
    """Computes the mean distance of a second run's perplexities from the paper's, without rounding."""
    spread = noise.of_column(tables.TABLES['3'].noise, 'PPL')
    printed = np.array([row.paper['PPL'] for row in tables.TABLE_3[1:]])
    # The mean absolute value of a normal error, which has the noise of both runs.
    return float(math.sqrt(2 / math.pi) * math.sqrt(2) * spread.at(printed).mean())


def _left_out(scales: Mapping[str, SmallScale]) -> Section:
    """Makes the table of the rows, each predicted by the others."""
    (small, first), *others = scales.items()
    both = np.mean([scale.predicted for scale in scales.values()], axis=0)
    rows = []
    for i, (name, row) in enumerate(first.rows.items()):
        paper, line = _PAPERS[name]['PPL'], first.lines[i]
        perplexity, low, high = line.at(row.ours).perplexities()
        _, seeds_low, seeds_high = line.by_seeds(row).perplexities()
        changes = [*(scale.predicted[i] for scale in scales.values()), both[i]]
        rows.append(
            (
                name,
                f'{paper:.2f}',
                f'{row.ours:+.4f}',
                f'{perplexity:.2f}',
                interval(seeds_low, seeds_high, '.2f'),
                interval(low, high, '.2f'),
                *(f'{prediction.BASE * math.exp(change) - paper:+.2f}' for change in changes),
            )
        )
    errors = [f'error {name}' for name in scales]
    headings = 'PPL', 'Δlog ours', 'predicted', 'over seeds', '95%', *errors, 'error of mean'
    notes = [
        f"PPL: the paper's. Δlog ours: our change of log perplexity at the scale {small}. predicted: with "
        'the slope of the other rows. over seeds: how far our seeds move the prediction at this slope '
        '(paired t-test). 95%: the prediction interval, by the scatter of the other rows around their line. '
        'error of mean: of the mean of the predictions from '
        f'{small} and {", ".join(name for name, _ in others)}.'
    ]
    return Section('Each row predicted by the others', table('row', rows, *headings), notes)


def _sealed() -> Section:
    """Makes the table of the sealed predictions."""
    content = sealed.read()
    rows = [
        (
            row['row'],
            ', '.join(f'{key}={value}' for key, value in row['changes'].items()),
            f'{row["small_scale_change"]:+.4f}',
            f'{row["change"]:+.3f}',
            interval(*row['change_interval'], '+.3f'),
            f'{row["perplexity"]:.2f}',
            interval(*row['interval'], '.2f'),
            interval(*row['interval_over_seeds'], '.2f'),
        )
        for row in content['rows']
    ]
    unpredicted = '; '.join(f'{row["row"]} ({row["why"]})' for row in content['open'])
    headings = 'changes', 'Δlog ours', 'Δlog', 'Δlog 95%', 'PPL', 'PPL 95%', 'over seeds'
    notes = [
        f'Sealed on {content["date"]}: {content["quantity"]}. Base has {content["base_perplexity"]}.',
        content['how'],
        content['known'],
        f'Open on that day, because no small training had them: {unpredicted}.',
    ]
    return Section('Sealed predictions', table('row', rows, *headings), notes)


def bleu_line() -> Line:
    """Fits the paper's changes of log perplexity to its changes of BLEU, without rows of label smoothing."""
    names = [name for name in _PAPERS if name not in ('base', *_SMOOTHING)]
    changes = [_PAPERS[name]['BLEU'] - _PAPERS['base']['BLEU'] for name in names]
    return prediction.fit(changes, prediction.papers_changes(names))


def _public() -> Section:
    """Makes the table of the public results that judge the first prediction."""
    line, rows = bleu_line(), []
    (pre_norm,) = (row for row in sealed.read()['rows'] if row['row'] == 'pre-norm')
    for test_set, (pre, post) in PUBLIC.items():
        verdict = noise.compare(noise.of_column(test_set, 'BLEU'), pre, post, None)
        converted = line.at(verdict.difference)
        rows.append(
            (
                test_set,
                f'{pre:.2f}',
                f'{post:.2f}',
                f'{verdict.difference:+.2f}',
                f'{verdict.limit:.2f}',
                p_value(verdict.p),
                f'{converted.change:+.3f}',
                interval(converted.low, converted.high, '+.3f'),
                f'{pre_norm["change"]:+.3f}',
                interval(*pre_norm['change_interval'], '+.3f'),
            )
        )
    headings = (
        'pre-norm', 'post-norm', 'ΔBLEU', 'limit', 'p', 'as Δlog', 'as Δlog 95%', 'sealed Δlog', 'sealed 95%',
    )  # fmt: skip
    notes = [
        "The BLEU that submissions to AlgoPerf's workload and to its post-norm variant must reach, set by "
        'tuned trainings of each (algoperf/workloads/wmt/wmt_jax/workload.py at 2c90454f), German to '
        'English. Their perplexities are not public. limit, p: as if each were a single training.',
        f'as Δlog: the difference as a change of log perplexity, {line.slope:+.3f} for a BLEU (least '
        f"squares through the origin over the paper's {line.freedom + 1} rows with base's label smoothing), "
        'with its prediction interval.',
    ]
    return Section('The first prediction beside public results', table('test set', rows, *headings), notes)
