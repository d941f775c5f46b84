"""Slices of generated splits, and options that name files, which these sources do not read."""

import itertools

import numpy as np
import pytest

from transformer.config import OPTIONS, ConfigError, Data
from transformer.config.declare import check_meaning
from transformer.data.fields import Image, Label, Reading, Text, Tree
from transformer.data.generated import pictures, sources
from transformer.data.generated.grammar import sentences
from transformer.data.generated.scenes import captions, world
from transformer.data.sources import reader

PAIR = Reading({'source': Text('en', ''), 'target': Text('de', '')}, ())
PARSES = Reading({'source': Text(None, ''), 'target': Tree(tags=False)}, ())
PICTURES = Reading({'image': Image(32, 32, 3), 'label': Label()}, ())


def rows(data: Data, reading: Reading, split: str) -> list:
    return list(reader.rows(data, reading, split, reader.Report()))


def origins(data: Data, reading: Reading, split: str) -> list[tuple[str, int]]:
    return [one[:2] for one in reader.READERS[data.source].origins(data, reading, split)]


@pytest.mark.parametrize(
    ('dev', 'names', 'expected'),
    [
        ('validation', [('grammar/dev', 1000)], [*range(1000)]),
        ('dev', [('grammar/dev', 1000)], [*range(1000)]),
        ('dev[:3]', [('grammar/dev[:3]', 3)], [0, 1, 2]),
        ('dev[:1%]', [('grammar/dev[:1%]', 10)], [*range(10)]),
        ('dev[998:]', [('grammar/dev[998:]', 2)], [998, 999]),
        ('dev[1:2],dev[5:7]', [('grammar/dev[1:2]', 1), ('grammar/dev[5:7]', 2)], [1, 5, 6]),
    ],
)
def test_slices_of_the_grammar(dev, names, expected):
    data, pairs = Data(source='grammar', dev=dev), sentences.sentence_pairs('dev')
    found = rows(data, PAIR, 'dev')
    assert [(row.values['source'], row.values['target']) for row in found] == [pairs[i] for i in expected]
    assert [row.line for row in found] == [i + 1 for i in expected]
    assert origins(data, PAIR, 'dev') == names
    assert [row.values['target'] for row in rows(data, PARSES, 'dev')] == [
        tree for i, tree in enumerate(rows_of_trees()) if i in expected
    ]


def rows_of_trees() -> list:
    """Returns the target of every row of dev."""
    return [row.values['target'] for row in rows(Data(source='grammar'), PARSES, 'dev')]


def test_another_slice_is_another_origin():
    of = lambda dev: reader.READERS['grammar'].origins(Data(source='grammar', dev=dev), PAIR, 'dev')
    assert of('dev') == of('validation')
    assert len({one.sha256 for one in (*of('dev'), *of('dev[:9]'), *of('dev[1:10]'))}) == 3


def test_slices_of_pictures():
    data = Data(source='pictures', train='train[498:502]', dev='dev[:2]')
    found = rows(data, PICTURES, 'train')
    drawn = itertools.islice(pictures.pictures('train'), 498, 502)
    for row, (picture, label) in zip(found, drawn, strict=True):
        np.testing.assert_array_equal(row.values['image'], picture)
        assert row.values['label'] == label
    assert [row.line for row in found] == [499, 500, 501, 502]
    assert origins(data, PICTURES, 'train') == [('pictures/train[498:502]', 4)]
    assert origins(data, PICTURES, 'dev') == [('pictures/dev[:2]', 2)]
    assert origins(data, PICTURES, 'test') == [('pictures/test', 2000)]


def scenes(language: str | None) -> Reading:
    return Reading({'image': Image(32, 32, 3), 'text': Text(language, 'data.language')}, ())


