"""Large dot products push softmax to where its gradients are extremely small;
dividing them by sqrt(d_k) counters it."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from experiments.claims.claim import Measurements, Verdict, by_name, spread
from experiments.claims.panels import Panel, curves
from transformer.nn.kernels import full
from transformer.nn.kernels.kernel import AttentionInputs

# From small to the paper's widest head, in row A1 of Table 3.
WIDTHS = (4, 16, 64, 128, 512)
ROWS, KEYS, VALUES, SEEDS = 16, 64, 64, 5
# Multiplies the queries before attention, which always divides by sqrt(d_k).
FACTORS = {'divided': lambda width: 1.0, 'not divided': math.sqrt}
SOURCE = '§3.2.1'
CRITERION = (
    f'from d_k = {WIDTHS[0]} to {WIDTHS[-1]}, {KEYS} keys: mean entropy of the weights and median '
    'gradient with respect to what softmax takes both keep more than half with the division and less '
    'than a tenth without it, with every seed'
)


@jax.jit
def _attended(query, key, value, u):
    """Computes attention's weights, and the gradients of u·output with respect to softmax's input."""
    segments = jnp.ones(key.shape[:2], jnp.int32)

    def projected(added):
        # A bias is added to q·k, before the division.
        bias = added * math.sqrt(query.shape[-1])
        outputs = full.attend(AttentionInputs(query, key, value, segments, segments, bias), causal=False)
        return jnp.sum(outputs * u)

    weights = full.weights(AttentionInputs(query, key, value, segments, segments), causal=False)
    return weights, jax.grad(projected)(jnp.zeros(weights.shape))


def saturation(width: int, factor: float, seed: int) -> dict[str, float]:
    """Computes the weights' mean entropy as a share of its maximum, and the median norm of the gradient.

    Queries, keys and values are standard normal, as in the paper's footnote 4; each query has a random unit
    vector u.
    """
    keys = jax.random.split(jax.random.key(seed), 4)
    query, key = (jax.random.normal(keys[i], (ROWS, KEYS, 1, width)) for i in range(2))
    value, u = (jax.random.normal(keys[i], (ROWS, KEYS, 1, VALUES)) for i in (2, 3))
    u = u / jnp.linalg.norm(u, axis=-1, keepdims=True)
    weights, gradient = (np.asarray(x, np.float64) for x in _attended(query * factor, key, value, u))
    entropy = -np.sum(weights * np.log(np.where(weights > 0, weights, 1.0)), axis=-1)
    norms = np.linalg.norm(gradient, axis=-1)
    return {'entropy': float(np.mean(entropy) / math.log(KEYS)), 'gradient': float(np.median(norms))}


def measure(seed: int) -> dict:
    """Measures entropy and gradient by width, with and without the division."""
    return {
        name: {str(width): saturation(width, factor(width), seed) for width in WIDTHS}
        for name, factor in FACTORS.items()
    }


def judge(measurements: Measurements) -> Verdict:
    narrow, wide = str(WIDTHS[0]), str(WIDTHS[-1])
    parts, holds = [], True
    for key in ('entropy', 'gradient'):
        shares = by_name(measurements, lambda at: at[wide][key] / at[narrow][key])
        holds &= min(shares['divided']) > 0.5 and max(shares['not divided']) < 0.1
        parts += [f'{key} kept, {name}: {spread(values, ".3f")}' for name, values in shares.items()]
    return Verdict(holds, '; '.join(parts))


def _panel(key: str, label: str, **options) -> Panel:
    values = lambda m: {name: [at[key] for at in m[name].values()] for name in FACTORS}
    return curves(WIDTHS, 'd_k', label, values, ticks='log', **options)


PANELS = (
    _panel('entropy', 'entropy of the weights / log(keys)', legend=True, ylim=(0, 1.05)),
    _panel('gradient', 'median norm of the gradient', yscale='log'),
)
