"""What a model costs."""

import math

import jax


def parameters(params) -> int:
    """The number of parameters of a tree of arrays or of their shapes."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
