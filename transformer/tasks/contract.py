"""The contract of a task: four functions and a table of scores, and what may be added to them."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from transformer.config import Config


class Hypothesis(NamedTuple):
    """A text that a model wrote, or a label that it chose, and its score: the larger the better."""

    text: str
    score: float


class Likelihood(NamedTuple):
    """The pieces of a given text, its end among them, and log p of each; NaN where it was not computed."""

    pieces: list[str]
    logp: Float[np.ndarray, ' pieces']

    @property
    def total(self) -> float:
        """log p of the text."""
        return float(np.sum(self.logp, dtype=np.float64))


class Measure(NamedTuple):
    """A score of an evaluation: where result.json holds it, and how people read it.

    Attributes:
      name: in metrics (`dev_<name>`) and options (`train.best_by`).
      meaning: its name in tables.
      path: the keys that lead to it in an entry of result.json.
      decimals: that people see.
      better: whether a lower or a higher number is the better one.
      percent: whether people see a share as percent.
      watched: whether a training gets it of dev from `watch`, else from the means of `sums`.
      heading: of its columns in a report: its name if empty. None: only a table that names it has it.
      of_lines: `(texts, lines) -> number of each line`, where an output can be scored line by line.
      significance: `(config, texts, lines, others) -> [(difference, p), ...]`: how much the score of each
        of several other outputs differs from that of `lines`, and how likely such a difference is by the
        choice of the sentences.
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
        """The score in an entry of result.json; None if it has none."""
        return _at(entry, self.path)

    def interval(self, entry: Mapping) -> list[float] | None:
        """Its 95 % confidence interval, which stands beside it; None if there is none."""
        return _at(entry, (*self.path[:-1], 'interval'))

    def format(self, value: float | int, sign: str = '') -> str:
        """The score as people see it.

        Args:
          sign: '+' to show the sign of a difference.
        """
        scaled, unit = (100 * value, ' %') if self.percent else (value, '')
        return f'{scaled:{sign}.{self.decimals}f}{unit}'


class Scored(NamedTuple):
    """What an evaluation found.

    Attributes:
      scores: JSON; the measures of the task say where they are.
      how: JSON; what makes two evaluations comparable, such as the options of the search.
      lines: what the model wrote, or chose, for each example: the lines of a text file.
    """

    scores: dict[str, object]
    how: dict[str, object]
    lines: list[str]


class Evaluation(NamedTuple):
    """An evaluation in result.json: its name, its entry, and the lines that the model wrote."""

    name: str
    entry: dict[str, object]
    lines: list[str]


class Shown(NamedTuple):
    """What a training shows at its end: lines, and figures (matplotlib's) by name, drawn when called."""

    lines: list[str]
    figures: Mapping[str, Callable] = MappingProxyType({})


class Task(NamedTuple):
    """What a model is trained to do. Every function but `sums` runs on the host.

    Attributes:
      prepare: `(config, cache, progress, **how) -> Dataset`: the splits, their manifest and the codec. The
        keywords are those of `data.cache.prepare`.
      batches: `(config, dataset, split) -> Batches`: any step's batch at once.
      sums: `(config, params, batch, key) -> sums`, traced. The batch is [M, rows, ...], M the microbatches
        that share a program. The sums are `loss`, `weight`, by which all are divided, and whatever else adds
        up. A loss that couples rows couples those of one microbatch; `losses.all_rows` joins them for one
        that does not. A key means training (dropout, label smoothing).
      evaluate: `(trained, dataset, split) -> Scored`.
      measures: the scores of an evaluation. The first one decides which checkpoint is the best.
      watch: `(trained, dataset) -> numbers` of dev during a training, beside the means of `sums`.
      show: `(trained, dataset) -> Shown` after a training.
      verbs: what a trained model can do, by name: `(trained, ...) -> ...`. `transformer.load` gives them as
        methods, and run.py has commands for them.
    """

    prepare: Callable
    batches: Callable
    sums: Callable
    evaluate: Callable
    measures: tuple[Measure, ...]
    watch: Callable | None = None
    show: Callable | None = None
    verbs: Mapping[str, Callable] = MappingProxyType({})


@functools.lru_cache(maxsize=16)
def bound_sums(sums: Callable, config: Config) -> Callable:
    """`(params, batch, key) -> sums` for one config: the same object for the same arguments.

    Programs that were compiled for it are thus used again.
    """
    return functools.partial(sums, config)


def describe(measures: Sequence[Measure], entry: Mapping) -> Iterator[str]:
    """Yields a line for each score of an evaluation: its meaning, the score and its 95 % interval."""
    scores = {measure: value for measure in measures if (value := measure.value(entry)) is not None}
    width = max(len(measure.meaning) for measure in scores)
    for measure, value in scores.items():
        ends = map(measure.format, measure.interval(entry) or ())
        interval = f'  [{", ".join(ends)}]' if measure.interval(entry) else ''
        yield f'{measure.meaning:<{width}}  {measure.format(value):>10}{interval}'


def _at(entry: Mapping, path: Sequence[str]):
    for key in path:
        if key not in entry:
            return None
        entry = entry[key]
    return entry
