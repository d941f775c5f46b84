"""Every option of the codebase, declared once: its type, choices, paper value and section.

The defaults are the paper's base model on WMT 2014 English to German. A config file returns
`config_dict({...})` with its differences. `resolve` checks all of it and returns frozen dataclasses, so
that code downstream never sees an invalid or missing value.
"""

import dataclasses
import json
from typing import Literal

import ml_collections
from ml_collections import config_dict as mlc

from transformer import options
from transformer.options import ConfigError, check_meaning, check_name, check_value, has_meaning, option


@dataclasses.dataclass(frozen=True)
class Model:
    """The network; the names are the paper's symbols."""

    kind: Literal['transformer', 'decoder'] = option(
        'transformer', 'encoder and decoder, or a decoder alone (a language model)', '§3'
    )
    N: int = option(6, 'layers of the encoder and of the decoder', '§3.1', minimum=1)
    N_decoder: int | None = option(
        None,
        'layers of the decoder, if not N',
        '§3.1',
        minimum=1,
        only=('model.kind', ('transformer',)),
    )
    d_model: int = option(512, 'width of embeddings and sub-layer outputs', '§3.1', minimum=2)
    d_ff: int = option(2048, 'inner width of the feed-forward layers', '§3.3', minimum=1)
    h: int = option(8, 'attention heads', '§3.2.2', minimum=1)
    d_k: int | None = option(None, 'width of a query and key head, if not d_model/h', '§3.2.2', minimum=1)
    d_v: int | None = option(None, 'width of a value head, if not d_model/h', '§3.2.2', minimum=1)
    P_drop: float = option(0.1, 'residual dropout', '§5.4', minimum=0.0, maximum=0.99)
    P_drop_attention: float = option(0.0, 'dropout of attention weights', '', minimum=0.0, maximum=0.99)
    P_drop_relu: float = option(0.0, 'dropout after the activation', '', minimum=0.0, maximum=0.99)
    P_drop_embedding: float | None = option(
        None, 'dropout of embedding + position, if not P_drop', '§5.4', minimum=0.0, maximum=0.99
    )
    positions: Literal['sinusoidal', 'learned', 'rotary', 'relative', 'none'] = option(
        'sinusoidal', 'how positions enter', '§3.5, Table 3 (E)'
    )
    sinusoid: Literal['paper', 't2t'] = option(
        'paper', 'interleaved sin/cos of the text, or the halves of the released code', '§3.5'
    )
    norm: Literal['post', 'pre'] = option('post', 'normalise after or before a sub-layer', '§3.1')
    norm_type: Literal['layernorm', 'rmsnorm'] = option('layernorm', 'kind of normalisation', '§3.1')
    activation: Literal['relu', 'gelu', 'swiglu'] = option('relu', 'of the feed-forward layers', '§3.3')
    tie_embeddings: Literal['all', 'decoder', 'none'] = option(
        'all', 'which of source embedding, target embedding and softmax share one matrix', '§3.4'
    )
    biases: Literal['all', 'ffn', 'none'] = option(
        'all', 'which linear layers have biases; the text writes them for the FFN only', '§3.3'
    )
    init: Literal['t2t', 'xavier'] = option(
        't2t', 'Glorot uniform over the fused q,k,v kernels of the released code, or over each kernel', ''
    )
    vocab_size: int = option(40960, 'rows of the embedding; at least data.pieces', '§5.1', minimum=4)
    max_len: int = option(512, 'rows of a learned position table', '§3.5', minimum=1)
    dtype: Literal['float32', 'bfloat16'] = option(
        'float32', 'of the computation; parameters are float32', ''
    )


