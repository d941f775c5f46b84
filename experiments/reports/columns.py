"""The columns of a report for people, and its records for programs, from the same numbers."""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from experiments.rendering.formats import Column
from experiments.reports.differences import Difference, SentenceTests, differences
from experiments.reports.results import Comparison, Measured
from experiments.tables import rows as tables
from experiments.tables.rows import Score
from transformer import config as configs
from transformer.nn import cost


class Summary(NamedTuple):
    """A row's score: numbers without rounding, None where there is none.

    Attributes:
      values: the score of each run that counts.
      paper: the paper's number.
      difference: from base.
      tests: over sentences, (difference, p) of each pair of runs.
    """

    values: list[float]
    paper: float | None
    difference: Difference
    tests: Sequence[tuple[float, float]]

    @property
    def mean(self) -> float | None:
        """The mean over runs."""
        return statistics.mean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation over runs; None for one run, or where a score is infinite."""
        several = len(self.values) > 1 and all(map(math.isfinite, self.values))
        return statistics.stdev(self.values) if several else None

    @property
    def greatest_p(self) -> float | None:
        """The greatest p over sentences."""
        return max((p for _, p in self.tests), default=None)

    @property
    def runs_disagree(self) -> bool | None:
        """Whether some runs are better than base and others worse."""
        signs = [difference for difference, _ in self.tests]
        return min(signs) < 0 < max(signs) if signs else None

    def record(self) -> dict[str, object]:
        """The numbers by name, for programs."""
        seeds = self.difference.over_seeds
        return {
            'paper': self.paper,
            'mean': self.mean,
            'stdev': self.deviation,
            'runs': len(self.values),
            'difference_paper': self.difference.paper,
            'difference': self.difference.ours,
            'difference_low': seeds and seeds.low,
            'difference_high': seeds and seeds.high,
            'p_over_seeds': seeds and seeds.p,
            'told_from_base': seeds and seeds.is_significant,
            'p_greatest': self.greatest_p,
            'runs_disagree': self.runs_disagree,
        }


def summaries(comparison: Comparison, score: Score, tests: SentenceTests) -> list[Summary]:
    """The summary of every row."""
    by_row, tests = differences(comparison, score), tests if score.measure.significance else {}
    return [
        Summary(
            list(row.scores(comparison.table.split, score.measure).values()),
            score.paper_number(row.row),
            by_row.get(row.row.name, Difference()),
            tests.get(row.row.name, ()),
        )
        for row in comparison.rows
    ]


def columns(comparison: Comparison, tests: SentenceTests) -> list[Column]:
    """The columns of the table, without empty ones and those of options that no row changes."""
    every = [Column('row', 'row', [row.row.name for row in comparison.rows]), *_options(comparison)]
    for score in comparison.scores:
        every += _score_columns(comparison, score, summaries(comparison, score, tests))
    every += _costs(comparison)
    return [column for column in every if any(column.texts)]


def _options(comparison: Comparison) -> list[Column]:
    names = short_names(comparison.options)
    base = comparison.base_row() or comparison.rows[0]
    shown = []
    for key in comparison.options:
        texts = [option(row, base, key) for row in comparison.rows]
        changed = any(text for row, text in zip(comparison.rows, texts, strict=True) if row is not base)
        if changed and set(texts) != {tables.NONE}:
            shown.append(Column(names[key], 'option', texts))
    others = [
        ', '.join(f'{k.partition(".")[2]}={v}' for k, v in row.changed.items() if k not in comparison.options)
        for row in comparison.rows
    ]
    return [*shown, Column('other', 'option', others)]


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """The names of options, without their group where no two options share the rest."""
    short = [key.partition('.')[2] for key in keys]
    return {key: name if short.count(name) == 1 else key for key, name in zip(keys, short, strict=True)}


def option(row: Measured, base: Measured, key: str) -> str:
    """An option as the row is written and its value at this scale.

    It is empty where the value is base's, and a dash where the option does not apply to the row's model.
    """
    written, of_base = (configs.flatten(config)[key] for config in (row.written, base.written))
    ours, theirs = (tables.value_of(config, key) for config in (row.config, base.config))
    if ours is None:
        return tables.NONE
    if row is not base and written == of_base and theirs is not None:
        return ''
    shown = tables.shown(key, written)
    return shown if written == ours else f'{shown} → {tables.shown(key, ours)}'


def _score_columns(comparison: Comparison, score: Score, rows: Sequence[Summary]) -> list[Column]:
    """The paper's number and ours, and their differences from base."""
    measure, papers, several = score.measure, f'.{score.paper_decimals}f', comparison.several
    name, mine = measure.heading, ' ours' if several else ''
    count = lambda values: len(values) if several else 0
    signed = lambda value: measure.format(value, '+')

    def ours(row: Measured, summary: Summary) -> str:
        if summary.mean is None:
            return '' if row.done else _why_none(row)
        deviation = _text(summary.deviation, lambda value: f' ±{measure.format(value)}')
        return f'{measure.format(summary.mean)}{deviation}{"*" if row.is_unlike else ""}'

    def difference(pair: Difference) -> str:
        by_chance = pair.over_seeds is not None and not pair.over_seeds.is_significant
        return _text(pair.ours, signed) + (' ≈' if by_chance else '')

    def column(heading: str, cell: Callable[[Summary], str], counts: Sequence[int] = ()) -> Column:
        return Column(heading, 'score', [cell(summary) for summary in rows], counts)

    values = [ours(row, summary) for row, summary in zip(comparison.rows, rows, strict=True)]
    shown = [
        column(name, lambda s: _text(s.paper, lambda number: f'{number:{papers}}')),
        Column(f'{name}{mine}', 'score', values, [count(s.values) for s in rows]),
        column(f'Δ{name}', lambda s: _text(s.difference.paper, lambda number: f'{number:+{papers}}')),
        column(f'Δ{name}{mine}', lambda s: difference(s.difference)),
        column(
            f'Δ{name} 95%',
            lambda s: _text(s.difference.over_seeds, lambda t: f'[{signed(t.low)}, {signed(t.high)}]'),
        ),
    ]
    if not measure.significance:
        return shown
    return [
        *shown,
        column('p seeds', lambda s: _text(s.difference.over_seeds, lambda test: _p(test.p))),
        column(
            'p sentences',
            lambda s: 'mixed' if s.runs_disagree else _text(s.greatest_p, _p),
            [count(s.tests) for s in rows],
        ),
    ]


