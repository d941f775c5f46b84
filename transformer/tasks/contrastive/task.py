"""Contrastive learning of images and texts: data, loss and recall (Radford et al. 2021)."""

import functools
from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from transformer import parallel
from transformer.config import Config, couples_batch
from transformer.data import text_input
from transformer.data.arrays import Ragged
from transformer.data.batches import Batches, NoisyBatches, RowBatches
from transformer.data.dataset import Dataset, Split
from transformer.data.rows import distinct
from transformer.nn import ensemble
from transformer.nn.encoders import LOG_SCALE_BOUNDS
from transformer.progress import Progress, counting, no_progress
from transformer.runs.restore import Trained
from transformer.tasks import findings as shared
from transformer.tasks.contract import Measure, Scored, Shown, Task, means_of
from transformer.tasks.contrastive import scores, vectors
from transformer.tasks.images.augmentation import augment_rows
from transformer.tasks.images.task import reading_with_text
from transformer.tokens import EOS, Batch
from transformer.training import losses

SHOWN = 4  # images that are shown with their nearest texts after a training


def batches(config: Config, dataset: Dataset, split: str) -> Batches:
    """Lays out pairs. Outside training, very long texts are cut, but keep their end."""
    pairs, train, training = dataset.splits[split], config.train, split == 'train'
    if not training:
        pairs = _with_ends(text_input.cut_with_warning(pairs, text_input.longest_read(config), split))
    rows = RowBatches(pairs, config.data, train.microbatches, train.seed, training)
    if not (training and config.images.augments):
        return rows
    return NoisyBatches(rows, functools.partial(_augment, config), train.seed, split)


def _augment(config: Config, batch: Batch, generators: list[np.random.Generator]) -> Batch:
    """Augments every image; a row has one or several."""
    for images, weight in zip(batch['image'].swapaxes(0, 1), batch['weight'].T, strict=True):
        augment_rows(config.images, {'image': images, 'weight': weight}, generators)
    return batch


def _with_ends(pairs: Split) -> Split:
    """Puts an end in place of the last piece of every text, where a cut has removed it."""
    text = pairs.fields['text']
    pieces = np.array(text.tokens)
    pieces[text.offsets[1:] - 1] = EOS
    return Split({**pairs.fields, 'text': Ragged(pieces, text.offsets)})


def sums(config: Config, params: ensemble.Params, batch: Batch, key: Array | None) -> losses.Sums:
    """Computes each pair's cross-entropy among the pairs of its microbatch or batch, without smoothing.

    Another pair with the same image is a negative, as in CLIP.
    """
    vectors.check_single(params)
    count = 1 if couples_batch(config) else len(batch['weight'])
    weight = batch['weight'].reshape(count, -1)
    of_rows = ensemble.factors(config, params, losses.all_rows(batch), key)
    pairs = *(x.reshape(*weight.shape, -1) for x in of_rows), weight
    others, first = pairs, 0
    if couples_batch(config):
        joined = parallel.gather_parts([x[0] for x in pairs])
        others, first = tuple(x[None] for x in joined), parallel.device_index() * weight.shape[1]
    scale = jnp.sum(weight) * jnp.exp(params['log_scale'])
    return losses.pair_sums(*pairs, others, first) | {'scale': scale}


def evaluate(trained: Trained, dataset: Dataset, split: str, progress: Progress = no_progress) -> Scored:
    """Computes the loss, and recall among all distinct images and texts.

    Each output line is the text of the split that is nearest to the row's image.
    """
    texts, means = dataset.texts(split)['text'], means_of(TASK, trained, dataset, split, progress)
    pixels = dataset.splits[split].fields['image'].values
    image_rows, image_of = distinct(map(bytes, pixels))
    text_rows, text_of = distinct(texts)
    on_done = counting(progress, 'vectors', len(image_rows) + len(text_rows))
    images = vectors.embed_pixels(trained, pixels[image_rows], on_done)
    of_texts = vectors.embed(trained, [texts[i] for i in text_rows], on_done=on_done)
    means['images'], means['texts'] = len(images), len(of_texts)
    means['text_of_image'] = scores.recall(images, of_texts, scores.partners(image_of, text_of))
    means['image_of_text'] = scores.recall(of_texts, images, scores.partners(text_of, image_of))
    best = [texts[text_rows[np.argmax(of_texts @ image)]] for image in images]
    return Scored(means, {}, [best[number] for number in image_of])


def show(trained: Trained, dataset: Dataset) -> Shown:
    """Shows the texts of the first images of the test set, and the text that each image finds."""
    split = 'test'
    texts, pixels = dataset.texts(split)['text'], dataset.splits[split].fields['image'].values
    found = vectors.embed_pixels(trained, pixels[:SHOWN]) @ vectors.embed(trained, texts).T
    pairs = zip(texts, found.argmax(axis=1), strict=False)
    return Shown([line for own, i in pairs for line in (f'  {own}', f'    {texts[i]}')])


def findings(trained: Trained, dataset: Dataset, outcome: shared.Outcome) -> Iterator[shared.Finding]:
    """Yields a finding if pairs are hardly distinguished or not compared, or the scale is at a bound."""
    guess, scale = outcome.score('guess'), outcome.score('scale')
    if guess == 0:
        yield shared.Finding(
            'pairs are compared with no others: each has nothing to be told from',
            'the loss is 0 whatever the model computes, so that nothing is learned',
            'data.batch_tokens, train.microbatches or contrastive.negatives: more pairs together',
        )
    elif guess is not None:
        yield from shared.unlearned(outcome, guess, 'a guess among the compared pairs')
    if scale is not None:
        least, most = np.exp(LOG_SCALE_BOUNDS)
        if scale >= 0.99 * most or scale <= 1.01 * least:
            yield shared.Finding(
                f'the scale of the cosines is {scale:.2f}, at a bound of {least:.0f} to {most:.0f}',
                'the temperature is no longer learned; a scale of 100 often means memorised pairs',
                'train.peak_lr; at 100 more data, at 1 train.steps',
            )
    yield from shared.equal(outcome)


def _recall(direction: str, most: int, meaning: str) -> Measure:
    path = direction, f'r{most}', 'score'
    return Measure(f'{direction}_r{most}', f'{meaning}, R@{most}', path, 1, 'higher', percent=True)


TASK = Task(
    reading=reading_with_text,
    batches=batches,
    sums=sums,
    evaluate=evaluate,
    measures=(
        Measure('loss', 'loss per pair', ('loss',)),
        Measure('accuracy', 'pairs right', ('accuracy',), 2, 'higher', percent=True),
        Measure('scale', 'scale of the cosines', ('scale',), 2, heading=None),
        *(_recall('text_of_image', most, 'texts of images') for most in scores.AMONG),
        *(_recall('image_of_text', most, 'images of texts') for most in scores.AMONG),
    ),
    show=show,
    findings=findings,
    verbs={
        name: getattr(vectors, name)
        for name in ('embed', 'embed_images', 'retrieve', 'retrieve_texts', 'classify')
    },
)
