"""Scores of captions: CIDEr-D by hand and in numpy, BLEU by its definition."""

import itertools
import math

import numpy as np
import pytest

from transformer.tasks.captions import scores

LINES = ['a red circle', 'a blue circle']
REFERENCES = [['a red circle'], ['a blue circle', 'a blue square']]


def test_words():
    found = scores.words("A dog's (red) ball, isn't it? Yes.")
    assert ' '.join(found) == "a dog 's red ball is n't it yes"
    assert scores.words('') == []


def test_words_of_several_sentences():
    """A full stop inside a text belongs to no word, so that a word is the same in each of its sentences."""
    found = scores.words('A dog. The "dog." (A dog.) Is it 3.5 years old... in the U.S. at no. 5?')
    assert ' '.join(found) == 'a dog the dog a dog is it 3.5 years old in the u.s at no 5'
    two = ['a circle. a square', 'a cat'], [['a square. a circle'], ['a cat']]
    assert scores.score(*two, 'en')['bleu1']['score'] == pytest.approx(100)


def test_cider_by_hand():
    """Both images have `a` and `circle`, so they weigh nothing; log 2 is the weight of all the rest."""
    # Equal texts of three words: a cosine of 1 for 1-, 2- and 3-grams, and no 4-grams.
    same = 10 * 3 / 4
    # `blue` of blue and square; `a blue` of two bigrams on each side; no trigram.
    half = 10 * (1 / math.sqrt(2) + 1 / 2) / 4
    assert scores.cider_of_lines(LINES, REFERENCES) == pytest.approx([same, (same + half) / 2])


def test_cider_penalises_lengths_and_clips_repetitions():
    short = scores.cider_of_lines(['red', 'blue'], [['red'], ['blue']])
    # Of three times `red` one counts, a third of the vector's length; two bigrams more than none.
    long = scores.cider_of_lines(['red red red', 'blue'], [['red'], ['blue']])
    assert short == pytest.approx([2.5, 2.5])
    assert long == pytest.approx([10 / 4 * math.exp(-(2**2) / (2 * 6**2)) / 3, 2.5])


def test_one_image_has_no_rare_words():
    assert scores.cider_of_lines(['a red circle'], [['a red circle', 'a circle']]) == [0]
    assert scores.cider_of_lines(['', 'a'], [['a b'], ['c']]) == [0, 0]


def test_cider_in_numpy():
    rng = np.random.default_rng(0)
    draw = lambda: ' '.join(rng.choice(list('abcdef'), rng.integers(1, 9)))
    lines = [draw() for _ in range(12)]
    references = [[draw() for _ in range(rng.integers(1, 4))] for _ in lines]
    expected = np.zeros(12)
    for n in range(1, 5):
        grams = [*itertools.product('abcdef', repeat=n)]
        place = {gram: i for i, gram in enumerate(grams)}

        def vector(text, n=n, place=place):
            found, counts = text.split(), np.zeros(len(place))
            for i in range(len(found) - n + 1):
                counts[place[tuple(found[i : i + n])]] += 1
            return counts

        golds = [np.array([vector(text) for text in of_line]) for of_line in references]
        frequency = np.maximum(sum((of_line > 0).any(0).astype(int) for of_line in golds), 1)
        idf = np.log(12) - np.log(frequency)
        for i, line in enumerate(lines):
            a, b = vector(line) * idf, golds[i] * idf
            norms = np.linalg.norm(a) * np.linalg.norm(b, axis=1)
            cosine = (np.minimum(a, b) * b).sum(1) / np.where(norms, norms, 1)
            length = np.array([len(line.split()) - len(text.split()) for text in references[i]])
            expected[i] += 10 / 4 * (cosine * np.exp(-(length**2) / 72)).mean()
    assert (expected > 0).sum() > 6
    np.testing.assert_allclose(scores.cider_of_lines(lines, references), expected, atol=1e-9)


def test_every_score():
    lines, references = ['The red dog runs.', 'A cat'], [['the red dog', 'the red dog runs fast'], ['A cats']]
    found = scores.score(lines, references, 'en')
    # 4 and 2 words, in the references nearest in length, the shorter of two, 3 and 2 of them.
    matches, counts = np.array([4 + 1, 3 + 0, 2, 1]), np.array([4 + 2, 3 + 1, 2, 1])
    for order in scores.ORDERS:
        precision = (matches[:order] / counts[:order]).prod() ** (1 / order)
        assert found[f'bleu{order}']['score'] == pytest.approx(100 * precision)
    cider = scores.cider_of_lines(lines, references)
    assert found['cider']['score'] == pytest.approx(np.mean(cider))
    low, high = found['cider']['interval']
    assert low == pytest.approx(min(cider)) and high == pytest.approx(max(cider))
    # sacreBLEU counts the full stop and the case, and smooths.
    assert 0 < found['bleu']['score'] < 60 and 50 < found['chrf']['score'] < 100
    assert scores.score(['a b c d e'], [['a b c x d e']], 'en')['bleu4']['score'] == 0
    shorter = scores.score(['a', 'a b'], [['a b c'], ['a b', 'x']], None)
    assert shorter['bleu1']['score'] == pytest.approx(100 * math.exp(1 - 5 / 3))


def test_equal_captions_have_the_most():
    lines = [f'{line}.' for line in LINES * 2]
    found = scores.score(lines, [[line] for line in lines], 'de')
    assert found['bleu']['score'] == pytest.approx(100) and found['bleu3']['score'] == pytest.approx(100)
    assert found['chrf']['score'] == pytest.approx(100) and found['cider']['score'] == pytest.approx(7.5)
