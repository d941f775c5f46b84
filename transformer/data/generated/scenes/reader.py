"""Reads captions, the inverse of `writer`: finds the facts that an English or German text states."""

import functools
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from transformer.data.generated.grammar.inflection import CASES, relative_pronoun
from transformer.data.generated.scenes.facts import Caption, Mention
from transformer.data.generated.scenes.words import LANGUAGES, Cell, Look, gender, noun_phrases

T = TypeVar('T')
_LONGEST = 10  # words and marks of a phrase in the tables
_TOKEN = re.compile(r'\w+|[.,:]')


class _NotACaption(Exception):
    """The text is not of the grammar."""


class _Tables(NamedTuple):
    """What the phrases of a language mean.

    Attributes:
      phrases: noun phrases, by case.
      cells, adverbs: what a phrase means.
      relations: the relation, and the case of the phrase after it.
      pronouns: the genders that a pronoun can have.
      place_first, there: by verb, whether the thing after it can be singular and plural, and its case.
      subject_first: by verb, the same of its subject, without a case.
      relatives: whole relative clauses, by the gender of the noun before them.
      lists: openings of a list, with the number of objects, if they state it, and the case of its things.
      counts: sentences with the number of objects, as the first sentence and as the last.
    """

    phrases: dict[str, dict[str, Look]]
    cells: dict[str, Cell]
    relations: dict[str, tuple[str, str]]
    adverbs: dict[str, str]
    pronouns: dict[str, str]
    place_first: dict[str, tuple[set[bool], str]]
    subject_first: dict[str, set[bool]]
    there: dict[str, tuple[set[bool], str]]
    relatives: dict[str, dict[str, Cell]]
    lists: dict[str, tuple[int | None, str]]
    counts: tuple[dict[str, int], dict[str, int]]


def read(text: str, language: str) -> Caption | None:
    """Returns the facts that a caption states, or None if the text is not of the grammar.

    The mentions are the largest object, then the others in the order of the text. A pronoun means the object
    that the preceding clause or thing is about, even if another reading is possible.
    """
    tokens = _TOKEN.findall(text)
    if not tokens or tokens[-1] != '.' or re.sub(' ([.,:])', r'\1', ' '.join(tokens)) != text:
        return None
    sentences = [sentence.split() for sentence in ' '.join(tokens[:-1]).split('.')]
    if not all(sentence and sentence[0][0].isupper() for sentence in sentences):
        return None
    sentences = [[first[0].lower() + first[1:], *rest] for first, *rest in sentences]
    for parse in (_Reader.read_list, _Reader.read_sentences):
        try:
            return parse(_Reader(language), sentences)
        except _NotACaption:
            continue
    return None


