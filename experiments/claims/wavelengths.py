"""The wavelengths of the sinusoids form a geometric progression from 2π to 10000 · 2π."""

import math

import numpy as np

from experiments.claims.claim import Measurements, Verdict, by_name, spread
from experiments.claims.panels import curves
from transformer.nn.positions import sinusoid

D_MODEL, LENGTH, PLACES, SEEDS = 512, 5000, 200, 3
SINUSOIDS = ('paper', 't2t')  # values of model.sinusoid
LAST = 10000 * 2 * math.pi
SOURCE = '§3.5'
CRITERION = (
    f'd_model {D_MODEL}, wavelengths measured at {PLACES} random positions: the first is 2π and the '
    'quotients of neighbours are equal, within 1e-6, and the last is 10000 · 2π within 1 %, by the equation '
    'of the paper and in the released code, with every seed'
)


def wavelengths(kind: str, places: np.ndarray) -> np.ndarray:
    """Measures 2π / (mean change of phase from a position to the next) of each pair of sine and cosine."""
    encoding = sinusoid(LENGTH, D_MODEL, kind, dtype=np.float64)
    halves = np.split(encoding, 2, axis=1)
    sine, cosine = halves if kind == 't2t' else (encoding[:, ::2], encoding[:, 1::2])
    now, then = ((sine[p], cosine[p]) for p in (places, places + 1))
    # The angle between both, from its sine and cosine.
    change = np.arctan2(then[0] * now[1] - then[1] * now[0], then[1] * now[1] + then[0] * now[0])
    return 2 * math.pi / change.mean(axis=0)


def measure(seed: int) -> dict:
    """Measures the wavelengths of both encodings."""
    places = np.random.default_rng(seed).choice(LENGTH - 1, PLACES, replace=False)
    return {kind: wavelengths(kind, places).tolist() for kind in SINUSOIDS}


def judge(measurements: Measurements) -> Verdict:
    first = by_name(measurements, lambda waves: abs(waves[0] / (2 * math.pi) - 1))
    quotients = by_name(measurements, lambda waves: np.divide(waves[1:], waves[:-1]))
    uneven = {kind: [float(np.ptp(q)) for q in values] for kind, values in quotients.items()}
    last = by_name(measurements, lambda waves: waves[-1] / LAST)
    exact = max(max(values) for by_kind in (first, uneven) for values in by_kind.values()) < 1e-6
    holds = exact and all(abs(value - 1) < 0.01 for values in last.values() for value in values)
    parts = (f'{kind} {spread(values, ".4f")}' for kind, values in last.items())
    geometric = 'geometric' if exact else 'not geometric'
    return Verdict(holds, f'{geometric}; last wavelength over 10000 · 2π: {", ".join(parts)}')


PANELS = (
    curves(
        range(D_MODEL // 2),
        'pair of dimensions',
        'wavelength',
        legend=True,
        style={'marker': ''},
        yscale='log',
    ),
)
