"""Counts a model's cost: its parameters, and the floating-point operations of its matrix products."""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

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
    """Returns the row length that these counts assume: at most `BUCKET_LENGTH` if texts are bucketed."""
    return min(BUCKET_LENGTH, config.data.max_len) if _bucketed(config) else configs.row_positions(config)


def _bucketed(config: Config) -> bool:
    return config.data.batching == 'bucketed' and config.data.row_len is not None


def update_rows(config: Config) -> int | float:
    """Counts the rows of a batch, a multiple of the microbatches, as `data.rows.rows_per_batch` does.

    Of buckets, which have many widths, it is a mean.
    """
    length, microbatches = row_length(config), config.train.microbatches
    if _bucketed(config):
        return config.data.batch_tokens / length
    return max(config.data.batch_tokens // length // microbatches, 1) * microbatches


def update_flops(config: Config) -> int | float:
    """Counts the operations of an update, three forward passes of rows in which each text fills the width."""
    return 3 * _row_cost(_sizes(config), row_length(config)).flops * update_rows(config)


def model_parameters(config: Config) -> int:
    """Counts the parameters of a config's model."""
    return _row_cost(_sizes(config), row_length(config)).parameters


class Cost(NamedTuple):
    """The parameters of a model, and the operations of the matrix products of a forward pass."""

    parameters: int
    flops: int


def _sizes(config: Config) -> Config:
    """Resets the options that change no size and no product, so that rows of a table share a count."""
    dropout = dict.fromkeys(('P_drop', 'P_drop_attention', 'P_drop_relu', 'P_drop_embedding'), 0.0)
    model = dataclasses.replace(config.model, **dropout)
    train = Train(task=config.train.task)
    return dataclasses.replace(
        config, model=model, data=Data(batching=config.data.batching), train=train, decode=Decode()
    )


@functools.lru_cache(maxsize=1024)
def _row_cost(config: Config, length: int) -> Cost:
    return forward_cost(config, models.blank(config, 1, length))


def forward_cost(config: Config, batch: Batch) -> Cost:
    """Counts parameters, and floating-point operations of the matrix products of one forward pass.

    A multiply-add counts as two. Normalisation, softmax and other elementwise work are left out (a few
    percent at the paper's sizes). All products that are computed count, even for padding and masked logits.
    """
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), batch)
    # A device-specific kernel computes the same as the portable one, but cannot be traced elsewhere.
    model = models.build(configs.portable(config, 'cpu'))

    def forward(batch):
        outputs, variables = model.init_with_output(jax.random.key(0), batch, train=False)
        return outputs, variables['params']

    # One trace gives the parameters' shapes and the products.
    traced, (outputs, params) = jax.make_jaxpr(forward, return_shape=True)(shapes)
    of_outputs = [True] * len(jax.tree.leaves(outputs)) + [False] * len(jax.tree.leaves(params))
    return Cost(parameters(params), _products(traced.jaxpr, of_outputs))


def _products(jaxpr: Jaxpr, used_outputs: Sequence[bool]) -> int:
    """Counts the operations of the matrix products that the used outputs of a program depend on."""
    # A function with its own derivative keeps inputs that only the derivative needs. A plain call does not.
    called = jaxpr.replace(eqns=[_without_derivative(equation) for equation in jaxpr.eqns])
    used, _ = partial_eval.dce_jaxpr(called, list(used_outputs))
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
    called = [*inner_jaxprs(equation)]
    # Of a choice by platform one branch runs. The last is for all platforms without a kernel of their own.
    counted = called[-1:] if equation.params.get('branches_platforms') else called
    return times * sum(_products(jaxpr, [True] * len(jaxpr.outvars)) for jaxpr in counted)


def inner_jaxprs(equation: JaxprEqn) -> Iterator[Jaxpr]:
    """Yields the programs that an equation calls."""
    for value in equation.params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, ClosedJaxpr | Jaxpr):
                yield part.jaxpr if isinstance(part, ClosedJaxpr) else part
