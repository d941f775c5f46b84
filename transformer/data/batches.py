"""Builds the batch of a step, of examples, with noise or without (running.py: of running text).

A batch is a pure function of the corpus, the config and its step: no state has to be saved to
resume, and every process of a run can build its own part of it.
"""

import itertools
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int, Integer, Shaped

from transformer.config import Data
from transformer.data.arrays import Ragged
from transformer.data.dataset import Split
from transformer.data.rows import (
    Rows,
    bucketed,
    packed,
    padded_rows,
    permutation,
    row_generator,
    rows_per_batch,
    spans,
)
from transformer.tokens import Batch, Tokens


@runtime_checkable
class Batches(Protocol):
    """The batches of a split; each is a pure function of its step."""

    microbatches: int
    steps_per_epoch: int
    shapes: int  # the most shapes that its batches have

    def rows(self, step: int) -> int:
        """Returns the number of rows in a step's batch, including empty rows."""

    def batch(self, step: int, part: slice = slice(None)) -> Batch:
        """Builds the batch of a step, or only the rows `part` of it."""


class Ordered:
    """The order of a split's rows, from which each step takes the rows of its batch.

    In training, each epoch permutes the rows of every group, and the batches, by (seed, epoch).
    Without `train` there is one epoch, in order.

    Args:
      groups: the number of rows of each group, and how many of them make a batch.
    """

    def __init__(self, groups: list[tuple[int, int]], microbatches: int, seed: int, train: bool):
        self.microbatches = microbatches
        self.steps_per_epoch: int = sum(-(-rows // per_batch) for rows, per_batch in groups)
        self.shapes = len(groups)
        self._groups, self._seed, self._train = groups, seed, train
        self._orders: dict[int, tuple[np.ndarray, list[np.ndarray]]] = {}

    def rows(self, step: int) -> int:
        """Returns the number of rows in a step's batch, including empty rows."""
        return self._groups[self.place(step)[1]][1]

    def place(
        self, step: int, part: slice = slice(None)
    ) -> tuple[int, int, Int[np.ndarray, ' present'], Bool[np.ndarray, ' part']]:
        """Finds the rows of a step's batch, or of a part of it.

        Returns:
          The epoch, the group, the numbers of the rows in the group, and which places of the part they take.

        Raises:
          IndexError: the step is negative, or beyond the one epoch of an evaluation.
        """
        epoch, index = epoch_of(step, self.steps_per_epoch, self._train)
        batches, rows = self._epoch(epoch)
        group, start = batches[index].tolist()
        per_batch = self._groups[group][1]
        chosen, places = rows[group][start : start + per_batch], np.arange(per_batch)[part]
        exists = places < len(chosen)
        return epoch, group, chosen[places[exists]], exists

    def _epoch(self, epoch: int) -> tuple[Int[np.ndarray, 'steps 2'], list[np.ndarray]]:
        """Returns the (group, first row) of each step, and the order of the rows of each group."""
        if epoch not in self._orders:
            counts = [rows for rows, _ in self._groups]
            batches = np.array(
                [(g, start) for g, (rows, size) in enumerate(self._groups) for start in range(0, rows, size)]
            )
            orders = [np.arange(rows) for rows in counts]
            if self._train:
                batches = batches[permutation(len(batches), self._seed, epoch, 0)]
                orders = [permutation(n, self._seed, epoch, number) for number, n in enumerate(counts, 1)]
            # The previous epoch is kept: batches of the next epoch can be built ahead.
            previous = {old: order for old, order in self._orders.items() if old == epoch - 1}
            self._orders = {**previous, epoch: (batches, orders)}
        return self._orders[epoch]


def epoch_of(step: int, steps_per_epoch: int, train: bool) -> tuple[int, int]:
    """Returns a step's epoch, and its number in the epoch. An evaluation has one epoch."""
    epoch, number = divmod(step, steps_per_epoch)
    if step < 0 or (epoch and not train):
        raise IndexError(f'no batch of step {step}: there are {steps_per_epoch}')
    return epoch, number


class RowBatches(Ordered):
    """The batches of a split's examples, by step.

    Every epoch contains every example once, in rows laid out by `data.batching`: *packed*, several examples
    per row of `data.row_len` positions of the last text; *bucketed*, examples of similar lengths together
    (§5.1); or *padded*, examples in rows of one width, so that all batches have equally many. A batch has
    rows of one group: the largest multiple of `microbatches` that `data.batch_tokens` positions allow, of the
    last text or, if bucketed, of the widest (padded rows count as `data.max_len` wide), but at least
    `microbatches`. A group's last batch ends in empty rows. Rows are wide enough for the longest example, so
    that none is left out. Examples without texts have a row each.

    Args:
      positions: the number of positions of a row without texts.
    """

    def __init__(
        self, corpus: Split, data: Data, microbatches: int, seed: int, train: bool, *, positions: int = 1
    ):
        self.corpus = corpus
        self._ragged, self._dense = corpus.ragged(), corpus.dense()
        if not self._ragged:
            number, per_batch = len(corpus), rows_per_batch(data, positions, microbatches)
            self.groups = [Rows(np.arange(number), np.arange(number + 1), {}, per_batch)]
        elif data.batching == 'packed':
            self.groups = packed(corpus, data, microbatches, seed)
        elif data.batching == 'padded':
            self.groups = padded_rows(corpus, data, microbatches)
        else:
            self.groups = bucketed(corpus, data, microbatches)
        # The most examples of a row, by group.
        self._most = [int(np.diff(rows.offsets).max(initial=1)) for rows in self.groups]
        super().__init__([(len(rows), rows.per_batch) for rows in self.groups], microbatches, seed, train)

    def batch(self, step: int, part: slice = slice(None)) -> dict[str, Tokens | Shaped[np.ndarray, 'R ...']]:
        """Builds the rows of every field.

        Segments number the examples of a row of pieces. A field of one shape has a value for each example of
        a row, [R E ...], or [R ...] without texts; beside it `weight` is 1 for an example, else 0.
        """
        _, group, present, exists = self.place(step, part)
        rows = self.groups[group]
        counts = np.zeros(len(exists), np.int64)
        counts[exists] = rows.offsets[present + 1] - rows.offsets[present]
        members = rows.members[spans(rows.offsets[present], counts[exists])]
        batch = {name: lay(field, members, counts, rows.widths[name]) for name, field in self._ragged.items()}
        if self._dense:
            filled = np.arange(self._most[group]) < counts[:, None]
            for name, field in self._dense.items():
                values = np.zeros((*filled.shape, *field.values.shape[1:]), field.values.dtype)
                values[filled] = field.values[members]
                batch[name] = values if self._ragged else values[:, 0]
            weight = filled.astype(np.float32)
            batch['weight'] = weight if self._ragged else weight[:, 0]
        return batch


class NoisyBatches:
    """The batches of a split with noise that is drawn on the host, by step.

    In training the noise depends on (seed, step, row of the batch), so it differs between epochs. On other
    splits it depends on (seed, split, row of the split), so every loss on dev is over the same noise.

    Args:
      noise: `(batch, generators) -> batch`, with a random generator for each row.
    """

    def __init__(self, batches: Ordered, noise: Callable[..., Batch], seed: int, split: str):
        self._batches, self._noise = batches, noise
        self._seed, self._split = seed, split
        self.microbatches, self.shapes = batches.microbatches, batches.shapes
        self.steps_per_epoch = batches.steps_per_epoch
        steps = range(0 if split == 'train' else self.steps_per_epoch)
        self._first = [0, *itertools.accumulate(map(batches.rows, steps))]  # row of each step, in the split

    def rows(self, step: int) -> int:
        """Returns the number of rows in the batch of a step, including empty ones."""
        return self._batches.rows(step)

    def generators(self, step: int, part: slice = slice(None)) -> list[np.random.Generator]:
        """Returns the generator of each row of a step's batch, or of the rows that `part` selects."""
        where, first = (step, 0) if self._split == 'train' else (self._split, self._first[step])
        return [row_generator(self._seed, where, first + row) for row in range(self.rows(step))[part]]

    def batch(self, step: int, part: slice = slice(None)) -> Batch:
        """Builds the batch of a step, or only the rows that `part` selects."""
        return self._noise(self._batches.batch(step, part), self.generators(step, part))


def by_bits(noise: Callable[..., Batch], draws: int) -> Callable[..., Batch]:
    """Turns `(rows, bits) -> batch` into noise of texts, with 64-bit integers [R draws S] for rows [R S]."""

    def draw(batch: Batch, generators: list[np.random.Generator]) -> Batch:
        rows = batch['text']
        shape = draws, rows.tokens.shape[1]
        return noise(rows, np.stack([one.bit_generator.random_raw(shape) for one in generators]))

    return draw


def fill(batches: RowBatches) -> float:
    """Computes the share of real tokens among all positions of rows that are not empty, over all fields."""
    tokens = sum(len(field.tokens) for field in batches.corpus.ragged().values())
    positions = sum(len(rows) * sum(rows.widths.values()) for rows in batches.groups)
    return tokens / positions


def tokens_where(
    real: Bool[np.ndarray, 'R S'],
    tokens: Integer[np.ndarray, 'R S'],
    segments: Int[np.ndarray, 'R S'] | int,
    positions: Int[np.ndarray, '... S'],
) -> Tokens:
    """Makes rows whose other places are padding."""
    return Tokens(*(np.where(real, array, 0).astype(np.int32) for array in (tokens, segments, positions)))


def lay(field: Ragged, members: Int[np.ndarray, ' n'], counts: Int[np.ndarray, ' R'], width: int) -> Tokens:
    """Lays out a field's rows, where row r takes the next `counts[r]` of the `members`."""
    first = np.cumsum(counts) - counts
    row = np.repeat(np.arange(len(counts)), counts)
    begins = field.offsets[members]
    lengths = field.offsets[members + 1] - begins
    before = np.concatenate([[0], np.cumsum(lengths)])
    starts = row * width + before[:-1] - before[first][row]
    places = spans(starts, lengths)
    laid = Tokens(*(np.zeros((len(counts), width), np.int32) for _ in range(3)))
    laid.tokens.reshape(-1)[places] = field.tokens[spans(begins, lengths)]
    laid.segments.reshape(-1)[places] = np.repeat(1 + np.arange(len(members)) - first[row], lengths)
    laid.positions.reshape(-1)[places] = spans(np.zeros_like(lengths), lengths)
    return laid
