"""What a model costs: parameters and floating-point operations."""

import math

import jax

from transformer.config import Config, Model

# A typical bucket of WMT 2014: half of its tokens are in pairs of up to about 40 pieces.
BUCKET_LENGTH = 48
# Products of one width in a step of a recurrent cell.
CELL_GATES = {'rnn_tanh': 1, 'rnn_relu': 1, 'gru': 3, 'lstm': 4}


def parameters(params) -> int:
    """The number of parameters of a tree of arrays or of their shapes."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def row_length(config: Config) -> int:
    """Positions of a row for these formulas, which take `BUCKET_LENGTH` where rows are bucketed."""
    return BUCKET_LENGTH if config.data.batching == 'bucketed' else config.data.row_len


def forward_flops(model: Model, rows: int, source: int, target: int) -> int:
    """Floating-point operations of the matrix products of one forward pass; a multiply-add counts as two.

    Normalisation, softmax and other elementwise work are left out (a few percent at the paper's sizes),
    and so is what `positions=relative` adds. Local and sparse attention count the near keys that a query
    in the middle of a long row attends to, not those that blocks hold besides. Full attention and the far
    keys of sparse attention are counted over the whole row, although a causal mask hides half of them.

    Args:
      rows: of the batch.
      source, target: positions of a row, padding included, because it is computed too. A model without
        an encoder reads no source.
    """
    softmax = target * model.d_model * model.vocab_size
    return 2 * rows * (_LAYERS[model.kind](model, source, target) + softmax)


def _stack(model: Model, length: int, *, causal: bool) -> int:
    """Multiply-adds of one layer of a stack: self-attention and feed-forward layer."""
    heads = model.h * (model.d_k + model.d_v)
    # For one position: query and key, value and output.
    projections = 2 * model.d_model * heads
    ffn = (3 if model.activation == 'swiglu' else 2) * model.d_model * model.d_ff
    return length * (projections + _attended(model, length, causal=causal) + ffn)


def _attended(model: Model, length: int, *, causal: bool) -> int:
    """Multiply-adds of one query of self-attention: its logits, and its mean of the values."""
    reached = length
    sides = 1 if causal else 2
    if model.attention == 'linear':
        # Within a chunk; and a key and a value go into the d_k x d_v sums, which a query reads with the norm.
        chunk = min(model.attention_chunk, length) * (model.d_k + model.d_v)
        scan = model.h * (chunk + 2 * model.d_k * model.d_v + model.d_k)
        return scan if causal else 2 * scan
    if model.attention == 'local':
        reached = min(length, sides * model.attention_window + 1)
    elif model.attention == 'sparse':
        near = sides * (model.attention_stride - 1) + 1
        reached = min(length, near + length // model.attention_stride)
    return reached * model.h * (model.d_k + model.d_v)


def _encoder_decoder(model: Model, source: int, target: int) -> int:
    heads = model.h * (model.d_k + model.d_v)
    query_and_output = memory = model.d_model * heads
    cross = target * query_and_output + source * memory + target * source * heads
    decoder = _stack(model, target, causal=True) + cross
    return model.N * _stack(model, source, causal=False) + model.N_decoder * decoder


def _decoder(model: Model, source: int, target: int) -> int:
    del source
    return model.N * _stack(model, target, causal=True)


def _recurrent(model: Model, source: int, target: int) -> int:
    # The products of one gate in one layer: with the inputs, and with the state.
    d, gates = model.d_model, CELL_GATES[model.cell]
    layer = 2 * gates * d * d
    if model.N_decoder is None:
        return model.N * target * layer
    # In two directions, each state has half the width.
    encoder = layer * 3 // 4 if model.bidirectional else layer
    total = model.N * source * encoder + model.N_decoder * target * layer
    if model.alignment == 'none':
        return total
    fed = gates * d * d if model.input_feeding or model.alignment == 'additive' else 0
    keys = 0 if model.alignment == 'dot' else d * d
    queries = d * d if model.alignment in ('additive', 'concat') else 0
    attentional = 2 * d * d
    look_up = 2 * source * d  # scores and context
    return total + source * keys + target * (queries + look_up + attentional + fed)


def _convolutional(model: Model, source: int, target: int) -> int:
    # Each layer gives two vectors from a window, and each stack stands between two linear maps.
    square = model.d_model**2
    layer, ends = 2 * model.kernel_width * square, 2 * square
    if model.N_decoder is None:
        return target * (model.N * layer + ends)
    # A query in each layer, its scores and what they weigh.
    attention = square + 2 * source * model.d_model
    decoder = target * (model.N_decoder * (layer + attention) + ends)
    return source * (model.N * layer + ends) + decoder


_LAYERS = {
    'transformer': _encoder_decoder,
    'decoder': _decoder,
    'recurrent': _recurrent,
    'convolutional': _convolutional,
}


def update_flops(config: Config) -> float:
    """Floating-point operations of one update with `data.batch_tokens` positions on each side.

    The backward pass has twice the products of the forward pass. Attention depends on the length of a
    row, for which `row_length` stands.
    """
    length = row_length(config)
    return 3 * forward_flops(config.model, 1, length, length) * config.data.batch_tokens / length
