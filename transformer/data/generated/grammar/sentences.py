"""A small generated English-German corpus: both sides of a pair are wordings of one syntax tree.

It is hard where German is hard: gender, case, word order, and pronouns whose gender depends on the noun
that they refer to.
"""

import functools
import random
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from transformer.data.generated.grammar.english import english, tree
from transformer.data.generated.grammar.inflection import (
    ADJECTIVES,
    IT,
    NOUNS,
    PLACES,
    VERBS,
    Noun,
    Pronoun,
    Verb,
)
from transformer.data.generated.grammar.phrases import (
    EVERYDAY_VERBS,
    adjectives_of,
    choose,
    noun_phrase,
    object_phrase,
    place_phrase,
    predicate,
    subject_phrase,
    time_adverbial,
)
from transformer.data.generated.grammar.scenes import BE, SCENES, minimal_pair, riddle, scene_sentence
from transformer.data.generated.grammar.syntax import (
    Clause,
    NounPhrase,
    Relative,
    Sentence,
    german,
    is_indefinite,
)
from transformer.data.trees import Constituent

VERSION = 2
SEED = 2017
SIZES = {'train': 20_000, 'dev': 1_000, 'test': 1_000}
STATES = ('haben', 'gehören', 'wohnen')  # 'the book belonged to her in the morning' is odd
HABITS = ('sometimes', 'every day')  # 'nicht' would negate the adverbial instead of the verb
WORDS = range(4, 23)  # allowed numbers of words in an English sentence
MINIMAL_PAIRS = 250  # of each kind


class PronounItem(NamedTuple):
    """A sentence whose translation depends on the noun that 'it' refers to.

    Attributes:
      pronoun: the correct German pronoun: 'er', 'sie' or 'es'.
      kind: the difference between the two sentences of a pair: one English word ('word'), or two swapped
        nouns ('swap').
    """

    source: str
    target: str
    pronoun: str
    kind: str


ACTIONS = [verb for verb in VERBS.values() if verb.subjects != ('-',) and verb.extra != 'that']
THAT_VERBS = [verb for verb in VERBS.values() if verb.extra == 'that']
# Ordered so that a thing can undergo a later action after an earlier one.
HANDLING = [VERBS[name] for name in (
    'suchen', 'finden', 'kaufen', 'ab+holen', 'waschen', 'reparieren', 'tragen', 'verkaufen', 'weg+werfen',
)]  # fmt: skip


def _clause(
    rng: random.Random,
    tense: str,
    verbs: Sequence[Verb] = (),
    timed: bool = True,
    nouns: list[Noun] | None = None,
    subject: NounPhrase | Pronoun | None = None,
) -> Clause:
    """Returns a random clause without a predicate adjective."""
    verb = choose(rng, verbs or (ACTIONS if tense == 'past' else EVERYDAY_VERBS))
    nouns = [] if nouns is None else nouns
    subject = subject or subject_phrase(rng, verb, tense, nouns)
    objects = tuple(object_phrase(rng, classes, subject, nouns) for _, _, classes in verb.frames)
    place = place_phrase(rng, nouns) if verb.extra == 'place' else None
    modal = ''
    if rng.random() < 0.2 and 'person' in verb.subjects:
        # 'should' becomes the German preterite 'sollte', which after 'when' would mean 'if'.
        modal = choose(rng, ['can', 'want', 'must', *['should'] * (timed and tense == 'past')])
    # German expresses 'no dog didn't ...' and 'a dog didn't ...' differently.
    plain = isinstance(subject, Pronoun) or subject.determiner not in ('no', 'every', 'a')
    negated = plain and modal != 'must' and rng.random() < 0.25
    if len(objects) == 2 and is_indefinite(objects[0]):
        negated = False
    if negated and verb.frames:
        place = None  # whether 'nicht' precedes the place would depend on what is negated
    clause = Clause(subject, verb, objects, tense, negated, modal, place=place)
    if timed and verb.german not in STATES and rng.random() < 0.35:
        return _with_time(rng, clause)
    return clause


def _with_time(rng: random.Random, clause: Clause) -> Clause:
    time, fronted = time_adverbial(rng, clause.tense), rng.random() < 0.6
    if clause.negated and time in HABITS:
        return clause
    return clause._replace(time=time, fronted=fronted)


def _description(
    rng: random.Random, tense: str, nouns: list[Noun], subject: NounPhrase | None = None
) -> Clause:
    """Returns a random clause with a predicate adjective: 'the dog was not very old'."""
    if subject is None:
        subject = noun_phrase(
            rng,
            ['person', 'animal', 'thing', 'owned', 'food'],
            nouns,
            ('the', 'the', 'the', 'my', 'his', 'this'),
        )
    return Clause(subject, BE, tense=tense, negated=rng.random() < 0.2, predicate=predicate(rng, subject))


