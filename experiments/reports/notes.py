"""Writes the notes below a report's table: what its numbers mean, and what is missing or not comparable."""

import json
import re
from collections.abc import Iterator, Sequence

from experiments.rendering.formats import Column
from experiments.reports import columns, differences, printed, results
from experiments.reports.differences import Correlation
from experiments.reports.results import Comparison
from experiments.sweeps import runs
from experiments.tables.table import Measure, values_of

# Paths of scores that are means over tokens.
PER_TOKEN = (('loss',), ('perplexity',), ('accuracy',))
# The meanings of signs and words in a table.
LEGEND = {
    ' ours': 'Ours: mean (seeds).',
    '±': '±: standard deviation.',
    'Δ': 'Δ: difference from {base}{paired}.',
    '95%': '95%, p seeds: paired t-test over seeds; ≈: the interval holds 0, so the row may equal {base} (of '
    'twenty equal rows, one is expected to differ by chance).',
    'p sentences': 'p sentences: paired bootstrap of the score before it over the sentences, not over seeds; '
    'the greatest of the seeds, or mixed where their differences have both signs.',
    'tokens/s': 'tokens/s: target tokens, the median of what a training reported.',
    'hours': 'hours: of training.',
}


def notes(comparison: Comparison, shown: Sequence[Column]) -> list[str]:
    """Lists the notes below the columns of a report, in their order."""
    return [
        *_caption(comparison, shown),
        *_same_in_every_row(comparison),
        *_agreement(comparison),
        *_printed_by_chance(comparison),
        *_chance(comparison),
        *_same_as_base(comparison),
        *_scored_differently(comparison),
        *_other_tokenizers(comparison),
        *_without_score(comparison),
        *_missing(comparison),
        *_hardware(comparison),
    ]


def _caption(comparison: Comparison, shown: Sequence[Column]) -> Iterator[str]:
    """Yields the meanings of the columns, and the scale."""
    table, base = comparison.table, comparison.base
    text = ' '.join(part for column in shown for part in (column.heading, *column.texts))
    # A table can have measures that only other tasks have.
    measured = {re.sub('^Δ| ours$| 95%$', '', column.heading) for column in shown}
    meanings = [s.measure.meaning for s in comparison.scores if s.measure.heading in measured]
    parts = [f'{comparison.title}: {", ".join(meanings)} on {table.split}.']
    paired = ', ours over the seeds that both have' * comparison.several
    parts += [meaning.format(base=base, paired=paired) for sign, meaning in LEGEND.items() if sign in text]
    if table.citation and any(row.row.paper for row in comparison.rows):
        parts.append(f'Numbers that are not ours: {table.citation}.')
    yield ' '.join(parts)
    if comparison.scale:
        yield comparison.scale


def _same_in_every_row(comparison: Comparison) -> Iterator[str]:
    """Yields the options of the table that no row changes."""
    base = comparison.base_row() or comparison.rows[0]
    others = [row for row in comparison.rows if row is not base]
    values = values_of(base.config, comparison.options)
    same = [
        f'{name} {columns.option(base, base, key)}'
        for key, name in columns.short_names(comparison.options).items()
        if values[key] is not None and not any(columns.option(row, base, key) for row in others)
    ]
    if same:
        yield f'In every row: {", ".join(same)}'


def _agreement(comparison: Comparison) -> Iterator[str]:
    """Yields the rank correlation of each measure with the paper's, and the paper's own with a second run."""
    ceilings = []
    for score in comparison.scores:
        pairs, heading = differences.differences(comparison, score).values(), f'Δ{score.measure.heading}'
        if any(pair.paper is not None for pair in pairs):
            correlation = differences.correlation(pairs)
            yield f"Rank correlation of the {heading} with the paper's: {describe_correlation(correlation)}"
            ceiling = correlation and printed.ceiling(comparison, score)
            if ceiling:
                ceilings.append(f'{heading} {ceiling.mean:.2f} [{ceiling.low:.2f}, {ceiling.high:.2f}]')
    if ceilings:
        yield (
            f'Ceiling of these correlations: a second run of the paper would have {", ".join(ceilings)} with '
            'the first (mean and middle 95 % of simulated runs, by the noise of public trainings)'
        )


def _printed_by_chance(comparison: Comparison) -> Iterator[str]:
    """Yields the printed differences from base that may be chance alone."""
    parts = []
    for score in comparison.scores:
        if verdicts := printed.verdicts(comparison, score):
            rows = [name for name, verdict in verdicts.items() if not verdict.is_significant]
            parts.append(
                f'Δ{score.measure.heading} {len(rows)} of {len(verdicts)}: {", ".join(rows) or "none"}'
            )
    if parts:
        yield (
            'Differences that the paper prints and that may be chance (≈), by the noise of public '
            f'trainings over seeds on {comparison.table.noise}: {"; ".join(parts)}'
        )


