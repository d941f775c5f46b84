"""The contract of a task: what training, evaluation and the command line ask of it."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from transformer.config import Config


class Hypothesis(NamedTuple):
    """A text that a model wrote, and its score: log p, length-normalised by beam search."""

    text: str
    score: float


class Likelihood(NamedTuple):
    """The pieces of a given text, its end among them, and log p of each; nan where it was not computed."""

    pieces: list[str]
    logp: Float[np.ndarray, ' pieces']

    @property
    def total(self) -> float:
        """log p of the text."""
        return float(np.sum(self.logp, dtype=np.float64))


class Evaluation(NamedTuple):
    """One evaluation of a model: its name and its entry in result.json, and the lines that it wrote."""

    name: str
    entry: dict[str, object]
    lines: list[str]


class Task(NamedTuple):
    """What a model is trained to do. Every function but `sums` runs on the host.

    prepare: `(config, cache, progress, download=..., given=...)` to the tokenised fields of every split,
      `corpus.Dataset`; the last two are those of `corpus.prepare`.
    batches: `(config, dataset, split)` to the batches of a split, by step.
    sums: `(config, params, batch, key)` to the sums over a batch: `loss` and `weight`, by which it is
      divided, and whatever else adds up. It is traced. Without a key there is no dropout and no label
      smoothing.
    decoding: `(config, split)` to the options of decoding with which `evaluate` scores the split, by name.
    evaluate: `(trained, dataset, split)` to scores (JSON) and the lines of a text file.
    dev_scores: `(trained, dataset)` to further numbers of dev, every `train.bleu_every` updates.
    describe: the scores of `evaluate` to lines for people.
    compare: `(config, evaluation, evaluation, texts, show)` of the same texts to a report (JSON) and
      lines for people, with at most `show` examples.
    examples: `(trained, dataset)` to lines that show what was learned.
    writer: `trained` to the object that `transformer.load` gives. Its `hypotheses(texts, first=...,
      on_done=..., ...)` gives a list of `Hypothesis` for each text. `first` is the number of the first
      text; `on_done` gets how many more texts are done.
    likelihoods: `(trained, examples, numbers, on_done)` to the `Likelihood` of each example's last text
      given its others; it has one text for each field of a batch. `numbers` has the examples' line
      numbers, which warnings name; `on_done` gets how many more examples are done.
    attended: `(trained, sentence)` to the sentence shown, the model's output (empty if none) and every
      `Attended`; None stands for the task's own choice.
    views: `(trained, sentence, word, target_word)` to what a figure of attention shows; None stands for
      the task's own choice.
    pictured: `prepared` to the sentences whose attention is drawn after a training; there may be none.
    """

    prepare: Callable
    batches: Callable
    sums: Callable
    decoding: Callable
    evaluate: Callable
    dev_scores: Callable
    describe: Callable
    compare: Callable
    examples: Callable
    writer: Callable
    likelihoods: Callable
    attended: Callable
    views: Callable
    pictured: Callable


@functools.lru_cache(maxsize=16)
def bound(sums: Callable, config: Config) -> Callable:
    """`(params, batch, key) -> Sums` for one config: the same object for the same arguments.

    Programs that were compiled for it are thus found again.
    """
    return functools.partial(sums, config)
