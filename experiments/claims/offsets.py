"""PE(pos + k) is a linear function of PE(pos) for every fixed k, the same one at every position."""

from collections.abc import Sequence

import numpy as np

from experiments.claims.claim import Claim, Found, Verdict, spread
from transformer.nn.positions import sinusoid

D_MODEL, LENGTH, SEEDS = 512, 2048, 3
OFFSETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
SINUSOIDS = ('paper', 't2t')  # values of model.sinusoid
RANDOM = 'random'  # an encoding of which no part follows from another


def table(kind: str, draw: np.random.Generator) -> np.ndarray:
    """The encoding of every position, and of those that the offsets reach."""
    length = LENGTH + max(OFFSETS)
    if kind == RANDOM:
        # As large as sines and cosines.
        return draw.normal(0.0, 0.5**0.5, (length, D_MODEL))
    return sinusoid(length, D_MODEL, kind).astype(np.float64)


def residuals(encoding: np.ndarray, draw: np.random.Generator) -> dict[str, float]:
    """How far PE(pos + k) is from the best linear function of PE(pos), relative to its norm, by k.

    The function is fitted by least squares at a random half of the positions, and tested at the others.
    """
    places = draw.permutation(LENGTH)
    fitted, tested = np.sort(places[: LENGTH // 2]), np.sort(places[LENGTH // 2 :])
    inverse = np.linalg.pinv(encoding[fitted])
    found = {}
    for k in OFFSETS:
        linear = inverse @ encoding[fitted + k]
        expected = encoding[tested + k]
        missed = np.linalg.norm(encoding[tested] @ linear - expected)
        found[str(k)] = float(missed / np.linalg.norm(expected))
    return found


def measure(seed: int) -> Found:
    """The residuals of both sinusoids and of a random encoding."""
    draw = np.random.default_rng(seed)
    return {kind: residuals(table(kind, draw), draw) for kind in (*SINUSOIDS, RANDOM)}


def judge(found: Sequence[Found]) -> Verdict:
    """By the offset with the greatest residual, of the random encoding with the least."""
    greatest = {kind: [max(one[kind].values()) for one in found] for kind in SINUSOIDS}
    least = [min(one[RANDOM].values()) for one in found]
    holds = max(max(values) for values in greatest.values()) < 1e-4 and min(least) > 0.5
    told = [f'greatest residual, {kind}: {spread(values, ".1e")}' for kind, values in greatest.items()]
    return Verdict(holds, '; '.join([*told, f'least of a random encoding: {spread(least, ".2f")}']))


def draw(axes: Sequence, found: Sequence[Found]) -> None:
    """The residual by offset, each seed a line."""
    for i, kind in enumerate((*SINUSOIDS, RANDOM)):
        for one in found:
            label = kind if one is found[0] else None
            axes[0].plot(OFFSETS, list(one[kind].values()), color=f'C{i}', marker='.', label=label)
    axes[0].set(xscale='log', yscale='log', xlabel='offset k, positions', ylabel='residual')
    axes[0].set_xticks(OFFSETS, list(map(str, OFFSETS)))
    axes[0].minorticks_off()
    axes[0].legend()


CLAIM = Claim(
    statement='For any fixed offset k, PE(pos + k) can be represented as a linear function of PE(pos).',
    source='§3.5',
    criterion=(
        f'd_model {D_MODEL}: the best linear function, fitted at a random half of {LENGTH:,} positions, '
        f'misses the encoding at the other half by less than 1e-4 of its norm for k = 1, 2, 4 and so on up '
        f'to {OFFSETS[-1]}, with the sinusoid of the paper and that of the released code (both in float32); '
        'it misses a random encoding by more than 0.5; with every seed'
    ),
    seeds=SEEDS,
    measure=measure,
    judge=judge,
    draw=draw,
)
