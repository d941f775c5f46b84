"""Masked language modelling with an encoder: data, loss and scores."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from transformer.config import Config, ConfigError
from transformer.data import text_input
from transformer.data.batches import Batches, NoisyBatches, by_bits
from transformer.data.dataset import Dataset
from transformer.data.fields import Gap, Lines, Reading, Text
from transformer.data.generated import sources as generated
from transformer.nn import ensemble, matmul
from transformer.progress import Progress, counting, no_progress
from transformer.runs.restore import Trained
from transformer.tasks import findings as shared
from transformer.tasks import gaps
from transformer.tasks.contract import Measure, Scored, Shown, Task, means_of
from transformer.tasks.masked.masking import MASK, hide
from transformer.tasks.masked.pairs import Chunks
from transformer.tasks.masked.predict import embed, fill, gapped, run
from transformer.tokens import Batch
from transformer.training import losses


def reading(config: Config) -> Reading:
    """Returns the field: a text or, with pairs, the lines of documents, which can be cut.

    Raises:
      ConfigError: the pieces are words. An unknown word in a text is then the same piece as a hidden one.
    """
    if config.data.tokenizer == 'words':
        raise ConfigError('data.tokenizer=words: unknown words would look like hidden ones')
    options = ('source', 'language', 'tokenizer', 'pieces', 'max_len', 'train_examples')
    paired = config.masked.next_sentence > 0
    field = Lines if paired else Text
    return Reading({'text': field(config.data.language, 'data.language')}, options, any_length=paired)


def batches(config: Config, dataset: Dataset, split: str) -> Batches:
    """Lays out texts or pairs with hidden pieces.

    Outside training, very long texts are cut.
    """
    train, codec = config.train, dataset.codecs['text']
    if split == 'train' and MASK in codec.encode('\U0010fffd'):
        raise ConfigError(
            'data.tokenizer: unknown characters would look like hidden pieces; a model of SentencePiece '
            'needs a piece for each byte (byte_fallback)'
        )
    ordinary = codec.ordinary_pieces()
    begins = codec.begins_words() if config.masked.words else None
    noise = by_bits(lambda rows, bits: hide(rows, config.masked, ordinary, bits, begins), 3)
    if config.masked.next_sentence:
        texts = dataset.splits[split]
        chunks = Chunks(texts, config.data, train.microbatches, train.seed, split, codec.encode(''))

        def pairs(batch: Batch, generators: list[np.random.Generator]) -> Batch:
            drawn = chunks.pairs(batch, generators)
            return drawn | noise(drawn, generators)

        return NoisyBatches(chunks, pairs, train.seed, split)
    return NoisyBatches(text_input.row_batches(config, dataset, split), noise, train.seed, split)


def sums(config: Config, params: ensemble.Params, batch: Batch, key: Array | None) -> losses.Sums:
    """Computes the cross-entropy of the hidden pieces, with label smoothing in training.

    With pairs, `next_loss` and `next_accuracy` have the number of pairs as weight. In training, `loss` also
    contains, for each microbatch, `masked.next_sentence` times the mean loss of its pairs, weighted like its
    hidden pieces.
    """
    microbatches, batch = len(batch['weight']), losses.all_rows(batch)
    if not config.masked.next_sentence:
        return losses.model_sums(config, params, batch, key, batch['target'], batch['weight'])
    labels = batch['target'], batch['weight'], losses.smoothing(config, key)
    if isinstance(params, tuple):
        outputs = [ensemble.factors_and_classes(config, one, batch, key) for one in params]
        pieces = ensemble.log_mean([matmul.logits(*factors) for factors, _ in outputs])
        totals = losses.cross_entropy_sums(pieces, *labels)
        classes = ensemble.log_mean([classes for _, classes in outputs])
    else:
        factors, classes = ensemble.factors_and_classes(config, params, batch, key)
        totals = losses.cross_entropy_sums_of_product(*factors, *labels)
    present = (batch['text'].segments[:, 0] > 0).astype(jnp.float32)
    lost = -losses.log_likelihoods(classes, batch['next']) * present
    right = (jnp.argmax(classes, axis=-1) == batch['next']) * present
    if key is not None:
        by_microbatch = lambda x: jnp.sum(x.reshape(microbatches, -1), axis=1)
        means = by_microbatch(lost) / jnp.maximum(by_microbatch(present), 1.0)
        totals['loss'] += config.masked.next_sentence * jnp.sum(means * by_microbatch(batch['weight']))
    numbers = {'next_loss': jnp.sum(lost), 'next_accuracy': jnp.sum(right)}
    return totals | numbers | {f'{name}_weight': jnp.sum(present) for name in numbers}


def evaluate(trained: Trained, dataset: Dataset, split: str, progress: Progress = no_progress) -> Scored:
    """Scores the hidden pieces and, if the text's source can make gaps, the forms chosen for them."""
    scores = means_of(TASK, trained, dataset, split, progress)
    filled = fill_gaps(trained, dataset, split, gaps.MOST, progress)
    how = {'masked': dataclasses.asdict(trained.config.masked)}
    del how['masked']['pool']
    return Scored(scores | gaps.score(filled), how, gaps.complete(filled))


