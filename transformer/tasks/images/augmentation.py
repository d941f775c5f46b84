"""Augments training images: crops, mirrors, RandAugment's operations, and mixtures of two images."""

import functools
from collections.abc import Callable

import numpy as np
import PIL.Image
import PIL.ImageEnhance
import PIL.ImageOps
from jaxtyping import Float32, UInt8

from transformer.config.tasks import Images
from transformer.data.batches import NoisyBatches, RowBatches
from transformer.tokens import Batch

Pixels = UInt8[np.ndarray, 'h w c']
# An operation gets an image, a strength from 0 to 1, and a generator.
Operation = Callable[[PIL.Image.Image, float, np.random.Generator], PIL.Image.Image]

MOST = 10  # the magnitude at full strength
_GREY = 128  # fills what an operation leaves empty
# The published sizes in pixels are for images of about this width.
_WIDTH = 224


def _enhance(enhancer: type) -> Operation:
    return lambda image, strength, rng: enhancer(image).enhance(1.8 * strength + 0.1)


def _move(coefficients: Callable[[float, PIL.Image.Image], tuple[float, ...]], most: float) -> Operation:
    """Returns an affine operation, in either direction.

    The pixel at (x, y) comes from (ax + by + c, dx + ey + f) with the coefficients a to f.
    """

    def apply(image, strength, rng):
        amount = most * strength * rng.choice([-1, 1])
        matrix = coefficients(amount, image)
        return image.transform(image.size, PIL.Image.Transform.AFFINE, matrix, fillcolor=_grey(image))

    return apply


def _grey(image: PIL.Image.Image) -> int | tuple[int, ...]:
    return (_GREY,) * 3 if image.mode == 'RGB' else _GREY


def _posterize(image, strength, rng):
    del rng
    lost = 8 - int(4 * strength)
    return PIL.Image.fromarray(np.asarray(image) >> lost << lost)


def _cutout(image, strength, rng):
    half = int(40 * strength * image.width / _WIDTH)
    pixels = np.array(image)
    pixels[_window(pixels.shape, half, half, rng)] = _GREY
    return PIL.Image.fromarray(pixels)


def _window(
    shape: tuple[int, ...], half_height: int, half_width: int, rng: np.random.Generator
) -> tuple[slice, slice]:
    """Draws the middle of a window uniformly in an image. What is outside of the image is cut off."""
    y, x = (int(rng.integers(size)) for size in shape[:2])
    return (
        slice(max(y - half_height, 0), min(y + half_height, shape[0])),
        slice(max(x - half_width, 0), min(x + half_width, shape[1])),
    )


# The operations and strengths of the authors' code (tensorflow/tpu, autoaugment.py), whose probabilities
# it draws but never uses. There, Contrast blends with the number of pixels in place of their mean.
OPERATIONS: dict[str, Operation] = {
    'autocontrast': lambda image, strength, rng: PIL.ImageOps.autocontrast(image),
    'equalize': lambda image, strength, rng: PIL.ImageOps.equalize(image),
    'invert': lambda image, strength, rng: PIL.ImageOps.invert(image),
    'rotate': lambda image, strength, rng: image.rotate(
        30 * strength * rng.choice([-1, 1]), fillcolor=_grey(image)
    ),
    'posterize': _posterize,
    'solarize': lambda image, strength, rng: PIL.ImageOps.solarize(image, int(256 * strength)),
    'color': _enhance(PIL.ImageEnhance.Color),
    'contrast': _enhance(PIL.ImageEnhance.Contrast),
    'brightness': _enhance(PIL.ImageEnhance.Brightness),
    'sharpness': _enhance(PIL.ImageEnhance.Sharpness),
    'shear_x': _move(lambda amount, image: (1, amount, 0, 0, 1, 0), 0.3),
    'shear_y': _move(lambda amount, image: (1, 0, 0, amount, 1, 0), 0.3),
    'translate_x': _move(lambda amount, image: (1, 0, amount * image.width, 0, 1, 0), 100 / _WIDTH),
    'translate_y': _move(lambda amount, image: (1, 0, 0, 0, 1, amount * image.height), 100 / _WIDTH),
    'cutout': _cutout,
    'solarize_add': lambda image, strength, rng: image.point(
        lambda level: min(level + int(110 * strength), 255) if level < 128 else level
    ),
}


