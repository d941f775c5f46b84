"""The paper's equations as printed, in plain jax.numpy: the definition of everything that is computed faster.

Read it from top to bottom, with the paper beside it. Except for the loss, functions take one row of a
batch, so x is a matrix as in the paper: d_model numbers for each position. A row can hold several sentences,
its segments. `p` is the part of a model's parameters that a function uses.

Dropout (§5.4) is left out, and options that no function here reads have the paper's values. Without
dropout, the models have the same loss and the same gradients (tests/nn/test_plain.py).
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.nn import log_softmax, one_hot, softmax
from jax.scipy.special import entr
from jaxtyping import Array, Bool, Float, Int

from transformer.config import Model
from transformer.tokens import EOS, PAD, START, Batch, Tokens

# Attention (§3.2)


def attention(
    Q: Float[Array, 'Q C'], K: Float[Array, 'K C'], V: Float[Array, 'K E'], mask: Bool[Array, 'Q K']
) -> Float[Array, 'Q E']:
    """Computes Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V (§3.2.1, equation 1).

    The softmax leaves out the keys where `mask` is False, as if its input were -inf there (§3.2.3).
    """
    d_k = K.shape[-1]
    return softmax(Q @ K.T / math.sqrt(d_k), where=mask) @ V


def multi_head_attention(
    p: dict, Q: Float[Array, 'Q D'], K: Float[Array, 'K D'], V: Float[Array, 'K D'], mask: Bool[Array, 'Q K']
) -> Float[Array, 'Q D']:
    """Computes MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O (§3.2.2)."""

    def head(i: int) -> Float[Array, 'Q E']:
        """Computes head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)."""
        of_head = lambda p: {name: array[..., i, :] for name, array in p.items()}
        W_Q, W_K, W_V = of_head(p['query']), of_head(p['key']), of_head(p['value'])
        return attention(linear(W_Q, Q), linear(W_K, K), linear(W_V, V), mask)

    h = len(p['output']['kernel'])
    W_O = {**p['output'], 'kernel': jnp.concatenate(p['output']['kernel'])}
    return linear(W_O, jnp.concatenate([head(i) for i in range(h)], axis=-1))


def linear(p: dict, x: Float[Array, 'T _']) -> Float[Array, 'T _']:
    """Computes x W + b. The paper has b only in the FFN; the released code has it in attention, too."""
    return x @ p['kernel'] + (p['bias'][None] if 'bias' in p else 0.0)


def same_segment(queries: Int[Array, 'Q'], keys: Int[Array, 'K']) -> Bool[Array, 'Q K']:
    """Allows attention within a sentence, but not to padding, which is segment 0."""
    return (queries[:, None] == keys[None, :]) & (keys > 0)[None, :]


def self_attention_mask(text: Tokens, model: Model, *, causal: bool) -> Bool[Array, 'T T']:
    """Allows attention within a sentence but, if causal, not "to subsequent positions" (§3.1)."""
    position = jnp.arange(len(text.segments))
    distance = position[:, None] - position[None, :]
    mask = same_segment(text.segments, text.segments) & is_visible(distance, model)
    return mask & (distance >= 0) if causal else mask


# Layers (§3.1, §3.3)


def feed_forward(p: dict, x: Float[Array, 'T D']) -> Float[Array, 'T D']:
    """Computes FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (§3.3, equation 2)."""
    return linear(p['outer'], jnp.maximum(0, linear(p['inner'], x)))


def layer_norm(p: dict, x: Float[Array, 'T D'], epsilon: float) -> Float[Array, 'T D']:
    """Normalises each position to mean 0 and variance 1, then scales and shifts it (§3.1; Ba et al. 2016)."""
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + epsilon) * p['layer']['scale'][None] + p['layer']['bias'][None]


def norm(p: dict, x: Float[Array, 'T D'], model: Model) -> Float[Array, 'T D']:
    """Computes LayerNorm, or the model's other kind of normalisation."""
    return {'layernorm': layer_norm, 'rmsnorm': rms_norm}[model.norm_type](p, x, model.norm_epsilon)


def sublayer(p: dict, name: str, x: Float[Array, 'T D'], model: Model, f: Callable) -> Float[Array, 'T D']:
    """Computes LayerNorm(x + Sublayer(x)) (§3.1) or, with norm=pre, x + Sublayer(LayerNorm(x))."""
    Sublayer = lambda x: f(p[name], x)
    LayerNorm = lambda x: norm(p[f'{name}_sublayer']['norm'], x, model)
    if model.norm == 'pre':
        return x + Sublayer(LayerNorm(x))
    return LayerNorm(x + Sublayer(x))


