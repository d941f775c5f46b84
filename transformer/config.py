"""Every option of the codebase, declared once: its type, choices, paper value and section.

The defaults are the paper's base model on WMT 2014 English to German. A config file returns
`config_dict({...})` with its differences; `resolve` checks the whole and returns frozen dataclasses,
so nothing behind this file ever meets a wrong or a missing value.
"""

import dataclasses
import difflib
import json
import types
from typing import Literal, Union, get_args, get_origin, get_type_hints

import ml_collections
from ml_collections import config_dict as mlc


class ConfigError(ValueError):
    """A user's mistake, told in one line that names the option, its value and the choices."""


def option(default, doc: str, section: str = '', *, minimum=None, maximum=None, free: bool = False):
    """Declares one option of a dataclass.

    Args:
      default: the paper's value; None means that the value is derived from others.
      doc: one line.
      section: the paper's section or table, where it has one.
      minimum, maximum: inclusive bounds of a number.
      free: whether it may differ when a work directory is used again: it does not change what is
        learned.
    """
    bounds = {'minimum': minimum, 'maximum': maximum}
    metadata = {'doc': doc, 'section': section, 'free': free, **bounds}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Model:
    """The network; the names are the paper's symbols."""

    N: int = option(6, 'layers of the encoder (and of the decoder)', '§3.1', minimum=1)
    N_decoder: int | None = option(None, 'layers of the decoder; N if none', '§3.1', minimum=1)
    d_model: int = option(512, 'width of embeddings and sub-layer outputs', '§3.1', minimum=2)
    d_ff: int = option(2048, 'inner width of the feed-forward layers', '§3.3', minimum=1)
    h: int = option(8, 'attention heads', '§3.2.2', minimum=1)
    d_k: int | None = option(None, 'width of a query and key head; d_model/h if none', '§3.2.2', minimum=1)
    d_v: int | None = option(None, 'width of a value head; d_model/h if none', '§3.2.2', minimum=1)
    P_drop: float = option(0.1, 'residual dropout', '§5.4', minimum=0.0, maximum=0.99)
    P_drop_attention: float = option(0.0, 'dropout of attention weights', '', minimum=0.0, maximum=0.99)
    P_drop_relu: float = option(0.0, 'dropout behind the activation', '', minimum=0.0, maximum=0.99)
    P_drop_embedding: float | None = option(
        None, 'dropout of embedding + position; P_drop if none', '§5.4', minimum=0.0, maximum=0.99
    )
    positions: Literal['sinusoidal', 'learned', 'rotary', 'relative', 'none'] = option(
        'sinusoidal', 'how positions enter', '§3.5, Table 3 (E)'
    )
    sinusoid: Literal['paper', 't2t'] = option(
        'paper', 'interleaved sin/cos of the text, or the halves of the released code', '§3.5'
    )
    norm: Literal['post', 'pre'] = option('post', 'normalise behind or before a sub-layer', '§3.1')
    norm_type: Literal['layernorm', 'rmsnorm'] = option('layernorm', 'kind of normalisation', '§3.1')
    activation: Literal['relu', 'gelu', 'swiglu'] = option('relu', 'of the feed-forward layers', '§3.3')
    tie_embeddings: Literal['all', 'decoder', 'none'] = option(
        'all', 'which of source embedding, target embedding and softmax share one matrix', '§3.4'
    )
    biases: Literal['all', 'ffn', 'none'] = option(
        'all', 'which linear layers have biases; the text writes them for FFN only', '§3.3'
    )
    init: Literal['t2t', 'xavier'] = option(
        't2t',
        'Glorot uniform over the fused q,k,v kernels of the released code, or over each kernel',
        '',
    )
    vocab_size: int = option(40960, 'rows of the embedding; at least data.pieces', '§5.1', minimum=4)
    max_len: int = option(512, 'rows of a learned position table', '§3.5', minimum=1)
    dtype: Literal['float32', 'bfloat16'] = option(
        'float32', 'of the computation; parameters are float32', ''
    )


@dataclasses.dataclass(frozen=True)
class Data:
    """Sentence pairs, their tokenizer and their batches."""

    source: Literal['tfds', 'text', 'grammar'] = option('tfds', 'where sentence pairs come from', '§5.1')
    dir: str | None = option(None, 'folder of the text files or of TFDS', '', free=True)
    name: str | None = option('wmt14_translate/de-en', 'TFDS dataset and config', '§5.1')
    train: str = option('train', 'split, or text files without suffix, comma-separated', '§5.1')
    dev: str = option('validation', 'the same for development', '§6.2')
    test: str = option('test', 'the same for the test', '§6.1')
    train_pairs: int | None = option(
        None, 'how many pairs of the training split, the first ones, are used; all if none', '', minimum=1
    )
    source_language: str = option('en', 'language translated from; suffix of text files', '§5.1')
    target_language: str = option('de', 'language translated into; suffix of text files', '§5.1')
    pieces: int = option(37000, 'size of the shared SentencePiece BPE vocabulary', '§5.1', minimum=260)
    batching: Literal['bucketed', 'packed'] = option(
        'bucketed', 'pairs of about one length a batch, or several pairs to a row', '§5.1'
    )
    batch_tokens: int = option(25000, 'padded target positions of one update, all devices', '§5.1', minimum=1)
    row_len: int | None = option(
        None, 'target positions of a packed row; data.max_len if none', '', minimum=2
    )
    max_len: int = option(
        256, 'longest sentence, in pieces with its end, that is trained on', '§5.1', minimum=2
    )


