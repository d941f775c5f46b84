"""Lays out examples in rows: packed several to a row, or one per row, bucketed by length."""

import dataclasses
import hashlib
from collections.abc import Hashable, Iterable, Sequence

import numpy as np
from jaxtyping import Float, Int, Shaped, UInt64

from transformer.config import Data
from transformer.data.dataset import Split
from transformer.tokens import Tokens

BUCKETS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)

_CANDIDATES = 512  # cells that are compared at a time when a row is filled


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one shape: row r contains the examples `members[offsets[r]:offsets[r + 1]]`."""

    members: Int[np.ndarray, ' examples']
    offsets: Int[np.ndarray, ' rows_and_1']
    widths: dict[str, int]
    per_batch: int

    def __len__(self) -> int:
        return len(self.offsets) - 1


def rows_per_batch(data: Data, width: int, microbatches: int) -> int:
    """Returns the most rows that `data.batch_tokens` allows: a positive multiple of `microbatches`."""
    return max(data.batch_tokens // width // microbatches, 1) * microbatches


def permutation(n: int, seed: int, *key: int) -> Int[np.ndarray, ' n']:
    """Returns the numbers below n in a random order, determined by seed and key."""
    # Sorted random bits: across versions, numpy keeps its bits the same, but not its shuffling.
    return np.argsort(random_bits(n, seed, *key), kind='stable')


def random_bits(n: int, seed: int, *key: int) -> UInt64[np.ndarray, ' n']:
    """Returns uniform 64-bit integers, determined by seed and key."""
    return np.random.Philox(np.random.SeedSequence(seed, spawn_key=key)).random_raw(n)


def row_generator(seed: int, where: int | str, row: int) -> np.random.Generator:
    """Returns a row's random generator, which does not depend on devices, accumulation or processes.

    Args:
      where: the step in training; else the split's name, so that a split always gets the same noise.
      row: the row's place in the whole batch in training; else its place in the split.
    """
    split = isinstance(where, str)
    number = int.from_bytes(hashlib.sha256(where.encode()).digest()[:8], 'little') if split else where
    sequence = np.random.SeedSequence(seed, spawn_key=(int(split), number, row))
    return np.random.Generator(np.random.Philox(sequence))


def spans(starts: Int[np.ndarray, ' n'], lengths: Int[np.ndarray, ' n']) -> Int[np.ndarray, ' m']:
    """Returns the numbers start, start + 1, ... of each span, one span after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def padded(rows: list[list[int]], shape: tuple[int, int]) -> Tokens:
    """Pads rows of one text each to a batch of this shape, with empty rows at the end."""
    tokens, segments = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    for place, pieces in enumerate(rows):
        tokens[place, : len(pieces)] = pieces
        segments[place, : len(pieces)] = 1
    return Tokens(tokens, segments, np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape).copy())


def stacked(
    values: Sequence[Shaped[np.ndarray, '...']], rows: int, shape: tuple[int, ...]
) -> Shaped[np.ndarray, 'R ...']:
    """Joins bytes of one shape, such as images, to a batch with zeros at the end."""
    batch = np.zeros((rows, *shape), np.uint8)
    batch[: len(values)] = values
    return batch


def distinct(values: Iterable[Hashable]) -> tuple[Int[np.ndarray, ' n'], Int[np.ndarray, ' rows']]:
    """Returns the row where each distinct value is first, and the number of each row's value."""
    numbers: dict[Hashable, int] = {}
    of_rows = np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)
    return np.unique(of_rows, return_index=True)[1], of_rows


def bucketed(corpus: Split, data: Data, microbatches: int) -> list[Rows]:
    """Lays out one example per row, in one group for each bucket that is not empty (§5.1).

    The longest field of an example decides its bucket; the fields of a bucket have its width, or the width of
    a narrower bucket, if it is at most half and holds them all: summaries need fewer positions than texts.
    """
    longest = np.max([field.lengths for field in corpus.ragged().values()], axis=0)
    widths = np.array(bucket_widths(data.max_len, int(longest.max())))
    bucket = np.searchsorted(widths, longest)
    groups = []
    for index, width in enumerate(widths.tolist()):
        members = np.flatnonzero(bucket == index)
        if len(members):
            per_batch = rows_per_batch(data, width, microbatches)
            held = {name: int(field.lengths[members].max()) for name, field in corpus.ragged().items()}
            needed = {name: int(widths[np.searchsorted(widths, length)]) for name, length in held.items()}
            own = {name: need if 2 * need <= width else width for name, need in needed.items()}
            groups.append(Rows(members, np.arange(len(members) + 1), own, per_batch))
    return groups


def padded_rows(corpus: Split, data: Data, microbatches: int) -> list[Rows]:
    """Lays out one example per row, in one group, as wide as the longest example and `data.max_len`."""
    longest = max(int(field.lengths.max()) for field in corpus.ragged().values())
    width, number = max(data.max_len, longest), len(corpus)
    widths = dict.fromkeys(corpus.ragged(), width)
    per_batch = rows_per_batch(data, data.max_len, microbatches)
    return [Rows(np.arange(number), np.arange(number + 1), widths, per_batch)]


