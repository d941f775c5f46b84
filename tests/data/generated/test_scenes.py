"""Scenes with captions: what captions state, whether it is true, and how they are read and written."""

import itertools

import numpy as np
import pytest

from transformer.data.generated import pictures
from transformer.data.generated.pictures import COLOURS, Fact
from transformer.data.generated.scenes import captions, reader, world, writer
from transformer.data.generated.scenes.facts import CHANGES, Caption, Mention, changed, is_true, state

# A large red circle in the middle, a blue square left of it, two green crosses on the right.
PICTURE = [
    Fact('red', 'circle', 1, 1, 3.5),
    Fact('blue', 'square', 0, 1, 2.3),
    Fact('green', 'cross', 2, 0, 2.4),
    Fact('green', 'cross', 2, 2, 2.5),
]


def numbers(split: str, number: int) -> list[int]:
    block, place = divmod(number, pictures.BLOCK)
    return world.draw_block(split, block).numbers[place]


def stated(split: str, number: int) -> Caption:
    return state(captions.facts(split, number), numbers(split, number))


@pytest.mark.parametrize('language', ['en', 'de'])
@pytest.mark.parametrize('split', ['dev', 'unseen'])
def test_reader_inverts_writer(split, language):
    for number in range(world.SIZES[split]):
        facts = stated(split, number)
        text = captions.caption(split, number, language)
        assert reader.read(text, language) == facts, text
        assert captions.holds(text, captions.facts(split, number), language)
        other = {'en': 'de', 'de': 'en'}[language]
        assert reader.read(text, other) is None


def test_captions_vary():
    """Of captions with the same facts, most texts differ, and all read back."""
    facts, draw = stated('dev', 0), np.random.default_rng(0)
    for language in ('en', 'de'):
        drawn = draw.integers(0, 1 << 16, (500, world.NUMBERS)).tolist()
        texts = {writer.write(facts, language, one) for one in drawn}
        assert len(texts) > 250
        assert all(reader.read(text, language) == facts for text in texts)


CIRCLE = Mention('circle', 'red', True, 1, 1, 1)
SQUARE = Mention('square', 'blue', False, 1, None, None, 'left', 0)
CROSSES = Mention('cross', 'green', None, 2, None, None, 'right', 0)


@pytest.mark.parametrize(
    ('language', 'text', 'facts'),
    [
        (
            'de',
            'Links von dem großen roten Kreis, der in der Mitte ist, ist ein kleines blaues Quadrat.',
            (None, (CIRCLE, SQUARE)),
        ),
        (
            'de',
            'Vier Formen: eine große rote Scheibe in der Mitte, ein kleines blaues Quadrat links von ihr und '
            'zwei grüne Kreuze rechts von der Scheibe.',
            (4, (CIRCLE, SQUARE, CROSSES)),
        ),
        (
            'de',
            'Das Bild zeigt einen großen roten Kreis in der Mitte und zwei grüne Kreuze rechts davon.',
            (None, (CIRCLE, CROSSES)),
        ),
        (
            'de',
            'Oberhalb des großen gelben Kreuzes, das unten links liegt, sieht man einen schwarzen Kreis.',
            (
                None,
                (
                    Mention('cross', 'yellow', True, 1, 0, 2),
                    Mention('circle', 'black', None, 1, None, None, 'above', 0),
                ),
            ),
        ),
        (
            'en',
            'A small blue square lies to the left of a large red disc, which is in the centre. In all there '
            'are three shapes.',
            (3, (CIRCLE, SQUARE)),
        ),
        (
            'en',
            'In the middle is a large red circle, and two green crosses are right of it. There is a blue '
            'square.',
            (None, (CIRCLE, CROSSES, Mention('square', 'blue'))),
        ),
        (
            'en',
            'A large red circle in the centre, a blue square and a green triangle below the square.',
            (
                None,
                (
                    CIRCLE,
                    Mention('square', 'blue'),
                    Mention('triangle', 'green', None, 1, None, None, 'below', 1),
                ),
            ),
        ),
    ],
)
def test_reads(language, text, facts):
    assert reader.read(text, language) == Caption(*facts)


