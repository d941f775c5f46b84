"""Rows of pairs, packed or bucketed, their order in an epoch, and batch(step).

A batch is a pure function of the corpus, the config and its step: nothing has to be saved to
resume, and every process of a run can build its own part of it.
"""

import dataclasses
import queue
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Int, Integer

from transformer.config import Data
from transformer.data.corpus import Corpus

BUCKETS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)

_CANDIDATES = 512  # length pairs that are compared for one place of a row

Placed = TypeVar('Placed')


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one shape; row r holds the pairs `members[offsets[r]:offsets[r + 1]]`."""

    members: Int[np.ndarray, ' pairs']
    offsets: Int[np.ndarray, ' rows_and_1']
    source_width: int
    target_width: int
    per_batch: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def steps(self) -> int:
        """Batches that hold all the rows."""
        return -(-len(self) // self.per_batch)


class Batches:
    """The batches of a split, by step.

    Every epoch holds every pair once, in rows that `data.batching` lays out: *packed*, several
    pairs to a row of `data.row_len` target positions, or *bucketed*, the pairs of about one length
    together (§5.1). A batch has `data.batch_tokens` target positions at most, its rows are a
    multiple of `microbatches` (and at least that), and it has one of `shapes`; the last of a shape
    ends in empty rows. Rows are as wide as the longest pair needs, so that nothing is left out.

    An epoch of training is a permutation by (seed, epoch): of the rows, or of the pairs of a
    bucket, and of the batches. Without `train` there is one epoch, in a fixed order.
    """

    def __init__(self, corpus: Corpus, data: Data, microbatches: int, seed: int, train: bool):
        self.corpus = corpus
        self._seed = seed
        self._train = train
        layout = _packed if data.batching == 'packed' else _bucketed
        self.groups: list[Rows] = layout(corpus, data, microbatches, seed)
        self.steps_per_epoch: int = sum(rows.steps for rows in self.groups)
        self._orders: dict[int, tuple[np.ndarray, list[np.ndarray]]] = {}

    @property
    def shapes(self) -> list[tuple[int, int, int]]:
        """Rows, source width and target width of every kind of batch."""
        return [(rows.per_batch, rows.source_width, rows.target_width) for rows in self.groups]

    def rows(self, step: int) -> int:
        """Rows of the batch of a step, empty ones counted."""
        return self._place(step)[0].per_batch

    def batch(self, step: int, part: slice = slice(None)) -> dict[str, Int[np.ndarray, 'R _']]:
        """The batch of a step, or those of its rows that `part` names.

        Keys: `source`, `source_segments`, `source_positions` [R S] and the same of target [R T],
        int32. Segments count the pairs of a row from 1 and are 0 at padding, like all the rest;
        positions count from 0 in each segment.

        Raises:
          IndexError: the step is negative, or beyond the one epoch of an evaluation.
        """
        rows, chosen = self._place(step)
        wanted = np.arange(rows.per_batch)[part]
        exists = wanted < len(chosen)
        present = chosen[wanted[exists]]
        counts = np.zeros(len(wanted), np.int64)
        counts[exists] = rows.offsets[present + 1] - rows.offsets[present]
        members = rows.members[_spans(rows.offsets[present], counts[exists])]
        sides = (
            ('source', self.corpus.source, self.corpus.source_offsets, rows.source_width),
            ('target', self.corpus.target, self.corpus.target_offsets, rows.target_width),
        )
        batch = {}
        for name, tokens, offsets, width in sides:
            laid = _lay(tokens, offsets, members, counts, width)
            batch[name], batch[f'{name}_segments'], batch[f'{name}_positions'] = laid
        return batch

    def _place(self, step: int) -> tuple[Rows, Int[np.ndarray, ' R']]:
        """The group of a step's batch and the numbers of its rows."""
        epoch, index = divmod(step, self.steps_per_epoch)
        if step < 0 or (epoch and not self._train):
            raise IndexError(f'no batch of step {step}: there are {self.steps_per_epoch}')
        batches, rows = self._order(epoch)
        group, start = batches[index]
        return self.groups[group], rows[group][start : start + self.groups[group].per_batch]

    def _order(self, epoch: int) -> tuple[Int[np.ndarray, 'steps 2'], list[np.ndarray]]:
        """An epoch's (group, first row) of each step, and its order of the rows of each group."""
        known = self._orders.get(epoch)
        if known is not None:
            return known
        starts = [
            (group, start)
            for group, rows in enumerate(self.groups)
            for start in range(0, len(rows), rows.per_batch)
        ]
        batches = np.array(starts)
        orders = [np.arange(len(rows)) for rows in self.groups]
        if self._train:
            batches = batches[_permutation(len(batches), self._seed, epoch, 0)]
            orders = [
                _permutation(len(rows), self._seed, epoch, number)
                for number, rows in enumerate(self.groups, 1)
            ]
        # The epoch before stays: what is fetched ahead may be of the next one already.
        kept = {old: order for old, order in self._orders.items() if old == epoch - 1}
        self._orders = {**kept, epoch: (batches, orders)}
        return batches, orders


