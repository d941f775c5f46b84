"""All options, each declared once. The defaults are the paper's base model on WMT 2014 English to German."""

import dataclasses
from typing import Literal

from transformer.config import declare
from transformer.config.declare import option
from transformer.config.tasks import KINDS, TASKS, TaskOptions, models_with

# Conditions of options: first tasks by name, then tasks by the parts of their models.
TRANSLATION = ('train.task', ('translation',))
LANGUAGES = ('train.task', ('translation', 'transliteration'))
PARSING = ('train.task', ('parsing',))
LANGUAGE = models_with('continues')
PAIR, ONE_TEXT, TEXTS, WRITES = map(models_with, ('pair', 'one_text', 'texts', 'writes'))
PREDICTS = models_with('writes', 'pieces')
# Models that encode texts: all models of texts except language models.
ENCODES = ('train.task', tuple(task for task in TEXTS[1] if task not in LANGUAGE[1]))
# Kinds of models by their layers. Recurrent layers need no encoding of positions.
LAYERED = ('model.kind', ('transformer',))
POSITIONED = ('model.kind', ('transformer', 'convolutional'))
RECURRENT = ('model.kind', ('recurrent',))
CONVOLUTIONAL = ('model.kind', ('convolutional',))
RECURRENT_PAIR = (*RECURRENT, *PAIR)
# Sources by what they read: stored data, or what the package generates.
GENERATED = ('grammar', 'pictures')
SOURCES = ('tfds', 'text', 'table', 'conll', 'squad', 'trees', *GENERATED, 'folders', 'idx')
STORED = ('data.source', tuple(source for source in SOURCES if source not in GENERATED))


