"""Image classification by a Vision Transformer or a residual network: data, loss and scores."""

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath, epy
from jaxtyping import Array, Float, UInt8

from transformer.config import Config
from transformer.data.batches import Batches, RowBatches
from transformer.data.dataset import Dataset
from transformer.data.fields import Image, Label, Reading, Text
from transformer.data.rows import stacked
from transformer.data.sources import images
from transformer.inference import batch_shapes
from transformer.inference.generate import OnDone, check_best
from transformer.nn import ensemble
from transformer.progress import Progress, counting, no_progress
from transformer.runs.restore import Trained
from transformer.tasks import confusion
from transformer.tasks import findings as shared
from transformer.tasks.commands import check_own_classes
from transformer.tasks.contract import Hypothesis, Measure, Scored, Shown, Task, means_of, ranked
from transformer.tasks.images import scores
from transformer.tasks.images.augmentation import augmented
from transformer.tokens import Batch
from transformer.training import losses

with epy.lazy_imports():
    from transformer.tasks.images import looks

SHOWN = 4  # images over which a figure shows where the model looks
FIRST = 5  # likeliest classes, among which the right one is looked for


def image_type(config: Config) -> Image:
    """Returns the size and channels of the images."""
    return Image(config.images.size, config.images.size, config.images.channels)


def reading(config: Config) -> Reading:
    """Returns the fields: the images and their classes."""
    return Reading({'image': image_type(config), 'label': Label()}, ('source', 'train_examples'))


def reading_with_text(config: Config) -> Reading:
    """Returns the fields of an image and a text about it; a further text of an image has its own row."""
    text = Text(config.data.language, 'data.language')
    options = ('source', 'columns', 'language', 'tokenizer', 'pieces', 'max_len', 'train_examples')
    return Reading({'image': image_type(config), 'text': text}, options)


def batches(config: Config, dataset: Dataset, split: str) -> Batches:
    """Lays out an image a row: whole microbatches of at most `data.batch_tokens` patches and class tokens."""
    train, training, positions = config.train, split == 'train', config.images.positions
    arguments = config.data, train.microbatches, train.seed, training
    rows = RowBatches(dataset.splits[split], *arguments, positions=positions)
    return augmented(rows, config.images, train.seed) if training and config.images.augments else rows


def sums(config: Config, params: ensemble.Params, batch: Batch, key: Array | None) -> losses.Sums:
    """Computes the cross-entropy of the classes, with label smoothing in training.

    A mixture of two images has both classes, weighted by the images' shares.
    """
    batch = losses.all_rows(batch)
    logits, weight = ensemble.logits(config, params, batch, key), batch['weight']
    if 'other' not in batch:
        return losses.class_sums(config, key, logits, batch['label'], weight)
    shares = (batch['label'], batch['share']), (batch['other'], 1 - batch['share'])
    parts = [losses.class_sums(config, key, logits, label, weight * share) for label, share in shares]
    return jax.tree.map(jnp.add, *parts)


def evaluate(trained: Trained, dataset: Dataset, split: str, progress: Progress = no_progress) -> Scored:
    """Computes loss, accuracy and calibration. The output lines are each image's likeliest class."""
    means, labels = means_of(TASK, trained, dataset, split, progress), trained.codecs['label']
    fields = dataset.splits[split].fields
    values, gold = fields['image'].values, fields['label'].values
    on_done = counting(progress, 'classes', len(values))
    answers = likeliest(trained, values, min(FIRST, labels.size), on_done)
    numbers = np.array([[labels.encode(one.text) for one in ranked] for ranked in answers])
    confidence = np.array([best.score for best, *_ in answers])
    means['first_five'] = scores.share_among(numbers, gold)
    means['calibration_error'] = scores.calibration_error(confidence, numbers[:, 0] == gold)
    means['confusion'] = confusion.counts(gold, numbers[:, 0], labels.size).tolist()
    return Scored(means, {}, [best.text for best, *_ in answers])


def show(trained: Trained, dataset: Dataset) -> Shown:
    """Shows how often each class of the test set (rows) is taken for each class (columns).

    A figure shows the rollout of attention over the first images.
    """
    labels, split = trained.codecs['label'], 'test'
    fields = dataset.splits[split].fields
    pixels = fields['image'].values
    names = [best.text for best, *_ in likeliest(trained, pixels)]
    counts = confusion.counts(fields['label'].values, np.array([*map(labels.encode, names)]), labels.size)
    found = lambda: [looks.look(trained, *pair) for pair in zip(pixels[:SHOWN], names, strict=False)]
    figures = {'rollout': lambda: looks.draw(found())} if trained.config.model.kind == 'transformer' else {}
    return Shown(confusion.table(counts, labels.names), figures)


def classify(
    trained: Trained,
    paths: Sequence[epath.PathLike],
    *,
    best: int = 1,
    classes: str | None = None,
    first: int = 0,
    on_done: OnDone = lambda files: None,
) -> list[list[Hypothesis]]:
    """Returns the likeliest classes of image files, resized if needed, with their probabilities."""
    del first  # errors name the file, not its number
    check_own_classes(classes)
    check_best(best, trained.config.images.classes, 'classes')
    size = image_type(trained.config)
    return likeliest(trained, images.read_all(paths, size), best, on_done)


def likeliest(
    trained: Trained,
    pixels: UInt8[np.ndarray, 'N h w c'] | Sequence[UInt8[np.ndarray, 'h w c']],
    best: int = 1,
    on_done: OnDone = lambda images: None,
) -> list[list[Hypothesis]]:
    """Returns the `best` likeliest classes of each image, with their probabilities."""
    config, labels = trained.config, trained.codecs['label']

    def build(indexes: list[int], shape: tuple[int, int]) -> UInt8[np.ndarray, 'R h w c']:
        return stacked([pixels[i] for i in indexes], shape[0], image_type(config).shape)

    finish = lambda _, logp: ranked(labels.names, logp, best, np.exp)
    program, lengths = batch_shapes.program(_log_p, config), [config.images.positions] * len(pixels)
    return batch_shapes.run(program, (trained.params, None), lengths, build, on_done, finish)


def _log_p(
    config: Config, params: ensemble.Params, key: None, pixels: UInt8[Array, 'R h w c']
) -> Float[Array, 'R K']:
    return jax.nn.log_softmax(ensemble.logits(config, params, {'image': pixels}, key), axis=-1)


def findings(trained: Trained, dataset: Dataset, outcome: shared.Outcome) -> Iterator[shared.Finding]:
    """Yields a finding if classes have few images, or if the model guesses or answers few classes."""
    labels = dataset.splits[outcome.split].fields['label'].values
    yield from shared.few_of_class(dataset.manifest, trained.codecs['label'].size)
    yield from shared.guesses(outcome.score('accuracy'), labels)
    yield from shared.unanswered(outcome, [trained.codecs['label'].names[n] for n in np.unique(labels)])


TASK = Task(
    reading=reading,
    batches=batches,
    sums=sums,
    evaluate=evaluate,
    measures=(
        Measure('loss', 'loss per image', ('loss',)),
        Measure('accuracy', 'images right', ('accuracy',), 2, 'higher', percent=True),
        Measure('first_five', 'right among five', ('first_five',), 2, 'higher', percent=True),
        Measure('calibration', 'calibration error', ('calibration_error',), 4),
    ),
    show=show,
    findings=findings,
    verbs={'classify': classify},
)
