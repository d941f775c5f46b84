"""Scores bracketed trees exactly as EVALB does, the Penn Treebank's scorer (Sekine and Collins 1997).

There is one tree a line. The results, the errors, the order of the rules and the printed layout are EVALB's
of 2013, but lines, words and labels can have any length.
"""

import collections
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from transformer.config import ConfigError

_BLANKS = ' \t\n\v\f\r'
_ATOM = re.compile(rf'[^{_BLANKS}()]*')
_SPACE = re.compile(rf'[{_BLANKS}]*')
_QUOTES = ("'", '"', '/')  # words whose tag can be taken for a quote's
_MOST_QUOTES = 20  # in a sentence
SCORED, ERROR, SKIPPED = 0, 1, 2  # the status of a sentence
# The error of text outside brackets. EVALB reads no further: it repeats the error until it stops.
OUTSIDE = 'Reading sentence'


class Rules(NamedTuple):
    """The rules of scoring. The defaults are COLLINS.prm's, which published scores use.

    Attributes:
      delete: words with these tags and brackets with these labels do not count.
      delete_for_length: words with these tags do not count for the length.
      equal_labels: pairs of labels or tags that count as the same.
      equal_words: pairs of words that count as the same.
      quotes: tags of quotes that one side can delete and the other one not.
      labeled: whether brackets must have the same label.
      cutoff: the longest sentence of the second summary.
      max_errors: scoring ends at the second error beyond this number, as in EVALB.
    """

    delete: tuple[str, ...] = ('TOP', '-NONE-', ',', ':', '``', "''", '.')
    delete_for_length: tuple[str, ...] = ('-NONE-',)
    equal_labels: tuple[tuple[str, str], ...] = (('ADVP', 'PRT'),)
    equal_words: tuple[tuple[str, str], ...] = ()
    quotes: tuple[str, ...] = ()
    labeled: bool = True
    cutoff: int = 40
    max_errors: int = 10


COLLINS = Rules()
# The parameters of a file: the field of `Rules`, and the number of texts in a line, 0 for one number.
_PARAMETERS = {
    'DELETE_LABEL': ('delete', 1),
    'DELETE_LABEL_FOR_LENGTH': ('delete_for_length', 1),
    'QUOTE_LABEL': ('quotes', 1),
    'EQ_LABEL': ('equal_labels', 2),
    'EQ_WORD': ('equal_words', 2),
    'LABELED': ('labeled', 0),
    'CUTOFF_LEN': ('cutoff', 0),
    'MAX_ERROR': ('max_errors', 0),
    'DEBUG': (None, 0),
}


def read_rules(lines: Iterable[str], name: str) -> Rules:
    """Reads a parameter file, which errors call `name`.

    Raises:
      ConfigError: an unknown parameter or a bad value.
    """
    lists = {field: [] for field, values in _PARAMETERS.values() if values}
    numbers: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        line = line.rstrip(_BLANKS)
        if line.startswith('#') or len(line) < 3:
            continue
        key, *rest = line.split(None, 1)
        value = rest[0] if rest else ''
        if key not in _PARAMETERS:
            raise ConfigError(
                f'{name}: line {number}: no parameter {key}; EVALB has {", ".join(_PARAMETERS)}'
            )
        field, count = _PARAMETERS[key]
        parts = value.split() if count == 2 else [value]
        if len(parts) != max(count, 1) or not value:
            needed = 'two values' if count == 2 else 'one value'
            raise ConfigError(f'{name}: line {number}: {key} needs {needed}, not "{value}"')
        if count:
            lists[field].append(tuple(parts) if count == 2 else value)
        elif not re.fullmatch(r'\d+', value):
            raise ConfigError(f'{name}: line {number}: {key} needs a number, not "{value}"')
        elif field:
            numbers[field] = int(value)
    labeled = bool(numbers.pop('labeled', 1))
    return Rules(**{field: tuple(values) for field, values in lists.items()}, labeled=labeled, **numbers)


class Quote(NamedTuple):
    """A word that can be a quote, with its place among words and brackets, and the brackets open there."""

    tag: str
    word: str
    index: int
    bracket: int
    opened: tuple[int, ...]


class Bracketing(NamedTuple):
    """A line's words and brackets after deletions. A bracket that is never closed ends at -1."""

    words: list[tuple[str, str]]  # tag, word
    brackets: list[list]  # label, start, end
    quotes: list[Quote]
    length: int
    errors: list[str]


