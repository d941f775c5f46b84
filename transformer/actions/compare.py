"""Compares two trained models on the same data: scores, significance, and the examples that differ most."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from transformer import config as configs
from transformer.actions import data as run_data
from transformer.actions.evaluate import check_evaluation, check_fields, evaluate, evaluate_files
from transformer.config import TASKS, ConfigError
from transformer.data import codec, text_input
from transformer.data.arrays import Dense
from transformer.data.codec import Labels
from transformer.data.dataset import Dataset
from transformer.data.tokenizers.base import Tokenizer
from transformer.runs import restore, workdir
from transformer.runs.workdir import Run
from transformer.tasks import bootstrap, task_of
from transformer.tasks.contract import Evaluation, Measure

NAMES = ('A', 'B')


class Side(NamedTuple):
    """One of the two models compared: a work directory and the name of a checkpoint."""

    run: Run
    choice: str


def compare(
    sides: tuple[Side, Side],
    what: str | dict[str, str],
    changes: Mapping[str, object] | None = None,
    show: int = 0,
) -> tuple[dict[str, object], list[str]]:
    """Compares two models on a split or on files.

    An earlier evaluation of the same checkpoint with the same options is reused; a new evaluation is
    recorded.

    Args:
      what: a split, or files as for `evaluate_files`.
      show: how many of the examples that differ most to report.

    Returns:
      A JSON report, and lines for people.
    """
    tasks = [side.run.config.train.task for side in sides]
    if tasks[0] != tasks[1]:
        raise ConfigError(
            f'{sides[1].run.folder}: train.task={tasks[1]}, but {sides[0].run.folder} has {tasks[0]}'
        )
    for side in sides:
        check_evaluation(side.run, side.choice, changes)
    split = what if isinstance(what, str) else text_input.SPLIT
    datasets = [_dataset(side.run, what, changes) for side in sides]
    texts, others = (dataset.texts(split) for dataset in datasets)
    folders = ' and '.join(str(side.run.folder) for side in sides)
    if texts != others:
        remedy = '; name files instead' if run_data.own_files(sides[0].run.config) else ''
        raise ConfigError(f'{folders} have different texts of {what}{remedy}')
    if different := [field for field in _other_values(*datasets, split) if field not in texts]:
        raise ConfigError(f'{folders}: {what} has another {different[0]} in some examples')
    first, second = evaluations = [_evaluation(side, what, changes) for side in sides]
    config = sides[0].run.config
    measures = [one for one in task_of(config).measures if one.value(first.entry) is not None]
    made_by = {
        name.lower(): {'workdir': str(side.run.folder), 'name': evaluation.name}
        | {k: evaluation.entry[k] for k in ('checkpoint', 'steps', 'decode') if k in evaluation.entry}
        for name, side, evaluation in zip(NAMES, sides, evaluations, strict=True)
    }
    report = made_by | {
        'notes': list(incomparable(sides, evaluations)),
        'scores': score_differences(measures, first.entry, second.entry),
        'significance': list(_significance(config, measures, texts, first, second)),
        'examples': _examples(measures, texts, first.lines, second.lines, show),
    }
    return report, list(_describe(report, measures))


def score_differences(
    measures: Sequence[Measure], first: Mapping, second: Mapping
) -> dict[str, dict[str, float]]:
    """Returns both scores and the second minus the first, for each measure that both entries have."""
    both = {measure.name: (measure.value(first), measure.value(second)) for measure in measures}
    return {n: {'a': a, 'b': b, 'difference': b - a} for n, (a, b) in both.items() if None not in (a, b)}


def incomparable(sides: Sequence[Side], evaluations: Sequence[Evaluation]) -> Iterator[str]:
    """Yields reasons, apart from the models, why their scores differ or cannot be compared."""
    group = TASKS[sides[0].run.config.train.task].group
    for key in ('decode', 'context', group):
        first, second = (evaluation.entry.get(key, {}) for evaluation in evaluations)
        # Earlier versions recorded fewer options.
        differ = [name for name in first if name in second and first[name] != second[name]]
        if differ:
            values = ', '.join(f'{name} {first[name]} and {second[name]}' for name in differ)
            yield f'the two were evaluated with different options of {key}: {values}'
    first, second = (side.run.codecs for side in sides)
    differ = [first[field] for field in first if not codec.same({field: first[field]}, second)]
    if any(isinstance(one, Tokenizer) for one in differ):
        yield 'the two have different tokenizers: loss and perplexity per piece cannot be compared'
    if any(isinstance(one, Labels) for one in differ):
        yield 'the two have different classes: their scores cannot be compared'


def _significance(
    config, measures: Sequence[Measure], texts: Mapping, first: Evaluation, second: Evaluation
) -> Iterator[dict[str, object]]:
    """Yields the paired bootstrap of the first measure that has one."""
    for measure in measures:
        if measure.significance:
            ((difference, p),) = measure.significance(config, texts, first.lines, [second.lines])
            test = {'difference': difference, 'p': p, 'resamples': bootstrap.RESAMPLES}
            yield {'measure': measure.name, **test}
            return


def _examples(
    measures: Sequence[Measure], texts: Mapping, first: Sequence[str], second: Sequence[str], show: int
) -> list[dict[str, object]]:
    """Returns the examples whose scores differ most, largest difference first. Lines count from 0."""
    measure = next((m for m in measures if m.of_lines), None)
    differ = [i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b]
    if measure is None or not show or not differ:
        return []
    chosen = {field: [lines[i] for i in differ] for field, lines in texts.items()}
    a, b = (measure.of_lines(chosen, [lines[i] for i in differ]) for lines in (first, second))
    rows = [
        {
            'line': line,
            **{field: lines[i] for field, lines in chosen.items()},
            'a': first[line],
            'b': second[line],
            measure.name: [a[i], b[i]],
            'difference': b[i] - a[i],
        }
        for i, line in enumerate(differ)
    ]
    return sorted(rows, key=lambda row: (-abs(row['difference']), row['line']))[:show]


def _describe(report: Mapping, measures: Sequence[Measure]) -> Iterator[str]:
    """Yields a report as lines for people, with a table of at most 80 columns."""
    named = {measure.name: measure for measure in measures}
    for name, side in zip(NAMES, (report['a'], report['b']), strict=True):
        yield f'{name}: {side["workdir"]}, {side["name"]}'
    yield from report['notes']
    width = max((len(named[name].meaning) for name in report['scores']), default=0)
    yield f'{"":<{width}}  {"A":>10}  {"B":>10}  {"B minus A":>10}'
    for name, row in report['scores'].items():
        measure = named[name]
        a, b, difference = map(measure.format, row.values(), ('', '', '+'))
        yield f'{measure.meaning:<{width}}  {a:>10}  {b:>10}  {difference:>10}'
    for test in report['significance']:
        measure = named[test['measure']]
        yield (
            f'paired bootstrap of {measure.meaning} over the sentences ({test["resamples"]:,} resamples; '
            f'variance between seeds is ignored): B minus A {measure.format(test["difference"], "+")}, '
            f'p = {test["p"]:.3f}'
        )
    by_line = next((measure for measure in measures if measure.of_lines), None)
    if report['examples']:
        yield f'what differs most, by the {by_line.meaning} of A and B:'
    for row in report['examples']:
        a, b = row[by_line.name]
        yield (
            f'line {row["line"] + 1}: {by_line.format(a)} and {by_line.format(b)} '
            f'({by_line.format(row["difference"], "+")})'
        )
        for key, text in row.items():
            if isinstance(text, str):
                yield f'  {key.upper() if key in ("a", "b") else key:<10} {text}'


def _dataset(run: Run, what: str | dict[str, str], changes: Mapping[str, object] | None) -> Dataset:
    """Returns the dataset that has a split, or is read from files."""
    if isinstance(what, str):
        run_data.check_split(run, what)
        return run_data.of_run(run, changes)
    check_fields(run, what)
    reading = task_of(run.config).reading(run.config)
    return text_input.read(what, run.config.data, reading, run.codecs)


def _other_values(first: Dataset, second: Dataset, split: str) -> Iterator[str]:
    """Yields the fields of labels, numbers or pictures of which a split has other values in two datasets.

    Pictures of another size are not compared, nor labels with other classes, nor with other tokenizers what
    has no codec, such as places of answers.
    """
    alike = codec.same(first.codecs, second.codecs)
    for field, values in first.splits[split].fields.items():
        other, own = second.splits[split].fields.get(field), first.codecs[field]
        if not (isinstance(values, Dense) and isinstance(other, Dense)):
            continue
        comparable = codec.same({field: own}, second.codecs) if own else alike
        same_form = values.values.shape[1:] == other.values.shape[1:]
        if comparable and same_form and not np.array_equal(values.values, other.values):
            yield field


def _evaluation(side: Side, what: str | dict[str, str], changes: Mapping[str, object] | None) -> Evaluation:
    """Returns an earlier evaluation of the same checkpoint with the same options, or evaluates anew."""
    run = side.run
    config = restore.changed(run.config, changes or {})
    origin, options = restore.origin(run, side.choice), configs.evaluation_options(config)
    result, split = run.result(), what if isinstance(what, str) else None
    texts = split or text_input.name_of(text_input.identity(what))
    name = workdir.evaluation_name(run, config, texts, origin.name)
    known = {name: result.get('evaluations', {}).get(name, {})}
    # Without the training's config, the options of its scores are unknown.
    if split in result.get('scores', {}) and 'config' in result:
        scored = result['scores'][split]
        trained = configs.from_json(json.dumps(result['config']))
        known = {
            f'{split}.{scored["checkpoint"]}': scored | {'options': configs.evaluation_options(trained)}
        } | known
    for name, entry in known.items():
        made_by = (entry.get('checkpoint'), entry.get('steps'), entry.get('options'))
        # Lines without a hash, of an earlier version, need not be those that were scored.
        if made_by == (origin.name, origin.steps, options) and workdir.LINES in entry:
            try:
                return Evaluation(name, entry, workdir.read_lines(run.folder, name, entry))
            except (OSError, ConfigError) as error:
                logging.warning('%s; scored anew', error)
    if split:
        return evaluate(run, [split], side.choice, changes)[0]
    return evaluate_files(run, what, side.choice, changes)
