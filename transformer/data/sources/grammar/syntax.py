"""Syntax trees of small sentences, and their wording in English and German.

A tree says who does what to whom; each language has its own inflection and word order.
"""

from typing import NamedTuple

from transformer.data.sources.grammar import lexicon
from transformer.data.sources.grammar.inflection import (
    DETERMINERS,
    MODALS,
    PLACES,
    TIMES,
    Adjective,
    Noun,
    Pronoun,
    Verb,
    english_verb,
    german_adjective,
    german_determiner,
    german_noun,
    german_verb,
    relative_pronoun,
)

PARTICLES = ('away', 'up')


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
    """Tells whether the determiner becomes 'kein' when the clause is negated."""
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


def _agreement(subject: NounPhrase | Pronoun) -> tuple[int, bool]:
    return (subject.person if isinstance(subject, Pronoun) else 3), subject.plural


def german_clause(clause: Clause, order: str, gap: str | int | None = None) -> list[str]:
    """The words of a German clause whose finite verb is 'first', 'second' or 'last'.

    The part that `gap` names is left out: the relative pronoun before the clause replaces it.
    """
    prefix, _, base = clause.verb.german.rpartition('+')
    person = _agreement(clause.subject)
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
    """The German of a sentence."""
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


def english_noun_phrase(phrase: NounPhrase | Pronoun) -> list[str]:
    """The words of an English noun phrase; a pronoun takes its subject form."""
    if isinstance(phrase, Pronoun):
        return [phrase.english]
    determiner = phrase.determiner
    if determiner and phrase.plural:
        determiner = DETERMINERS[determiner][2]
    if phrase.possessor:
        *words, last = english_noun_phrase(phrase.possessor)
        words.append(last + "'s")
    else:
        words = [determiner]
    words += [phrase.adjective.english] if phrase.adjective else []
    words.append(phrase.noun.english_plural if phrase.plural else phrase.noun.english)
    if words[0] == 'a' and words[1][0] in 'aeiou':
        words[0] = 'an'
    if phrase.relative:
        words += _english_relative(phrase.relative, phrase.noun)
    return [word for word in words if word]


def _english_relative(relative: Relative, noun: Noun) -> list[str]:
    clause, gap = relative
    if gap == 'place':
        pronoun = clause.place[0] + ' which'
    elif 'person' in noun.classes:
        pronoun = 'who' if gap == 'subject' else 'whom'
    else:
        pronoun = 'that'
    return [*pronoun.split(), *english_clause(clause, gap=gap)]


def _english_verbs(clause: Clause, question: bool) -> tuple[list[str], list[str]]:
    """Returns the auxiliary, which precedes the subject in a question, and the other verbs."""
    verb, tense, (person, plural) = clause.verb, clause.tense, _agreement(clause.subject)
    third_singular = person == 3 and not plural
    do = 'did' if tense == 'past' else 'does' if third_singular else 'do'
    finite = english_verb(verb, tense, person, plural)
    if clause.modal:
        columns = MODALS[clause.modal][2:]
        form = 2 if tense == 'past' else 0 if third_singular else 1
        finite, *rest = [*columns[form + 3 * clause.negated].split(), verb.english]
        if rest[0] != 'to':
            return [finite], rest
        # Unlike 'can', 'want to' and 'had to' are not auxiliaries: 'did she have to ...'
        base = 'have' if finite == 'had' else 'want'
        return ([do], [base, *rest]) if question else ([], [finite, *rest])
    if verb.english == 'be':
        negated = 'am not' if finite == 'am' else finite + "n't"
        return [negated if clause.negated else finite], []
    if clause.negated:
        return [do + "n't"], [verb.english]
    return ([do], [verb.english]) if question else ([], [finite])


def english_clause(clause: Clause, question: bool = False, gap: str | int | None = None) -> list[str]:
    """The words of an English clause, without the part that `gap` names."""
    finite, rest = _english_verbs(clause, question)
    subject = [] if gap == 'subject' else english_noun_phrase(clause.subject)
    objects = [
        word
        for index, phrase in enumerate(clause.objects)
        if index != gap
        for word in ([phrase.english_object] if isinstance(phrase, Pronoun) else english_noun_phrase(phrase))
    ]
    verb, _, particle = ' '.join(rest).rpartition(' ')
    if particle in PARTICLES and clause.objects and isinstance(clause.objects[0], Pronoun):
        rest = [verb, *objects, particle]  # 'threw it away', but 'threw away the ball'
    else:
        rest = [*rest, *objects]
    words = [*finite, *subject, *rest] if question else [*subject, *finite, *rest]
    if clause.place and gap != 'place':
        words += [clause.place[0], *english_noun_phrase(clause.place[1])]
    if clause.predicate:
        words += [clause.predicate[0], clause.predicate[1].english]
    words = [clause.time, *words] if clause.fronted else [*words, clause.time]
    return [word for word in words if word]


def english(sentence: Sentence) -> str:
    """The English of a sentence."""
    main, conjunction, added, added_first, question = sentence
    words = ['why'] * (question == 'why') + english_clause(main, question=bool(question))
    mark = '?' if question else '.'
    if added is None:
        return _typeset(words, mark)
    gap = 'subject' if conjunction == 'and' else None
    clause = [conjunction, *english_clause(added, gap=gap)]
    if added_first:
        return _typeset([*clause, ',', *words], mark)
    return _typeset([*words, *[','] * (conjunction == 'but'), *clause], mark)
