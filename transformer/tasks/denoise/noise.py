"""Hides spans of texts, or all but a text's beginning (Raffel et al. 2020, §3.1.4 and §3.2.3).

The rules are those of T5's code: `random_spans_noise_mask`, `noise_span_to_unique_sentinel` and
`random_prefix_noise_mask`.
"""

import numpy as np
from jaxtyping import Bool, Int, UInt64

from transformer.config import ConfigError
from transformer.config.tasks import Denoise
from transformer.data.arrays import Ragged
from transformer.data.batches import lay
from transformer.data.rows import spans
from transformer.tokens import UNK, Batch, Tokens

DRAWS = 2  # random numbers for each piece of a row


def widths(
    options: Denoise,
    counts: Int[np.ndarray, ' N'],
    rows: dict[int, tuple[np.ndarray, np.ndarray]],
    exact: bool,
) -> dict[int, tuple[int, int]]:
    """Returns the widths of source and target by the width of rows.

    Args:
      counts: the most pieces of each text that can be hidden.
      rows: the texts of rows, one row after the other, and where each row begins, by the width of rows.
      exact: whether all other pieces of a text can be hidden but its end.

    Raises:
      ConfigError: a text has more spans than there are sentinels.
    """
    spans = options.amounts(counts)[1].max()
    if options.objective == 'spans' and spans > options.sentinels:
        raise ConfigError(f'denoise.sentinels={options.sentinels}: a text has {spans} hidden spans')
    sizes, found = options.lengths(counts), {}
    for width, (members, begins) in rows.items():
        source, target = (int(np.add.reduceat(size[members], begins).max()) for size in sizes)
        # A piece that cannot be hidden stays in the source.
        found[width] = source if exact else width, target
    return found


def add_noise(
    options: Denoise,
    ordinary: Int[np.ndarray, ' pieces'],
    last: int,
    sizes: dict[int, tuple[int, int]],
    rows: Tokens,
    bits: UInt64[np.ndarray, 'R 2 S'],
) -> Batch:
    """Makes `source` and `target` of the texts in rows. Each text has its end as its last piece.

    Args:
      ordinary: the pieces that can be hidden beside UNK, sorted.
      last: the piece that stands for a text's first span; the next spans have the pieces before it.
      sizes: the widths of source and target by the width of the rows.
    """
    real = rows.segments > 0
    tokens, begins = rows.tokens[real], rows.positions[real] == 0
    ends, text = np.append(begins, True)[1:], np.cumsum(begins) - 1
    number = np.count_nonzero(begins)
    free = (np.isin(tokens, ordinary) | (tokens == UNK)) & ~ends
    hidden, opens = np.zeros((2, len(tokens)), bool)
    choose = {'spans': hidden_spans, 'prefix': after_prefix}[options.objective]
    counts = np.bincount(text[free], minlength=number)
    hidden[free], opens[free] = choose(counts, bits.swapaxes(0, 1)[:, real][:, free], options)
    before = np.cumsum(opens) - opens
    sentinel = last - before + before[begins][text]
    visible = ~hidden | opens
    # The target has a sentinel before a span's first piece.
    copies = hidden * 1 + opens + ends
    target = np.repeat(tokens, copies)
    target[(np.cumsum(copies) - copies)[opens]] = sentinel[opens]
    source = np.where(opens, sentinel, tokens)[visible]
    of_row, batch = np.count_nonzero(real & (rows.positions == 0), axis=1), {}
    width = dict(zip(('source', 'target'), sizes[rows.tokens.shape[1]], strict=True))
    for name, pieces, kept in (('source', source, visible), ('target', target, copies)):
        offsets = np.cumsum(np.append(0, np.bincount(text, kept, number))).astype(np.int64)
        batch[name] = lay(Ragged(pieces, offsets), np.arange(number), of_row, width[name])
    return batch


def hidden_spans(
    counts: Int[np.ndarray, ' N'], bits: UInt64[np.ndarray, '2 pieces'], options: Denoise
) -> tuple[Bool[np.ndarray, ' pieces'], Bool[np.ndarray, ' pieces']]:
    """Chooses spans in texts of `counts` pieces: each text begins with a visible part and ends with a span.

    Returns:
      Which pieces are hidden, and which of them begin a span.
    """
    long = counts >= 2
    noise, number = options.amounts(counts[long])
    starts = (np.cumsum(counts) - counts)[long]
    cut = [
        _parts(items, number, draws[spans(starts, items)])
        for items, draws in zip((counts[long] - noise, noise), bits, strict=True)
    ]
    hidden = np.zeros(len(bits[0]), bool)
    hidden[np.repeat(long, counts)] = np.repeat(np.arange(2 * len(cut[0])) % 2, np.stack(cut, 1).reshape(-1))
    return hidden, hidden & ~np.append(False, hidden)[:-1]


def _parts(
    items: Int[np.ndarray, ' N'], parts: Int[np.ndarray, ' N'], keys: UInt64[np.ndarray, ' items']
) -> Int[np.ndarray, ' parts']:
    """Cuts each number of items into so many parts of at least one; all ways to cut are equally likely."""
    place = spans(np.zeros_like(items), items)
    owner = np.repeat(np.arange(len(items)), items)
    # Parts begin at the first item, and at those of the others that have the smallest keys.
    rank = np.empty_like(place)
    rank[np.lexsort((keys, place > 0, owner))] = place
    return np.diff(np.flatnonzero(rank < parts[owner]), append=len(place))


def after_prefix(
    counts: Int[np.ndarray, ' N'], bits: UInt64[np.ndarray, '2 pieces'], options: Denoise
) -> tuple[Bool[np.ndarray, ' pieces'], Bool[np.ndarray, ' pieces']]:
    """Hides all but the first 1 to n - 1 of a text's n pieces, each number equally likely.

    Returns:
      Which pieces are hidden, and that none needs a sentinel.
    """
    del options
    place = spans(np.zeros_like(counts), counts)
    drawn = bits[0][place == 0] % np.maximum(counts[counts > 0] - 1, 1).astype(np.uint64)
    visible = np.zeros_like(counts)
    visible[counts > 0] = 1 + drawn.astype(np.int64)
    hidden = place >= np.repeat(visible, counts)
    return hidden, np.zeros_like(hidden)
