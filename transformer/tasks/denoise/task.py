"""Denoising with an encoder and a decoder: data, loss and scores (Raffel et al. 2020)."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator

import numpy as np

from transformer.config import Config, ConfigError
from transformer.data import text_input
from transformer.data.batches import Batches, NoisyBatches, by_bits
from transformer.data.dataset import Dataset
from transformer.data.fields import Gap
from transformer.data.generated import sources as generated
from transformer.data.running import Chunks
from transformer.progress import Progress, counting, no_progress
from transformer.runs.restore import Trained
from transformer.tasks import findings as shared
from transformer.tasks import gaps
from transformer.tasks.contract import Measure, Scored, Shown, Task, means_of
from transformer.tasks.denoise import noise
from transformer.tasks.denoise.fill import fill, last_sentinel, log_p
from transformer.tasks.language.task import reading
from transformer.training import losses


def batches(config: Config, dataset: Dataset, split: str) -> Batches:
    """Lays out texts, of which it makes source and target.

    A row of running text is a text without the ends of documents, so long that its source fills
    `data.row_len`. Outside training, very long whole documents are cut.
    """
    data, train, training = config.data, config.train, split == 'train'
    texts, codec = dataset.splits[split], dataset.codecs['text']
    order = train.microbatches, train.seed, training
    if data.batching == 'running':
        length = config.denoise.raw_length(data.row_len)
        if length < 2:
            raise ConfigError(f'data.row_len={data.row_len}: too short to hide a span')
        if not (texts.fields['text'].lengths > 1).any():
            raise ConfigError(f'data.{split}: its text is empty')
        rows, counts = Chunks(texts, data, *order, length), np.array([length])
        layout = {length + 1: (np.array([0]), np.array([0]))}
    else:
        rows = text_input.row_batches(config, dataset, split)
        counts = rows.corpus.fields['text'].lengths - 1
        layout = {group.widths['text']: (group.members, group.offsets[:-1]) for group in rows.groups}
    sizes = noise.widths(config.denoise, counts, layout, exact=not codec.special)
    last = last_sentinel(config, codec)
    add = functools.partial(noise.add_noise, config.denoise, codec.ordinary_pieces(), last, sizes)
    return NoisyBatches(rows, by_bits(add, noise.DRAWS), train.seed, split)


def evaluate(trained: Trained, dataset: Dataset, split: str, progress: Progress = no_progress) -> Scored:
    """Scores the targets and, if the text's source can make gaps, the forms chosen for them."""
    scores = means_of(TASK, trained, dataset, split, progress)
    filled = fill_gaps(trained, dataset, split, gaps.MOST, progress)
    how = {'denoise': dataclasses.asdict(trained.config.denoise)}
    return Scored(scores | gaps.score(filled), how, gaps.complete(filled))


def fill_gaps(
    trained: Trained, dataset: Dataset, split: str, most: int, progress: Progress = no_progress
) -> list[tuple[Gap, str]]:
    """Chooses the likeliest form for each gap in a split's texts, or [] if the source makes no gaps."""
    find = generated.sentence_gaps(trained.config.data, reading(trained.config))
    if find is None or trained.config.denoise.objective != 'spans':
        return []
    texts = dataset.texts(split)['text']
    found = list(itertools.islice((gap for text in texts for gap in find(text, gaps.GAP)), most))
    if not found:
        return []
    pairs = [(gap.text, form) for gap in found for form in gap.forms]
    logp = log_p(trained, *zip(*pairs, strict=True), counting(progress, 'gaps', len(pairs)))
    ends = np.cumsum([len(gap.forms) for gap in found])[:-1]
    chosen = [gap.forms[best.argmax()] for gap, best in zip(found, np.split(logp, ends), strict=True)]
    return list(zip(found, chosen, strict=True))


def show(trained: Trained, dataset: Dataset) -> Shown:
    """Shows a few gaps, each with the form that the model chose."""
    return gaps.show(fill_gaps(trained, dataset, 'test', gaps.SHOWN))


def findings(trained: Trained, dataset: Dataset, outcome: shared.Outcome) -> Iterator[shared.Finding]:
    """Yields a finding if the model predicts what is hidden hardly better than the pieces' frequencies do."""
    pieces = np.asarray(dataset.splits[outcome.split].fields['text'].tokens)
    yield from shared.unlearned_pieces(outcome, pieces)


TASK = Task(
    reading=reading,
    batches=batches,
    sums=losses.written_sums,
    evaluate=evaluate,
    measures=(
        Measure('loss', 'loss per piece', ('loss',)),
        Measure('perplexity', 'perplexity per piece', ('perplexity',), 3),
        Measure('accuracy', 'pieces right', ('accuracy',), 1, 'higher', percent=True),
        Measure('gaps', 'gaps filled right', ('gaps', 'accuracy'), 1, 'higher', percent=True),
    ),
    show=show,
    findings=findings,
    verbs={'fill': fill},
)
