"""Language modelling with a decoder: data, loss and scores."""

import dataclasses
import math
from collections.abc import Iterator

import jax.numpy as jnp
from absl import logging
from jaxtyping import Array

from transformer.config import Config, ConfigError
from transformer.data import text_input
from transformer.data.batches import Batches
from transformer.data.dataset import Dataset
from transformer.data.fields import Reading, Text
from transformer.data.generated import sources as generated
from transformer.data.running import Running, Streams, Windows
from transformer.inference.attention import (
    DECODER_SELF_ATTENTION,
    START_MARK,
    Attended,
    Attention,
    attention_weights,
    last_word,
    one_row,
)
from transformer.inference.generate import as_texts
from transformer.nn import ensemble
from transformer.progress import Progress, counting, no_progress
from transformer.runs.restore import Trained
from transformer.tasks import findings as shared
from transformer.tasks.contract import Measure, Scored, Shown, Task, bound_sums
from transformer.tasks.language.generator import generate, hypotheses
from transformer.tasks.language.likelihoods import likelihoods, likelihoods_after
from transformer.tokens import Batch
from transformer.training import losses, split_sums
from transformer.training.step import empty_carried

# The numbers of texts that an evaluation samples if the text's source can judge them, and if it cannot.
JUDGED, SHOWN = 1000, 10
SAMPLING = {'method': 'sample'}  # regardless of `decode.method`


def reading(config: Config) -> Reading:
    """Returns the field: a text, in one language or none."""
    options = (
        'source', 'language', 'documents', 'batching', 'tokenizer', 'pieces', 'max_len', 'train_examples',
    )  # fmt: skip
    text = Text(config.data.language, 'data.language', config.data.documents == 'files')
    # Rows of running text ignore the ends of documents.
    return Reading({'text': text}, options, any_length=config.data.batching == 'running')


def batches(config: Config, dataset: Dataset, split: str) -> Batches:
    """Lays out rows of whole documents or, with `data.batching=running`, of running text.

    Outside training, running text is read in adjacent windows, and very long whole documents are cut, with a
    warning. With `data.carry`, every split is read in streams.
    """
    data, train, training = config.data, config.train, split == 'train'
    documents = dataset.splits[split]
    if data.carry:
        return Streams(documents, data, train.microbatches, train.seed, training)
    if data.batching != 'running':
        return text_input.row_batches(config, dataset, split)
    if training:
        return Running(documents, data, train.microbatches, train.seed, training)
    return Windows(documents, data, train.microbatches, data.row_len)


def sums(config: Config, params: ensemble.Params, batch: Batch, key: Array | None) -> losses.Sums:
    """Computes the cross-entropy of every piece, weighted by the batch's `weight` if it has one.

    If the batch's rows continue the states `carried`, the sums include the states after the rows.
    """
    weights = batch['weight'] if 'weight' in batch else (batch['text'].segments > 0).astype(jnp.float32)
    compute = losses.carried_sums if 'carried' in batch else losses.predicted_sums
    return compute(config, params, batch, key, weights)


def evaluate(trained: Trained, dataset: Dataset, split: str, progress: Progress = no_progress) -> Scored:
    """Computes loss and perplexity in several units, and samples texts.

    Every document is read in windows of `data.row_len` pieces, `data.stride` pieces apart. `context` counts
    the pieces before a scored one. With `data.carry` the split is read as in training, in streams that each
    begin without context. Perplexity per word and bits per byte divide the same loss (ends of
    documents included) by the words or bytes (newlines included) of the raw text, to compare models with
    different vocabularies. If the text's source can judge sentences, `grammatical` is the share of `JUDGED`
    samples that it accepts.
    """
    config, data = trained.config, trained.config.data
    documents, microbatches = dataset.splits[split], config.train.microbatches
    if data.carry:
        rows = Streams(documents, data, microbatches, config.train.seed, train=False)
        read = {'streams': rows.rows(0)}
    else:
        rows = Windows(documents, data, microbatches, data.stride)
        read = {'window': data.row_len, 'stride': data.stride}
    before = empty_carried(config, trained.params)
    total = split_sums.total(bound_sums(sums, config), trained.params, rows, progress, before)
    raw = dataset.raw(split, 'text')
    # Counted per document, so that words on both sides of a boundary stay apart.
    words, size = sum(len(text.split()) for text in dataset.texts(split)['text']), len(raw)
    least, mean = rows.context()
    judge = generated.sentence_judge(data, reading(config))
    samples = _samples(trained, JUDGED if judge else SHOWN, progress)
    scores = {
        **losses.means(total),
        'pieces': int(total['weight']),
        'word': {'perplexity': losses.perplexity(total['nll'] / max(words, 1)), 'count': words},
        'bits_per_byte': total['nll'] / math.log(2) / max(size, 1),
        'bytes': size,
        **({'grammatical': sum(map(judge, samples)) / len(samples)} if judge else {}),
    }
    how = {
        'decode': dataclasses.asdict(config.decode) | SAMPLING,
        'context': {**read, 'least': least, 'mean': round(mean, 2)},
    }
    return Scored(scores, how, [line for sample in samples for line in sample.split('\n')])


