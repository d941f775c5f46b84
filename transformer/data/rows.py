"""Rows of examples: which ones share a row, and how wide it is; packed, or bucketed by length."""

import dataclasses

import numpy as np
from jaxtyping import Float, Int, UInt64

from transformer.config import Data
from transformer.data.dataset import Split

BUCKETS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)

_CANDIDATES = 512  # cells that are compared for one place of a row


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one shape: row r holds the examples `members[offsets[r]:offsets[r + 1]]`."""

    members: Int[np.ndarray, ' examples']
    offsets: Int[np.ndarray, ' rows_and_1']
    widths: dict[str, int]
    per_batch: int

    def __len__(self) -> int:
        return len(self.offsets) - 1


def rows_per_batch(data: Data, width: int, microbatches: int) -> int:
    """The most rows that `data.batch_tokens` allows: a multiple of the microbatches, and at least that."""
    return max(data.batch_tokens // width // microbatches, 1) * microbatches


def permutation(n: int, seed: int, *key: int) -> Int[np.ndarray, ' n']:
    """The numbers below n in an order that seed and key draw."""
    # Sorted random bits: numpy promises that the bits stay the same, not its own shuffling.
    return np.argsort(random_bits(n, seed, *key), kind='stable')


def random_bits(n: int, seed: int, *key: int) -> UInt64[np.ndarray, ' n']:
    """Uniform 64-bit integers that seed and key draw."""
    return np.random.Philox(np.random.SeedSequence(seed, spawn_key=key)).random_raw(n)


def spans(starts: Int[np.ndarray, ' n'], lengths: Int[np.ndarray, ' n']) -> Int[np.ndarray, ' m']:
    """The numbers start, start + 1, ... of each span, one span after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def bucketed(corpus: Split, data: Data, microbatches: int) -> list[Rows]:
    """Lays out one example a row, in one group for each bucket that is not empty (§5.1).

    The longest field of an example decides its bucket; all fields of a bucket have its width.
    """
    longest = np.max([field.lengths for field in corpus.fields.values()], axis=0)
    widths = np.array(bucket_widths(data.max_len, int(longest.max())))
    bucket = np.searchsorted(widths, longest)
    groups = []
    for index, width in enumerate(widths.tolist()):
        members = np.flatnonzero(bucket == index)
        if len(members):
            per_batch = rows_per_batch(data, width, microbatches)
            same = dict.fromkeys(corpus.fields, width)
            groups.append(Rows(members, np.arange(len(members) + 1), same, per_batch))
    return groups


def bucket_widths(max_len: int, longest: int) -> list[int]:
    """The released code's buckets up to `max_len`, itself one, and on to `longest` if need be."""
    series = list(BUCKETS)
    while series[-1] < max(longest, max_len):
        series.append(series[-2] * 2)
    inner = [width for width in series if width < max_len]
    outer = [width for width in series if width > max_len]
    needed = int(np.searchsorted(outer, longest)) + 1 if longest > max_len else 0
    return [*inner, max_len, *outer[:needed]]


def packed(corpus: Split, data: Data, microbatches: int, seed: int) -> list[Rows]:
    """Lays out several examples a row, in one group; the seed draws which of equal lengths share one.

    The last field is `data.row_len` wide. The others have the width at which all fields fill up
    together, or that of their longest example where that is more: then they leave room empty, and a
    larger row_len helps.
    """
    widths = _packed_widths(corpus, data.row_len)
    # Examples of the same lengths are interchangeable. The key writes the lengths as digits.
    key = np.zeros(len(corpus), np.int64)
    for name, field in corpus.fields.items():
        key = key * (widths[name] + 1) + field.lengths
    cells, cell, counts = np.unique(key, return_inverse=True, return_counts=True)
    lengths = []
    for width in reversed(widths.values()):
        cells, digit = np.divmod(cells, width + 1)
        lengths.insert(0, digit)
    found, times = patterns(np.array(lengths), counts, np.array(list(widths.values())))
    # Each pattern stands for `times` rows; each of its items is a cell, and takes an example of it.
    items = np.concatenate(found)
    sizes = [len(pattern) for pattern in found]
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
    *_, last = corpus.fields.values()
    width = max(row_len, int(last.lengths.max()))
    return {
        name: max(-(-width * len(field.tokens) // len(last.tokens)), int(field.lengths.max()))
        for name, field in corpus.fields.items()
    }


def patterns(
    lengths: Int[np.ndarray, 'fields cells'],
    counts: Int[np.ndarray, ' cells'],
    widths: Int[np.ndarray, ' fields'],
) -> tuple[list[Int[np.ndarray, ' _']], Int[np.ndarray, ' patterns']]:
    """Packs bins in one dimension per field.

    A cell is a combination of lengths, of which `counts` examples exist. A row takes the largest cell
    that fits, of about equally large ones the one that leaves the fields equally full, and so on until
    nothing fits; then as many such rows are made as the counts allow. The work grows with the number of
    different cells (some 10,000s), not with the number of examples.

    Returns:
      Rows as lists of cells, and how many rows to make of each.
    """
    size = (lengths / widths[:, None]).sum(axis=0)
    number = np.argsort(-size, kind='stable')
    lengths, left, rank = lengths[:, number], counts[number], -size[number]
    found, times, empty = [], [], 0
    while len(left):
        row = _fill_row(lengths, left, rank, widths)
        distinct, uses = np.unique(row, return_counts=True)
        rows = int((left[distinct] // uses).min())
        left[distinct] -= uses * rows
        found.append(number[row])
        times.append(rows)
        empty += np.count_nonzero(left[distinct] == 0)
        # Seldom, since it costs as much as a row.
        if 8 * empty > len(left):
            kept = left > 0
            lengths, left, rank, number = lengths[:, kept], left[kept], rank[kept], number[kept]
            empty = 0
    return found, np.array(times)


def _fill_row(
    lengths: Int[np.ndarray, 'fields cells'],
    left: Int[np.ndarray, ' cells'],
    rank: Float[np.ndarray, ' cells'],
    widths: Int[np.ndarray, ' fields'],
) -> list[int]:
    """The cells, by falling size (`rank` is its negative), whose examples fill one row."""
    left, room = left.copy(), widths.tolist()
    row = []
    start = 0
    while start < len(rank):
        window = slice(start, start + _CANDIDATES)
        # Ragged by field: on arrays this short, operations on all fields at once take twice the time.
        fits = left[window] > 0
        for field, space in zip(lengths, room, strict=True):
            fits &= field[window] <= space
        found = np.flatnonzero(fits) + start
        if not len(found):
            start += _CANDIDATES
            continue
        rest = np.zeros(len(found))
        for field, space, width in zip(lengths, room, widths.tolist(), strict=True):
            rest = np.maximum(rest, (space - field[found]) / width)
        chosen = int(found[rest.argmin()])
        row.append(chosen)
        left[chosen] -= 1
        room = [space - int(field[chosen]) for field, space in zip(lengths, room, strict=True)]
        filling = sum(space / width for space, width in zip(room, widths.tolist(), strict=True))
        start = int(np.searchsorted(rank, -filling))
    return row
