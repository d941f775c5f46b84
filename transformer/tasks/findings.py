"""Findings of every task: what the length, losses, data and outputs of a training say about it."""

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Integer

from transformer.config import Config
from transformer.data.dataset import Dataset
from transformer.data.manifest import Manifest
from transformer.nn import models
from transformer.runs.restore import Trained
from transformer.tasks import contract

FALLING = 0.02  # the relative fall of the dev loss between the last two evaluations that is still fast
RISEN = 0.01  # the relative rise above the lowest dev loss that is more than noise
MANY_EPOCHS = 40  # the paper's base model reads WMT's 4.5 million pairs 20 times
FEW_TRAINED, FEW_OF_CLASS, FEW_SCORED = 1000, 50, 100  # examples
LEARNED = 0.1  # the share of a guess's loss by which a trained model's is lower
GUESSED = 0.02  # the most by which the accuracy of a model that guesses exceeds the best guess
MANY_EMPTY, MANY_EQUAL = 0.01, 0.5  # shares of outputs
_NO_USE = 'the model uses hardly anything that it reads'
_TRAIN_LONGER = 'train.steps; train.peak_lr or train.lr_constant, if a longer training does not help'


class Finding(NamedTuple):
    """A finding about a training or an evaluation.

    Attributes:
      seen: a fault, or a reason why scores are not comparable.
      matters: why it matters.
      change: the options or data to change.
    """

    seen: str
    matters: str
    change: str


class Outcome(NamedTuple):
    """A training, as its files record it: its length, its dev losses, its scores and outputs on one split.

    Attributes:
      steps: the updates of the scored checkpoint, or without scores of the training so far.
      epochs: the passes over the training data, or 0 before the training has ended.
      losses: the dev losses, each with its update.
      split: the split.
      entry: the split's scores, an entry of result.json, or {} if there are none.
      lines: the model's output lines.
    """

    steps: int
    epochs: float
    losses: list[tuple[int, float]]
    split: str
    entry: Mapping[str, object]
    lines: Sequence[str]

    def score(self, *path: str) -> float | None:
        """Returns the number at a path in the entry, or None if it is missing or not finite."""
        return contract.value_at(self.entry, path, (float, None))


def of_training(config: Config, manifest: Manifest, outcome: Outcome) -> Iterator[Finding]:
    """Yields what its length, its dev losses and the amount of its data say about any training."""
    yield from _updates(config, outcome)
    yield from _curve(outcome)
    if outcome.epochs > MANY_EPOCHS:
        yield Finding(
            f'{outcome.epochs:,.0f} epochs: the training read its data so often',
            "the paper's base model reads its data 20 times; reading little data often leads to overfitting",
            'more data, or train.steps',
        )
    examples = {split: entry['pairs'] for split, entry in manifest['splits'].items()}
    # A file as a document can be a whole corpus.
    if config.data.documents != 'files':
        yield from _examples(outcome.split, examples)


def _updates(config: Config, outcome: Outcome) -> Iterator[Finding]:
    train, steps = config.train, outcome.steps
    is_end = outcome.entry.get('checkpoint', 'latest') in ('latest', 'average')
    if steps < 2 * train.warmup_steps:
        yield Finding(
            f'{steps:,} updates with a warm-up of {train.warmup_steps:,}',
            'the learning rate was still rising, or had risen until shortly before',
            'train.steps, or train.warmup_steps',
        )
    elif steps < train.steps and is_end and not train.patience:
        yield Finding(f'{steps:,} of {train.steps:,} updates', 'training has not ended', 'run train again')


def _curve(outcome: Outcome) -> Iterator[Finding]:
    if len(outcome.losses) < 2:
        return
    (before, loss_before), (last, loss) = outcome.losses[-2:]
    best, lowest = min(outcome.losses, key=lambda point: point[1])
    if loss > (1 + RISEN) * lowest and outcome.entry.get('checkpoint') != 'best':
        yield Finding(
            f'dev loss rose from {lowest:.3f} after {best:,} updates to {loss:.3f} after {last:,}',
            'the model overfits: it learns its training data by heart',
            'train.scored=best, or train.patience; more data, model.P_drop, or a smaller model',
        )
    if loss_before > (1 + FALLING) * loss:
        yield Finding(
            f'dev loss still fell by {loss_before - loss:.3f} in the last {last - before:,} updates',
            'the training was too short',
            'train.steps',
        )


def _examples(split: str, examples: Mapping[str, int]) -> Iterator[Finding]:
    if examples.get('train', FEW_TRAINED) < FEW_TRAINED:
        yield Finding(
            f'{examples["train"]:,} training examples',
            'a model that starts from random numbers learns so few by heart',
            'data.train: more examples; or start from a trained model: --init_from',
        )
    if examples[split] < FEW_SCORED:
        yield Finding(
            f'{examples[split]:,} examples in {split}',
            f'one example changes a share by {100 / examples[split]:.1f} %: differences are chance',
            f'data.{split}: more examples',
        )


