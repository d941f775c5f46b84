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
from transformer import config as configs
from transformer.config import ConfigError

Sweeps = Mapping[str, tuple[runs.Sweep, Comparison]]  # each with the comparison of its rows, by folder


def columns(sweeps: Sweeps) -> tuple[list[Column], list[str]]:
    """The columns of a table with a row for each sweep and its correlations, and the notes."""
    options = _options(sweeps)
    (first, comparison), compared = next(iter(sweeps.values())), [each for _, each in sweeps.values()]
    folders = ', '.join(sweeps)
    seeds = sorted(set.intersection(*map(_base_seeds, compared)))
    if not seeds:
        raise ConfigError(f'{folders}: no seed of base has ended in all of them')
    compared = [_restrict(each, seeds) for each in compared]
    shown, counts, agree = [Column('sweep', 'row', list(sweeps)), *options], [], False
    for score in comparison.scores:
        measure = score.measure
        pairs, rows = _shared(compared, score, seeds)
        base = [each.base_row().scores(each.table.split, measure) for each in compared]
        means = [measure.format(statistics.mean(values.values())) for values in base]
        correlations = [differences.correlation(each) for each in pairs]
        agree = agree or any(correlations)
        values = [f'{each.value:.2f}' if each else '' for each in correlations]
        intervals = [
            f'[{each.low:.2f}, {each.high:.2f}]' if each and each.low is not None else ''
            for each in correlations
        ]
        shown += [
            Column(f'base {measure.heading}', 'score', means),
            Column(f'Δ{measure.heading} correlation', 'score', values),
            Column('bootstrap', 'score', intervals),
        ]
        counts.append(f'{measure.heading}: {rows} of {len(comparison.rows) - 1} rows')
    if not agree:
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
    return [column for column in shown if any(column.texts)], notes


def _options(sweeps: Sweeps) -> list[Column]:
    """The options in which the sweeps differ; raises ConfigError if table or scale differ."""
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
    texts = {key: [tables.shown(key, each[key]) for each in flat] for key in keys}
    options = [Column(key, 'option', values) for key, values in texts.items() if len(set(values)) > 1]
    if not options:
        raise ConfigError(f'{", ".join(sweeps)}: differ in no option, such as --set=train.lr_constant=0.2')
    return options


def _base_seeds(comparison: Comparison) -> set[int]:
    """The seeds of base that have all scores."""
    base, split = comparison.base_row(), comparison.table.split
    if base is None:
        return set()
    return set.intersection(*(set(base.scores(split, score.measure)) for score in comparison.scores))


def _restrict(comparison: Comparison, seeds: Sequence[int]) -> Comparison:
    """The same comparison with only some seeds."""
    chosen = lambda row: tuple(run for run in row.done if run.pair in seeds)
    rows = tuple(dataclasses.replace(row, done=chosen(row)) for row in comparison.rows)
    return dataclasses.replace(comparison, rows=rows)


def _shared(
    compared: Sequence[Comparison], score: tables.Score, seeds: Sequence[int]
) -> tuple[list[list[Difference]], int]:
    """Each sweep's differences in the rows that have all seeds in all sweeps, and the number of such rows."""
    every = [differences.differences(each, score) for each in compared]
    complete = lambda pair: pair.paper is not None and len(pair.by_seed) == len(seeds)
    rows = set.intersection(*({name for name, pair in each.items() if complete(pair)} for each in every))
    return [[pair for name, pair in each.items() if name in rows] for each in every], len(rows)
