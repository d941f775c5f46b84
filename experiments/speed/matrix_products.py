"""The limit of an update's speed: its own products of matrices, each made alone."""

import collections
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from experiments.speed import interleaved, updates
from transformer import parallel
from transformer.config import Config
from transformer.tokens import Batch
from transformer.training.step import initial_state


class Product(NamedTuple):
    """A product as a program has it: `jax.lax.dot_general` of arrays of these shapes and types."""

    left: tuple[tuple[int, ...], str]
    right: tuple[tuple[int, ...], str]
    dimensions: jax.lax.DotDimensionNumbers
    result: str

    def flops(self) -> float:
        """Two for each multiplication of two numbers."""
        ((contracted, _), (batch, _)) = self.dimensions
        left, right = self.left[0], self.right[0]
        shared = np.prod([left[axis] for axis in (*contracted, *batch)], dtype=float)
        return 2 * np.prod(left, dtype=float) * np.prod(right, dtype=float) / shared

    def prepared(self) -> Callable[[], jax.Array]:
        """What makes the product of random numbers when it is called."""
        draw = np.random.default_rng(0)
        arrays = [
            jnp.asarray(draw.standard_normal(shape, np.float32)).astype(dtype)
            for shape, dtype in (self.left, self.right)
        ]
        multiply = jax.jit(
            functools.partial(
                jax.lax.dot_general, dimension_numbers=self.dimensions, preferred_element_type=self.result
            )
        )
        return functools.partial(multiply, *arrays)


def of(config: Config, batches: Sequence[Batch]) -> interleaved.Run:
    """Passes through batches of one shape that make the products of their updates, one after the other."""
    products = [(product.prepared(), times) for product, times in of_update(config, batches[0]).items()]

    def run(passes: int) -> None:
        for multiply, times in products:
            for _ in range(times * len(batches) * passes):
                jax.block_until_ready(multiply())

    return run


def of_update(config: Config, batch: Batch) -> collections.Counter[Product]:
    """The products of one update of a batch on one device, and how often each is made.

    They are those of the program as it is traced: what the compiler leaves out counts too, on CPUs for
    example the logits of attention that the backward pass computes again (not with `model.remat`).
    """
    rows = jax.tree.map(lambda x: x.reshape(config.train.microbatches, -1, *x.shape[1:]), batch)
    state = jax.eval_shape(functools.partial(initial_state, config))
    step = updates.step(config)
    program = jax.make_jaxpr(step, axis_env=[(parallel.AXIS, 1)])(state, rows)
    return _counted(program.jaxpr)


def _counted(program: core.Jaxpr) -> collections.Counter[Product]:
    """The products of a program and of all that it calls."""
    found = collections.Counter()
    for equation in program.eqns:
        if equation.primitive.name == 'dot_general':
            left, right = ((v.aval.shape, str(v.aval.dtype)) for v in equation.invars)
            result = str(equation.outvars[0].aval.dtype)
            found[Product(left, right, equation.params['dimension_numbers'], result)] += 1
        times = equation.params['length'] if equation.primitive.name == 'scan' else 1
        for inner in _inside(equation):
            for product, count in _counted(inner).items():
                found[product] += times * count
    return found


def _inside(equation: core.JaxprEqn) -> Iterator[core.Jaxpr]:
    """The programs that an equation calls."""
    for parameter in equation.params.values():
        for value in parameter if isinstance(parameter, tuple | list) else (parameter,):
            if isinstance(value, core.ClosedJaxpr):
                yield value.jaxpr
            elif isinstance(value, core.Jaxpr):
                yield value
