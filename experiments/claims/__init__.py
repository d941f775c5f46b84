"""Experiments that test claims of papers: a file per claim, half of them of less than a minute on two cores.

A claim is a module. Its docstring is the statement; SOURCE names the paper, and CRITERION says when the claim
holds (written before any measurement, apart from exceptions in the results' README). `measure(seed)`, with
seeds from 1 to SEEDS, returns a measurement that JSON can hold; `judge(measurements)` returns the verdict;
NUMBERS explains its numbers if they are not means over seeds; PANELS draw the figure.
"""

import importlib

# By file name, in the order in which they are printed.
CLAIMS = {
    name: importlib.import_module(f'experiments.claims.{name}')
    for name in (
        'gradients', 'recall', 'bottleneck', 'parallelism', 'scaling', 'order', 'offsets', 'mask', 'depth',
        'warmup', 'extrapolation', 'head_count', 'smoothing', 'beams', 'heads', 'pronoun', 'exploding',
        'values', 'lookup', 'batch_norm', 'averaging', 'tied', 'pieces', 'ensemble', 'distance_bias',
        'dropout', 'horizon', 'distance', 'content', 'similarity', 'rotary', 'smoother', 'rank',
        'noise_scale', 'wavelengths', 'convolution', 'additive', 'grid', 'inductive_bias', 'negatives',
        'composition', 'few_shot', 'power_law',
    )
}  # fmt: skip
