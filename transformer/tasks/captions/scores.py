"""Scores of captions, each against one reference or several: BLEU, chrF and CIDEr-D."""

import collections
import itertools
import math
from collections.abc import Mapping, Sequence

from etils import epy

from transformer.tasks import bootstrap
from transformer.tasks.translation import bleu

with epy.lazy_imports():
    import sacrebleu
    from nltk.tokenize import treebank

ORDERS = (1, 2, 3, 4)  # lengths of n-grams
SIGMA = 6.0  # of the Gaussian of differences in length
# What the captioning code leaves out of the Penn Treebank's words.
_PUNCTUATION = frozenset(
    ["''", "'", '``', '`', '-LRB-', '-RRB-', '-LCB-', '-RCB-', '.', '?', '!', ',', ':', '-', '--', '...', ';']
)

Counts = Mapping[tuple[str, ...], int]


def score(
    lines: Sequence[str], references: Sequence[Sequence[str]], language: str | None
) -> dict[str, dict[str, object]]:
    """Computes every score, in percent but for CIDEr-D.

    `bleu` is sacreBLEU of the texts as they are; `bleu1` to `bleu4` are BLEU to that order, without
    smoothing, of the words that `words` returns, as papers on captions report them; where no n-gram fits, the
    captioning code has a tiny number in place of 0.
    """
    columns = lambda golds: [list(column) for column in itertools.zip_longest(*golds)]
    percent = lambda metric, *sides: {'score': metric.corpus_score(*sides).score}
    plain = list(lines), columns(references)
    joined = lambda text: ' '.join(words(text))
    cut = [joined(line) for line in lines], columns([[*map(joined, golds)] for golds in references])
    return {
        'cider': bootstrap.mean_entry(cider_of_lines(lines, references)),
        'bleu': percent(bleu.sacre(language or ''), *plain),
        **{f'bleu{order}': percent(bleu.multi(max_ngram_order=order), *cut) for order in ORDERS},
        'chrf': percent(sacrebleu.CHRF(), *plain),
    }


def words(text: str) -> list[str]:
    """Splits a caption into the Penn Treebank's words, in lower case and without punctuation.

    The rules take a text for one sentence, and leave full stops inside it at their words. They are removed
    here, even from abbreviations.
    """
    found = treebank.TreebankWordTokenizer().tokenize(text.lower(), convert_parentheses=True)
    return [word for word in (one.rstrip('.') for one in found) if word and word not in _PUNCTUATION]


def cider_of_lines(lines: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """Computes CIDEr-D of each line, the mean over n-grams of 1 to 4 words and over its references r of

        10 exp(-(b(c) - b(r))²/2σ²) Σ_w min(g_c(w), g_r(w)) g_r(w) / (|g_c| |g_r|)

    where g(w) is how often an n-gram w occurs, times the logarithm of the number of lines by the number of
    lines with w in a reference, and b is a text's number of bigrams. So a single line has 0.

    Source: Vedantam et al. 2015, as in the code for MS COCO's captions (tylin/coco-caption).
    """
    found = [_counts(line) for line in lines]
    golds = [[*map(_counts, of_line)] for of_line in references]
    lines_with = collections.Counter(gram for of_line in golds for gram in set().union(*of_line))
    rarity = lambda gram: math.log(len(golds) / max(1, lines_with[gram]))

    def similarity(line: Counts, gold: Counts) -> float:
        bigrams = [sum(count for gram, count in one.items() if len(gram) == 2) for one in (line, gold)]
        cosines = []
        for order in ORDERS:
            a, b = ({g: n * rarity(g) for g, n in one.items() if len(g) == order} for one in (line, gold))
            product = sum(min(weight, b[gram]) * b[gram] for gram, weight in a.items() if gram in b)
            norm = math.hypot(*a.values()) * math.hypot(*b.values())
            cosines.append(product / norm if norm else 0.0)
        return math.exp(-((bigrams[0] - bigrams[1]) ** 2) / (2 * SIGMA**2)) * sum(cosines) / len(ORDERS)

    return [
        10 * sum(similarity(line, gold) for gold in of_line) / len(of_line)
        for line, of_line in zip(found, golds, strict=True)
    ]


def _counts(text: str) -> Counts:
    """Counts the n-grams of a text."""
    cut = words(text)
    return collections.Counter(
        tuple(cut[i : i + order]) for order in ORDERS for i in range(len(cut) - order + 1)
    )
