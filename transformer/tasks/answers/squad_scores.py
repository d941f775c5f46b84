"""Scores answers by the rules of SQuAD's official scripts, evaluate-v1.1.py and evaluate-v2.0.py.

Answers are compared in lower case, without punctuation and without the words a, an and the.
"""

import collections
import re
import string
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from transformer.config import ConfigError
from transformer.tasks import bootstrap

_ARTICLES = re.compile(r'\b(a|an|the)\b')
_NO_PUNCTUATION = str.maketrans('', '', string.punctuation)


class QuestionScores(NamedTuple):
    """The scores of each question, from 0 to 1.

    Attributes:
      exact: 1 if the answer equals a gold answer, else 0.
      f1: the largest F1 with a gold answer.
    """

    exact: Float[np.ndarray, ' questions']
    f1: Float[np.ndarray, ' questions']

    def means(self) -> dict[str, dict[str, object]]:
        """Computes the means in percent, with 95 % intervals over resampled questions."""
        mean = lambda values: 100.0 * float(values.mean())
        return {name: bootstrap.estimate(mean, values) for name, values in self._asdict().items()}


def score(
    predicted: Sequence[str | None], gold: Sequence[Sequence[str]], *, answerable: bool = True
) -> QuestionScores:
    """Scores an answer to each question by exact match and by the F1 of its words.

    Args:
      predicted: the answers. None, a missing answer, scores 0.
      gold: the right answers of each question.
      answerable: whether every question has an answer (SQuAD 1.1). Else an empty answer means that the
        paragraph has none (SQuAD 2.0): it is right if no gold answer has a word, and it has no word in
        common with any other answer.

    Raises:
      ConfigError: if `answerable`, a question without gold answers.
    """
    if answerable and not all(gold):
        number = list(map(bool, gold)).index(False) + 1
        raise ConfigError(f'question {number} has no answer: only the rules of SQuAD 2.0 can score it')
    scores = [
        _best(answer, golds, answerable) if answer is not None else (0.0, 0.0)
        for answer, golds in zip(predicted, gold, strict=True)
    ]
    return QuestionScores(*np.array(scores, np.float64).reshape(-1, 2).T)


def normalize(answer: str) -> str:
    """Returns the words that count, in lower case, with a blank between them."""
    return ' '.join(_ARTICLES.sub(' ', answer.lower().translate(_NO_PUNCTUATION)).split())


def _best(answer: str, golds: Sequence[str], answerable: bool) -> tuple[float, float]:
    text, texts = normalize(answer), list(map(normalize, golds))
    if not answerable:
        texts = list(filter(None, texts)) or ['']
    return float(text in texts), max(_f1(text.split(), gold.split(), answerable) for gold in texts)


def _f1(words: Sequence[str], gold: Sequence[str], answerable: bool) -> float:
    """Computes the F1 of two bags of words."""
    if not words and not gold:
        return float(not answerable)
    common = (collections.Counter(words) & collections.Counter(gold)).total()
    return 2.0 * common / (len(words) + len(gold))
