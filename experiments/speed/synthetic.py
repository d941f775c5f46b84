"""A corpus of random words whose sizes are those of WMT 2014."""

import contextlib
import itertools
import pathlib
from collections.abc import Iterator

import numpy as np

WORDS = 250_000  # different ones of a language
SYLLABLES = [
    onset + vowel + coda
    for onset in ('', *'bdfghklmnprstw', 'st', 'tr', 'sch')
    for vowel in 'aeiou'
    for coda in ('', *'nrstl', 'nd', 'ch')
]


def words(draw: np.random.Generator) -> list[str]:
    """Different words, the most frequent first: strings of syllables, longer ones for rarer words."""
    syllables = 1 + (draw.random(2 * WORDS) * np.log10(10 + np.arange(2 * WORDS))).astype(int)
    ends = np.cumsum(syllables)
    drawn = [SYLLABLES[i] for i in draw.integers(len(SYLLABLES), size=ends[-1])]
    made = (''.join(drawn[end - n : end]) for n, end in zip(syllables.tolist(), ends.tolist(), strict=True))
    return list(dict.fromkeys(filter(None, made)))[:WORDS]


def sentences(draw: np.random.Generator, vocabulary: list[str], counts: np.ndarray) -> Iterator[str]:
    """Sentences of `counts` words, whose frequencies follow Zipf's law."""
    frequency = np.cumsum(1 / (np.arange(len(vocabulary)) + 2.7) ** 1.2)
    ends = np.cumsum(counts).tolist()
    drawn = np.searchsorted(frequency, draw.random(ends[-1]) * frequency[-1]).tolist()
    text = [vocabulary[i] for i in drawn]
    for start, end in itertools.pairwise([0, *ends]):
        yield ' '.join(text[start:end]) + '.'


def write_text(folder: pathlib.Path, name: str, pairs: int, seed: int) -> None:
    """Writes pairs with lengths like WMT's: a median of 25 pieces, some above 256, both sides alike."""
    draw = np.random.default_rng(seed)
    vocabularies = [words(np.random.default_rng(number)) for number in range(2)]
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context((folder / f'{name}.{end}').open('w')) for end in ('en', 'de')]
        for start in range(0, pairs, 50_000):
            source = np.exp(draw.normal(np.log(20), 0.62, min(pairs - start, 50_000)))
            target = source * np.exp(draw.normal(-0.03, 0.2, len(source)))
            for file, vocabulary, lengths in zip(files, vocabularies, (source, target), strict=True):
                counts = np.clip(lengths, 1, 300).astype(int)
                file.writelines(f'{line}\n' for line in sentences(draw, vocabulary, counts))