def fill(batches: Batches) -> float:
    """The share of real tokens among the positions, of both sides, of the rows that hold a pair."""
    tokens = len(batches.corpus.source) + len(batches.corpus.target)
    widths = sum(len(rows) * (rows.source_width + rows.target_width) for rows in batches.groups)
    return tokens / widths


def prefetch(
    batches: Batches,
    start: int,
    stop: int,
    put: Callable[[dict[str, np.ndarray]], Placed],
    depth: int = 2,
    process: tuple[int, int] = (0, 1),
) -> Iterator[Placed]:
    """What `put` makes of the batches of steps [start, stop), built ahead by a thread.

    An error of the thread is raised here; closing the iterator ends the thread.

    Args:
      put: places a batch on the devices.
      depth: batches that wait at most.
      process: (index, count): only this one of `count` equal parts of each batch's rows.
    """
    ready = queue.Queue(depth)
    closed = threading.Event()

    def work():
        try:
            for step in range(start, stop):
                share = batches.rows(step) // process[1]
                part = slice(process[0] * share, (process[0] + 1) * share)
                ready.put((put(batches.batch(step, part)), None))
                if closed.is_set():
                    return
        except BaseException as error:
            # Whatever it is, the reader waits for it.
            ready.put((None, error))

    thread = threading.Thread(target=work, name='prefetch', daemon=True)
    thread.start()
    try:
        for _ in range(start, stop):
            item, error = ready.get()
            if error:
                raise error
            yield item
    finally:
        closed.set()
        # Room for the one batch that the thread may be waiting to hand over.
        while not ready.empty():
            ready.get_nowait()
        thread.join()


def _permutation(n: int, seed: int, *key: int) -> Int[np.ndarray, ' n']:
    # Raw bits, sorted: unlike numpy's own shuffling they are promised to stay the same.
    bits = np.random.Philox(np.random.SeedSequence(seed, spawn_key=key)).random_raw(n)
    return np.argsort(bits, kind='stable')


def _rows_per_batch(data: Data, width: int, microbatches: int) -> int:
    return max(data.batch_tokens // width // microbatches, 1) * microbatches


def _spans(starts: Int[np.ndarray, ' n'], lengths: Int[np.ndarray, ' n']) -> Int[np.ndarray, ' m']:
    """start, start + 1, ... of each span, one behind the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def _lay(
    tokens: Integer[np.ndarray, ' tokens'],
    offsets: Int[np.ndarray, ' pairs_and_1'],
    members: Int[np.ndarray, ' n'],
    counts: Int[np.ndarray, ' R'],
    width: int,
) -> tuple[Int[np.ndarray, 'R S'], Int[np.ndarray, 'R S'], Int[np.ndarray, 'R S']]:
    """Tokens, segments and positions of rows; each takes the next of `members`, by its count."""
    first = np.cumsum(counts) - counts
    row = np.repeat(np.arange(len(counts)), counts)
    lengths = offsets[members + 1] - offsets[members]
    before = np.concatenate([[0], np.cumsum(lengths)])
    starts = row * width + before[:-1] - before[first][row]
    places = _spans(starts, lengths)
    shape = (len(counts), width)
    laid = tuple(np.zeros(shape, np.int32) for _ in range(3))
    laid[0].reshape(-1)[places] = tokens[_spans(offsets[members], lengths)]
    laid[1].reshape(-1)[places] = np.repeat(1 + np.arange(len(members)) - first[row], lengths)
    laid[2].reshape(-1)[places] = _spans(np.zeros_like(lengths), lengths)
    return laid


def _bucketed(corpus: Corpus, data: Data, microbatches: int, seed: int) -> list[Rows]:
    """One group of one-pair rows for each bucket that is not empty; no order is needed here."""
    del seed
    longer = np.maximum(corpus.source_lengths, corpus.target_lengths)
    widths = np.array(_bucket_widths(data.max_len, int(longer.max())))
    bucket = np.searchsorted(widths, longer)
    groups = []
    for index, width in enumerate(widths.tolist()):
        members = np.flatnonzero(bucket == index)
        if len(members):
            per_batch = _rows_per_batch(data, width, microbatches)
            groups.append(Rows(members, np.arange(len(members) + 1), width, width, per_batch))
    return groups


def _bucket_widths(max_len: int, longest: int) -> list[int]:
    """The released code's buckets up to `max_len`, itself one, and on to `longest` if need be."""
    series = list(BUCKETS)
    while series[-1] < max(longest, max_len):
        series.append(series[-2] * 2)
    inner = [width for width in series if width < max_len]
    outer = [width for width in series if width > max_len]
    needed = int(np.searchsorted(outer, longest)) + 1 if longest > max_len else 0
    return [*inner, max_len, *outer[:needed]]


def _packed(corpus: Corpus, data: Data, microbatches: int, seed: int) -> list[Rows]:
    """The group of rows that several pairs share; which pairs of equal lengths do is drawn.

    Where the longest source is wider than its share of `data.row_len`, sources leave room empty; a
    larger row_len helps.
    """
    source, target = corpus.source_lengths, corpus.target_lengths
    target_width = max(data.row_len, int(target.max()))
    # Both sides of a row fill up together; the longest source must fit all the same.
    proportional = -(-target_width * len(corpus.source) // len(corpus.target))
    source_width = max(proportional, int(source.max()))
    key = source * (target_width + 1) + target
    cells, cell, counts = np.unique(key, return_inverse=True, return_counts=True)
    patterns, times = _patterns(*np.divmod(cells, target_width + 1), counts, source_width, target_width)
    # Each pattern stands for `times` rows; each of its items is a cell, and takes a pair of it.
    items = np.concatenate(patterns)
    times_of_item = np.repeat(times, [len(pattern) for pattern in patterns])
    first_row = np.repeat(np.cumsum(times) - times, [len(pattern) for pattern in patterns])
    row = _spans(first_row, times_of_item)
    by_cell = np.argsort(np.repeat(items, times_of_item), kind='stable')
    drawn = _permutation(len(corpus), seed)
    members = np.empty(len(corpus), np.int64)
    members[by_cell] = drawn[np.argsort(cell[drawn], kind='stable')]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row))])
    per_batch = _rows_per_batch(data, target_width, microbatches)
    ordered = members[np.argsort(row, kind='stable')]
    return [Rows(ordered, offsets, source_width, target_width, per_batch)]


