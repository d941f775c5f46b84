"""Builds the batch of a step of a running text: its rows, cut texts, streams or overlapping windows."""

import numpy as np
from jaxtyping import Float

from transformer.config import Data
from transformer.data.batches import Ordered, epoch_of, tokens_where
from transformer.data.dataset import Split
from transformer.data.rows import random_bits, rows_per_batch, spans
from transformer.tokens import EOS, Tokens


class Running(Ordered):
    """The batches of the running text of a one-field split, by step.

    The examples follow one another in one text, which is cut into rows of `data.row_len` tokens. A training
    epoch reads the text as a circle from a place within its first row: (seed, epoch) draws the place and
    permutes the rows. So epochs are cut at different places, and each contains every token once. Without
    `train` there is one epoch, from the beginning, in order.

    Segments number the examples of a row; the beginning of the text always begins a segment. The text's
    last row ends in padding. One batch ends in empty rows: in training, not always the epoch's last.
    """

    def __init__(self, corpus: Split, data: Data, microbatches: int, seed: int, train: bool):
        ((self._name, self._text),) = corpus.fields.items()
        self._width = data.row_len
        rows = -(-len(self._text.tokens) // data.row_len)
        per_batch = rows_per_batch(data, data.row_len, microbatches)
        super().__init__([(rows, per_batch)], microbatches, seed, train)

    def batch(self, step: int, part: slice = slice(None)) -> dict[str, Tokens]:
        """Builds the rows of the field."""
        epoch, _, present, exists = self.place(step, part)
        size = len(self._text.tokens)
        column = np.arange(self._width)
        read = present[:, None] * self._width + column
        real = np.zeros((len(exists), self._width), bool)
        real[exists] = read < size
        places = np.zeros(real.shape, np.int64)
        first = _first_place(self._seed, epoch, self._width) if self._train else 0
        places[exists] = (read + first) % size
        # A segment begins with each example, and always in a row's first column.
        offsets = self._text.offsets
        begins = offsets[np.searchsorted(offsets, places, side='right') - 1] == places
        begins[:, 0] = True
        return {
            self._name: tokens_where(
                real,
                self._text.tokens[places],
                np.cumsum(begins, axis=1),
                column - np.maximum.accumulate(np.where(begins, column, 0), axis=1),
            )
        }


class Chunks(Ordered):
    """The batches of texts that the running text of a one-field split is cut into, by step.

    A row is a text of `length` tokens, the last one of fewer, and its end. The running text is that of
    `Running` without the ends of the examples.
    """

    def __init__(self, corpus: Split, data: Data, microbatches: int, seed: int, train: bool, length: int):
        ((self._name, self._text),) = corpus.fields.items()
        self._length = length
        # The place of each example's beginning in the running text, and at last the text's size.
        self._begins = self._text.offsets - np.arange(len(self._text.offsets))
        rows = -(-int(self._begins[-1]) // length)
        super().__init__(
            [(rows, rows_per_batch(data, data.row_len, microbatches))], microbatches, seed, train
        )

    def batch(self, step: int, part: slice = slice(None)) -> dict[str, Tokens]:
        """Builds the rows of the field, one segment each."""
        epoch, _, present, exists = self.place(step, part)
        size, column = int(self._begins[-1]), np.arange(self._length + 1)
        lengths = np.full(len(exists), -1)
        lengths[exists] = np.minimum(size - present * self._length, self._length)
        real = column <= lengths[:, None]
        places = np.zeros(real.shape, np.int64)
        first = _first_place(self._seed, epoch, self._length) if self._train else 0
        places[exists] = (present[:, None] * self._length + column + first) % size
        # Every example before a place has an end, which the running text lacks.
        places += np.searchsorted(self._begins, places, side='right') - 1
        tokens = np.where(column == lengths[:, None], EOS, self._text.tokens[places])
        return {self._name: tokens_where(real, tokens, 1, column)}


class Streams:
    """The batches of running text whose rows continue those of the batch before, by step (`data.carry`).

    The examples follow one another in one text, which is cut into streams of equal lengths, as many as a
    batch has rows. Row r of a batch is the next `data.row_len` tokens of stream r. A training epoch reads the
    text as a circle from a place that (seed, epoch) draws, and contains every token once. Without `train`
    there is one epoch, from the beginning.

    A stream is one segment. Positions count from its beginning, so a row that continues none begins with
    position 0. Streams end in padding.
    """

    def __init__(self, corpus: Split, data: Data, microbatches: int, seed: int, train: bool):
        ((self._name, self._text),) = corpus.fields.items()
        self.microbatches, self.shapes = microbatches, 1
        self._width, self._seed, self._train = data.row_len, seed, train
        streams = rows_per_batch(data, data.row_len, microbatches)
        ends = np.arange(streams + 1) * len(self._text.tokens) // streams
        self._begins, self._lengths = ends[:-1], np.diff(ends)
        self.steps_per_epoch: int = -(-int(self._lengths.max()) // data.row_len)

    def rows(self, step: int) -> int:
        """Returns the number of rows in a step's batch."""
        del step
        return len(self._begins)

    def batch(self, step: int, part: slice = slice(None)) -> dict[str, Tokens]:
        """Builds the rows of the field."""
        epoch, number = epoch_of(step, self.steps_per_epoch, self._train)
        size = len(self._text.tokens)
        first = _first_place(self._seed, epoch, size) if self._train else 0
        positions = np.arange(number * self._width, (number + 1) * self._width)
        real = positions < self._lengths[part, None]
        places = (first + self._begins[part, None] + positions) % size
        return {self._name: tokens_where(real, self._text.tokens[places], 1, positions)}

    def context(self) -> tuple[int, float]:
        """Returns the least and the mean number of earlier tokens that a token sees."""
        lengths = self._lengths
        return 0, float((lengths * (lengths - 1)).sum() / 2 / lengths.sum())


class Windows(Ordered):
    """The evaluation batches of a one-field split, by step. Windows overlap, but score each token once.

    In each example, a window of `data.row_len` tokens begins every `stride` tokens, until a window reaches
    the example's end. The first window scores all its tokens, each later one only those that no earlier
    window contains. A row is one window.

    Args:
      stride: from 1 to `data.row_len`.
    """

    def __init__(self, corpus: Split, data: Data, microbatches: int, stride: int):
        ((self._name, self._text),) = corpus.fields.items()
        lengths, row_len = self._text.lengths, data.row_len
        counts = 1 + np.maximum(-(-(lengths - row_len) // stride), 0)
        number = spans(np.zeros_like(counts), counts)
        start = number * stride
        self._begins = np.repeat(self._text.offsets[:-1], counts) + start
        self._lengths = np.minimum(np.repeat(lengths, counts) - start, row_len)
        # Tokens of each window that are only context, because the window before contains them.
        self._unscored = np.where(number > 0, row_len - stride, 0)
        self._least = row_len - stride
        self._width = int(self._lengths.max())
        per_batch = rows_per_batch(data, self._width, microbatches)
        super().__init__([(len(start), per_batch)], microbatches, seed=0, train=False)

    def batch(self, step: int, part: slice = slice(None)) -> dict[str, Tokens | Float[np.ndarray, 'R S']]:
        """Builds the rows of the field, one segment each, and `weight`, 1 where a token is scored, else 0."""
        _, _, present, exists = self.place(step, part)
        column = np.arange(self._width)
        real = np.zeros((len(exists), self._width), bool)
        real[exists] = column < self._lengths[present, None]
        places = np.zeros(real.shape, np.int64)
        places[exists] = self._begins[present, None] + column
        places[~real] = 0
        weight = real.astype(np.float32)
        weight[exists] *= column >= self._unscored[present, None]
        return {self._name: tokens_where(real, self._text.tokens[places], 1, column), 'weight': weight}

    def context(self) -> tuple[int, float]:
        """Returns the least and the mean number of earlier tokens that a scored token sees.

        The least is over tokens that do not see all earlier tokens of their example.
        """
        first, last = self._unscored, self._lengths - 1
        scored = last + 1 - first
        return self._least, float(((first + last) * scored).sum() / 2 / scored.sum())


def _first_place(seed: int, epoch: int, width: int) -> int:
    """Draws the place below `width` in a running text where a training epoch begins."""
    # The permutations of an epoch use the keys 0 and 1.
    return int(random_bits(1, seed, epoch, 2)[0] % width)
