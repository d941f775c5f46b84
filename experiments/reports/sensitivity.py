"""Sensitivity: how a table's agreement with the paper depends on an option in which sweeps differ.

Only rows and seeds that all sweeps have are counted.
"""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence

from experiments.rendering.formats import Column
from experiments.reports import differences
from experiments.reports.differences import Difference
from experiments.reports.results import Comparison
from experiments.sweeps import runs
from experiments.tables import rows as tables
from experiments.tables import scales
from experiments.tables.table import Score, shown
from transformer import config as configs
from transformer.config import ConfigError

Sweeps = Mapping[str, tuple[runs.Sweep, Comparison]]  # each with the comparison of its rows, by folder


def columns(sweeps: Sweeps) -> tuple[list[Column], list[str]]:
    """Makes the columns of a table with a row for each sweep and its correlations, and the notes."""
    options = _options(sweeps)
    (first, comparison), comparisons = next(iter(sweeps.values())), [second for _, second in sweeps.values()]
    folders = ', '.join(sweeps)
    seeds = sorted(set.intersection(*map(_base_seeds, comparisons)))
    if not seeds:
        raise ConfigError(f'{folders}: no seed of base has ended in all of them')
    comparisons = [_restrict(sweep, seeds) for sweep in comparisons]
    table, counts, has_correlation = [Column('sweep', 'row', list(sweeps)), *options], [], False
    for score in comparison.scores:
        measure = score.measure
        by_sweep, rows = _shared(comparisons, score, seeds)
        base = [sweep.base_row().scores(sweep.table.split, measure) for sweep in comparisons]
        means = [measure.format(statistics.mean(values.values())) for values in base]
        correlations = list(map(differences.correlation, by_sweep))
        has_correlation = has_correlation or any(correlations)
        values = [f'{c.value:.2f}' if c else '' for c in correlations]
        intervals = [f'[{c.low:.2f}, {c.high:.2f}]' if c and c.low is not None else '' for c in correlations]
        table += [
            Column(f'base {measure.heading}', 'score', means),
            Column(f'Δ{measure.heading} correlation', 'score', values),
            Column('bootstrap', 'score', intervals),
        ]
        counts.append(f'{measure.heading}: {rows} of {len(comparison.rows) - 1} rows')
    if not has_correlation:
        raise ConfigError(f"{folders}: fewer than three rows with the paper's numbers have ended in all")
    interval = 'bootstrap: the middle 95 % of the correlations when the seeds are resampled.'
    if len(seeds) < 3:
        interval = 'With so few seeds, a difference between two correlations can be chance.'
    notes = [
        f"Table {first.table} at the scale {first.scale}: rank correlation (Spearman) of the rows' "
        f"differences from base with the paper's. {interval}",
        f'Runs that every sweep has: seed{"s" * (len(seeds) > 1)} {", ".join(map(str, seeds))}; '
        f'{"; ".join(counts)}.',
    ]
    return [column for column in table if any(column.texts)], notes


def _options(sweeps: Sweeps) -> list[Column]:
    """Makes the columns of the options in which the sweeps differ.

    Raises:
      ConfigError: the sweeps differ in table or scale, or in no option.
    """
    (folder, (first, _)), *others = sweeps.items()
    for other, (sweep, _) in others:
        if (sweep.table, sweep.scale) != (first.table, first.scale):
            raise ConfigError(
                f'{other}: has table {sweep.table} at the scale {sweep.scale}, '
                f'{folder} has table {first.table} at the scale {first.scale}'
            )
    keys = sorted(set().union(*(sweep.different for sweep, _ in sweeps.values())))
    [base] = tables.rows(first.table, tables.table(first.table).base)
    flat = [
        configs.flatten(scales.config(base, sweep.scale, sweep.different)) for sweep, _ in sweeps.values()
    ]
    texts = {key: [shown(key, values[key]) for values in flat] for key in keys}
    options = [Column(key, 'option', values) for key, values in texts.items() if len(set(values)) > 1]
    if not options:
        raise ConfigError(f'{", ".join(sweeps)}: differ in no option, such as --set=train.lr_constant=0.2')
    return options


def _base_seeds(comparison: Comparison) -> set[int]:
    """Returns the seeds of base that have all scores."""
    base, split = comparison.base_row(), comparison.table.split
    if base is None:
        return set()
    return set.intersection(*(set(base.scores(split, score.measure)) for score in comparison.scores))


def _restrict(comparison: Comparison, seeds: Sequence[int]) -> Comparison:
    """Returns the same comparison with only some seeds."""
    chosen = lambda row: tuple(run for run in row.done if run.pair in seeds)
    rows = tuple(dataclasses.replace(row, done=chosen(row)) for row in comparison.rows)
    return dataclasses.replace(comparison, rows=rows)


def _shared(
    comparisons: Sequence[Comparison], score: Score, seeds: Sequence[int]
) -> tuple[list[list[Difference]], int]:
    """Returns each sweep's differences in the rows that have all seeds in all sweeps, and their number."""
    by_sweep = [differences.differences(comparison, score) for comparison in comparisons]
    is_complete = lambda pair: pair.paper is not None and len(pair.by_seed) == len(seeds)
    rows = set.intersection(*({name for name, pair in s.items() if is_complete(pair)} for s in by_sweep))
    return [[pair for name, pair in sweep.items() if name in rows] for sweep in by_sweep], len(rows)