@dataclasses.dataclass(frozen=True)
class Data:
    """The text, its tokenizer and its batches."""

    source: Literal['tfds', 'text', 'grammar'] = option('tfds', 'where the text comes from', '§5.1')
    dir: str | None = option(None, 'folder of the text files or of TFDS', '', free=True)
    name: str | None = option('wmt14_translate/de-en', 'TFDS dataset and config', '§5.1')
    train: str = option(
        'train', 'split, or text files, comma-separated, without the suffix of their language', '§5.1'
    )
    dev: str = option('validation', 'the same for development', '§6.2')
    test: str = option('test', 'the same for the test', '§6.1')
    train_pairs: int | None = option(
        None, 'use only this many examples of the training split, the first ones', '', minimum=1
    )
    source_language: str = option(
        'en',
        'language translated from; suffix of text files',
        '§5.1',
        only=('train.task', ('translation',)),
    )
    target_language: str = option(
        'de',
        'language translated into; suffix of text files',
        '§5.1',
        only=('train.task', ('translation',)),
    )
    language: str | None = option(
        None,
        'language of the text; suffix of text files, which are named in full without it',
        '',
        only=('train.task', ('language',)),
    )
    documents: Literal['lines', 'files'] = option(
        'lines', 'what a document of the text is', '', only=('train.task', ('language',))
    )
    tokenizer: Literal['bpe', 'bytes'] = option(
        'bpe', 'SentencePiece BPE learned from the training text, or the bytes of UTF-8', '§5.1'
    )
    pieces: int = option(37000, 'size of the vocabulary, shared by all languages', '§5.1', minimum=259)
    batching: Literal['bucketed', 'packed', 'running'] = option(
        'bucketed',
        'rows of one example, batched by length; rows of several examples; or rows cut from the running text',
        '§5.1',
    )
    batch_tokens: int = option(
        25000, 'padded positions (of the target side) of one update, on all devices', '§5.1', minimum=1
    )
    row_len: int | None = option(
        None, '(target) positions of a packed or running row, if not data.max_len', '', minimum=2
    )
    max_len: int = option(
        256, 'longest sentence, in pieces with its end, that is trained on', '§5.1', minimum=2
    )
    stride: int | None = option(
        None,
        'new pieces scored by each window of data.row_len in an evaluation; all of them if not given',
        '',
        minimum=1,
        free=True,
        only=('train.task', ('language',)),
    )


@dataclasses.dataclass(frozen=True)
class Train:
    """The task, its optimisation, the arithmetic and the bookkeeping."""

    task: Literal['translation', 'language'] = option(
        'translation', 'translate sentences, or predict the next piece of a text', '§6'
    )
    steps: int = option(100_000, 'updates', '§5.2', minimum=1, free=True)
    seed: int = option(0, 'of initialisation, order and dropout', '', minimum=0, maximum=2**31 - 1)
    eps_ls: float = option(0.1, 'label smoothing', '§5.4', minimum=0.0, maximum=0.99)
    warmup_steps: int = option(4000, 'updates of rising learning rate', '§5.3', minimum=1)
    lr_constant: float = option(1.0, 'factor of the learning rate', '§5.3', minimum=0.0)
    beta1: float = option(0.9, 'of Adam', '§5.3', minimum=0.0, maximum=0.999999)
    beta2: float = option(0.98, 'of Adam', '§5.3', minimum=0.0, maximum=0.999999)
    adam_eps: float = option(1e-9, 'of Adam', '§5.3', minimum=0.0)
    microbatches: int = option(
        8,
        'equal parts of a batch, each with its own dropout key, whatever the number of devices',
        '',
        minimum=1,
    )
    accumulate: int = option(
        1,
        'chunks into which a device cuts its part of a batch, to need less memory',
        '',
        minimum=1,
        free=True,
    )
    log_every: int = option(100, 'updates between two lines of metrics', '', minimum=1, free=True)
    eval_every: int = option(1500, 'updates between two evaluations on dev', '', minimum=1, free=True)
    bleu_every: int = option(
        0,
        'updates between two BLEUs of dev; 0 for none',
        '',
        minimum=0,
        free=True,
        only=('train.task', ('translation',)),
    )
    checkpoint_every: int = option(1500, 'updates between two checkpoints', '§6.1', minimum=1, free=True)
    keep: int = option(2, 'latest checkpoints kept beside the best', '', minimum=1, free=True)
    average_last: int = option(
        0, 'checkpoints kept to be averaged at the end; 0 for none', '§6.1', minimum=0, free=True
    )
    average_every: int | None = option(
        None, 'updates between two of those, if not checkpoint_every', '§6.1', minimum=1, free=True
    )
    prng: Literal['threefry', 'rbg'] = option('threefry', 'generator of dropout masks', '')
    matmul_precision: Literal['default', 'high', 'highest'] = option(
        'default', 'of float32 products: by default bf16 on TPU and TF32 on GPU', ''
    )


