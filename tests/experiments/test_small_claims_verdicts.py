"""Verdicts of the claims about small models and single layers."""

import numpy as np
import pytest

from experiments.claims import (
    additive,
    averaging,
    batch_norm,
    composition,
    content,
    convolution,
    dropout,
    ensemble,
    exploding,
    few_shot,
    grid,
    horizon,
    inductive_bias,
    lookup,
    mask,
    negatives,
    noise_scale,
    pieces,
    power_law,
    rank,
    recall,
    rotary,
    similarity,
    smoother,
    tied,
    values,
    wavelengths,
)
from experiments.claims import distance as distance_claim
from experiments.claims import distance_bias as bias_claim


def of_exploding(rate=0.0, clipped=1.0, neutral=0.001):
    exact = {str(r): {'rate': np.log(r) * (1 + rate) if r != 1 else neutral} for r in exploding.RADII}
    return {r: at | {'norm': 2.0, 'clipped': clipped} for r, at in exact.items()}


def of_inductive_bias(few=5.0, many=2.0):
    ahead = dict(zip(map(str, inductive_bias.PICTURES), (few, 0.0, many), strict=True))
    network = {count: 50 + points for count, points in ahead.items()}
    return {inductive_bias.NETWORK: network, inductive_bias.TRANSFORMER: dict.fromkeys(ahead, 50)}


def of_composition(towers=(60, 90, 70), decoder=(80, 90, 70)):
    shares = {composition.TOWERS: towers, composition.DECODER: decoder}
    return {name: dict(zip(composition.CHANGES, of, strict=True)) for name, of in shares.items()}


def of_values(value=1e-8, query=0.5, key=0.5):
    return dict.fromkeys(mask.KERNELS, {'query': query, 'key': key, 'value': value})


def of_lookup(hard=0.0, soft=0.9, wrong=0, nearest=False):
    errors = [0.5] * wrong + [0.0] * (64 - wrong)
    dot = {'error': errors, 'nearest': [nearest] * wrong + [True] * (64 - wrong)}
    cosine = {'1': {'error': [soft, 1.0]}, '1024': {'error': [0.0, hard]}}
    return {'cosine': cosine, 'dot': {'1': dot, '1024': dot}}


def of_batch_norm(layer=0.0, small=0.1, losses=(1.0, 0.5)):
    at = lambda change, loss: {'change': change, 'loss': loss, 'losses': []}
    name = 'batch normalisation, {} rows'.format
    return {'LayerNorm': at(layer, 2.0), name(2): at(small, losses[0]), name(64): at(0.1, losses[1])}


def of_distance(*layers):
    return {'layers': list(layers), 'even': 6.0}


def of_bias(near=1.0, far=1.0):
    return {'alibi': [1.0] * 16, 'buckets': [near] * 4 + [far] * 12}


def of_horizon(*horizons):
    at = lambda longest: {str(lag): float(lag <= longest) for lag in horizon.LAGS}
    return dict(zip(recall.LAYERS, map(at, horizons), strict=True))


def of_ensemble(one, together, wide):
    losses = dict(zip(ensemble.NAMES, (one, together, wide), strict=True))
    return {'loss': losses, 'parameters': dict(zip(ensemble.NAMES, (1, 3, 3), strict=True))}


def of_tied(one, two, parameters=(1, 2)):
    return {
        name: {'loss': loss, 'parameters': count}
        for name, loss, count in zip(tied.VALUES, (one, two), parameters, strict=True)
    }


def of_dropout(few, many):
    best = lambda rate: {str(r): 1.0 + abs(r - rate) for r in dropout.RATES}
    return {'300': best(few), '12000': best(many)}


def of_similarity(means=(0.9, 0.5), range_=0.0, plain=-0.9, projected=0.0):
    return {'mean': list(means), 'range': [0.0, range_], 'plain': plain, 'projected': projected}