def _affirmed(phrase: NounPhrase | Pronoun) -> NounPhrase | Pronoun:
    negative = isinstance(phrase, NounPhrase) and phrase.determiner == 'no'
    return phrase._replace(determiner='the') if negative else phrase


def _tense(rng: random.Random) -> str:
    return 'past' if rng.random() < 0.75 else 'present'


def _simple(rng: random.Random) -> Sentence:
    if rng.random() < 0.12:
        return Sentence(_description(rng, _tense(rng), []))
    return Sentence(_clause(rng, _tense(rng)))


def _question(rng: random.Random) -> Sentence:
    clause = _clause(rng, _tense(rng), timed=False)
    return Sentence(clause, question=choose(rng, ['whether', 'why']))


def _complex(rng: random.Random) -> Sentence:
    """Returns two random clauses joined by a conjunction. A subordinate clause can be the first."""
    conjunction = choose(rng, ['because', 'because', 'although', 'when', 'while', 'before', 'but'])
    tense, nouns = _tense(rng), []
    # 'als' is for a single event in the past: with times such as 'every day' German uses 'wenn'.
    timed = conjunction in ('because', 'although')
    main = _clause(rng, tense, timed=timed, nouns=nouns)
    if conjunction in ('because', 'although') and rng.random() < 0.5:
        added = _description(rng, tense, nouns)
    else:
        added = _clause(rng, tense, timed=False, nouns=nouns)
        added = added._replace(subject=_affirmed(added.subject))
    added_first = conjunction != 'but' and rng.random() < 0.35
    return Sentence(main._replace(fronted=main.fronted and not added_first), conjunction, added, added_first)


def _reported(rng: random.Random) -> Sentence:
    """Returns a random sentence with a that-clause."""
    tense, nouns = _tense(rng), []
    verb = choose(rng, THAT_VERBS) if tense == 'past' else VERBS['wissen']
    main = Clause(subject_phrase(rng, verb, tense, nouns), verb, tense=tense)
    added = (
        _description(rng, tense, nouns)
        if rng.random() < 0.3
        else _clause(rng, tense, nouns=nouns)._replace(fronted=False)
    )
    return Sentence(main, 'that', added)


def _with_relative(rng: random.Random, tense: str, head: NounPhrase, nouns: list[Noun]) -> NounPhrase | None:
    """Returns the phrase with a random relative clause, or None if its noun does not fit the chosen verb."""
    verb = choose(rng, ACTIONS if tense == 'past' else EVERYDAY_VERBS)
    kinds = set(head.noun.classes)
    gaps: list[str | int] = ['subject'] * bool(kinds & set(verb.subjects))
    if not verb.frames or kinds & set(verb.frames[-1][2]):
        gaps += [len(verb.frames) - 1] if verb.frames else []
    places = [name for name in PLACES if kinds & set(PLACES[name][1])]
    gaps += ['place'] * (verb.extra == 'place' and not verb.frames and bool(places))
    if not gaps:
        return None
    gap = choose(rng, gaps)
    clause = _clause(rng, tense, [verb], timed=False, nouns=nouns, subject=head if gap == 'subject' else None)
    if gap == 'place':
        clause = clause._replace(place=(choose(rng, places), head))
    return head._replace(relative=Relative(clause, gap))


def _is_simple(verb: Verb) -> bool:
    """Returns whether the object of a verb, and so its relative clause, is at the end of the clause."""
    return len(verb.frames) == 1 and '+' not in verb.german and not verb.extra


def _relative(rng: random.Random) -> Sentence:
    """Returns a random sentence with a relative clause after its subject or its object."""
    tense, nouns, phrase = _tense(rng), [], None
    at_subject = rng.random() < 0.5
    verb = choose(
        rng,
        [verb for verb in (ACTIONS if tense == 'past' else EVERYDAY_VERBS) if at_subject or _is_simple(verb)],
    )
    classes = verb.subjects if at_subject else verb.frames[0][2]
    while phrase is None:
        nouns = []
        head = noun_phrase(rng, classes, nouns, ('the', 'the', 'a', 'this'))
        phrase = _with_relative(rng, tense, head._replace(possessor=None), nouns)
    if not at_subject:
        return Sentence(Clause(subject_phrase(rng, verb, tense, nouns), verb, (phrase,), tense))
    if rng.random() < 0.4 and adjectives_of(head.noun)[1:]:
        return Sentence(_description(rng, tense, nouns, phrase))
    return Sentence(_clause(rng, tense, [verb], timed=False, nouns=nouns, subject=phrase))