@dataclasses.dataclass(frozen=True)
class Decode:
    """Search and evaluation; nothing here changes what is learned."""

    method: Literal['beam', 'greedy', 'sample'] = option('beam', 'kind of search', '§6.1', free=True)
    beam: int = option(4, 'hypotheses per sentence', '§6.1', minimum=1, free=True)
    alpha: float = option(0.6, 'length penalty ((5 + n)/6)^alpha', '§6.1', minimum=0.0, free=True)
    extra_len: int = option(
        50,
        'a translation has at most as many pieces as its source and this many more; '
        'a continued prompt this many more',
        '§6.1',
        minimum=0,
        free=True,
    )
    max_source_len: int = option(
        256, 'pieces, with the end, to which a longer sentence or prompt is cut', '', minimum=2, free=True
    )
    temperature: float = option(1.0, 'divides the logits of method sample', '', minimum=1e-4, free=True)
    top_k: int = option(0, 'sample among the k likeliest pieces; 0 for all', '', minimum=0, free=True)
    top_p: float = option(
        1.0,
        'sample among the likeliest pieces with this share of the probability',
        '',
        minimum=1e-6,
        maximum=1.0,
        free=True,
    )


@dataclasses.dataclass(frozen=True)
class Config:
    """One resolved experiment."""

    model: Model = Model()
    data: Data = Data()
    train: Train = Train()
    decode: Decode = Decode()


OPTIONS = options.declared(Config)
BYTE_PIECES = 256 + 3  # with padding, the end and the unknown piece
# The tasks that each kind of model can do.
SERVES = {'transformer': ('translation',), 'decoder': ('language',)}


def flatten(config: Config | ml_collections.ConfigDict) -> dict[str, object]:
    """The value of every option by its dotted name, in the order of declaration."""
    return {key: getattr(getattr(config, key.split('.')[0]), key.split('.')[1]) for key in OPTIONS}


def config_dict(changes: dict[str, object] | None = None) -> ml_collections.ConfigDict:
    """The paper's base model with `changes`, as `{'model.h': 4, ...}`, for a config file.

    Raises:
      ConfigError: an unknown option.
    """
    values = {}
    for key, field in OPTIONS.items():
        group, name = key.split('.')
        empty = field.default is None
        default = mlc.placeholder(options.plain_type(field)) if empty else field.default
        values.setdefault(group, {})[name] = default
    config = ml_collections.ConfigDict(values)
    for key, value in (changes or {}).items():
        check_name(OPTIONS, key)
        group, name = key.split('.')
        config[group][name] = check_value(OPTIONS, key, value)
    return config


