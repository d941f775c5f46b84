"""Biases of attention by distance extrapolate to rows longer than in training: ALiBi and T5's buckets."""

from experiments.claims import extrapolation
from experiments.claims.claim import Measurements, Verdict

POSITIONS = ('alibi', 'buckets')  # values of model.positions
SEEDS = extrapolation.SEEDS
SOURCE = 'Press et al. 2022; Raffel et al. 2020, §2.1'
CRITERION = (
    f'as in the claim extrapolation: after {extrapolation.UPDATES} updates with rows of '
    f'{extrapolation.TRAINED}, both biases predict more than 0.9 of the repeated symbols at these '
    f'positions, and at positions up to {extrapolation.LONGEST} more than 0.9 of that share, with every seed'
)


def measure(seed: int) -> dict:
    """Measures the accuracy by position with each bias."""
    return extrapolation.measure_kinds(POSITIONS, seed)


def judge(measurements: Measurements) -> Verdict:
    holds, parts = extrapolation.judge_kinds(measurements, POSITIONS)
    return Verdict(holds, f'symbols predicted: {parts}')


PANELS = (extrapolation.panel('symbols predicted', legend=True),)
