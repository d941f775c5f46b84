"""Translation, the task of the paper: an encoder reads the source, a decoder writes the target."""

import dataclasses
import functools
import re
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from absl import logging
from etils import epath
from jaxtyping import Array

from transformer.config import Config, ConfigError, Data
from transformer.data import cache as corpus_cache
from transformer.data import text_input
from transformer.data.batches import Batches
from transformer.data.dataset import Dataset
from transformer.data.sources import reader
from transformer.data.sources.grammar import sentences as grammar
from transformer.inference import generate, likelihood
from transformer.inference.attention import (
    CROSS_ATTENTION,
    DECODER_SELF_ATTENTION,
    ENCODER_SELF_ATTENTION,
    START_MARK,
    Attended,
    View,
    attention,
    has_word,
    one_row,
    places,
    title,
)
from transformer.nn import ensemble
from transformer.runs.restore import Trained
from transformer.tasks.contract import Likelihood, Task, bound
from transformer.tasks.translation import bleu, compare
from transformer.tasks.translation.translate import Translator, cut
from transformer.tokens import Batch
from transformer.training import losses, split_sums

ANIMAL = "The animal didn't cross the street because it was too {}."
LONGEST = 1024
PRONOUNS = ('er', 'sie', 'es', 'he', 'she', 'it')


def reading(data: Data) -> reader.Reading:
    """Two sides, each in its language."""
    options = ('source', 'source_language', 'target_language', 'pieces', 'max_len', 'train_pairs')
    if data.tokenizer != 'bpe':
        options += ('tokenizer',)
    if data.vocabulary != 'joint':
        options += ('vocabulary',)
    return reader.Reading({'source': data.source_language, 'target': data.target_language}, options)


def prepare(config: Config, cache: epath.PathLike, progress: corpus_cache.Progress, **how) -> Dataset:
    """The sentence pairs of every split; `how` are the keywords of `corpus.prepare`."""
    return corpus_cache.prepare(config.data, reading(config.data), cache, progress, **how)


def batches(config: Config, dataset: Dataset, split: str) -> Batches:
    """Pairs of about one length, or several to a row; outside training very long ones are cut, and told."""
    train, pairs = config.train, dataset.splits[split]
    if split != 'train':
        pairs = text_input.cut_and_told(pairs, longest_read(config), split)
    return Batches(pairs, config.data, train.microbatches, train.seed, split == 'train')


def sums(config: Config, params: ensemble.Params, batch: Batch, key: Array | None) -> losses.Sums:
    """Cross-entropy of the target's tokens, the end of each sentence among them."""
    weights = (batch['target'].segments > 0).astype(jnp.float32)
    return likelihood.sums(config, params, batch, key, weights)


def decoding(config: Config, split: str) -> dict[str, object]:
    """Those of the config; the pronoun set is translated greedily."""
    return dataclasses.asdict(config.decode) | ({'method': 'greedy'} if split == 'pronoun' else {})


def evaluate(trained: Trained, dataset: Dataset, split: str) -> tuple[dict[str, object], list[str]]:
    """Loss, perplexity, every BLEU, sacreBLEU by the length of the source, and the translations."""
    config, texts = trained.config, dataset.texts(split)
    decode = decoding(config, split)
    translator = Translator(trained, functools.partial(warn_of_cut, split=split))
    translations = translator.translate(texts['source'], **decode)
    whole = dataset.splits[split]
    read, number_cut = text_input.cut(whole, longest_read(config))
    train = config.train
    rows = Batches(read, config.data, train.microbatches, train.seed, False)
    likelihood = split_sums.means(bound(sums, config), trained.params, rows)
    scores = {
        'decode': decode,
        **likelihood,
        **({'cut': number_cut} if number_cut else {}),
        'bleu': bleu.score_all(translations, texts['target'], _languages(config)),
    }
    source_language, target_language = _languages(config)
    if bleu.has_words(source_language):
        scores['bleu_by_length'] = bleu.by_length(
            texts['source'], translations, texts['target'], target_language
        )
    if split == 'pronoun':
        scores['pronoun_accuracy'] = pronoun_accuracy(translations)
    return scores, translations


