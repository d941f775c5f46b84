"""Random phrases that make sense: noun phrases, pronouns, places, times and predicates."""

import functools
import random
from collections.abc import Sequence
from typing import TypeVar

from transformer.data.generated.grammar import lexicon
from transformer.data.generated.grammar.inflection import (
    ADJECTIVES,
    NOUNS,
    PLACES,
    PRONOUNS,
    TIMES,
    VERBS,
    Adjective,
    Noun,
    Pronoun,
    Verb,
)
from transformer.data.generated.grammar.syntax import NounPhrase

# To keep the vocabulary small, only a few words occur in all their forms: these verbs also occur in the
# present and with 'I', 'you' and 'we', and nouns of these classes also in the plural.
EVERYDAY = ('sehen', 'hören', 'suchen', 'kaufen', 'haben', 'helfen', 'schlafen', 'warten auf')
COUNTED = ('person', 'pet', 'piece')
COLORS = ('black', 'white', 'brown')
OPPOSITES = (COLORS, ('old', 'young', 'new'), ('big', 'small'), ('warm', 'cold'))
USUAL_DETERMINERS = ('the',) * 6 + ('a',) * 3 + ('my', 'his', 'her', 'this')
SUBJECT_DETERMINERS = ('the',) * 8 + ('a', 'my', 'his', 'her', 'this', 'every', 'no')
EVERYDAY_VERBS = [VERBS[name] for name in EVERYDAY]
T = TypeVar('T')


@functools.cache
def nouns_of(classes: tuple[str, ...]) -> tuple[Noun, ...]:
    """Returns the nouns that belong to at least one of these classes."""
    return tuple(noun for noun in NOUNS.values() if any(name in noun.classes for name in classes))


def choose(rng: random.Random, options: Sequence[T]) -> T:
    """Returns one of the options at random."""
    return options[rng.randrange(len(options))]


def _some_noun(rng: random.Random, classes: Sequence[str], nouns: list[Noun]) -> Noun:
    """Returns a noun that is not in `nouns`, the sentence's nouns so far, and adds it to them."""
    noun = choose(rng, [noun for noun in nouns_of(tuple(classes)) if noun not in nouns])
    nouns.append(noun)
    return noun


@functools.cache
def adjectives_of(noun: Noun) -> tuple[Adjective, ...]:
    """Returns the adjectives that can describe a noun."""
    return tuple(
        adjective
        for adjective in ADJECTIVES.values()
        if any(name in adjective.classes for name in noun.classes)
    )


def noun_phrase(
    rng: random.Random,
    classes: Sequence[str],
    nouns: list[Noun],
    determiners: Sequence[str] = USUAL_DETERMINERS,
) -> NounPhrase:
    """Returns a random noun phrase, perhaps with a determiner, an adjective and a possessor."""
    noun = _some_noun(rng, classes, nouns)
    plural = bool(set(COUNTED) & set(noun.classes)) and rng.random() < 0.22
    determiner = choose(rng, determiners)
    if 'mass' in noun.classes and determiner in ('a', 'every'):
        determiner = ''
    wild = 'animal' in noun.classes and 'pet' not in noun.classes
    if (wild or 'unowned' in noun.classes) and determiner in ('my', 'his', 'her'):
        determiner = 'the'
    if plural and determiner == 'every':
        determiner = 'the'
    adjectives = adjectives_of(noun)
    adjective = choose(rng, adjectives) if adjectives and rng.random() < 0.3 else None
    possessor = None
    if determiner == 'the' and 'person' not in noun.classes and rng.random() < 0.08:
        possessor = NounPhrase(_some_noun(rng, ['person'], nouns))
    return NounPhrase(noun, determiner, plural, adjective, possessor)


def subject_phrase(rng: random.Random, verb: Verb, tense: str, nouns: list[Noun]) -> NounPhrase | Pronoun:
    """Returns a random subject for a verb."""
    if 'person' in verb.subjects and rng.random() < 0.2:
        names = ['he', 'she', 'they'] + ['I', 'we'] * (verb in EVERYDAY_VERBS)
        names += ['you'] * (verb in EVERYDAY_VERBS and tense == 'present')
        return PRONOUNS[choose(rng, names)]
    return noun_phrase(rng, verb.subjects, nouns, SUBJECT_DETERMINERS)


def object_phrase(
    rng: random.Random, classes: Sequence[str], subject: NounPhrase | Pronoun, nouns: list[Noun]
) -> NounPhrase | Pronoun:
    """Returns a random object from these noun classes."""
    if 'person' in classes and rng.random() < 0.15:
        # 'I saw us' is odd, and 'he saw him' leaves open whether 'he' and 'him' are one person.
        person = subject.person if isinstance(subject, Pronoun) else 0
        return choose(rng, [other for other in PRONOUNS.values() if other.person != person])
    return noun_phrase(rng, classes, nouns)


def place_phrase(rng: random.Random, nouns: list[Noun]) -> tuple[str, NounPhrase]:
    """Returns a random English preposition of place and the noun phrase that follows it."""
    preposition = choose(rng, ['in', 'in', *PLACES])
    return preposition, noun_phrase(rng, PLACES[preposition][1], nouns, ('the', 'the', 'a', 'my'))


def time_adverbial(rng: random.Random, tense: str) -> str:
    """Returns a random English adverbial of time."""
    return choose(rng, [time for time, (_, tenses) in TIMES.items() if tense in tenses])


def predicate(rng: random.Random, phrase: NounPhrase) -> tuple[str, Adjective]:
    """Returns a degree and an adjective that neither repeats nor contradicts the phrase's adjective."""
    own = phrase.adjective.english if phrase.adjective else ''
    excluded = {own, *(word for group in OPPOSITES if own in group for word in group)}
    adjective = choose(
        rng, [option for option in adjectives_of(phrase.noun) if option.english not in excluded]
    )
    return '' if adjective.english in COLORS else choose(rng, tuple(lexicon.DEGREES)), adjective