@pytest.mark.parametrize(
    ('language', 'text'),
    [
        ('de', 'Links von der großen roten Kreis, der in der Mitte ist, ist ein kleines blaues Quadrat.'),
        ('de', 'Links von dem großen roten Kreis, der in der Mitte ist, ist ein kleiner blaues Quadrat.'),
        ('de', 'Links von dem großen roten Kreis, das in der Mitte ist, ist ein kleines blaues Quadrat.'),
        ('de', 'Links von dem großen roten Kreis, der in der Mitte ist ist ein kleines blaues Quadrat.'),
        ('de', 'Ein großer roter Kreis in der Mitte und ein blaues Quadrat links von ihr.'),
        ('de', 'Eine große rote Scheibe in der Mitte und ein blaues Quadrat links von ihm.'),
        ('de', 'Das Bild zeigt ein großer roter Kreis in der Mitte und ein blaues Quadrat.'),
        ('de', 'In der Mitte liegt einen großen roten Kreis. Es gibt ein blaues Quadrat.'),
        ('de', 'In der Mitte ist ein großer roter Kreis. Rechts davon ist zwei grüne Kreuze.'),
        ('de', 'Oberhalb dem großen roten Kreis, der in der Mitte ist, ist ein blaues Quadrat.'),
        ('en', 'In the middle is a large red circle. Two green crosses is right of it.'),
        ('en', 'In the middle is a large red circle. A green crosses is right of it.'),
        ('en', 'in the middle is a large red circle. There is a blue square.'),
        ('en', 'In the middle is a large red circle. There is a blue square'),
        ('en', 'In the middle is a large red circle . There is a blue square.'),
        ('en', 'A blue square left of it and a large red circle.'),
        ('en', 'A blue square and a green cross.'),
        ('en', 'A large red circle, a blue square, a green cross.'),
        ('en', 'A large red circle in the centre, a red square and a black cross left of the green circle.'),
        ('en', 'A large red square in the centre, a blue square and a green cross left of the square.'),
        ('en', ''),
        ('en', '.'),
    ],
)
def test_refuses_what_is_not_of_the_grammar(language, text):
    assert reader.read(text, language) is None
    assert captions.holds(text, PICTURE, language) is None


@pytest.mark.parametrize(
    ('text', 'expected'),
    [
        ('A large red circle in the centre and a blue square left of it.', True),
        ('A large red circle in the centre and a blue square above it.', False),
        ('A large red circle at the top left and a blue square left of it.', False),
        ('A large blue square and a red circle.', False),
        ('Four shapes: a large red circle in the centre and a blue square.', True),
        ('Three shapes: a large red circle in the centre and a blue square.', False),
        ('A large red circle in the centre and two green crosses right of it.', True),
        ('A large red circle in the centre and two green crosses above it.', False),
        ('A large red circle in the centre and three green crosses.', False),
        ('A large red circle in the centre and a green cross above it.', True),
        ('A large red circle in the centre and a small red circle.', False),
        # The mentions stand for different objects.
        ('A large red circle in the centre and a red circle.', False),
        ('A large red circle in the centre, a blue square and a green cross below the square.', True),
        ('A large red circle in the centre, a blue square and a green cross left of the square.', False),
    ],
)
def test_truth(text, expected):
    assert captions.holds(text, PICTURE, 'en') is expected


def test_relations_of_all_cells():
    cells = list(itertools.product(range(3), range(3)))
    for (column, row), (x, y) in itertools.permutations(cells, 2):
        picture = [Fact('red', 'circle', x, y, 3.5), Fact('blue', 'square', column, row, 2.3)]
        expected = {'left of': column < x, 'right of': column > x, 'above': row < y, 'below': row > y}
        for words, holds in expected.items():
            text = f'There is a blue square {words} the large red circle, which is in the centre.'
            facts = reader.read(text, 'en')
            large = facts.mentions[0]._replace(column=None, row=None)
            assert is_true(facts._replace(mentions=(large, facts.mentions[1])), picture) is holds