def _patterns(
    source: Int[np.ndarray, ' cells'],
    target: Int[np.ndarray, ' cells'],
    counts: Int[np.ndarray, ' cells'],
    source_width: int,
    target_width: int,
) -> tuple[list[Int[np.ndarray, ' _']], Int[np.ndarray, ' patterns']]:
    """Rows as lists of cells, and how many rows to make of each: bin packing in two dimensions.

    A cell is a (source, target) length pair, of which `counts` exist. A row takes the largest that
    fits, of about equally large ones the one that leaves the two sides equally full, and so on
    until nothing fits; then as many such rows are made as the counts allow. The work grows with the
    number of different length pairs (some 10,000s), not with the number of pairs.
    """
    size = source / source_width + target / target_width
    number = np.argsort(-size, kind='stable')
    source, target, left, rank = source[number], target[number], counts[number], -size[number]
    patterns, times, empty = [], [], 0
    while len(left):
        row = _fill_row(source, target, left, rank, source_width, target_width)
        distinct, uses = np.unique(row, return_counts=True)
        rows = int((left[distinct] // uses).min())
        left[distinct] -= uses * rows
        patterns.append(number[row])
        times.append(rows)
        empty += np.count_nonzero(left[distinct] == 0)
        # Seldom, since it costs as much as a row.
        if 8 * empty > len(left):
            kept = left > 0
            source, target, left, rank = source[kept], target[kept], left[kept], rank[kept]
            number, empty = number[kept], 0
    return patterns, np.array(times)


def _fill_row(
    source: Int[np.ndarray, ' cells'],
    target: Int[np.ndarray, ' cells'],
    left: Int[np.ndarray, ' cells'],
    rank: Float[np.ndarray, ' cells'],
    source_room: int,
    target_room: int,
) -> list[int]:
    """The cells, by falling size (`rank` is its negative), whose pairs fill one row."""
    left = left.copy()
    source_width, target_width = source_room, target_room
    row = []
    start = 0
    while start < len(rank):
        window = slice(start, start + _CANDIDATES)
        fits = (source[window] <= source_room) & (target[window] <= target_room)
        found = np.flatnonzero(fits & (left[window] > 0)) + start
        if not len(found):
            start += _CANDIDATES
            continue
        source_rest = (source_room - source[found]) / source_width
        target_rest = (target_room - target[found]) / target_width
        chosen = int(found[np.maximum(source_rest, target_rest).argmin()])
        row.append(chosen)
        left[chosen] -= 1
        source_room -= int(source[chosen])
        target_room -= int(target[chosen])
        fitting = -(source_room / source_width + target_room / target_width)
        start = int(np.searchsorted(rank, fitting))
    return row
