"""Scores what a model wrote as each prefix calls for: ROUGE, exact match and F1, BLEU, or the share right."""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from etils import epy

from transformer.tasks import bootstrap
from transformer.tasks.answers import squad_scores

with epy.lazy_imports():
    import sacrebleu
    from rouge_score import rouge_scorer

ROUGE = ('rouge1', 'rouge2', 'rougeL')
SOLVED = 0.95  # the share right from which a data set counts as solved (Weston et al. 2015)

Scores = dict[str, dict[str, object]]
References = Sequence[Sequence[str]]


class Asked(NamedTuple):
    """An example: what a model is asked, and the right texts.

    Attributes:
      prompt: the source with its prefix.
      prefix: the prefix, whose first word decides which scores the example has.
      references: the right texts.
      data_set: the name of its data set, or '' if all examples are of one.
    """

    prompt: str
    prefix: str
    references: list[str]
    data_set: str


def score(asked: Sequence[Asked], lines: Sequence[str]) -> dict[str, object]:
    """Computes the scores of all examples, each score over those that have it, and of each data set."""
    pairs = list(zip(asked, lines, strict=True))
    names = sorted({one.data_set for one in asked} - {''})
    sets = {name: _score([pair for pair in pairs if pair[0].data_set == name]) for name in names}
    shares = [scores['right']['score'] for scores in sets.values() if 'right' in scores]
    return {
        **_score(pairs),
        **({'sets': sets} if sets else {}),
        **({'solved': sum(share >= SOLVED for share in shares)} if shares else {}),
    }


def _score(pairs: Sequence[tuple[Asked, str]]) -> Scores:
    scores: Scores = {}
    for function in (rouge, right, exact_and_f1, bleu):
        chosen = [(line, one.references) for one, line in pairs if function in _called_for(one.prefix)]
        if chosen:
            scores |= function(*zip(*chosen, strict=True))
    return scores


def _called_for(prefix: str) -> tuple[Callable[..., Scores], ...]:
    """Returns the functions whose scores a prefix calls for."""
    functions = {
        'summarise': (rouge,),
        'summarize': (rouge,),
        'answer': (right, exact_and_f1),
        'translate': (bleu,),
    }
    return functions.get(prefix.partition(' ')[0], (right,))


def rouge_of_lines(lines: Sequence[str], references: References) -> dict[str, list[float]]:
    """Computes ROUGE-1, -2 and -L of each line: F of the stems in percent, of the best reference."""
    scorer = rouge_scorer.RougeScorer(ROUGE, use_stemmer=True)
    best = [scorer.score_multi(golds, line) for line, golds in zip(lines, references, strict=True)]
    return {name: [100.0 * one[name].fmeasure for one in best] for name in ROUGE}


def rouge(lines: Sequence[str], references: References) -> Scores:
    """Computes the means of ROUGE."""
    return {name: bootstrap.mean_entry(values) for name, values in rouge_of_lines(lines, references).items()}


def right(lines: Sequence[str], references: References) -> Scores:
    """Computes the share of lines that are one of their references, apart from blanks around both."""
    pairs = zip(lines, references, strict=True)
    hits = [line.strip() in map(str.strip, golds) for line, golds in pairs]
    return {'right': bootstrap.mean_entry(hits)}


def exact_and_f1(lines: Sequence[str], references: References) -> Scores:
    """Computes exact match and F1 by the rules of SQuAD, in percent."""
    return squad_scores.score(lines, references).means()


def bleu(lines: Sequence[str], references: References) -> Scores:
    """Computes sacreBLEU, with any number of references a line."""
    columns = [list(column) for column in itertools.zip_longest(*references)]
    return {'bleu': {'score': sacrebleu.BLEU(force=True).corpus_score(list(lines), columns).score}}
