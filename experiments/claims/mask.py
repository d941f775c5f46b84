"""Masking keeps the prediction of a position from depending on later ones."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.scale import SymmetricalLogScale

from experiments.claims.claim import LANGUAGE_MODEL, Measurements, Verdict, config_of, spread
from experiments.claims.panels import DOTS, curves
from transformer.config import Config
from transformer.nn import models
from transformer.nn.stacks import Stack

LENGTH, SEEDS = 24, 5
# Windows, strides and chunks are shorter than the row and do not divide it.
KERNELS = {
    'full': {},
    'local': {'model.attention_window': 5},
    'sparse': {'model.attention_stride': 5},
    'linear': {'model.attention_chunk': 5},
    'chunked': {'model.attention_chunk': 5},
}
MODEL = LANGUAGE_MODEL | {'model.N': 2, 'model.d_model': 32, 'model.d_ff': 64, 'model.h': 2}
MASKS = ('causal', 'no mask')
SOURCE = '§3.1, §3.2.3'
CRITERION = (
    f'{MODEL["model.N"]} layers, {LENGTH} positions, untrained: the gradient of any output with respect '
    'to any later input is exactly 0 with the mask, and the greatest of them is above 0.01 without it; '
    'the greatest with respect to other inputs is above 0.01 with the mask; with every kernel and seed'
)


def norms(config: Config, mask: str, seed: int) -> np.ndarray:
    """Computes the norms [i j] of d(v·y[i]) / dx[j] for outputs y, inputs x and a random unit vector v.

    Outputs stand in for logits, which are a linear function of the output at their position.
    """
    keys = jax.random.split(jax.random.key(seed), 3)
    x = jax.random.normal(keys[0], (1, LENGTH, config.model.d_model))
    v = jax.random.normal(keys[1], (config.model.d_model,))
    jacobian = _jacobian(config, mask, keys[2], x, v / jnp.linalg.norm(v))
    return np.linalg.norm(np.asarray(jacobian)[:, 0], axis=-1)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _jacobian(config: Config, mask: str, key: jax.Array, x: jax.Array, v: jax.Array) -> jax.Array:
    """Computes the derivatives."""
    m = config.model
    text = jax.tree.map(jnp.asarray, models.blank(config, 1, LENGTH)['text'])
    stack = Stack(m, m.N, causal=mask == 'causal')
    variables = stack.init(key, x, text, train=False)
    projected = lambda x: stack.apply(variables, x, text, train=False)[0] @ v
    return jax.jacrev(projected)(x)


def measure(seed: int) -> dict:
    """Measures the greatest norm at later and at other positions, by kernel, with and without the mask."""

    def greatest(config: Config, mask: str) -> dict[str, float]:
        by_place = norms(config, mask, seed)
        later = np.triu(by_place, 1)
        return {'later': float(later.max()), 'others': float((by_place - later).max())}

    configs = {name: config_of(MODEL | {'model.attention': name, **KERNELS[name]}) for name in KERNELS}
    return {name: {mask: greatest(config, mask) for mask in MASKS} for name, config in configs.items()}


def judge(measurements: Measurements) -> Verdict:
    greatest = lambda mask, place: [m[name][mask][place] for m in measurements for name in KERNELS]
    masked, unmasked = later = [greatest(mask, 'later') for mask in MASKS]
    holds = max(masked) == 0 and min(greatest('causal', 'others')) > 0.01 and min(unmasked) > 0.01
    parts = zip(MASKS, later, strict=True)
    text = [f'gradient at later positions, {mask}: {spread(values, ".2g")}' for mask, values in parts]
    return Verdict(holds, '; '.join(text))


NUMBERS = 'mean [least, greatest] over the seeds and kernels'
PANELS = (
    curves(
        list(KERNELS),
        '',
        'gradient at later positions',
        lambda m: {mask: [m[name][mask]['later'] for name in KERNELS] for mask in MASKS},
        legend=True,
        style=DOTS,
        yscale=SymmetricalLogScale(None, linthresh=1e-3),
        ylim=(-2e-4, 10),
    ),
)
