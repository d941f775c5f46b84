"""Constituency parsing, the paper's second task: sentences into the brackets of their trees (§6.3)."""

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from transformer.config import Config, ConfigError
from transformer.data import trees
from transformer.data.dataset import Dataset
from transformer.data.fields import Reading, Text, Tree
from transformer.progress import Progress, counting, no_progress
from transformer.runs.restore import Trained
from transformer.tasks import findings as shared
from transformer.tasks.contract import Measure, Scored, Shown, means_of
from transformer.tasks.parsing import evalb, resampling
from transformer.tasks.parsing.parser import escaped_words, parse, parses
from transformer.tasks.translation import task as translation

MANY_REPAIRED = 0.05  # the share of outputs


def reading(config: Config) -> Reading:
    """Returns the fields: a sentence's words, and its tree."""
    options = ('source', 'tokenizer', 'tags', 'pieces', 'max_len', 'train_examples')
    return Reading({'source': Text(None, ''), 'target': Tree(tags=config.data.tags)}, options)


def evaluate(trained: Trained, dataset: Dataset, split: str, progress: Progress = no_progress) -> Scored:
    """Computes the loss, EVALB's scores, and the share of outputs that needed repair.

    The trees have the right tags, because EVALB leaves out punctuation by them; the tags of a model that
    writes some have a score of their own.
    """
    config, golds = trained.config, _golds(dataset, split)
    on_done = counting(progress, 'trees', len(golds.lines))
    hypotheses = parses(trained, golds.words, golds.tags, split=split, on_done=on_done)
    found = [best[0] for best in hypotheses]
    means = means_of(TASK, trained, dataset, split, progress)
    lines = [trees.bracketed(parsed.tree) for parsed in found]
    repairs = collections.Counter()
    for parsed in found:
        repairs.update(name for name, count in parsed.repairs._asdict().items() if count)
    scores = {
        **means,
        'evalb': scores_of(golds.lines, lines),
        'exact': sum(map(str.__eq__, lines, golds.lines)) / len(lines),
        'repaired': {
            'share': sum(any(parsed.repairs) for parsed in found) / len(found),
            **dict(sorted(repairs.items())),
        },
    }
    if config.data.tags:
        written = [tag for parsed in found for tag in parsed.tags]
        right = [tag for tags in golds.tags for tag in tags]
        scores['tags'] = sum(map(str.__eq__, written, right)) / max(len(right), 1)
    return Scored(scores, {'decode': dataclasses.asdict(config.decode)}, lines)


def scores_of(golds: Sequence[str], lines: Sequence[str]) -> dict[str, object]:
    """Computes EVALB's scores by the rules of COLLINS.prm, of all sentences and up to 40 words."""
    results = list(map(evalb.compare, golds, lines))
    total = evalb.summary(results)
    short = evalb.summary(r for r in results if r.length <= evalb.COLLINS.cutoff)
    low, high = resampling.resampled_f1(resampling.counts(results))
    scores = {
        # Without a matching bracket EVALB has NaN.
        'f1': {'score': float(np.nan_to_num(total.f1())), 'interval': [round(low, 4), round(high, 4)]},
        'f1_short': {'score': float(np.nan_to_num(short.f1()))},
    }
    names = {
        'recall': 'Bracketing Recall',
        'precision': 'Bracketing Precision',
        'complete': 'Complete match',
        'crossing': 'Average crossing',
    }
    scores |= {name: {'score': total.scores()[title]} for name, title in names.items()}
    return scores | {'sentences': len(results), 'errors': total.errors, 'skipped': total.skipped}


def watch(trained: Trained, dataset: Dataset, progress: Progress = no_progress) -> dict[str, float]:
    """Computes F1 on dev, of greedy search."""
    golds = _golds(dataset, 'dev')
    on_done = counting(progress, 'trees', len(golds.lines))
    found = parses(trained, golds.words, golds.tags, method='greedy', split=None, on_done=on_done)
    lines = [trees.bracketed(best[0].tree) for best in found]
    return {'f1': float(np.nan_to_num(evalb.summary(map(evalb.compare, golds.lines, lines)).f1()))}