def _why_none(row: Measured) -> str:
    """Why a row has no result."""
    state = row.missing[0].state
    return state if state != 'done' else 'missing'


def _p(value: float) -> str:
    return f'{value:.3f}' if value >= 0.001 else '<0.001'


def _text(value, form: Callable[[object], str]) -> str:
    return '' if value is None else form(value)


def costs(row: Measured) -> dict[str, float | None]:
    """The parameters, FLOPs, speed and seconds of a row's training, without rounding; None where unknown.

    FLOPs are counted for the updates that were made, which are fewer where a training stopped early. The
    speed is target tokens a second of updates, which earlier versions did not record.
    """
    steps = [run.result['steps'] for run in row.done] or [row.config.train.steps]
    speeds = [run.result['tokens_per_second'] for run in row.done if run.result.get('tokens_per_second')]
    return {
        'params': row.done[0].result['params'] if row.done else None,
        'FLOPs': cost.update_flops(row.config) * statistics.mean(steps),
        'speed': statistics.mean(speeds) if speeds else None,
        'seconds': statistics.mean(run.result['seconds'] for run in row.done) if row.done else None,
    }


def _costs(comparison: Comparison) -> list[Column]:
    ours = ' ours' if comparison.several else ''
    rows = [costs(row) for row in comparison.rows]
    papers = [row.row.paper for row in comparison.rows]

    def texts(numbers: Sequence[dict], key: str, form: str, unit: str = '', divisor: float = 1) -> list[str]:
        return [_text(each.get(key), lambda value: f'{value / divisor:{form}}{unit}') for each in numbers]

    columns = {
        'params': texts(papers, 'params', 'g', 'M'),
        f'params{ours}': texts(rows, 'params', '.2f', 'M', 1e6),
        'FLOPs': texts(papers, 'FLOPs', '.1e'),
        f'FLOPs{ours}': texts(rows, 'FLOPs', '.2e'),
        'tokens/s': texts(rows, 'speed', ',.0f') if comparison.table.speed else [],
        'hours': texts(rows, 'seconds', '.3g', divisor=3600),
    }
    return [Column(heading, 'cost', cells) for heading, cells in columns.items()]


def row_records(comparison: Comparison, tests: SentenceTests) -> list[dict[str, object]]:
    """The rows for programs: numbers without rounding, and None where there is none."""
    others = sorted(set().union(*(row.changed for row in comparison.rows)) - set(comparison.options))
    records = []
    by_score = [(score.measure, summaries(comparison, score, tests)) for score in comparison.scores]
    for i, row in enumerate(comparison.rows):
        record = {'row': row.row.name, 'source': row.row.source or None}
        record |= {key: tables.value_of(row.config, key) for key in (*comparison.options, *others)}
        record |= {'runs_done': len(row.done), 'runs_missing': len(row.missing)}
        record |= {'scored_as_base': not row.is_unlike if row.done else None}
        for measure, rows in by_score:
            for key, value in rows[i].record().items():
                if measure.significance or key not in ('p_greatest', 'runs_disagree'):
                    record[f'{measure.heading}_{key}'] = value
        millions, of_row = row.row.paper.get('params'), costs(row)
        records.append(
            record
            | {
                'params_paper': millions and millions * 1e6,
                'params': of_row['params'],
                'FLOPs_paper': row.row.paper.get('FLOPs'),
                'FLOPs': of_row['FLOPs'],
                'training_seconds_mean': of_row['seconds'],
            }
        )
    return records


def run_records(comparison: Comparison) -> list[dict[str, object]]:
    """Every run for programs, with its own scores."""
    split, records = comparison.table.split, []
    for row in comparison.rows:
        for run in row.done:
            entry = run.scores(split)
            scores = {score.measure.heading: score.measure.value(entry) for score in comparison.scores}
            about = {'row': row.row.name, 'run': run.name, 'seed': run.result['config']['train']['seed']}
            how = {'checkpoint': entry['checkpoint'], 'unlike_base': run.unlike or None}
            records.append({**about, **scores, **how, 'training_seconds': run.result['seconds']})
    return records
