"""The contract of a task: four functions and a table of scores, plus optional functions and verbs."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from transformer import files
from transformer.config import Config
from transformer.data.dataset import Dataset
from transformer.progress import Progress
from transformer.runs.restore import Trained
from transformer.training import split_sums


class Hypothesis(NamedTuple):
    """A text that a model wrote, or a label that it chose, with its score (larger is better)."""

    text: str
    score: float


def ranked(names: Sequence[str], scores: np.ndarray, best: int, shown: Callable = float) -> list[Hypothesis]:
    """Returns the `best` names with the largest scores, best first, each with what `shown` makes of it."""
    order = np.argsort(-scores, kind='stable')[:best]
    return [Hypothesis(names[i], float(shown(scores[i]))) for i in order.tolist()]


class Likelihood(NamedTuple):
    """The pieces of a given text, its end included, and log p of each piece, NaN where not computed."""

    pieces: list[str]
    logp: Float[np.ndarray, ' pieces']

    @property
    def total(self) -> float:
        """Returns log p of the text."""
        return float(np.sum(self.logp, dtype=np.float64))


class Measure(NamedTuple):
    """A score of an evaluation, with its place in result.json and its format.

    Attributes:
      name: its name in metrics (`dev_<name>`) and options (`train.best_by`).
      meaning: its name in tables.
      path: its keys in an entry of result.json.
      decimals: digits printed after the point.
      better: whether lower or higher is better.
      percent: whether it is a share, printed in percent.
      watched: whether its dev value during training is from `watch`, not from the means of `sums`.
      heading: the title of its columns in reports; '' means its name, None hides it unless a table names it.
      of_lines: `(texts, lines) -> score of each line`, if an output can be scored line by line.
      significance: `(config, texts, lines, others) -> [(difference, p), ...]`: by how much the score of each
        other output differs from the score of `lines`, and how likely so large a difference is if only the
        choice of sentences causes it.
    """

    name: str
    meaning: str
    path: tuple[str, ...]
    decimals: int = 4
    better: Literal['lower', 'higher'] = 'lower'
    percent: bool = False
    watched: bool = False
    heading: str | None = ''
    of_lines: Callable | None = None
    significance: Callable | None = None

    def value(self, entry: Mapping) -> float | int | None:
        """Returns the score in an entry of result.json, or None if absent."""
        return value_at(entry, self.path, (float, None))

    def interval(self, entry: Mapping) -> list[float] | None:
        """Returns the score's 95 % confidence interval in an entry, or None if absent."""
        return value_at(entry, (*self.path[:-1], 'interval'), ([float], None))

    def format(self, value: float | int, sign: str = '') -> str:
        """Formats the score for people.

        Args:
          sign: '+' to show the sign of a difference.
        """
        scaled, unit = (100 * value, ' %') if self.percent else (value, '')
        return f'{scaled:{sign}.{self.decimals}f}{unit}'


CUT = Measure('cut', 'very long lines, cut', ('cut',), 0, heading=None)


class Scored(NamedTuple):
    """The result of an evaluation.

    Attributes:
      scores: JSON; the task's measures give the path of each score.
      how: JSON; the settings that comparable evaluations share, such as the options of the search.
      lines: the model's output, as the lines of a text file.
    """

    scores: dict[str, object]
    how: dict[str, object]
    lines: list[str]


class Evaluation(NamedTuple):
    """An evaluation in result.json: its name, its entry, and the model's output lines."""

    name: str
    entry: dict[str, object]
    lines: list[str]


class Shown(NamedTuple):
    """The output at the end of a training: lines, and functions that draw matplotlib figures, by name."""

    lines: list[str]
    figures: Mapping[str, Callable] = MappingProxyType({})


class Task(NamedTuple):
    """A task that a model is trained for. All functions but `sums` run on the host.

    Attributes:
      reading: `(config) -> Reading`: the type of each field, and the data options that decide the splits.
      batches: `(config, dataset, split) -> Batches`: random access to the batch of any step.
      sums: `(config, params, batch, key) -> sums`, traced. The batch is [M, rows, ...] for the M microbatches
        that share a program. The sums are `loss`, `weight` (which divides the others, but a sum x by its own
        `x_weight`) and any further totals. A loss can couple only rows of one microbatch; a loss that couples
        no rows can join the microbatches by `losses.all_rows`. A key means training (dropout, label
        smoothing).
      evaluate: `(trained, dataset, split, progress) -> Scored`; reports stages to `progress`.
      measures: the scores of an evaluation; `train.best_by` names the one that chooses the best checkpoint.
      watch: `(trained, dataset, progress) -> numbers`: scores on dev during a training, beside the means of
        `sums`; reports stages to `progress`.
      show: `(trained, dataset) -> Shown` after a training.
      findings: `(trained, dataset, outcome) -> findings`: yields what is wrong with the outputs and scores of
        a training, without its parameters, beside the findings of every task (`findings.of_training`).
      verbs: the functions of a trained model, by name: `(trained, ...) -> ...`. They are the methods of the
        model that `transformer.load` returns, and commands of run.py.
    """

    reading: Callable
    batches: Callable
    sums: Callable
    evaluate: Callable
    measures: tuple[Measure, ...]
    watch: Callable | None = None
    show: Callable | None = None
    findings: Callable | None = None
    verbs: Mapping[str, Callable] = MappingProxyType({})


@functools.lru_cache(maxsize=16)
def bound_sums(sums: Callable, config: Config) -> Callable:
    """Binds `sums` to a config. Equal arguments give the same object, so compiled programs are reused."""
    return functools.partial(sums, config)


def means_of(
    task: Task, trained: Trained, dataset: Dataset, split: str, progress: Progress
) -> dict[str, float]:
    """Computes a task's `sums` over the batches of a split, per unit of weight."""
    sums, rows = bound_sums(task.sums, trained.config), task.batches(trained.config, dataset, split)
    return split_sums.means(sums, trained.params, rows, progress)


def describe(measures: Sequence[Measure], entry: Mapping) -> Iterator[str]:
    """Yields a line for each score of an evaluation: its meaning, the score and its 95 % interval."""
    scores = {measure: value for measure in measures if (value := measure.value(entry)) is not None}
    width = max((len(measure.meaning) for measure in scores), default=0)
    for measure, value in scores.items():
        ends = ', '.join(map(measure.format, measure.interval(entry) or ()))
        interval = f'  [{ends}]' if ends else ''
        yield f'{measure.meaning:<{width}}  {measure.format(value):>10}{interval}'


def watched(measures: Sequence[Measure], entry: Mapping) -> dict[str, float]:
    """Returns the scores of an evaluation that are watched during training, by name."""
    scores = {measure.name: measure.value(entry) for measure in measures if measure.watched}
    return {name: float(value) for name, value in scores.items() if value is not None}


def value_at(entry: Mapping, path: Sequence[str], shape: object):
    """Returns the value at a path in an entry, which must have a shape, or None if there is none."""
    for depth, key in enumerate(path):
        files.check_shape(entry, dict, f'result.json: {".".join(path[:depth])}')
        if key not in entry:
            return None
        entry = entry[key]
    return files.check_shape(entry, shape, f'result.json: {".".join(path)}')