def augment(options: Images, pixels: Pixels, rng: np.random.Generator) -> Pixels:
    """Cuts a window, mirrors it in half of the cases, and applies operations (Cubuk et al. 2020)."""
    if options.crop:
        margin = options.crop
        top, left = rng.integers(2 * margin + 1, size=2)
        padded = np.pad(pixels, ((margin, margin), (margin, margin), (0, 0)))
        pixels = padded[top : top + pixels.shape[0], left : left + pixels.shape[1]]
    if options.flip and rng.integers(2):
        pixels = pixels[:, ::-1]
    if options.randaugment:
        image = PIL.Image.fromarray(pixels if pixels.shape[-1] > 1 else pixels[..., 0])
        for chosen in rng.integers(len(OPERATIONS), size=options.randaugment):
            image = [*OPERATIONS.values()][chosen](image, options.magnitude / MOST, rng)
        pixels = np.asarray(image).reshape(pixels.shape)
    return np.ascontiguousarray(pixels)


def mix(options: Images, pixels: Pixels, other: Pixels, rng: np.random.Generator) -> tuple[Pixels, float]:
    """Mixes an image with another, by mixup (Zhang et al. 2018) or CutMix (Yun et al. 2019).

    With both, each is chosen in half of the cases.

    Returns:
      The mixture, rounded to whole levels, and the image's share of it.
    """
    by_window = options.cutmix > 0 and not (options.mixup > 0 and rng.integers(2))
    alpha = options.cutmix if by_window else options.mixup
    share = float(rng.beta(alpha, alpha))
    if not by_window:
        return np.rint(share * pixels + (1 - share) * other.astype(np.float64)).astype(np.uint8), share
    height, width, _ = pixels.shape
    # A window with this share of the area, before its parts outside of the image are cut off.
    halves = (int(size * (1 - share) ** 0.5 / 2) for size in (height, width))
    window = _window(pixels.shape, *halves, rng)
    mixture = pixels.copy()
    mixture[window] = other[window]
    return mixture, 1 - mixture[window][..., 0].size / (height * width)


def augment_rows(options: Images, batch: Batch, generators: list[np.random.Generator]) -> Batch:
    """Augments the image of every row that has one."""
    for i in np.flatnonzero(batch['weight']):
        batch['image'][i] = augment(options, batch['image'][i], generators[i])
    return batch


class MixedBatches(NoisyBatches):
    """The batches of a training split with augmented and mixed images, by step.

    Row i of R rows is mixed with row R - 1 - i; the classes of those rows are in `other`, and the shares of a
    row's own image in `share`.
    """

    def __init__(self, batches: RowBatches, options: Images, seed: int):
        super().__init__(batches, functools.partial(augment_rows, options), seed, 'train')
        self._options = options

    def batch(self, step: int, part: slice = slice(None)) -> Batch:
        """Builds the batch of a step, or only the rows that `part` selects."""
        batch, last = super().batch(step, part), self.rows(step) - 1
        numbers = range(last + 1)[part]
        others = range(last - numbers[-1], last - numbers[0] + 1)
        # A whole batch is its own mirror image.
        mirrored = batch if others == numbers else super().batch(step, slice(others.start, others.stop))
        partners = {name: values[::-1].copy() for name, values in mirrored.items()}
        share: Float32[np.ndarray, ' R'] = np.ones(len(numbers), np.float32)
        # What augments a row is drawn independently of what mixes it.
        generators = [one.spawn(1)[0] for one in self.generators(step, part)]
        for i in np.flatnonzero(batch['weight'] * partners['weight']):
            mixed = mix(self._options, batch['image'][i], partners['image'][i], generators[i])
            batch['image'][i], share[i] = mixed
        return batch | {'other': partners['label'], 'share': share}


def augmented(batches: RowBatches, options: Images, seed: int) -> NoisyBatches:
    """Returns the batches of a training split with augmented images."""
    if options.mixup or options.cutmix:
        return MixedBatches(batches, options, seed)
    return NoisyBatches(batches, functools.partial(augment_rows, options), seed, 'train')