def read(line: str, rules: Rules = COLLINS) -> Bracketing:
    """Reads a line as EVALB does.

    A bracket that closes nothing is an error only if the next bracket closes, too, or there is none. At
    such a bracket EVALB reads beyond its stack; what it then counts in this line is arbitrary.
    """
    line += '\n'  # as in EVALB: a label at the end of the line has a blank after it
    words, brackets, quotes, errors, stack = [], [], [], [], []
    length = place = depth = 0
    while (place := _SPACE.match(line, place).end()) < len(line):
        if line[place] == ')':
            place += 1
            if stack:
                brackets[stack.pop()][2] = len(words)
            if depth < 0:
                errors.append('Bracketing unbalance (too many close bracket)')
            depth -= 1
            continue
        if line[place] != '(':
            errors.append(OUTSIDE)
            place = _ATOM.match(line, place).end()
            continue
        label = _ATOM.match(line, place + 1)
        place, blank = label.end(), _SPACE.match(line, label.end())
        if blank.group():
            word = _ATOM.match(line, blank.end())
            after = line[word.end() : word.end() + 1]
            if after == ')':
                place, tag = word.end() + 1, label.group()
                length += tag not in rules.delete_for_length
                if tag in rules.quotes and word.group() in _QUOTES and len(quotes) < _MOST_QUOTES:
                    quotes.append(Quote(tag, word.group(), len(words), len(brackets), tuple(stack)))
                if tag not in rules.delete:
                    words.append((tag, word.group()))
                continue
            if after != '(':
                errors.append('More than two elements in a bracket')
        stack.append(len(brackets))
        depth += 1
        brackets.append([label.group(), len(words), -1])
    if depth:
        errors.append('Bracketing is unbalanced (too many open bracket)')
    return Bracketing(words, brackets, quotes, length, errors)


def _return_quotes(gold: Bracketing, test: Bracketing, rules: Rules) -> None:
    """Puts back the words that one side alone deleted as quotes."""
    golds, tests = list(gold.quotes), list(test.quotes)

    def put_back(side: Bracketing, quotes: list[Quote], place: int) -> None:
        quote = quotes[place]
        side.words.insert(quote.index, (quote.tag, quote.word))
        for number, bracket in enumerate(side.brackets):
            moves = number >= quote.bracket
            bracket[1] += moves
            bracket[2] += moves + quote.opened.count(number)
        quotes[place:] = [later._replace(index=later.index + 1) for later in quotes[place:]]

    for i in range(len(tests)):
        index = tests[i].index
        for j in range(len(golds)):
            if golds[j].index != index or golds[j].tag == tests[i].tag:
                continue
            deleted = golds[j].tag in rules.delete, tests[i].tag in rules.delete
            if deleted == (True, False):
                put_back(gold, golds, j)
            elif deleted == (False, True):
                put_back(test, tests, i)


class SentenceResult(NamedTuple):
    """The result of a sentence: length, status, and counts of brackets and words.

    A sentence with an error can have counts, but no summary adds them.
    """

    length: int
    status: int
    matched: int = 0
    gold: int = 0
    test: int = 0
    crossing: int = 0
    words: int = 0
    tags: int = 0
    errors: tuple[str, ...] = ()

    def line(self, number: int) -> str:
        """Returns the line that EVALB prints for the sentence."""
        recall, precision = _percent(self.matched, self.gold), _percent(self.matched, self.test)
        return (
            f'{number:4d}  {self.length:3d}    {self.status:d}  {recall:6.2f} {precision:6.2f}   '
            f'{self.matched:3d}    {self.gold:3d}  {self.test:3d}    {self.crossing:3d}'
            f'   {self.words:4d}  {self.tags:4d}   {_percent(self.tags, self.words):6.2f}'
        )


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0


def compare(gold: str, test: str, rules: Rules = COLLINS) -> SentenceResult:
    """Scores a line with a tree against the line with the right tree."""
    first, second = read(gold, rules), read(test, rules)
    errors = [*first.errors, *second.errors]
    if not second.words:
        return SentenceResult(first.length, SKIPPED, errors=tuple(errors))
    if len(first.words) != len(second.words):
        _return_quotes(first, second, rules)
    if len(first.words) != len(second.words):
        errors.append(f'Length unmatch ({len(first.words)}|{len(second.words)})')
        return SentenceResult(first.length, ERROR, errors=tuple(errors))
    words = [(a, b) for (_, a), (_, b) in zip(first.words, second.words, strict=True)]
    if other := [pair for pair in words if not _equal(*pair, rules.equal_words)]:
        errors.append(f'Words unmatch ({other[0][0]}|{other[0][1]})')
        return SentenceResult(first.length, ERROR, errors=tuple(errors))
    golds, tests = _counted(first, rules), _counted(second, rules)
    tags = [(a, b) for (a, _), (b, _) in zip(first.words, second.words, strict=True)]
    return SentenceResult(
        first.length,
        ERROR if errors else SCORED,
        _matched(golds, tests, rules),
        len(golds),
        len(tests),
        crossing_brackets(golds, tests),
        len(words),
        sum(_equal(*pair, rules.equal_labels) for pair in tags),
        tuple(errors),
    )


def _equal(first: str, second: str, equal: Sequence[tuple[str, str]]) -> bool:
    return first == second or (first, second) in equal or (second, first) in equal


