"""Computes a model's first parameters and its outputs as one program each; op by op, a hundred compile."""

import functools

import jax

from transformer.config import Config
from transformer.nn import models
from transformer.tokens import Batch

initialize = jax.jit(models.initialize, static_argnums=0)


@functools.partial(jax.jit, static_argnames=('config', 'method'))
def apply(config: Config, params: models.Params, batch: Batch, method: str | None = None):
    """Computes what a model's call returns outside training, or what another method returns."""
    how = {'method': method} if method else {'train': False}
    return models.build(config).apply({'params': params}, batch, **how)
