"""Attention is a kernel smoother: with keys of one length its weights are a Gaussian kernel of the distance
between query and key."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.claims.claim import Measurements, Verdict, spread
from experiments.claims.panels import curves
from transformer.nn.kernels import full
from transformer.nn.kernels.kernel import AttentionInputs

SCALES = (1, 4, 16, 64)
KEYS, WIDTH, SEEDS = 64, 16, 3
ONE, ANY = LENGTHS = ('one length', 'any length')
SOURCE = 'Nadaraya 1964, Watson 1964; Tsai et al. 2019'
CRITERION = (
    f'{KEYS} random keys and queries of {WIDTH} numbers, softmax(scale q·k) with scales from {SCALES[0]} to '
    f'{SCALES[-1]}: half the sum of differences between the weights and the normalised kernel '
    'exp(-scale |q - k|²/2) is below 1e-4 if all keys have the norm 1, and above 0.1 on average at every '
    'scale if their norms are random; with every seed'
)


@jax.jit
def _weights(query: jax.Array, key: jax.Array) -> jax.Array:
    segments = jnp.ones((1, KEYS), jnp.int32)
    return full.weights(AttentionInputs(query, key, key, segments, segments), causal=False)


def differences(lengths: str, scale: float, rng: np.random.Generator) -> np.ndarray:
    """Computes for each query the total variation distance between its weights and the kernel's."""
    queries, keys = rng.normal(size=(2, KEYS, WIDTH))
    norms = lambda x: np.linalg.norm(x, axis=-1, keepdims=True)
    # On average the norm is about 1 in both cases.
    keys = keys / (norms(keys) if lengths == ONE else WIDTH**0.5)
    queries = queries / norms(queries)
    logits = -scale * np.sum(np.square(queries[:, None] - keys), axis=-1) / 2
    kernel = np.exp(logits - logits.max(axis=-1, keepdims=True))
    kernel /= kernel.sum(axis=-1, keepdims=True)
    heads = lambda x: x[None, :, None].astype(np.float32)
    # Attention divides by sqrt(d_k).
    weights = np.asarray(_weights(heads(queries * scale * WIDTH**0.5), heads(keys)))[0, 0]
    return np.abs(weights - kernel).sum(axis=-1) / 2


def measure(seed: int) -> dict:
    """Measures the greatest and the mean difference by the keys' lengths and the scale."""
    measured = {}
    for lengths in LENGTHS:
        found = [differences(lengths, scale, np.random.default_rng(seed)) for scale in SCALES]
        measured[lengths] = {
            'greatest': [float(x.max()) for x in found],
            'mean': [float(x.mean()) for x in found],
        }
    return measured


def judge(measurements: Measurements) -> Verdict:
    one = [max(m[ONE]['greatest']) for m in measurements]
    any_length = [min(m[ANY]['mean']) for m in measurements]
    return Verdict(
        max(one) < 1e-4 and min(any_length) > 0.1,
        f'keys of one length: greatest difference {spread(one, ".1e")}; of any length: least mean '
        f'{spread(any_length, ".2f")}',
    )


PANELS = (
    curves(
        SCALES,
        'scale',
        'mean difference from the kernel',
        lambda m: {name: at['mean'] for name, at in m.items()},
        ticks='log',
        legend=True,
        yscale='log',
    ),
)
