"""Findings: each on a training that has the fault, and none on one that has not."""

import json
import pathlib

import numpy as np
import pytest

from transformer import config as configs
from transformer.config import TASKS
from transformer.data.arrays import Dense, Ragged, ragged
from transformer.data.codec import Labels
from transformer.data.dataset import Dataset, Split
from transformer.data.tokenizers.byte import ByteTokenizer
from transformer.runs.restore import Trained
from transformer.tasks import findings, task_of
from transformer.tasks.findings import Outcome

HEALTHY = Outcome(
    steps=100_000,
    epochs=20,
    losses=[(100, 3.0), (200, 2.0), (300, 1.9), (400, 1.89)],
    split='test',
    entry={'checkpoint': 'average'},
    lines=[],
)
MANIFEST = {'splits': {'train': {'pairs': 1000}, 'test': {'pairs': 100}}}


def seen(found) -> list[str]:
    """Joins the fault and the change of each finding."""
    return [f'{finding.seen} {finding.change}' for finding in found]


def assert_findings(found, expected: list[str]) -> None:
    """Asserts that the findings are as many as expected, and contain the values that blanks separate."""
    lines = seen(found)
    assert len(lines) == len(expected), lines
    for line, values in zip(lines, expected, strict=True):
        assert all(value in line for value in values.split()), line


def of_training(options=(), splits=(), **outcome) -> list:
    config = configs.resolve(configs.config_dict(dict(options)))
    manifest = {
        'splits': MANIFEST['splits'] | {name: {'pairs': count} for name, count in dict(splits).items()}
    }
    return list(findings.of_training(config, manifest, HEALTHY._replace(**outcome)))


def curve(*losses: float) -> list[tuple[int, float]]:
    return [(100 * i, loss) for i, loss in enumerate(losses, 1)]


@pytest.mark.parametrize(
    ('faulty', 'expected'),
    [
        ({}, []),
        ({'steps': 7999}, ['7,999 4,000 train.warmup_steps']),
        ({'steps': 8000}, ['8,000 100,000']),
        # A training that ends by itself, and a best checkpoint, may have fewer updates.
        ({'steps': 8000, 'options': {'train.patience': 3}}, []),
        ({'steps': 8000, 'entry': {'checkpoint': 'best'}}, []),
        ({'losses': curve(3.0, 2.0, 1.8)}, ['0.200 100 train.steps']),
        ({'losses': curve(3.0, 1.5, 1.6)}, ['1.500 200 1.600 300 train.patience']),
        ({'losses': curve(3.0, 1.5, 1.6), 'entry': {'checkpoint': 'best'}}, []),
        ({'losses': curve(3.0)}, []),
        ({'epochs': 40}, []),
        ({'epochs': 80}, ['80 data']),
        ({'splits': {'train': 999}}, ['999 --init_from']),
        ({'splits': {'test': 99}}, ['99 data.test']),
    ],
)
def test_the_length_the_losses_and_the_data_of_any_training(faulty, expected):
    assert_findings(of_training(**faulty), expected)


def test_a_file_can_be_a_whole_corpus():
    options = {'train.task': 'language', 'data.source': 'text', 'data.batching': 'running'}
    options['data.documents'] = 'files'
    assert of_training(options, {'train': 1, 'test': 1}) == []


def test_the_entropy_is_the_loss_of_a_guess_by_frequencies():
    # 2 of 4, 1 of 4 and 1 of 4: log 2 / 2 + 2 log 4 / 4.
    assert findings.entropy(np.array([7, 7, 8, 9])) == pytest.approx(1.5 * np.log(2))


def texts(count: int = 8) -> Ragged:
    """Makes texts of the pieces 4 to 7, each as often as the others, whose entropy is log 4."""
    return ragged([[4, 5, 6, 7]] * count, np.dtype('<u2'))


