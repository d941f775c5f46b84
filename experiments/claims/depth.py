"""Residual connections and LayerNorm carry the gradient through many layers, before any training."""

import contextlib
import functools
import math
from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.claims.claim import Claim, Found, Verdict, config_of, spread
from transformer.config import Config
from transformer.nn.layers import FinalNorm, Norm, Sublayer
from transformer.nn.stacks import Layer

DEPTHS = (2, 6, 12, 24)
LENGTH, ROWS, SEEDS = 16, 4, 3
MODEL = {'model.d_model': 64, 'model.d_ff': 256, 'model.h': 4}


def without_residuals(call: Callable, args: tuple, kwargs: dict, context) -> object:
    """Calls a method of a module, but LayerNorm(Sublayer(x)) for LayerNorm(x + Sublayer(x))."""
    if isinstance(context.module, Sublayer):
        x, sublayer = args
        args = (x, lambda y: sublayer(y) - x)
    return call(*args, **kwargs)


def without_norm(call: Callable, args: tuple, kwargs: dict, context) -> object:
    """Calls a method of a module, but x for LayerNorm(x)."""
    return args[0] if isinstance(context.module, Norm) else call(*args, **kwargs)


def without_both(call: Callable, args: tuple, kwargs: dict, context) -> object:
    """Calls a method of a module, but Sublayer(x) for LayerNorm(x + Sublayer(x))."""
    inner = lambda *args, **kwargs: without_norm(call, args, kwargs, context)
    return without_residuals(inner, args, kwargs, context)


# The value of model.norm, and what is taken out.
VARIANTS = {
    'post-norm': ('post', None),
    'pre-norm': ('pre', None),
    'no residuals': ('post', without_residuals),
    'no LayerNorm': ('post', without_norm),
    'neither': ('post', without_both),
}


@functools.cache
def _programs(config: Config, change: Callable | None) -> tuple[Callable, ...]:
    """Parameters of a layer, what it makes of x, and the gradients of v·that with respect to both.

    All layers of a stack share them: a program of 24 layers would take minutes to compile.
    """
    layer, final = Layer(config.model, causal=False), FinalNorm(config.model)
    segments = jnp.ones((ROWS, LENGTH), jnp.int32)
    positions = jnp.broadcast_to(jnp.arange(LENGTH), segments.shape)

    def forward(params, x):
        with nn.intercept_methods(change) if change else contextlib.nullcontext():
            return layer.apply(params, x, segments, positions, train=False)

    initial = lambda key, x: layer.init(key, x, segments, positions, train=False)
    back = lambda params, x, v: jax.vjp(forward, params, x)[1](v)
    normed = lambda x: final.apply(final.init(jax.random.key(0), x), x)
    last = lambda x, v: jax.vjp(normed, x)[1](v)[0]
    return tuple(map(jax.jit, (initial, forward, back, last)))


def norms(config: Config, change: Callable | None, depth: int, seed: int) -> dict[str, float]:
    """The norms of the gradients of v·y, for the outputs y of a stack; its inputs and v are standard normal.

    Returns:
      Those of the parameters of the first layer, of the last one, and of all. And `different`, the norm of
      what the vectors of a row differ from their mean before the final norm, over that of the vectors.
    """
    initial, forward, back, last = _programs(config, change)
    keys = jax.random.split(jax.random.key(seed), depth + 2)
    x, v = (jax.random.normal(key, (ROWS, LENGTH, config.model.d_model)) for key in keys[:2])
    layers = []
    for key in keys[2:]:
        layers.append((initial(key, x), x))
        x = forward(*layers[-1])
    different = jnp.linalg.norm(x - jnp.mean(x, axis=1, keepdims=True)) / jnp.linalg.norm(x)
    v, found = last(x, v), []
    for params, x in reversed(layers):
        gradient, v = back(params, x, v)
        found.append(float(optax.tree.norm(gradient)))
    return {'first': found[-1], 'last': found[0], 'all': math.hypot(*found), 'different': float(different)}


def measure(seed: int) -> Found:
    """The norms of every variant by depth."""
    found = {}
    for name, (norm, change) in VARIANTS.items():
        config = config_of(MODEL | {'model.norm': norm})
        found[name] = {str(depth): norms(config, change, depth, seed) for depth in DEPTHS}
    return found


def reach(one: Found, name: str) -> float:
    """The gradient of the first layer over that of the last one, in the deepest stack."""
    deepest = one[name][str(DEPTHS[-1])]
    return deepest['first'] / deepest['last']


def growth(one: Found, name: str) -> float:
    """The gradient of the deepest stack over that of the shallowest."""
    return one[name][str(DEPTHS[-1])]['all'] / one[name][str(DEPTHS[0])]['all']


def judge(found: Sequence[Found]) -> Verdict:
    """By where the gradient gets in the deepest stack, and how it grows with depth."""
    values = {
        name: {'reach': [reach(one, name) for one in found], 'growth': [growth(one, name) for one in found]}
        for name in VARIANTS
    }
    kept = [x for name in ('post-norm', 'pre-norm') for each in values[name].values() for x in each]
    holds = (
        min(kept) > 0.1
        and max(kept) < 10
        and max(values['no residuals']['reach']) < 0.01
        and min(values['no LayerNorm']['growth']) > 10
    )
    told = [
        f'{name}: first over last {spread(each["reach"], ".2g")}, growth {spread(each["growth"], ".2g")}'
        for name, each in values.items()
    ]
    return Verdict(holds, '; '.join(told))


def draw(axes: Sequence, found: Sequence[Found]) -> None:
    """First over last, the whole gradient, and how positions differ, by depth; each seed a line."""
    for i, name in enumerate(VARIANTS):
        for one in found:
            label = name if one is found[0] else None
            ratios = [at['first'] / at['last'] for at in one[name].values()]
            axes[0].plot(DEPTHS, ratios, color=f'C{i}', marker='.', label=label)
            axes[1].plot(DEPTHS, [at['all'] for at in one[name].values()], color=f'C{i}', marker='.')
            axes[2].plot(DEPTHS, [at['different'] for at in one[name].values()], color=f'C{i}', marker='.')
    axes[0].set(ylabel='gradient of the first layer / of the last')
    axes[1].set(ylabel='norm of the gradient of all layers')
    axes[2].set(ylabel='difference between positions')
    for panel in axes:
        panel.set(yscale='log', xlabel='layers')
        panel.set_xticks(DEPTHS, list(map(str, DEPTHS)))
    axes[0].legend()


CLAIM = Claim(
    statement='Residual connections and layer normalisation carry the gradient through a deep stack.',
    source='§3.1; He et al. 2016, Ba et al. 2016',
    criterion=(
        f"an untrained encoder of {DEPTHS[-1]} layers: the gradient of the first layer's parameters over "
        f"that of the last one's, and that of all over that of an encoder of {DEPTHS[0]} layers, are between "
        '0.1 and 10 with both, LayerNorm standing after or before sub-layers; the first is below 0.01 '
        'without residual connections, the second above 10 without LayerNorm; with every seed'
    ),
    seeds=SEEDS,
    measure=measure,
    judge=judge,
    draw=draw,
    panels=3,
    why=(
        'Without residual connections LayerNorm alone keeps the gradient: it scales up again whatever a '
        'sub-layer makes smaller, and only without both does the gradient vanish. But what attention and '
        'LayerNorm carry through many layers without residual connections no longer tells the positions of a '
        'row apart (right; Dong et al. 2021): the gradient arrives, and has nothing to say. Variant neither '
        'and the right picture were added after the result, to explain it.'
    ),
)