def resolve(config: ml_collections.ConfigDict) -> Config:
    """The frozen config, with every derived value filled in.

    Raises:
      ConfigError: a value, or a combination of values, is impossible.
    """
    groups = {}
    for group in dataclasses.fields(Config):
        if group.name not in config:
            raise ConfigError(f'{group.name}: missing from the config; start from config_dict()')
        for name in config[group.name]:
            check_name(OPTIONS, f'{group.name}.{name}')
        names = [f.name for f in dataclasses.fields(group.type)]
        values = {n: check_value(OPTIONS, f'{group.name}.{n}', config[group.name].get(n)) for n in names}
        groups[group.name] = group.type(**values)
    given = Config(**groups)
    check_meaning(OPTIONS, flatten(given))
    every = given.train.average_every or given.train.checkpoint_every
    resolved = Config(
        model=_derive_model(given),
        data=_derive_data(given),
        train=dataclasses.replace(given.train, average_every=every),
        decode=given.decode,
    )
    _check_combinations(resolved)
    return resolved


def _derive_model(given: Config) -> Model:
    model = given.model
    if model.d_model % model.h and (model.d_k is None or model.d_v is None):
        raise ConfigError(
            f'model.h={model.h}: d_model={model.d_model} is not divisible by it; give d_k and d_v'
        )
    head = model.d_model // model.h
    two_stacks = has_meaning(OPTIONS, flatten(given), 'model.N_decoder')
    return dataclasses.replace(
        model,
        N_decoder=(model.N_decoder or model.N) if two_stacks else None,
        d_k=model.d_k or head,
        d_v=model.d_v or head,
        P_drop_embedding=model.P_drop if model.P_drop_embedding is None else model.P_drop_embedding,
    )


def _derive_data(given: Config) -> Data:
    row_len, stride = given.data.row_len or given.data.max_len, given.data.stride
    if has_meaning(OPTIONS, flatten(given), 'data.stride'):
        stride = stride or row_len
        if stride > row_len:
            raise ConfigError(f'data.stride={stride}: more than a window, data.row_len={row_len}')
    return dataclasses.replace(given.data, row_len=row_len, stride=stride)


def _check_combinations(config: Config) -> None:
    model, train, decode = config.model, config.train, config.decode
    if train.task not in SERVES[model.kind]:
        kinds = ', '.join(kind for kind, tasks in SERVES.items() if train.task in tasks)
        raise ConfigError(f'train.task={train.task!r}: needs model.kind={kinds}, not {model.kind!r}')
    if model.kind == 'decoder' and model.tie_embeddings == 'decoder':
        raise ConfigError(
            "model.tie_embeddings='decoder': with model.kind='decoder' there is one embedding to tie to "
            'the softmax; choose all or none'
        )
    if model.positions == 'sinusoidal' and model.d_model % 2:
        raise ConfigError(f'model.d_model={model.d_model}: must be even for sinusoidal positions')
    if model.positions == 'rotary' and model.d_k % 2:
        raise ConfigError(f'model.d_k={model.d_k}: must be even for rotary positions')
    _check_data(config)
    if train.microbatches % train.accumulate:
        raise ConfigError(
            f'train.accumulate={train.accumulate}: must divide train.microbatches={train.microbatches}'
        )
    _check_averaging(train)
    if decode.top_k and decode.top_k > model.vocab_size:
        raise ConfigError(f'decode.top_k={decode.top_k}: more than model.vocab_size={model.vocab_size}')
    if not 2 * decode.beam <= model.vocab_size:
        raise ConfigError(f'decode.beam={decode.beam}: 2 * beam exceeds model.vocab_size={model.vocab_size}')


