"""Attention is a dictionary that can be differentiated: with large enough products of queries and keys
it returns exactly the value of the nearest key."""

import jax
import numpy as np

from experiments.claims.claim import Measurements, Verdict, by_name, spread
from experiments.claims.panels import Panel, curves
from transformer.nn.kernels import full
from transformer.nn.kernels.kernel import AttentionInputs

SCALES = (1, 4, 16, 64, 256, 1024)
KEYS, WIDTH, VALUES, SEEDS = 64, 16, 8, 3
SIMILARITIES = ('cosine', 'dot')
SOURCE = '§3.2; Graves et al. 2014, §3.3.1'
CRITERION = (
    f'{KEYS} random keys of {WIDTH} numbers, each asked for by itself, softmax(scale q·k): by cosine '
    f'similarity with the scale {SCALES[-1]} every value is returned within 1e-5 of its norm, and with the '
    f'scale {SCALES[0]} none within 0.5; by dot product with the scale {SCALES[-1]} more than 0.9 of '
    'them are returned within 1e-5, and of those that are not, every one has a longer key with a '
    'greater product; with every seed'
)


@jax.jit
def _attend(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    segments = np.ones((1, KEYS), np.int32)
    return full.attend(AttentionInputs(query, key, value, segments, segments), causal=False)


def errors(similarity: str, scale: float, rng: np.random.Generator) -> dict[str, list]:
    """Measures for each key the relative error of the value it returns, and whether it is its own nearest."""
    keys = rng.normal(size=(KEYS, WIDTH)).astype(np.float32)
    values = rng.normal(size=(KEYS, VALUES)).astype(np.float32)
    if similarity == 'cosine':
        keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    # Attention divides by sqrt(d_k).
    queries = keys * np.float32(scale * WIDTH**0.5)
    heads = lambda x: x[None, :, None]
    read = np.asarray(_attend(heads(queries), heads(keys), heads(values)))[0, :, 0]
    error = np.linalg.norm(read - values, axis=-1) / np.linalg.norm(values, axis=-1)
    nearest = (keys @ keys.T).argmax(axis=-1) == np.arange(KEYS)
    return {'error': error.tolist(), 'nearest': nearest.tolist()}


def measure(seed: int) -> dict:
    """Measures the errors by similarity and scale, with the same keys and values at each scale."""
    at = lambda name, scale: errors(name, scale, np.random.default_rng(seed))
    return {name: {str(scale): at(name, scale) for scale in SCALES} for name in SIMILARITIES}


def judge(measurements: Measurements) -> Verdict:
    soft, hard = str(SCALES[0]), str(SCALES[-1])
    greatest = by_name(measurements, lambda at: max(at[hard]['error']))['cosine']
    least = by_name(measurements, lambda at: min(at[soft]['error']))['cosine']
    exact = [np.array(m['dot'][hard]['error']) < 1e-5 for m in measurements]
    nearest = [np.array(m['dot'][hard]['nearest']) for m in measurements]
    shares = [float(found.mean()) for found in exact]
    explained = all((found | ~own).all() for found, own in zip(exact, nearest, strict=True))
    return Verdict(
        max(greatest) < 1e-5 and min(least) > 0.5 and min(shares) > 0.9 and explained,
        f'cosine: greatest error {spread(greatest, ".1e")}, least with scale {soft} {spread(least, ".2f")}; '
        f'dot: exact {spread(shares, ".3f")}',
    )


def _panel(similarity: str) -> Panel:
    values = lambda m: {
        name: [float(function(at['error'])) for at in m[similarity].values()]
        for name, function in (('greatest', np.max), ('median', np.median))
    }
    options = {'yscale': 'symlog', 'title': similarity}
    return curves(SCALES, 'scale', 'error of the value', values, ticks='log', legend=True, **options)


PANELS = tuple(map(_panel, SIMILARITIES))
