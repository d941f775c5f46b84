"""The command evalb: prints EVALB's tables, and on request an interval of F1 and a paired test."""

import itertools
import sys
from collections.abc import Iterator, Sequence

from transformer.config import ConfigError
from transformer.tasks import bootstrap
from transformer.tasks.parsing import evalb, resampling


def main(
    words: Sequence[str],
    *,
    params: str | None,
    cutoff: int | None,
    max_errors: int | None,
    interval: bool,
    other: str | None,
) -> int:
    """Prints the scores of TEST against GOLD, and the errors that EVALB reports to standard error.

    Returns:
      The exit status: 2 if the files have different numbers of lines.

    Raises:
      ConfigError: EVALB stops at a line, a tree has several lines, or `other` has another number of trees.
    """
    rules = evalb.COLLINS if params is None else evalb.read_rules(_lines(params), params)
    given = {'cutoff': cutoff, 'max_errors': max_errors}
    rules = rules._replace(**{name: value for name, value in given.items() if value is not None})
    gold, test = map(_trees, words)
    results = []
    print(evalb.HEADER)
    for result in _score(words, gold, test, rules):
        results.append(result)
        print(result.line(len(results)))
    if len(gold) != len(test):
        longer = 'gold' if len(gold) > len(test) else 'test'
        print(
            f'{len(results) + 1} : Number of lines unmatch (too many lines in {longer} file)', file=sys.stderr
        )
    print(*evalb.summary_lines(results, rules), sep='\n')
    counts = resampling.counts(results)
    if interval:
        low, high = resampling.resampled_f1(counts)
        resamples = f'{bootstrap.RESAMPLES:,} resamples of sentences'
        print(f'\n95 % interval of F1: {low:.2f} to {high:.2f} ({resamples})')
    if other is not None:
        others = [*_score((words[0], other), gold, _trees(other), rules)]
        if len(others) != len(results):
            raise ConfigError(
                f'{other} has {len(others)} lines that have a right tree, {words[1]} has {len(results)}'
            )
        difference, p = resampling.paired_test(counts, resampling.counts(others))
        print(f'\n{other} minus {words[1]}: F1 {difference:+.2f}, p = {p:.3f} (paired bootstrap)')
    return 0 if len(gold) == len(test) else 2


def _score(
    paths: Sequence[str], gold: Sequence[str], test: Sequence[str], rules: evalb.Rules
) -> Iterator[evalb.SentenceResult]:
    """Yields the result of each line, and prints errors and stops as EVALB does."""
    errors = 0
    for number, (right, line) in enumerate(zip(gold, test, strict=False), 1):
        result = evalb.compare(right, line, rules)
        for error in result.errors:
            print(f'{number} : {error}', file=sys.stderr)
            errors += 1
            if error == evalb.OUTSIDE:
                path = paths[evalb.OUTSIDE not in evalb.read(right).errors]
                raise ConfigError(f'{path}: line {number}: text outside brackets; EVALB stops here')
            if errors > rules.max_errors + 1:
                raise ConfigError(
                    f'{paths[1]}: line {number}: more than {rules.max_errors + 1} errors; EVALB stops here. '
                    'More are allowed by --max_errors, or MAX_ERROR in --params'
                )
        yield result


def _trees(path: str) -> list[str]:
    """Reads the lines of a file of trees. Raises ConfigError if one continues the tree of the line before."""
    lines = _lines(path)
    for number, (line, after) in enumerate(itertools.pairwise(lines), 2):
        if line.count('(') > line.count(')') and after.startswith((' ', '\t')):
            raise ConfigError(f'{path}: line {number} continues a tree; evalb needs one tree a line')
    return lines


def _lines(path: str) -> list[str]:
    """Reads the lines of a file in any encoding."""
    with open(path, encoding='utf-8', errors='surrogateescape', newline='\n') as file:
        return [line.rstrip('\n') for line in file]
