"""The words of captions in English and German: noun phrases, places, relations and sentence frames."""

import functools
import itertools
from collections.abc import Iterator
from typing import NamedTuple

from transformer.data.generated.grammar.inflection import (
    Adjective,
    Noun,
    german_adjective,
    german_determiner,
    german_noun,
)
from transformer.data.generated.pictures import COLOURS, MOST, SHAPES
from transformer.data.generated.scenes.facts import Mention

Cell = tuple[int | None, int | None]  # column and row; None leaves one open


class Look(NamedTuple):
    """What a noun phrase says.

    Attributes:
      shape, large, number: as in `Mention`.
      colour: None in a phrase such as 'the circle'.
      word: which of the words for the shape.
      definite: whether it has a definite article.
    """

    shape: str
    colour: str | None
    large: bool | None
    number: int
    word: int
    definite: bool

    def describes(self, mention: Mention) -> bool:
        """Returns whether everything that a definite noun phrase says has been said of a mention."""
        return (
            mention.shape == self.shape
            and self.colour in (None, mention.colour)
            and self.large in (None, mention.large)
        )


class Language(NamedTuple):
    """The words and frames of a language.

    Attributes:
      numerals: the words for 2, 3, ...
      cells: phrases for cells, and for columns and rows.
      relations: phrases for each relation, with the case of what follows.
      pronouns: 'it' after such a phrase, by gender.
      adverbs: words for a relation to what 'it' would mean.
      place_first: verbs between a place and what is there, singular and plural, with the case of the latter.
      subject_first: verbs between a subject and its place.
      there: what begins a sentence with what there is and then, if it has one, its place.
      relative: relative clauses about a place, with their comma.
      lists: what begins a list of things, with their case; in the first two the number has a place.
      counts: sentences about the number of objects: as the first sentence of a caption, and as the last.
      conjunctions: between two clauses, and before the last thing of a list.
    """

    numerals: tuple[str, ...]
    cells: dict[Cell, tuple[str, ...]]
    relations: dict[str, tuple[tuple[str, str], ...]]
    pronouns: dict[str, str]
    adverbs: dict[str, str]
    place_first: tuple[tuple[str, str, str], ...]
    subject_first: tuple[tuple[str, str], ...]
    there: tuple[tuple[str, str, str], ...]
    relative: tuple[str, ...]
    lists: tuple[tuple[str, str], ...]
    counts: tuple[tuple[str, ...], tuple[str, ...]]
    conjunctions: tuple[str, str]


def _noun(english: str, german: str, gender: str, genitive: str, plural: str) -> Noun:
    return Noun(
        english, english + ('es' if english.endswith('s') else 's'), german, gender, genitive, plural, ()
    )


# The words for each shape.
NOUNS = {
    'circle': (_noun('circle', 'Kreis', 'm', 'es', 'Kreise'), _noun('disc', 'Scheibe', 'f', '-', 'Scheiben')),
    'square': (_noun('square', 'Quadrat', 'n', 's', 'Quadrate'),),
    'triangle': (_noun('triangle', 'Dreieck', 'n', 's', 'Dreiecke'),),
    'cross': (_noun('cross', 'Kreuz', 'n', 'es', 'Kreuze'),),
}
_GERMAN = {
    'large': Adjective('large', 'groß', 'groß', ()),
    'small': Adjective('small', 'klein', 'klein', ()),
    'red': Adjective('red', 'rot', 'rot', ()),
    'green': Adjective('green', 'grün', 'grün', ()),
    'blue': Adjective('blue', 'blau', 'blau', ()),
    'yellow': Adjective('yellow', 'gelb', 'gelb', ()),
    'purple': Adjective('purple', 'violett', 'violett', ()),
    'black': Adjective('black', 'schwarz', 'schwarz', ()),
}