def _counted(side: Bracketing, rules: Rules) -> list[tuple[str, int, int]]:
    """Returns the brackets that count, without function tags."""
    spans = [(re.split('[-=]', label)[0], start, end) for label, start, end in side.brackets if start != end]
    deleted = lambda label: any(_equal(label, other, rules.equal_labels) for other in rules.delete)
    return [span for span in spans if not deleted(span[0])]


def _matched(golds: list[tuple], tests: list[tuple], rules: Rules) -> int:
    """Counts the brackets that find an equal one that is still free, in order."""
    free, matched = collections.defaultdict(list), 0  # the labels at each place
    for label, *place in tests:
        free[tuple(place)].append(label)
    for label, *place in golds:
        labels = free[tuple(place)]
        for number, other in enumerate(labels):
            if not rules.labeled or _equal(label, other, rules.equal_labels):
                del labels[number]
                matched += 1
                break
    return matched


def crossing_brackets(golds: list[tuple], tests: list[tuple]) -> int:
    """Counts the test's brackets that begin inside a right bracket and end outside, or the reverse."""
    length = max((end for _, _, end in golds), default=0)
    ends, starts = [0] * (length + 1), [length] * (length + 1)
    for _, start, end in golds:
        if end > start:  # one that is never closed ends at -1
            ends[start] = max(ends[start], end)
            starts[end] = min(starts[end], start)
    return sum(
        max(ends[start + 1 : end], default=end) > end or min(starts[start + 1 : end], default=start) < start
        for _, start, end in tests
        if end > start
    )


class Summary(NamedTuple):
    """The numbers of sentences: all, with errors, and skipped; then sums over the scored sentences."""

    sentences: int
    errors: int
    skipped: int
    matched: int
    gold: int
    test: int
    complete: int
    crossing: int
    not_crossing: int
    at_most_two: int
    words: int
    tags: int

    @property
    def valid(self) -> int:
        """Returns the number of scored sentences."""
        return self.sentences - self.errors - self.skipped

    def f1(self) -> float:
        """Computes 2PR / (P + R) in percent, or NaN if no bracket matches, as in EVALB."""
        recall, precision = _percent(self.matched, self.gold), _percent(self.matched, self.test)
        return 2 * precision * recall / (precision + recall) if precision + recall else float('nan')

    def scores(self) -> dict[str, float]:
        """Returns the scores under EVALB's names."""
        return {
            'Bracketing Recall': _percent(self.matched, self.gold),
            'Bracketing Precision': _percent(self.matched, self.test),
            'Bracketing FMeasure': self.f1(),
            'Complete match': _percent(self.complete, self.valid),
            'Average crossing': self.crossing / self.valid if self.valid else 0.0,
            'No crossing': _percent(self.not_crossing, self.valid),
            '2 or less crossing': _percent(self.at_most_two, self.valid),
            'Tagging accuracy': _percent(self.tags, self.words),
        }


def summary(results: Iterable[SentenceResult]) -> Summary:
    """Adds up the results of sentences."""
    results = list(results)
    scored = [result for result in results if result.status == SCORED]
    total = lambda name: sum(getattr(result, name) for result in scored)
    return Summary(
        len(results),
        sum(result.status == ERROR for result in results),
        sum(result.status == SKIPPED for result in results),
        *map(total, ('matched', 'gold', 'test')),
        sum(result.matched == result.gold == result.test for result in scored),
        total('crossing'),
        sum(result.crossing == 0 for result in scored),
        sum(result.crossing <= 2 for result in scored),
        *map(total, ('words', 'tags')),
    )


HEADER = (
    '  Sent.                        Matched  Bracket   Cross        Correct Tag\n'
    ' ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy\n' + '=' * 76
)


def summary_lines(results: Sequence[SentenceResult], rules: Rules) -> Iterator[str]:
    """Yields the lines that EVALB prints after the sentences."""
    total = summary(results)
    yield '=' * 76
    sums = ''
    if total.gold and total.test:
        scores = total.scores()
        sums = (
            f'                {scores["Bracketing Recall"]:6.2f} {scores["Bracketing Precision"]:6.2f} '
            f'{total.matched:6d} {total.gold:5d} {total.test:5d}  {total.crossing:5d}'
        )
    yield f'{sums}  {total.words:5d} {total.tags:5d}   {_percent(total.tags, total.words):6.2f}'
    yield '=== Summary ==='
    short = [result for result in results if result.length <= rules.cutoff]
    for name, part in (('All', total), (f'len<={rules.cutoff}', summary(short))):
        yield f'\n-- {name} --'
        yield f'Number of sentence        = {part.sentences:6d}'
        yield f'Number of Error sentence  = {part.errors:6d}'
        yield f'Number of Skip  sentence  = {part.skipped:6d}'
        yield f'Number of Valid sentence  = {part.valid:6d}'
        for title, value in part.scores().items():
            # EVALB prints 0/0 as -nan on x86 processors.
            yield f'{title:<26}= {value:6.2f}'.replace(' nan', '-nan')
