"""Text classification with an encoder: data, loss and scores of classes or numbers."""

from collections.abc import Iterable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from jaxtyping import Array, Float

from transformer.config import Config
from transformer.data.codec import Labels
from transformer.data.dataset import Dataset
from transformer.data.fields import Columns, Label, Number, Reading
from transformer.data.sources import table
from transformer.data.text_input import cut_entry, cut_rows, row_batches
from transformer.inference import batch_shapes
from transformer.inference.generate import OnDone, as_texts, check_best
from transformer.nn import ensemble
from transformer.progress import Progress, counting, no_progress
from transformer.runs.restore import Trained
from transformer.tasks import confusion
from transformer.tasks import findings as shared
from transformer.tasks.classify import scores
from transformer.tasks.commands import check_own_classes
from transformer.tasks.contract import CUT, Hypothesis, Measure, Scored, Shown, Task, means_of, ranked
from transformer.tokens import Batch, Tokens
from transformer.training import losses


def reading(config: Config) -> Reading:
    """Returns the fields: texts, and their class or number."""
    label = Number() if config.classify.output == 'number' else Label()
    options = ('source', 'columns', 'language', 'tokenizer', 'pieces', 'max_len', 'train_examples')
    return Reading({'text': Columns(config.data.language, 'data.language'), 'label': label}, options)


def sums(config: Config, params: ensemble.Params, batch: Batch, key: Array | None) -> losses.Sums:
    """Computes the cross-entropy of the classes, with label smoothing in training, or the squared error."""
    batch = losses.all_rows(batch)
    outputs = _outputs(config, params, batch, key)
    if config.classify.output == 'number':
        squared = jnp.square(outputs[..., 0] - batch['label'])
        return {'loss': jnp.sum(squared * batch['weight']), 'weight': jnp.sum(batch['weight'])}
    return losses.class_sums(config, key, outputs, batch['label'], batch['weight'])


def _outputs(
    config: Config, params: ensemble.Params, batch: Batch, key: Array | None
) -> Float[Array, 'R E K']:
    """Computes logits or numbers. An ensemble's are of the mean probabilities, or the mean numbers."""
    compute = ensemble.mean_logits if config.classify.output == 'number' else ensemble.logits
    return compute(config, params, batch, key)


def evaluate(trained: Trained, dataset: Dataset, split: str, progress: Progress = no_progress) -> Scored:
    """Computes the loss and the scores of classes or numbers. The output lines are the answers."""
    config, examples = trained.config, dataset.splits[split]
    means = means_of(TASK, trained, dataset, split, progress)
    texts, gold = dataset.texts(split)['text'], examples.fields['label'].values
    outputs = _predict(trained, texts, counting(progress, 'texts', len(texts)))
    if config.classify.output == 'number':
        predicted, lines = outputs[:, 0], [f'{value:.4f}' for value in outputs[:, 0]]
        found = scores.score_numbers(gold, predicted)
    else:
        labels: Labels = trained.codecs['label']
        predicted = outputs.argmax(axis=-1)
        lines = list(map(labels.decode, predicted.tolist()))
        found = scores.score_classes(gold, predicted, 1 if labels.size == 2 else None)
        means['confusion'] = confusion.counts(gold, predicted, labels.size).tolist()
    means |= cut_entry(config, dataset, split)
    return Scored(means | found, {}, lines)


def show(trained: Trained, dataset: Dataset) -> Shown:
    """Shows how often each class (rows) of test is taken for each class (columns)."""
    if trained.config.classify.output == 'number':
        return Shown([])
    labels: Labels = trained.codecs['label']
    predicted = _predict(trained, dataset.texts('test')['text'], lambda texts: None).argmax(axis=-1)
    counts = confusion.counts(dataset.splits['test'].fields['label'].values, predicted, labels.size)
    return Shown(confusion.table(counts, labels.names))


def findings(trained: Trained, dataset: Dataset, outcome: shared.Outcome) -> Iterator[shared.Finding]:
    """Yields findings: classes of few texts, guesses, few classes answered, or numbers near their mean."""
    gold = dataset.splits[outcome.split].fields['label'].values
    if trained.config.classify.output == 'number':
        yield from shared.unlearned(outcome, float(np.var(gold)), 'the mean of the numbers')
        return
    yield from shared.few_of_class(dataset.manifest, trained.codecs['label'].size)
    yield from shared.guesses(outcome.score('accuracy', 'score'), gold)
    yield from shared.unanswered(outcome, [trained.codecs['label'].names[n] for n in np.unique(gold)])


def classify(
    trained: Trained,
    texts: Iterable[str],
    *,
    best: int = 1,
    classes: str | None = None,
    first: int = 0,
    on_done: OnDone = lambda texts: None,
) -> list[list[Hypothesis]]:
    """Returns the `best` likeliest classes of each text with their probabilities, or its number."""
    check_own_classes(classes)
    number = trained.config.classify.output == 'number'
    most, of = (1, 'numbers in an answer') if number else (trained.codecs['label'].size, 'classes')
    check_best(best, most, of)
    texts = as_texts(texts, 'texts')
    _warn_of_columns(trained.config, texts, first)
    outputs = _predict(trained, texts, on_done, first)
    if number:
        return [[Hypothesis(f'{value:.4f}', float(value))] for value in outputs[:, 0]]
    return [ranked(trained.codecs['label'].names, row, best, np.exp) for row in outputs]


def _warn_of_columns(config: Config, texts: list[str], first: int) -> None:
    """Warns if lines have more or fewer texts than a row of the training's tables."""
    if config.data.source != 'table':
        return
    trained = len(table.columns_of(config.data, reading(config))['text'])
    found = [text.count('\t') + 1 for text in texts]
    odd = [i for i, count in enumerate(found) if count != trained and texts[i].strip()]
    if odd:
        logging.warning(
            'line %d: %d texts, separated by tabs, where the training has %d; lines like it: %d',
            first + odd[0] + 1, found[odd[0]], trained, len(odd),
        )  # fmt: skip


def _predict(
    trained: Trained, texts: list[str], on_done: OnDone, first: int | None = None
) -> Float[np.ndarray, 'N K']:
    """Computes log p of the classes of each text, or its number. `first` is as for `cut_rows`."""
    config = trained.config
    rows = cut_rows(config, trained.codecs['text'].encode_columns(texts), first)
    outputs = batch_shapes.run_pieces(_log_p, trained, rows, on_done)
    return np.array(outputs, np.float32).reshape(len(rows), config.classify.classes)


def _log_p(config: Config, params: ensemble.Params, key: None, text: Tokens) -> Float[Array, 'R K']:
    batch = {'text': text, 'label': jnp.zeros((len(text.tokens), 1), jnp.int32)}
    outputs = _outputs(config, params, batch, key)[:, 0]
    return outputs if config.classify.output == 'number' else jax.nn.log_softmax(outputs, axis=-1)


TASK = Task(
    reading=reading,
    batches=row_batches,
    sums=sums,
    evaluate=evaluate,
    measures=(
        Measure('loss', 'loss', ('loss',)),
        Measure('accuracy', 'accuracy', ('accuracy', 'score'), 2, 'higher', percent=True),
        Measure('f1', 'F1', ('f1', 'score'), 4, 'higher'),
        Measure('matthews', 'Matthews correlation', ('matthews', 'score'), 4, 'higher'),
        Measure('pearson', 'Pearson correlation', ('pearson', 'score'), 4, 'higher'),
        Measure('spearman', 'Spearman correlation', ('spearman', 'score'), 4, 'higher'),
        CUT,
    ),
    show=show,
    findings=findings,
    verbs={'classify': classify},
)