@dataclasses.dataclass(frozen=True)
class Model:
    """The network. The names are the paper's symbols."""

    kind: Literal[KINDS] = option(
        'transformer',
        'layers of attention, recurrent or convolutional: an encoder and a decoder for translation, only a '
        'decoder for language models, only an encoder for other tasks',
        '§3',
        # A Transformer's decoder alone was a kind of its own.
        old_values={'decoder': ('transformer', LANGUAGE)},
    )
    N: int = option(6, 'layers in the encoder and in the decoder', '§3.1', minimum=1)
    N_decoder: int | None = option(None, 'layers in the decoder, if not N', '§3.1', minimum=1, only=PAIR)
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
    )
    P_drop_attention: float = option(
        0.0, 'dropout of attention weights', minimum=0.0, maximum=0.99, only=LAYERED
    )
    P_drop_relu: float = option(0.0, 'dropout after the activation', minimum=0.0, maximum=0.99, only=LAYERED)
    P_drop_embedding: float | None = option(
        None, 'dropout of embeddings plus positions, if not P_drop', '§5.4', minimum=0.0, maximum=0.99
    )
    positions: Literal['sinusoidal', 'learned', 'rotary', 'relative', 'none'] = option(
        'sinusoidal', 'encoding of positions', '§3.5, Table 3 (E)', only=POSITIONED
    )
    sinusoid: Literal['paper', 't2t', 'halves'] = option(
        'paper',
        'sin and cos interleaved (paper), in halves, or in halves with timescales to exactly 10,000 '
        '(t2t, the released code)',
        '§3.5',
        only=POSITIONED,
    )
    first_position: int = option(
        0,
        'number of the first sinusoidal position',
        minimum=0,
        only=(*POSITIONED, 'model.positions', ('sinusoidal',)),
    )
    token_types: int = option(
        0,
        "rows of a table of token types, of which every piece gets the first (BERT's for one text)",
        minimum=0,
        only=(*LAYERED, *models_with('pieces')),
    )
    norm: Literal['post', 'pre'] = option(
        'post', 'normalise after or before a sub-layer', '§3.1', only=LAYERED
    )
    norm_type: Literal['layernorm', 'rmsnorm'] = option(
        'layernorm', 'kind of normalisation', '§3.1', only=LAYERED
    )
    norm_epsilon: float = option(1e-6, 'added to the variance in a normalisation', minimum=0.0, only=LAYERED)
    norm_final: bool | None = option(
        None, 'normalise after the last layer; by default with norm=pre alone', only=LAYERED
    )
    norm_embedding: bool = option(False, 'normalise embeddings plus positions', only=(*LAYERED, *TEXTS))
    activation: Literal['relu', 'gelu', 'gelu_tanh', 'swish', 'swiglu'] = option(
        'relu', 'activation of the feed-forward layers', '§3.3', only=LAYERED
    )
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
    tie_embeddings: Literal['all', 'decoder', 'none'] = option(
        'all',
        'which of source embedding, target embedding and softmax share one matrix',
        '§3.4',
        only=PREDICTS,
    )
    scale_embeddings: bool = option(True, 'multiply embeddings by sqrt(d_model)', '§3.4', only=TEXTS)
    start: Literal['zeros', 'learned'] = option(
        'zeros', "embedding of a target's start: zeros, or row 0 of the table", only=PAIR
    )
    softmax_bias: bool = option(False, 'add a bias to the logits of the softmax', only=PREDICTS)
    biases: Literal['all', 'ffn', 'none'] = option(
        'all', 'which linear layers have biases; the paper writes them only for the FFN', '§3.3', only=LAYERED
    )
    init: Literal['t2t', 'xavier'] = option(
        't2t', 'Glorot uniform over the fused q, k, v kernel (released code) or each kernel', only=LAYERED
    )
    vocab_size: int | None = option(
        None,
        'rows of the embedding; by default data.pieces if set, or 40,960 (bytes: 259)',
        '§5.1',
        minimum=4,
        only=TEXTS,
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
    dtype: Literal['float32', 'bfloat16'] = option('float32', 'type of computations; parameters are float32')
    remat: bool = option(
        False,
        'recompute layers in the backward pass: less memory, about a quarter more FLOPs',
        only=LAYERED,
        free=True,
    )


@dataclasses.dataclass(frozen=True)
class Data:
    """The source of the data, its tokenizer and its batches."""

    source: Literal[SOURCES] = option('tfds', 'where the data comes from', '§5.1')
    dir: str | None = option(None, 'folder of the data files, or of TFDS', free=True, only=STORED)
    name: str | None = option('wmt14_translate/de-en', 'dataset and config of TFDS', '§5.1')
    train: str = option(
        'train',
        'split, or comma-separated text files without the suffix of their language',
        '§5.1',
        only=STORED,
    )
    dev: str = option('validation', 'the same for development', '§6.2', only=STORED)
    test: str = option('test', 'the same for the test', '§6.1', only=STORED)
    columns: str | None = option(
        None,
        'column of each field of a table, such as text=sentence,label=stars: by name, or by number if the '
        'first line has no names; text=a+b joins texts; by default named as the fields (CoNLL: first, last)',
        only=('data.source', ('table', 'conll')),
    )
    train_examples: int | None = option(
        None,
        'number of training examples to use, from the first; by default all',
        minimum=1,
        once=('train_pairs',),
    )
    source_language: str = option(
        'en', 'language translated from; suffix of text files', '§5.1', only=LANGUAGES
    )
    target_language: str = option(
        'de', 'language translated into; suffix of text files', '§5.1', only=LANGUAGES
    )
    language: str | None = option(
        None, 'language of the text; suffix of text files, which need full names without it', only=ONE_TEXT
    )
    documents: Literal['lines', 'files'] = option('lines', 'what counts as a document', only=LANGUAGE)
    tokenizer: Literal['bpe', 'characters', 'bytes'] = option(
        'bpe', 'BPE or characters, learned from the training text, or the bytes of UTF-8', '§5.1', only=TEXTS
    )
    tokenizer_model: str | None = option(
        None,
        'SentencePiece model or subword-nmt codes of data.pieces pieces, instead of BPE learned from the '
        'training text; for separate vocabularies two, separated by a comma',
        only=('data.tokenizer', ('bpe',)),
    )
    vocabulary: Literal['joint', 'separate'] = option(
        'joint',
        'one vocabulary for both sides, or one of data.pieces pieces learned from each side',
        '§5.1',
        only=LANGUAGES,
    )
    tags: bool = option(
        False, "whether each word's tag stands for it in a tree, in place of XX", only=PARSING
    )
    pieces: int | None = option(
        None, 'size of the vocabulary; by default 37,000 (bytes: 259)', '§5.1', minimum=4, only=TEXTS
    )
    batching: Literal['bucketed', 'packed', 'running'] = option(
        'bucketed',
        'rows of one example, batched by length; rows of several examples; or rows cut from running text',
        '§5.1',
        only=TEXTS,
    )
    batch_tokens: int | None = option(
        None,
        'positions per update on all devices (target side), padding included; by default 25,000, or in '
        'bucketed rows 32,768, which hold about 25,000 pieces, as in the released code',
        '§5.1',
        minimum=1,
    )
    row_len: int | None = option(
        None, 'positions of a packed or running row (target side), if not data.max_len', minimum=2, only=TEXTS
    )
    max_len: int = option(
        256, 'longest sentence to train on, in pieces including its end', '§5.1', minimum=2, only=TEXTS
    )
    stride: int | None = option(
        None,
        'new pieces that each window of data.row_len pieces scores in an evaluation; by default all',
        minimum=1,
        free='evaluation',
        only=LANGUAGE,
    )


@dataclasses.dataclass(frozen=True)
class Train:
    """The task, its optimisation, numerics and bookkeeping."""

    task: Literal[tuple(TASKS)] = option(
        'translation',
        'translate, parse or transliterate, predict the next piece or hidden pieces of a text, or classify '
        'images',
        '§6',
    )
    steps: int = option(
        100_000, 'number of updates', '§5.2', minimum=1, free=True, only=('train.epochs', (None,))
    )
    epochs: float | None = option(None, 'passes over the data, instead of steps', minimum=1e-6, free=True)
    seed: int = option(0, 'seed of initialisation, data order and dropout', minimum=0, maximum=2**31 - 1)
    eps_ls: float = option(0.1, 'label smoothing', '§5.4', minimum=0.0, maximum=0.99)
    warmup_steps: int = option(4000, 'updates in which the learning rate rises', '§5.3', minimum=1)
    lr_constant: float = option(1.0, 'factor of the learning rate', '§5.3', minimum=0.0)
    peak_lr: float | None = option(
        None,
        'learning rate at the end of the warm-up, instead of lr_constant · (d_model · warmup_steps)^-0.5',
        '§5.3',
        minimum=0.0,
    )
    schedule: Literal['inverse_sqrt', 'constant', 'linear', 'cosine'] = option(
        'inverse_sqrt',
        'learning rate after the warm-up: falls as step^-0.5, stays, or falls to 0 at train.decay_steps',
        '§5.3',
    )
    decay_steps: int | None = option(
        None,
        'update at which the learning rate reaches 0, if not train.steps',
        minimum=1,
        only=('train.schedule', ('linear', 'cosine')),
    )
    beta1: float = option(0.9, 'β1 of Adam', '§5.3', minimum=0.0, maximum=0.999999)
    beta2: float = option(0.98, 'β2 of Adam', '§5.3', minimum=0.0, maximum=0.999999)
    adam_eps: float = option(1e-9, 'ε of Adam', '§5.3', minimum=0.0)
    weight_decay: float = option(
        0.0,
        'decoupled weight decay (AdamW): each update shrinks parameters, except biases and the scales of '
        'norms, by this share times the learning rate',
        minimum=0.0,
    )
    clip_norm: float = option(
        0.0, "norm to which the batch's gradient is scaled down if it is larger; 0 for no limit", minimum=0.0
    )
    ema: float = option(
        0.0,
        'decay of an exponential moving average of the parameters, which is evaluated and used in place of '
        'the parameters; 0 for none',
        minimum=0.0,
        maximum=0.999999,
    )
    frozen: str | None = option(
        None, 'parameters that keep their first values: prefixes of their names, separated by commas'
    )
    microbatches: int = option(
        8, 'equal parts of a batch, each with its own dropout key, whatever the number of devices', minimum=1
    )
    accumulate: int | None = option(
        None, 'chunks of a batch on a device; by default 1, or what is fast on a TPU', minimum=1, free=True
    )
    log_every: int = option(100, 'updates between two lines of metrics', minimum=1, free=True)
    eval_every: int = option(1500, 'updates between two evaluations on dev', minimum=1, free=True)
    watch_every: int = option(
        0,
        'updates between two scores of what is written on dev, such as BLEU; 0 for none',
        minimum=0,
        free=True,
        only=PAIR,
        once=('bleu_every',),
    )
    checkpoint_every: int = option(1500, 'updates between two checkpoints', '§6.1', minimum=1, free=True)
    best_by: str = option(
        'loss',
        "the task's measure on dev that decides which checkpoint is best, and when train.patience runs out",
    )
    patience: int = option(
        0,
        'evaluations in a row without a better train.best_by after which training stops; 0 for no limit',
        minimum=0,
        free=True,
    )
    scored: Literal['latest', 'best'] | None = option(
        None,
        'checkpoint to score at the end and to use later, unless checkpoints are averaged; by default the '
        'latest, or the best with train.patience or a train.best_by other than loss',
        'Table 3',
        free=True,
    )
    keep: int = option(2, 'number of latest checkpoints to keep besides the best', minimum=1, free=True)
    average_last: int = option(
        0, 'number of checkpoints to keep and average at the end; 0 for none', '§6.1', minimum=0, free=True
    )
    average_every: int | None = option(
        None, 'updates between averaged checkpoints, if not checkpoint_every', '§6.1', minimum=1, free=True
    )
    gradient_dtype: Literal['float32', 'bfloat16'] = option(
        'float32', 'type in which gradients are summed over devices'
    )
    prng: Literal['threefry', 'rbg'] = option('threefry', 'random generator of dropout masks')
    matmul_precision: Literal['default', 'high', 'highest'] = option(
        'default', 'precision of float32 matrix products: by default bf16 on TPU and TF32 on GPU'
    )


@dataclasses.dataclass(frozen=True)
class Decode:
    """Search and evaluation. None of these options changes what is learned."""

    method: Literal['beam', 'greedy', 'sample'] = option('beam', 'kind of search', '§6.1')
    beam: int = option(4, 'hypotheses per sentence', '§6.1', minimum=1)
    alpha: float = option(0.6, 'length penalty ((5 + n)/6)^alpha', '§6.1', minimum=0.0)
    extra_len: int = option(
        50,
        'most pieces that a translation can have beyond its source, or a continuation beyond its prompt',
        '§6.1',
        minimum=0,
    )
    max_source_len: int = option(
        256, 'pieces, including the end, to which longer sentences and prompts are cut', minimum=2
    )
    temperature: float = option(1.0, 'divisor of the logits when sampling', minimum=1e-4)
    top_k: int = option(0, 'sample among the k likeliest pieces; 0 for all', minimum=0)
    top_p: float = option(
        1.0, 'sample among the likeliest pieces with this total probability', minimum=1e-6, maximum=1.0
    )

    well_formed: bool = option(
        False,
        "search only among trees over a sentence's words, so that no output needs repair",
        only=PARSING,
    )


@dataclasses.dataclass(frozen=True)
class _SharedOptions:
    """The groups of options that all tasks share."""

    model: Model = Model()
    data: Data = Data()
    train: Train = Train()
    decode: Decode = declare.group(Decode, free='evaluation', only=WRITES)


@dataclasses.dataclass(frozen=True)
class Config(TaskOptions, _SharedOptions):
    """All options of one experiment, resolved: the shared groups, then each task's own."""


OPTIONS = declare.declared(Config)
