"""The feed-forward network is two convolutions with kernel size 1: each position is alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from experiments.claims.claim import LANGUAGE_MODEL, Measurements, Verdict, config_of, spread
from experiments.claims.panels import DOTS, curves
from transformer.nn.layers import FeedForward

ROWS, LENGTH, SEEDS = 2, 12, 3
MODEL = LANGUAGE_MODEL | {'model.d_model': 32, 'model.d_ff': 64, 'model.h': 4}
ACTIVATIONS = ('relu', 'gelu', 'swish')
SOURCE = '§3.3'
CRITERION = (
    f'{LENGTH} positions, random parameters: the network differs from two convolutions of width 1 with the '
    'same parameters by less than 1e-5 of the norm, and the gradient of an output with respect to another '
    'position is exactly 0, with each activation without gates and every seed'
)


@functools.cache
def _programs(activation: str):
    """Compiles initial parameters, the network, two convolutions, and the derivatives of one number."""
    network = FeedForward(config_of(MODEL | {'model.activation': activation}).model)
    function = {
        'relu': jax.nn.relu,
        'gelu': lambda x: jax.nn.gelu(x, approximate=False),
        'swish': jax.nn.silu,
    }

    def convolve(layer, x):
        kernel = layer['kernel'][None]  # one position wide
        return jax.lax.conv_general_dilated(x, kernel, (1,), 'SAME', dimension_numbers=('NWC', 'WIO', 'NWC'))

    def convolved(params, x):
        inner = function[activation](convolve(params['inner'], x) + params['inner']['bias'][None, None])
        return convolve(params['outer'], inner) + params['outer']['bias'][None, None]

    apply = lambda params, x: network.apply({'params': params}, x, train=False)
    initial = lambda key, x: network.init(key, x, train=False)['params']
    derivatives = jax.jacrev(lambda x, params: apply(params, x)[0].sum(axis=-1))
    return tuple(map(jax.jit, (initial, apply, convolved, derivatives)))


def measure(seed: int) -> dict:
    """Measures the difference from convolutions, and the greatest gradient between different positions."""
    keys = jax.random.split(jax.random.key(seed), 3)
    x = jax.random.normal(keys[0], (ROWS, LENGTH, MODEL['model.d_model']))
    measured = {}
    for activation in ACTIVATIONS:
        initial, apply, convolved, derivatives = _programs(activation)
        # Biases begin with 0; random ones make the comparison stricter.
        shapes = initial(keys[1], x)
        leaves, tree = jax.tree.flatten(shapes)
        draws = zip(jax.random.split(keys[2], len(leaves)), leaves, strict=True)
        params = tree.unflatten([0.3 * jax.random.normal(key, leaf.shape) for key, leaf in draws])
        y = apply(params, x)
        by_place = np.linalg.norm(np.asarray(derivatives(x, params))[:, 0], axis=-1)
        measured[activation] = {
            'difference': float(jnp.linalg.norm(y - convolved(params, x)) / jnp.linalg.norm(y)),
            'own': float(np.diagonal(by_place).min()),
            'others': float((by_place - np.diag(np.diagonal(by_place))).max()),
        }
    return measured


def judge(measurements: Measurements) -> Verdict:
    of = lambda key: [m[activation][key] for m in measurements for activation in ACTIVATIONS]
    holds = max(of('difference')) < 1e-5 and max(of('others')) == 0 and min(of('own')) > 0
    difference, others = spread(of('difference'), '.1e'), spread(of('others'), 'g')
    return Verdict(holds, f'difference {difference}; gradient between positions {others}')


NUMBERS = 'mean [least, greatest] over the seeds and activations'
PANELS = (
    curves(
        ACTIVATIONS,
        '',
        'difference from two convolutions',
        lambda m: {'': [m[name]['difference'] for name in ACTIVATIONS]},
        style=DOTS,
        ylim=(0, None),
    ),
)
