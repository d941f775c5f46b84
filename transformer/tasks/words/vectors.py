"""Tables of word vectors, from files or models: neighbours, analogies, similarities, a picture."""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from etils import epath
from jaxtyping import Float

from transformer.config import ConfigError
from transformer.data import word_vectors
from transformer.data.sources import text
from transformer.runs import restore
from transformer.runs.restore import Trained
from transformer.runs.workdir import Run
from transformer.tasks.classify.scores import spearman

# Keeps the quotient of 3CosMul finite.
EPSILON = 1e-3
# Analogies that are answered at once.
CHUNK = 256


class Answered(NamedTuple):
    """Numbers of questions: answered right, with words that are all known, and all."""

    right: int
    known: int
    total: int


class WordTable:
    """Words and their vectors."""

    def __init__(self, rows: word_vectors.WordRows):
        self.words, self.vectors = rows
        self.number = {word: place for place, word in enumerate(self.words)}

    @functools.cached_property
    def unit(self) -> Float[np.ndarray, 'V D']:
        """Returns the vectors with length 1. Zero vectors stay."""
        norms = np.linalg.norm(self.vectors, axis=1, keepdims=True)
        return self.vectors / np.where(norms > 0, norms, 1.0)

    def places(self, words: Sequence[str]) -> list[int]:
        """Returns the numbers of words. Raises ConfigError if one is unknown."""
        if unknown := [word for word in words if word not in self.number]:
            raise ConfigError(f'{unknown[0]}: not among the {len(self.words)} words')
        return [self.number[word] for word in words]

    def neighbours(self, words: Sequence[str], count: int) -> list[tuple[str, float]]:
        """Returns the words with the largest cosines with the sum of the given words' unit vectors."""
        places = self.places(words)
        total = self.unit[places].sum(axis=0)
        cosines = self.unit @ (total / max(np.linalg.norm(total), 1e-12))
        return self._best(cosines, places, count)

    def analogy(self, words: Sequence[str], count: int, method: str) -> list[tuple[str, float]]:
        """Returns the best answers to "a is to b as c is to ...", and their scores."""
        places = np.array([self.places(words)])
        return self._best(self.analogy_scores(places, method)[0], places[0], count)

    def analogy_scores(self, questions, method: str) -> Float[np.ndarray, 'Q V']:
        """Scores every word as the answer to questions (a, b, c).

        - adding: cos(x, b) - cos(x, a) + cos(x, c) (Mikolov et al. 2013)
        - multiplying: cos(x, b) cos(x, c) / (cos(x, a) + ε), cosines moved to 0 to 1 (Levy and Goldberg 2014)
        """
        a, b, c = (self.unit[questions[:, column]] for column in range(3))
        if method == 'adding':
            return (b - a + c) @ self.unit.T
        to_a, to_b, to_c = ((side @ self.unit.T + 1.0) / 2.0 for side in (a, b, c))
        return to_b * to_c / (to_a + EPSILON)

    def _best(self, scores: Float[np.ndarray, ' V'], without, count: int) -> list[tuple[str, float]]:
        scores = scores.copy()
        scores[without] = -np.inf
        order = np.argsort(-scores, kind='stable')[:count]
        return [(self.words[i], float(scores[i])) for i in order.tolist() if np.isfinite(scores[i])]

    def answer(self, questions: Sequence[Sequence[str]], method: str) -> Answered:
        """Counts the questions (a, b, c, d) whose best answer, other than a, b and c, is d."""
        known = [q for q in questions if all(word in self.number for word in q)]
        right = 0
        for start in range(0, len(known), CHUNK):
            places = np.array([self.places(q) for q in known[start : start + CHUNK]])
            scores = self.analogy_scores(places[:, :3], method)
            np.put_along_axis(scores, places[:, :3], -np.inf, axis=1)
            right += int(np.sum(scores.argmax(axis=1) == places[:, 3]))
        return Answered(right, len(known), len(questions))

    def similarity(self, pairs: Sequence[tuple[str, str, float]]) -> tuple[float | None, int]:
        """Returns Spearman's correlation of the pairs' cosines and given numbers, and how many are known."""
        known = [pair for pair in pairs if pair[0] in self.number and pair[1] in self.number]
        if len(known) < 2:
            return None, len(known)
        one, other = (self.unit[self.places([pair[side] for pair in known])] for side in (0, 1))
        return spearman(np.array([pair[2] for pair in known]), np.sum(one * other, axis=1)), len(known)