class _Golds(NamedTuple):
    """The right trees of a split, as lines after `trees.clean`, with their words and tags."""

    lines: list[str]
    words: list[list[str]]
    tags: list[list[str]]


def _golds(dataset: Dataset, split: str) -> _Golds:
    found = [
        trees.one(line, f'{split}: line {n}') for n, line in enumerate(dataset.texts(split)['target'], 1)
    ]
    leaves = list(map(trees.leaves, found))
    words = [[leaf.parts for leaf in tree] for tree in leaves]
    for n, (sentence, own) in enumerate(zip(dataset.texts(split)['source'], words, strict=True), 1):
        if escaped_words(sentence) != own:
            raise ConfigError(f'{split}: line {n}: the sentence has other words than its tree')
    return _Golds(
        list(map(trees.bracketed, found)), words, [[leaf.label for leaf in tree] for tree in leaves]
    )


def show(trained: Trained, dataset: Dataset) -> Shown:
    """Parses the first test sentences."""
    sentences = dataset.texts('test')['source'][:3]
    return Shown([f'  {best[0].text}' for best in parse(trained, sentences)])


def findings(trained: Trained, dataset: Dataset, outcome: shared.Outcome) -> Iterator[shared.Finding]:
    """Yields a finding if the model predicts hardly more than frequencies, or writes no trees."""
    del trained
    yield from shared.unlearned_pieces(outcome, dataset.splits[outcome.split].fields['target'].tokens)
    share = outcome.score('repaired', 'share') or 0.0
    if share > MANY_REPAIRED:
        yield shared.Finding(
            f'{100 * share:.1f} % of the outputs were repaired',
            'they were no trees, or not of the sentence: the scores are of what the repair made of them',
            'train.steps; decode.well_formed=True, with which no output needs repair',
        )


def _clean(golds: Sequence[str]) -> list[str]:
    return [trees.bracketed(trees.one(line, f'line {n}')) for n, line in enumerate(golds, 1)]


def _of_lines(texts: Mapping[str, Sequence[str]], lines: Sequence[str]) -> list[float]:
    """Computes the F1 of each sentence, 0 where no bracket matches."""
    results = map(evalb.compare, _clean(texts['target']), lines)
    return [float(np.nan_to_num(evalb.summary([result]).f1())) for result in results]


def _significance(config: Config, texts: Mapping[str, Sequence[str]], lines, others):
    del config
    golds = _clean(texts['target'])
    of = lambda lines: resampling.counts(map(evalb.compare, golds, lines))
    return [resampling.paired_test(of(lines), of(other)) for other in others]


def _evalb(name: str, meaning: str, better: str = 'higher', **options) -> Measure:
    return Measure(name, meaning, ('evalb', name, 'score'), 2, better, **options)


TASK = translation.TASK._replace(
    reading=reading,
    evaluate=evaluate,
    measures=(
        Measure('loss', 'loss', ('loss',), heading=None),
        Measure('perplexity', 'perplexity', ('perplexity',), 3, heading=None),
        _evalb(
            'f1', 'labelled F1', watched=True, heading='F1', of_lines=_of_lines, significance=_significance
        ),
        _evalb('f1_short', 'F1, at most 40 words', heading=None),
        _evalb('recall', 'labelled recall', heading=None),
        _evalb('precision', 'labelled precision', heading=None),
        _evalb('complete', 'complete match, %'),
        _evalb('crossing', 'crossing brackets a sentence', 'lower', heading=None),
        Measure('tags', 'tags right', ('tags',), 1, 'higher', True, heading=None),
        Measure('exact', 'trees exactly right', ('exact',), 1, 'higher', True),
        Measure('repaired', 'outputs that needed repair', ('repaired', 'share'), 2, percent=True),
    ),
    watch=watch,
    show=show,
    findings=findings,
    verbs={'parse': parse},
)
