"""Parses German sentences: a sentence is grammatical if a syntax tree of the grammar has this wording.

A recursive descent over the words proposes trees, and `syntax.german` decides: the German of a proposed tree
must equal the text, character by character. Agreement, case, verb position, the order of the middle field,
'kein', contractions, commas and capitals are therefore the generator's. The grammar's other rules:

- A verb takes the complements in its row of `lexicon.VERBS`, with case and preposition: all its objects,
  a predicate adjective with 'sein', a dass-clause with 'wissen', 'glauben' and 'merken'. A place occurs
  only with verbs whose row names one; 'wohnen', 'sitzen' and 'stehen' need it, the others do not.
- Clauses joined by a conjunction have one tense; a relative clause has its own. Adverbials of time and
  conjunctions ('als', 'wenn') fit the tense.
- Plurals can lack a determiner. In the singular only mass nouns can; they never take 'ein' or 'jeder'.
  A possessor has a determiner and no possessor of its own.
- A clause is negated at most once, by 'nicht' or by 'kein'.
- Relative clauses are not nested. 'Es' does not follow a preposition. At most one of two objects is a
  pronoun: the trees would order two pronouns wrongly ('gab ihm es').
- A question begins with its main clause, and no clause with 'aber' follows it.

Meaning is not judged: noun classes ('der Käse schläft'), which noun a pronoun means, what 'nicht' denies.
Neither is length. Everything else that trees can combine is accepted, even if `sentences.py` never makes it:
any person, tense and modal of any verb, the plural of any noun that has one, a time in any clause.
"""

import re
from collections.abc import Iterator

from transformer.data.generated.grammar.forms import (
    ADJECTIVE_FORMS,
    CONJUNCTIONS,
    CONTRACTED,
    DEGREES,
    FINITE_FORMS,
    INFINITIVES,
    JOINED_FORMS,
    MODAL_FORMS,
    NOUN_FORMS,
    OBJECT_PRONOUNS,
    PREDICATIVES,
    SUBJECT_PRONOUNS,
    TENSES,
    TIME_WORDS,
    english_determiner,
)
from transformer.data.generated.grammar.inflection import CASES, PLACES, Pronoun, Verb, relative_pronoun
from transformer.data.generated.grammar.syntax import Clause, NounPhrase, Relative, Sentence, german

NEEDING_PLACE = ('wohnen', 'sitzen', 'stehen')

PartialClause = tuple[int, Clause]  # the index of the next word, and the clause as far as it has been read


def read(text: str) -> Sentence | None:
    """Reads a German sentence.

    Returns:
      The first tree found whose German is `text`, or None if there is none.
    """
    words = re.findall(r'\w+|,', text)
    if not words:
        return None
    first, *others = words
    for opening in (first[0].lower() + first[1:], first):  # the first word can be a noun
        for tense in TENSES:
            for sentence in _Reader([opening, *others], tense).sentences(text.endswith('?')):
                if _is_complete(sentence) and german(sentence) == text:
                    return sentence
    return None


def is_grammatical(text: str) -> bool:
    """Returns whether the grammar can produce this German sentence."""
    return read(text) is not None