def load(name: str, most: int | None = None) -> WordTable:
    """Reads the first `most` words of a file, or of a work directory, FOLDER or FOLDER:CHECKPOINT."""
    folder, choice = restore.parse_checkpoint(name)
    if epath.Path(folder).is_dir():
        table = of_model(restore.load(Run.open(folder), choice or 'scored')[0])
    else:
        table = WordTable(word_vectors.read(name))
    return WordTable(word_vectors.WordRows(table.words[:most], table.vectors[:most]))


def of_model(trained: Trained) -> WordTable:
    """Returns the words among a model's pieces, in their order, with their rows of its embedding."""
    tokenizer = trained.codecs.get('text', trained.codecs.get('source'))
    if isinstance(trained.params, tuple) or tokenizer is None or 'embedding' not in trained.params:
        raise ConfigError(
            f'train.task={trained.config.train.task}: needs one model with one embedding of texts'
        )
    words = word_vectors.words_of(tokenizer)
    rows = np.asarray(trained.params['embedding']['table'], np.float32)[[*words.values()]]
    return WordTable(word_vectors.WordRows([*words], rows))


def read_questions(path: str) -> dict[str, list[list[str]]]:
    """Reads a file of analogies: four words a line, below lines such as ": family" that name a kind."""
    kinds: dict[str, list[list[str]]] = {}
    kind = ''
    for number, line in _lines(path):
        if line.startswith(':'):
            kind = line[1:].strip()
        elif len(words := line.split()) == 4:
            kinds.setdefault(kind, []).append(words)
        else:
            raise ConfigError(f'{path}: line {number}: needs four words, has {len(words)}')
    return kinds


def read_pairs(path: str) -> list[tuple[str, str, float]]:
    """Reads a file of two words and a number a line, with tabs between them; lines with # are comments."""
    pairs = []
    for number, line in _lines(path):
        if line.startswith('#'):
            continue
        try:
            one, other, judged = line.split('\t')
            score = float(judged)
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise ConfigError(f'{path}: line {number}: needs two words and a number, with tabs')
        pairs.append((one, other, score))
    return pairs


def _lines(path: str) -> list[tuple[int, str]]:
    """Returns the lines that are not empty, with their numbers. Raises ConfigError if there are none."""
    lines = [numbered for numbered in enumerate(text.lines(epath.Path(path)), 1) if numbered[1].strip()]
    if not lines:
        raise ConfigError(f'{path}: is empty')
    return lines


def picture(table: WordTable, words: Sequence[str]):
    """Draws words at the first two principal components of their unit vectors."""
    from transformer.inference.attention_figures import plt

    vectors = table.unit[table.places(words)]
    points = principal_components(vectors)
    figure, axes = plt.subplots(figsize=(8, 8), layout='constrained')
    axes.scatter(*points.T, s=4, color='0.6')
    for word, (x, y) in zip(words, points, strict=True):
        axes.annotate(word, (x, y), fontsize=8, parse_math=False)
    axes.set_xlabel('first principal component')
    axes.set_ylabel('second principal component')
    return figure


def principal_components(vectors: Float[np.ndarray, 'N D']) -> Float[np.ndarray, 'N 2']:
    """Returns the coordinates along the two directions of largest variance; signs make sums positive.

    With a single word or number, there are fewer directions, and the missing coordinates are 0.
    """
    centred = vectors - vectors.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:2] * np.where(axes[:2].sum(axis=1, keepdims=True) < 0, -1.0, 1.0)
    return np.pad(centred @ axes.T, ((0, 0), (0, 2 - len(axes))))
