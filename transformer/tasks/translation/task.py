"""Translation, the paper's task: data, loss and scores."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from absl import logging
from etils import epy

from transformer.config import Config
from transformer.data import text_input
from transformer.data.batches import Batches
from transformer.data.dataset import Dataset
from transformer.data.fields import Reading, Text
from transformer.data.generated.grammar import sentences as grammar
from transformer.inference import generate, likelihood
from transformer.progress import Progress, counting, no_progress
from transformer.runs.restore import Trained
from transformer.tasks.contract import CUT, Likelihood, Measure, Scored, Shown, Task, means_of
from transformer.tasks.translation import bleu
from transformer.tasks.translation.attention import ANIMAL, attention
from transformer.tasks.translation.diagnose import diagnose
from transformer.tasks.translation.translator import cut, hypotheses, translate, warn_of_cut
from transformer.training import losses

with epy.lazy_imports():
    from transformer.inference import attention_figures

sums = losses.written_sums


def reading(config: Config) -> Reading:
    """Returns the fields: two texts, each in its language."""
    data = config.data
    options = ('source', 'source_language', 'target_language', 'pieces', 'max_len', 'train_examples')
    # Only if set, so that caches keep the names that they had before these options.
    if data.tokenizer != 'bpe':
        options += ('tokenizer',)
    if data.vocabulary != 'joint':
        options += ('vocabulary',)
    fields = {
        'source': Text(data.source_language, 'data.source_language'),
        'target': Text(data.target_language, 'data.target_language'),
    }
    return Reading(fields, options)


def batches(config: Config, dataset: Dataset, split: str) -> Batches:
    """Lays out pairs, bucketed by length or packed into rows. Outside training, very long ones are cut."""
    return text_input.row_batches(config, dataset, split, _longest_output(config))


def evaluate(trained: Trained, dataset: Dataset, split: str, progress: Progress = no_progress) -> Scored:
    """Computes loss, perplexity, every kind of BLEU, and sacreBLEU by source length, of translations."""
    config, texts = trained.config, dataset.texts(split)
    # The grammar's pronoun set is translated greedily, regardless of `decode.method`.
    decode = dataclasses.asdict(config.decode) | ({'method': 'greedy'} if split == 'pronoun' else {})
    on_done = counting(progress, 'translations', len(texts['source']))
    translations = translate(trained, texts['source'], split=split, on_done=on_done, **decode)
    means = means_of(TASK, trained, dataset, split, progress)
    source_language, target_language = config.data.source_language, config.data.target_language
    progress('BLEU', 0, 0)
    scores = {
        **means,
        **text_input.cut_entry(config, dataset, split, _longest_output(config)),
        'bleu': bleu.score_all(translations, texts['target'], (source_language, target_language)),
    }
    if bleu.has_words(source_language):
        scores['bleu_by_length'] = bleu.by_length(
            texts['source'], translations, texts['target'], target_language
        )
    progress('BLEU', 1, 1)
    if split == 'pronoun':
        scores['pronoun_accuracy'] = pronoun_accuracy(translations)
    return Scored(scores, {'decode': decode}, translations)


def _longest_output(config: Config) -> int:
    return config.decode.max_source_len + config.decode.extra_len


def pronoun_accuracy(translations: Sequence[str]) -> float:
    """Computes the share of the grammar's pronoun set whose translation has the right pronoun."""
    items = grammar.pronoun_items()
    right = [grammar.has_pronoun(t, i.pronoun) for t, i in zip(translations, items, strict=True)]
    return sum(right) / len(right)


def watch(trained: Trained, dataset: Dataset, progress: Progress = no_progress) -> dict[str, float]:
    """Computes sacreBLEU on dev, of greedy search if the config's search draws at random."""
    texts, language = dataset.texts('dev'), trained.config.data.target_language
    on_done, method = counting(progress, 'translations', len(texts['source'])), trained.config.decode.method
    method = 'greedy' if method == 'sample' else method
    translations = translate(trained, texts['source'], method=method, split=None, on_done=on_done)
    return {'bleu': bleu.sacre_bleu(translations, texts['target'], language)}


