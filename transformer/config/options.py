"""All options, each declared once; the defaults are the paper's base model on WMT 2014 English to German."""

import dataclasses
from typing import Literal

from transformer.config import declare
from transformer.config.declare import option

# What models of each task read and write: a source and a target, a text, a text with gaps, an image.
FORM = {'translation': 'pair', 'language': 'text', 'masked': 'encoder', 'images': 'image'}
# The kinds of models that each form has; `nn.models.MODELS` has their modules.
KINDS = {
    'pair': ('transformer', 'recurrent', 'convolutional'),
    'text': ('transformer', 'recurrent', 'convolutional'),
    'encoder': ('transformer',),
    'image': ('transformer',),
}


def tasks_of(*forms: str) -> tuple[str, ...]:
    """Lists the tasks whose models have one of these forms."""
    return tuple(task for task, form in FORM.items() if form in forms)


# Conditions of options. Tasks by what they are, then by what their models are.
TRANSLATION = ('train.task', ('translation',))
LANGUAGE = ('train.task', ('language',))
PAIR = ('train.task', tasks_of('pair'))
ONE_TEXT = ('train.task', tasks_of('text', 'encoder'))
TEXTS = ('train.task', tasks_of('pair', 'text', 'encoder'))
WRITES = ('train.task', tasks_of('pair', 'text'))
# Kinds of models by their layers. Recurrent layers count positions themselves.
LAYERED = ('model.kind', ('transformer',))
POSITIONED = ('model.kind', ('transformer', 'convolutional'))
RECURRENT = ('model.kind', ('recurrent',))
CONVOLUTIONAL = ('model.kind', ('convolutional',))
RECURRENT_PAIR = (*RECURRENT, *PAIR)


