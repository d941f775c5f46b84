"""Where a model looks in an image: drawn over it, and as the rollout of an encoder's attention."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.figure import Figure

from transformer.inference.attention import attention_weights
from transformer.runs.restore import Trained

WIDEST = 8  # panels side by side
DARKEST = 0.85  # opacity of the black over patches without attention
_SIDE = 1.5  # inches


class Look(NamedTuple):
    """An image, words about it, and how much a model looks at each patch for each word."""

    image: UInt8[np.ndarray, 'h w c']
    words: list[str]
    weights: Float[np.ndarray, 'words rows columns']


def look(trained: Trained, image: UInt8[np.ndarray, 'h w c'], word: str) -> Look:
    """Finds how much each patch of an image reaches the vector that its class is read from."""
    config, batch = trained.config, {'image': image[None]}
    reached = rollout(attention_weights(config, trained.params, batch)['encoder/self_attention'])
    side = config.images.size // config.images.patch
    # The class token is first; without one, the head reads the mean of all vectors.
    of_patches = reached[0, 1:] if config.images.pool == 'token' else reached.mean(axis=0)
    return Look(image, [word], of_patches.reshape(1, side, side))


def rollout(weights: Float[np.ndarray, 'N H S S']) -> Float[np.ndarray, 'S S']:
    """Computes how much each input reaches each output of an encoder (Abnar and Zuidema 2020, section 3).

    It is the product of the layers' means over heads, each averaged with the identity, which stands for the
    residual connection.
    """
    mean, reached = weights.mean(axis=1), np.eye(weights.shape[-1])
    for layer in mean:
        reached = (layer + np.eye(len(layer))) / 2 @ reached
    return reached


def draw(looks: Sequence[Look]) -> Figure:
    """Draws each image, then once for each word about it, dark where the model does not look.

    The patch with the most attention is as bright as in the image, so that spread attention can be seen, too.
    """
    rows = []
    for look in looks:
        panels = [('', None), *zip(look.words, look.weights, strict=True)]
        rows += [(look.image, panels[i : i + WIDEST]) for i in range(0, len(panels), WIDEST)]
    columns = max(len(panels) for _, panels in rows)
    figure = Figure((_SIDE * columns, (_SIDE + 0.3) * len(rows)), layout='constrained')
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for (image, panels), row in zip(rows, axes, strict=True):
        height, width, channels = image.shape
        for axis in row:
            axis.set_axis_off()
        for (word, weights), axis in zip(panels, row, strict=False):
            axis.imshow(image if channels == 3 else image[..., 0], cmap='gray', vmin=0, vmax=255)
            axis.set_title(word, fontsize=9, parse_math=False)
            if weights is not None:
                alpha, black = DARKEST * (1 - weights / weights.max()), np.zeros_like(weights)
                extent = (-0.5, width - 0.5, height - 0.5, -0.5)
                axis.imshow(black, cmap='gray', vmin=0, vmax=1, alpha=alpha, extent=extent)
    return figure
