"""Attention kernels by name. Only this file and plain.py in nn/ read `model.attention`."""

from transformer.config import Model
from transformer.nn.kernels import chunked, linear, local, sparse
from transformer.nn.kernels.flash import FLASH
from transformer.nn.kernels.full import FULL
from transformer.nn.kernels.kernel import Kernel

KERNELS = {
    'full': lambda model: FULL,
    'local': local.kernel,
    'sparse': sparse.kernel,
    'linear': linear.kernel,
    'chunked': chunked.kernel,
    'flash': lambda model: FLASH,
}


def self_attention(model: Model) -> Kernel:
    """Returns the kernel of a model's self-attention. Cross-attention is always full."""
    return KERNELS[model.attention](model)
