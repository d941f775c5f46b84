"""Batches of dense fields, such as images and labels, and the random generators of their rows' noise."""

import hashlib

import numpy as np
from jaxtyping import Shaped

from transformer.data.batches import Ordered
from transformer.data.dataset import Dense, Split


class DenseBatches(Ordered):
    """The batches of a split's dense fields, by step.

    A training epoch is a permutation by (seed, epoch). Without `train` there is one epoch, in order. The
    last batch of an epoch is filled with empty rows; the field `weight` is 1 for an example, else 0.

    Args:
      per_batch: rows of a batch, a multiple of the microbatches.
    """

    def __init__(self, split: Split, per_batch: int, microbatches: int, seed: int, train: bool):
        if per_batch % microbatches:
            raise ValueError(f'{per_batch} rows are not a multiple of {microbatches} microbatches')
        self._fields = {name: field for name, field in split.fields.items() if isinstance(field, Dense)}
        super().__init__([(len(split), per_batch)], microbatches, seed, train)

    def batch(self, step: int, part: slice = slice(None)) -> dict[str, Shaped[np.ndarray, 'R ...']]:
        """The rows of every field, and `weight`."""
        _, _, present, exists = self.place(step, part)
        batch = {}
        for name, field in self._fields.items():
            batch[name] = np.zeros((len(exists), *field.values.shape[1:]), field.values.dtype)
            batch[name][exists] = field.values[present]
        return {**batch, 'weight': exists.astype(np.float32)}


def row_generator(seed: int, where: int | str, row: int) -> np.random.Generator:
    """One row's random generator, which does not depend on devices, accumulation or processes.

    Args:
      where: the step in training; else the split's name, so that a split always gets the same noise.
      row: the row's place in the whole batch in training; else its place in the split.
    """
    split = isinstance(where, str)
    number = int.from_bytes(hashlib.sha256(where.encode()).digest()[:8], 'little') if split else where
    sequence = np.random.SeedSequence(seed, spawn_key=(int(split), number, row))
    return np.random.Generator(np.random.Philox(sequence))