class _Reader:
    """A reader that proposes trees for a sentence whose clauses, except relative ones, have one tense.

    Each method starts at the word `at` and gives every reading it finds, with the index of the next word.
    Methods need not check agreement or order, because the tree's German is compared with the text. A clause
    is filled in as it is read: its subject and objects are None at first.
    """

    def __init__(self, words: list[str], tense: str, relatives: bool = True) -> None:
        self.words = [*words, '', '']  # so that methods can look past the last word
        self.length = len(words)
        self.tense = tense
        self.plain_phrases = {}
        self.inner = [_Reader(words, other, relatives=False) for other in TENSES if relatives]

    def sentences(self, question: bool) -> Iterator[Sentence]:
        """Proposes sentences."""
        if question:
            kind = 'why' if self.words[0] == 'warum' else 'whether'
            for end, main in self._verb_first(int(kind == 'why')):
                yield from self._continued(end, Sentence(main, question=kind))
            return
        for end, main in self._verb_second(0):
            yield from self._continued(end, Sentence(main))
        conjunction, order = self._conjunction(0)
        if order == 'last':
            for comma, added in self._verb_last(1):
                for end, main in self._verb_first(comma + 1):
                    if end == self.length:
                        yield Sentence(main, conjunction, added, added_first=True)

    def _continued(self, at: int, sentence: Sentence) -> Iterator[Sentence]:
        """Proposes the main clause alone, or with the clause that a conjunction adds."""
        if at == self.length:
            yield sentence
            return
        # A relative clause at the end of the main clause has already read the comma.
        at += self.words[at] == ','
        conjunction, order = self._conjunction(at)
        if order == 'last':
            clauses = self._verb_last(at + 1)
        elif conjunction == 'and':
            clauses = self._verb_first(at + 1, subject=sentence.main.subject)
        elif conjunction == 'but' and not sentence.question:
            clauses = self._verb_second(at + 1)
        else:
            return
        for end, added in clauses:
            if end == self.length:
                yield sentence._replace(conjunction=conjunction, added=added)

    def _conjunction(self, at: int) -> tuple[str, str]:
        return CONJUNCTIONS.get((self.words[at], self.tense), ('', ''))

    def _verb_second(self, at: int) -> Iterator[PartialClause]:
        for start, subject in self._subjects(at):
            yield from self._verb_first(start, subject=subject)
        for start, time in self._times(at):
            yield from self._verb_first(start, time=time, fronted=True)

    def _verb_first(self, at: int, **before: object) -> Iterator[PartialClause]:
        """Reads a clause from its finite verb on. `before` has the clause's fields from before the verb."""
        form = self.words[at], self.tense
        openings = [
            (self._clause(verb), verb.german.rpartition('+')[0]) for verb in FINITE_FORMS.get(form, ())
        ]
        if form in MODAL_FORMS:
            openings += [
                (self._clause(verb, MODAL_FORMS[form]), infinitive)
                for infinitive in self.words[at + 1 : self.length]
                for verb in INFINITIVES.get(infinitive, ())
            ]
        for opening, last in openings:
            for end, clause in self._field(at + 1, opening._replace(**before)):
                if not last:
                    yield end, clause
                elif self.words[end] == last:
                    yield end + 1, clause

    def _verb_last(self, at: int) -> Iterator[PartialClause]:
        for opening, verbs, end in self._last_verbs(at):
            yield from ((end, clause) for stop, clause in self._field(at, opening) if stop == verbs)

    def _last_verbs(self, at: int) -> Iterator[tuple[Clause, int, int]]:
        """Yields the clause of each reading of its last verbs, their index, and the next word's."""
        for index in range(at, self.length):
            form = self.words[index], self.tense
            for verb in JOINED_FORMS.get(form, ()):
                yield self._clause(verb), index, index + 1
            if form in MODAL_FORMS:
                for verb in INFINITIVES.get(self.words[index - 1], ()):
                    yield self._clause(verb, MODAL_FORMS[form]), index - 1, index + 1

    def _clause(self, verb: Verb, modal: str = '') -> Clause:
        return Clause(None, verb, (None,) * len(verb.frames), self.tense, modal=modal)

    def _field(self, at: int, clause: Clause) -> list[PartialClause]:
        """Reads everything between the finite verb or the conjunction and the verbs at the end."""
        readings = [(at, clause)]
        for part in (
            self._subject_and_pronoun,
            self._time,
            self._objects,
            self._negation,
            self._prepositional_objects,
            self._place,
            self._predicate,
        ):
            readings = [reading for before in readings for reading in part(*before)]
        return [(end, whole) for end, whole in readings if _negations(whole) <= 1]

    def _subject_and_pronoun(self, at: int, clause: Clause) -> list[PartialClause]:
        """Reads the subject, unless known, and at most one pronoun as object, in either order."""
        subjects = self._subject(at, clause)
        readings = subjects + [reading for before in subjects for reading in self._pronoun(*before)]
        if clause.subject is None:
            readings += [
                reading for before in self._pronoun(at, clause) for reading in self._subject(*before)
            ]
        return readings

    def _subject(self, at: int, clause: Clause) -> list[PartialClause]:
        if clause.subject is not None:
            return [(at, clause)]
        return [(end, clause._replace(subject=subject)) for end, subject in self._subjects(at)]

    def _subjects(self, at: int) -> Iterator[tuple[int, NounPhrase | Pronoun]]:
        yield from ((at + 1, pronoun) for pronoun in SUBJECT_PRONOUNS.get(self.words[at], ()))
        yield from self._noun_phrases(at, 'nominative')

    def _pronoun(self, at: int, clause: Clause) -> list[PartialClause]:
        return [
            (at + 1, _with_object(clause, index, OBJECT_PRONOUNS[self.words[at], case]))
            for index, case, _ in _missing_objects(clause, prepositional=False)
            if (self.words[at], case) in OBJECT_PRONOUNS
        ]

    def _time(self, at: int, clause: Clause) -> list[PartialClause]:
        if clause.time:
            return [(at, clause)]
        return [(at, clause), *((end, clause._replace(time=time)) for end, time in self._times(at))]

    def _times(self, at: int) -> Iterator[tuple[int, str]]:
        for words, time, tenses in TIME_WORDS:
            end = at + len(words)
            if self.words[at:end] == words and self.tense in tenses:
                yield end, time

    def _objects(self, at: int, clause: Clause) -> list[PartialClause]:
        readings = [(at, clause)]
        for index, case, _ in _missing_objects(clause, prepositional=False):
            readings = [
                (end, _with_object(before, index, phrase))
                for start, before in readings
                for end, phrase in self._noun_phrases(start, case)
            ]
        return readings

    def _negation(self, at: int, clause: Clause) -> list[PartialClause]:
        negated = self.words[at] == 'nicht'
        return [(at + negated, clause._replace(negated=negated))]

    def _prepositional_objects(self, at: int, clause: Clause) -> list[PartialClause]:
        readings = [(at, clause)]
        for index, case, preposition in _missing_objects(clause, prepositional=True):
            readings = [
                (end, _with_object(before, index, phrase))
                for start, before in readings
                for phrases in (self._prepositional_phrases, self._prepositional_pronouns)
                for end, phrase in phrases(start, preposition, case)
            ]
        return readings

    def _prepositional_pronouns(self, at: int, preposition: str, case: str) -> Iterator[tuple[int, Pronoun]]:
        word, pronoun = self.words[at : at + 2]
        if word == preposition and pronoun != 'es' and (pronoun, case) in OBJECT_PRONOUNS:
            yield at + 2, OBJECT_PRONOUNS[pronoun, case]

    def _prepositional_phrases(
        self, at: int, preposition: str, case: str
    ) -> Iterator[tuple[int, NounPhrase]]:
        word = self.words[at]
        if word == preposition:
            yield from self._noun_phrases(at + 1, case)
        contracted, article = CONTRACTED.get(word, ('', ''))
        if article and contracted == preposition:
            yield from self._noun_phrases(at + 1, case, article)

    def _place(self, at: int, clause: Clause) -> list[PartialClause]:
        if clause.place or clause.verb.extra != 'place':
            return [(at, clause)]
        readings = [
            (end, clause._replace(place=(place, phrase)))
            for place, (preposition, _) in PLACES.items()
            for end, phrase in self._prepositional_phrases(at, preposition, 'dative')
        ]
        return readings if clause.verb.german in NEEDING_PLACE else [(at, clause), *readings]

    def _predicate(self, at: int, clause: Clause) -> list[PartialClause]:
        if clause.verb.extra != 'predicate':
            return [(at, clause)]
        degree = DEGREES.get(self.words[at], '')
        at += bool(degree)
        adjective = PREDICATIVES.get(self.words[at])
        return [(at + 1, clause._replace(predicate=(degree, adjective)))] if adjective else []

    def _noun_phrases(self, at: int, case: str, article: str = '') -> Iterator[tuple[int, NounPhrase]]:
        """Reads a noun phrase. `article` is the article in a contraction before it, or ''."""
        for end, phrase in self._possessed(at, case, article):
            yield end, phrase
            if self.inner and self.words[end] == ',':
                for after, relative in self._relatives(end + 1, phrase):
                    yield after, phrase._replace(relative=relative)

    def _possessed(self, at: int, case: str, article: str) -> Iterator[tuple[int, NounPhrase]]:
        for end, phrase in self._plain(at, case, article):
            yield end, phrase
            if phrase.determiner == 'the':
                for after, possessor in self._plain(end, 'genitive'):
                    if not _is_bare(possessor):
                        yield after, phrase._replace(possessor=possessor)

    def _plain(self, at: int, case: str, article: str = '') -> list[tuple[int, NounPhrase]]:
        """Reads determiner, adjective and noun."""
        key = at, case, article
        if key not in self.plain_phrases:
            starts = [(article, at)] if article else [('', at), (self.words[at], at + 1)]
            self.plain_phrases[key] = [
                phrase for determiner, start in starts for phrase in self._nouns(start, case, determiner)
            ]
        return self.plain_phrases[key]

    def _nouns(self, at: int, case: str, determiner: str) -> Iterator[tuple[int, NounPhrase]]:
        adjective = ADJECTIVE_FORMS.get(self.words[at])
        at += adjective is not None
        for noun, plural in NOUN_FORMS.get((self.words[at], case), ()):
            english = english_determiner(determiner, case, noun, plural)
            if english is not None:
                yield at + 1, NounPhrase(noun, english, plural, adjective)

    def _relatives(self, at: int, phrase: NounPhrase) -> Iterator[tuple[int, Relative]]:
        """Reads a relative clause and its closing comma, which is absent at the end of a sentence."""
        head = NounPhrase(phrase.noun, plural=phrase.plural)
        for start, case, preposition in self._relative_pronouns(at, 'p' if head.plural else head.noun.gender):
            for reader in self.inner:
                for end, relative in reader._after_pronoun(start, head, case, preposition):
                    if end == self.length or self.words[end] == ',':
                        yield min(end + 1, self.length), relative

    def _after_pronoun(
        self, at: int, head: NounPhrase, case: str, preposition: str
    ) -> Iterator[tuple[int, Relative]]:
        for opening, verbs, end in self._last_verbs(at):
            for gap, filled in _gaps(opening, head, case, preposition):
                for stop, clause in self._field(at, filled):
                    if stop == verbs:
                        yield end, Relative(clause, gap)

    def _relative_pronouns(self, at: int, gender: str) -> Iterator[tuple[int, str, str]]:
        for case in CASES[:3]:
            pronoun = relative_pronoun(case, gender)
            if self.words[at] == pronoun:
                yield at + 1, case, ''
            if self.words[at + 1] == pronoun:
                yield at + 2, case, self.words[at]


