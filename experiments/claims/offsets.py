"""For any fixed offset k, PE(pos + k) can be represented as a linear function of PE(pos)."""

import numpy as np

from experiments.claims.claim import Measurements, Verdict, by_name, spread
from experiments.claims.panels import curves
from transformer.nn.positions import sinusoid

D_MODEL, LENGTH, SEEDS = 512, 2048, 3
OFFSETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
SINUSOIDS = ('paper', 't2t')  # values of model.sinusoid
RANDOM = 'random'  # an encoding of independent random numbers
SOURCE = '§3.5'
CRITERION = (
    f'd_model {D_MODEL}: the best linear function, fitted at a random half of {LENGTH:,} positions, '
    f'misses the encoding at the other half by less than 1e-4 of its norm for k = 1, 2, 4 and so on up '
    f'to {OFFSETS[-1]}, with the sinusoid of the paper and that of the released code (both in float32); '
    'it misses a random encoding by more than 0.5; with every seed'
)


def table(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Returns the encoding of every position, up to the greatest offset beyond `LENGTH`."""
    length = LENGTH + max(OFFSETS)
    if kind == RANDOM:
        # With the variance of sines and cosines.
        return rng.normal(0.0, 0.5**0.5, (length, D_MODEL))
    return sinusoid(length, D_MODEL, kind).astype(np.float64)


def residuals(encoding: np.ndarray, rng: np.random.Generator) -> dict[str, float]:
    """Computes the relative distance of PE(pos + k) from the best linear function of PE(pos), by k.

    The function is fitted by least squares to a random half of the positions, and tested at the others.
    """
    places = rng.permutation(LENGTH)
    fitted, tested = np.sort(places[: LENGTH // 2]), np.sort(places[LENGTH // 2 :])
    inverse = np.linalg.pinv(encoding[fitted])
    relative = {}
    for k in OFFSETS:
        linear, exact = inverse @ encoding[fitted + k], encoding[tested + k]
        distance = np.linalg.norm(encoding[tested] @ linear - exact)
        relative[str(k)] = float(distance / np.linalg.norm(exact))
    return relative


def measure(seed: int) -> dict:
    """Measures the residuals of both sinusoids and of a random encoding."""
    rng = np.random.default_rng(seed)
    return {kind: residuals(table(kind, rng), rng) for kind in (*SINUSOIDS, RANDOM)}


def judge(measurements: Measurements) -> Verdict:
    greatest = by_name(measurements, lambda residuals: max(residuals.values()))
    least = by_name(measurements, lambda residuals: min(residuals.values()))[RANDOM]
    holds = all(max(greatest[kind]) < 1e-4 for kind in SINUSOIDS) and min(least) > 0.5
    parts = [f'greatest residual, {kind}: {spread(greatest[kind], ".1e")}' for kind in SINUSOIDS]
    return Verdict(holds, '; '.join([*parts, f'least of a random encoding: {spread(least, ".2f")}']))


PANELS = (curves(OFFSETS, 'offset k, positions', 'residual', ticks='log', legend=True, yscale='log'),)