LANGUAGES = {
    'en': Language(
        numerals=('two', 'three', 'four', 'five'),
        cells={
            (0, 0): ('at the top left', 'at the upper left', 'in the top left corner'),
            (2, 0): ('at the top right', 'at the upper right', 'in the top right corner'),
            (0, 2): ('at the bottom left', 'at the lower left', 'in the bottom left corner'),
            (2, 2): ('at the bottom right', 'at the lower right', 'in the bottom right corner'),
            (1, 0): ('at the top centre', 'in the top middle'),
            (1, 2): ('at the bottom centre', 'in the bottom middle'),
            (0, 1): ('at the centre left', 'at the middle left'),
            (2, 1): ('at the centre right', 'at the middle right'),
            (1, 1): ('in the centre', 'in the middle'),
        },
        relations={
            'left': (*[('left of', 'dative')] * 3, ('to the left of', 'dative')),
            'right': (*[('right of', 'dative')] * 3, ('to the right of', 'dative')),
            'above': (('above', 'dative'),),
            'below': (('below', 'dative'), ('under', 'dative')),
        },
        pronouns=dict.fromkeys('mfn', 'it'),
        adverbs={},
        place_first=(
            ('is', 'are', 'nominative'),
            ('lies', 'lie', 'nominative'),
            ('you see', 'you see', 'accusative'),
        ),
        subject_first=(('is', 'are'), ('lies', 'lie')),
        there=(('there is', 'there are', 'nominative'), ('you see', 'you see', 'accusative')),
        relative=(', which is {}', ', which lies {}'),
        lists=(
            ('{} shapes:', 'nominative'),
            ('the picture shows {} shapes:', 'accusative'),
            ('', 'nominative'),
            ('the picture shows', 'accusative'),
        ),
        counts=(
            ('there are {} shapes', 'the picture has {} shapes', 'you see {} shapes'),
            ('there are {} shapes in all', 'in all there are {} shapes'),
        ),
        conjunctions=(', and', 'and'),
    ),
    'de': Language(
        numerals=('zwei', 'drei', 'vier', 'fünf'),
        cells={
            (0, 0): ('oben links', 'links oben', 'in der linken oberen Ecke'),
            (2, 0): ('oben rechts', 'rechts oben', 'in der rechten oberen Ecke'),
            (0, 2): ('unten links', 'links unten', 'in der linken unteren Ecke'),
            (2, 2): ('unten rechts', 'rechts unten', 'in der rechten unteren Ecke'),
            (1, 0): ('oben in der Mitte', 'in der Mitte oben'),
            (1, 2): ('unten in der Mitte', 'in der Mitte unten'),
            (0, 1): ('links in der Mitte', 'in der Mitte links'),
            (2, 1): ('rechts in der Mitte', 'in der Mitte rechts'),
            (1, 1): ('in der Mitte', 'genau in der Mitte'),
        },
        relations={
            'left': (('links von', 'dative'),),
            'right': (('rechts von', 'dative'),),
            'above': (('über', 'dative'), ('oberhalb', 'genitive')),
            'below': (('unter', 'dative'), ('unterhalb', 'genitive')),
        },
        pronouns={'m': 'ihm', 'f': 'ihr', 'n': 'ihm'},
        adverbs={'left': 'links davon', 'right': 'rechts davon', 'above': 'darüber', 'below': 'darunter'},
        place_first=(
            ('ist', 'sind', 'nominative'),
            ('liegt', 'liegen', 'nominative'),
            ('sieht man', 'sieht man', 'accusative'),
        ),
        subject_first=(('ist', 'sind'), ('liegt', 'liegen'), ('befindet sich', 'befinden sich')),
        there=(('es gibt', 'es gibt', 'accusative'), ('man sieht', 'man sieht', 'accusative')),
        relative=(', {pronoun} {} ist', ', {pronoun} {} liegt'),
        lists=(
            ('{} Formen:', 'nominative'),
            ('das Bild zeigt {} Formen:', 'accusative'),
            ('', 'nominative'),
            ('das Bild zeigt', 'accusative'),
        ),
        counts=(
            ('es gibt {} Formen', 'das Bild hat {} Formen', 'man sieht {} Formen'),
            ('insgesamt sind es {} Formen', 'zusammen sind es {} Formen'),
        ),
        conjunctions=(' und', 'und'),
    ),
}


def gender(shape: str, word: int) -> str:
    """Returns the German gender of a shape's word."""
    return NOUNS[shape][word].gender


@functools.cache
def noun_phrase(language: str, look: Look, case: str) -> str:
    """Returns the noun phrase of a look, such as 'einem großen roten Kreis'."""
    noun, plural = NOUNS[look.shape][look.word], look.number > 1
    size = {True: ('large',), False: ('small',), None: ()}[look.large]
    adjectives = [*size, *([look.colour] if look.colour else [])]
    numeral = LANGUAGES[language].numerals[look.number - 2] if plural else ''
    if language == 'en':
        determiner = numeral or ('the' if look.definite else 'a')
        return ' '.join([determiner, *adjectives, noun.english_plural if plural else noun.english])
    article, form = 'the' if look.definite else 'a', 'p' if plural else noun.gender
    words = [
        numeral or german_determiner(article, case, form),
        *(german_adjective(_GERMAN[word], article, case, form) for word in adjectives),
        german_noun(noun, case, plural),
    ]
    return ' '.join(words)


def _looks() -> Iterator[Look]:
    """Yields what noun phrases can say."""
    for shape, large, colour in itertools.product(SHAPES, (None, True, False), COLOURS):
        for word in range(len(NOUNS[shape])):
            yield Look(shape, colour, large, 1, word, definite=False)
            yield Look(shape, colour, large, 1, word, definite=True)
            if large is not True:
                yield from (Look(shape, colour, large, n, word, definite=False) for n in range(2, MOST))
    for shape, large in itertools.product(SHAPES, (None, True)):
        for word in range(len(NOUNS[shape])):
            yield Look(shape, None, large, 1, word, definite=True)


@functools.cache
def noun_phrases(language: str, case: str) -> dict[str, Look]:
    """Returns what each noun phrase says in a case."""
    return {noun_phrase(language, look, case): look for look in _looks()}