def of_rotary(rotated=0.0, added=0.5, means=(0.9, 0.5)):
    at = lambda means, range_: {'mean': list(means), 'range': [0.0, range_]}
    return {'rotated': at(means, rotated), 'added': at((1, 1), added)}


def of_smoother(one=0.0, any_length=0.2):
    lengths = zip(smoother.LENGTHS, (one, any_length), strict=True)
    return {name: {'greatest': [0.0, x], 'mean': [0.5, x]} for name, x in lengths}


def of_wavelengths(last=1.0, first=1.0, bend=1.0):
    waves = 2 * np.pi * np.geomspace(1.0, 10000.0 * last, 4) * [first, 1, bend, 1]
    return {'paper': waves.tolist(), 't2t': (2 * np.pi * np.geomspace(1.0, 10000.0, 4)).tolist()}


def of_convolution(difference=0.0, others=0.0):
    good = {'difference': 0.0, 'own': 1.0, 'others': 0.0}
    one = good | {'difference': difference, 'others': others}
    return dict.fromkeys(convolution.ACTIVATIONS, good) | {'gelu': one}


def of_additive(seconds, mib):
    at = lambda seconds, mib: {str(n): {'seconds': seconds, 'MiB': mib} for n in additive.LENGTHS}
    return {'dot': at(1.0, 2.0), 'additive': at(seconds, 2 * mib)}


def of_few_shot(recalled=0.95, applied=0.95, apart=100, one=0.4):
    """Recall of two layers passes one half at update 600, and copying `apart` updates later."""
    from_update = lambda first, value: [value if step >= first else 0.1 for step in few_shot.STEPS]
    half = few_shot.PAIRS // 2
    two = {'recalled': from_update(600, recalled), 'copying': from_update(600 + apart, 0.6)}
    two['applied'] = [0.0] * half + [applied] * half
    single = {'recalled': [one] * len(few_shot.STEPS), 'copying': two['copying'], 'applied': two['applied']}
    return dict(zip(few_shot.LAYERS, (single, two), strict=True))


def of_power_law(size=0.0, data=0.0):
    """Laws, nearly, but for the largest."""
    x = [1000, 2000, 4000, 8000, 16_000, 32_000]
    of = lambda more: (
        [1 + (n / 1000) ** -0.5 + 0.001 * (-1) ** i for i, n in enumerate(x[:-1])] + [1.177 + more]
    )
    return {kind: {'x': x, 'bits': of(more)} for kind, more in {'size': size, 'data': data}.items()}


