"""An attention layer is linear in its values: only its weights, through softmax, are not linear."""

import functools

import jax
import numpy as np

from experiments.claims.claim import LANGUAGE_MODEL, Measurements, Verdict, config_of, spreads
from experiments.claims.mask import KERNELS
from experiments.claims.panels import DOTS, curves
from transformer.nn.kernels import table
from transformer.nn.kernels.kernel import AttentionInputs

LENGTH, ROWS, HEADS, WIDTH, SEEDS = 24, 4, 2, 16, 3
ARGUMENTS = ('query', 'key', 'value')
SOURCE = '§3.2.1; Katharopoulos et al. 2020'
CRITERION = (
    f'{LENGTH} positions, causal, every kernel: attention to a sum of two arrays of values, with random '
    'factors, differs from the sum of the attentions by less than 1e-5 of its norm; the same sum of two '
    'arrays of queries, or of keys, gives a difference above 0.1; with every seed'
)


@functools.cache
def _attend(kernel: str):
    changes = {'model.attention': kernel, 'model.d_model': HEADS * WIDTH, 'model.h': HEADS, **KERNELS[kernel]}
    config = config_of(LANGUAGE_MODEL | changes)
    attend = functools.partial(table.self_attention(config.model).attend, causal=True)
    segments = np.ones((ROWS, LENGTH), np.int32)
    return jax.jit(lambda query, key, value: attend(AttentionInputs(query, key, value, segments, segments)))


def differences(kernel: str, seed: int) -> dict[str, float]:
    """Measures |f(ax + by) - a f(x) - b f(y)| / |f(ax + by)|, with f a function of each argument in turn."""
    rng = np.random.default_rng(seed)
    draw = lambda: rng.normal(size=(ROWS, LENGTH, HEADS, WIDTH)).astype(np.float32)
    inputs, a, b = {name: draw() for name in ARGUMENTS}, *np.float32(rng.normal(size=2))
    measured = {}
    for name in ARGUMENTS:
        x, y = inputs[name], draw()
        f = lambda array, name=name: np.asarray(_attend(kernel)(**(inputs | {name: array})), np.float64)
        whole = f(a * x + b * y)
        measured[name] = float(np.linalg.norm(whole - a * f(x) - b * f(y)) / np.linalg.norm(whole))
    return measured


def measure(seed: int) -> dict:
    """Measures the differences of each kernel."""
    return {kernel: differences(kernel, seed) for kernel in KERNELS}


def judge(measurements: Measurements) -> Verdict:
    by_argument = {name: [m[k][name] for m in measurements for k in KERNELS] for name in ARGUMENTS}
    holds = max(by_argument['value']) < 1e-5 and min(by_argument['query'] + by_argument['key']) > 0.1
    return Verdict(holds, f'difference from linear in {spreads(by_argument, ".1e")}')


NUMBERS = 'mean [least, greatest] over the seeds and kernels'
PANELS = (
    curves(
        list(KERNELS),
        '',
        'difference from a linear function',
        lambda m: {name: [m[kernel][name] for kernel in KERNELS] for name in ARGUMENTS},
        legend=True,
        style=DOTS,
        yscale='log',
    ),
)