@dataclasses.dataclass(frozen=True)
class Train:
    """Optimisation, its arithmetic and its bookkeeping."""

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
        'equal parts of a batch, each with its own dropout key, whatever the devices',
        '',
        minimum=1,
    )
    accumulate: int = option(1, 'sequential chunks of a device', '', minimum=1, free=True)
    log_every: int = option(100, 'updates between two lines of metrics', '', minimum=1, free=True)
    eval_every: int = option(1500, 'updates between two evaluations on dev', '', minimum=1, free=True)
    bleu_every: int = option(0, 'updates between two dev BLEUs; 0 for none', '', minimum=0, free=True)
    checkpoint_every: int = option(1500, 'updates between two checkpoints', '§6.1', minimum=1, free=True)
    keep: int = option(2, 'latest checkpoints kept beside the best', '', minimum=1, free=True)
    average_last: int = option(
        0, 'checkpoints kept to be averaged at the end; 0 for none', '§6.1', minimum=0, free=True
    )
    average_every: int | None = option(
        None, 'updates between two of them; checkpoint_every if none', '§6.1', minimum=1, free=True
    )
    prng: Literal['threefry', 'rbg'] = option('threefry', 'generator of dropout masks', '')
    matmul_precision: Literal['default', 'high', 'highest'] = option(
        'default', 'of float32 products: bf16 on TPU and TF32 on GPU by default', ''
    )


@dataclasses.dataclass(frozen=True)
class Decode:
    """Search for a translation; none of it changes what is learned."""

    method: Literal['beam', 'greedy', 'sample'] = option('beam', 'kind of search', '§6.1', free=True)
    beam: int = option(4, 'hypotheses a sentence', '§6.1', minimum=1, free=True)
    alpha: float = option(0.6, 'length penalty ((5 + n)/6)^alpha', '§6.1', minimum=0.0, free=True)
    extra_len: int = option(50, 'longest output is input + this', '§6.1', minimum=0, free=True)
    max_source_len: int = option(
        256,
        'pieces, with the end, at which a sentence to translate is cut',
        '',
        minimum=2,
        free=True,
    )
    temperature: float = option(1.0, 'divides the logits of method sample', '', minimum=1e-4, free=True)
    top_k: int = option(0, 'sample among the k likeliest pieces; 0 for all', '', minimum=0, free=True)
    top_p: float = option(
        1.0,
        'sample among the likeliest pieces of this mass',
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


def _types() -> dict[str, dataclasses.Field]:
    """Every option by its dotted name; the field's `type` is its evaluated annotation."""
    found = {}
    for group in dataclasses.fields(Config):
        hints = get_type_hints(group.type)
        for field in dataclasses.fields(group.type):
            field.type = hints[field.name]
            found[f'{group.name}.{field.name}'] = field
    return found


OPTIONS = _types()


def flatten(config: Config | ml_collections.ConfigDict) -> dict[str, object]:
    """The value of every option by its dotted name, in the order of declaration."""
    return {key: getattr(getattr(config, key.split('.')[0]), key.split('.')[1]) for key in OPTIONS}


def plain_type(field: dataclasses.Field) -> type:
    """The type of an option's values: `int` for `int | None`, `str` for a Literal."""
    if get_origin(field.type) in (Union, types.UnionType):
        return next(t for t in get_args(field.type) if t is not type(None))
    return str if get_origin(field.type) is Literal else field.type


def choices(field: dataclasses.Field) -> tuple[str, ...]:
    """The values that an option can have; none where any value of its type will do."""
    return get_args(field.type) if get_origin(field.type) is Literal else ()


def config_dict(changes: dict[str, object] | None = None) -> ml_collections.ConfigDict:
    """The paper's base model with `changes`, as `{'model.h': 4, ...}`, for a config file.

    Raises:
      ConfigError: an unknown option.
    """
    values = {}
    for key, field in OPTIONS.items():
        group, name = key.split('.')
        empty = field.default is None
        default = mlc.placeholder(plain_type(field)) if empty else field.default
        values.setdefault(group, {})[name] = default
    config = ml_collections.ConfigDict(values)
    for key, value in (changes or {}).items():
        check_name(key)
        group, name = key.split('.')
        config[group][name] = check_value(key, value)
    return config


def check_name(key: str) -> None:
    """Raises ConfigError where `key` is no option, with the nearest one."""
    if key not in OPTIONS:
        near = difflib.get_close_matches(key, OPTIONS, n=1, cutoff=0.5)
        hint = f'; did you mean {near[0]!r}?' if near else ''
        raise ConfigError(f'{key}: no such option{hint}')


def check_value(key: str, value: object) -> object:
    """The value of option `key` in its declared type.

    Raises:
      ConfigError: the value has another type, is none of the choices or is out of bounds.
    """
    field = OPTIONS[key]
    wanted = plain_type(field)
    if value is None and field.type is not wanted and get_origin(field.type) is not Literal:
        return None
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted:
        raise ConfigError(f'{key}={value!r}: expected {wanted.__name__}, got {type(value).__name__}')
    if choices(field) and value not in choices(field):
        near = difflib.get_close_matches(value, choices(field), n=1)
        hint = f'; did you mean {near[0]!r}?' if near else ''
        raise ConfigError(f'{key}={value!r}: choose one of {", ".join(choices(field))}{hint}')
    low, high = field.metadata['minimum'], field.metadata['maximum']
    within = (low is None or value >= low) and (high is None or value <= high)
    if wanted in (int, float) and not within:
        bounds = f'at least {low}' if high is None else f'from {low} to {high}'
        raise ConfigError(f'{key}={value}: must be {bounds}')
    return value


def parse_value(key: str, text: str) -> object:
    """The value of option `key` as a command line writes it.

    Raises:
      ConfigError: no such option, or the text is no value of it.
    """
    check_name(key)
    wanted = plain_type(OPTIONS[key])
    if wanted is str:
        return check_value(key, text)
    try:
        return check_value(key, wanted(text))
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f'{key}={text!r}: expected {wanted.__name__}') from None


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
            check_name(f'{group.name}.{name}')
        names = [f.name for f in dataclasses.fields(group.type)]
        values = {n: check_value(f'{group.name}.{n}', config[group.name].get(n)) for n in names}
        groups[group.name] = group.type(**values)
    groups['model'] = _derive_model(groups['model'])
    row_len = groups['data'].row_len or groups['data'].max_len
    groups['data'] = dataclasses.replace(groups['data'], row_len=row_len)
    every = groups['train'].average_every or groups['train'].checkpoint_every
    groups['train'] = dataclasses.replace(groups['train'], average_every=every)
    resolved = Config(**groups)
    _check_combinations(resolved)
    return resolved