@dataclasses.dataclass(frozen=True)
class Model:
    """The network; the names are the paper's symbols."""

    kind: Literal['transformer', 'recurrent', 'convolutional'] = option(
        'transformer',
        'layers of attention, recurrent or convolutional; for translation an encoder and a decoder, for a '
        'language model a decoder alone',
        '§3',
        # A Transformer's decoder alone was a kind of its own.
        old_values={'decoder': ('transformer', ('train.task', tasks_of('text')))},
    )
    N: int = option(6, 'layers of the encoder and of the decoder', '§3.1', minimum=1)
    N_decoder: int | None = option(None, 'layers of the decoder, if not N', '§3.1', minimum=1, only=PAIR)
    d_model: int = option(512, 'width of embeddings and of layers', '§3.1', minimum=2)
    d_ff: int = option(2048, 'inner width of the feed-forward layers', '§3.3', minimum=1, only=LAYERED)
    h: int = option(8, 'attention heads', '§3.2.2', minimum=1, only=LAYERED)
    d_k: int | None = option(
        None, 'width of a query and key head, if not d_model/h', '§3.2.2', minimum=1, only=LAYERED
    )
    d_v: int | None = option(
        None, 'width of a value head, if not d_model/h', '§3.2.2', minimum=1, only=LAYERED
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
        None, 'dropout of embedding + position, if not P_drop', '§5.4', minimum=0.0, maximum=0.99
    )
    positions: Literal['sinusoidal', 'learned', 'rotary', 'relative', 'none'] = option(
        'sinusoidal', 'how positions enter', '§3.5, Table 3 (E)', only=POSITIONED
    )
    sinusoid: Literal['paper', 't2t'] = option(
        'paper',
        'interleaved sin/cos of the text, or the halves of the released code',
        '§3.5',
        only=POSITIONED,
    )
    norm: Literal['post', 'pre'] = option(
        'post', 'normalise after or before a sub-layer', '§3.1', only=LAYERED
    )
    norm_type: Literal['layernorm', 'rmsnorm'] = option(
        'layernorm', 'kind of normalisation', '§3.1', only=LAYERED
    )
    activation: Literal['relu', 'gelu', 'swiglu'] = option(
        'relu', 'of the feed-forward layers', '§3.3', only=LAYERED
    )
    attention: Literal['full', 'local', 'sparse', 'linear', 'chunked', 'flash'] = option(
        'full',
        'self-attention to all keys; near ones; near and every stride-th one; or all, by a feature map, by '
        "chunks of keys, or by the device's fused kernel",
        '§3.2.1, §4',
        only=LAYERED,
    )
    attention_window: int = option(
        64, 'neighbours on each side', '§4', minimum=1, only=(*LAYERED, 'model.attention', ('local',))
    )
    attention_stride: int = option(
        64,
        'positions from one far key to the next',
        minimum=1,
        only=(*LAYERED, 'model.attention', ('sparse',)),
    )
    attention_chunk: int = option(
        128, 'positions taken at once', minimum=1, only=(*LAYERED, 'model.attention', ('linear', 'chunked'))
    )
    tie_embeddings: Literal['all', 'decoder', 'none'] = option(
        'all', 'which of source embedding, target embedding and softmax share one matrix', '§3.4', only=TEXTS
    )
    biases: Literal['all', 'ffn', 'none'] = option(
        'all', 'which linear layers have biases; the text writes them for the FFN only', '§3.3', only=LAYERED
    )
    init: Literal['t2t', 'xavier'] = option(
        't2t',
        'Glorot uniform over the fused q,k,v kernels of the released code, or over each kernel',
        only=LAYERED,
    )
    vocab_size: int | None = option(
        None, 'rows of the embedding, if not data.pieces or 40,960', '§5.1', minimum=4, only=TEXTS
    )
    max_len: int = option(512, 'rows of a learned position table', '§3.5', minimum=1, only=POSITIONED)
    cell: Literal['lstm', 'gru', 'rnn_tanh', 'rnn_relu'] = option(
        'lstm', 'of the recurrent layers', only=RECURRENT
    )
    residual: bool = option(
        False, 'add the input of every recurrent layer but the first to its output', only=RECURRENT
    )
    variational_dropout: bool = option(
        False,
        'draw dropout once for all steps of a sentence, and drop the recurrent state too',
        only=RECURRENT,
    )
    bidirectional: bool = option(
        False, 'encoder layers read in both directions, each with half of d_model', only=RECURRENT_PAIR
    )
    reverse_source: bool = option(
        False,
        'the encoder reads the source from its end to its beginning',
        only=(*RECURRENT_PAIR, 'model.bidirectional', (False,)),
    )
    alignment: Literal['none', 'additive', 'dot', 'general', 'concat'] = option(
        'none',
        "score of the decoder's attention: from its state before a step (additive), or after it",
        only=RECURRENT_PAIR,
    )
    input_feeding: bool = option(
        False,
        'what attention gave for a word enters the decoder with the next word',
        only=(*RECURRENT_PAIR, 'model.alignment', ('dot', 'general', 'concat')),
    )
    kernel_width: int = option(3, 'positions that a convolution sees', minimum=1, only=CONVOLUTIONAL)
    dtype: Literal['float32', 'bfloat16'] = option('float32', 'of the computation; parameters are float32')
    remat: bool = option(
        False,
        'compute layers again in the backward pass: less memory, about a quarter more FLOPs',
        only=LAYERED,
        free=True,
    )