def _samples(trained: Trained, count: int, progress: Progress = no_progress) -> list[str]:
    """Samples texts from an empty prompt."""
    add = counting(progress, 'samples', count)
    on_done = lambda prompts: add(count * prompts)
    [samples] = hypotheses(trained, [''], samples=count, on_done=on_done, **SAMPLING)
    return [sample.text for sample in samples]


def show(trained: Trained, dataset: Dataset) -> Shown:
    """Shows three samples."""
    samples = _samples(trained, 3)
    return Shown([f'  {line}' for sample in samples for line in [*sample.split('\n'), '']][:-1])


def findings(trained: Trained, dataset: Dataset, outcome: shared.Outcome) -> Iterator[shared.Finding]:
    """Yields a finding if the model predicts hardly more than frequencies, or its samples are empty."""
    yield from shared.unlearned_pieces(outcome, dataset.splits[outcome.split].fields['text'].tokens)
    # A sample of several lines can have empty ones.
    if trained.config.data.documents == 'lines':
        yield from shared.empty(outcome)


def attention(
    trained: Trained, sentence: object = None, *, word: str | None = None, target_word: str | None = None
) -> Attention:
    """Returns the decoder's attention to a given sentence, which it does not continue.

    A query is the piece that was read last, the start token first. The sentence is a sample if None; `word`,
    whose attention a figure draws, is the last word if None.
    """
    config = trained.config
    if target_word is not None:
        raise ConfigError(f'--target_word={target_word}: a language model has no target')
    [sentence] = _samples(trained, 1) if sentence is None else as_texts([sentence], 'sentence')
    tokens = trained.codecs['text'].encode(sentence)
    if len(tokens) > config.data.row_len:
        logging.warning(
            'only the first %d of %d pieces are drawn (data.row_len)', config.data.row_len, len(tokens)
        )
    tokens = tokens[: config.data.row_len]
    pieces = trained.codecs['text'].marked(tokens)
    [weights] = attention_weights(config, trained.params, {'text': one_row(tokens)}).values()
    # The query at a position has read the piece before that position.
    read = [START_MARK, *pieces[:-1]]
    word = word or last_word(pieces[:-1])
    return Attention(sentence, '', [Attended(DECODER_SELF_ATTENTION, weights, read, read, word)])


TASK = Task(
    reading=reading,
    batches=batches,
    sums=sums,
    evaluate=evaluate,
    measures=(
        Measure('loss', 'loss per piece', ('loss',), heading=None),
        Measure('perplexity', 'perplexity per piece', ('perplexity',), 3, heading='PPL'),
        Measure('word_perplexity', 'perplexity per word', ('word', 'perplexity'), 3, heading='PPL/word'),
        Measure('bits_per_byte', 'bits per byte', ('bits_per_byte',), heading='bits/byte'),
        Measure('grammatical', 'grammatical samples', ('grammatical',), 1, 'higher', percent=True),
    ),
    show=show,
    findings=findings,
    verbs={
        'generate': generate,
        'hypotheses': hypotheses,
        'likelihoods': likelihoods,
        'likelihoods_after': likelihoods_after,
        'attention': attention,
    },
)