@pytest.mark.parametrize(('words', 'expected'), [('a', True), ('two', False), ('three', True)])
def test_numerals_are_exact(words, expected):
    """With three crosses, 'two crosses' is false, and 'a cross' is true of each."""
    picture = [*PICTURE, Fact('green', 'cross', 1, 0, 2.4)]
    plural = 'es' if words != 'a' else ''
    text = f'A large red circle in the centre and {words} green cross{plural}.'
    assert captions.holds(text, picture, 'en') is expected


def test_facts_are_in_the_pixels(monkeypatch):
    drawn = list(captions.scenes('dev', 499, 502))
    assert len(drawn) == 3
    for number, picture in zip(range(499, 502), drawn, strict=True):
        block, place = divmod(number, pictures.BLOCK)
        objects, facts = world.draw_block('dev', block).objects, captions.facts('dev', number)
        assert len(facts) == objects.count[place]
        for index, fact in enumerate(facts):
            x, y = int(objects.x[place, index]), int(objects.y[place, index])
            distances = {
                colour: np.abs(picture[y, x] - np.array(rgb)).max() for colour, rgb in COLOURS.items()
            }
            assert min(distances, key=distances.get) == fact.colour and distances[fact.colour] < 40
            assert (fact.column, fact.row) == (3 * x // 32, 3 * y // 32)
        assert captions.recognise(picture) == facts
    monkeypatch.setitem(world.SIZES, 'train', 40)
    captions._numbers.cache_clear()
    [of_train] = captions.scenes('train', 39, 40)
    assert captions.recognise(of_train) == captions.facts('train', 39)
    assert captions.recognise(drawn[0] ^ 1) is None
    captions._numbers.cache_clear()


def test_combinations_are_held_out():
    for split in ('train', 'dev', 'test'):
        for number in range(1000):
            looks = {(fact.colour, fact.shape) for fact in captions.facts(split, number)}
            assert not looks & set(world.HELD_OUT)
    largest = {captions.facts('unseen', number)[0][:2] for number in range(world.SIZES['unseen'])}
    assert largest == set(world.HELD_OUT)
    # Every colour and every shape is in what is seen.
    seen = {(colour, shape) for colour in COLOURS for shape in pictures.SHAPES} - set(world.HELD_OUT)
    drawn = {fact[:2] for number in range(1000) for fact in captions.facts('train', number)}
    assert drawn == seen


def test_captions_single_out_their_pictures():
    others = [captions.facts('dev', number) for number in range(1000)]
    alone = [sum(is_true(stated('dev', number), one) for one in others) == 1 for number in range(150)]
    assert np.mean(alone) > 0.97


@pytest.mark.parametrize('kind', CHANGES)
def test_minimal_pairs(kind):
    differing = {'relation': {'relation'}, 'place': {'column', 'row'}, 'colour': {'colour'}}
    differing |= {'shape': {'shape'}, 'number': {'number'}}
    made = 0
    for number in range(300):
        facts, picture = stated('dev', number), captions.facts('dev', number)
        false = changed(facts, picture, kind, number)
        if false is None:
            assert kind in ('relation', 'number')
            continue
        made += 1
        others = [mention.look for mention in false.mentions[1:]]
        assert len(set(others)) == len(others)
        pairs = [(facts, false), *zip(facts.mentions, false.mentions, strict=True)]
        names = [
            name
            for one, other in pairs
            for name in one._fields
            if name != 'mentions' and getattr(one, name) != getattr(other, name)
        ]
        assert len(names) == 1 and set(names) <= differing[kind]
        for language in ('en', 'de'):
            text = writer.write(false, language, numbers('dev', number))
            assert captions.holds(text, picture, language) is False
            assert reader.read(text, language) == false
    assert made > 100
    wrong, right = (
        captions.wrong_caption('dev', 0, 'en', 'colour').split(),
        captions.caption('dev', 0, 'en').split(),
    )
    assert sum(one != other for one, other in zip(wrong, right, strict=True)) == 1


def test_wrong_captions_name_no_combination_that_is_never_drawn():
    named = {'dev': 0, 'unseen': 0}
    for split in named:
        for number in range(200):
            for kind in ('colour', 'shape'):
                text = captions.wrong_caption(split, number, 'en', kind)
                named[split] += any(m.look in world.HELD_OUT for m in reader.read(text, 'en').mentions)
    assert named['dev'] == 0 < named['unseen']