def longest_read(config: Config) -> int:
    """The pieces of a side up to which the loss of a long sentence is computed.

    Attention over a longer one might not fit into memory, and learned positions end with their table.
    """
    data, decode = config.data, config.decode
    longest = max(LONGEST, data.max_len, data.row_len, decode.max_source_len + decode.extra_len)
    return min(longest, config.model.max_len) if config.model.positions == 'learned' else longest


def warn_of_cut(number: int, length: int, split: str = '') -> None:
    """Says which line, counted from 0, of a split if it is one's, was too long to translate whole."""
    line = f'{split}: line {number + 1}' if split else f'line {number + 1}'
    logging.warning('%s: cut, its %d pieces exceed decode.max_source_len', line, length)


def likelihoods(
    trained: Trained,
    pairs: Sequence[tuple[str, str]],
    numbers: Sequence[int],
    on_done: generate.OnDone = lambda pairs: None,
) -> list[Likelihood]:
    """log p of each pair's target given its source. An empty text is its end alone.

    A source is cut as it is to be translated. A target longer than any translation that a search would
    write is not scored: its log p are nan, and a warning says so.

    Args:
      numbers: of the pairs' lines, for the warnings.
    """
    decode, tokenizer = trained.config.decode, trained.codec
    sources = tokenizer.of('source').encode_batch([source for source, _ in pairs])
    targets = tokenizer.of('target').encode_batch([target for _, target in pairs])
    longest = decode.max_source_len + decode.extra_len
    for number, length in {n: len(s) for n, s in zip(numbers, sources, strict=True)}.items():
        if length > decode.max_source_len:
            warn_of_cut(number, length)
    for number, target in zip(numbers, targets, strict=True):
        if len(target) > longest:
            logging.warning(
                'line %d: not scored, the %d pieces of a target exceed decode.max_source_len + '
                'decode.extra_len = %d', number + 1, len(target), longest,
            )  # fmt: skip
    scored = [i for i, target in enumerate(targets) if len(target) <= longest]
    rows = [{'source': cut(sources[i], decode.max_source_len), 'target': targets[i]} for i in scored]
    on_done(len(pairs) - len(scored))
    logp = [np.full(len(target), np.nan, np.float32) for target in targets]
    for i, found in zip(scored, likelihood.log_likelihoods(trained, rows, on_done), strict=True):
        logp[i] = found
    pieces = map(tokenizer.of('target').pieces, targets)
    return [Likelihood(*pair) for pair in zip(pieces, logp, strict=True)]


def pronoun_accuracy(translations: Sequence[str]) -> float:
    """The share of the grammar's pronoun set whose translation has the right pronoun."""
    items = grammar.pronoun_items()
    right = [grammar.has_pronoun(t, i.pronoun) for t, i in zip(translations, items, strict=True)]
    return sum(right) / len(right)


def dev_scores(trained: Trained, dataset: Dataset) -> dict[str, float]:
    """sacreBLEU on dev."""
    texts, (_, language) = dataset.texts('dev'), _languages(trained.config)
    translations = Translator(trained).translate(texts['source'])
    return {'dev_bleu': bleu.sacre_bleu(translations, texts['target'], language)}


def describe(scores: dict[str, object]) -> list[str]:
    """A line for the likelihood, and one for each score of the translations."""
    lines = [
        f'loss {scores["loss"]:.4f}  perplexity {scores["perplexity"]:.3f}  '
        f'{scores["decode"]["method"]} search  checkpoint {scores["checkpoint"]}',
        *bleu.describe(scores['bleu']),
    ]
    if 'cut' in scores:
        lines.append(f'the loss is of only a part of {scores["cut"]:,} very long lines')
    if 'pronoun_accuracy' in scores:
        lines.append(f'pronoun accuracy {100 * scores["pronoun_accuracy"]:.1f} %')
    return lines


def examples(trained: Trained, dataset: Dataset) -> list[str]:
    """Translations of the first sentences of the test; of the grammar's model the paper's two as well."""
    sentences = dataset.texts('test')['source'][:4]
    sentences = [*pictured(dataset), *sentences]
    translations = Translator(trained).translate(sentences)
    pairs = zip(sentences, translations, strict=True)
    return [line for source, translation in pairs for line in (f'  {source}', f'    {translation}')]


