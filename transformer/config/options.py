"""All options, each declared once. The defaults are the paper's base model on WMT 2014 English to German."""

import dataclasses
from typing import Literal

from transformer.config import declare
from transformer.config.conditions import (
    ADAM,
    DECODES,
    IMAGES,
    LANGUAGE,
    LANGUAGES,
    LAYERED,
    ONE_TEXT,
    OWN_SPLITS,
    RECURRENT,
    RUNNING,
    SMOOTHED,
    SOURCES,
    STORED,
    TEXTS,
    TREES,
    WRITES,
)
from transformer.config.declare import option
from transformer.config.decode import Decode
from transformer.config.model import ImageModel, Model
from transformer.config.tasks import TASKS, TaskOptions, models_with_all


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
        besides=OWN_SPLITS,
    )
    dev: str = option('validation', 'the same for development', '§6.2', only=STORED, besides=OWN_SPLITS)
    test: str = option('test', 'the same for the test', '§6.1', only=STORED, besides=OWN_SPLITS)
    columns: str | None = option(
        None,
        'column of each field of a table, such as text=sentence,label=stars: by name, or by number if the '
        'first line has no names; text=a+b joins texts; by default named as the fields (CoNLL: first, last)',
        only=('data.source', ('table', 'conll')),
    )
    pictures: str | None = option(
        None,
        'folder or zip archive in data.dir with the pictures that a table names; by default the folder of '
        'the table',
        only=(*IMAGES, 'data.source', ('table',)),
    )
    unreadable: Literal['refuse', 'leave_out'] = option(
        'refuse',
        'what happens to a picture that is missing or cannot be read: an error, or its row is left out and '
        'counted',
        only=(*IMAGES, 'data.source', ('table', 'folders')),
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
    documents: Literal['lines', 'files'] = option('lines', 'what counts as a document', only=RUNNING)
    tokenizer: Literal['bpe', 'byte_bpe', 'characters', 'words', 'bytes'] = option(
        'bpe',
        "BPE of characters, GPT-2's BPE of bytes, characters, or words between blanks, learned from the "
        'training text; or the bytes of UTF-8',
        '§5.1',
        only=TEXTS,
    )
    tokenizer_model: str | None = option(
        None,
        'SentencePiece model or subword-nmt codes of data.pieces pieces, instead of BPE learned from the '
        'training text; for separate vocabularies two, separated by a comma',
        free=True,
        only=(*TEXTS, 'data.tokenizer', ('bpe',)),
    )
    vocabulary: Literal['joint', 'separate'] = option(
        'joint',
        'one vocabulary for both sides, or one of data.pieces pieces learned from each side',
        '§5.1',
        only=LANGUAGES,
    )
    tags: bool = option(False, "whether each word's tag stands for it in a tree, in place of XX", only=TREES)
    pieces: int | None = option(
        None, 'size of the vocabulary; by default 37,000 (bytes: 259)', '§5.1', minimum=4, only=TEXTS
    )
    batching: Literal['bucketed', 'packed', 'padded', 'running'] = option(
        'bucketed',
        'rows of one example, batched by length; rows of several examples; rows of one example, all equally '
        'wide, so that every batch has as many; or rows cut from running text',
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
    carry: bool = option(
        False,
        'whether a recurrent model keeps its state from row to row and from document to document, so that '
        'only gradients end at the beginning of a row',
        only=(*LANGUAGE, *RECURRENT, 'data.batching', ('running',)),
    )
    stride: int | None = option(
        None,
        'new pieces that each window of data.row_len pieces scores in an evaluation; by default all',
        minimum=1,
        free='evaluation',
        only=(*LANGUAGE, 'data.carry', (False,)),
    )


@dataclasses.dataclass(frozen=True)
class Train:
    """The task, its optimisation, numerics and bookkeeping."""

    task: Literal[tuple(TASKS)] = option(
        'translation',
        'translate, parse or transliterate, write a text for a text with a prefix, predict the next piece or '
        'hidden pieces of a text, classify images, write their captions or compare them with texts, classify '
        'texts, label words, find answers in paragraphs, or learn vectors of words',
        '§6',
    )
    steps: int = option(
        100_000, 'number of updates', '§5.2', minimum=1, free=True, only=('train.epochs', (None,))
    )
    epochs: float | None = option(None, 'passes over the data, instead of steps', minimum=1e-6, free=True)
    seed: int = option(0, 'seed of initialisation, data order and dropout', minimum=0, maximum=2**31 - 1)
    eps_ls: float = option(0.1, 'label smoothing', '§5.4', minimum=0.0, maximum=0.99, only=SMOOTHED)
    warmup_steps: int = option(4000, 'updates in which the learning rate rises', '§5.3', minimum=1)
    lr_constant: float = option(
        1.0, 'factor of the learning rate', '§5.3', minimum=0.0, only=('train.peak_lr', (None,))
    )
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
        'update at which the learning rate would reach 0, if not train.steps',
        minimum=1,
        only=('train.schedule', ('linear', 'cosine')),
    )
    least_lr: float = option(
        0.0,
        'share of the peak below which the learning rate does not fall',
        minimum=0.0,
        maximum=1.0,
        only=('train.schedule', ('linear', 'cosine')),
    )
    optimizer: Literal['adam', 'adafactor', 'sgd'] = option(
        'adam',
        "rule by which gradients become updates: Adam, Adafactor without momentum, or word2vec's descent "
        "along the sum of the batch's losses, not along their mean",
        '§5.3',
    )
    beta1: float = option(0.9, 'β1 of Adam', '§5.3', minimum=0.0, maximum=0.999999, only=ADAM)
    beta2: float = option(0.98, 'β2 of Adam', '§5.3', minimum=0.0, maximum=0.999999, only=ADAM)
    adam_eps: float = option(1e-9, 'ε of Adam', '§5.3', minimum=1e-15, only=ADAM)
    bias_correction: bool = option(
        True, "correct Adam's averages for their start at 0, which BERT's code does not", '§5.3', only=ADAM
    )
    weight_decay: float = option(
        0.0,
        'decoupled weight decay (AdamW): each update shrinks parameters, except biases and the scales of '
        'norms and of cosines, by this share times the learning rate',
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
        only=DECODES,
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
class _SharedOptions:
    """The groups of options that all tasks share."""

    model: Model = Model()
    image_model: ImageModel = declare.group(ImageModel, only=(*LAYERED, *models_with_all('image', 'texts')))
    data: Data = Data()
    train: Train = Train()
    decode: Decode = declare.group(Decode, free='evaluation', only=WRITES)


@dataclasses.dataclass(frozen=True)
class Config(TaskOptions, _SharedOptions):
    """All options of one experiment, resolved: the shared groups, then each task's own."""


OPTIONS = declare.declared(Config)
