"""Times our updates, PyTorch's updates, and our matrix products alone, in turns."""

import contextlib
import importlib.util
import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from experiments.speed import interleaved, matrix_products, subprocesses, updates
from transformer import parallel
from transformer.actions import data as run_data
from transformer.cli.terminal import fold
from transformer.config import Config, ConfigError
from transformer.data.arrays import Ragged
from transformer.data.batches import RowBatches
from transformer.data.dataset import Split
from transformer.data.rows import padded
from transformer.tokens import Batch, Tokens

PAIRS = 4000  # pairs of a corpus that both sides read in each pass


class Work(NamedTuple):
    """The batches of a pass, with an update for each; both sides have the same sentences."""

    description: str
    ours: Sequence[Batch]
    theirs: Sequence[Batch]

    def tokens(self) -> int:
        """Returns the number of target tokens in a pass."""
        return sum(int((batch['target'].segments > 0).sum()) for batch in self.ours)


def full_rows(config: Config) -> Work:
    """Returns one batch of random pieces."""
    batch = updates.random_batch(config)
    rows, length = batch['target'].tokens.shape
    return Work(f'{rows} x {length} tokens a side', [batch], [batch])


def corpus(config: Config) -> Work:
    """Returns the first pairs of a corpus, for us in batches as in training, for PyTorch padded."""
    fields = run_data.of_config(config).splits['train'].fields
    pairs = Split({name: Ragged(field.tokens, field.offsets[: PAIRS + 1]) for name, field in fields.items()})
    order = RowBatches(pairs, config.data, config.train.microbatches, config.train.seed, train=True)
    ours = list(map(order.batch, range(order.steps_per_epoch)))
    theirs = pad(pairs, config.data.batch_tokens)
    description = f'the first {len(pairs):,} pairs in {len(ours)} batches (PyTorch: {len(theirs)}, padded)'
    return Work(description, ours, theirs)


def pad(pairs: Split, positions: int) -> list[Batch]:
    """Returns padded batches of pairs of similar lengths, with at most `positions` in the longer field."""
    lengths = np.array([field.lengths for field in pairs.fields.values()])
    longest = lengths.max(axis=0)
    order, batches = np.lexsort((*lengths, longest))[::-1].tolist(), []
    while order:
        most = max(1, positions // int(longest[order[0]]))
        examples, order = [pairs.example(i) for i in order[:most]], order[most:]
        batches.append({name: _rows([e[name].tolist() for e in examples]) for name in pairs.fields})
    return batches


def _rows(pieces: list[list[int]]) -> Tokens:
    return padded(pieces, (len(pieces), max(map(len, pieces))))


def measure(
    config: Config, name: str, work: Work, least: float, rounds: int, count: int
) -> dict[str, object]:
    """Times passes of our updates, PyTorch's updates, and our products, and prints and returns the speeds.

    PyTorch runs in its own processes: in float32, in bfloat16 (except LSTMs), and in float32 with freed
    memory kept, as in our programs.

    Args:
      least: the aim for our speed over PyTorch's in float32.
      count: the passes of each side in a round.
    """
    if parallel.platform() != 'cpu':
        raise ConfigError(f'{parallel.platform()}: the peer runs on CPUs; set JAX_PLATFORMS=cpu')
    m = config.model
    layers = f'{m.kind} with {m.N} + {m.N_decoder} layers of d_model {m.d_model}'
    sizes = f'{work.description}, {m.vocab_size:,} pieces, dropout {m.P_drop}, {m.dtype}'
    what = f'updates of {name}: {layers}, {sizes}'
    print(fold(f'{what}; {rounds} rounds of {count}, {os.cpu_count()} processors'))
    sides = {'ours': updates.make_passes(config, work.ours)}
    with contextlib.ExitStack() as stack:
        if importlib.util.find_spec('torch'):
            bfloat16 = [] if m.kind == 'recurrent' else [('bfloat16', '')]
            for dtype, heap in ('float32', ''), *bfloat16, ('float32', ', heap kept'):
                sides[f'PyTorch, {dtype}{heap}'] = subprocesses.start(
                    stack, pytorch, config, work.theirs, dtype, keeps_memory=bool(heap)
                )
        else:
            print("PyTorch: skipped, it is not installed: pip install '.[bench]'")
        sides['products alone'] = matrix_products.make_passes(config, work.ours)
        comparison = interleaved.compare(interleaved.measure(sides, rounds, count), work.tokens())
    interleaved.print_comparison(comparison, 'tokens', {'PyTorch, float32': least})
    return {'what': what, **comparison}


def pytorch(config: Config, batches: Sequence[Batch], dtype: str, device: str = 'cpu') -> interleaved.Timed:
    """Returns PyTorch's passes through batches."""
    from experiments.speed import torch_models

    return torch_models.make_passes(config, batches, dtype, device)


def write_trace(config: Config, batch: Batch, folder: pathlib.Path, count: int) -> None:
    """Traces updates for TensorBoard's profiler or Perfetto."""
    run = updates.make_passes(config, [batch])
    run(1)
    with jax.profiler.trace(folder):
        run(count)
