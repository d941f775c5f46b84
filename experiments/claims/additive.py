"""Dot-product attention is much faster and more space-efficient in practice than additive attention."""

import functools
import timeit
from collections.abc import Callable

import jax
import jax.numpy as jnp

from experiments.claims.claim import Measurements, Verdict, by_name, spread
from experiments.claims.panels import curves
from transformer.nn import alignment
from transformer.nn.alignment import Aligned, AlignmentWeights

LENGTHS, ROWS, WIDTH = (64, 128, 256), 4, 64
REPEATED, SEEDS = 3, 3
DOT, ADDITIVE = SCORES = ('dot', 'additive')
SOURCE = '§3.2.1'
CRITERION = (
    f'outputs and gradients of {LENGTHS[-1]} queries and keys of {WIDTH} numbers, {ROWS} rows: additive '
    'scores take more than 4 times as long as dot products, and more than 4 times the memory beside inputs '
    'and outputs, with every seed'
)


@functools.cache
def _program(score: str, length: int) -> tuple[Callable, float]:
    """Compiles outputs and gradients. Returns the program and its MiB beside inputs and outputs."""
    segments = jnp.ones((ROWS, length), jnp.int32)

    def loss(query, keys, values, weights):
        # For additive scores, `look_up` projects the queries. Keys are projected once for all, so not here.
        aligned = Aligned(keys, values, segments)
        context, _ = alignment.look_up(weights, aligned, query.reshape(-1, WIDTH), segments.reshape(-1))
        return jnp.sum(jnp.square(context))

    compiled = (
        jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2))).lower(*_inputs(score, length, 0)).compile()
    )
    return compiled, compiled.memory_analysis().temp_size_in_bytes / 2**20


def _inputs(score: str, length: int, seed: int) -> tuple:
    keys = jax.random.split(jax.random.key(seed), 5)
    texts = [jax.random.normal(key, (ROWS, length, WIDTH)) for key in keys[:3]]
    kernel, vector = jax.random.normal(keys[3], (WIDTH, WIDTH)), jax.random.normal(keys[4], (WIDTH,))
    scaled = (kernel * WIDTH**-0.5, vector * WIDTH**-0.5) if score == ADDITIVE else (None, None)
    return (*texts, AlignmentWeights(*scaled, jnp.zeros((2 * WIDTH, WIDTH))))


def cost(score: str, length: int, seed: int) -> dict[str, float]:
    """Measures the seconds of the fastest of several runs, and the memory."""
    (program, mib), inputs = _program(score, length), _inputs(score, length, seed)
    run = lambda: jax.block_until_ready(program(*inputs))
    seconds = timeit.repeat(run, number=1, repeat=REPEATED + 1)
    return {'seconds': min(seconds[1:]), 'MiB': mib}


def measure(seed: int) -> dict:
    """Measures seconds and memory by score and length."""
    return {score: {str(n): cost(score, n, seed) for n in LENGTHS} for score in SCORES}


def judge(measurements: Measurements) -> Verdict:
    last, quotients = str(LENGTHS[-1]), {}
    for key in ('seconds', 'MiB'):
        values = by_name(measurements, lambda at, key=key: at[last][key])
        quotients[key] = [a / b for a, b in zip(values[ADDITIVE], values[DOT], strict=True)]
    holds = min(min(values) for values in quotients.values()) > 4
    seconds, mib = (spread(values, '.1f') for values in quotients.values())
    return Verdict(holds, f'additive over dot: {seconds} times the time, {mib} times the memory')


def _panel(key: str):
    values = lambda m: {score: [at[key] for at in m[score].values()] for score in SCORES}
    return curves(LENGTHS, 'queries and keys', key, values, ticks='log2', legend=True, yscale='log')


PANELS = (_panel('seconds'), _panel('MiB'))
