"""The way from text to the batches of a training, timed at the size of WMT 2014."""

import os
import pathlib
import resource
import tempfile
import time

import numpy as np

from experiments.speed import synthetic
from experiments.speed.printing import tell
from transformer import config as configs
from transformer.config import Config, Data
from transformer.data.batches import TextBatches, fill
from transformer.data.dataset import Dataset, Split
from transformer.data.prefetch import prefetch
from transformer.runs.metrics import Stages
from transformer.tasks.translation import task as translation

PAIRS = 4_500_000  # of WMT 2014 English-German
STEPS = 1000  # the most batches to time


def peak_memory() -> float:
    """The peak memory of this process plus that of its largest child, in GiB."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(kind).ru_maxrss for kind in kinds) / 2**20


def prepare(data: Data, cache: pathlib.Path) -> Dataset:
    """Prepares a corpus and prints what that took."""
    began, ended = {}, {}
    with Stages() as stages:

        def progress(stage: str, done: int, total: int) -> None:
            ended[stage] = time.perf_counter()
            began.setdefault(stage, ended[stage])
            stages(stage, done, total)

        dataset = translation.prepare(Config(data=data), cache, progress)
        finished = time.perf_counter()
    train, seconds = dataset.splits['train'], ended['train'] - began['train']
    tokens = sum(len(field.tokens) for field in train.fields.values())
    tell('training the tokenizer', ended['tokenizer'] - began['tokenizer'], 's')
    tell('tokenising', len(train) / seconds, 'pairs/s')
    tell('tokenising', tokens / seconds, 'tokens/s')
    tell('preparing after tokenising', finished - ended['test'], 's', most=600)
    tell('peak memory of preparing', peak_memory(), 'GiB', most=4)
    lengths = np.percentile(train.fields['source'].lengths, (5, 50, 95, 100)).astype(int).tolist()
    print(f'  {len(train):,} pairs of {tokens:,} tokens; sources at 5, 50, 95, 100 %: {lengths}')
    return dataset


def plan_and_read(train: Split, data: Data) -> None:
    """Plans an epoch, reads batches as a training does, and prints what that took."""
    start = time.perf_counter()
    batches = TextBatches(train, data, 8, 0, True)
    batches.batch(0)
    tell(f'{data.batching}: planning an epoch', time.perf_counter() - start, 's', most=30)
    share = 100 * fill(batches)
    tell(f'{data.batching}: real tokens', share, '%', least=95 if data.batching == 'packed' else None)
    steps, tokens = min(STEPS, batches.steps_per_epoch), 0
    start = time.perf_counter()
    for batch in prefetch(batches, 0, steps, lambda batch: batch):
        tokens += sum(np.count_nonzero(side.segments) for side in batch.values())
    tell(f'{data.batching}: batches', tokens / (time.perf_counter() - start), 'tokens/s', least=5_000_000)


def measure(pairs: int) -> None:
    """Times everything from the text of a synthetic corpus to the batches of a training."""
    print(f'{pairs:,} pairs, where WMT has {PAIRS:,}; {os.cpu_count()} processors')
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for seed, (split, count) in enumerate({'train': pairs, 'dev': 3000, 'test': 3000}.items()):
            synthetic.write_text(folder, split, count, seed)
        splits = {f'data.{split}': split for split in ('train', 'dev', 'test')}
        text = {'data.source': 'text', 'data.dir': name, 'data.row_len': 288, **splits}
        of = lambda **options: configs.resolve(configs.config_dict({**text, **options})).data
        train = prepare(of(), folder / 'cache').splits['train']
        for batching in ('packed', 'bucketed'):
            plan_and_read(train, of(**{'data.batching': batching}))
    tell('peak memory in all', peak_memory(), 'GiB', most=4)
