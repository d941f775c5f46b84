"""Counts a model's cost: its parameters, and the floating-point operations of its matrix products."""

import dataclasses
import functools
import math
from collections.abc import Iterator

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, primitives
from jax.interpreters import partial_eval

from transformer import config as configs
from transformer.config import Config, Data, Decode, Train
from transformer.nn import models
from transformer.tokens import Batch

# A typical bucket for WMT 2014: half of its tokens are in pairs of up to about 40 pieces.
BUCKET_LENGTH = 48


def parameters(params) -> int:
    """Counts the parameters in a tree of arrays or of their shapes."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def row_length(config: Config) -> int:
    """Returns the row length that these counts assume: `BUCKET_LENGTH` if texts are bucketed."""
    bucketed = config.data.batching == 'bucketed' and config.data.row_len is not None
    return BUCKET_LENGTH if bucketed else configs.row_positions(config)


def update_flops(config: Config) -> float:
    """Counts the operations of an update of `data.batch_tokens` positions per field: three forward passes."""
    length = row_length(config)
    # Without the options that change no product, so that rows of a table share a count.
    model = dataclasses.replace(config.model, P_drop=0.0, P_drop_embedding=0.0)
    sizes = dataclasses.replace(
        config, model=model, data=Data(), train=Train(task=config.train.task), decode=Decode()
    )
    return 3 * _row_flops(sizes, length) * config.data.batch_tokens / length


@functools.lru_cache(maxsize=256)
def _row_flops(config: Config, length: int) -> int:
    return forward_flops(config, models.blank(config, 1, length))


def forward_flops(config: Config, batch: Batch) -> int:
    """Counts floating-point operations of the matrix products of one forward pass.

    A multiply-add counts as two. Normalisation, softmax and other elementwise work are left out (a few
    percent at the paper's sizes). All products that are computed count, even for padding and masked logits.
    """
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), batch)
    # A device-specific kernel computes the same as the portable one, but cannot be traced elsewhere.
    model = models.build(configs.portable(config, 'cpu'))
    forward = lambda params, batch: model.apply({'params': params}, batch, train=False)
    traced = jax.make_jaxpr(forward)(models.parameter_shapes(config), shapes)
    return _products(traced.jaxpr)


def _products(jaxpr: Jaxpr) -> int:
    """Counts the operations of the matrix products that a program's outputs depend on."""
    # A function with its own derivative keeps inputs that only the derivative needs. A plain call does not.
    called = jaxpr.replace(eqns=[_without_derivative(equation) for equation in jaxpr.eqns])
    used, _ = partial_eval.dce_jaxpr(called, [True] * len(jaxpr.outvars))
    return sum(map(_flops, used.eqns))


def _without_derivative(equation: JaxprEqn) -> JaxprEqn:
    if equation.primitive is not primitives.custom_vjp_call_p:
        return equation
    params = {'call_jaxpr': equation.params['call_jaxpr']}
    return equation.replace(primitive=primitives.closed_call_p, params=params)


def _flops(equation: JaxprEqn) -> int:
    if equation.primitive is primitives.dot_general_p:
        (contracted, _), _ = equation.params['dimension_numbers']
        shape = equation.invars[0].aval.shape
        return 2 * equation.outvars[0].aval.size * math.prod(shape[axis] for axis in contracted)
    if equation.primitive is primitives.conv_general_dilated_p:
        kernel, features = equation.invars[1].aval, equation.params['dimension_numbers'].rhs_spec[0]
        return 2 * equation.outvars[0].aval.size * kernel.size // kernel.shape[features]
    times = equation.params['length'] if equation.primitive is primitives.scan_p else 1
    return times * sum(map(_products, inner_jaxprs(equation)))


def inner_jaxprs(equation: JaxprEqn) -> Iterator[Jaxpr]:
    """Yields the programs that an equation calls."""
    for value in equation.params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, ClosedJaxpr | Jaxpr):
                yield part.jaxpr if isinstance(part, ClosedJaxpr) else part
