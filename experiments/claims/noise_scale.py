"""The noise of the gradient, relative to the gradient, grows in the course of a training:
larger batches pay later."""

from collections.abc import Iterator

import jax
import jax.flatten_util
import numpy as np

from experiments.claims import claim, small_language
from experiments.claims.claim import Measurements, Verdict, prepared, spread
from experiments.claims.panels import curves
from transformer.config import replace
from transformer.nn import models
from transformer.tasks import sums_of, task_of
from transformer.tokens import Batch

MEASURED, BATCHES, SEEDS = (5, 20, 60, 150), 24, 3  # updates after which it is measured; batches
SOURCE = 'McCandlish et al. 2018, §2.2 and appendix A.1'
CRITERION = (
    f'small language models of the grammar, estimates from {BATCHES} batches: the tokens of the gradient '
    f'noise scale after {MEASURED[-1]} updates are more than twice those after {MEASURED[0]}, with every seed'
)


@jax.jit
def _gradient(params: models.Params, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """Computes the gradient of a batch's mean loss, as one vector, and its weight."""
    sums = sums_of(small_language.config({}))

    def mean_loss(params):
        total = sums(params, jax.tree.map(lambda x: x[None], batch), None)
        return total['loss'] / total['weight'], total['weight']

    tree, weight = jax.grad(mean_loss, has_aux=True)(params)
    return jax.flatten_util.ravel_pytree(tree)[0], weight


def noise_scale(gradients: Iterator[tuple[np.ndarray, float]]) -> float:
    """Estimates tr(S) / |G|² in tokens, from gradients of batches and their numbers of tokens.

    The squared norms of single gradients and of their mean give unbiased estimates of both.
    """
    vectors, sizes = zip(*gradients, strict=True)
    small, large = float(np.mean(sizes)), float(np.sum(sizes))
    of_small = np.mean([np.sum(np.square(vector, dtype=np.float64)) for vector in vectors])
    of_large = np.sum(np.square(np.mean(vectors, axis=0, dtype=np.float64)))
    square = (large * of_large - small * of_small) / (large - small)
    return float((of_small - of_large) / (1 / small - 1 / large) / square)


def measure(seed: int) -> dict[str, float]:
    """Measures the noise scale after some updates, with batches that come later in the training."""
    config = small_language.config({})
    order = task_of(config).batches(replace(config, {'train.seed': seed}), prepared(config), 'train')
    last, scales = MEASURED[-1], {}

    def gradients(params: models.Params) -> Iterator[tuple[np.ndarray, float]]:
        for step in range(last, last + BATCHES):
            vector, weight = _gradient(params, order.batch(step))
            yield np.asarray(vector), float(weight)

    for step, params in enumerate(claim.checkpoints(config, map(order.batch, range(last)), seed), 1):
        if step in MEASURED:
            scales[str(step)] = noise_scale(gradients(jax.device_get(params)))
    return scales


def judge(measurements: Measurements) -> Verdict:
    first, last = str(MEASURED[0]), str(MEASURED[-1])
    holds = all(m[last] > 2 * m[first] > 0 for m in measurements)
    parts = (f'after {step} {spread([m[step] for m in measurements], ",.0f")}' for step in measurements[0])
    return Verdict(holds, f'tokens: {"; ".join(parts)}')


PANELS = (curves(MEASURED, 'updates', 'noise scale, tokens', ticks='log', yscale='log'),)