def _one_thing(rng: random.Random) -> Sentence:
    """Returns a random sentence in which 'it' can refer to one noun only."""
    verb, tense, nouns = choose(rng, HANDLING), 'past', []
    # 'No woman bought the hat and threw it away' would make no sense.
    subject = _affirmed(subject_phrase(rng, verb, tense, nouns))
    kinds = [name for name in verb.frames[0][2] if name != 'person']
    thing = noun_phrase(rng, kinds, nouns)._replace(plural=False, possessor=None)
    if thing.determiner == 'every':
        thing = thing._replace(determiner='the')
    it = IT[thing.noun.gender]
    main = Clause(subject, verb, (thing,), tense)
    if rng.random() < 0.3:
        main = main._replace(time=time_adverbial(rng, tense), fronted=True)
    later = [
        other
        for other in HANDLING[HANDLING.index(verb) + 1 :]
        if verb.german != 'verkaufen' and set(other.frames[0][2]) & set(thing.noun.classes)
    ]
    if later and rng.random() < 0.5:
        return Sentence(main, 'and', Clause(subject, choose(rng, later), (it,), tense))
    return Sentence(
        main,
        choose(rng, ['because', 'but', 'although']),
        Clause(it, BE, tense=tense, predicate=predicate(rng, thing)),
    )


def random_sentence(rng: random.Random) -> Sentence:
    """Returns a random sentence of the corpus."""
    return choose(rng, [build for share, build in SHARES for _ in range(share)])(rng)


def _item(sentence: Sentence, kind: str) -> PronounItem:
    return PronounItem(english(sentence), german(sentence), sentence.added.subject.nominative, kind)


@functools.cache
def pronoun_items() -> tuple[PronounItem, ...]:
    """Returns the pronoun test set, in which items 2k and 2k + 1 are a minimal pair."""
    rng = random.Random(SEED)
    street = NounPhrase(NOUNS['animal']), NounPhrase(NOUNS['street'])
    items = [
        _item(scene_sentence(SCENES[0], street, ADJECTIVES[word], 'too'), 'word')
        for word in ('müde', 'breit')
    ]
    known = {text for item in items for text in item[:2]}
    for kind, size in (('word', 2 * MINIMAL_PAIRS), ('swap', 4 * MINIMAL_PAIRS)):
        while len(items) < size:
            pair = [_item(sentence, kind) for sentence in minimal_pair(rng, kind)]
            texts = {text for item in pair for text in item[:2]}
            if len(texts) == 4 and not texts & known:
                known |= texts
                items += pair
    return tuple(items)


@functools.cache
def _corpus() -> dict[str, tuple[tuple[str, str, Sentence], ...]]:
    known = {text for item in pronoun_items() for text in item[:2]}
    rng, splits = random.Random(SEED + 1), {}
    for split in ('test', 'dev', 'train'):
        pairs = []
        while len(pairs) < SIZES[split]:
            sentence = random_sentence(rng)
            pair = english(sentence), german(sentence)
            if not known.intersection(pair) and len(pair[0].split()) in WORDS:
                known.update(pair)
                pairs.append((*pair, sentence))
        splits[split] = tuple(pairs)
    return splits


def sentence_pairs(split: str) -> list[tuple[str, str]]:
    """Returns the (English, German) pairs of a split: 'train', 'dev', 'test' or 'pronoun'.

    No sentence of either language occurs twice, neither in one split nor in two.
    """
    if split not in (*SIZES, 'pronoun'):
        raise ValueError(f'no split {split!r}: train, dev, test or pronoun')
    if split == 'pronoun':
        return [(item.source, item.target) for item in pronoun_items()]
    return [pair[:2] for pair in _corpus()[split]]


@functools.cache
def sentence_trees(split: str) -> tuple[Constituent, ...]:
    """Returns the constituents of the English sentences of a split: 'train', 'dev' or 'test'."""
    return tuple(tree(sentence) for _, _, sentence in _corpus()[split])


def has_pronoun(translation: str, pronoun: str) -> bool:
    """Returns whether `pronoun` is the only one of 'er', 'sie' and 'es' in a translation."""
    return set(re.findall(r'\b(?:er|sie|es)\b', translation.lower())) == {pronoun}


SHARES: tuple[tuple[int, Callable[[random.Random], Sentence]], ...] = (
    (24, riddle),
    (6, _one_thing),
    (29, _simple),
    (19, _complex),
    (7, _reported),
    (10, _relative),
    (5, _question),
)
