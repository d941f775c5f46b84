"""Computes the cost of omissions: of parts of training, of averaging and search, and in counting BLEU.

Parts of training are the rows of a sweep of the table `omissions`. Averaging and search are varied by later
evaluations (`run.py evaluate`) of its base runs, whose outputs are also counted by other rules of BLEU.
"""

import functools
import math
import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence

from etils import epy

from experiments.evidence.committed import RESULTS
from experiments.evidence.sections import Section, interval, table
from experiments.reports import differences, results
from experiments.reports.results import Comparison
from experiments.sweeps import runs
from experiments.tables import rows as tables
from transformer import files
from transformer.config import ConfigError
from transformer.tasks.contract import Measure
from transformer.tasks.translation import bleu

# Imported on first use, because it takes half a second.
with epy.lazy_imports():
    import sacrebleu

COMMITTED = RESULTS / 'omissions-multi30k'
# In the sweep's folder: BLEU of base's outputs by each rule and seed.
FILE = 'bleu_by_rule.json'
# A score of runs, by seed.
BySeed = Mapping[object, float]
_NOTE = (
    'Means over seeds (their number); Δ: the mean difference from {} of the seeds that both have, and its '
    '95 % interval, which needs two seeds.'
)
_RECOUNT = 'Counted for other seeds than base now has; --count counts again.'


def rules(language: str) -> dict[str, Callable[[Sequence[str], Sequence[str]], float]]:
    """Returns functions of hypotheses and references that count BLEU, by the name of their rule."""
    moses, quotes, compounds = bleu.moses_tokenizer(language), bleu.normalize_quotes, bleu.split_compounds
    metrics = {
        '13a': (bleu.sacre(language), str),
        '13a, without case': (bleu.sacre(language, lowercase=True), str),
        'intl': (sacrebleu.BLEU(tokenize='intl', force=True), str),
        'Moses': (bleu.multi(), moses),
        'Moses, plain quotes': (bleu.multi(), lambda line: moses(quotes(line))),
        'Moses, split compounds': (bleu.multi(), lambda line: compounds(moses(line))),
        'Moses, both': (bleu.multi(), bleu.papers_tokenizer(language)),
    }
    return {name: functools.partial(_score, *metric) for name, metric in metrics.items()}


def _score(
    metric: 'sacrebleu.BLEU',
    change: Callable[[str], str],
    hypotheses: Sequence[str],
    references: Sequence[str],
) -> float:
    """Computes BLEU of changed lines."""
    return metric.corpus_score([*map(change, hypotheses)], [[*map(change, references)]]).score


def count(folder: pathlib.Path) -> None:
    """Counts BLEU of the outputs of base's runs by every rule, and writes it to `FILE`.

    Raises:
      ConfigError: no run of base is done, or one lacks its output.
    """
    sweep = _read(folder)
    base, split = sweep.base_row(), sweep.table.split
    if 'bleu' not in {each.measure.name for each in sweep.scores}:
        raise ConfigError(f'{folder}: its outputs have no BLEU')
    references = differences.read_texts(base.counted[0].folder, split)['target']
    outputs = {run.pair: differences.read_output(run, split, len(references)) for run in base.counted}
    counted = {
        name: {seed: rule(output, references) for seed, output in outputs.items()}
        for name, rule in rules(base.config.data.target_language).items()
    }
    files.write_json(folder / FILE, counted)


def _read(folder: pathlib.Path) -> Comparison:
    sweep = results.of_sweep(runs.read_sweep(folder), folder)
    if sweep.table is not tables.TABLES['omissions']:
        raise ConfigError(f'{folder}: not a sweep of the table omissions')
    if not sweep.base_row() or not sweep.base_row().done:
        raise ConfigError(f'{folder}: no run of base is done')
    return sweep


def sections(folder: pathlib.Path = COMMITTED) -> list[Section]:
    """Makes the tables of costs: in training, in averaging and search, and in counting BLEU."""
    sweep = _read(folder)
    base, split = sweep.base_row(), sweep.table.split
    trained = {
        row.row.name: {run.pair: run.scores(split) for run in row.counted}
        for row in sweep.rows
        if row.done and not row.is_unlike
    }
    evaluated = {'base': trained['base']}
    for run in base.counted:
        for name, entry in run.result.get('evaluations', {}).items():
            if entry.get('split') == split:
                evaluated.setdefault(name.removeprefix(f'{split}.'), {})[run.pair] = entry
    measures = [each.measure for each in sweep.scores]
    headings = [measure.heading for measure in measures]

    def of_entries(rows: Mapping[str, Mapping[int, Mapping]]) -> dict[str, list[BySeed]]:
        return {name: [_by_seed(entries, measure) for measure in measures] for name, entries in rows.items()}

    left_out = ', '.join(row.row.name for row in sweep.rows if row.row.name not in trained)
    notes = [f'Without a finished run that is scored as base: {left_out}.'] if left_out else []
    found = [
        _section('Base and what is trained otherwise', of_entries(trained), headings, notes),
        _section('Base with another checkpoint or search', of_entries(evaluated), headings),
    ]
    if (folder / FILE).exists():
        rules = files.read_json(folder / FILE, {'*': {'*': float}})
        seeds = {str(run.pair) for run in base.counted}
        notes = [] if all(set(scores) == seeds for scores in rules.values()) else [_RECOUNT]
        counted = {name: [scores] for name, scores in rules.items()}
        if counted:
            heading = 'The same outputs of base, BLEU counted otherwise'
            found.append(_section(heading, counted, ('BLEU',), notes))
    return found


def _by_seed(entries: Mapping[int, Mapping], measure: Measure) -> BySeed:
    """Returns a score of entries of result.json, where they have a finite one."""
    values = {seed: measure.value(entry) for seed, entry in entries.items()}
    return {seed: value for seed, value in values.items() if value is not None and math.isfinite(value)}


def _section(
    heading: str, rows: Mapping[str, Sequence[BySeed]], scores: Sequence[str], notes: Sequence[str] = ()
) -> Section:
    """Makes a table of scores, in which each row is compared with the first."""
    first, cells = next(iter(rows)), []
    for name, of_row in rows.items():
        pairs = zip(of_row, rows[first], strict=True)
        cells.append((name, *(text for pair in pairs for text in _cells(*pair))))
    headings = [text for score in scores for text in (score, f'Δ{score}', f'Δ{score} 95%')]
    return Section(heading, table('', cells, *headings), [_NOTE.format(first), *notes])


def _cells(scores: BySeed, of_first: BySeed) -> tuple[str, str, str]:
    """Formats the mean of a row's scores, its difference from the first row's, and the interval of that."""
    mean = f'{statistics.mean(scores.values()):.2f} ({len(scores)})' if scores else ''
    shared = [scores[seed] - of_first[seed] for seed in scores if seed in of_first]
    if not shared or scores is of_first:
        return mean, '', ''
    test = differences.seed_test(shared)
    return mean, f'{statistics.mean(shared):+.2f}', interval(test.low, test.high, '+.2f') if test else ''
