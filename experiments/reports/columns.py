"""Builds a report's columns for people and its records for programs, from the same numbers."""

import math
import statistics
from collections.abc import Callable, Sequence

from experiments.rendering.formats import Column, p_value
from experiments.reports import printed
from experiments.reports.differences import Difference, SentenceTests, differences
from experiments.reports.results import Comparison, Measured
from experiments.tables.table import NONE, Score, shown, values_of
from transformer import config as configs
from transformer.config import ConfigError
from transformer.nn import cost


def score_records(comparison: Comparison, score: Score, tests: SentenceTests) -> list[dict[str, object]]:
    """Makes a record of each row's numbers in a score, without rounding, and None where one is missing."""
    by_row, split, records = differences(comparison, score), comparison.table.split, []
    verdicts = printed.verdicts(comparison, score)
    for row in comparison.rows:
        name, values = row.row.name, list(row.scores(split, score.measure).values())
        several = len(values) > 1 and all(map(math.isfinite, values))
        difference = by_row.get(name, Difference())
        seeds = difference.over_seeds
        record = {
            'paper': score.paper_number(row.row),
            'mean': statistics.mean(values) if values else None,
            'stdev': statistics.stdev(values) if several else None,
            'runs': len(values),
            'difference_paper': difference.paper,
            'told_from_base_paper': verdicts[name].is_significant if name in verdicts else None,
            'difference': difference.ours,
            'difference_low': seeds and seeds.low,
            'difference_high': seeds and seeds.high,
            'p_over_seeds': seeds and seeds.p,
            'told_from_base': seeds and seeds.is_significant,
        }
        if score.measure.significance:
            signs = [sign for sign, _ in tests.get(name, ())]
            record['p_greatest'] = max((p for _, p in tests.get(name, ())), default=None)
            record['runs_disagree'] = min(signs) < 0 < max(signs) if signs else None
        records.append(record)
    return records


def columns(comparison: Comparison, tests: SentenceTests) -> list[Column]:
    """Makes the columns of the table, without empty columns and options that no row changes."""
    table = [Column('row', 'row', [row.row.name for row in comparison.rows]), *_options(comparison)]
    for score in comparison.scores:
        table += _score_columns(comparison, score, tests)
    return [column for column in [*table, *_costs(comparison)] if any(column.texts)]


def _options(comparison: Comparison) -> list[Column]:
    base = comparison.base_row() or comparison.rows[0]
    shown = []
    for key, name in short_names(comparison.options).items():
        texts = [option(row, base, key) for row in comparison.rows]
        changed = any(text for row, text in zip(comparison.rows, texts, strict=True) if row is not base)
        if changed and set(texts) != {NONE}:
            shown.append(Column(name, 'option', texts))
    others = [
        ', '.join(f'{k.partition(".")[2]}={v}' for k, v in row.changed.items() if k not in comparison.options)
        for row in comparison.rows
    ]
    return [*shown, Column('other', 'option', others)]


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Drops the groups from the names of options, unless two options share the rest."""
    short = [key.partition('.')[2] for key in keys]
    return {key: name if short.count(name) == 1 else key for key, name in zip(keys, short, strict=True)}


def option(row: Measured, base: Measured, key: str) -> str:
    """Formats an option of a row: its value as the row is written, and at this scale if that differs.

    Returns:
      The text: '' if the value is base's, and a dash if the option does not apply to the row's model.
    """
    written, base_written = (configs.flatten(config)[key] for config in (row.written, base.written))
    ours, theirs = (values_of(config, [key])[key] for config in (row.config, base.config))
    if ours is None:
        return NONE
    # A row that is written for no scale has only the values of this one.
    is_written = None not in (row.row.scale, base.row.scale)
    if row is not base and ours == theirs and (written == base_written or not is_written):
        return ''
    text = shown(key, written)
    return text if written == ours else f'{text} → {shown(key, ours)}'


def _score_columns(comparison: Comparison, score: Score, tests: SentenceTests) -> list[Column]:
    """Makes the columns of the paper's number and ours, and of their differences from base."""
    measure, decimals = score.measure, f'.{score.paper_decimals}f'
    records, several = score_records(comparison, score, tests), comparison.several
    signed = lambda value: measure.format(value, '+')

    def column(heading: str, key: str, form: Callable[[object], str]) -> Column:
        return Column(heading, 'score', [_text(record[key], form) for record in records])

    def ours(row: Measured, record: dict) -> str:
        if record['mean'] is None:
            return '' if row.done else _why_none(row)
        deviation = _text(record['stdev'], lambda value: f' ±{measure.format(value)}')
        return f'{measure.format(record["mean"])}{deviation}{"*" if row.is_unlike else ""}'

    def interval(record: dict) -> str:
        low, high = record['difference_low'], record['difference_high']
        return '' if low is None else f'[{signed(low)}, {signed(high)}]'

    name, mine = measure.heading, f'{measure.heading} ours' if several else measure.heading
    values = [ours(*both) for both in zip(comparison.rows, records, strict=True)]

    def difference(record: dict, whose: str, form: Callable[[object], str]) -> str:
        by_chance = record[f'told_from_base{whose}'] is False
        return _text(record[f'difference{whose}'], form) + ' ≈' * by_chance

    shown = [
        column(name, 'paper', lambda number: f'{number:{decimals}}'),
        Column(mine, 'score', values, [record['runs'] * several for record in records]),
        Column(f'Δ{name}', 'score', [difference(r, '_paper', lambda n: f'{n:+{decimals}}') for r in records]),
        Column(f'Δ{mine}', 'score', [difference(record, '', signed) for record in records]),
        Column(f'Δ{name} 95%', 'score', list(map(interval, records))),
    ]
    if measure.significance:
        counts = [len(tests.get(row.row.name, ())) * several for row in comparison.rows]
        worst = ['mixed' if r['runs_disagree'] else _text(r['p_greatest'], p_value) for r in records]
        shown += [column('p seeds', 'p_over_seeds', p_value), Column('p sentences', 'score', worst, counts)]
    return shown


