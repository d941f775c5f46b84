"""The causal mask keeps a position from what comes later, with every kernel of attention."""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from experiments.claims.claim import Claim, Found, Verdict, config_of, spread
from transformer.config import Config
from transformer.nn.stacks import Stack

LENGTH, SEEDS = 24, 5
# Blocks, windows and strides that are shorter than the row, and that do not divide it.
KERNELS = {
    'full': {},
    'local': {'model.attention_window': 5},
    'sparse': {'model.attention_stride': 5},
    'linear': {'model.attention_chunk': 5},
    'chunked': {'model.attention_chunk': 5},
}
MODEL = {
    'train.task': 'language',
    'data.source': 'text',
    'model.kind': 'decoder',
    'model.N': 2,
    'model.d_model': 32,
    'model.d_ff': 64,
    'model.h': 2,
}
MASKS = ('causal', 'no mask')


def norms(config: Config, mask: str, seed: int) -> np.ndarray:
    """The norm of d(v·y[i]) / dx[j] for outputs y, a random unit vector v and inputs x: [i j].

    Logits are a linear function of the output at their position.
    """
    keys = jax.random.split(jax.random.key(seed), 3)
    x = jax.random.normal(keys[0], (1, LENGTH, config.model.d_model))
    v = jax.random.normal(keys[1], (config.model.d_model,))
    jacobian = _jacobian(config, mask)(keys[2], x, v / jnp.linalg.norm(v))
    return np.linalg.norm(np.asarray(jacobian)[:, 0], axis=-1)


@functools.cache
def _jacobian(config: Config, mask: str) -> Callable:
    """The program of the derivatives, which several seeds share.

    Without the mask, the decoder's layers are those of the encoder; both have the same parameters.
    """
    m = config.model
    segments, positions = jnp.ones((1, LENGTH), jnp.int32), jnp.arange(LENGTH)[None]
    decoder, encoder = Stack(m, m.N, causal=True), Stack(m, m.N, causal=False)

    def jacobian(key, x, v):
        variables = decoder.init(key, x, segments, positions, None, train=False)

        def projected(x):
            if mask == 'causal':
                outputs = decoder.apply(variables, x, segments, positions, None, train=False)
            else:
                outputs = encoder.apply(variables, x, segments, positions, train=False)
            return outputs[0] @ v

        return jax.jacrev(projected)(x)

    return jax.jit(jacobian)


def measure(seed: int) -> Found:
    """The greatest norm at later positions, and at the others, of every kernel with the mask and without."""
    found = {}
    for name, kernel in KERNELS.items():
        config = config_of(MODEL | {'model.attention': name, **kernel})
        found[name] = {}
        for mask in MASKS:
            by_place = norms(config, mask, seed)
            later = np.triu(by_place, 1)
            found[name][mask] = {'later': float(later.max()), 'others': float((by_place - later).max())}
    return found


def judge(found: Sequence[Found]) -> Verdict:
    """By the norms at later positions, of which not one may differ from 0 with the mask."""
    values = {
        mask: {place: [one[name][mask][place] for one in found for name in KERNELS] for place in each}
        for mask, each in found[0]['full'].items()
    }
    masked, unmasked = (values[mask] for mask in MASKS)
    holds = max(masked['later']) == 0 and min(masked['others']) > 0.01 and min(unmasked['later']) > 0.01
    told = [f'gradient at later positions, {mask}: {spread(values[mask]["later"], ".2g")}' for mask in MASKS]
    return Verdict(holds, '; '.join(told))


def draw(axes: Sequence, found: Sequence[Found]) -> None:
    """The greatest norm at later positions by kernel, each seed a dot."""
    for i, mask in enumerate(MASKS):
        for one in found:
            label = mask if one is found[0] else None
            later = [one[name][mask]['later'] for name in KERNELS]
            axes[0].plot(list(KERNELS), later, 'o', color=f'C{i}', alpha=0.6, label=label)
    axes[0].set_yscale('symlog', linthresh=1e-3)
    axes[0].set(ylim=(-2e-4, 10), ylabel='gradient at later positions')
    axes[0].legend()


CLAIM = Claim(
    statement='Masking keeps the prediction of a position from depending on later ones.',
    source='§3.1, §3.2.3',
    criterion=(
        f'{MODEL["model.N"]} layers, {LENGTH} positions, untrained: the gradient of any output with respect '
        'to any later input is exactly 0 with the mask, and the greatest of them is above 0.01 without it; '
        'the greatest with respect to other inputs is above 0.01 with the mask; with every kernel and seed'
    ),
    seeds=SEEDS,
    measure=measure,
    judge=judge,
    draw=draw,
    why='The kernel flash, which a CPU does not have, is left out.',
)
