"""Planted faults are found, each by its finding alone, and the paper's own trainings have none."""

import dataclasses

import pytest

from configs import base, big, wmt14_en_de
from experiments.tables import rows as tables
from experiments.tables import scales
from transformer import config as configs
from transformer.config import Config
from transformer.data import vocabulary
from transformer.data.tokenizers.sentence_piece import SentencePieceTokenizer
from transformer.runs import retention
from transformer.tasks.translation.diagnose import Evidence, findings

ENGLISH = 'the dog and the cat of the man with the hat saw that the house is old .'
GERMAN = 'der Hund und das Haus mit dem Mann ist nicht alt und wird von dem Hund gesehen .'
LINES = 3003


def text(sentence: str) -> list[str]:
    """Makes different lines of some words, detokenised and capitalised."""
    words = sentence.split()
    lines = [' '.join(words[(i + j * j) % (len(words) - 1)] for j in range(9)) for i in range(LINES)]
    return [f'{line.capitalize()} {i}.' for i, line in enumerate(lines)]


def scores_of(config: Config) -> dict[str, object]:
    """Returns the record of the checkpoint that a config's whole training on WMT 2014 scores."""
    train = config.train
    averaging = (train.average_last, train.average_every)
    kept: set[int] = set()
    for step in [*range(train.checkpoint_every, train.steps, train.checkpoint_every), train.steps]:
        kept = retention.retained_steps(kept | {step}, {}, train.keep, averaging)
    steps = retention.averaged_steps(max(kept), *averaging) if train.average_last else [max(kept)]
    assert set(steps) <= kept
    # As tests/data/test_batches.py finds it in text of WMT 2014.
    tokens = round(25_870 / 32_768 * config.data.batch_tokens)
    return {
        'checkpoint': 'average' if train.average_last else train.scored,
        'steps': steps,
        'tokens': tokens * train.steps,
        'decode': dataclasses.asdict(config.decode),
    }


@pytest.fixture(scope='module')
def healthy() -> Evidence:
    """Makes the evidence of the paper's base model on the whole newstest2014, averaged."""
    sources, references = text(ENGLISH), text(GERMAN)
    config = configs.replace(configs.resolve(wmt14_en_de.get_config()), {'data.pieces': 360})
    pieces = SentencePieceTokenizer(vocabulary.train([*sources, *references], 360))
    codecs = {'source': pieces, 'target': pieces}
    translations = [line.replace('Hund', 'Kerl') for line in references]
    return Evidence(config, 'test', scores_of(config), sources, references, translations, codecs)


def changed(evidence: Evidence, **options) -> Evidence:
    """Returns the evidence with other options of the config, as train__steps=9."""
    changes = {name.replace('__', '.'): value for name, value in options.items()}
    return dataclasses.replace(evidence, config=configs.replace(evidence.config, changes))


def lines(evidence: Evidence, change, *, every: int = 10) -> Evidence:
    """Returns the evidence with every tenth translation changed."""
    made = [
        change(source, line) if i % every == 0 else line
        for i, (source, line) in enumerate(zip(evidence.sources, evidence.translations, strict=True))
    ]
    return dataclasses.replace(evidence, translations=made)


def first(evidence: Evidence, count: int) -> Evidence:
    texts = {name: getattr(evidence, name)[:count] for name in ('sources', 'references', 'translations')}
    return dataclasses.replace(evidence, **texts)


def swapped(evidence: Evidence) -> Evidence:
    texts = {'sources': evidence.references, 'references': evidence.sources, 'translations': evidence.sources}
    return dataclasses.replace(evidence, **texts)


def scored(evidence: Evidence, **scores) -> Evidence:
    return dataclasses.replace(evidence, scores={**evidence.scores, **scores})


