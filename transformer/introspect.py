"""What a model attends to."""

import functools
import re

import jax
import numpy as np
from jaxtyping import Float

from transformer.config import Config
from transformer.nn import models
from transformer.nn.ensemble import Params
from transformer.options import ConfigError
from transformer.symbols import Batch, Tokens


def one_row(tokens: list[int]) -> Tokens:
    """A batch of one row, which holds one sentence."""
    row = np.asarray(tokens, np.int32)[None]
    return Tokens(row, np.ones_like(row), np.arange(len(tokens), dtype=np.int32)[None])


@functools.partial(jax.jit, static_argnums=0)
def _intermediates(config: Config, params: Params, batch: Batch):
    model = models.build(config)
    _, kept = model.apply({'params': params}, batch, train=False, mutable=['intermediates'])
    return kept.get('intermediates')  # none where nothing was kept


def attention(config: Config, params: Params, batch: Batch) -> dict[str, Float[np.ndarray, 'N H Q K']]:
    """The attention weights of the first row of a batch, by layer (N) and head (H).

    Returns:
      The weights of every kind of attention that the model has, as `encoder/self_attention`,
      `decoder/self_attention` and `decoder/cross_attention`. A recurrent decoder has one attention for
      all its layers, with one head; a convolutional one has one head in each layer.

    Raises:
      ConfigError: the model attends to nothing, or the parameters are those of an ensemble.
    """
    if isinstance(params, tuple):
        raise ConfigError('attention can be shown of one checkpoint, not of an ensemble')
    with jax.default_matmul_precision(config.train.matmul_precision):
        kept = _intermediates(config, params, batch)
    if not kept:
        raise ConfigError(f'model.kind={config.model.kind!r}: this model has no attention to look at')
    found: dict[str, dict[int, np.ndarray]] = {}
    for path, weights in jax.tree_util.tree_leaves_with_path(kept):
        name = jax.tree_util.keystr(path, simple=True, separator='/')
        stack, layer, kind = re.match(r'(\w+)/(?:layer_(\d+)/)?(\w+)/', name).groups()
        found.setdefault(f'{stack}/{kind}', {})[int(layer or 0)] = np.asarray(weights[0])
    return {name: np.stack([layers[n] for n in sorted(layers)]) for name, layers in found.items()}
