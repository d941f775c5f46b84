"""Diagnoses why a BLEU score is low or not comparable with the paper's: fault, effect and remedy."""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Sequence

from transformer.config import PAPER_TOKENS, Config
from transformer.data import languages
from transformer.data.codec import Codecs
from transformer.data.dataset import Dataset
from transformer.runs.restore import Trained
from transformer.tasks import findings as shared
from transformer.tasks.findings import Finding, Outcome
from transformer.tasks.translation import bleu

# Numbers of lines in the complete test sets of WMT, by the names of their files and splits.
_TEST_SETS = {'newstest2013': 3000, 'newstest2014': 3003}
_FILTERED = 2737  # lines of sacreBLEU's wmt14, newstest2014 without some documents
_LEFTOVERS = re.compile(r'▁|@@( |$)|@-@|##AT##|&(quot|apos|amp|lt|gt|#\d+);')
_UNKNOWN = re.compile('⁇|\ufffd|<unk>')
_PAPER_SPACING = 1500


@dataclasses.dataclass(frozen=True)
class Evidence:
    """An evaluation: the training's config, the entry in result.json, and the lines of the split."""

    config: Config
    split: str
    scores: dict
    sources: Sequence[str]
    references: Sequence[str]
    translations: Sequence[str]
    codecs: Codecs

    def share(self, wrong: Callable[..., object], *sides: Sequence[object]) -> float:
        """Returns the share of lines for which `wrong` is true, given that line of each side."""
        return sum(bool(wrong(*line)) for line in zip(*sides, strict=True)) / len(self.references)


def diagnose(trained: Trained, dataset: Dataset, outcome: Outcome) -> Iterator[Finding]:
    """Yields faults of a split's scores, and reasons why they are not comparable with the paper's."""
    split = outcome.split
    yield from shared.unlearned_pieces(outcome, dataset.splits[split].fields['target'].tokens)
    texts = dataset.texts(split)
    sides = (texts['source'], texts['target'], outcome.lines)
    yield from findings(Evidence(trained.config, split, outcome.entry, *sides, trained.codecs))


def findings(evidence: Evidence) -> list[Finding]:
    """Returns all findings, [] for a run like the paper's."""
    checks = [_test_set, _direction, _references, _lengths, _copies, _truncation]
    if len(evidence.translations) != len(evidence.references):
        checks = checks[:3]  # the others pair each translation with its line
    checks += [_leftovers, _unknown, _batch, _averaging, _search]
    return [finding for check in checks for finding in check(evidence)]


def _test_set(e: Evidence) -> Iterator[Finding]:
    data, lines = e.config.data, len(e.references)
    named = getattr(data, e.split, '')
    if data.source == 'tfds' and (data.name or '').startswith('wmt14_translate'):
        named = {'validation': 'newstest2013', 'test': 'newstest2014'}.get(named, named)
    expected = next((count for name, count in _TEST_SETS.items() if name in named), None)
    if lines == _FILTERED or expected not in (None, lines):
        whole = expected or _TEST_SETS['newstest2014']
        yield Finding(
            f'{e.split} has {lines:,} lines, the whole test set {whole:,}',
            "sacreBLEU's wmt14 is newstest2014 without some documents (2,737 lines); the paper's scores "
            'are over the whole set, wmt14/full',
            f'data.{e.split}',
        )
    if len(e.translations) != lines:
        yield Finding(
            f'{len(e.translations):,} translations for {lines:,} references',
            'the test set has changed since it was translated',
            'run evaluate again',
        )


def _direction(e: Evidence) -> Iterator[Finding]:
    data = e.config.data
    sides = (
        ('sources', e.sources, data.source_language),
        ('references', e.references, data.target_language),
        ('translations', e.translations, data.target_language),
    )
    for name, lines, language in sides:
        # A model that repeats itself writes too few words to recognise its language.
        detected = None if lines is e.translations and shared.repeat(lines) else languages.recognise(lines)
        if language in languages.FUNCTION_WORDS and detected not in (None, language):
            yield Finding(
                f'the {name} read as {detected}, the config says {language}',
                'a model of the other direction was trained or scored; TFDS, for example, lists (de, en)',
                'data.source_language and data.target_language, or the names of the files',
            )
    if (data.source_language, data.target_language) == ('de', 'en'):
        yield Finding(
            'translates German to English',
            "the paper's tables are English to German, whose BLEU is several points lower",
            'data.source_language=en data.target_language=de',
        )


def _references(e: Evidence) -> Iterator[Finding]:
    if bleu.looks_tokenized(e.references):
        yield Finding(
            'most references have a blank before their full stop',
            'sacreBLEU tokenizes raw text itself: on tokenized references its scores are not comparable',
            f'data.{e.split}: raw text',
        )
    # Some scripts have no case.
    has_case = any(line != line.upper() for line in e.references)
    if has_case and all(line == line.lower() for line in e.references):
        yield Finding(
            'no reference has a capital letter',
            "the paper's scores are cased; without case they are a point or more higher",
            f'data.{e.split}: cased text',
        )


