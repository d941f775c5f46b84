"""conlleval's scores: chunks by hand, and its own numbers of random tags in every scheme."""

import json
import pathlib
import random

import numpy as np
import pytest

from transformer.tasks.labelling import conlleval
from transformer.tasks.labelling.conlleval import Chunks

pytestmark = pytest.mark.usefixtures('all_resamples')

# What conlleval (perl, 2004-01-26) prints of the tags that `corpora` makes. Of each scheme: `each`, for each
# corpus, its tokens, its gold, predicted and correct chunks, and the accuracy; `all`, the same of all corpora
# in one file, with precision, recall and F1; `types`, precision, recall, F1 and predicted chunks of each type
# there.
PRINTED = json.loads((pathlib.Path(__file__).parent / 'conlleval.json').read_text())
TYPES = ('NP', 'VP', 'A-B')
PREFIXES = {
    'IOB1': 'IB',
    'IOB2': 'IB',
    'IOE1': 'IE',
    'IOE2': 'IE',
    'IOBES': 'IBES',
    'open brackets': '[.',
    'close brackets': '].',
}


def encode(chunks, scheme):
    """Makes the tags of successive chunks, which are pairs of type (None outside) and length."""
    tags = []
    for place, (kind, length) in enumerate(chunks):
        last, next_ = (chunks[i][0] if 0 <= i < len(chunks) else None for i in (place - 1, place + 1))
        prefixes = {
            'IOB1': ('B' if last == kind else 'I') + 'I' * (length - 1),
            'IOB2': 'B' + 'I' * (length - 1),
            'IOE1': 'I' * (length - 1) + ('E' if next_ == kind else 'I'),
            'IOE2': 'I' * (length - 1) + 'E',
            'IOBES': 'S' if length == 1 else 'B' + 'I' * (length - 2) + 'E',
            'open brackets': '[' + '.' * (length - 1),
            'close brackets': '.' * (length - 1) + ']',
        }[scheme]
        tags += [f'{prefix}-{kind}' for prefix in prefixes] if kind else ['O'] * length
    return tags


def corpora(scheme):
    """Draws 200 pairs of gold and predicted tags, valid in a scheme, with some replaced in the prediction.

    The scheme `any` has random tags of all schemes, with and without types.
    """
    rng = random.Random(scheme)
    if scheme == 'any':
        alphabet = ['O', *(f'{p}{t}' for p in 'IBES[].X' for t in ('-NP', '-VP', '-A-B', '', '-0', '-'))]
    else:
        alphabet = ['O', *(f'{prefix}-{kind}' for prefix in PREFIXES[scheme] for kind in TYPES)]
    pairs = []
    for _ in range(200):
        gold = []
        for _ in range(rng.randint(1, 3)):
            if scheme == 'any':
                gold.append([rng.choice(alphabet) for _ in range(rng.randint(1, 8))])
            else:
                kinds = [rng.choice((None, *TYPES)) for _ in range(rng.randint(1, 5))]
                gold.append(encode([(kind, rng.randint(1, 3)) for kind in kinds], scheme))
        change = lambda tag: rng.choice(alphabet) if rng.random() < 0.2 else tag
        pairs.append((gold, [list(map(change, tags)) for tags in gold]))
    return pairs


@pytest.mark.parametrize('scheme', [*PREFIXES, 'any'])
def test_numbers_of_conlleval(scheme):
    printed, pairs = PRINTED[scheme], corpora(scheme)
    assert len(printed['each']) == len(pairs) == 200
    for pair, expected in zip(pairs, printed['each'], strict=True):
        scores = conlleval.score(*pair)
        chunks = scores.chunks
        counts = [scores.tokens, chunks.gold, chunks.predicted, chunks.correct]
        assert [*counts, round(scores.accuracy, 2)] == expected, pair
    gold, predicted = ([tags for pair in pairs for tags in pair[side]] for side in (0, 1))
    scores = conlleval.score(gold, predicted)
    chunks = scores.chunks
    counts = [scores.tokens, chunks.gold, chunks.predicted, chunks.correct]
    rates = [scores.accuracy, chunks.precision, chunks.recall, chunks.f1]
    assert [*counts, *(round(rate, 2) for rate in rates)] == printed['all']
    assert {
        kind: [*(round(rate, 2) for rate in (one.precision, one.recall, one.f1)), one.predicted]
        for kind, one in scores.types.items()
    } == printed['types']
    assert list(scores.types) == sorted(scores.types)