def fill_gaps(
    trained: Trained, dataset: Dataset, split: str, most: int, progress: Progress = no_progress
) -> list[tuple[Gap, str]]:
    """Chooses the likeliest form for each of the first `most` gaps. There are none if the source makes none.

    Forms of several pieces are ignored, and so are gaps whose right form has several pieces.
    """
    find = generated.sentence_gaps(trained.config.data, reading(trained.config))
    if find is None:
        return []

    @functools.cache
    def piece(gap: Gap, form: str) -> int | None:
        """Returns the piece of a form in its gap, or None if it has several."""
        hidden = gapped(trained, gap.text)
        whole = trained.codecs['text'].encode(gap.text.replace(gaps.GAP, form))
        same = len(whole) == len(hidden) and all(h in (MASK, w) for h, w in zip(hidden, whole, strict=True))
        return whole[hidden.index(MASK)] if same else None

    texts = enumerate(dataset.texts(split)['text'])
    usable = ((line, gap) for line, text in texts for gap in find(text, gaps.GAP) if piece(gap, gap.right))
    found = list(itertools.islice(usable, most))

    def likeliest(number: int, logp) -> str:
        _, gap = found[number]
        forms = [form for form in gap.forms if piece(gap, form)]
        return max(forms, key=lambda form: logp[piece(gap, form)])

    rows = [gapped(trained, gap.text) for _, gap in found]
    on_done = counting(progress, 'gaps', len(rows))
    forms = run('log_p', trained, rows, [line for line, _ in found], on_done, likeliest)
    return [(gap, form) for (_, gap), form in zip(found, forms, strict=True)]


def show(trained: Trained, dataset: Dataset) -> Shown:
    """Shows a few gaps, each with the form that the model chose."""
    return gaps.show(fill_gaps(trained, dataset, 'test', gaps.SHOWN))


def findings(trained: Trained, dataset: Dataset, outcome: shared.Outcome) -> Iterator[shared.Finding]:
    """Yields a finding if the model predicts hidden pieces hardly better than their frequencies do."""
    pieces = np.asarray(dataset.splits[outcome.split].fields['text'].tokens)
    ordinary = np.isin(pieces, trained.codecs['text'].ordinary_pieces())
    yield from shared.unlearned_pieces(outcome, pieces[ordinary])


TASK = Task(
    reading=reading,
    batches=batches,
    sums=sums,
    evaluate=evaluate,
    measures=(
        Measure('loss', 'loss per hidden piece', ('loss',)),
        Measure('perplexity', 'perplexity per hidden piece', ('perplexity',), 3),
        Measure('accuracy', 'hidden pieces right', ('accuracy',), 1, 'higher', percent=True),
        Measure('next_accuracy', 'pairs right', ('next_accuracy',), 1, 'higher', percent=True),
        Measure('gaps', 'gaps filled right', ('gaps', 'accuracy'), 1, 'higher', percent=True),
    ),
    show=show,
    findings=findings,
    verbs={'fill': fill, 'embed': embed},
)