def pictured(dataset: Dataset) -> list[str]:
    """The paper's own example, for a model of the grammar."""
    return [ANIMAL.format('tired'), ANIMAL.format('wide')] if 'pronoun' in dataset.splits else []


def views(trained: Trained, sentence: str | None, word: str | None, target_word: str | None) -> list[View]:
    """What a word attends to in the encoder, and the decoder where it predicts a word of the translation.

    A recurrent or convolutional encoder does not attend: then it is the target word's alignment, by
    default all words'.

    Args:
      sentence: the paper's own example if None.
      word: if None, "it", or all words if the sentence has no "it".
      target_word: if None, the first pronoun of the translation, else its last word; with all words of
        the sentence, all words.

    Raises:
      ConfigError: the sentence or its translation lacks the word, or the model has no such attention.
    """
    sentence, translation, seen = attended(trained, sentence)
    found = {each.name: each for each in seen}
    written = found[CROSS_ATTENTION]
    target, source = written.queries, written.keys
    if ENCODER_SELF_ATTENTION not in found:
        if word:
            raise ConfigError(f'--word={word}: the encoder of this model has no attention')
        looked_at = places(target, target_word)
        return [View(title('decoder', target_word, translation), written.weights, target, source, looked_at)]
    word = word or ('it' if has_word(source, 'it') else None)
    said = target_word or (_first_pronoun(translation) if word else None)
    read = found[ENCODER_SELF_ATTENTION]
    return [
        View(title('encoder', word, sentence), read.weights, source, source, places(source, word)),
        View(title('decoder', said, translation), written.weights, target, source, places(target, said)),
    ]


def attended(trained: Trained, sentence: str | None) -> tuple[str, str, list[Attended]]:
    """What the encoder attends to in a sentence, and the decoder in its translation by the model.

    A query of the decoder is the piece that it predicts there. In its self-attention the keys are the
    pieces that it has read, the start token first.

    Args:
      sentence: the paper's own example if None.

    Returns:
      The sentence, its translation, and the kinds of attention that the model has.

    Raises:
      ConfigError: the model has no attention.
    """
    sentence = ANIMAL.format('tired') if sentence is None else sentence
    # Cut as for a search, beyond which learned positions have no row.
    translation = Translator(trained, warn_of_cut).translate([sentence])[0]
    sides = trained.codec.of('source'), trained.codec.of('target')
    decode = trained.config.decode
    longest = decode.max_source_len, decode.max_source_len + decode.extra_len
    ids = [
        cut(side.encode(text), most)
        for side, text, most in zip(sides, (sentence, translation), longest, strict=True)
    ]
    source, target = (side.pieces(found) for side, found in zip(sides, ids, strict=True))
    batch = {'source': one_row(ids[0]), 'target': one_row(ids[1])}
    found = attention(trained.config, trained.params, batch)
    kinds = {
        'encoder/self_attention': (ENCODER_SELF_ATTENTION, source, source),
        'decoder/cross_attention': (CROSS_ATTENTION, target, source),
        'decoder/self_attention': (DECODER_SELF_ATTENTION, target, [START_MARK, *target[:-1]]),
    }
    seen = [
        Attended(name, found[kept], queries, keys)
        for kept, (name, queries, keys) in kinds.items()
        if kept in found
    ]
    return sentence, translation, seen


def _first_pronoun(translation: str) -> str:
    words = re.findall(r'\w+', translation)
    return next((w for w in words[1:] if w in PRONOUNS), words[-1] if words else '')


def _languages(config: Config) -> tuple[str, str]:
    return config.data.source_language, config.data.target_language


TASK = Task(
    prepare=prepare,
    batches=batches,
    sums=sums,
    decoding=decoding,
    evaluate=evaluate,
    dev_scores=dev_scores,
    describe=describe,
    compare=compare.compare,
    examples=examples,
    writer=lambda trained: Translator(trained, warn_of_cut),
    likelihoods=likelihoods,
    attended=attended,
    views=views,
    pictured=pictured,
)