def _check_data(config: Config) -> None:
    model, data, train = config.model, config.data, config.train
    if model.vocab_size < data.pieces:
        raise ConfigError(f'model.vocab_size={model.vocab_size}: must be at least data.pieces={data.pieces}')
    if data.tokenizer == 'bytes' and data.pieces != BYTE_PIECES:
        raise ConfigError(f'data.pieces={data.pieces}: data.tokenizer=bytes has {BYTE_PIECES}')
    if data.batching == 'running' and train.task != 'language':
        raise ConfigError(f'data.batching=running: needs train.task=language, not {train.task!r}')
    if data.documents == 'files' and data.batching != 'running':
        raise ConfigError(f'data.documents=files: needs data.batching=running, not {data.batching!r}')
    if data.documents == 'files' and data.source != 'text':
        raise ConfigError(f'data.documents=files: needs data.source=text, not {data.source!r}')
    running = data.batching == 'running'
    if not running and data.row_len < data.max_len:
        raise ConfigError(f'data.row_len={data.row_len}: must hold a sentence of data.max_len={data.max_len}')
    _check_positions(config)
    row = data.max_len if data.batching == 'bucketed' else data.row_len
    if data.batch_tokens < row * train.microbatches:
        raise ConfigError(
            f'data.batch_tokens={data.batch_tokens}: less than one row of {row} positions in each of '
            f'train.microbatches={train.microbatches}; needs {row * train.microbatches}'
        )
    if data.source == 'tfds' and data.name is None:
        raise ConfigError('data.name: missing; source=tfds needs a dataset, as wmt14_translate/de-en')
    if train.task == 'language' and data.language is None and data.source != 'text':
        raise ConfigError(f'data.language: missing; data.source={data.source} needs it, as de')
    if train.task == 'translation' and data.source_language == data.target_language:
        raise ConfigError(f'data.target_language={data.target_language!r}: equals data.source_language')


def _check_positions(config: Config) -> None:
    """A learned position needs a row of its table."""
    data, decode = config.data, config.decode
    longest, which = max(
        (data.row_len, 'data.row_len'),
        (data.max_len if data.batching != 'running' else 0, 'data.max_len'),
        (decode.max_source_len + decode.extra_len, 'decode.max_source_len + decode.extra_len'),
    )
    if config.model.positions == 'learned' and config.model.max_len < longest:
        raise ConfigError(
            f'model.max_len={config.model.max_len}: learned positions need {longest}, the {which}'
        )


def _check_averaging(train: Train) -> None:
    if train.average_last and train.average_every % train.checkpoint_every:
        raise ConfigError(
            f'train.average_every={train.average_every}: must be a multiple of '
            f'train.checkpoint_every={train.checkpoint_every}'
        )
    if train.average_last * train.average_every > train.steps:
        raise ConfigError(
            f'train.average_last={train.average_last}: train.steps={train.steps} make too few checkpoints '
            f'{train.average_every} updates apart; 0 averages none'
        )


def check_devices(config: Config, devices: int) -> None:
    """Raises ConfigError where the microbatches do not divide among the devices."""
    parts = devices * config.train.accumulate
    if config.train.microbatches % parts:
        raise ConfigError(
            f'train.microbatches={config.train.microbatches}: must be a multiple of '
            f'{devices} devices x train.accumulate={config.train.accumulate}'
        )


def to_json(config: Config) -> str:
    """The config as JSON text, one option a line."""
    return json.dumps(dataclasses.asdict(config), indent=2, ensure_ascii=False) + '\n'


def from_json(text: str) -> Config:
    """The config that `to_json` wrote.

    Raises:
      ConfigError: the text is no config of this version.
    """
    try:
        groups = json.loads(text)
        flat = {f'{g}.{n}': value for g, group in groups.items() for n, value in group.items()}
    except (ValueError, AttributeError):
        raise ConfigError('config.json: not a config') from None
    return resolve(config_dict(flat))


def differences(old: Config, new: Config, *, free: bool = True) -> dict[str, tuple[object, object]]:
    """The options in which two configs differ, with both values.

    Args:
      free: whether options count that do not change what is learned.
    """
    before, after = flatten(old), flatten(new)
    keys = [key for key in OPTIONS if free or not OPTIONS[key].metadata['free']]
    return {key: (before[key], after[key]) for key in keys if before[key] != after[key]}


def replace(config: Config, changes: dict[str, object]) -> Config:
    """The config with `changes`, as `{'decode.beam': 1}`, checked again.

    Raises:
      ConfigError: as `resolve`.
    """
    return resolve(config_dict({**flatten(config), **changes}))
