"""Scores of answers: cases by hand, and the numbers of SQuAD's official scripts for the same answers."""

import json
import os
import pathlib
import random

import numpy as np
import pytest

from transformer.config import ConfigError
from transformer.tasks.answers import squad_scores

pytestmark = pytest.mark.usefixtures('all_resamples')

DEV = (
    pathlib.Path(os.environ.get('TRANSFORMER_TEST_DATA', 'none'))
    / 'family/question_answering/squad_v11_dev/dev-v1.1.rebuilt.json'
)

# Exact match and F1 that evaluate-v1.1.py and evaluate-v2.0.py print of the answers that `random_questions`
# and `dev_questions` make.
OFFICIAL = {
    'random': {'1.1': (62.6, 46.32769841269846), '2.0': (59.0, 67.38682539682537)},
    'dev': {'1.1': (44.53169347209082, 63.943276276227735), '2.0': (33.34910122989593, 43.54313746813513)},
}


@pytest.mark.parametrize(
    ('predicted', 'gold', 'exact', 'f1'),
    [
        ('Denver Broncos', ['Denver Broncos'], 1, 1),
        ('the Denver Broncos', ['Denver Broncos'], 1, 1),
        ('DENVER broncos!', ['Denver Broncos'], 1, 1),
        ('Broncos Denver', ['Denver Broncos'], 0, 1),
        ('Denver', ['Denver Broncos'], 0, 2 / 3),
        ('Denver Denver', ['Denver Broncos'], 0, 1 / 2),
        ('Denver Denver', ['Denver', 'Broncos'], 0, 2 / 3),
        ('the team of Denver', ['Denver Broncos', 'Denver'], 0, 1 / 2),
        ('Carolina', ['Denver Broncos', 'Denver'], 0, 0),
        ('Denver', ['Denver Broncos', 'Denver'], 1, 1),
        (None, ['Denver'], 0, 0),
        ('', ['Denver'], 0, 0),
        # Removed punctuation joins what is beside it; other signs stay.
        ("Levi's", ['Levis'], 1, 1),
        ('2-1', ['21'], 1, 1),
        ('1,5 %', ['15'], 1, 1),
        ('5 – 4', ['5 4'], 0, 4 / 5),
        # Articles are whole words, beside any sign that is no letter.
        ('theatre and a ban', ['theatre and ban'], 1, 1),
        ('a–b', ['–b'], 1, 1),
        ('an\tapple \n tree', ['apple tree'], 1, 1),
        ('ÉCOLE', ['école'], 1, 1),
        # Without a word that counts, equal answers match and have no word in common.
        ('The', ['a'], 1, 0),
        ('...', [''], 1, 0),
        ('the', ['Denver', 'An'], 1, 0),
    ],
)
def test_answers_by_hand(predicted, gold, exact, f1):
    scores = squad_scores.score([predicted], [gold])
    assert scores.exact.tolist() == [exact]
    assert scores.f1.tolist() == pytest.approx([f1], abs=1e-12)


@pytest.mark.parametrize(
    ('predicted', 'gold', 'exact', 'f1'),
    [
        ('', [], 1, 1),
        ('the', [], 1, 1),
        ('Denver', [], 0, 0),
        (None, [], 0, 0),
        ('', ['Denver'], 0, 0),
        ('Denver', ['Denver Broncos'], 0, 2 / 3),
        # Only gold answers with a word count, if there is one.
        ('', ['Denver', 'the'], 0, 0),
        ('a', ['...', 'the'], 1, 1),
    ],
)
def test_questions_without_answer(predicted, gold, exact, f1):
    scores = squad_scores.score([predicted], [gold], answerable=False)
    assert scores.exact.tolist() == [exact]
    assert scores.f1.tolist() == pytest.approx([f1], abs=1e-12)


def test_question_without_answer_is_refused():
    with pytest.raises(ConfigError, match='question 2 '):
        squad_scores.score(['a', 'b'], [['a'], []])


def test_means_and_intervals():
    predicted = ['Denver', 'Denver', 'Carolina', None] * 10
    scores = squad_scores.score(predicted, [['Denver'], ['Denver Broncos'], ['Denver'], ['Denver']] * 10)
    means = scores.means()
    assert means['exact']['score'] == 25.0
    assert means['f1']['score'] == pytest.approx(100 * (1 + 2 / 3) / 4)
    rng = np.random.default_rng(0)
    resampled = [100 * scores.f1[rng.integers(0, 40, 40)].mean() for _ in range(1000)]
    assert means['f1']['interval'] == pytest.approx(np.percentile(resampled, [2.5, 97.5]), abs=1e-9)


def changed(answer, rng):
    """Makes up to three changes of an answer's words and signs."""
    words = answer.split()
    for _ in range(rng.randint(0, 3)):
        place, change = rng.randint(0, len(words)), rng.choice(('add', 'drop', 'case', 'repeat', 'swap'))
        if change == 'add':
            words.insert(place, rng.choice(('a', 'An', 'the', 'and', '.', '-', '–', "'s", '"', '½')))
        elif change == 'swap':
            rng.shuffle(words)
        else:
            new = {'drop': [], 'case': [w.swapcase() for w in words], 'repeat': words + words}
            words = [*words[:place], *new[change][place : place + 1], *words[place + 1 :]]
    return rng.choice((' ', '  ', '-')).join(words)


def random_questions(version):
    """Draws predicted and gold answers to 1,000 questions, of words that the rules change."""
    rng = random.Random(version)
    words = (
        'the',
        'A',
        'an',
        'Denver',
        'denver',
        'Broncos,',
        'broncos',
        '2-1',
        '½',
        '–',
        '.',
        "team's",
        'is',
    )
    gold = [
        [' '.join(rng.choices(words, k=rng.randint(0, 4))) for _ in range(rng.randint(version == '1.1', 3))]
        for _ in range(1000)
    ]
    return [changed(rng.choice(answers or ['']), rng) for answers in gold], gold


def dev_questions(version):
    """Draws predicted and reads gold answers of SQuAD's dev set; for 2.0 a third of the gold is removed."""
    rng = random.Random(version)
    articles = json.loads(DEV.read_text(encoding='utf-8'))['data']
    asked = [question for article in articles for part in article['paragraphs'] for question in part['qas']]
    gold = [[answer['text'] for answer in question['answers']] for question in asked]
    predicted = [changed(rng.choice(answers), rng) for answers in gold]
    if version == '1.1':
        return [None if rng.random() < 0.05 else answer for answer in predicted], gold
    predicted = ['' if rng.random() < 0.2 else answer for answer in predicted]
    return predicted, [[] if rng.random() < 1 / 3 else answers for answers in gold]


def assert_official(questions, version, expected):
    scores = squad_scores.score(*questions, answerable=version == '1.1').means()
    assert (scores['exact']['score'], scores['f1']['score']) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize('version', ['1.1', '2.0'])
def test_totals_of_official_scripts(version):
    assert_official(random_questions(version), version, OFFICIAL['random'][version])


@pytest.mark.skipif(not DEV.exists(), reason=f'TRANSFORMER_TEST_DATA names no folder with {DEV.name}')
@pytest.mark.parametrize('version', ['1.1', '2.0'])
def test_totals_of_official_scripts_on_dev(version):
    assert_official(dev_questions(version), version, OFFICIAL['dev'][version])
