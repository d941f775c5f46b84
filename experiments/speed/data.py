"""Times data preparation and batching on a synthetic corpus of WMT 2014's size."""

import contextlib
import functools
import itertools
import os
import pathlib
import resource
import tempfile
import time
from collections.abc import Iterator

import numpy as np

from experiments.speed.interleaved import print_number
from transformer import config as configs
from transformer import tasks
from transformer.config import Config, Data
from transformer.data.batches import RowBatches, fill
from transformer.data.dataset import Dataset, Split
from transformer.data.prefetch import prefetch
from transformer.progress import Stages

PAIRS = 4_500_000  # in WMT 2014 English-German
STEPS = 1000  # the most batches to time
WORDS = 250_000  # different words in each language
SYLLABLES = [
    onset + vowel + coda
    for onset in ('', *'bdfghklmnprstw', 'st', 'tr', 'sch')
    for vowel in 'aeiou'
    for coda in ('', *'nrstl', 'nd', 'ch')
]


@functools.cache
def make_words(seed: int) -> list[str]:
    """Makes distinct words of random syllables, the most frequent first; rarer words are longer."""
    draw = np.random.default_rng(seed)
    syllables = 1 + (draw.random(2 * WORDS) * np.log10(10 + np.arange(2 * WORDS))).astype(int)
    ends = np.cumsum(syllables)
    drawn = [SYLLABLES[i] for i in draw.integers(len(SYLLABLES), size=ends[-1])]
    words = (''.join(drawn[end - n : end]) for n, end in zip(syllables.tolist(), ends.tolist(), strict=True))
    return list(dict.fromkeys(filter(None, words)))[:WORDS]


def make_sentences(draw: np.random.Generator, vocabulary: list[str], counts: np.ndarray) -> Iterator[str]:
    """Yields sentences of `counts` words, whose frequencies follow Zipf's law."""
    frequency = np.cumsum(1 / (np.arange(len(vocabulary)) + 2.7) ** 1.2)
    ends = np.cumsum(counts).tolist()
    drawn = np.searchsorted(frequency, draw.random(ends[-1]) * frequency[-1]).tolist()
    text = [vocabulary[i] for i in drawn]
    for start, end in itertools.pairwise([0, *ends]):
        yield ' '.join(text[start:end]) + '.'


def write_text(folder: pathlib.Path, name: str, pairs: int, seed: int) -> None:
    """Writes pairs whose lengths are distributed like WMT's: a median of 25 pieces, some above 256."""
    draw = np.random.default_rng(seed)
    vocabularies = [make_words(language) for language in range(2)]
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context((folder / f'{name}.{end}').open('w')) for end in ('en', 'de')]
        for start in range(0, pairs, 50_000):
            source = np.exp(draw.normal(np.log(20), 0.62, min(pairs - start, 50_000)))
            target = source * np.exp(draw.normal(-0.03, 0.2, len(source)))
            for file, vocabulary, lengths in zip(files, vocabularies, (source, target), strict=True):
                counts = np.clip(lengths, 1, 300).astype(int)
                file.writelines(f'{line}\n' for line in make_sentences(draw, vocabulary, counts))


def peak_memory() -> float:
    """Returns the peak memory of this process and its largest child together, in GiB."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(kind).ru_maxrss for kind in kinds) / 2**20


def prepare(data: Data, cache: pathlib.Path) -> Dataset:
    """Prepares a corpus, and prints the time or speed of each stage."""
    began, ended = {}, {}
    with Stages('preparing') as stages:

        def progress(stage: str, done: int, total: int) -> None:
            ended[stage] = time.perf_counter()
            began.setdefault(stage, ended[stage])
            stages(stage, done, total)

        dataset = tasks.prepare(Config(data=data), cache, progress)
        finished = time.perf_counter()
    train, seconds = dataset.splits['train'], ended['train'] - began['train']
    tokens = sum(len(field.tokens) for field in train.fields.values())
    print_number('training the tokenizer', ended['tokenizer'] - began['tokenizer'], 's')
    print_number('tokenising', len(train) / seconds, 'pairs/s')
    print_number('tokenising', tokens / seconds, 'tokens/s')
    print_number('preparing after tokenising', finished - ended['test'], 's', most=600)
    print_number('peak memory of preparing', peak_memory(), 'GiB', most=4)
    lengths = np.percentile(train.fields['source'].lengths, (5, 50, 95, 100)).astype(int).tolist()
    print(f'  {len(train):,} pairs of {tokens:,} tokens; sources at 5, 50, 95, 100 %: {lengths}')
    return dataset


def plan_and_read(train: Split, data: Data) -> None:
    """Plans an epoch and reads batches as in training, and prints the speed of both."""
    start = time.perf_counter()
    batches = RowBatches(train, data, 8, 0, True)
    batches.batch(0)
    print_number(f'{data.batching}: planning an epoch', time.perf_counter() - start, 's', most=30)
    share = 100 * fill(batches)
    print_number(f'{data.batching}: real tokens', share, '%', least=95 if data.batching == 'packed' else None)
    steps, tokens = min(STEPS, batches.steps_per_epoch), 0
    start = time.perf_counter()
    for batch in prefetch(batches, 0, steps, lambda batch: batch):
        tokens += sum(np.count_nonzero(side.segments) for side in batch.values())
    speed = tokens / (time.perf_counter() - start)
    print_number(f'{data.batching}: batches', speed, 'tokens/s', least=5_000_000)


def measure(pairs: int) -> None:
    """Times each stage from the text of a synthetic corpus to the batches of a training."""
    print(f'{pairs:,} pairs, where WMT has {PAIRS:,}; {os.cpu_count()} processors')
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for seed, (split, count) in enumerate({'train': pairs, 'dev': 3000, 'test': 3000}.items()):
            write_text(folder, split, count, seed)
        splits = {f'data.{split}': split for split in ('train', 'dev', 'test')}
        text = {'data.source': 'text', 'data.dir': name, 'data.row_len': 288, **splits}
        options = lambda **changes: configs.resolve_values({**text, **changes}).data
        train = prepare(options(), folder / 'cache').splits['train']
        for batching in ('packed', 'bucketed'):
            plan_and_read(train, options(**{'data.batching': batching}))
    print_number('peak memory in all', peak_memory(), 'GiB', most=4)