def _why_none(row: Measured) -> str:
    state = row.missing[0].state
    return state if state != 'done' else 'missing'


def _text(value, form: Callable[[object], str]) -> str:
    return '' if value is None else form(value)


def costs(row: Measured) -> dict[str, float | None]:
    """Returns the parameters, FLOPs, speed and seconds of a row's training, exact, or None where unknown.

    FLOPs are counted for the updates made, which are fewer if a training stopped early. The speed is target
    tokens per second of updates, which earlier versions did not record.
    """
    steps = [run.result['steps'] for run in row.done] or [row.config.train.steps]
    speeds = [run.result['tokens_per_second'] for run in row.done if run.result.get('tokens_per_second')]
    try:
        flops = cost.update_flops(row.config) * statistics.mean(steps)
    except ConfigError:  # without a run, the number of classes is not known
        flops = None
    return {
        'params': row.done[0].result['params'] if row.done else None,
        'FLOPs': flops,
        'speed': statistics.mean(speeds) if speeds else None,
        'seconds': statistics.mean(run.result['seconds'] for run in row.done) if row.done else None,
    }


def _costs(comparison: Comparison) -> list[Column]:
    ours = ' ours' if comparison.several else ''
    rows = [costs(row) for row in comparison.rows]
    papers = [row.row.paper for row in comparison.rows]

    def texts(numbers: Sequence[dict], key: str, form: str, unit: str = '', divisor: float = 1) -> list[str]:
        return [_text(of_row.get(key), lambda n: f'{n / divisor:{form}}{unit}') for of_row in numbers]

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
    """Makes a record of each row for programs: numbers without rounding, and None where one is missing."""
    others = sorted(set().union(*(row.changed for row in comparison.rows)) - set(comparison.options))
    by_score = [(score.measure, score_records(comparison, score, tests)) for score in comparison.scores]
    records = []
    for i, row in enumerate(comparison.rows):
        scores = [(f'{measure.heading}_{key}', n) for measure, each in by_score for key, n in each[i].items()]
        millions, of_row = row.row.paper.get('params'), costs(row)
        records.append(
            {
                'row': row.row.name,
                'source': row.row.source or None,
                **values_of(row.config, (*comparison.options, *others)),
                'runs_done': len(row.done),
                'runs_missing': len(row.missing),
                'scored_as_base': not row.is_unlike if row.done else None,
                **dict(scores),
                'params_paper': millions and millions * 1e6,
                'params': of_row['params'],
                'FLOPs_paper': row.row.paper.get('FLOPs'),
                'FLOPs': of_row['FLOPs'],
                'tokens_per_second': of_row['speed'],
                'training_seconds_mean': of_row['seconds'],
            }
        )
    return records


def run_records(comparison: Comparison) -> list[dict[str, object]]:
    """Makes a record of each run for programs, with its own scores."""
    split, records = comparison.table.split, []
    for row in comparison.rows:
        for run in row.done:
            entry = run.scores(split)
            scores = {score.measure.heading: score.measure.value(entry) for score in comparison.scores}
            about = {'row': row.row.name, 'run': run.name, 'seed': run.result['config']['train']['seed']}
            how = {'checkpoint': entry['checkpoint'], 'unlike_base': run.unlike or None}
            records.append({**about, **scores, **how, 'training_seconds': run.result['seconds']})
    return records
