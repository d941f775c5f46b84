"""Word vectors: data, loss and scores (Mikolov et al. 2013)."""

import functools
import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from transformer.config import Config, ConfigError
from transformer.data.batches import NoisyBatches, RowBatches
from transformer.data.dataset import Dataset
from transformer.data.fields import Reading, Text
from transformer.nn import ensemble, models
from transformer.progress import Progress, no_progress
from transformer.runs.restore import Trained
from transformer.tasks import findings as shared
from transformer.tasks.contract import Measure, Scored, Shown, Task, means_of
from transformer.tasks.words import sampling, vectors
from transformer.tokens import Batch
from transformer.training import losses

# Words whose neighbours are shown after a training.
SHOWN = 5


def reading(config: Config) -> Reading:
    """Returns the one field: a text whose pieces are words. Raises ConfigError if it has other pieces."""
    if config.data.tokenizer != 'words':
        raise ConfigError(
            f'data.tokenizer={config.data.tokenizer}: train.task=words needs words as pieces; choose words'
        )
    options = ('source', 'language', 'tokenizer', 'pieces', 'max_len', 'train_examples')
    return Reading({'text': Text(config.data.language, 'data.language')}, options)


def batches(config: Config, dataset: Dataset, split: str) -> NoisyBatches:
    """Lays out sentences in rows, and draws words to leave out, windows and noise words."""
    counts = np.array(dataset.codecs['text'].counts)
    of_words, train = sampling.frequencies(config, counts), config.train
    rows = RowBatches(dataset.splits[split], config.data, train.microbatches, train.seed, split == 'train')
    draw = functools.partial(sampling.draw, config.words, of_words)
    return NoisyBatches(rows, draw, train.seed, split)


def sums(config: Config, params: ensemble.Params, batch: Batch, key: Array | None) -> losses.Sums:
    """Computes the logistic loss of all decisions, and counts the predictions that they make up."""
    del key  # no dropout
    if isinstance(params, tuple):
        raise ConfigError('an ensemble of word vectors has no common loss; choose one checkpoint')
    model = models.build(config)
    count, decisions = model.apply({'params': params}, losses.all_rows(batch), train=False)
    loss = sum(
        jnp.sum(one.weight * (jax.nn.softplus(one.logits) - one.yes * one.logits)) for one in decisions
    )
    return {'loss': loss, 'weight': count}


def evaluate(trained: Trained, dataset: Dataset, split: str, progress: Progress = no_progress) -> Scored:
    """Computes the loss per prediction. The output lines are empty: the vectors are in the checkpoint."""
    means = means_of(TASK, trained, dataset, split, progress)
    return Scored({'loss': means['loss']}, {}, [])


def show(trained: Trained, dataset: Dataset) -> Shown:
    """Shows the neighbours of a few frequent words, and draws frequent words in two dimensions."""
    del dataset
    table = vectors.of_model(trained)
    # The most frequent words, which come first, have no topic.
    chosen = (table.words[100:] or table.words)[:SHOWN]
    lines = [f'  {word}: {", ".join(name for name, _ in table.neighbours([word], 8))}' for word in chosen]
    frequent = table.words[50:200] or table.words
    return Shown(lines, {'words': lambda: vectors.picture(table, frequent)})


def findings(trained: Trained, dataset: Dataset, outcome: shared.Outcome) -> Iterator[shared.Finding]:
    """Yields a finding if the vectors distinguish noise words hardly better than zeros would."""
    del dataset
    words = trained.config.words
    if words.output == 'negatives':
        yield from shared.unlearned(outcome, (1 + words.negatives) * math.log(2), 'vectors of zeros')


TASK = Task(
    reading=reading,
    batches=batches,
    sums=sums,
    evaluate=evaluate,
    measures=(Measure('loss', 'loss per prediction', ('loss',)),),
    show=show,
    findings=findings,
)