@dataclasses.dataclass(frozen=True)
class Data:
    """The source of the data, its tokenizer and its batches."""

    source: Literal['tfds', 'text', 'grammar', 'pictures', 'folders', 'idx'] = option(
        'tfds', 'where the data comes from', '§5.1'
    )
    dir: str | None = option(None, 'folder of the files, or of TFDS', free=True)
    name: str | None = option('wmt14_translate/de-en', 'TFDS dataset and config', '§5.1')
    train: str = option(
        'train', 'split, or text files, comma-separated, without the suffix of their language', '§5.1'
    )
    dev: str = option('validation', 'the same for development', '§6.2')
    test: str = option('test', 'the same for the test', '§6.1')
    train_pairs: int | None = option(
        None, 'use only this many examples of the training split, the first ones', minimum=1
    )
    source_language: str = option(
        'en', 'language translated from; suffix of text files', '§5.1', only=TRANSLATION
    )
    target_language: str = option(
        'de', 'language translated into; suffix of text files', '§5.1', only=TRANSLATION
    )
    language: str | None = option(
        None, 'language of the text; suffix of text files, which are named in full without it', only=ONE_TEXT
    )
    documents: Literal['lines', 'files'] = option('lines', 'what a document of the text is', only=LANGUAGE)
    tokenizer: Literal['bpe', 'bytes'] = option(
        'bpe', 'SentencePiece BPE learned from the training text, or the bytes of UTF-8', '§5.1', only=TEXTS
    )
    tokenizer_model: str | None = option(
        None,
        'SentencePiece model of data.pieces pieces to use instead of one learned from the training text; '
        'for separate vocabularies two, with a comma between them',
        only=('data.tokenizer', ('bpe',)),
    )
    vocabulary: Literal['joint', 'separate'] = option(
        'joint',
        'one vocabulary of both sides, or one each, learned from its side, of data.pieces pieces',
        '§5.1',
        only=TRANSLATION,
    )
    pieces: int | None = option(
        None, 'size of the vocabulary, if not 37,000; of bytes 259', '§5.1', minimum=259, only=TEXTS
    )
    batching: Literal['bucketed', 'packed', 'running'] = option(
        'bucketed',
        'rows of one example, batched by length; rows of several examples; or rows cut from the running text',
        '§5.1',
        only=TEXTS,
    )
    batch_tokens: int | None = option(
        None,
        'positions of one update on all devices (target side), padding included; by default 25,000, or in '
        'bucketed rows 32,768, as in the released code: about 25,000 pieces',
        '§5.1',
        minimum=1,
    )
    row_len: int | None = option(
        None, '(target) positions of a packed or running row, if not data.max_len', minimum=2, only=TEXTS
    )
    max_len: int = option(
        256, 'longest sentence, in pieces with its end, that is trained on', '§5.1', minimum=2, only=TEXTS
    )
    stride: int | None = option(
        None,
        'new pieces scored by each window of data.row_len in an evaluation; all of them if not given',
        minimum=1,
        free='evaluation',
        only=LANGUAGE,
    )


@dataclasses.dataclass(frozen=True)
class Train:
    """The task, its optimisation, the arithmetic and the bookkeeping."""

    task: Literal['translation', 'language', 'masked', 'images'] = option(
        'translation',
        'translate sentences; predict the next piece of a text, or hidden pieces; or classify images',
        '§6',
    )
    steps: int = option(100_000, 'updates', '§5.2', minimum=1, free=True)
    seed: int = option(0, 'of initialisation, order and dropout', minimum=0, maximum=2**31 - 1)
    eps_ls: float = option(0.1, 'label smoothing', '§5.4', minimum=0.0, maximum=0.99)
    warmup_steps: int = option(4000, 'updates of rising learning rate', '§5.3', minimum=1)
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
    beta1: float = option(0.9, 'of Adam', '§5.3', minimum=0.0, maximum=0.999999)
    beta2: float = option(0.98, 'of Adam', '§5.3', minimum=0.0, maximum=0.999999)
    adam_eps: float = option(1e-9, 'of Adam', '§5.3', minimum=0.0)
    weight_decay: float = option(
        0.0,
        'decoupled, as in AdamW: each update shrinks every parameter by this share times the learning rate, '
        'except biases and the scales of norms',
        minimum=0.0,
    )
    clip_norm: float = option(
        0.0, "norm to which the batch's gradient is scaled down if it is larger; 0 for never", minimum=0.0
    )
    ema: float = option(
        0.0,
        'decay of an exponential moving average of the parameters, which is then evaluated and used in '
        'their place; 0 for none',
        minimum=0.0,
        maximum=0.999999,
    )
    microbatches: int = option(
        8, 'equal parts of a batch, each with its own dropout key, whatever the number of devices', minimum=1
    )
    accumulate: int = option(
        1, 'chunks into which a device cuts its part of a batch, to need less memory', minimum=1, free=True
    )
    log_every: int = option(100, 'updates between two lines of metrics', minimum=1, free=True)
    eval_every: int = option(1500, 'updates between two evaluations on dev', minimum=1, free=True)
    watch_every: int = option(
        0,
        'updates between two BLEUs of dev; 0 for none',
        minimum=0,
        free=True,
        only=TRANSLATION,
        once=('bleu_every',),
    )
    checkpoint_every: int = option(1500, 'updates between two checkpoints', '§6.1', minimum=1, free=True)
    best_by: str = option(
        'loss',
        "the task's measure on dev that decides which checkpoint is the best, and when train.patience ends",
    )
    patience: int = option(
        0,
        'evaluations in a row without a better train.best_by after which training stops; 0 for any number',
        minimum=0,
        free=True,
    )
    scored: Literal['latest', 'best'] | None = option(
        None,
        'checkpoint that is scored at the end and then used, if none are averaged; by default the latest, or '
        'the best with train.patience or another train.best_by than loss',
        'Table 3',
        free=True,
    )
    keep: int = option(2, 'latest checkpoints kept beside the best', minimum=1, free=True)
    average_last: int = option(
        0, 'checkpoints kept to be averaged at the end; 0 for none', '§6.1', minimum=0, free=True
    )
    average_every: int | None = option(
        None, 'updates between averaged checkpoints, if not checkpoint_every', '§6.1', minimum=1, free=True
    )
    prng: Literal['threefry', 'rbg'] = option('threefry', 'generator of dropout masks')
    matmul_precision: Literal['default', 'high', 'highest'] = option(
        'default', 'of float32 products: by default bf16 on TPU and TF32 on GPU'
    )


