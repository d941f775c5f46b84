"""What a model costs."""

import math

import jax

from transformer.config import Config, Model

# The bucket of the mean token of WMT 2014: half its tokens are in pairs of up to about 40 pieces.
BUCKET_LENGTH = 48


def parameters(params) -> int:
    """The number of parameters of a tree of arrays or of their shapes."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def forward_flops(model: Model, rows: int, source: int, target: int) -> int:
    """Floating-point operations of the products of one forward pass, a multiply-add counted as two.

    Normalisation, softmax and other elementwise work, a few percent at the paper's sizes, are left
    out, and so is what `positions=relative` adds.

    Args:
      rows: of the batch.
      source, target: positions of a row, padding counted, for it is computed too.
    """
    heads = model.h * (model.d_k + model.d_v)
    # Of one position: query and key, value and output.
    projections = 2 * model.d_model * heads
    ffn = (3 if model.activation == 'swiglu' else 2) * model.d_model * model.d_ff
    encoder = source * (projections + source * heads + ffn)
    query_and_output = memory = model.d_model * heads
    cross = target * query_and_output + source * memory + target * source * heads
    decoder = target * (projections + target * heads + ffn) + cross
    softmax = target * model.d_model * model.vocab_size
    return 2 * rows * (model.N * encoder + model.N_decoder * decoder + softmax)


def update_flops(config: Config) -> float:
    """Floating-point operations of one update of `data.batch_tokens` positions of either side.

    The backward pass has twice the products of the forward pass. Attention grows with the length of a
    row: packed rows have `data.row_len`, bucketed ones are taken as `BUCKET_LENGTH`.
    """
    data = config.data
    length = data.row_len if data.batching == 'packed' else BUCKET_LENGTH
    return 3 * forward_flops(config.model, 1, length, length) * data.batch_tokens / length
