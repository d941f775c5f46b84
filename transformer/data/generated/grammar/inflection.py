"""The words of the corpus and their forms: German inflection and English verb forms."""

from typing import NamedTuple

from transformer.data.generated.grammar import lexicon

GENDERS = 'mfnp'  # the plural counts as a fourth gender, because German plurals do not distinguish the three
CASES = ('nominative', 'accusative', 'dative', 'genitive')


def _by_case(*forms: str) -> dict[str, str]:
    """Returns forms by case, each in the order of `GENDERS`."""
    return dict(zip(CASES, forms, strict=True))


DEFINITE = _by_case('der die das die', 'den die das die', 'dem der dem den', 'des der des der')
EIN_ENDINGS = _by_case('- e - e', 'en e - e', 'em er em en', 'es er es er')
STRONG_ENDINGS = _by_case('er e es e', 'en e es e', 'em er em en', 'en er en er')
WEAK_ENDINGS = _by_case('e e e en', 'en e e en', 'en en en en', 'en en en en')
MIXED_ENDINGS = _by_case('er e es en', 'en e es en', 'en en en en', 'en en en en')
PERSON_ENDINGS = {'strong': ('', 'st', '', 'en', 't', 'en'), 'weak': ('', 'st', '', 'n', 't', 'n')}


class Noun(NamedTuple):
    """A row of `lexicon.NOUNS`."""

    english: str
    english_plural: str
    german: str
    gender: str
    genitive: str
    plural: str
    classes: tuple[str, ...]


class Adjective(NamedTuple):
    """A row of `lexicon.ADJECTIVES`."""

    english: str
    german: str
    stem: str
    classes: tuple[str, ...]


class Verb(NamedTuple):
    """A row of `lexicon.VERBS`; a frame is (case, preposition, noun classes of the complement)."""

    english: str
    past: str
    german: str
    present: str
    preterite: str
    subjects: tuple[str, ...]
    frames: tuple[tuple[str, str, tuple[str, ...]], ...]
    extra: str


class Pronoun(NamedTuple):
    """A personal pronoun in both languages."""

    english: str
    english_object: str
    person: int
    plural: bool
    nominative: str
    accusative: str
    dative: str


def _rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.strip().splitlines()]


def _blank(column: str) -> str:
    return column.replace('_', ' ')


def _verb(row: list[str]) -> Verb:
    frames, extra = [], ''
    for column in row[6:]:
        if ':' not in column:
            extra = column
            continue
        slot, classes = column.split(':')
        preposition, _, case = slot.rpartition('_')
        frames.append((case, preposition, tuple(classes.split(','))))
    return Verb(_blank(row[0]), row[1], *row[2:5], tuple(row[5].split(',')), tuple(frames), extra)


NOUNS = {row[0]: Noun(*row[:6], tuple(row[6].split(','))) for row in _rows(lexicon.NOUNS)}
ADJECTIVES = {row[1]: Adjective(*row[:3], tuple(row[3].split(','))) for row in _rows(lexicon.ADJECTIVES)}
# 'spielen' and 'spielen mit' count as two verbs because they take different complements.
VERBS = {
    ' '.join([verb.german, *(frame[1] for frame in verb.frames if frame[1])]): verb
    for verb in map(_verb, _rows(lexicon.VERBS))
}
PRESENTS = {row[0]: row[1:] for row in _rows(lexicon.PRESENTS)}
MODALS = {row[0]: [_blank(column) for column in row[1:]] for row in _rows(lexicon.MODALS)}
# The third person singular, present and preterite, of each German infinitive.
PRINCIPAL_PARTS = {
    **{verb.german: verb[3:5] for verb in VERBS.values()},
    **{row[0]: (PRESENTS[row[0]][2], row[1]) for row in MODALS.values()},
}
PRONOUNS = {
    row[0]: Pronoun(row[0], row[1], int(row[2]), row[3] == 'p', *row[4:]) for row in _rows(lexicon.PRONOUNS)
}
IT = {gender: Pronoun('it', 'it', 3, False, *forms.split()) for gender, forms in lexicon.IT_FORMS.items()}
TIMES = {_blank(row[0]): (_blank(row[1]), row[2].split(',')) for row in _rows(lexicon.TIMES)}
PLACES = {_blank(row[0]): (row[1], row[2].split(',')) for row in _rows(lexicon.PLACES)}
DETERMINERS = {
    singular: (*german, plural if slash else singular)
    for key, german in lexicon.DETERMINERS.items()
    for singular, slash, plural in [key.partition('/')]
}


