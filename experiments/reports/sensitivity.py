"""How a table's agreement with the paper changes with an option: sweeps that differ in it, side by side.

Only runs that all the sweeps have are counted, so that neither seeds nor rows make a difference.
"""

import statistics
from collections.abc import Mapping, Sequence

from experiments.rendering.formats import Column
from experiments.reports import differences
from experiments.reports.differences import Difference
from experiments.reports.results import Comparison, Measured
from experiments.sweeps import runs
from experiments.tables import rows as tables
from experiments.tables import scales
from transformer import config as configs
from transformer.config import ConfigError

Compared = tuple[runs.Sweep, Comparison]


def columns(sweeps: Mapping[str, Compared]) -> tuple[list[Column], list[str]]:
    """A line for each sweep with its correlations, and notes.

    Args:
      sweeps: with the comparison of their rows, by folder.

    Raises:
      ConfigError: they are of different tables or scales, differ in no option, or have too few runs in
        common.
    """
    (folder, (first, comparison)), *others = sweeps.items()
    for other, (sweep, _) in others:
        if (sweep.table, sweep.scale) != (first.table, first.scale):
            raise ConfigError(
                f'{other}: is of table {sweep.table} at the scale {sweep.scale}, '
                f'{folder} of table {first.table} at the scale {first.scale}'
            )
    options = _options([sweep for sweep, _ in sweeps.values()])
    if not options:
        raise ConfigError(f'{", ".join(sweeps)}: differ in no option, such as --set=train.lr_constant=0.2')
    compared = [each for _, each in sweeps.values()]
    seeds = sorted(set.intersection(*(_seeds(each.base_row(), each) for each in compared)))
    if not seeds:
        raise ConfigError(f'{", ".join(sweeps)}: no seed of base has ended in all of them')
    found = [Column('sweep', 'row', list(sweeps)), *options]
    counted, agreements = [], []
    for measure in comparison.table.measures:
        pairs, rows = _shared(compared, measure, seeds)
        scores = [each.base_row().scores(each.table.split, measure.path) for each in compared]
        means = [statistics.mean(score[seed] for seed in seeds) for score in scores]
        known = [differences.correlation(each) for each in pairs]
        agreements += [correlation for correlation in known if correlation]
        found += [
            Column(f'base {measure.name}', 'score', [f'{mean:.{measure.decimals}f}' for mean in means]),
            Column(f'Δ{measure.name} correlation', 'score', [f'{c.value:.2f}' if c else '' for c in known]),
            Column('bootstrap', 'score', [_interval(correlation) for correlation in known]),
        ]
        counted.append(f'{measure.name}: {len(rows)} of {len(comparison.rows) - 1} rows')
    if not agreements:
        raise ConfigError(
            f"{', '.join(sweeps)}: fewer than three rows with the paper's numbers have ended in all of them"
        )
    several, told = len(seeds) > 1, ', '.join(map(str, seeds))
    intervals = ' bootstrap: the middle 95 % of it when the seeds are resampled.' if len(seeds) > 2 else ''
    if len(seeds) < 3:
        intervals = ' With so few seeds nothing tells a difference between two correlations from chance.'
    notes = [
        f"Table {first.table} at the scale {first.scale}: rank correlation (Spearman) of the rows' "
        f"differences from base with the paper's.{intervals}",
        f'Runs that every sweep has: seed{"s" if several else ""} {told}; {"; ".join(counted)}.',
    ]
    return [column for column in found if any(column.texts)], notes


def _options(sweeps: Sequence[runs.Sweep]) -> list[Column]:
    """The options in which the sweeps differ."""
    keys = sorted(set().union(*(sweep.different for sweep in sweeps)))
    flat = [configs.flatten(scales.config(_base(sweep), sweep.scale, sweep.different)) for sweep in sweeps]
    texts = {key: [tables.shown(key, each[key]) for each in flat] for key in keys}
    return [Column(key, 'option', found) for key, found in texts.items() if len(set(found)) > 1]


def _base(sweep: runs.Sweep) -> tables.Row:
    return tables.rows(sweep.table, tables.table(sweep.table).base)[0]


def _seeds(row: Measured | None, comparison: Comparison) -> set[int]:
    """The seeds of a row that have all scores."""
    if row is None:
        return set()
    split, measures = comparison.table.split, comparison.table.measures
    return set.intersection(*(set(row.scores(split, measure.path)) for measure in measures))


def _shared(
    compared: Sequence[Comparison], measure: tables.Measure, seeds: Sequence[int]
) -> tuple[list[list[Difference]], set[str]]:
    """The differences of each sweep over some seeds, and the rows that have all of these in all sweeps."""
    every = [differences.differences(each, measure) for each in compared]
    has_all = lambda pair: pair.paper is not None and set(seeds) <= set(pair.by_seed)
    rows = set.intersection(*({name for name, pair in each.items() if has_all(pair)} for each in every))
    over = lambda pair: {seed: pair.by_seed[seed] for seed in seeds}
    return [
        [
            Difference(pair.paper, statistics.mean(over(pair).values()), by_seed=over(pair))
            for name, pair in each.items()
            if name in rows
        ]
        for each in every
    ], rows


def _interval(correlation: differences.Correlation | None) -> str:
    if correlation is None or correlation.low is None:
        return ''
    return f'[{correlation.low:.2f}, {correlation.high:.2f}]'