LABELS = Labels(('a', 'b', 'c', 'd'))
CLASSES = Dense(np.array([0, 1, 2, 3, 0, 1, 2, 3], '<i4'))
NUMBERS = Dense(np.array([0.0, 4.0] * 4, np.float32))  # whose variance is 4
TAGS = ragged([[1, 0, 2, 0]] * 8, np.dtype('<i4'))
SQUAD = {
    'question': ragged([[4, 5, 1]] * 8, np.dtype('<u2')),
    'context': ragged([[*range(4, 16), 1]] * 8, np.dtype('<u2')),
    'answer': Dense(np.array([[2, 3]] * 8, '<i4')),
}
BYTES, LEARNED = ByteTokenizer(), 1.0
GOOD, LINES = {'loss': LEARNED}, list('abcdabcd')
# Of each task: options, fields, codecs; a good entry and good lines; faults, each with its findings.
CASES = {
    'parsing': (
        {'data.source': 'trees'},
        {'source': texts(), 'target': texts()},
        {},
        GOOD | {'repaired': {'share': 0.05}},
        LINES,
        {
            'unlearned': ({'loss': 1.3}, None, ['1.300 1.386']),
            'infinite': ({'loss': None}, None, ['inf']),
            'repaired': ({'repaired': {'share': 0.96}}, None, ['96.0 decode.well_formed']),
        },
    ),
    'transliteration': (
        {},
        {'source': texts(), 'target': texts()},
        {},
        GOOD,
        LINES,
        {
            'unlearned': ({'loss': 1.3}, None, ['1.300 1.386']),
            'empty': ({}, ['', *'bcdabcd'], ['12.5 empty']),
            'equal': ({}, [*'xxxxxabc'], ["62.5 'x'"]),
        },
    ),
    'language': (
        {'data.language': 'en'},
        {'text': texts()},
        {},
        GOOD,
        LINES,
        {
            'unlearned': ({'loss': 1.3}, None, ['1.300 1.386']),
            'empty': ({}, ['', *'bcdabcd'], ['12.5 empty']),
        },
    ),
    'masked': (
        {'data.language': 'en'},
        # The end is no piece that is hidden.
        {'text': ragged([[4, 5, 6, 7, 1]] * 8, np.dtype('<u2'))},
        {'text': BYTES},
        GOOD,
        LINES,
        {'unlearned': ({'loss': 1.3}, None, ['1.300 1.386'])},
    ),
    'denoise': (
        {'data.language': 'de'},
        {'text': texts()},
        {},
        GOOD,
        LINES,
        {'unlearned': ({'loss': 1.3}, None, ['1.300 1.386'])},
    ),
    'text_to_text': (
        {'data.source': 'table'},
        {'target': texts()},
        {},
        GOOD,
        LINES,
        {
            'unlearned': ({'loss': 1.3}, None, ['1.300 1.386']),
            'equal': ({}, [*'xxxxxabc'], ["62.5 'x'"]),
            'empty': ({}, ['', *'bcdabcd'], ['12.5 empty']),
        },
    ),
    'words': (
        {'data.source': 'text', 'model.kind': 'table', 'words.negatives': 3},
        {},
        {},
        # Vectors of zeros: 4 log 2.
        {'loss': 2.4},
        LINES,
        {'unlearned': ({'loss': 2.7}, None, ['2.700 2.773'])},
    ),
    'images': (
        {'data.source': 'pictures'},
        {'label': CLASSES},
        {'label': LABELS},
        {'accuracy': 0.28},
        LINES,
        {'guesses': ({'accuracy': 0.26}, None, ['26.0 25.0']), 'few': ({}, [*'aaaabbbb'], ['2 4'])},
    ),
    'captions': (
        {'data.source': 'scenes', 'data.language': 'en'},
        {'text': texts()},
        {},
        GOOD,
        LINES,
        {
            'unlearned': ({'loss': 1.3}, None, ['1.300 1.386']),
            'empty': ({}, ['', *'bcdabcd'], ['12.5 empty']),
            'equal': ({}, [*'xxxxxabc'], ["62.5 'x'"]),
            'repeated': ({}, ['a b a b a', 'c c c', 'd d d d', 'e e e', *'fghi'][:6], ['half']),
        },
    ),
    'classify': (
        {'data.source': 'table'},
        {'label': CLASSES},
        {'label': LABELS},
        {'accuracy': {'score': 0.28}},
        LINES,
        {
            'guesses': ({'accuracy': {'score': 0.26}}, None, ['26.0 25.0']),
            'few': ({}, [*'aaaabbbb'], ['2 4']),
        },
    ),
    'labelling': (
        {'data.source': 'conll'},
        {'tags': TAGS},
        {},
        {'accuracy': {'score': 0.8}, 'baseline': 0.7},
        LINES,
        {
            'guesses': ({'accuracy': {'score': 0.51}, 'baseline': None}, None, ['51.0 50.0']),
            'usual': ({'baseline': 0.81}, None, ['80.0 81.0']),
        },
    ),
    'answers': (
        {'data.source': 'squad', 'data.max_len': 64},
        SQUAD,
        {'context': BYTES},
        # A window has 3 + 12 + 1 pieces: log 16.
        {'loss': 2.0},
        LINES,
        {
            'unlearned': ({'loss': 2.6}, None, ['2.600 2.773']),
            'equal': ({}, [*'xxxxxabc'], ["62.5 'x'"]),
            'empty': ({}, ['', *'bcdabcd'], ['12.5 empty']),
        },
    ),
}