def bucket_widths(max_len: int, longest: int) -> list[int]:
    """Returns the released code's buckets below `max_len`, `max_len`, and wider ones up to `longest`."""
    series = list(BUCKETS)
    while series[-1] < max(longest, max_len):
        series.append(series[-2] * 2)
    inner = [width for width in series if width < max_len]
    outer = [width for width in series if width > max_len]
    needed = int(np.searchsorted(outer, longest)) + 1 if longest > max_len else 0
    return [*inner, max_len, *outer[:needed]]


def packed(corpus: Split, data: Data, microbatches: int, seed: int) -> list[Rows]:
    """Lays out several examples per row, in one group. The seed shuffles examples of equal lengths.

    The last field is `data.row_len` wide, and the other fields' widths let all fields fill up together.
    A field whose longest example is wider gets that width: then rows stay partly empty, and a larger row_len
    helps.
    """
    widths = _packed_widths(corpus, data.row_len)
    # Examples of equal lengths are interchangeable. The key has an example's lengths as digits.
    key = np.zeros(len(corpus), np.int64)
    for name, field in corpus.ragged().items():
        key = key * (widths[name] + 1) + field.lengths
    cells, cell, counts = np.unique(key, return_inverse=True, return_counts=True)
    lengths = []
    for width in reversed(widths.values()):
        cells, digit = np.divmod(cells, width + 1)
        lengths.insert(0, digit)
    layouts, times = patterns(np.array(lengths), counts, np.array(list(widths.values())))
    # Each layout stands for `times` rows; each of its items is a cell, and takes one example from it.
    items = np.concatenate(layouts)
    sizes = [len(layout) for layout in layouts]
    times_of_item = np.repeat(times, sizes)
    row = spans(np.repeat(np.cumsum(times) - times, sizes), times_of_item)
    by_cell = np.argsort(np.repeat(items, times_of_item), kind='stable')
    drawn = permutation(len(corpus), seed)
    members = np.empty(len(corpus), np.int64)
    members[by_cell] = drawn[np.argsort(cell[drawn], kind='stable')]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row))])
    ordered = members[np.argsort(row, kind='stable')]
    per_batch = rows_per_batch(data, list(widths.values())[-1], microbatches)
    return [Rows(ordered, offsets, widths, per_batch)]


def _packed_widths(corpus: Split, row_len: int) -> dict[str, int]:
    *_, last = corpus.ragged().values()
    width = max(row_len, int(last.lengths.max()))
    return {
        name: max(-(-width * len(field.tokens) // len(last.tokens)), int(field.lengths.max()))
        for name, field in corpus.ragged().items()
    }


def patterns(
    lengths: Int[np.ndarray, 'fields cells'],
    counts: Int[np.ndarray, ' cells'],
    widths: Int[np.ndarray, ' fields'],
) -> tuple[list[Int[np.ndarray, ' _']], Int[np.ndarray, ' patterns']]:
    """Packs rows greedily, with one dimension per field.

    A cell is a combination of lengths, shared by `counts` examples. A row takes the largest cell that fits
    (among about equally large cells, the one that fills the fields most evenly), until none fits. Then as
    many such rows are made as the counts allow. The work grows with the number of different cells (tens of
    thousands), not with the number of examples.

    Returns:
      Rows as lists of cells, and how many rows to make of each.
    """
    size = (lengths / widths[:, None]).sum(axis=0)
    number = np.argsort(-size, kind='stable')
    lengths, left, rank = lengths[:, number], counts[number], -size[number]
    layouts, times, empty = [], [], 0
    while len(left):
        row = _fill_row(lengths, left, rank, widths)
        distinct, uses = np.unique(row, return_counts=True)
        rows = int((left[distinct] // uses).min())
        left[distinct] -= uses * rows
        layouts.append(number[row])
        times.append(rows)
        empty += np.count_nonzero(left[distinct] == 0)
        # Removed rarely, because this costs as much as a row.
        if 8 * empty > len(left):
            live = left > 0
            lengths, left, rank, number = lengths[:, live], left[live], rank[live], number[live]
            empty = 0
    return layouts, np.array(times)


def _fill_row(
    lengths: Int[np.ndarray, 'fields cells'],
    left: Int[np.ndarray, ' cells'],
    rank: Float[np.ndarray, ' cells'],
    widths: Int[np.ndarray, ' fields'],
) -> list[int]:
    """Fills one row with cells, which are sorted by `rank`, their negative size."""
    left, room = left.copy(), widths.tolist()
    row = []
    start = 0
    while start < len(rank):
        window = slice(start, start + _CANDIDATES)
        # Field by field: on arrays this short, operations on all fields at once take twice the time.
        fits = left[window] > 0
        for field, space in zip(lengths, room, strict=True):
            fits &= field[window] <= space
        fitting = np.flatnonzero(fits) + start
        if not len(fitting):
            start += _CANDIDATES
            continue
        rest = np.zeros(len(fitting))
        for field, space, width in zip(lengths, room, widths.tolist(), strict=True):
            rest = np.maximum(rest, (space - field[fitting]) / width)
        chosen = int(fitting[rest.argmin()])
        row.append(chosen)
        left[chosen] -= 1
        room = [space - int(field[chosen]) for field, space in zip(lengths, room, strict=True)]
        filling = sum(space / width for space, width in zip(room, widths.tolist(), strict=True))
        start = int(np.searchsorted(rank, -filling))
    return row