@pytest.mark.parametrize(
    ('gold', 'predicted', 'expected'),
    [
        ('B-X I-X O', 'B-X I-X O', Chunks(1, 1, 1)),
        # IOB1 and IOB2 may be mixed.
        ('I-X I-X B-X', 'B-X I-X B-X', Chunks(2, 2, 2)),
        # The type or the end of a chunk differs.
        ('B-X I-X O', 'B-Y I-Y O', Chunks(0, 1, 1)),
        ('B-X I-X O', 'B-X O O', Chunks(0, 1, 1)),
        ('B-X I-X O', 'B-X I-X I-X', Chunks(0, 1, 1)),
        # Another type starts a chunk, whatever the prefix.
        ('B-X I-Y', 'B-X B-Y', Chunks(2, 2, 2)),
        ('I-X E-X I-X E-X', 'I-X I-X I-X E-X', Chunks(0, 1, 2)),
        ('[-X [-X', 'B-X B-X', Chunks(2, 2, 2)),
        ('S-X S-X', 'B-X I-X', Chunks(1, 1, 1)),
        # A sentence ends every chunk.
        ('B-X | I-X', 'B-X | B-X', Chunks(2, 2, 2)),
        ('I-X | I-X', 'O | I-X', Chunks(1, 1, 2)),
        # Except a chunk whose last prefix is a full stop, which is correct if no other chunk follows.
        ('[-X .-X', '[-X .-X', Chunks(1, 1, 1)),
        ('B-X .-X | O', 'B-X .-X | O', Chunks(1, 1, 1)),
        ('B-X .-X | B-X', 'B-X .-X | B-X', Chunks(1, 2, 2)),
        ('O', 'O', Chunks(0, 0, 0)),
    ],
)
def test_chunks_by_hand(gold, predicted, expected):
    gold, predicted = ([tags.split() for tags in side.split('|')] for side in (gold, predicted))
    scores = conlleval.score(gold, predicted)
    assert scores.chunks == expected
    assert scores.by_sentence.sum(0).tolist() == list(expected)
    assert scores.by_sentence.shape == (len(gold), 3)


def test_chunk_without_end_is_correct_without_type():
    scores = conlleval.score([['B-X', '.-X'], ['O']], [['B-X', '.-X'], ['O']])
    assert scores.types == {'X': Chunks(0, 1, 1)}
    assert scores.by_sentence.tolist() == [[0, 1, 1], [1, 0, 0]]


def test_no_sentences():
    scores = conlleval.score([], [])
    assert (scores.chunks, scores.types, scores.accuracy) == (Chunks(0, 0, 0), {}, 0.0)


def test_types_and_accuracy():
    gold = [['B-X', 'I-X', 'O', 'B-Y-1'], ['B-X']]
    predicted = [['B-X', 'I-X', 'B-Z', 'B-Y-1'], ['B-Y-1']]
    scores = conlleval.score(gold, predicted)
    assert scores.types == {'X': Chunks(1, 1, 2), 'Y-1': Chunks(1, 2, 1), 'Z': Chunks(0, 1, 0)}
    assert (scores.tokens, scores.right, scores.accuracy) == (5, 3, 60.0)
    assert scores.by_sentence.tolist() == [[2, 3, 2], [0, 1, 1]]
    assert scores.chunks.precision == 50.0
    assert scores.chunks.recall == pytest.approx(200 / 3)
    assert scores.chunks.f1 == pytest.approx(2 * 50 * (200 / 3) / (50 + 200 / 3))
    assert (Chunks(0, 0, 3).precision, Chunks(0, 2, 0).recall, Chunks(0, 0, 0).f1) == (0.0, 0.0, 0.0)


def test_interval_of_f1():
    gold, predicted = ([tags for pair in corpora('IOB2') for tags in pair[side]] for side in (0, 1))
    scores = conlleval.score(gold, predicted)
    estimate = scores.f1()
    assert estimate['score'] == scores.chunks.f1
    rng, size = np.random.default_rng(0), len(gold)
    f1s = []
    for _ in range(1000):
        drawn = rng.integers(0, size, size)
        correct, found, right = scores.by_sentence[drawn].sum(0)
        f1s.append(200 * correct / (found + right))
    assert estimate['interval'] == pytest.approx(np.percentile(f1s, [2.5, 97.5]), abs=1e-9)
    assert estimate['interval'][0] < estimate['score'] < estimate['interval'][1]
