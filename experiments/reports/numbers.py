"""What a report says of rows and runs, as numbers: for programs, and what its columns of costs print."""

import math
import statistics
from collections.abc import Mapping, Sequence

from experiments.reports import differences, results
from experiments.reports.differences import Difference
from experiments.reports.results import Comparison, Measured
from experiments.tables import rows as tables
from transformer.nn import cost

# By row, as `differences.over_sentences` gives them.
Tests = Mapping[str, Sequence[tuple[float, float]]]


def of_rows(comparison: Comparison, tests: Tests) -> list[dict[str, object]]:
    """The rows for programs: numbers as they are, without rounding, and None where there is none."""
    others = sorted(set().union(*(row.changed for row in comparison.rows)) - set(comparison.options))
    return [_record(row, comparison, others, tests) for row in comparison.rows]


def _record(row: Measured, comparison: Comparison, others: Sequence[str], tests: Tests) -> dict[str, object]:
    split = comparison.table.split
    found = {'row': row.row.name, 'source': row.row.source or None}
    found |= {key: tables.value_of(row.config, key) for key in (*comparison.options, *others)}
    found |= {'runs_done': len(row.done), 'runs_missing': len(row.missing)}
    found |= {'scored_as_base': not row.is_unlike if row.done else None}
    for measure in comparison.table.measures:
        values = list(row.scores(split, measure.path).values())
        every = differences.differences(comparison, measure)
        difference = every.get(row.row.name, Difference(None, None))
        seeds = difference.over_seeds
        several = len(values) > 1 and all(map(math.isfinite, values))
        name = measure.name
        found |= {
            f'{name}_paper': differences.paper(row.row, measure),
            f'{name}_mean': statistics.mean(values) if values else None,
            f'{name}_stdev': statistics.stdev(values) if several else None,
            f'{name}_runs': len(values),
            f'{name}_difference_paper': difference.paper,
            f'{name}_difference': difference.ours,
            f'{name}_difference_low': seeds and seeds.low,
            f'{name}_difference_high': seeds and seeds.high,
            f'{name}_p_over_seeds': seeds and seeds.p,
            f'{name}_told_from_base': seeds and seeds.is_told,
        }
        if measure.significance:
            tested = tests.get(row.row.name, ())
            found[f'{name}_p_greatest'] = max((p for _, p in tested), default=None)
            found[f'{name}_runs_disagree'] = differences.disagree(tested) if tested else None
    millions, trained = row.row.paper.get('params'), hours(row)
    return found | {
        'params_paper': millions and millions * 1e6,
        'params': row.done[0].result['params'] if row.done else None,
        'FLOPs_paper': row.row.paper.get('FLOPs'),
        'FLOPs': flops(row),
        'training_seconds_mean': trained and trained * 3600,
    }


def of_runs(comparison: Comparison) -> list[dict[str, object]]:
    """Every run for programs, with its own scores."""
    split, measures = comparison.table.split, comparison.table.measures
    found = []
    for row in comparison.rows:
        for run in row.done:
            scores = {m.name: results.value_at(run.scores(split), m.path) for m in measures}
            about = {'row': row.row.name, 'run': run.name, 'seed': run.result['config']['train']['seed']}
            how = {'checkpoint': run.scores(split)['checkpoint'], 'unlike_base': run.unlike or None}
            found.append({**about, **scores, **how, 'training_seconds': run.result['seconds']})
    return found


def flops(row: Measured) -> float:
    """FLOPs of the updates that were made, which a training that stopped early has fewer of; else of all."""
    steps = [run.result['steps'] for run in row.done] or [row.config.train.steps]
    return cost.update_flops(row.config) * statistics.mean(steps)


def speed(row: Measured) -> float | None:
    """Target tokens a second of updates; None of results that were written before it was kept."""
    speeds = [run.result['tokens_per_second'] for run in row.done if run.result.get('tokens_per_second')]
    return statistics.mean(speeds) if speeds else None


def hours(row: Measured) -> float | None:
    """Hours of training, the mean over runs; None without any."""
    return statistics.mean(run.result['seconds'] for run in row.done) / 3600 if row.done else None
