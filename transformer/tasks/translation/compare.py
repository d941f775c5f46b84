"""Two models on the same sentences: scores, paired bootstrap, and the sentences that differ most."""

from collections.abc import Mapping, Sequence

from etils import epy

from transformer.config import Config
from transformer.tasks import comparison
from transformer.tasks.comparison import Measure
from transformer.tasks.contract import Evaluation
from transformer.tasks.translation import bleu

with epy.lazy_imports():
    import sacrebleu

MEASURES = {
    'loss': Measure(('loss',)),
    'perplexity': Measure(('perplexity',), 3),
    **{shown: Measure(('bleu', name, 'score'), 2) for name, shown in bleu.NAMES.items()},
    'pronoun accuracy': Measure(('pronoun_accuracy',)),
}


def compare(
    config: Config, first: Evaluation, second: Evaluation, texts: Mapping[str, Sequence[str]], show: int
) -> tuple[dict[str, object], list[str]]:
    """The scores of two evaluations of the same texts, their differences, and what differs.

    Sentences are compared by chrF, which, unlike BLEU, means something for one sentence.

    Args:
      show: how many sentences.

    Returns:
      A report, which is JSON, and the same as lines for people.
    """
    scores = comparison.differences(first, second, MEASURES)
    ((difference, p),) = bleu.significance(
        first.lines, [second.lines], texts['target'], config.data.target_language
    )
    report = {
        'scores': scores,
        'bootstrap': {'measure': 'sacreBLEU', 'difference': difference, 'p': p, 'resamples': bleu.RESAMPLES},
        'sentences': _sentences(first.lines, second.lines, texts, show),
    }
    return report, _lines(report)


def _sentences(
    first: Sequence[str], second: Sequence[str], texts: Mapping[str, Sequence[str]], show: int
) -> list[dict[str, object]]:
    """The sentences whose scores differ most, in the order of their difference; lines count from 0."""
    metric = sacrebleu.CHRF()
    rows = []
    for line, (source, reference, a, b) in enumerate(
        zip(texts['source'], texts['target'], first, second, strict=True)
    ):
        if a != b:
            scores = [metric.sentence_score(text, [reference]).score for text in (a, b)]
            rows.append(
                {
                    'line': line,
                    'source': source,
                    'reference': reference,
                    'a': a,
                    'b': b,
                    'chrf': scores,
                    'difference': scores[1] - scores[0],
                }
            )
    return sorted(rows, key=lambda row: (-abs(row['difference']), row['line']))[:show]


def _lines(report: Mapping) -> list[str]:
    found, sentences = report['bootstrap'], report['sentences']
    lines = [
        *comparison.table(report['scores'], MEASURES),
        f'paired bootstrap of {found["measure"]} over the sentences ({found["resamples"]:,} resamples, '
        f'without differences between seeds): B minus A {found["difference"]:+.2f}, p = {found["p"]:.3f}',
    ]
    if sentences:
        lines.append('sentences that differ most, by the chrF of A and B:')
    for row in sentences:
        a, b = row['chrf']
        lines += [
            f'line {row["line"] + 1}: {a:.1f} and {b:.1f} ({row["difference"]:+.1f})',
            *(f'  {name:<10} {row[name]}' for name in ('source', 'reference')),
            *(f'  {name:<10} {row[key]}' for name, key in zip(comparison.NAMES, 'ab', strict=True)),
        ]
    return lines