# A claim's module, a measurement of one seed, what holds, and what does not.
JUDGED = [
    (exploding, of_exploding, [(), (0.09,)], [(0.11,), (-0.2,), (0.0, 1.1), (0.0, 0.9), (0.0, 1.0, -0.02)]),
    (values, of_values, [(), (1e-6, 0.2, 0.2)], [(1e-4,), (0.0, 0.05), (0.0, 0.5, 0.05)]),
    (lookup, of_lookup, [(), (0.0, 0.9, 3)], [(1e-4,), (0.0, 0.4), (0.0, 0.9, 10), (0.0, 0.9, 3, True)]),
    (batch_norm, of_batch_norm, [(), (0.0, 0.02)], [(1e-30,), (0.0, 0.0), (0.0, 0.1, (0.4, 0.5))]),
    (averaging, lambda last, mean: {'last': last, 'mean': mean}, [(2, 1)], [(2, 2), (1, 2)]),
    (tied, of_tied, [(1, 2)], [(2, 1), (1, 2, (2, 2))]),
    (pieces, lambda *bits: dict(zip(pieces.TOKENIZERS, bits, strict=True)), [(1, 2, 3)],
     [(1, 3, 2), (2, 1, 3), (1, 1, 2)]),
    (ensemble, of_ensemble, [(2, 1, 3), (3, 1, 2)], [(2, 3, 4), (3, 2, 1)]),
    (bias_claim, of_bias, [(), (0.95, 0.9)], [(0.8, 0.8), (1.0, 0.5)]),
    (dropout, of_dropout, [(0.3, 0.1), (0.1, 0.0)], [(0.1, 0.1), (0.0, 0.1)]),
    (horizon, of_horizon, [(20, 40, 80, 160), (0, 5, 5, 160)],
     [(80, 160, 160, 160), (20, 20, 80, 160), (20, 40, 20, 160), (20, 40, 80, 80)]),
    (distance_claim, of_distance, [(1, 0, 2)], [(2, 3, 2), (2, 1, 1)]),
    (similarity, of_similarity, [(), ((0.5, 0.1), 1e-5, 0.6, 0.1)],
     [((0.5, 0.6),), ((0.9, 0.5), 1e-3), ((0.9, 0.5), 0.0, -0.4), ((0.9, 0.5), 0.0, -0.9, -0.3)]),
    (rotary, of_rotary, [(), (1e-5, 0.2)], [(1e-3,), (0.0, 0.05), (0.0, 0.5, (0.5, 0.5))]),
    (smoother, of_smoother, [(), (1e-5, 0.11)], [(1e-3,), (0.0, 0.09)]),
    (rank, lambda alone=0.0, added=0.5: {rank.ALONE: [1, alone], rank.ADDED: [1, added]}, [(), (1e-4, 0.2)],
     [(1e-2,), (0.0, 0.05)]),
    (noise_scale, lambda first, last: {'5': first, '150': last}, [(1, 3)], [(1, 2), (-1, 3), (3, 1)]),
    (wavelengths, of_wavelengths, [(), (1.005,)], [(0.965,), (1.0, 1.001), (1.0, 1.0, 1.001)]),
    (convolution, of_convolution, [(), (1e-6,)], [(1e-4,), (0.0, 1e-30)]),
    (additive, of_additive, [(5, 5)], [(3, 5), (5, 3)]),
    (grid, lambda *shares: dict(zip(grid.POSITIONS, shares, strict=True)), [(50, 60, 62, 64), (0, 2, 2, 2)],
     [(50, 60, 62, 65), (50, 51, 51, 51), (50, 49, 60, 60), (70, 60, 60, 60)]),
    (inductive_bias, of_inductive_bias, [(), (0.1, -3)], [(0, -1), (2, 2)]),
    (negatives, lambda *shares: dict(zip(map(str, negatives.ROWS), shares, strict=True)), [(1, 2, 3)],
     [(1, 1, 2), (2, 3, 3)]),
    (composition, of_composition, [(), ((60, 65, 51), (65, 66, 60))],
     [((86, 90, 70), (95, 99, 70)), ((60, 90, 70), (64, 90, 70)), ((60, 90, 50),), ((60, 90, 90),),
      ((60, 90, 70), (80, 70, 70))]),
    (few_shot, of_few_shot, [(), (1.0, 1.0, -100, 0.1)],
     [(0.94,), (1.0, 0.94), (1.0, 1.0, 150), (1.0, 1.0, -150), (1.0, 1.0, 10_000), (1.0, 1.0, 0, 0.5)]),
    (power_law, of_power_law, [(), (0.001, 0.001)], [(0.1,), (-0.1,), (0, 0.1), (0, -0.1)]),
    (content, lambda *given: dict(zip(content.CLASSES, given, strict=True)), [(2, 1)], [(1, 1), (1, 2)]),
]  # fmt: skip


@pytest.mark.parametrize('judged', JUDGED, ids=lambda judged: judged[0].__name__.rpartition('.')[2])
def test_a_claim_must_hold_with_every_seed(judged):
    module, measured, good, bad = judged
    holding = [measured(*arguments) for arguments in good]
    assert module.judge(holding).holds
    for arguments in bad:
        assert not module.judge([*holding, measured(*arguments)]).holds, arguments