def few_of_class(manifest: Manifest, classes: int) -> Iterator[Finding]:
    """Yields a finding if a class has few training examples on average."""
    examples = manifest['splits']['train']['pairs'] / classes
    if examples < FEW_OF_CLASS:
        yield Finding(
            f'{examples:,.0f} training examples in a class, on average of {classes:,} classes',
            'so few do not show what the examples of a class have in common',
            'data.train: more examples or fewer classes; or start from a trained model: --init_from',
        )


def entropy(values: Integer[np.ndarray, ' n']) -> float:
    """Computes the loss, in nats, of the values' own frequencies: of a guess without any context."""
    _, counts = np.unique(values, return_counts=True)
    shares = counts / counts.sum()
    return float(-np.sum(shares * np.log(shares)))


def unlearned(outcome: Outcome, guess: float, what: str) -> Iterator[Finding]:
    """Yields a finding if the loss is hardly lower than `guess`, the loss of `what`."""
    loss = outcome.score('loss')
    # An infinite loss is None.
    if loss is None or loss > (1 - LEARNED) * guess:
        yield Finding(
            f'loss is {float("inf") if loss is None else loss:.3f}; {what} alone: {guess:.3f}',
            _NO_USE,
            _TRAIN_LONGER,
        )


def unlearned_pieces(outcome: Outcome, pieces: Integer[np.ndarray, ' n']) -> Iterator[Finding]:
    """Yields a finding if a model predicts the pieces of a text hardly better than their frequencies do."""
    yield from unlearned(outcome, entropy(pieces), 'the frequencies of pieces')


def of_writing(trained: Trained, dataset: Dataset, outcome: Outcome) -> Iterator[Finding]:
    """Yields a finding if a model predicts hardly more than frequencies, or writes the same or nothing."""
    field = models.fields(trained.config)[-1]
    yield from unlearned_pieces(outcome, dataset.splits[outcome.split].fields[field].tokens)
    yield from empty(outcome)
    yield from equal(outcome)


def guesses(accuracy: float | None, classes: Integer[np.ndarray, ' n']) -> Iterator[Finding]:
    """Yields a finding if a model is right hardly more often than an answer that is always the same."""
    most = np.unique(classes, return_counts=True)[1].max() / len(classes)
    if accuracy is not None and accuracy < most + GUESSED:
        yield Finding(
            f'{100 * accuracy:.1f} % right; the most frequent answer alone: {100 * most:.1f} %',
            _NO_USE,
            _TRAIN_LONGER,
        )


def empty(outcome: Outcome) -> Iterator[Finding]:
    """Yields a finding if outputs are empty."""
    share = sum(not line.strip() for line in outcome.lines) / max(len(outcome.lines), 1)
    if share > MANY_EMPTY:
        yield Finding(
            f'{100 * share:.1f} % of the outputs are empty',
            'the model ends before it begins: it expects the end in any place',
            'train.steps; the data, if it has empty examples',
        )


def equal(outcome: Outcome) -> Iterator[Finding]:
    """Yields a finding if most outputs are the same."""
    [(line, count)] = collections.Counter(outcome.lines).most_common(1) or [('', 0)]
    if count > 1 and count > MANY_EQUAL * len(outcome.lines):
        yield Finding(
            f'{100 * count / len(outcome.lines):.1f} % of the outputs are {line[:40]!r}',
            'the output does not depend on what the model reads',
            _TRAIN_LONGER,
        )


def repeat(lines: Sequence[str]) -> bool:
    """Returns whether in most lines fewer than half of the words are different ones."""
    words = [line.split() for line in lines]
    return sum(2 * len(set(line)) < len(line) for line in words) > len(words) / 2


def repeated(outcome: Outcome) -> Iterator[Finding]:
    """Yields a finding if most outputs repeat their words."""
    if repeat(outcome.lines):
        yield Finding(
            'in most outputs fewer than half of the words are different ones',
            'the model goes in circles: it knows which words there are, but not what it has written',
            _TRAIN_LONGER,
        )


def unanswered(outcome: Outcome, names: Sequence[str]) -> Iterator[Finding]:
    """Yields a finding if the answers are few of the classes of the split, which `names` has."""
    answered = len({*outcome.lines} & {*names})
    if 2 * answered <= len(names):
        yield Finding(
            f'the answers are {answered:,} of {len(names):,} classes',
            'the model knows only the frequent classes',
            'train.steps; more examples of the other classes',
        )
