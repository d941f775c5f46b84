"""What a model costs."""

import math

import jax

from transformer.config import Config, Model

# The bucket of the mean token of WMT 2014: half its tokens are in pairs of up to about 40 pieces.
BUCKET_LENGTH = 48


def parameters(params) -> int:
    """The number of parameters of a tree of arrays or of their shapes."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def row_length(config: Config) -> int:
    """Positions of a row as the formulas here take it: bucketed rows as `BUCKET_LENGTH`."""
    return BUCKET_LENGTH if config.data.batching == 'bucketed' else config.data.row_len


def forward_flops(model: Model, rows: int, source: int, target: int) -> int:
    """Floating-point operations of the products of one forward pass, a multiply-add counted as two.

    Normalisation, softmax and other elementwise work, a few percent at the paper's sizes, are left
    out, and so is what `positions=relative` adds.

    Args:
      rows: of the batch.
      source, target: positions of a row, padding counted, for it is computed too. A model without an
        encoder reads no source.
    """
    softmax = target * model.d_model * model.vocab_size
    return 2 * rows * (_LAYERS[model.kind](model, source, target) + softmax)


def _stack(model: Model, length: int) -> int:
    """Multiply-adds of self-attention and feed-forward layer of one layer of a stack."""
    heads = model.h * (model.d_k + model.d_v)
    # Of one position: query and key, value and output.
    projections = 2 * model.d_model * heads
    ffn = (3 if model.activation == 'swiglu' else 2) * model.d_model * model.d_ff
    return length * (projections + length * heads + ffn)


def _encoder_decoder(model: Model, source: int, target: int) -> int:
    heads = model.h * (model.d_k + model.d_v)
    query_and_output = memory = model.d_model * heads
    cross = target * query_and_output + source * memory + target * source * heads
    return model.N * _stack(model, source) + model.N_decoder * (_stack(model, target) + cross)


def _decoder(model: Model, source: int, target: int) -> int:
    del source
    return model.N * _stack(model, target)


_LAYERS = {'transformer': _encoder_decoder, 'decoder': _decoder}


def update_flops(config: Config) -> float:
    """Floating-point operations of one update of `data.batch_tokens` positions of either side.

    The backward pass has twice the products of the forward pass. Attention grows with the length of a
    row, which is taken from `row_length`.
    """
    length = row_length(config)
    return 3 * forward_flops(config.model, 1, length, length) * config.data.batch_tokens / length