def show(trained: Trained, dataset: Dataset) -> Shown:
    """Translates the first test sentences and, with a model of the grammar, the blog post's example."""
    examples = [ANIMAL.format('tired'), ANIMAL.format('wide')] if 'pronoun' in dataset.splits else []
    sentences = [*examples, *dataset.texts('test')['source'][:4]]
    pairs = zip(sentences, translate(trained, sentences), strict=True)
    lines = [line for source, translation in pairs for line in (f'  {source}', f'    {translation}')]
    if not examples:
        return Shown(lines)
    draw = lambda: attention_figures.draw_focus([attention(trained, example) for example in examples])
    return Shown(lines, {'attention': draw})


def likelihoods(
    trained: Trained,
    pairs: Iterable[tuple[str, str]],
    numbers: Sequence[int] | None = None,
    on_done: generate.OnDone = lambda pairs: None,
) -> list[Likelihood]:
    """Computes log p of each pair's target given its source. An empty text has only its end piece.

    A source is cut as for translation. A target longer than any translation that a search would write is
    not scored: each log p is NaN, and a warning names the line.
    """
    decode, codecs, pairs = trained.config.decode, trained.codecs, generate.as_pairs(pairs, 'pairs')
    numbers = range(len(pairs)) if numbers is None else numbers
    sources = codecs['source'].encode_batch([source for source, _ in pairs])
    targets = codecs['target'].encode_batch([target for _, target in pairs])
    longest = _longest_output(trained.config)
    for number, source in dict(zip(numbers, sources, strict=True)).items():  # once per line
        if len(source) > decode.max_source_len:
            warn_of_cut(number, len(source), decode.max_source_len)
    for number, target in zip(numbers, targets, strict=True):
        if len(target) > longest:
            logging.warning(
                'line %d: not scored: the %d pieces of a target exceed decode.max_source_len + '
                'decode.extra_len = %d', number + 1, len(target), longest,
            )  # fmt: skip
    scored = [i for i, target in enumerate(targets) if len(target) <= longest]
    rows = [{'source': cut(sources[i], decode.max_source_len), 'target': targets[i]} for i in scored]
    on_done(len(pairs) - len(scored))
    logp = [np.full(len(target), np.nan, np.float32) for target in targets]
    for i, row in zip(scored, likelihood.log_likelihoods(trained, rows, on_done), strict=True):
        logp[i] = row
    pieces = map(codecs['target'].pieces, targets)
    return [Likelihood(*pair) for pair in zip(pieces, logp, strict=True)]


def _bleu(score: str, name: str | None = None, **options) -> Measure:
    """Makes the measure of a score in `bleu.NAMES`, with its paired bootstrap resampling."""

    def significance(config: Config, texts: Mapping[str, Sequence[str]], lines, others):
        return bleu.significance(lines, others, texts['target'], config.data.target_language, score)

    meaning, path = bleu.NAMES[score], ('bleu', score, 'score')
    return Measure(name or score, meaning, path, 2, 'higher', significance=significance, **options)


TASK = Task(
    reading=reading,
    batches=batches,
    sums=sums,
    evaluate=evaluate,
    measures=(
        Measure('loss', 'loss', ('loss',), heading=None),
        Measure('perplexity', 'perplexity', ('perplexity',), 3, heading='PPL'),
        _bleu('sacrebleu', 'bleu', watched=True, heading='BLEU'),
        _bleu('chrf', of_lines=lambda texts, lines: bleu.chrf_of_lines(lines, texts['target']), heading=None),
        _bleu('moses', heading=None),
        _bleu('paper', heading=None),
        Measure(
            'pronoun_accuracy', 'pronoun accuracy', ('pronoun_accuracy',), 1, 'higher', True, heading=None
        ),
        CUT,
    ),
    watch=watch,
    show=show,
    findings=diagnose,
    verbs={
        'translate': translate,
        'hypotheses': hypotheses,
        'likelihoods': likelihoods,
        'attention': attention,
    },
)
