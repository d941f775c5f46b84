"""Words the facts of a caption in English or German, in one of many ways that random numbers choose."""

from collections.abc import Sequence
from typing import TypeVar

from transformer.data.generated.grammar.inflection import relative_pronoun
from transformer.data.generated.scenes.facts import Caption
from transformer.data.generated.scenes.words import LANGUAGES, NOUNS, Look, gender, noun_phrase

T = TypeVar('T')
# The first random number for each choice; a mention takes the one at its own number from there.
_STYLE, _OPENING, _FRAME, _VERB, _PLACE, _REFERENCE, _WORD, _END = 6, 7, 8, 11, 14, 17, 20, 23


def write(caption: Caption, language: str, numbers: Sequence[int]) -> str:
    """Returns a caption's text.

    Captions with other values of the same facts and the same random numbers differ in the words for these
    and, rarely, in what a phrase that refers back needs to be clear.
    """
    return _Writer(caption, language, numbers).text()


class _Writer:
    def __init__(self, caption: Caption, language: str, numbers: Sequence[int]):
        self._caption, self._name, self._words = caption, language, LANGUAGES[language]
        self._numbers = numbers
        # One mention of circles in eight calls them discs.
        self._nouns = [
            int(len(NOUNS[mention.shape]) > 1 and numbers[_WORD + index] % 8 == 0)
            for index, mention in enumerate(caption.mentions)
        ]
        self._known: list[int] = []  # the mentions so far
        self._latest = -1  # the mention that 'it' means: the one that the clause before was about

    def text(self) -> str:
        sentences = self._list() if self._numbers[_STYLE] % 10 < 4 else self._sentences()
        return ' '.join(f'{sentence[0].upper()}{sentence[1:]}.' for sentence in sentences)

    def _pick(self, place: int, options: Sequence[T]) -> T:
        return options[self._numbers[place] % len(options)]

    def _numeral(self) -> str:
        return self._words.numerals[self._caption.number - 2]

    def _list(self) -> list[str]:
        counted = self._caption.number is not None
        opening, case = self._pick(_OPENING, self._words.lists[:2] if counted else self._words.lists[2:])
        things = []
        for index in range(len(self._caption.mentions)):
            thing = self._introduce(index, case)
            things.append(f'{thing} {place}' if (place := self._place(index)) else thing)
            self._latest = index
        *first, last = things
        listed = f'{", ".join(first)} {self._words.conjunctions[1]} {last}'
        return [f'{opening.format(self._numeral())} {listed}' if counted else f'{opening} {listed}'.strip()]

    def _sentences(self) -> list[str]:
        mentions = self._caption.mentions
        first = mentions[1]
        order, sentences = [*range(len(mentions))], []
        if first.of == 0 and first.number == 1 and self._numbers[_STYLE] % 10 >= 8:
            order.remove(0)  # which the first clause mentions as well
        joined = True  # the first clause begins a sentence
        for index in order:
            clause, ends = self._clause(index)
            self._latest = index
            if not joined and self._numbers[_END + 1 + index] % 2:
                sentences[-1] += f'{self._words.conjunctions[0]} {clause}'
                joined = True
            else:
                sentences.append(clause)
                joined = ends
        if self._caption.number is None:
            return sentences
        begins, ends = self._words.counts
        options = [(text, True) for text in begins] + [(text, False) for text in ends]
        count, is_first = self._pick(_OPENING, options)
        count = count.format(self._numeral())
        return [count, *sentences] if is_first else [*sentences, count]

    def _clause(self, index: int) -> tuple[str, bool]:
        """Returns a clause about a mention, and whether it must be the last of its sentence."""
        mention, words = self._caption.mentions[index], self._words
        plural = int(mention.number > 1)
        placed = mention.relation is not None or mention.column is not None
        frame = self._numbers[_FRAME + index] % 5 if placed else 4
        if frame < 2:
            verb = self._pick(_VERB + index, words.place_first)
            place = self._place(index)
            place += ',' if ',' in place else ''
            return f'{place} {verb[plural]} {self._introduce(index, verb[2])}', False
        if frame < 4:
            verb = self._pick(_VERB + index, words.subject_first)[plural]
            definite = index == 0 and self._numbers[_END] % 2 == 0
            text = f'{self._introduce(index, "nominative", definite)} {verb} {self._place(index)}'
        else:
            verb = self._pick(_VERB + index, words.there)
            text = f'{verb[plural]} {self._introduce(index, verb[2])}'
            text += f' {self._place(index)}' if placed else ''
        return text, ',' in text

    def _introduce(self, index: int, case: str, definite: bool = False) -> str:
        mention = self._caption.mentions[index]
        self._known.append(index)
        look = Look(
            mention.shape, mention.colour, mention.large, mention.number, self._nouns[index], definite
        )
        return noun_phrase(self._name, look, case)

    def _place(self, index: int) -> str:
        """Returns the words for a mention's place, '' if it has none."""
        mention = self._caption.mentions[index]
        if mention.relation is None:
            cell = mention.column, mention.row
            return self._pick(_PLACE + index, self._words.cells[cell]) if mention.column is not None else ''
        phrase, case = self._pick(_PLACE + index, self._words.relations[mention.relation])
        number, other = self._numbers[_REFERENCE + index], mention.of
        if other not in self._known:
            return f'{phrase} {self._introduce(other, case, number % 4 > 0)}{self._relative(other)}'
        if other == self._latest and number % 3:
            if self._words.adverbs and (case == 'genitive' or number // 3 % 2):
                return self._words.adverbs[mention.relation]
            noun = self._caption.mentions[other].shape, self._nouns[other]
            return f'{phrase} {self._words.pronouns[gender(*noun)]}'
        return f'{phrase} {self._describe(other, case, number // 3)}'

    def _relative(self, index: int) -> str:
        mention = self._caption.mentions[index]
        place = self._pick(_PLACE + index, self._words.cells[mention.column, mention.row])
        pronoun = relative_pronoun('nominative', gender(mention.shape, self._nouns[index]))
        return self._pick(_END, self._words.relative).format(place, pronoun=pronoun)

    def _describe(self, index: int, case: str, number: int) -> str:
        """Returns a definite noun phrase that fits no other mention so far."""
        mention = self._caption.mentions[index]
        # By shape alone, by size, by colour, by both.
        options = [
            Look(mention.shape, colour, large, 1, self._nouns[index], definite=True)
            for colour in (None, mention.colour)
            for large in dict.fromkeys((None, mention.large))
            if colour or large is not False
        ]
        others = [self._caption.mentions[i] for i in self._known if i != index]
        clear = [look for look in options if not any(look.describes(other) for other in others)]
        # The shortest in three of four, and in some of the others.
        chosen = clear[number // 4 % len(clear)] if number % 4 == 0 else clear[0]
        return noun_phrase(self._name, chosen, case)