def describe_correlation(correlation: Correlation | None) -> str:
    """Formats a correlation as text."""
    if correlation is None:
        return 'needs three rows that differ'
    resampled = ''
    if correlation.low is not None:
        resampled = (
            f'; middle 95 % over {correlation.seeds} resampled seeds, usually narrower than a confidence '
            f'interval: [{correlation.low:.2f}, {correlation.high:.2f}]'
        )
    return f'{correlation.value:.2f} (Spearman, {correlation.rows} rows, p {correlation.p:.2g}{resampled})'


def _chance(comparison: Comparison) -> Iterator[str]:
    """Yields the rows that may differ from base by chance alone."""
    base, untested = comparison.base, {}
    for score in comparison.scores:
        pairs = differences.differences(comparison, score)
        tests = {name: pair.over_seeds for name, pair in pairs.items() if pair.over_seeds}
        untested |= {
            name: None for name, pair in pairs.items() if pair.ours is not None and name not in tests
        }
        if tests:
            by_chance = [name for name, test in tests.items() if not test.is_significant]
            yield (
                f'Not distinguishable from {base} by {score.measure.heading} (≈), {len(by_chance)} of '
                f'the {len(tests)} rows that were tested over seeds: {", ".join(by_chance) or "none"}'
            )
    if untested and comparison.several:
        yield f'Not tested, because fewer than two seeds are shared with {base}: {", ".join(untested)}'


def _same_as_base(comparison: Comparison) -> Iterator[str]:
    base = comparison.base_row()
    if same := [row.row.name for row in comparison.rows if differences.is_base(row, base)]:
        where = 'at this scale' if comparison.several else 'but for its results'
        yield f'The same as {comparison.base} {where}: {", ".join(same)}'


def _scored_differently(comparison: Comparison) -> Iterator[str]:
    """Yields the runs that are not compared, with the reasons."""
    if unlike := [run for row in comparison.rows for run in row.done if run.unlike]:
        marked = ' (*)' if any(row.is_unlike for row in comparison.rows) else ''
        reasons = '; '.join(f'{run.name}: {run.unlike}' for run in unlike)
        yield f'Not scored as {comparison.base} and so left out of the differences{marked}: {reasons}'


def _other_tokenizers(comparison: Comparison) -> Iterator[str]:
    """Yields the rows with another tokenizer, whose per-token scores cannot be compared with base's."""
    pairs = differences.pairs(comparison)
    others = [row.row.name for row, base in pairs if results.have_other_tokenizers(row, base)]
    measures = [score.measure for score in comparison.scores]
    if names := ', '.join(f'Δ{m.heading}' for m in measures if others and m.path in PER_TOKEN):
        rows = ', '.join(others)
        yield f'Rows with another tokenizer than {comparison.base}, whose {names} compare nothing: {rows}'


def _without_score(comparison: Comparison) -> Iterator[str]:
    """Yields the finished runs without a score that others have, such as an infinite perplexity."""
    own = {one.name: one.path for one in comparison.table.measures if isinstance(one, Measure)}
    counted = [run for row in comparison.rows for run in row.counted]
    for measure in (score.measure for score in comparison.scores):
        values = {run.name: measure.value(run.scores(comparison.table.split)) for run in counted}
        without = [name for name, value in values.items() if value is None]
        if 0 < len(without) < len(values):
            yield f'Ended without a finite {measure.heading}, and so not counted in it: {", ".join(without)}'
        elif without and measure.heading in own:
            yield f'No run has {measure.heading} ({own[measure.heading]}) on {comparison.table.split}'


def _missing(comparison: Comparison) -> Iterator[str]:
    missing = [state for row in comparison.rows for state in row.missing]
    yield from (f'{s.run.name}: {s.state} at step {s.step}: {s.error}' for s in missing if s.error)
    for name in runs.STATES:
        if these := [state.run.name for state in missing if state.state == name and not state.error]:
            yield f'{name}: {", ".join(these)}'
    if comparison.left_out:
        yield f'Rows of the table that were not chosen: {", ".join(comparison.left_out)}'


def _hardware(comparison: Comparison) -> Iterator[str]:
    machines = {json.dumps(run.result['hardware']) for row in comparison.rows for run in row.done}
    for machine in map(json.loads, sorted(machines)):
        cores = f'{machine["cpus"]} CPU core{"s" if machine["cpus"] > 1 else ""}'
        yield f'Trained on {machine["devices"]} x {machine["device"]} ({cores}).'
