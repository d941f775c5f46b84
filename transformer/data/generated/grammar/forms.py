"""Tables from German word forms to their possible readings, built by inflecting the lexicon."""

from collections.abc import Iterable
from typing import TypeVar

from transformer.data.generated.grammar import lexicon
from transformer.data.generated.grammar.inflection import (
    ADJECTIVES,
    CASES,
    DETERMINERS,
    GENDERS,
    IT,
    MODALS,
    NOUNS,
    PRONOUNS,
    TIMES,
    VERBS,
    Noun,
    german_adjective,
    german_determiner,
    german_noun,
    german_verb,
)

TENSES = ('past', 'present')
K, V = TypeVar('K'), TypeVar('V')


def _grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Lists the values of each key."""
    values = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return values


def _finite_forms(infinitive: str) -> set[tuple[str, str]]:
    """Returns the finite forms of a verb without its prefix, each with its tense."""
    return {
        (german_verb(infinitive, tense, person, plural), tense)
        for tense in TENSES
        for person in (1, 2, 3)
        for plural in (False, True)
    }


# Nouns by form and case, each with whether it is a plural; determiners by form, case and gender.
NOUN_FORMS = _grouped(
    ((german_noun(noun, case, plural), case), (noun, plural))
    for noun in NOUNS.values()
    for plural in ((False, True) if noun.plural != '-' else (False,))
    for case in CASES
)
DETERMINER_FORMS = {
    (german_determiner(determiner, case, gender), case, gender): determiner
    for determiner in DETERMINERS
    for case in CASES
    for gender in GENDERS
    if gender != 'p' or determiner not in ('a', 'every')
}
ADJECTIVE_FORMS = {
    german_adjective(adjective, determiner, case, gender): adjective
    for adjective in ADJECTIVES.values()
    for determiner in ('', *DETERMINERS)
    for case in CASES
    for gender in GENDERS
}
PREDICATIVES = {adjective.german: adjective for adjective in ADJECTIVES.values()}
DEGREES = {word: degree for degree, word in lexicon.DEGREES.items() if word}
# Pronouns by nominative, which has several readings ('sie'), and by form and case. Pronouns with the same
# object form are worded alike, so one of them is enough.
_PRONOUNS = (*PRONOUNS.values(), *IT.values())
SUBJECT_PRONOUNS = _grouped((pronoun.nominative, pronoun) for pronoun in _PRONOUNS)
OBJECT_PRONOUNS = {
    (getattr(pronoun, case), case): pronoun for pronoun in _PRONOUNS for case in ('accusative', 'dative')
}
# Verbs by finite form and tense: without their prefixes ('steht ... auf') and with them ('aufsteht').
FINITE_FORMS = _grouped((form, verb) for verb in VERBS.values() for form in _finite_forms(verb.german))
JOINED_FORMS = _grouped(
    ((verb.german.rpartition('+')[0] + form, tense), verb)
    for verb in VERBS.values()
    for form, tense in _finite_forms(verb.german)
)
MODAL_FORMS = {form: modal for modal in MODALS for form in _finite_forms(MODALS[modal][0])}
INFINITIVES = _grouped((verb.german.replace('+', ''), verb) for verb in VERBS.values())
TIME_WORDS = [(words.split(), time, tenses) for time, (words, tenses) in TIMES.items()]
# The preposition and the article in 'im'; the English conjunction and the word order, by German and tense.
CONTRACTED = {short: tuple(long.split()) for long, short in lexicon.CONTRACTIONS.items()}
CONJUNCTIONS = {
    (word, tense): (conjunction, order)
    for conjunction, (*words, order) in lexicon.CONJUNCTIONS.items()
    for word, tense in zip(words, TENSES, strict=True)
}


def english_determiner(word: str, case: str, noun: Noun, plural: bool) -> str | None:
    """Returns the English of a German determiner ('' for none), or None if it cannot precede the noun."""
    mass = 'mass' in noun.classes
    if not word:
        return 'a' if plural else '' if mass else None
    determiner = DETERMINER_FORMS.get((word, case, 'p' if plural else noun.gender))
    return None if mass and determiner in ('a', 'every') else determiner