def _derive_model(model: Model) -> Model:
    if model.d_model % model.h and (model.d_k is None or model.d_v is None):
        raise ConfigError(
            f'model.h={model.h}: d_model={model.d_model} is not divisible by it; give d_k and d_v'
        )
    head = model.d_model // model.h
    return dataclasses.replace(
        model,
        N_decoder=model.N_decoder or model.N,
        d_k=model.d_k or head,
        d_v=model.d_v or head,
        P_drop_embedding=model.P_drop if model.P_drop_embedding is None else model.P_drop_embedding,
    )


def _check_combinations(config: Config) -> None:
    model, data, train, decode = config.model, config.data, config.train, config.decode
    if model.positions == 'sinusoidal' and model.d_model % 2:
        raise ConfigError(f'model.d_model={model.d_model}: must be even for sinusoidal positions')
    if model.positions == 'rotary' and model.d_k % 2:
        raise ConfigError(f'model.d_k={model.d_k}: must be even for rotary positions')
    if model.vocab_size < data.pieces:
        raise ConfigError(f'model.vocab_size={model.vocab_size}: must be at least data.pieces={data.pieces}')
    longest = max(data.max_len, data.row_len, decode.max_source_len + decode.extra_len)
    if model.positions == 'learned' and model.max_len < longest:
        raise ConfigError(
            f'model.max_len={model.max_len}: learned positions need {longest}, the longest of '
            'data.max_len, data.row_len and decode.max_source_len + decode.extra_len'
        )
    if data.row_len < data.max_len:
        raise ConfigError(f'data.row_len={data.row_len}: must hold a sentence of data.max_len={data.max_len}')
    row = data.row_len if data.batching == 'packed' else data.max_len
    if data.batch_tokens < row * train.microbatches:
        raise ConfigError(
            f'data.batch_tokens={data.batch_tokens}: less than one row of {row} positions in each of '
            f'train.microbatches={train.microbatches}; needs {row * train.microbatches}'
        )
    if train.microbatches % train.accumulate:
        raise ConfigError(
            f'train.accumulate={train.accumulate}: must divide train.microbatches={train.microbatches}'
        )
    _check_averaging(train)
    if decode.top_k and decode.top_k > model.vocab_size:
        raise ConfigError(f'decode.top_k={decode.top_k}: more than model.vocab_size={model.vocab_size}')
    if not 2 * decode.beam <= model.vocab_size:
        raise ConfigError(f'decode.beam={decode.beam}: 2 * beam exceeds model.vocab_size={model.vocab_size}')
    if data.source == 'tfds' and data.name is None:
        raise ConfigError('data.name: missing; source=tfds needs a dataset, as wmt14_translate/de-en')
    if data.source_language == data.target_language:
        raise ConfigError(f'data.target_language={data.target_language!r}: equals data.source_language')


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
        flat = {f'{g}.{n}': value for g, options in groups.items() for n, value in options.items()}
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
