"""The English of a syntax tree: its constituents, in the labels of the Penn Treebank, and its text."""

from collections.abc import Sequence

from transformer.data.generated.grammar.inflection import DETERMINERS, MODALS, Noun, Pronoun, english_verb
from transformer.data.generated.grammar.syntax import Clause, NounPhrase, Relative, Sentence, agreement
from transformer.data.trees import ROOT, Constituent, words

PARTICLES = ('away', 'up')
_POSSESSIVES = ('my', 'your', 'his', 'her', 'our', 'their')


def english(sentence: Sentence) -> str:
    """Returns the English of a sentence."""
    text = ' '.join(words(tree(sentence)))
    for mark in (' ,', " 's", " n't", ' .', ' ?'):
        text = text.replace(mark, mark[1:])
    return text


def tree(sentence: Sentence) -> Constituent:
    """Returns the constituents of a sentence, with its words split as in the Penn Treebank."""
    main, conjunction, added, added_first, question = sentence
    parts = _clause(main, question=bool(question))
    if question == 'why':
        parts = [Constituent('WHADVP', (Constituent('WRB', 'why'),)), Constituent('SQ', tuple(parts))]
    if added is not None:
        # 'and' joins two predicates of one subject, which is not repeated.
        clause = Constituent('S', tuple(_clause(added, gap='subject' if conjunction == 'and' else None)))
        comma = Constituent(',', ',')
        if conjunction in ('and', 'but'):
            joint = [comma] * (conjunction == 'but')
            parts = [Constituent('S', tuple(parts)), *joint, Constituent('CC', conjunction), clause]
        else:
            subordinate = Constituent(
                'SBAR', (Constituent('WRB' if conjunction == 'when' else 'IN', conjunction), clause)
            )
            parts = [subordinate, comma, *parts] if added_first else [*parts, subordinate]
    label = 'SBARQ' if question == 'why' else 'SQ' if question else 'S'
    whole = Constituent(label, (*parts, Constituent('.', '?' if question else '.')))
    return Constituent(ROOT, (_capitalized(whole),))


def _capitalized(part: Constituent) -> Constituent:
    if part.is_word:
        return part._replace(parts=part.parts[0].upper() + part.parts[1:])
    first, *rest = part.parts
    return part._replace(parts=(_capitalized(first), *rest))


def _words(tag: str, text: str) -> list[Constituent]:
    return [Constituent(tag, word) for word in text.split()]


def _noun_phrase(phrase: NounPhrase | Pronoun, case: str = 'english') -> Constituent:
    """Returns the tree of a noun phrase. `case` is the field of a pronoun's form."""
    if isinstance(phrase, Pronoun):
        return Constituent('NP', (Constituent('PRP', getattr(phrase, case)),))
    determiner = phrase.determiner
    if determiner and phrase.plural:
        determiner = DETERMINERS[determiner][2]
    if phrase.possessor:
        possessor = _noun_phrase(phrase.possessor)
        parts = [possessor._replace(parts=(*possessor.parts, Constituent('POS', "'s")))]
    else:
        parts = _words('PRP$' if determiner in _POSSESSIVES else 'DT', determiner)
    parts += _words('JJ', phrase.adjective.english) if phrase.adjective else []
    noun = phrase.noun.english_plural if phrase.plural else phrase.noun.english
    parts += _words('NNS' if phrase.plural else 'NN', noun)
    if parts[0].parts == 'a' and words(parts[1])[0][0] in 'aeiou':
        parts[0] = Constituent('DT', 'an')
    whole = Constituent('NP', tuple(parts))
    return Constituent('NP', (whole, _relative(phrase.relative, phrase.noun))) if phrase.relative else whole


def _relative(relative: Relative, noun: Noun) -> Constituent:
    clause, gap = relative
    if gap == 'place':
        which = Constituent('WHNP', (Constituent('WDT', 'which'),))
        pronoun = Constituent('WHPP', (*_words('IN', clause.place[0]), which))
    elif 'person' in noun.classes:
        pronoun = Constituent('WHNP', (Constituent('WP', 'who' if gap == 'subject' else 'whom'),))
    else:
        pronoun = Constituent('WHNP', (Constituent('WDT', 'that'),))
    return Constituent('SBAR', (pronoun, Constituent('S', tuple(_clause(clause, gap=gap)))))


def _verbs(clause: Clause, question: bool) -> tuple[list[str], list[str]]:
    """Returns the auxiliary, which precedes the subject in a question, and the other verbs."""
    verb, tense, (person, plural) = clause.verb, clause.tense, agreement(clause.subject)
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


def _verb_words(texts: Sequence[str], modal: bool = False) -> list[Constituent]:
    """Returns the trees of verbs with negation, particles and prepositions: did n't wait for, threw away."""
    parts = []
    for text in texts:
        first, *others = text.replace("n't", " n't").split()
        parts.append(Constituent('TO' if first == 'to' else 'MD' if modal else 'VB', first))
        for word in others:
            if word in PARTICLES:
                parts.append(Constituent('PRT', (Constituent('RP', word),)))
            else:
                parts.append(Constituent('RB' if word in ('not', "n't") else 'IN', word))
    return parts


def _clause(clause: Clause, question: bool = False, gap: str | int | None = None) -> list[Constituent]:
    """Returns the parts of a clause, without the part that `gap` names."""
    finite, rest = _verbs(clause, question)
    subject = [] if gap == 'subject' else [_noun_phrase(clause.subject)]
    kept = [phrase for index, phrase in enumerate(clause.objects) if index != gap]
    objects = [_noun_phrase(phrase, 'english_object') for phrase in kept]
    auxiliary, verbs = _verb_words(finite, modal=bool(clause.modal)), _verb_words(rest)
    pronoun_first = clause.objects and isinstance(clause.objects[0], Pronoun)
    if verbs and verbs[-1].label == 'PRT' and pronoun_first:
        verbs, objects = verbs[:-1], [*objects, verbs[-1]]  # 'threw it away', but 'threw away the ball'
    inside = [*verbs, *objects]
    if clause.place and gap != 'place':
        inside.append(Constituent('PP', (*_words('IN', clause.place[0]), _noun_phrase(clause.place[1]))))
    if clause.predicate:
        degree, adjective = clause.predicate
        inside.append(Constituent('ADJP', (*_words('RB', degree), *_words('JJ', adjective.english))))
    time = [Constituent('ADVP', tuple(_words('RB', clause.time)))] if clause.time else []
    inside += [] if clause.fronted else time
    first = time if clause.fronted else []
    if question:
        return [*first, *auxiliary, *subject, *([Constituent('VP', tuple(inside))] if inside else [])]
    return [*first, *subject, Constituent('VP', (*auxiliary, *inside))]