def _lengths(e: Evidence) -> Iterator[Finding]:
    ratio, penalty = bleu.lengths(e.translations, e.references, e.config.data.target_language)
    if ratio < 0.95:
        yield Finding(
            f'translations have {ratio:.3f} of the length of their references: brevity penalty {penalty:.3f}',
            f'the penalty alone takes {100 * (1 - penalty):.0f} % of the BLEU',
            'decode.alpha (higher is longer), decode.extra_len, decode.max_source_len; train longer',
        )
    elif ratio > 1.1:
        yield Finding(
            f'translations have {ratio:.3f} of the length of their references',
            'the surplus lowers the precision of every n-gram; often it is repetition',
            'decode.alpha (lower is shorter), decode.extra_len; train longer',
        )


def _leftovers(e: Evidence) -> Iterator[Finding]:
    for name, lines in (('translations', e.translations), ('references', e.references)):
        if marks := [match[0] for line in lines if (match := _LEFTOVERS.search(line))]:
            yield Finding(
                f'{len(marks):,} {name} contain marks of a tokenizer, such as {marks[0].strip()!r}',
                'BLEU counts them as words',
                'train and score on raw text: undo the tokenization of the data',
            )


def _copies(e: Evidence) -> Iterator[Finding]:
    copied = lambda source, reference, translation: source.strip() and translation == source != reference
    share = e.share(copied, e.sources, e.references, e.translations)
    if share > 0.02:
        yield Finding(
            f'{100 * share:.1f} % of the translations are copies of their source',
            'training pairs whose sides are equal, or in the same language, teach the model to copy',
            'data.train: filter such pairs',
        )


def _truncation(e: Evidence) -> Iterator[Finding]:
    extra, longest = (e.scores['decode'][name] for name in ('extra_len', 'max_source_len'))
    sides = (('source', e.sources), ('target', e.translations))
    lengths = [list(map(len, e.codecs[field].encode_batch(texts))) for field, texts in sides]
    # A complete text has an end piece; a hypothesis that was cut has none.
    cut = e.share(lambda s, t: t > min(s, longest) + extra, *lengths)
    if cut > 0.005:
        yield Finding(
            f'{100 * cut:.1f} % of the translations reach the length limit, input + {extra} pieces',
            'their ends are missing, or they repeat themselves until they are cut',
            'decode.extra_len; train longer if they repeat',
        )
    if (long := e.share(lambda s: s > longest, lengths[0])) > 0.005:
        yield Finding(
            f'{100 * long:.1f} % of the sources were cut at {longest} pieces',
            'what was cut off cannot be translated',
            'decode.max_source_len',
        )


def _unknown(e: Evidence) -> Iterator[Finding]:
    unknown = [line for line in e.translations if _UNKNOWN.search(line)]
    if unknown and not any(map(_UNKNOWN.search, e.references)):
        yield Finding(
            f'{len(unknown):,} translations contain unknown pieces or broken characters',
            'the vocabulary does not cover the text, or the model wrote bytes that form no character',
            'data.pieces and data.train; train longer',
        )


def _batch(e: Evidence) -> Iterator[Finding]:
    steps, tokens = max(e.scores['steps']), e.scores['tokens']
    if tokens < 0.8 * PAPER_TOKENS * steps:
        yield Finding(
            f'{tokens / steps:,.0f} target tokens per update; the paper has about {PAPER_TOKENS:,}',
            'the gradient of a small batch is noisy; the schedule was made for large batches',
            'data.batch_tokens (train.accumulate, if memory is short)',
        )


def _averaging(e: Evidence) -> Iterator[Finding]:
    if e.config.train.ema:
        return
    checkpoint, steps = e.scores['checkpoint'], e.scores['steps']
    if checkpoint == 'best' and e.split == 'dev':
        yield Finding(
            'the checkpoint with the best score on dev was evaluated on dev',
            'Table 3 scores the last checkpoint; choosing a checkpoint by dev flatters the scores on dev',
            'train.scored=latest',
        )
    # On dev, Table 3 scores one checkpoint, too.
    elif checkpoint != 'average' and ',' not in checkpoint and e.split != 'dev':
        yield Finding(
            f'one checkpoint ({checkpoint}) was evaluated, not an average',
            'Table 2 scores averages of 5 (base) or 20 (big) checkpoints, Table 3 single checkpoints',
            f'train.average_last=5 train.average_every={e.config.train.checkpoint_every}, or run.py average '
            'and --checkpoint=average',
        )
    if checkpoint != 'average':
        return
    gaps = [after - before for before, after in itertools.pairwise(steps)]
    # The last gap is irregular: it ends with the training.
    spacing = min(gaps[:-1] or gaps, default=0)
    if spacing < _PAPER_SPACING / 3:
        yield Finding(
            f'the average is over {len(steps)} checkpoints {spacing:,} updates apart',
            "checkpoints so close are nearly equal; the paper's are 10 minutes apart: 1,500 (base) or "
            '600 (big) updates',
            'train.average_every',
        )


def _search(e: Evidence) -> Iterator[Finding]:
    used, paper = e.scores['decode'], {'method': 'beam', 'beam': 4, 'alpha': 0.6}
    if differences := {name: used[name] for name, value in paper.items() if used[name] != value}:
        yield Finding(
            f'decoded with {", ".join(f"{name}={value}" for name, value in differences.items())}',
            'the paper has beam 4 and alpha 0.6 in the penalty ((5 + n)/6)^alpha; other programs use '
            'alpha in n^alpha',
            ' '.join(f'decode.{name}={paper[name]}' for name in differences),
        )
