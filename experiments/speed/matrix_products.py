"""Computes an update's matrix products alone, to time them as a limit of its speed."""

import collections
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from experiments.speed import updates
from experiments.speed.interleaved import Timed
from transformer import parallel
from transformer.config import Config
from transformer.nn import cost
from transformer.tokens import Batch
from transformer.training.step import initial_state


class Product(NamedTuple):
    """The shapes and types of one `jax.lax.dot_general`."""

    left: tuple[tuple[int, ...], str]
    right: tuple[tuple[int, ...], str]
    dimensions: jax.lax.DotDimensionNumbers
    result: str

    def prepare(self) -> Callable[[], jax.Array]:
        """Returns a function that computes the product of two random arrays."""
        draw = np.random.default_rng(0)
        random = lambda shape, dtype: jnp.asarray(draw.standard_normal(shape, np.float32)).astype(dtype)
        options = {'dimension_numbers': self.dimensions, 'preferred_element_type': self.result}
        multiply = jax.jit(functools.partial(jax.lax.dot_general, **options))
        return functools.partial(multiply, random(*self.left), random(*self.right))


def make_passes(config: Config, batches: Sequence[Batch]) -> Timed:
    """Returns passes through batches of one shape that compute only their updates' matrix products."""
    counts = products_of_update(config, batches[0])
    products = [(product.prepare(), times) for product, times in counts.items()]

    def run(passes: int) -> None:
        for multiply, times in products:
            for _ in range(times * len(batches) * passes):
                jax.block_until_ready(multiply())

    return run


def products_of_update(config: Config, batch: Batch) -> collections.Counter[Product]:
    """Counts each matrix product of an update on one device, as traced.

    On CPUs, without `model.remat`, the compiler removes the logits that the backward pass recomputes.
    """
    rows = jax.tree.map(lambda x: x.reshape(config.train.microbatches, -1, *x.shape[1:]), batch)
    state = jax.eval_shape(functools.partial(initial_state, config))
    program = jax.make_jaxpr(updates.step(config), axis_env=[(parallel.AXIS, 1)])(state, rows)
    return _count(program.jaxpr)


def _count(program: core.Jaxpr) -> collections.Counter[Product]:
    products = collections.Counter()
    for equation in program.eqns:
        if equation.primitive.name == 'dot_general':
            left, right = ((v.aval.shape, str(v.aval.dtype)) for v in equation.invars)
            result = str(equation.outvars[0].aval.dtype)
            products[Product(left, right, equation.params['dimension_numbers'], result)] += 1
        times = equation.params['length'] if equation.primitive.name == 'scan' else 1
        for inner in _called(equation):
            for product, count in _count(inner).items():
                products[product] += times * count
    return products


def _called(equation: core.JaxprEqn) -> Iterable[core.Jaxpr]:
    """Returns the programs that an equation calls on the devices at hand."""
    by_platform = equation.params.get('branches_platforms')
    if by_platform is None:
        return cost.inner_jaxprs(equation)
    # The last branch, which names no platform, is for all others.
    here = next(i for i, names in enumerate(by_platform) if names is None or parallel.platform() in names)
    return [equation.params['branches'][here].jaxpr]