FAULTS = {
    'filtered test set': (lambda e: first(e, 2737), ['2,737']),
    'part of the test set': (
        lambda e: first(changed(e, data__source='text', data__test='news/newstest2014'), 3000),
        ['3,000'],
    ),
    'fewer translations': (lambda e: dataclasses.replace(e, translations=e.translations[1:]), ['3,002']),
    'direction swapped': (swapped, ['sources', 'references', 'translations']),
    'German to English': (
        lambda e: changed(swapped(e), data__source_language='de', data__target_language='en'),
        ['data.source_language=en'],
    ),
    'tokenized references': (
        lambda e: dataclasses.replace(e, references=[r.replace('.', ' .') for r in e.references]),
        ['data.test'],
    ),
    'lowercased references': (
        lambda e: dataclasses.replace(e, references=[r.lower() for r in e.references]),
        ['data.test'],
    ),
    'short': (lambda e: lines(e, lambda s, t: ' '.join(t.split()[:6]), every=1), ['0.545 0.435']),
    'long': (lambda e: lines(e, lambda s, t: f'{t} {t}', every=3), ['decode.alpha']),
    'pieces': (lambda e: lines(e, lambda s, t: t.replace(' ', ' ▁')), ['301']),
    'separators': (lambda e: lines(e, lambda s, t: t.replace('Haus', 'Ha@@ us')), ["as '@@'"]),
    'entities': (lambda e: lines(e, lambda s, t: f'&quot;{t}&quot;'), ["as '&quot;'"]),
    'copies': (lambda e: lines(e, lambda s, t: s), ['10.0 %']),
    'truncated': (lambda e: lines(e, lambda s, t: f'{t[:-1]}{" ja" * 70}', every=100), ['1.0 %']),
    'long sources': (lambda e: scored(e, decode={**e.scores['decode'], 'max_source_len': 12}), ['12']),
    'unknown pieces': (lambda e: lines(e, lambda s, t: f'{t} ⁇'), ['301']),
    'small batches': (lambda e: scored(e, tokens=4_000 * 100_000), ['4,000']),
    'no average': (
        lambda e: scored(
            changed(e, train__average_last=0, train__checkpoint_every=250), checkpoint='best', steps=[100_000]
        ),
        ['train.average_last=5 train.average_every=250'],
    ),
    'chosen on dev': (
        lambda e: dataclasses.replace(
            scored(first(e, 3000), checkpoint='best', steps=[96_000], tokens=25_870 * 96_000), split='dev'
        ),
        ['train.scored'],
    ),
    'close checkpoints': (lambda e: scored(e, steps=list(range(99_600, 100_001, 100))), ['100']),
    'penalty': (lambda e: scored(e, decode={**e.scores['decode'], 'alpha': 1.0}), ['alpha=1.0']),
    'search': (lambda e: scored(e, decode={**e.scores['decode'], 'method': 'greedy'}), ['method=greedy']),
}


PAPER = {
    'Table 3, base': (configs.resolve(base.get_config()), 'dev', 3000),
    'Table 3, big': (configs.resolve(big.get_config()), 'dev', 3000),
    'Table 2, base': (configs.resolve(wmt14_en_de.get_config()), 'test', LINES),
    'Table 2, big': (scales.config(tables.rows('2', 'big-en-de')[0], 'paper'), 'test', LINES),
}


@pytest.mark.parametrize('name', PAPER)
def test_the_papers_own_trainings_have_no_fault(healthy, name):
    config, split, count = PAPER[name]
    trained = dataclasses.replace(first(healthy, count), config=config, split=split)
    assert findings(scored(trained, **scores_of(config))) == []


@pytest.mark.parametrize('fault', FAULTS)
def test_a_planted_fault(healthy, fault):
    plant, expected = FAULTS[fault]
    found = findings(plant(healthy))
    assert len(found) == len(expected), found
    for finding, values in zip(found, expected, strict=True):
        assert all(value in f'{finding.seen} {finding.change}' for value in values.split())
        assert finding.matters and finding.change


def test_a_script_without_case_lacks_no_capitals(healthy):
    cased = lambda line: [f.seen for f in findings(dataclasses.replace(healthy, references=[line] * LINES))]
    capitals = [seen for seen in cased('das ist ein haus .') if seen not in cased('यह एक घर है .')]
    assert len(capitals) == 1


def test_a_model_that_repeats_itself_has_no_language(healthy):
    english = dataclasses.replace(healthy, translations=text(ENGLISH))
    repeated = dataclasses.replace(healthy, translations=['the of the of the of the of'] * LINES)
    read_as = lambda evidence: [f.seen for f in findings(evidence) if 'read as' in f.seen]
    assert len(read_as(english)) == 1 and not read_as(repeated)