@dataclasses.dataclass(frozen=True)
class Decode:
    """Search and evaluation; nothing here changes what is learned."""

    method: Literal['beam', 'greedy', 'sample'] = option('beam', 'kind of search', '§6.1')
    beam: int = option(4, 'hypotheses per sentence', '§6.1', minimum=1)
    alpha: float = option(0.6, 'length penalty ((5 + n)/6)^alpha', '§6.1', minimum=0.0)
    extra_len: int = option(
        50,
        'a translation has at most as many pieces as its source and this many more; '
        'a continued prompt this many more',
        '§6.1',
        minimum=0,
    )
    max_source_len: int = option(
        256, 'pieces, with the end, to which a longer sentence or prompt is cut', minimum=2
    )
    temperature: float = option(1.0, 'divides the logits of method sample', minimum=1e-4)
    top_k: int = option(0, 'sample among the k likeliest pieces; 0 for all', minimum=0)
    top_p: float = option(
        1.0, 'sample among the likeliest pieces with this share of the probability', minimum=1e-6, maximum=1.0
    )


@dataclasses.dataclass(frozen=True)
class Masked:
    """Hidden pieces of a text (Devlin et al. 2019)."""

    rate: float = option(0.15, 'share of the pieces that are hidden', minimum=0.01, maximum=0.9)


@dataclasses.dataclass(frozen=True)
class Images:
    """Images and their classes (Dosovitskiy et al. 2021)."""

    size: int = option(32, 'pixels of an image on each side', minimum=1)
    pixels: Literal['rgb', 'grey'] = option('rgb', 'three channels or one')
    patch: int = option(4, 'pixels of a patch on each side; divides images.size', minimum=1)
    classes: int = option(24, 'classes of images', minimum=2)

    @property
    def channels(self) -> int:
        """Channels of a pixel."""
        return {'rgb': 3, 'grey': 1}[self.pixels]

    @property
    def positions(self) -> int:
        """Patches of an image and the class token."""
        return (self.size // self.patch) ** 2 + 1


@dataclasses.dataclass(frozen=True)
class Config:
    """One resolved experiment."""

    model: Model = Model()
    data: Data = Data()
    train: Train = Train()
    decode: Decode = declare.group(Decode, free='evaluation', only=WRITES)
    masked: Masked = declare.group(Masked, only=('train.task', ('masked',)))
    images: Images = declare.group(Images, only=('train.task', ('images',)))


OPTIONS = declare.declared(Config)
