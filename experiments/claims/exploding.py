"""The gradient of a linear recurrence vanishes or explodes as a power of its spectral radius;
clipping bounds it."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.claims.claim import OVER_SEEDS, Measurements, Verdict, spread
from experiments.claims.panels import curves

RADII = (0.5, 0.7, 0.9, 1.0, 1.1, 1.3, 1.5)
WIDTH, ROWS, SEEDS = 64, 32, 3
NEAR, FAR = 100, 400  # the distances between which the gradient's growth per step is measured
LIMIT = 1.0
SOURCE = 'Hochreiter 1991; Pascanu et al. 2013'
CRITERION = (
    f'h_t = W h_(t-1) + x_t with a random W of {WIDTH} x {WIDTH}: from {NEAR} to {FAR} steps back the '
    'logarithm of the gradient grows per step by log r within 10 %, where r is the spectral radius, 0.5 '
    f'to 1.5, and by less than 0.01 in size for r = 1; clipped to {LIMIT:g}, no gradient of W has a '
    'greater norm, and those that were greater have it within 1e-6; with every seed'
)


def _projected(w: jax.Array, inputs: jax.Array, v: jax.Array) -> jax.Array:
    """Computes v·h for the last state h."""
    step = lambda state, x: (state @ w.T + x, None)
    last, _ = jax.lax.scan(step, jnp.zeros_like(v), inputs)
    return jnp.sum(last * v)


# d(v·h) / dW and, by step, d(v·h) / dx.
_gradients = jax.jit(jax.grad(_projected, argnums=(0, 1)))


def growth(radius: float, seed: int) -> dict[str, float]:
    """Measures the gradient's growth per step, and the norm of W's gradient before and after clipping."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(WIDTH, WIDTH))
    w *= radius / np.abs(np.linalg.eigvals(w)).max()
    inputs, v = rng.normal(size=(FAR + 1, ROWS, WIDTH)), rng.normal(size=(ROWS, WIDTH))
    # Float64, because 0.5^400 underflows in float32.
    with jax.enable_x64(True):
        of_w, of_inputs = jax.tree.map(np.asarray, _gradients(w, inputs, v))
        clip = optax.clip_by_global_norm(LIMIT)
        clipped, _ = clip.update(of_w, clip.init(of_w))
        norms = [float(np.linalg.norm(np.asarray(x))) for x in (of_w, clipped)]
    by_distance = np.linalg.norm(of_inputs[::-1], axis=(1, 2))
    rate = math.log(by_distance[FAR] / by_distance[NEAR]) / (FAR - NEAR)
    return {'rate': rate, 'norm': norms[0], 'clipped': norms[1]}


def measure(seed: int) -> dict:
    """Measures the growth for each spectral radius."""
    return {str(radius): growth(radius, seed) for radius in RADII}


def judge(measurements: Measurements) -> Verdict:
    misses, neutral, excess = [], [], []
    for measured in measurements:
        for radius, found in measured.items():
            exact = math.log(float(radius))
            if exact:
                misses.append(abs(found['rate'] / exact - 1))
            else:
                neutral.append(found['rate'])
            excess.append(found['clipped'] / min(found['norm'], LIMIT) - 1)
    holds = max(misses) < 0.1 and max(map(abs, neutral)) < 0.01 and max(map(abs, excess)) < 1e-6
    norms = [max(found['norm'] for found in measured.values()) for measured in measurements]
    return Verdict(
        holds,
        f'greatest relative miss of log r {max(misses):.3f}; growth for r = 1 {spread(neutral, "+.4f")}; '
        f'greatest norm {spread(norms, ".1e")}, clipped {LIMIT:g} within {max(map(abs, excess)):.0e}',
    )


NUMBERS = f'{OVER_SEEDS}; of misses and clipped norms the greatest'
PANELS = (
    curves(
        RADII,
        'spectral radius',
        'growth of log gradient per step',
        lambda m: {'measured': [at['rate'] for at in m.values()], 'log r': [math.log(r) for r in RADII]},
        legend=True,
    ),
    curves(
        RADII,
        'spectral radius',
        'norm of the gradient of W',
        lambda m: {key: [at[key] for at in m.values()] for key in ('norm', 'clipped')},
        legend=True,
        yscale='log',
    ),
)