def encoder(p: dict, x: Float[Array, 'T D'], mask: Bool[Array, 'T T'], model: Model) -> Float[Array, 'T D']:
    """Computes N layers with two sub-layers, self-attention and a feed-forward network (§3.1)."""
    self_attention = lambda p, x: multi_head_attention(p, x, x, x, mask)
    for i in range(model.N):
        x = sublayer(p[f'layer_{i}'], 'self_attention', x, model, self_attention)
        x = sublayer(p[f'layer_{i}'], 'feed_forward', x, model, FFN[model.activation])
    return norm(p['final']['norm'], x, model) if model.norm_final else x


def decoder(
    p: dict,
    x: Float[Array, 'T D'],
    mask: Bool[Array, 'T T'],
    memory: Float[Array, 'S D'],
    memory_mask: Bool[Array, 'T S'],
    model: Model,
) -> Float[Array, 'T D']:
    """Computes N layers with a third sub-layer between them: attention to the encoder's output (§3.1)."""
    self_attention = lambda p, x: multi_head_attention(p, x, x, x, mask)
    cross_attention = lambda p, x: multi_head_attention(p, x, memory, memory, memory_mask)
    for i in range(model.N_decoder):
        x = sublayer(p[f'layer_{i}'], 'self_attention', x, model, self_attention)
        x = sublayer(p[f'layer_{i}'], 'cross_attention', x, model, cross_attention)
        x = sublayer(p[f'layer_{i}'], 'feed_forward', x, model, FFN[model.activation])
    return norm(p['final']['norm'], x, model) if model.norm_final else x


# Embeddings, positions, and the whole model (§3.4, §3.5)


def positional_encoding(pos: Int[Array, 'T'], d_model: int) -> Float[Array, 'T D']:
    """Computes PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), and PE(pos, 2i+1) = cos of the same (§3.5)."""
    i = jnp.arange(d_model // 2)
    angle = pos[:, None] / 10000 ** (2 * i / d_model)[None, :]
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1).reshape(-1, d_model)


def embed(params: dict, text: Tokens, side: str, model: Model) -> Float[Array, 'T D']:
    """Computes embeddings times sqrt(d_model) (§3.4), plus encodings of positions (§3.5).

    The embedding of padding, which is also the start token, is zero. The learned encodings of Table 3 (E) are
    `side`'s parameters.
    """
    x = params['embedding']['table'][text.tokens] * math.sqrt(model.d_model)
    encodings = {
        'sinusoidal': lambda: positional_encoding(text.positions, model.d_model),
        'learned': lambda: params[side]['table'][text.positions],
    }
    return jnp.where((text.tokens == PAD)[:, None], 0.0, x) + encodings[model.positions]()


def shift_right(text: Tokens, start: int) -> Tokens:
    """Replaces each token by the one before it, or `start`: outputs are "offset by one position" (§3.1)."""
    return text._replace(tokens=jnp.where(text.positions == 0, start, jnp.roll(text.tokens, 1)))


def logits(params: dict, x: Float[Array, 'T D']) -> Float[Array, 'T V']:
    """Computes x E^T with the embeddings E, whose softmax is the next token's probability (§3.4)."""
    bias = params['softmax_bias'][None] if 'softmax_bias' in params else 0.0
    return x @ params['embedding']['table'].T + bias


def encoder_decoder(params: dict, row: Batch, model: Model) -> Float[Array, 'T V']:
    """Computes the Transformer's logits of every target token (§3.1, Figure 1)."""
    source, target = row['source'], row['target']
    x = embed(params, source, 'source_positions', model)
    memory = encoder(params['encoder'], x, self_attention_mask(source, model, causal=False), model)
    x = embed(params, shift_right(target, START), 'target_positions', model)
    mask = self_attention_mask(target, model, causal=True)
    memory_mask = same_segment(target.segments, source.segments)
    return logits(params, decoder(params['decoder'], x, mask, memory, memory_mask, model))


# Label smoothing and the loss (§5.4)


def smoothed_label(target: Int[Array, '*B'], V: int, eps_ls: float) -> Float[Array, '*B V']:
    """Puts 1 - eps_ls on the right token and eps_ls / (V - 1) on every other token (§5.4)."""
    return jnp.where(one_hot(target, V, dtype=bool), 1 - eps_ls, eps_ls / (V - 1))


