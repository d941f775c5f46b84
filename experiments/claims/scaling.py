"""Dividing by sqrt(d_k) keeps softmax out of saturation: entropy and gradient by the width of keys."""

import functools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from experiments.claims.claim import Claim, Found, Verdict, spread
from transformer.nn.kernels import full
from transformer.nn.kernels.kernel import Rows

# From small to the paper's widest head, that of row A1 in Table 3.
WIDTHS = (4, 16, 64, 128, 512)
ROWS, KEYS, VALUES, SEEDS = 16, 64, 64, 5
# What queries are multiplied by before attention, which divides by sqrt(d_k) in any case.
FACTORS = {'divided': lambda width: 1.0, 'not divided': math.sqrt}


@functools.cache
def _attended(width: int) -> Callable:
    """The weights of queries, and the gradients of u·output with respect to what softmax takes."""

    def one(query, key, value, u):
        segments = jnp.ones(key.shape[:2], jnp.int32)

        def projected(added):
            # A bias is added to q·k, before the division.
            bias = added * math.sqrt(width)
            found = full.attend(Rows(query, key, value, segments, segments, bias), causal=False)
            return jnp.sum(found * u)

        weights = full.weights(Rows(query, key, value, segments, segments), causal=False)
        return weights, jax.grad(projected)(jnp.zeros(weights.shape))

    return jax.jit(one)


def saturation(width: int, factor: float, seed: int) -> dict[str, float]:
    """The mean entropy of the weights, as a share of the greatest, and the median norm of the gradient.

    Queries, keys and values are standard normal, as in the paper's footnote 4; u is a random unit vector for
    every query.
    """
    keys = jax.random.split(jax.random.key(seed), 4)
    query, key = (jax.random.normal(keys[i], (ROWS, KEYS, 1, width)) for i in range(2))
    value, u = (jax.random.normal(keys[i], (ROWS, KEYS, 1, VALUES)) for i in (2, 3))
    u = u / jnp.linalg.norm(u, axis=-1, keepdims=True)
    weights, gradient = (np.asarray(x, np.float64) for x in _attended(width)(query * factor, key, value, u))
    entropy = -np.sum(weights * np.log(np.where(weights > 0, weights, 1.0)), axis=-1)
    norms = np.linalg.norm(gradient, axis=-1)
    return {'entropy': float(np.mean(entropy) / math.log(KEYS)), 'gradient': float(np.median(norms))}


def measure(seed: int) -> Found:
    """Both by width, with the division and without it."""
    return {
        name: {str(width): saturation(width, factor(width), seed) for width in WIDTHS}
        for name, factor in FACTORS.items()
    }


def kept(one: Found, name: str, quantity: str) -> float:
    """What the widest keys keep of the entropy or gradient that the narrowest have."""
    return one[name][str(WIDTHS[-1])][quantity] / one[name][str(WIDTHS[0])][quantity]


def judge(found: Sequence[Found]) -> Verdict:
    """By the share of both that is kept."""
    told, holds = [], True
    for quantity in ('entropy', 'gradient'):
        shares = {name: [kept(one, name, quantity) for one in found] for name in FACTORS}
        holds &= min(shares['divided']) > 0.5 and max(shares['not divided']) < 0.1
        told += [f'{quantity} kept, {name}: {spread(values, ".3f")}' for name, values in shares.items()]
    return Verdict(holds, '; '.join(told))


def draw(axes: Sequence, found: Sequence[Found]) -> None:
    """Entropy and gradient by width, each seed a line."""
    for i, name in enumerate(FACTORS):
        for one in found:
            label = name if one is found[0] else None
            for panel, quantity in zip(axes, ('entropy', 'gradient'), strict=True):
                values = [at[quantity] for at in one[name].values()]
                panel.plot(WIDTHS, values, color=f'C{i}', marker='.', label=label)
    axes[0].set(ylim=(0, 1.05), ylabel='entropy of the weights / log(keys)')
    axes[1].set(yscale='log', ylabel='median norm of the gradient')
    for panel in axes:
        panel.set(xscale='log', xlabel='d_k')
        panel.set_xticks(WIDTHS, list(map(str, WIDTHS)))
        panel.minorticks_off()
    axes[0].legend()


CLAIM = Claim(
    statement=(
        'Large dot products push softmax to where its gradients are extremely small; dividing them by '
        'sqrt(d_k) counters it.'
    ),
    source='§3.2.1',
    criterion=(
        f'from d_k = {WIDTHS[0]} to {WIDTHS[-1]}, {KEYS} keys: mean entropy of the weights and median '
        'gradient with respect to what softmax takes both keep more than half with the division and less '
        'than a tenth without it, with every seed'
    ),
    seeds=SEEDS,
    measure=measure,
    judge=judge,
    draw=draw,
    panels=2,
)
