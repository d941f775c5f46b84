"""Transliteration: translation of characters, scored against every right spelling."""

import dataclasses
from collections.abc import Mapping, Sequence

from etils import epy

from transformer.config import Config
from transformer.data.dataset import Dataset
from transformer.data.fields import Reading
from transformer.data.spellings import Spellings, comparable, spellings
from transformer.progress import Progress, counting, no_progress
from transformer.runs.restore import Trained
from transformer.tasks import findings
from transformer.tasks.contract import Measure, Scored, means_of
from transformer.tasks.translation import task as translation
from transformer.tasks.translation.translator import hypotheses, translate

with epy.lazy_imports():
    from nltk.metrics import distance

BEST = 3  # hypotheses of which one must be right


def reading(config: Config) -> Reading:
    """Returns the fields: a text in one script, and its spellings in another."""
    pair = translation.reading(config)
    return pair._replace(
        fields=pair.fields | {'target': Spellings(config.data.target_language, 'data.target_language')}
    )


def evaluate(trained: Trained, dataset: Dataset, split: str, progress: Progress = no_progress) -> Scored:
    """Computes the loss, how often the first or one of three hypotheses is right, and character errors."""
    config, texts = trained.config, dataset.texts(split)
    decode = dataclasses.asdict(config.decode)
    best = min(BEST, config.decode.beam) if config.decode.method == 'beam' else 1
    on_done = counting(progress, 'translations', len(texts['source']))
    translations = hypotheses(trained, texts['source'], best=best, split=split, on_done=on_done, **decode)
    means = means_of(TASK, trained, dataset, split, progress)
    right = list(map(_right, texts['target']))
    written = [[comparable(hypothesis.text) for hypothesis in of_text] for of_text in translations]
    first = [of_text[0] for of_text in written]
    any_right = [
        not set(of_text).isdisjoint(spelled) for of_text, spelled in zip(written, right, strict=True)
    ]
    scores = {
        **means,
        'exact': _exact(first, right),
        **({'exact_of_three': sum(any_right) / len(first)} if best == BEST else {}),
        'character_errors': character_error_rate(first, right),
    }
    return Scored(scores, {'decode': decode}, [of_text[0].text for of_text in translations])


def _right(line: str) -> list[str]:
    """Lists the right spellings in a line of references, as they are compared."""
    return list(map(comparable, spellings(line)))


def _exact(lines: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Computes the share of lines that are one of their references."""
    return sum(line in right for line, right in zip(lines, references, strict=True)) / len(lines)


def character_error_rate(lines: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Computes each line's lowest rate of edits per character of a reference, averaged over lines."""
    rates = (
        min(distance.edit_distance(line, one) / max(len(one), 1) for one in right)
        for line, right in zip(lines, references, strict=True)
    )
    return sum(rates) / len(lines)


def watch(trained: Trained, dataset: Dataset, progress: Progress = no_progress) -> dict[str, float]:
    """Computes the share of greedy outputs on dev that are right."""
    texts = dataset.texts('dev')
    on_done = counting(progress, 'translations', len(texts['source']))
    lines = translate(trained, texts['source'], method='greedy', split=None, on_done=on_done)
    return {'exact': _exact(list(map(comparable, lines)), list(map(_right, texts['target'])))}


def _errors_of_lines(texts: Mapping[str, Sequence[str]], lines: Sequence[str]) -> list[float]:
    """Computes the error rate of each line."""
    pairs = zip(map(comparable, lines), map(_right, texts['target']), strict=True)
    return [character_error_rate([line], [right]) for line, right in pairs]


TASK = translation.TASK._replace(
    reading=reading,
    evaluate=evaluate,
    measures=(
        Measure('loss', 'loss', ('loss',), heading=None),
        Measure('perplexity', 'perplexity', ('perplexity',), 3, heading='PPL'),
        Measure('exact', 'right', ('exact',), 1, 'higher', True, watched=True),
        Measure('exact_of_three', 'one of three right', ('exact_of_three',), 1, 'higher', True),
        Measure(
            'character_errors',
            'character error rate',
            ('character_errors',),
            1,
            percent=True,
            heading='CER',
            of_lines=_errors_of_lines,
        ),
    ),
    watch=watch,
    findings=findings.of_writing,
    verbs={name: translation.TASK.verbs[name] for name in ('translate', 'hypotheses', 'likelihoods')},
)
