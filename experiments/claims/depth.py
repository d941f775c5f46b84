"""Residual connections and layer normalisation carry the gradient through a deep stack."""

import contextlib
import functools
import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.claims.claim import Measurements, Verdict, by_name, config_of, spread
from experiments.claims.panels import Panel, curves
from transformer.config import Config
from transformer.nn import models
from transformer.nn.layers import FinalNorm, Norm, Sublayer
from transformer.nn.stacks import Layer

DEPTHS = (2, 6, 12, 24)
LENGTH, ROWS, SEEDS = 16, 4, 3
MODEL = {'model.d_model': 64, 'model.d_ff': 256, 'model.h': 4}
SOURCE = '§3.1; He et al. 2016, Ba et al. 2016'
CRITERION = (
    f"an untrained encoder of {DEPTHS[-1]} layers: the gradient of the first layer's parameters over "
    f"that of the last one's, and that of all over that of an encoder of {DEPTHS[0]} layers, are between "
    '0.1 and 10 with both, LayerNorm standing after or before sub-layers; the first is below 0.01 '
    'without residual connections, the second above 10 without LayerNorm; with every seed'
)


def without_residuals(call: Callable, args: tuple, kwargs: dict, context) -> object:
    """Calls a module's method with LayerNorm(Sublayer(x)) in place of LayerNorm(x + Sublayer(x))."""
    if isinstance(context.module, Sublayer) and context.method_name == 'after':
        x, y = args
        args = (x, y - x)
    return call(*args, **kwargs)


def without_norm(call: Callable, args: tuple, kwargs: dict, context) -> object:
    """Calls a module's method with x in place of LayerNorm(x)."""
    return args[0] if isinstance(context.module, Norm) else call(*args, **kwargs)


# model.norm, and the functions that replace parts of each layer.
VARIANTS = {
    'post-norm': ('post', ()),
    'pre-norm': ('pre', ()),
    'no residuals': ('post', (without_residuals,)),
    'no LayerNorm': ('post', (without_norm,)),
    'neither': ('post', (without_residuals, without_norm)),
}


@functools.cache
def _programs(config: Config, changes: tuple[Callable, ...]) -> tuple[Callable, ...]:
    """Compiles one layer: initial parameters, outputs, gradients of v·outputs, and the final norm's gradient.

    All layers of a stack share these programs, because one program of 24 layers would compile for minutes.
    """
    layer, final = Layer(config.model, causal=False), FinalNorm(config.model)
    text = jax.tree.map(jnp.asarray, models.blank(config, ROWS, LENGTH)['source'])

    def forward(params, x):
        with contextlib.ExitStack() as stack:
            for change in changes:
                stack.enter_context(nn.intercept_methods(change))
            return layer.apply(params, x, text, train=False)

    initial = lambda key, x: layer.init(key, x, text, train=False)
    back = lambda params, x, v: jax.vjp(forward, params, x)[1](v)
    normed = lambda x: final.apply(final.init(jax.random.key(0), x), x)
    last = lambda x, v: jax.vjp(normed, x)[1](v)[0]
    return tuple(map(jax.jit, (initial, forward, back, last)))


def norms(config: Config, changes: tuple[Callable, ...], depth: int, seed: int) -> dict[str, float]:
    """Computes norms of d(v·y) by the parameters of the first, last and all layers, for a stack's outputs y.

    Inputs and v are standard normal. `different` is the distance of a row's vectors from their mean, before
    the final norm and relative to their norm.
    """
    initial, forward, back, last = _programs(config, changes)
    keys = jax.random.split(jax.random.key(seed), depth + 2)
    x, v = (jax.random.normal(key, (ROWS, LENGTH, config.model.d_model)) for key in keys[:2])
    layers = []
    for key in keys[2:]:
        layers.append((initial(key, x), x))
        x = forward(*layers[-1])
    distance = jnp.linalg.norm(x - jnp.mean(x, axis=1, keepdims=True)) / jnp.linalg.norm(x)
    v, by_layer = last(x, v), []
    for params, x in reversed(layers):
        gradient, v = back(params, x, v)
        by_layer.append(float(optax.tree.norm(gradient)))
    first, final = by_layer[-1], by_layer[0]
    return {'first': first, 'last': final, 'all': math.hypot(*by_layer), 'different': float(distance)}


def measure(seed: int) -> dict:
    """Measures the gradient norms of each variant by depth."""
    config = lambda norm: config_of(MODEL | {'model.norm': norm})
    return {
        name: {str(depth): norms(config(norm), changes, depth, seed) for depth in DEPTHS}
        for name, (norm, changes) in VARIANTS.items()
    }


def judge(measurements: Measurements) -> Verdict:
    shallow, deep = str(DEPTHS[0]), str(DEPTHS[-1])
    ratios = by_name(measurements, lambda norms: norms[deep]['first'] / norms[deep]['last'])
    growths = by_name(measurements, lambda norms: norms[deep]['all'] / norms[shallow]['all'])
    with_both = [x for name in ('post-norm', 'pre-norm') for x in (*ratios[name], *growths[name])]
    fails_without = max(ratios['no residuals']) < 0.01 and min(growths['no LayerNorm']) > 10
    holds = min(with_both) > 0.1 and max(with_both) < 10 and fails_without
    part = '{}: first over last {}, growth {}'.format
    parts = [part(name, spread(ratios[name], '.2g'), spread(growths[name], '.2g')) for name in VARIANTS]
    return Verdict(holds, '; '.join(parts))


def _panel(value: Callable, label: str, legend: bool = False) -> Panel:
    values = lambda m: {name: [value(at) for at in m[name].values()] for name in VARIANTS}
    return curves(DEPTHS, 'layers', label, values, ticks='linear', legend=legend, yscale='log')


PANELS = (
    _panel(lambda at: at['first'] / at['last'], 'gradient of the first layer / of the last', legend=True),
    _panel(lambda at: at['all'], 'norm of the gradient of all layers'),
    _panel(lambda at: at['different'], 'difference between positions'),
)
