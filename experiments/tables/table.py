"""Defines tables of trainings: rows, measures, and the scores that a report prints for them."""

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

from transformer import config as configs
from transformer.config import Config, ConfigError, declare
from transformer.tasks import contract

# The options that have columns of their own in plans and reports.
OPTIONS = (
    'model.N', 'model.d_model', 'model.d_ff', 'model.h', 'model.d_k', 'model.d_v', 'model.P_drop',
    'train.eps_ls', 'train.steps',
)  # fmt: skip

NONE = '-'  # printed where an option has no value
PAPER_COSTS = ('params', 'FLOPs')  # numbers of the paper that are no scores
# Fields of a report's records, which no measure can be called.
RECORD_FIELDS = ('row', 'run', 'seed', 'checkpoint', 'unlike_base', 'training_seconds', *PAPER_COSTS)
TEST_SETS = ('newstest2013', 'newstest2014')  # on which public trainings show the noise


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table: its changes of the base model, and the paper's numbers for it."""

    name: str
    changes: dict[str, object]  # such as {'model.h': 4}, with numbers for `scale`
    # By name: PPL and BLEU (Table 3, on newstest2013), EN-DE and EN-FR (BLEU of Table 2, on newstest2014),
    # params (in millions), FLOPs.
    paper: dict[str, float] = dataclasses.field(default_factory=dict)
    source: str = ''  # where the row comes from
    # The scale of the row's numbers; other scales change them in proportion. With None they hold everywhere.
    scale: str | None = None
    # Further changes at single scales, by name, used as they are; they override `changes`.
    at_scale: dict[str, dict[str, object]] = dataclasses.field(default_factory=dict)


class Measure(NamedTuple):
    """A score that a table prints in its own way, or that is not among the task's measures."""

    name: str  # the heading of its columns
    meaning: str
    path: str  # in a split's scores in result.json, such as bleu.sacrebleu.score
    decimals: int
    paper: tuple[str, ...] = ()  # keys of `Row.paper`; the first key that a row has is used
    paper_decimals: int = 2
    # Whether to test differences from base also by paired bootstrap over sentences; possible for one measure
    # per table, whose path must equal the path of a task's measure with such a test.
    significance: bool = False


class Table(NamedTuple):
    """Rows, and the scores that a report prints for them."""

    rows: tuple[Row, ...]
    split: str  # the split whose scores are printed: dev or test
    measures: tuple[str | Measure, ...] = ()  # own, or names of the task's; all with a heading if empty
    citation: str = ''  # where the numbers in `Row.paper` are printed
    base: str = 'base'  # the row with which the others are compared, if their languages are the same
    speed: bool = False  # whether to print each row's training speed in tokens per second
    # The test set of the printed numbers, if it is one of TEST_SETS (see evidence/noise.py):
    # reports then mark printed differences that may be chance.
    noise: str = ''


class Score(NamedTuple):
    """A measure as a report prints it."""

    measure: contract.Measure  # with a heading
    paper: tuple[str, ...]  # as in `Measure`
    paper_decimals: int

    def paper_number(self, row: Row) -> float | None:
        """Returns the paper's number for a row, or None if there is none."""
        return next((row.paper[key] for key in self.paper if key in row.paper), None)


def printed_scores(table: Table, task: contract.Task) -> tuple[Score, ...]:
    """Returns the scores that a report prints for a table; measures that the task lacks are ignored.

    One is tested over sentences: the one that asks for it, or else the first that the task can test.
    """
    named = {measure.name: measure for measure in task.measures}
    default = [measure.name for measure in task.measures if measure.heading is not None]
    printed = []
    for measure in table.measures or default:
        if isinstance(measure, Measure):
            printed.append(_own_score(measure, task))
        elif measure in named:
            heading = named[measure].heading or measure
            papers = [row.paper[heading] for row in table.rows if heading in row.paper]
            # All of the paper's numbers in a column have as many decimals as the longest one.
            decimals = max((len(str(paper).partition('.')[2]) for paper in papers), default=0)
            printed.append(Score(named[measure]._replace(heading=heading), (heading,), decimals))
    asking = [one.name for one in table.measures if isinstance(one, Measure) and one.significance]
    testable = [score for score in printed if score.measure.significance]
    tested = next((s for s in testable if s.measure.name in asking), next(iter(testable), None))
    untested = lambda score: score._replace(measure=score.measure._replace(significance=None))
    return tuple(score if score is tested else untested(score) for score in printed)


def _own_score(measure: Measure, task: contract.Task) -> Score:
    path = tuple(measure.path.split('.'))
    tests = {m.path: m.significance for m in task.measures if m.significance}
    if measure.significance and path not in tests:
        testable = ', '.join(map('.'.join, tests)) or 'none'
        raise ConfigError(f'{measure.name}: significance: tested over sentences can be {testable}')
    test = tests[path] if measure.significance else None
    about = measure.name, measure.meaning, path, measure.decimals
    with_heading = contract.Measure(*about, heading=measure.name, significance=test)
    return Score(with_heading, measure.paper, measure.paper_decimals)


def values_of(config: Config, keys: Iterable[str]) -> dict[str, object]:
    """Returns the values of options by name, None for those that other options make meaningless."""
    flat = configs.flatten(config)
    return {key: flat[key] if declare.has_meaning(configs.OPTIONS, flat, key) else None for key in keys}


def shown(key: str, value: object) -> str:
    """Formats a value of an option for tables."""
    if value is None:
        return NONE
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f'{value / 1000:g}K' if key == 'train.steps' and value >= 1000 else f'{value:g}'
