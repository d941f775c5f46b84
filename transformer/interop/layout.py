"""Converts parameters from and to another program's names and shapes, by one table for both directions."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from transformer import config as configs
from transformer.config import Config, ConfigError
from transformer.nn import models
from transformer.runs.hashes import named_leaves

Arrays = dict[str, np.ndarray]
# The options that are lengths of axes of arrays.
_AXES = (
    'model.d_model', 'model.d_ff', 'model.h', 'model.max_len', 'model.token_types', 'images.patch',
    'image_model.d_model', 'image_model.d_ff', 'image_model.h', 'contrastive.d_e',
)  # fmt: skip
# An imported model has no data, so it gets the data options of plain text.
TEXT = {'data.source': 'text', 'data.name': None}


class ForeignArray(NamedTuple):
    """One array of another program.

    Attributes:
      theirs: its name there.
      ours: the paths of the parameters that it holds, side by side along the axis of the outputs.
      transposed: whether a matrix there is [outputs, inputs].
    """

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False


def linear(theirs: tuple[str, str], *ours: str, transposed: bool = True) -> list[ForeignArray]:
    """Returns the entries of the kernel and the bias of linear layers that are one layer there."""
    kernel, bias = ([f'{path}/{name}' for path in ours] for name in ('kernel', 'bias'))
    return [ForeignArray(theirs[0], tuple(kernel), transposed), ForeignArray(theirs[1], tuple(bias))]


def norm(theirs: tuple[str, str], ours: str) -> list[ForeignArray]:
    """Returns the entries of the scale and the bias of a LayerNorm."""
    return [
        ForeignArray(name, (f'{ours}/norm/layer/{part}',))
        for name, part in zip(theirs, ('scale', 'bias'), strict=True)
    ]


def named(params: Mapping) -> Arrays:
    """Returns the parameters by path, as numpy arrays that can be changed."""
    return {path: np.array(leaf, np.float32) for path, leaf in named_leaves(params).items()}


def check_sizes(changes: Mapping[str, object], theirs: Mapping[str, np.ndarray]) -> None:
    """Raises ConfigError if options ask for more layers or longer axes than arrays have. Builds no model."""
    longest = max((length for array in theirs.values() for length in array.shape), default=0)
    layers = ('model.N', 'model.N_decoder', 'image_model.N')
    most = dict.fromkeys(layers, len(theirs)) | dict.fromkeys(_AXES, longest)
    for key, limit in most.items():
        if isinstance(value := changes.get(key), int) and value > limit:
            raise ConfigError(f'{key}={value}: the {len(theirs)} arrays are of a smaller model')


def parameter_shapes(changes: Mapping[str, object]) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each parameter, by path, of the default config's model with changes."""
    config = configs.resolve_values(TEXT | dict(changes))
    return {path: leaf.shape for path, leaf in named_leaves(models.parameter_shapes(config)).items()}


def tree(config: Config, ours: Mapping[str, np.ndarray]) -> models.Params:
    """Returns the parameters of a config's model from arrays by path.

    Raises:
      ConfigError: the config is of another model.
    """
    like = models.parameter_shapes(config)
    for path, leaf in named_leaves(like).items():
        if path not in ours or ours[path].shape != leaf.shape:
            there = f'has shape {ours[path].shape}' if path in ours else 'is missing'
            raise ConfigError(f'{path}: {there}; the options ask for shape {leaf.shape}')
    return jax.tree.unflatten(jax.tree.structure(like), [ours[path] for path in named_leaves(like)])


def to_ours(
    table: Iterable[ForeignArray],
    theirs: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple],
    known: Mapping[str, np.ndarray],
) -> Arrays:
    """Converts another program's arrays to our parameters.

    Args:
      shapes: the shape of each of our parameters, by path.
      known: the parameters that are not in the table, such as those with a row for each piece.

    Raises:
      ConfigError: an array is missing or has another shape, or a parameter or an array is left over.
    """
    for path, array in known.items():
        if array.shape != shapes[path]:
            raise ConfigError(f'{path}: has shape {array.shape}, expected {shapes[path]}')
        if not np.isfinite(array).all():
            raise ConfigError(f'{path}: has values that are not finite')
    ours, left = dict(known), set(theirs)
    for entry in table:
        if entry.theirs not in theirs:
            raise ConfigError(f'{entry.theirs}: missing')
        left.discard(entry.theirs)
        array = theirs[entry.theirs].astype(np.float32)
        if not np.isfinite(array).all():
            raise ConfigError(f'{entry.theirs}: has values that are not finite')
        sizes = [_matrix_shape(path, shapes[path]) for path in entry.ours]
        expected = (*sizes[0][:-1], sum(size[-1] for size in sizes))
        array = array.T if entry.transposed else array
        if array.shape != expected:
            shown = expected[::-1] if entry.transposed else expected
            raise ConfigError(f'{entry.theirs}: has shape {theirs[entry.theirs].shape}, expected {shown}')
        parts = np.split(array, np.cumsum([size[-1] for size in sizes])[:-1], axis=-1)
        for path, part in zip(entry.ours, parts, strict=True):
            ours[path] = np.ascontiguousarray(part.reshape(shapes[path]))
    if left:
        raise ConfigError(f'{min(left)}: unknown here' + _more(left))
    if lacking := shapes.keys() - ours.keys():
        raise ConfigError(f'{min(lacking)}: no array for this parameter' + _more(lacking))
    return ours


def _more(names: Collection[str]) -> str:
    return f', and {len(names) - 1} more like it' if len(names) > 1 else ''


def to_theirs(table: Iterable[ForeignArray], ours: Mapping[str, np.ndarray]) -> Arrays:
    """Converts our parameters to another program's arrays."""
    theirs = {}
    for entry in table:
        matrices = [ours[path].reshape(_matrix_shape(path, ours[path].shape)) for path in entry.ours]
        joined = np.concatenate(matrices, axis=-1)
        theirs[entry.theirs] = np.ascontiguousarray(joined.T if entry.transposed else joined)
    return theirs


def _matrix_shape(path: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the shape without an axis of heads: kernels of attention are matrices, their biases vectors."""
    if path.endswith('/kernel') and len(shape) == 3:
        split = 2 if path.endswith('output/kernel') else 1
        return math.prod(shape[:split]), math.prod(shape[split:])
    return (math.prod(shape),) if path.endswith('/bias') else tuple(shape)
