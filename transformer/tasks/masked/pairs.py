"""Pairs of texts A and B, for the prediction whether B follows A (Devlin et al. 2019, §3.1)."""

from collections.abc import Sequence

import numpy as np

from transformer.config import ConfigError, Data
from transformer.data.batches import Ordered
from transformer.data.dataset import Split
from transformer.data.rows import padded, rows_per_batch, spans
from transformer.tokens import EOS, Batch

# The classes of pairs, with the numbers of BERT's code.
FOLLOWS, RANDOM = 0, 1
_HALF = 2**63  # of the values of 64 random bits


class Chunks(Ordered):
    """The batches of the chunks of lines that pairs are made of, by step. A row is a chunk.

    A chunk is filled with consecutive lines of a document, until a pair of them is `data.max_len` pieces long
    or the document ends. Blank lines separate documents.

    Args:
      blank: the pieces of a text without content: those that begin every text, and the end.

    Raises:
      ConfigError: the split is a single chunk, so that no line can be a random B.
    """

    def __init__(self, corpus: Split, data: Data, microbatches: int, seed: int, split: str, blank: list[int]):
        self._text, self._first, self._width = corpus.fields['text'], blank[:-1], data.max_len
        self._room = data.max_len - len(blank) - 1
        lengths = self._text.lengths - len(blank)
        (lines,) = np.nonzero(lengths > 0)
        self._begins, self._lengths = self._text.offsets[lines] + len(self._first), lengths[lines]
        self._before = np.concatenate([[0], np.cumsum(self._lengths)])
        documents = np.cumsum(lengths <= 0)[lines]
        _, firsts, of_line = np.unique(documents, return_index=True, return_inverse=True)
        # The first line of each line's document, and the one after its last.
        ends = np.append(firsts[1:], len(lines))[: len(firsts)]
        self._documents = np.stack([firsts, ends], axis=1)[of_line]
        chunks, begin = [], 0
        while begin < len(lines):
            chunks.append((begin, self._filled(begin, self._room)))
            begin = chunks[-1][1]
        self._chunks, self._alone = np.array(chunks), len(firsts) < 2
        if self._alone and len(chunks) < 2:
            raise ConfigError(
                f'masked.next_sentence: {split} needs two documents, with a blank line between them, or more '
                f'lines than fill a row of data.max_len={data.max_len} pieces'
            )
        per_batch = rows_per_batch(data, data.max_len, microbatches)
        super().__init__([(len(chunks), per_batch)], microbatches, seed, split == 'train')

    def _filled(self, begin: int, pieces: int) -> int:
        """Returns the line after the last one of `pieces` pieces or of the document, from `begin` on."""
        end = int(np.searchsorted(self._before, self._before[begin] + max(pieces, 1)))
        return min(end, int(self._documents[begin, 1]))

    def batch(self, step: int, part: slice = slice(None)) -> Batch:
        """Returns the number of each row's chunk, -1 if the row is empty."""
        _, _, present, exists = self.place(step, part)
        chunks = np.full(len(exists), -1)
        chunks[exists] = present
        return {'chunk': chunks}

    def pairs(self, batch: Batch, generators: Sequence[np.random.Generator]) -> Batch:
        """Draws a pair from each chunk: `text`, the `types` of its pieces (A 0, B 1), and the class `next`.

        A random line of the chunk ends A. With probability 0.5, and always if the chunk has only one line, B
        begins at a random line of another document, and is filled with the lines after it; else B is the rest
        of the chunk. If there is one document, the random line is outside the chunk, and can follow a chunk
        of one line. Of pairs that are too long, the longer text is cut until they fit.

        BERT's code differs:

        - A tenth of its chunks are shorter. Here none is.
        - The rest of a chunk with a random B begins the next chunk. Here the epoch leaves it out.
        - It draws the document of a random B first. Here all lines are equally likely.
        - It cuts a text at random ends. Here A keeps its end, and B its beginning.
        - It draws ten pairs of each chunk in advance. Here every epoch draws.
        - A row begins with a piece of its own, [CLS], which is never hidden. Here only imported tokenizers
          have it; else the first piece of A has its part.
        """
        shape = len(generators), self._width
        rows, types, classes = [], np.zeros(shape, np.int32), np.zeros(len(generators), np.int32)
        for r, (chunk, generator) in enumerate(zip(batch['chunk'].tolist(), generators, strict=True)):
            rows.append([])
            if chunk >= 0:
                a, b, classes[r] = self._pair(chunk, *generator.bit_generator.random_raw(3).tolist())
                rows[r] = [*self._first, *a, EOS, *b, EOS]
                types[r, len(self._first) + len(a) + 1 : len(rows[r])] = 1
        return {'text': padded(rows, shape), 'types': types, 'next': classes}

    def _pair(
        self, chunk: int, end_of_a: int, which: int, begin_of_b: int
    ) -> tuple[list[int], list[int], int]:
        """Returns the pieces of A and B, and their class, by three random numbers of 64 bits."""
        begin, end = self._chunks[chunk].tolist()
        middle = begin + 1 + end_of_a % max(end - begin - 1, 1)
        a, start, stop, kind = self._pieces(begin, middle), middle, end, FOLLOWS
        if middle == end or which < _HALF:
            # The lines from `low` to `high` do not begin a random B.
            low, high = self._chunks[chunk] if self._alone else self._documents[begin]
            start = begin_of_b % (len(self._begins) - int(high - low))
            start, last = (start, int(low)) if start < low else (start + int(high - low), len(self._begins))
            stop, kind = min(self._filled(start, self._room - len(a)), last), RANDOM
        b = self._pieces(start, stop)
        of_b = min(len(b), max(self._room // 2, self._room - len(a)))
        return a[max(len(a) - (self._room - of_b), 0) :], b[:of_b], kind

    def _pieces(self, begin: int, end: int) -> list[int]:
        """Returns the pieces of lines, without those around each."""
        return self._text.tokens[spans(self._begins[begin:end], self._lengths[begin:end])].tolist()
