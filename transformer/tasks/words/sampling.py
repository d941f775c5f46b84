"""Batches of word vectors: words left out, windows and noise words, all drawn as in word2vec."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Integer

from transformer.config import Config, ConfigError
from transformer.config.tasks import Words
from transformer.data.batches import tokens_where
from transformer.tasks.words import huffman
from transformer.tokens import Batch, Tokens


class Frequencies(NamedTuple):
    """What the counts of the training words decide.

    Attributes:
      keep: the probability that an occurrence of each word is kept; 0 for special and unknown pieces.
      noise: the cumulative distribution of noise words.
      share: how much each gradient of a word counts, as input and as output, noise included.
      paths, yes, path_share: the inner nodes on each word's path in the Huffman tree, whether it turns
        right there, and how much each gradient of a node counts.
    """

    keep: Float[np.ndarray, ' V']
    noise: Float[np.ndarray, ' V']
    share: Float[np.ndarray, 'V 2']
    paths: Int[np.ndarray, 'V J']
    yes: Float[np.ndarray, 'V J']
    path_share: Float[np.ndarray, 'V J']


def frequencies(config: Config, counts: Integer[np.ndarray, ' W']) -> Frequencies:
    """Computes what the counts of words in the training text decide; those of special pieces are 0.

    - A word of frequency f is kept with probability min(1, (sqrt(f / sample) + 1) · sample / f).
    - A noise word is drawn in proportion to its count^0.75.
    - Of n expected gradients of a vector in an update, each counts min(1, limit / n). So the updates of
      frequent words, whose gradients are all of the same old vector, do not overshoot.

    Raises:
      ConfigError: the text has fewer than two different words, or hardly any is kept.
    """
    options, size = config.words, config.model.vocab_size
    counts = np.pad(counts.astype(np.float64), (0, size - len(counts)))
    if np.count_nonzero(counts) < 2:
        raise ConfigError('data.train: the vocabulary has fewer than two different words')
    f = counts / counts.sum()
    keep = np.where(f > 0, 1.0, 0.0)
    if options.sample:
        ratio = options.sample / np.maximum(f, 1e-300)
        keep *= np.minimum(ratio**0.5 + ratio, 1.0)
    if (counts * keep).sum() < 2:
        raise ConfigError(f'words.sample={options.sample}: fewer than two words stay; 0 leaves out none')
    noise = counts**0.75 / (counts**0.75).sum()
    kept = f * keep
    words = config.data.batch_tokens * kept
    # A word is near window + 1 others on average: twice the mean of 1 to `window`.
    pairs = words * (options.window + 1)
    made = pairs if options.predict == 'skipgram' else words
    paths, yes = np.zeros((size, 0), np.int32), np.zeros((size, 0), np.float32)
    nodes = np.zeros(size)
    if options.output == 'hierarchical':
        paths, yes = huffman.paths(counts.astype(np.int64))
        np.add.at(nodes, paths, np.broadcast_to(made[:, None], paths.shape))
        outputs = made
    else:
        outputs = made + options.negatives * made.sum() * noise
    share = lambda uses: np.minimum(1.0, options.limit / np.maximum(uses, 1.0)).astype(np.float32)
    both = np.stack([share(pairs), share(outputs)], axis=-1)
    return Frequencies(keep, np.cumsum(noise), both, paths, yes, share(nodes)[paths])


def draw(options: Words, of_words: Frequencies, batch: Batch, generators: list[np.random.Generator]) -> Batch:
    """Draws words to leave out, windows and noise words for rows of several sentences each.

    The words that stay move to the beginning of their rows before windows are drawn.
    """
    rows: Tokens = batch['text']
    width = rows.tokens.shape[1]
    pool = options.pool if options.output == 'negatives' else 0
    drawn = np.stack([one.random(2 * width + pool) for one in generators])
    text = keep(rows, drawn[:, :width] < of_words.keep[rows.tokens])
    near = 1 + (drawn[:, width : 2 * width] * options.window).astype(np.int32)
    fields = {'text': text, 'near': near, 'share': of_words.share[text.tokens]}
    if not pool:
        tables = {'path': of_words.paths, 'yes': of_words.yes, 'path_share': of_words.path_share}
        return fields | {name: table[text.tokens] for name, table in tables.items()}
    noise = np.searchsorted(of_words.noise, drawn[:, 2 * width :], side='right').astype(np.int32)
    noise = np.minimum(noise, len(of_words.noise) - 1)
    return fields | {'noise': noise, 'noise_share': of_words.share[noise, 1]}


def keep(rows: Tokens, kept: np.ndarray) -> Tokens:
    """Moves the words that are kept to the beginning of their rows; the rest is padding."""
    order = np.argsort(~kept, axis=1, kind='stable')
    tokens, segments = (np.take_along_axis(a, order, axis=1) for a in (rows.tokens, rows.segments))
    column, begins = np.arange(kept.shape[1]), np.diff(segments, axis=1, prepend=0) != 0
    positions = column - np.maximum.accumulate(np.where(begins, column, 0), axis=1)
    return tokens_where(column < kept.sum(axis=1, keepdims=True), tokens, segments, positions)