def of_task(task: str, entry=(), lines=None, train=200, **options) -> list:
    of_case, fields, codecs, good, good_lines, _ = CASES[task]
    named = {key.replace('__', '.'): value for key, value in options.items()}
    config = configs.resolve(configs.config_dict({'train.task': task, **of_case, **named}))
    manifest = {'splits': {'train': {'pairs': train}}}
    dataset = Dataset(pathlib.Path(), codecs, {'test': Split(fields)}, manifest)
    outcome = HEALTHY._replace(entry=good | dict(entry), lines=good_lines if lines is None else lines)
    return list(task_of(config).findings(Trained(config, None, codecs), dataset, outcome))


@pytest.mark.parametrize('task', CASES)
def test_a_task_has_its_findings_and_no_others(task):
    assert of_task(task) == []
    for entry, lines, expected in CASES[task][-1].values():
        assert_findings(of_task(task, entry, lines), expected)


def test_every_task_has_findings():
    # Those of translation are in translation/test_diagnose.py, those of contrastive in its test_task.py.
    assert {*CASES, 'translation', 'contrastive'} == set(TASKS)


@pytest.mark.parametrize('task', ['images', 'classify'])
def test_classes_that_a_split_lacks_need_no_answer(task, monkeypatch):
    """A split of one class, and a model that is always right."""
    gold = CASES[task][1]['label']
    monkeypatch.setitem(CASES[task][1], 'label', Dense(np.zeros_like(gold.values)))
    found = of_task(task, lines=[LABELS.names[0]] * len(gold.values))
    assert not any('classes' in one.seen for one in found)


@pytest.mark.parametrize('task', ['images', 'classify'])
def test_classes_of_twelve_examples(task):
    assert_findings(of_task(task, train=12 * LABELS.size), ['12 4 --init_from'])


def test_numbers_are_compared_with_their_mean(monkeypatch):
    monkeypatch.setitem(CASES['classify'][1], 'label', NUMBERS)
    number = {'classify__output': 'number', 'entry': {'loss': 3.0}}
    assert of_task('classify', **number) == []
    assert_findings(of_task('classify', **number | {'entry': {'loss': 3.7}}), ['3.700 4.000'])


def test_questions_without_an_answer_have_empty_answers():
    some = ['', '', 'a', 'b', 'c', 'd', 'e', 'f']
    assert of_task('answers', lines=some, answers__no_answer=True) == []


def test_samples_of_several_lines_have_empty_ones():
    files = {'data__documents': 'files', 'data__batching': 'running', 'data__source': 'text'}
    assert of_task('language', lines=['', 'a'], **files) == []


def test_outcomes_read_only_numbers():
    outcome = HEALTHY._replace(entry=json.loads('{"loss": "low", "gaps": {"accuracy": 0.5}}'))
    assert outcome.score('gaps', 'accuracy') == 0.5 and outcome.score('gaps', 'none') is None
    with pytest.raises(configs.ConfigError):
        outcome.score('loss')