class _Reader:
    """Reads the tokens of one sentence after another, and collects the mentions in the order of the text."""

    def __init__(self, language: str):
        self._tables, self._conjunctions = _tables(language), LANGUAGES[language].conjunctions
        self._tokens: Sequence[str] = ()
        self._at = 0
        self._mentions: list[Mention] = []
        self._looks: list[Look] = []
        self._latest: int | None = None  # the mention that 'it' means

    def read_list(self, sentences: Sequence[Sequence[str]]) -> Caption:
        """Reads a caption that is a list of things."""
        [self._tokens, *more] = sentences
        number, case = self._take(self._tables.lists) or (None, 'nominative')
        between = {',': False, self._conjunctions[1]: True}
        is_last = False
        while not is_last:
            is_last = bool(self._mentions) and self._need(between)
            self._thing(case, {False, True})
        return self._end(number, more)

    def read_sentences(self, sentences: Sequence[Sequence[str]]) -> Caption:
        """Reads a caption of sentences with one or two clauses, and one with the number of objects."""
        first, last = self._tables.counts
        number, clauses = first.get(' '.join(sentences[0])), [*sentences]
        if number is not None:
            clauses = clauses[1:]
        elif (number := last.get(' '.join(sentences[-1]))) is not None:
            clauses = clauses[:-1]
        conjunction = {' '.join(_TOKEN.findall(self._conjunctions[0])): True}
        for sentence in clauses:
            self._tokens, self._at = sentence, 0
            self._clause()
            if self._take(conjunction):
                self._clause()
            if self._at < len(self._tokens):
                raise _NotACaption
        return self._end(number, [])

    def _end(self, number: int | None, more: Sequence[Sequence[str]]) -> Caption:
        """Returns the facts. Raises _NotACaption unless the text has ended and has one largest object."""
        large = [index for index, mention in enumerate(self._mentions) if mention.large]
        if more or self._at < len(self._tokens) or len(large) != 1:
            raise _NotACaption
        order = sorted(range(len(self._mentions)), key=lambda index: index not in large)
        new = {old: index for index, old in enumerate(order)} | {None: None}
        mentions = [self._mentions[index] for index in order]
        return Caption(number, tuple(mention._replace(of=new[mention.of]) for mention in mentions))

    def _take(self, table: Mapping[str, T]) -> T | None:
        """Reads the longest phrase of a table that begins here. Returns its meaning, or None without one."""
        for size in range(min(_LONGEST, len(self._tokens) - self._at), 0, -1):
            phrase = ' '.join(self._tokens[self._at : self._at + size])
            if phrase in table:
                self._at += size
                return table[phrase]
        return None

    def _need(self, table: Mapping[str, T]) -> T:
        meaning = self._take(table)
        if meaning is None:
            raise _NotACaption
        return meaning

    def _clause(self) -> None:
        begin = self._at
        if place := self._place():
            comma = self._take({',': True}) is not None
            if comma != (',' in self._tokens[begin : self._at - comma]):
                raise _NotACaption
            plurals, case = self._need(self._tables.place_first)
            self._thing(case, plurals, place)
        elif (there := self._take(self._tables.there)) is not None:
            self._thing(there[1], there[0])
        else:
            index = self._introduce('nominative', {False, True})
            if (self._mentions[index].number > 1) not in self._need(self._tables.subject_first):
                raise _NotACaption
            place = self._place()
            if not place:
                raise _NotACaption
            self._set_place(index, place)

    def _thing(self, case: str, plurals: set[bool], place: dict[str, object] | None = None) -> None:
        """Reads a noun phrase and, unless `place` is given, the place after it."""
        index = self._introduce(case, plurals)
        self._set_place(index, self._place() if place is None else place)

    def _set_place(self, index: int, place: dict[str, object]) -> None:
        self._mentions[index] = self._mentions[index]._replace(**place)
        self._latest = index

    def _introduce(self, case: str, plurals: set[bool]) -> int:
        """Reads the noun phrase of a new object. Only the largest can be definite."""
        return self._add(self._need(self._tables.phrases[case]), plurals)

    def _add(self, look: Look, plurals: set[bool] = frozenset({False})) -> int:
        whole = look.colour is not None and (look.large or not look.definite)
        if not whole or (look.number > 1) not in plurals:
            raise _NotACaption
        self._mentions.append(Mention(look.shape, look.colour, look.large, look.number))
        self._looks.append(look)
        return len(self._mentions) - 1

    def _place(self) -> dict[str, object]:
        """Reads the words for a place, and returns what they state, empty if there are none."""
        relation = self._take(self._tables.adverbs)
        if relation:
            return {'relation': relation, 'of': self._antecedent('mfn')}
        found = self._take(self._tables.relations)
        if not found:
            column, row = self._take(self._tables.cells) or (None, None)
            return {} if column is None else {'column': column, 'row': row}
        relation, case = found
        genders = self._take(self._tables.pronouns) if case == 'dative' else None
        of = self._reference(case) if genders is None else self._antecedent(genders)
        return {'relation': relation, 'of': of}

    def _antecedent(self, genders: str) -> int:
        """Returns the mention that a pronoun means, which must agree with its gender."""
        if self._latest is None:
            raise _NotACaption
        look = self._looks[self._latest]
        if look.number > 1 or gender(look.shape, look.word) not in genders:
            raise _NotACaption
        return self._latest

    def _reference(self, case: str) -> int:
        """Reads the noun phrase of a mentioned object, or the largest one's with a clause of its cell."""
        look = self._need(self._tables.phrases[case])
        known = [index for index, mention in enumerate(self._mentions) if look.describes(mention)]
        if look.definite and known:
            if len(known) > 1 or self._mentions[known[0]].number > 1:
                raise _NotACaption
            return known[0]
        if not look.large:
            raise _NotACaption
        index = self._add(look)
        column, row = self._need(self._tables.relatives[gender(look.shape, look.word)])
        self._mentions[index] = self._mentions[index]._replace(column=column, row=row)
        return index


@functools.cache
def _tables(language: str) -> _Tables:
    words = LANGUAGES[language]
    numbers = {numeral: number for number, numeral in enumerate(words.numerals, 2)}
    cells = {phrase: cell for cell, phrases in words.cells.items() for phrase in phrases}
    pronouns = {}
    for one, pronoun in words.pronouns.items():
        pronouns[pronoun] = pronouns.get(pronoun, '') + one
    return _Tables(
        phrases={case: noun_phrases(language, case) for case in CASES},
        cells=cells,
        relations={
            phrase: (relation, case) for relation, ways in words.relations.items() for phrase, case in ways
        },
        adverbs={adverb: relation for relation, adverb in words.adverbs.items()},
        pronouns=pronouns,
        place_first=_by_verb(words.place_first),
        subject_first={verb: plurals for verb, (plurals, *_) in _by_verb(words.subject_first).items()},
        there=_by_verb(words.there),
        relatives={
            one: {
                _key(relative.format(cell, pronoun=relative_pronoun('nominative', one))): cells[cell]
                for relative, cell in itertools.product(words.relative, cells)
            }
            for one in words.pronouns
        },
        # A list without an opening has no entry.
        lists={
            _key(opening.format(numeral)): (number if '{}' in opening else None, case)
            for opening, case in words.lists
            if opening
            for numeral, number in numbers.items()
        },
        counts=tuple(
            {_key(text.format(numeral)): n for text in texts for numeral, n in numbers.items()}
            for texts in words.counts
        ),
    )


def _key(phrase: str) -> str:
    """Returns a phrase as its tokens with blanks between them."""
    return ' '.join(_TOKEN.findall(phrase))


def _by_verb(frames: Iterable[Sequence[str]]) -> dict[str, tuple[set[bool], str]]:
    """Maps a verb to its numbers (True: plural) and the rest of its frame."""
    verbs: dict[str, tuple[set[bool], str]] = {}
    for singular, plural, *case in frames:
        for verb, is_plural in ((singular, False), (plural, True)):
            verbs.setdefault(verb, (set(), *case))[0].add(is_plural)
    return verbs