@pytest.mark.parametrize(('split', 'option'), [('train', 'train[499:501]'), ('test', 'unseen[:2]')])
def test_slices_of_scenes(split, option):
    name, start = option.partition('[')[0], 499 if split == 'train' else 0
    data, drawn = Data(source='scenes', **{split: option}), captions.scenes(name, start, start + 2)
    both = Reading(
        scenes('en').fields | {'other': Text('de', 'data.language')} | {'small': Image(16, 16, 1)}, ()
    )
    for number, (row, picture) in enumerate(zip(rows(data, both, split), drawn, strict=True), start):
        np.testing.assert_array_equal(row.values['image'], picture)
        assert row.values['text'] == captions.caption(name, number, 'en')
        assert row.values['other'] == captions.caption(name, number, 'de')
        assert row.values['small'].shape == (16, 16, 1) and row.line == number + 1
    assert origins(data, both, split) == [(f'scenes/{option}', 2)]
    default = origins(Data(source='scenes'), both, split)
    assert default == [(f'scenes/{split}', world.SIZES[split])]


def test_scenes_by_language():
    data, of = Data(source='scenes'), reader.READERS['scenes'].origins
    one, other = (of(data, scenes(language), 'dev')[0].sha256 for language in ('en', 'de'))
    assert one != other
    with pytest.raises(ConfigError, match="data.language='fr'"):
        rows(data, scenes('fr'), 'dev')


def test_the_grammar_judges_german():
    def judge(source, *languages):
        texts = {language: Text(language, '') for language in languages}
        return sources.sentence_judge(Data(source=source), Reading(texts, ()))

    german = judge('grammar', 'de')
    assert german('Der Hund schläft.')
    assert not german('Den Hund schläft.')
    others = [(source, language) for source in ('text', 'tfds') for language in ('de', 'en')]
    for other in (*others, ('grammar', 'en'), ('grammar', 'en', 'de')):
        assert judge(*other) is None


def test_truth_of_scenes():
    judge = sources.scene_truth(Data(source='scenes'), scenes('de'))
    picture = next(captions.scenes('unseen', 7, 8))
    assert judge(picture, captions.caption('unseen', 7, 'de')) is True
    assert judge(picture, captions.wrong_caption('unseen', 7, 'de', 'colour')) is False
    assert judge(picture, captions.caption('unseen', 7, 'en')) is None
    assert judge(picture[::-1], captions.caption('unseen', 7, 'de')) is None
    assert sources.scene_truth(Data(source='folders'), scenes('de')) is None
    for size in (Image(64, 64, 3), Image(32, 32, 1)):
        other = Reading({'image': size, 'text': Text('de', 'data.language')}, ())
        assert sources.scene_truth(Data(source='scenes'), other) is None
    assert sources.scene_truth(Data(source='pictures'), PICTURES) is None


@pytest.mark.parametrize('source', ['grammar', 'pictures', 'scenes'])
@pytest.mark.parametrize('name', ['own.txt', 'own[:9]', 'validation[:9]'])
def test_files_are_refused(source, name):
    reading = {'grammar': PAIR, 'pictures': PICTURES, 'scenes': scenes('en')}[source]
    with pytest.raises(ConfigError) as error:
        rows(Data(source=source, dev=name), reading, 'dev')
    assert str(error.value).startswith('data.dev=') and f'data.source={source}' in str(error.value)


@pytest.mark.parametrize('source', ['grammar', 'pictures', 'scenes'])
def test_options_know_the_splits(source):
    """A config is refused with the source's splits; `unseen` is a split of scenes alone."""
    task = {'grammar': 'translation', 'pictures': 'images', 'scenes': 'captions'}[source]
    own = tuple(world.SIZES) if source == 'scenes' else ('train', 'dev', 'test')
    values = {key: field.default for key, field in OPTIONS.items()}
    values |= {'train.task': task, 'data.source': source}
    for name in own:
        check_meaning(OPTIONS, values | {'data.test': f'{name}[:9],{name}'})
    for name in {'nosuch', 'validation', 'unseen', 'trains'} - {*own}:
        with pytest.raises(ConfigError) as error:
            check_meaning(OPTIONS, values | {'data.test': f'{own[0]},{name}'})
        assert 'data.test' in str(error.value) and ', '.join(own) in str(error.value)


def test_pictures_have_no_unseen_split():
    with pytest.raises(ConfigError) as error:
        rows(Data(source='pictures', test='unseen'), PICTURES, 'test')
    assert 'data.test=unseen' in str(error.value)
