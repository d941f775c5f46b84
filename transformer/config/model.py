"""The options of the model. The defaults are the paper's base model."""

import dataclasses
from typing import Literal

from transformer.config.conditions import (
    ANSWERS,
    CONVOLUTIONAL,
    DECODES,
    ENCODES,
    LANGUAGE,
    LAYERED,
    NORMAL,
    POSITIONED,
    PREDICTS,
    READS,
    RECURRENT,
    RECURRENT_PAIR,
    TEXTS,
)
from transformer.config.declare import option
from transformer.config.tasks import KINDS, LAYERS

_POSITIONS = Literal['sinusoidal', 'learned', 'rotary', 'relative', 'buckets', 'alibi', 'none']
_ACTIVATION = Literal['relu', 'gelu', 'gelu_tanh', 'quick_gelu', 'swish', 'swiglu', 'geglu']
_INIT = Literal['t2t', 'xavier', 'normal', 'truncated_normal', 't5', 'clip', 'torch']


@dataclasses.dataclass(frozen=True)
class Model:
    """The network. The names are the paper's symbols."""

    kind: Literal[KINDS] = option(
        'transformer',
        'layers of attention, recurrent or convolutional: an encoder and a decoder for tasks that write a '
        'text for another text or an image, only a decoder for language models, only an encoder for other '
        'tasks; or a table of vectors without layers',
        '§3',
        # A Transformer's decoder alone was a kind of its own.
        old_values={'decoder': ('transformer', LANGUAGE)},
    )
    N: int = option(
        6, 'layers in the encoder and in the decoder', '§3.1', minimum=1, only=('model.kind', LAYERS)
    )
    N_decoder: int | None = option(None, 'layers in the decoder, if not N', '§3.1', minimum=1, only=DECODES)
    d_model: int = option(512, 'width of embeddings and layers', '§3.1', minimum=2)
    d_ff: int = option(2048, 'inner width of the feed-forward layers', '§3.3', minimum=1, only=LAYERED)
    h: int = option(8, 'attention heads', '§3.2.2', minimum=1, only=LAYERED)
    d_k: int | None = option(
        None, 'width of queries and keys per head, if not d_model/h', '§3.2.2', minimum=1, only=LAYERED
    )
    d_v: int | None = option(
        None, 'width of values per head, if not d_model/h', '§3.2.2', minimum=1, only=LAYERED
    )
    P_drop: float = option(
        0.1,
        'dropout of the output of each sub-layer or recurrent layer, or of the input of each convolution',
        '§5.4',
        minimum=0.0,
        maximum=0.99,
        only=('model.kind', LAYERS),
    )
    P_drop_attention: float = option(
        0.0, 'dropout of attention weights', minimum=0.0, maximum=0.99, only=LAYERED
    )
    P_drop_relu: float = option(0.0, 'dropout after the activation', minimum=0.0, maximum=0.99, only=LAYERED)
    P_drop_embedding: float | None = option(
        None,
        'dropout of embeddings plus positions, if not P_drop',
        '§5.4',
        minimum=0.0,
        maximum=0.99,
        only=('model.kind', LAYERS),
    )
    positions: _POSITIONS = option(
        'sinusoidal',
        "encoding of positions; buckets are T5's, one table for each stack",
        '§3.5, Table 3 (E)',
        only=POSITIONED,
    )
    sinusoid: Literal['paper', 't2t', 'halves'] = option(
        'paper',
        'sin and cos interleaved (paper), in halves, or in halves with timescales to exactly 10,000 '
        '(t2t, the released code)',
        '§3.5',
        only=(*POSITIONED, 'model.positions', ('sinusoidal',)),
    )
    first_position: int = option(
        0,
        'number of the first sinusoidal position',
        minimum=0,
        only=(*POSITIONED, 'model.positions', ('sinusoidal',)),
    )
    rotary_pairs: Literal['halves', 'interleaved'] = option(
        'halves',
        'numbers of a query or key that are rotated together: i and i + d_k/2, or 2i and 2i + 1',
        only=(*LAYERED, 'model.positions', ('rotary',)),
    )
    token_types: int = option(
        0,
        "rows of a table of token types; every piece gets the first (BERT's for one text), with "
        'masked.next_sentence a second text the second',
        minimum=0,
        only=(*LAYERED, *READS),
    )
    text_types: bool = option(
        False, "the texts of an example have token types of their own, as BERT's", only=(*LAYERED, *ANSWERS)
    )
    norm: Literal['post', 'pre'] = option(
        'post', 'normalise after or before a sub-layer', '§3.1', only=LAYERED
    )
    norm_type: Literal['layernorm', 'rmsnorm'] = option(
        'layernorm', 'kind of normalisation', '§3.1', only=LAYERED
    )
    norm_epsilon: float = option(
        1e-6, 'added to the variance in a normalisation', minimum=1e-12, only=LAYERED
    )
    norm_final: bool | None = option(
        None, 'normalise after the last layer; by default with norm=pre alone', only=LAYERED
    )
    norm_embedding: bool = option(False, 'normalise embeddings plus positions', only=(*LAYERED, *TEXTS))
    activation: _ACTIVATION = option('relu', 'activation of the feed-forward layers', '§3.3', only=LAYERED)
    attention: Literal['full', 'local', 'sparse', 'linear', 'chunked', 'flash'] = option(
        'full',
        'self-attention to all keys; to near keys; to near keys and every stride-th key; or to all keys by a '
        "feature map, in chunks, or by the device's fused kernel",
        '§3.2.1, §4',
        only=LAYERED,
    )
    attention_window: int = option(
        64, 'keys on each side of the query', '§4', minimum=1, only=(*LAYERED, 'model.attention', ('local',))
    )
    attention_stride: int = option(
        64,
        'positions between one far key and the next',
        minimum=1,
        only=(*LAYERED, 'model.attention', ('sparse',)),
    )
    attention_chunk: int = option(
        128, 'positions per chunk', minimum=1, only=(*LAYERED, 'model.attention', ('linear', 'chunked'))
    )
    attention_scale: Literal['sqrt_d_k', 'none'] = option(
        'sqrt_d_k',
        'divisor of products of queries and keys',
        '§3.2.1',
        only=(*LAYERED, 'model.attention', ('full', 'local', 'sparse', 'chunked', 'flash')),
    )
    tie_embeddings: Literal['all', 'inputs', 'decoder', 'none'] = option(
        'all',
        'which of source embedding, target embedding and softmax share one matrix: all, the first two, or '
        'the last two',
        '§3.4',
        only=PREDICTS,
    )
    scale_embeddings: bool = option(
        True, 'multiply embeddings by sqrt(d_model)', '§3.4', only=(*TEXTS, 'model.kind', LAYERS)
    )
    start: Literal['zeros', 'learned'] = option(
        'zeros', "embedding of a target's start: zeros, or row 0 of the table", only=DECODES
    )
    scale_logits: bool = option(False, 'multiply the logits by d_model^-0.5, as T5 does', only=PREDICTS)
    softmax_bias: bool = option(False, 'add a bias to the logits of the softmax', only=PREDICTS)
    biases: Literal['all', 'ffn', 'none'] = option(
        'all', 'which linear layers have biases; the paper writes them only for the FFN', '§3.3', only=LAYERED
    )
    init: _INIT = option(
        't2t',
        'Glorot uniform over the fused q, k, v kernel (released code) or each kernel; normal, or cut at two '
        "standard deviations; T5's: variance 1/fan-in, queries / sqrt(d_k), embeddings of variance 1; CLIP's "
        "of texts; or PyTorch's own, as CLIP's of images",
        only=LAYERED,
    )
    init_std: float = option(
        0.02, 'standard deviation of kernels and tables', minimum=0.0, only=(*LAYERED, *NORMAL)
    )
    init_std_positions: float | None = option(
        None,
        'standard deviation of a learned position table; by default init_std or, with other values of init, '
        'd_model^-0.5 (clip: 0.01)',
        minimum=0.0,
        only=(*LAYERED, 'model.positions', ('learned',)),
    )
    vocab_size: int | None = option(
        None,
        'rows of the embedding; by default data.pieces if set, or 40,960 (bytes: 259), and denoise.sentinels',
        '§5.1',
        minimum=4,
        only=TEXTS,
    )
    vectors: str | None = option(
        None, "file of word vectors from which the embedding's rows of the same pieces start", only=TEXTS
    )
    max_len: int = option(512, 'rows of a learned position table', '§3.5', minimum=1, only=POSITIONED)
    cell: Literal['lstm', 'gru', 'rnn_tanh', 'rnn_relu'] = option(
        'lstm', 'cell of the recurrent layers', only=RECURRENT
    )
    residual: bool = option(
        False, 'add the input of every recurrent layer but the first to its output', only=RECURRENT
    )
    variational_dropout: bool = option(
        False, 'one dropout mask for all steps of a sentence, also of the recurrent state', only=RECURRENT
    )
    bidirectional: bool = option(
        False,
        'encoder layers read in both directions, each with half of d_model',
        only=(*RECURRENT, *ENCODES),
    )
    reverse_source: bool = option(
        False,
        'the encoder reads the source from its end to its beginning',
        only=(*RECURRENT_PAIR, 'model.bidirectional', (False,)),
    )
    alignment: Literal['none', 'additive', 'dot', 'general', 'concat'] = option(
        'none',
        "score of the decoder's attention: from the state before a step (additive) or after it (the others)",
        only=RECURRENT_PAIR,
    )
    input_feeding: bool = option(
        False,
        'feed the attentional vector of a word to the decoder, together with the next word',
        only=(*RECURRENT_PAIR, 'model.alignment', ('dot', 'general', 'concat')),
    )
    kernel_width: int = option(3, 'positions in the window of a convolution', minimum=1, only=CONVOLUTIONAL)
    dtype: Literal['float32', 'bfloat16'] = option(
        'float32', 'type of computations; parameters are float32', only=('model.kind', LAYERS)
    )
    remat: bool = option(
        False,
        'recompute layers in the backward pass: less memory, about a quarter more FLOPs',
        only=LAYERED,
        free=True,
    )


@dataclasses.dataclass(frozen=True)
class ImageModel:
    """The encoder of images in a model that has texts, too. What is not set is as in `model`."""

    N: int | None = option(None, 'layers, if not model.N', minimum=1)
    d_model: int | None = option(None, 'width of layers, if not model.d_model', minimum=2)
    d_ff: int | None = option(None, 'inner width of the feed-forward layers, if not model.d_ff', minimum=1)
    h: int | None = option(None, 'attention heads, each of width d_model/h, if not model.h', minimum=1)
    positions: _POSITIONS | None = option(None, 'encoding of positions, if not model.positions')
    norm: Literal['post', 'pre'] | None = option(
        None, 'normalise after or before a sub-layer, if not model.norm'
    )
    norm_embedding: bool = option(False, 'normalise patches plus positions, as CLIP does (ln_pre)')
    activation: _ACTIVATION | None = option(
        None, 'activation of the feed-forward layers, if not model.activation'
    )
    init: _INIT | None = option(None, 'first values of kernels, if not model.init')
    init_std_positions: float | None = option(
        None,
        'standard deviation of a learned position table; by default by the same rule, of the images',
        minimum=0.0,
    )