def sums(
    logits: Float[Array, '*B V'], target: Int[Array, '*B'], weights: Float[Array, '*B'], eps_ls: float
) -> dict[str, Float[Array, '']]:
    """Computes weighted sums over tokens: loss, negative log likelihood, right predictions, and weight.

    A token's loss is the cross-entropy of its smoothed label, less the label's entropy: 0 is perfect.
    """
    log_p, V = log_softmax(logits), logits.shape[-1]
    cross_entropy = lambda label: -jnp.sum(label * log_p, axis=-1)
    label, right = smoothed_label(target, V, eps_ls), one_hot(target, V)
    is_right = jnp.sum(right * logits, axis=-1) == jnp.max(logits, axis=-1)
    loss = cross_entropy(label) - jnp.sum(entr(label), axis=-1)
    of_tokens = {'loss': loss, 'nll': cross_entropy(right), 'correct': is_right, 'weight': 1.0}
    return {name: jnp.sum(weights * x) for name, x in of_tokens.items()}


def loss(predict: Callable, params: dict, batch: Batch, labels: tuple, model: Model) -> Float[Array, '']:
    """Computes the training loss, a mean over tokens. `labels` are (target, weights, eps_ls)."""
    logits = jax.vmap(lambda row: predict(params, row, model))(batch)
    total = sums(logits, *labels)
    return total['loss'] / total['weight']


# Beyond the paper


def decoder_only(params: dict, row: Batch, model: Model) -> Float[Array, 'T V']:
    """Computes a language model's logits: its decoder has an encoder's layers and the causal mask."""
    mask = self_attention_mask(row['text'], model, causal=True)
    x = embed(params, shift_right(row['text'], EOS), 'positions', model)
    return logits(params, encoder(params['decoder'], x, mask, model))


def encoder_only(params: dict, row: Batch, model: Model) -> Float[Array, 'P V']:
    """Computes the logits of the pieces at `places`, with the head of BERT (Devlin et al. 2019)."""
    mask = self_attention_mask(row['text'], model, causal=False)
    x = encoder(params['encoder'], embed(params, row['text'], 'positions', model), mask, model)
    activation = {'relu': jax.nn.relu, 'swiglu': lambda x: jax.nn.gelu(x, approximate=False)}
    x = activation[model.activation](linear(params['head'], x[row['places']]))
    return logits(params, norm(params['head_norm'], x, model))


def is_visible(distance: Int[Array, 'T T'], model: Model) -> Bool[Array, 'T T']:
    """Selects all keys, the near ones of §4, or the near ones and every s-th (Child et al. 2019)."""
    distance, stride = jnp.abs(distance), model.attention_stride
    visible = dict.fromkeys(('full', 'chunked', 'flash'), distance >= 0)
    visible['local'] = distance <= model.attention_window
    visible['sparse'] = (distance < stride) | (distance % stride == 0)
    return visible[model.attention]


def linear_attention(
    Q: Float[Array, 'Q C'], K: Float[Array, 'K C'], V: Float[Array, 'K E'], mask: Bool[Array, 'Q K']
) -> Float[Array, 'Q E']:
    """Replaces exp(Q K^T / sqrt(d_k)) by phi(Q) phi(K)^T, phi(x) = elu(x) + 1 (Katharopoulos et al. 2020)."""
    phi = lambda x: jax.nn.elu(x) + 1
    return softmax(jnp.log(phi(Q) @ phi(K).T), where=mask) @ V


def swiglu(p: dict, x: Float[Array, 'T D']) -> Float[Array, 'T D']:
    """Computes (swish(x W_1) * x W_3) W_2 with swish(x) = x sigmoid(x) (Shazeer 2020)."""
    return linear(p['outer'], jax.nn.swish(linear(p['inner'], x)) * linear(p['gate'], x))


def rms_norm(p: dict, x: Float[Array, 'T D'], epsilon: float) -> Float[Array, 'T D']:
    """Scales each position to mean square 1, then by the model's scale (Zhang and Sennrich 2019)."""
    return x / jnp.sqrt(jnp.mean(x**2, axis=-1, keepdims=True) + epsilon) * p['rms']['scale'][None]


FFN = {'relu': feed_forward, 'swiglu': swiglu}