def _cell(paradigm: dict[str, str], case: str, gender: str) -> str:
    return paradigm[case].split()[GENDERS.index(gender)].replace('-', '')


def german_determiner(determiner: str, case: str, gender: str) -> str:
    """Returns the German form of an English determiner. Gender 'p' is the plural."""
    if not determiner or (determiner == 'a' and gender == 'p'):
        return ''
    stem, declension, _ = DETERMINERS[determiner]
    if not stem:
        return _cell(DEFINITE, case, gender)
    if declension == 'indefinite':
        return stem + _cell(EIN_ENDINGS, case, gender)
    # Only in the genitive do words like 'dieser' differ from strong adjectives: 'dieses' but 'guten'.
    endings = EIN_ENDINGS if case == 'genitive' else STRONG_ENDINGS
    return stem + _cell(endings, case, gender)


def relative_pronoun(case: str, gender: str) -> str:
    """Returns the German relative pronoun: the definite article, except in genitive and dative plural."""
    if case == 'genitive':
        return 'dessen' if gender in 'mn' else 'deren'
    return 'denen' if (case, gender) == ('dative', 'p') else german_determiner('the', case, gender)


def german_adjective(adjective: Adjective, determiner: str, case: str, gender: str) -> str:
    """Returns an attributive adjective with its weak, mixed or strong ending."""
    if not german_determiner(determiner, case, gender):
        endings = STRONG_ENDINGS
    elif DETERMINERS[determiner][1] == 'definite':
        endings = WEAK_ENDINGS
    else:
        endings = MIXED_ENDINGS
    return adjective.stem + _cell(endings, case, gender)


def german_noun(noun: Noun, case: str, plural: bool = False) -> str:
    """Returns a noun in a case. Genitives, weak masculine nouns and dative plurals have endings."""
    if plural:
        dative = case == 'dative' and noun.plural[-1] not in 'ns'
        return noun.plural + 'n' * dative
    if noun.genitive.startswith('+'):
        return noun.german + noun.genitive[1:] * (case != 'nominative')
    return noun.german + noun.genitive.strip('-') * (case == 'genitive')


def german_verb(verb: str, tense: str, person: int, plural: bool) -> str:
    """Returns a finite form, without its separable prefix, of a verb or modal given as an infinitive."""
    place = person - 1 + 3 * plural
    base = verb.rpartition('+')[2]
    if tense == 'present':
        if base in PRESENTS:
            return PRESENTS[base][place]
        stem, third = base[:-2], PRINCIPAL_PARTS[verb][0]
        plain = stem + ('et' if stem[-1] in 'td' else 't')
        second = third[:-1] + ('t' if third[-2] in 'sßz' else 'st')
        return (stem + 'e', second, third, base, plain, base)[place]
    past = PRINCIPAL_PARTS[verb][1]
    if past.endswith('te'):
        return past + PERSON_ENDINGS['weak'][place]
    ending = PERSON_ENDINGS['strong'][place]
    if (ending in ('st', 't') and past[-1] in 'td') or (ending == 'st' and past[-1] in 'sßz'):
        ending = 'e' + ending
    return past + ending


def english_verb(verb: Verb, tense: str, person: int, plural: bool) -> str:
    """Returns a finite form of an English verb, with its particle if it has one."""
    first, blank, particle = verb.english.partition(' ')
    third_singular = person == 3 and not plural
    if first == 'be':
        if tense == 'past':
            return 'was' if person != 2 and not plural else 'were'
        return 'is' if third_singular else 'am' if person == 1 and not plural else 'are'
    if tense == 'past':
        form = verb.past
    elif not third_singular:
        form = first
    elif first == 'have':
        form = 'has'
    elif first.endswith(('s', 'sh', 'ch', 'x', 'o')):
        form = first + 'es'
    elif first.endswith('y') and first[-2] not in 'aeou':
        form = first[:-1] + 'ies'
    else:
        form = first + 's'
    return form + blank + particle
