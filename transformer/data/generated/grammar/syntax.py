"""The syntax trees of small sentences, and their wording in German. english.py has the English.

A `Sentence` describes who does what to whom; each language has its own inflection and word order.
"""

from typing import NamedTuple

from transformer.data.generated.grammar import lexicon
from transformer.data.generated.grammar.inflection import (
    MODALS,
    PLACES,
    TIMES,
    Adjective,
    Noun,
    Pronoun,
    Verb,
    german_adjective,
    german_determiner,
    german_noun,
    german_verb,
    relative_pronoun,
)


class NounPhrase(NamedTuple):
    """A noun and its modifiers; the determiner is English, or '' for none."""

    noun: Noun
    determiner: str = 'the'
    plural: bool = False
    adjective: Adjective | None = None
    possessor: 'NounPhrase | None' = None
    relative: 'Relative | None' = None


class Clause(NamedTuple):
    """A verb and everything that depends on it, without word order."""

    subject: NounPhrase | Pronoun
    verb: Verb
    objects: tuple[NounPhrase | Pronoun, ...] = ()
    tense: str = 'past'
    negated: bool = False
    modal: str = ''
    predicate: tuple[str, Adjective] | None = None
    place: tuple[str, NounPhrase] | None = None
    time: str = ''
    fronted: bool = False


class Relative(NamedTuple):
    """A relative clause; its pronoun fills the gap: 'subject', 'place' or the index of an object."""

    clause: Clause
    gap: str | int


class Sentence(NamedTuple):
    """A main clause, and perhaps a second clause that a conjunction joins to it."""

    main: Clause
    conjunction: str = ''
    added: Clause | None = None
    added_first: bool = False
    question: str = ''


def _german_noun_phrase(phrase: NounPhrase | Pronoun, case: str) -> list[str]:
    if isinstance(phrase, Pronoun):
        return [getattr(phrase, case)]
    gender = 'p' if phrase.plural else phrase.noun.gender
    determiner = 'the' if phrase.possessor else phrase.determiner
    words = [german_determiner(determiner, case, gender)]
    if phrase.adjective:
        words.append(german_adjective(phrase.adjective, determiner, case, gender))
    words.append(german_noun(phrase.noun, case, phrase.plural))
    if phrase.possessor:
        words += _german_noun_phrase(phrase.possessor, 'genitive')
    if phrase.relative:
        words += [',', *_german_relative(phrase.relative, gender), ',']
    return [word for word in words if word]


def _german_relative(relative: Relative, gender: str) -> list[str]:
    clause, gap = relative
    case, preposition = 'nominative', ''
    if gap == 'place':
        case, preposition = 'dative', PLACES[clause.place[0]][0]
    elif gap != 'subject':
        case, preposition, _ = clause.verb.frames[gap]
    pronoun = relative_pronoun(case, gender)
    return [*preposition.split(), pronoun, *german_clause(clause, 'last', gap)]


def _prepositional(preposition: str, phrase: NounPhrase | Pronoun, case: str) -> list[str]:
    words = _german_noun_phrase(phrase, case)
    contraction = lexicon.CONTRACTIONS.get(f'{preposition} {words[0]}')
    if contraction:
        return [contraction, *words[1:]]
    return [preposition, *words]


def is_indefinite(phrase: NounPhrase | Pronoun) -> bool:
    """Returns whether the determiner becomes 'kein' when the clause is negated."""
    return isinstance(phrase, NounPhrase) and not phrase.possessor and phrase.determiner in ('a', '')


def _german_middle(clause: Clause, gap: str | int | None) -> tuple[list[str], list[str]]:
    """Returns the pronouns, and the other words that follow subject and finite verb."""
    pronouns, nouns, prepositional = [], [], []
    negated = clause.negated
    for index, (phrase, (case, preposition, _)) in enumerate(
        zip(clause.objects, clause.verb.frames, strict=True)
    ):
        if index == gap:
            continue
        if preposition:
            prepositional += _prepositional(preposition, phrase, case)
        elif isinstance(phrase, Pronoun):
            pronouns += _german_noun_phrase(phrase, case)
        else:
            if negated and index == len(clause.objects) - 1 and is_indefinite(phrase):
                # 'nicht ein' becomes 'kein', which negates the clause by itself.
                phrase, negated = phrase._replace(determiner='no'), False
            nouns += _german_noun_phrase(phrase, case)
    time = TIMES[clause.time][0].split() if clause.time and not clause.fronted else []
    words = [*time, *nouns, *['nicht'] * negated, *prepositional]
    if clause.place and gap != 'place':
        words += _prepositional(PLACES[clause.place[0]][0], clause.place[1], 'dative')
    if clause.predicate:
        degree, adjective = clause.predicate
        words += [lexicon.DEGREES[degree], adjective.german]
    return pronouns, words


def agreement(subject: NounPhrase | Pronoun) -> tuple[int, bool]:
    """Returns the person and number of the verb that a subject needs. True is plural."""
    return (subject.person if isinstance(subject, Pronoun) else 3), subject.plural


def german_clause(clause: Clause, order: str, gap: str | int | None = None) -> list[str]:
    """Returns the words of a German clause whose finite verb is 'first', 'second' or 'last'.

    The part that `gap` names is left out: the relative pronoun before the clause replaces it.
    """
    prefix, _, base = clause.verb.german.rpartition('+')
    person = agreement(clause.subject)
    if clause.modal:
        finite, rest = german_verb(MODALS[clause.modal][0], clause.tense, *person), prefix + base
    else:
        finite, rest = german_verb(clause.verb.german, clause.tense, *person), prefix
    subject = [] if gap == 'subject' else _german_noun_phrase(clause.subject, 'nominative')
    pronouns, middle = _german_middle(clause, gap)
    topic = []
    if order == 'second' and clause.fronted:
        topic = TIMES[clause.time][0].split()
    elif order == 'second':
        topic, subject = subject, []
    # A pronoun precedes a subject that is new to the listener: 'gestern sah ihn ein Hund'.
    new = isinstance(clause.subject, NounPhrase) and clause.subject.determiner in ('a', 'no')
    field = [*pronouns, *subject, *middle] if new else [*subject, *pronouns, *middle]
    if order == 'last':
        end = [rest, finite] if clause.modal else [rest + finite]
        return [word for word in (*field, *end) if word]
    return [word for word in (*topic, finite, *field, rest) if word]


def _typeset(words: list[str], mark: str) -> str:
    text = ' '.join(words).replace(' ,', ',').replace(',,', ',').rstrip(',')
    return text[0].upper() + text[1:] + mark


def german(sentence: Sentence) -> str:
    """Returns the German of a sentence."""
    main, conjunction, added, added_first, question = sentence
    mark = '?' if question else '.'
    if question:
        words = ['warum'] * (question == 'why') + german_clause(main, 'first')
    else:
        words = german_clause(main, 'first' if added_first else 'second')
    if added is None:
        return _typeset(words, mark)
    past, present, order = lexicon.CONJUNCTIONS[conjunction]
    # 'und' joins two predicates of one subject, which is not repeated.
    gap = 'subject' if conjunction == 'and' else None
    clause = [past if added.tense == 'past' else present, *german_clause(added, order, gap)]
    if added_first:
        return _typeset([*clause, ',', *words], mark)
    return _typeset([*words, *[','] * (conjunction != 'and'), *clause], mark)