def _gaps(
    clause: Clause, head: NounPhrase, case: str, preposition: str
) -> Iterator[tuple[str | int, Clause]]:
    """Yields each gap that the relative pronoun can fill, and the clause with the head in that gap."""
    if clause.verb.extra == 'that':
        return  # no dass-clause could follow
    if case == 'nominative' and not preposition:
        yield 'subject', clause._replace(subject=head)
    for index, needed_case, needed_preposition in _missing_objects(clause, prepositional=bool(preposition)):
        if (needed_case, needed_preposition) == (case, preposition):
            yield index, _with_object(clause, index, head)
    if clause.verb.extra == 'place' and case == 'dative':
        for place, (needed_preposition, _) in PLACES.items():
            if needed_preposition == preposition:
                yield 'place', clause._replace(place=(place, head))


def _is_bare(phrase: NounPhrase) -> bool:
    return not phrase.determiner or (phrase.plural and phrase.determiner == 'a')


def _missing_objects(clause: Clause, prepositional: bool) -> list[tuple[int, str, str]]:
    """Returns the index, case and preposition of each object, prepositional or not, that is still missing."""
    return [
        (index, case, preposition)
        for index, (case, preposition, _) in enumerate(clause.verb.frames)
        if clause.objects[index] is None and bool(preposition) == prepositional
    ]


def _with_object(clause: Clause, index: int, phrase: NounPhrase | Pronoun) -> Clause:
    return clause._replace(objects=(*clause.objects[:index], phrase, *clause.objects[index + 1 :]))


def _negations(clause: Clause) -> int:
    """Counts the words that negate a clause: 'nicht', and each 'kein'."""
    phrases = [clause.subject, *clause.objects, *([clause.place[1]] if clause.place else [])]
    phrases = [phrase for phrase in phrases if isinstance(phrase, NounPhrase)]
    phrases += [phrase.possessor for phrase in phrases if phrase.possessor]
    return clause.negated + sum(phrase.determiner == 'no' for phrase in phrases)


def _is_complete(sentence: Sentence) -> bool:
    """Returns whether each verb of knowing has its dass-clause, and each dass-clause its verb."""
    added_knows = sentence.added is not None and sentence.added.verb.extra == 'that'
    main_knows = sentence.main.verb.extra == 'that'
    return not added_knows and main_knows == (sentence.conjunction == 'that')
