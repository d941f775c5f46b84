"""Updates that are timed beside PyTorch's and their products alone: what is trained on, and all in turns."""

import contextlib
import importlib.util
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.speed import interleaved, matrix_products, subprocesses, updates
from experiments.speed.printing import tell_ratios
from transformer import parallel
from transformer.actions import data as corpora
from transformer.cli.terminal import fold
from transformer.config import Config, ConfigError
from transformer.data.batches import TextBatches
from transformer.data.dataset import Ragged, Split
from transformer.inference import batch_shapes
from transformer.tokens import Batch, Tokens

PAIRS = 4000  # of a corpus, that both sides read in each pass


class Work(NamedTuple):
    """What both sides do in a pass: an update with each of their batches, which hold the same sentences."""

    what: str
    ours: Sequence[Batch]
    theirs: Sequence[Batch]

    def tokens(self) -> int:
        """How many target tokens are predicted in a pass."""
        return sum(int((batch['target'].segments > 0).sum()) for batch in self.ours)


def full_rows(config: Config) -> Work:
    """One batch of random pieces."""
    batch = updates.random_batch(config)
    rows, length = batch['target'].tokens.shape
    return Work(f'{rows} x {length} tokens a side', [batch], [batch])


def corpus(config: Config) -> Work:
    """The first pairs of a corpus: for us as a training reads them, for PyTorch as `padded`.

    Raises:
      ConfigError: the corpus cannot be read.
    """
    fields = corpora.of_config(config).splits['train'].fields
    pairs = Split({name: Ragged(field.tokens, field.offsets[: PAIRS + 1]) for name, field in fields.items()})
    order = TextBatches(pairs, config.data, config.train.microbatches, config.train.seed, train=True)
    ours = list(map(order.batch, range(order.steps_per_epoch)))
    theirs = padded(pairs, config.data.batch_tokens)
    what = f'the first {len(pairs):,} pairs in {len(ours)} batches (PyTorch: {len(theirs)}, padded)'
    return Work(what, ours, theirs)


def padded(pairs: Split, positions: int) -> list[Batch]:
    """Pairs of similar lengths in batches with at most so many positions of the longer field."""
    lengths = np.array([field.lengths for field in pairs.fields.values()])
    longest = lengths.max(axis=0)
    order = np.lexsort((*lengths, longest))[::-1].tolist()
    found, start = [], 0
    while start < len(order):
        most = max(1, positions // int(longest[order[start]]))
        examples = [pairs.example(i) for i in order[start : start + most]]
        found.append({name: _rows([example[name].tolist() for example in examples]) for name in pairs.fields})
        start += len(examples)
    return found


def _rows(pieces: list[list[int]]) -> Tokens:
    tokens, segments = batch_shapes.padded(pieces, (len(pieces), max(map(len, pieces))))
    positions = np.broadcast_to(np.arange(tokens.shape[1], dtype=np.int32), tokens.shape)
    return Tokens(tokens, segments, positions)


def measure(
    config: Config, model: str, work: Work, kinds: Sequence[str], least: float, rounds: int, count: int
) -> dict[str, object]:
    """Times passes in turns, ours, PyTorch's, and the matrix products of ours alone, and prints them.

    PyTorch's are made in processes of their own, with memory as PyTorch takes it by default; the first kind
    is also timed keeping freed memory, as our programs do.

    Args:
      model: in words.
      kinds: the types in which PyTorch computes.
      least: how many times PyTorch's speed ours should be, of the first kind.
      count: of passes in a turn.
    """
    if parallel.platform() != 'cpu':
        raise ConfigError(f'{parallel.platform()}: the peer runs on CPUs; set JAX_PLATFORMS=cpu')
    m = config.model
    what = f'updates of {model}, {work.what}, {m.vocab_size:,} pieces, dropout {m.P_drop}, {m.dtype}'
    print(fold(f'{what}; {rounds} rounds of {count}, {os.cpu_count()} processors'))
    sides = {'ours': updates.of(config, work.ours)}
    with contextlib.ExitStack() as stack:
        if importlib.util.find_spec('torch'):
            ways = [(f'PyTorch, {kind}', kind, False) for kind in kinds]
            ways.append((f'PyTorch, {kinds[0]}, heap kept', kinds[0], True))
            sides |= {
                name: subprocesses.start(stack, _pytorch, config, work.theirs, kind, keeps_memory=kept)
                for name, kind, kept in ways
            }
        else:
            print("PyTorch: skipped, it is not installed: pip install '.[bench]'")
        sides['products alone'] = matrix_products.of(config, work.ours)
        found = interleaved.compare(interleaved.measure(sides, rounds, count), work.tokens())
    tell_ratios(found, 'tokens', {f'PyTorch, {kinds[0]}': least})
    return {'what': what, **found}


def _pytorch(config: Config, batches: Sequence[Batch], kind: str) -> interleaved.Run:
    from experiments.speed import torch_models

    return torch_models.updates(config, batches, kind)
