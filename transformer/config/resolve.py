"""Resolves configs: derives missing values, checks their combinations, and returns frozen dataclasses.

A config file returns `config_dict({...})` with its differences from the paper. `resolve` checks all of it, so
that the rest of the package never sees an invalid or missing value.
"""

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence

import ml_collections
from ml_collections import config_dict as mlc

from transformer.config import declare
from transformer.config.declare import ConfigError, check_meaning, check_name, check_value, has_meaning
from transformer.config.model import ImageModel
from transformer.config.options import OPTIONS, Config, Data, Model, Train
from transformer.config.tasks import FORMS, GROUP, TASKS, Images, tasks_with

# Positions that are added to the logits of attention.
BIASES = ('relative', 'buckets', 'alibi')
BYTE_PIECES = 256 + 3  # with padding, the end and the unknown piece
# "about 37000 tokens" (§5.1), and the released code's number of embedding rows for them.
PAPER_PIECES, PAPER_ROWS = 37_000, 40_960
# "Approximately 25000" tokens per side (§5.1). Bucketed rows end in padding, so they take more positions:
# 4,096 on each of 8 GPUs in the released code.
PAPER_TOKENS = 25_000
BUCKETED_POSITIONS = 8 * 4096


_PARTS = {key: key.split('.') for key in OPTIONS}
_SHOWN = 20  # the most classes that an error lists


def flatten(config: Config | ml_collections.ConfigDict) -> dict[str, object]:
    """Returns the value of every option by its dotted name, in the order of declaration."""
    return {key: getattr(getattr(config, group), name) for key, (group, name) in _PARTS.items()}


def form_of(config: Config) -> str:
    """Returns the form of a config's models, a name in `FORMS`."""
    return TASKS[config.train.task].form


def has(config: Config, part: str) -> bool:
    """Returns whether a config's models have a part, as listed in `tasks.Form`."""
    return part in FORMS[form_of(config)].has


def couples_batch(config: Config) -> bool:
    """Returns whether the loss of a row depends on all other rows of its batch."""
    return has(config, 'towers') and config.contrastive.negatives == 'batch'


def sentinels(config: Config) -> int:
    """Returns the number of pieces that a model has above those of its tokenizer."""
    return config.denoise.sentinels if has_meaning(OPTIONS, flatten(config), 'denoise.sentinels') else 0


def config_dict(changes: dict[str, object] | None = None) -> ml_collections.ConfigDict:
    """Returns the paper's base model with `changes`, such as `{'model.h': 4, ...}`, for a config file."""
    config = ml_collections.ConfigDict({group.name: {} for group in dataclasses.fields(Config)})
    for key, field in OPTIONS.items():
        group, name = key.split('.')
        empty = field.default is None
        config[group][name] = mlc.placeholder(declare.plain_type(field)) if empty else field.default
    for key, value in (changes or {}).items():
        set_option(config, key, value)
    return config


def set_option(config: ml_collections.ConfigDict, key: str, value: object) -> None:
    """Sets an option of an unresolved config. Raises ConfigError if it cannot have this value."""
    key = check_name(OPTIONS, key)
    group, name = key.split('.')
    config[group][name] = check_value(OPTIONS, key, value)


def resolve(config: ml_collections.ConfigDict) -> Config:
    """Returns the frozen config, with every derived value filled in.

    Raises:
      ConfigError: a value, or a combination of values, is invalid.
    """
    return _resolve(present_values(config))


def resolve_values(changes: Mapping[str, object]) -> Config:
    """Returns `resolve(config_dict(changes))`, in a tenth of the time."""
    return _resolve(read_values(changes))


def read_values(changes: Mapping[str, object]) -> dict[str, object]:
    """Returns the value of every option of the paper's base model with `changes`, each checked by itself."""
    values = {key: field.default for key, field in OPTIONS.items()}
    for name, value in changes.items():
        key = check_name(OPTIONS, name)
        values[key] = check_value(OPTIONS, key, value)
    return declare.present_values(OPTIONS, values)


def _resolve(values: dict[str, object]) -> Config:
    check_meaning(OPTIONS, values)
    groups = {group.name: group.type for group in dataclasses.fields(Config)}
    options_of = lambda group: {_PARTS[k][1]: v for k, v in values.items() if _PARTS[k][0] == group}
    raw = Config(**{name: group(**options_of(name)) for name, group in groups.items()})
    resolved = dataclasses.replace(
        raw, model=_derive_model(raw), data=_derive_data(raw), train=_derive_train(raw)
    )
    if has_meaning(OPTIONS, values, 'image_model.N'):
        resolved = _derive_image_model(resolved)
    _check_combinations(resolved)
    return resolved


def present_values(config: ml_collections.ConfigDict) -> dict[str, object]:
    """Checks an unresolved config's values, and replaces earlier names and values by the present ones."""
    groups, values = [group.name for group in dataclasses.fields(Config)], {}
    for name in config:
        if name not in groups:
            check_name(OPTIONS, name)  # an option without its group
    for group in groups:
        if group not in config:
            raise ConfigError(f'{group}: missing from the config; start from config_dict()')
        for name, value in config[group].items():
            key = check_name(OPTIONS, f'{group}.{name}')
            # A config that sets an earlier name also has the present name, with its default.
            if key not in values or key != f'{group}.{name}':
                values[key] = check_value(OPTIONS, key, value)
    complete = {key: check_value(OPTIONS, key, values.get(key)) for key in OPTIONS}
    return declare.present_values(OPTIONS, complete)


def _derive_model(config: Config) -> Model:
    model, values = config.model, flatten(config)
    has_heads, width = has_meaning(OPTIONS, values, 'model.h'), model.d_model // model.h
    if has_heads and model.d_model % model.h and (model.d_k is None or model.d_v is None):
        raise ConfigError(
            f'model.h={model.h}: d_model={model.d_model} is not divisible by it; give d_k and d_v'
        )
    two_stacks = has_meaning(OPTIONS, values, 'model.N_decoder')

    def derived(name: str, default: object) -> object:
        own = default if getattr(model, name) is None else getattr(model, name)
        return own if has_meaning(OPTIONS, values, f'model.{name}') else None

    defaults = {
        'init_std_positions': model.init_std if has_meaning(OPTIONS, values, 'model.init_std') else None,
        'P_drop_embedding': model.P_drop,
        'norm_final': model.norm == 'pre',
    }
    rows = (config.data.pieces or _pieces(config.data, PAPER_ROWS)) + sentinels(config)
    return dataclasses.replace(
        model,
        vocab_size=(model.vocab_size or rows) if has_meaning(OPTIONS, values, 'model.vocab_size') else None,
        N_decoder=(model.N_decoder or model.N) if two_stacks else None,
        d_k=(model.d_k or width) if has_heads else None,
        d_v=(model.d_v or width) if has_heads else None,
        **{name: derived(name, default) for name, default in defaults.items()},
    )


def _derive_image_model(config: Config) -> Config:
    """Fills in what the encoders of images and texts share."""
    own = {key: value for key, value in vars(config.image_model).items() if value is not None}
    shared = {field.name: getattr(config.model, field.name) for field in dataclasses.fields(ImageModel)}
    shared |= {'norm_embedding': False, 'init_std_positions': None}
    config = dataclasses.replace(config, image_model=ImageModel(**(shared | own)))
    if has(config, 'towers') and config.contrastive.d_e is None:
        space = dataclasses.replace(config.contrastive, d_e=config.model.d_model)
        config = dataclasses.replace(config, contrastive=space)
    return config


def image_tower(config: Config) -> Model:
    """Returns all options of the encoder of images in a model that has texts, too."""
    own, values = config.image_model, flatten(config)
    if not has_meaning(OPTIONS, values, 'image_model.N'):
        return config.model
    normal = has_meaning(OPTIONS, values | {'model.init': own.init}, 'model.init_std')
    std = config.model.init_std if normal and own.init_std_positions is None else own.init_std_positions
    return dataclasses.replace(
        config.model,
        **vars(own) | {'init_std_positions': std},
        d_k=own.d_model // own.h,
        d_v=own.d_model // own.h,
        norm_final=own.norm == 'pre',
        token_types=0,
        max_len=config.images.positions,
    )


def _derive_data(config: Config) -> Data:
    data, stride, values = config.data, config.data.stride, flatten(config)
    row_len = (data.row_len or data.max_len) if has_meaning(OPTIONS, values, 'data.row_len') else None
    batch = BUCKETED_POSITIONS if data.batching == 'bucketed' else PAPER_TOKENS
    if has_meaning(OPTIONS, values, 'data.stride'):
        stride = stride or row_len
        if stride > row_len:
            raise ConfigError(f'data.stride={stride}: more than a window, data.row_len={row_len}')
    return dataclasses.replace(
        data,
        pieces=data.pieces or _pieces(data, PAPER_PIECES)
        if has_meaning(OPTIONS, values, 'data.pieces')
        else None,
        row_len=row_len,
        stride=stride,
        batch_tokens=data.batch_tokens or batch,
    )


def _pieces(data: Data, of_bpe: int) -> int:
    return BYTE_PIECES if data.tokenizer == 'bytes' else of_bpe


def _derive_train(config: Config) -> Train:
    train = config.train
    decays = has_meaning(OPTIONS, flatten(config), 'train.decay_steps')
    by_dev = train.patience > 0 or train.best_by != OPTIONS['train.best_by'].default
    return dataclasses.replace(
        train,
        scored=train.scored or ('best' if by_dev else 'latest'),
        average_every=train.average_every or train.checkpoint_every,
        decay_steps=(train.decay_steps or train.steps) if decays else None,
    )


def _check_combinations(config: Config) -> None:
    model, train, decode = config.model, config.train, config.decode
    values, kinds = flatten(config), FORMS[form_of(config)].kinds
    if model.kind not in kinds:
        kinds = ', '.join(kinds)
        raise ConfigError(f'train.task={train.task!r}: needs model.kind={kinds}, not {model.kind!r}')
    if not has(config, 'pair') and model.tie_embeddings in ('inputs', 'decoder'):
        raise ConfigError(
            f'model.tie_embeddings={model.tie_embeddings!r}: with train.task={train.task} a model has one '
            'embedding to tie to the softmax; choose all or none'
        )
    _check_widths(config)
    _check_attention(model)
    if has_meaning(OPTIONS, values, 'image_model.N'):
        _check_image_model(config)
    _check_data(config)
    if train.accumulate is not None and train.microbatches % train.accumulate:
        raise ConfigError(
            f'train.accumulate={train.accumulate}: must divide train.microbatches={train.microbatches}'
        )
    if couples_batch(config) and train.accumulate not in (None, 1):
        raise ConfigError(
            f'train.accumulate={train.accumulate}: with contrastive.negatives=batch the loss needs all rows '
            'at once; choose 1'
        )
    _check_steps(train)
    writes = has_meaning(OPTIONS, values, 'decode.beam')
    if writes and decode.top_k > model.vocab_size:
        raise ConfigError(f'decode.top_k={decode.top_k}: more than model.vocab_size={model.vocab_size}')
    if writes and 2 * decode.beam > model.vocab_size:
        raise ConfigError(f'decode.beam={decode.beam}: 2 * beam exceeds model.vocab_size={model.vocab_size}')


def _check_widths(config: Config) -> None:
    model = config.model
    positions = has_meaning(OPTIONS, flatten(config), 'model.positions')
    if positions and model.positions == 'sinusoidal' and model.d_model % 2:
        raise ConfigError(f'model.d_model={model.d_model}: must be even for sinusoidal positions')
    if model.kind == 'convolutional' and model.positions in ('rotary', *BIASES):
        raise ConfigError(
            f"model.positions={model.positions!r}: enters self-attention, which model.kind='convolutional' "
            'does not have; choose sinusoidal, learned or none'
        )
    if model.positions == 'rotary' and model.d_k % 2:
        raise ConfigError(f'model.d_k={model.d_k}: must be even for rotary positions')
    if model.bidirectional and model.d_model % 2:
        raise ConfigError(f'model.d_model={model.d_model}: must be even for model.bidirectional=True')


def _check_image_model(config: Config) -> None:
    tower = config.image_model
    if tower.d_model % tower.h:
        raise ConfigError(
            f'image_model.h={tower.h}: image_model.d_model={tower.d_model} is not divisible by it'
        )
    even = {'sinusoidal': tower.d_model, 'rotary': tower.d_model // tower.h}.get(tower.positions, 2)
    if even % 2:
        raise ConfigError(
            f'image_model.d_model={tower.d_model}: {even} must be even for {tower.positions} positions'
        )


def _check_attention(model: Model) -> None:
    """Rejects options that only full attention supports."""
    setting = f'model.attention={model.attention!r}'
    if model.attention != 'full' and model.positions in BIASES:
        raise ConfigError(
            f"{setting}: positions={model.positions!r} adds to all n x n logits; only 'full' holds them"
        )
    if model.attention in ('linear', 'chunked', 'flash') and model.P_drop_attention:
        raise ConfigError(
            f'{setting}: holds no weights that model.P_drop_attention={model.P_drop_attention} could drop; '
            'choose full, local or sparse'
        )
    if model.attention == 'flash' and model.d_k != model.d_v:
        raise ConfigError(f'{setting}: needs model.d_k={model.d_k} equal to model.d_v={model.d_v}')


def _check_data(config: Config) -> None:
    data, train, values = config.data, config.train, flatten(config)
    if has_meaning(OPTIONS, values, 'data.pieces'):
        _check_text(config)
    if has_meaning(OPTIONS, values, 'images.patch') and config.images.size % config.images.patch:
        raise ConfigError(f'images.patch={config.images.patch}: must divide images.size={config.images.size}')
    if has_meaning(OPTIONS, values, 'images.patch'):
        _check_images(config)
    _check_positions(config)
    row = row_positions(config)
    if data.batch_tokens < row * train.microbatches:
        raise ConfigError(
            f'data.batch_tokens={data.batch_tokens}: less than one row of {row} positions in each of '
            f'train.microbatches={train.microbatches}; needs {row * train.microbatches}'
        )
    if data.source == 'tfds' and data.name is None:
        raise ConfigError('data.name: missing; source=tfds needs a dataset, such as wmt14_translate/de-en')


def _check_images(config: Config) -> None:
    """Rejects options that do not fit the sizes of the encoder of images."""
    images, width = config.images, image_tower(config).d_model
    if config.model.kind == 'convolutional':
        _check_residual(config.model, images)
        return
    if images.stem == 'convolutions' and (images.patch == 1 or math.isqrt(images.patch) ** 2 != images.patch):
        raise ConfigError(f"images.patch={images.patch}: with images.stem='convolutions' 4, 9, 16 or 25, ...")
    if images.sinusoids and width % 4:
        raise ConfigError(f'model.d_model={width}: must be divisible by 4 for images.sinusoids=True')


def _check_residual(model: Model, images: Images) -> None:
    """Rejects options that a residual network cannot have."""
    setting, stages = "model.kind='convolutional' for images", images.stages
    if images.pool != 'mean':
        raise ConfigError(f'images.pool={images.pool!r}: {setting} has no class token; choose mean')
    if model.positions != 'none':
        raise ConfigError(f'model.positions={model.positions!r}: {setting} needs none; choose none')
    if images.patch != 1 << (stages - 1):
        raise ConfigError(f'images.patch={images.patch}: {setting} needs a power of 2')
    if model.N % stages:
        raise ConfigError(f'model.N={model.N}: {setting} divides it among {stages} stages (images.patch)')
    if model.d_model % (GROUP << (stages - 1)):
        raise ConfigError(
            f'model.d_model={model.d_model}: {setting} needs a multiple of {GROUP << (stages - 1)}, because '
            f'the first of {stages} stages normalises groups of {GROUP} channels'
        )


def row_positions(config: Config) -> int:
    """Returns the most positions that a row of a batch can have: pieces, or patches and the class token."""
    if not has(config, 'texts') and has(config, 'image'):
        return config.images.positions
    one_text = config.data.batching in ('bucketed', 'padded')
    return config.data.max_len if one_text else config.data.row_len


def _check_text(config: Config) -> None:
    model, data, train, values = config.model, config.data, config.train, flatten(config)
    if model.vocab_size < data.pieces + (above := sentinels(config)):
        also = f' + denoise.sentinels={above}' if above else ''
        raise ConfigError(
            f'model.vocab_size={model.vocab_size}: must be at least data.pieces={data.pieces}{also}'
        )
    if data.vocabulary == 'separate' and model.tie_embeddings in ('all', 'inputs'):
        raise ConfigError(
            f"model.tie_embeddings={model.tie_embeddings!r}: with data.vocabulary='separate' source and "
            'target share no pieces; choose decoder or none'
        )
    if data.vocabulary == 'separate' and data.tokenizer == 'bytes':
        raise ConfigError("data.vocabulary='separate': data.tokenizer='bytes' is the same for both sides")
    if data.tokenizer == 'bytes' and data.pieces != BYTE_PIECES:
        raise ConfigError(f'data.pieces={data.pieces}: data.tokenizer=bytes has {BYTE_PIECES}')
    if data.batching == 'running' and not has(config, 'running'):
        tasks = ' or '.join(tasks_with('running'))
        raise ConfigError(f'data.batching=running: needs train.task={tasks}, not {train.task!r}')
    for key, needed in {'data.batching': 'running', 'data.source': 'text'}.items():
        if data.documents == 'files' and values[key] != needed:
            raise ConfigError(f'data.documents=files: needs {key}={needed}, not {values[key]!r}')
    if data.batching != 'running' and data.row_len < data.max_len:
        raise ConfigError(f'data.row_len={data.row_len}: must hold a sentence of data.max_len={data.max_len}')
    with_languages = data.source in ('tfds', 'grammar', 'scenes')
    needs_language = has_meaning(OPTIONS, values, 'data.language') and with_languages
    if needs_language and data.language is None:
        raise ConfigError(f'data.language: missing; data.source={data.source} needs it, for example de')
    two_languages = has_meaning(OPTIONS, values, 'data.target_language')
    if two_languages and data.source_language == data.target_language:
        raise ConfigError(f'data.target_language={data.target_language!r}: equals data.source_language')


def _check_positions(config: Config) -> None:
    """Raises ConfigError if the table of learned positions has too few rows."""
    data, decode, values = config.data, config.decode, flatten(config)
    lengths = {'rows': row_positions(config)}
    if has_meaning(OPTIONS, values, 'data.row_len'):
        lengths['data.row_len'] = data.row_len
    if has_meaning(OPTIONS, values, 'data.max_len') and data.batching != 'running':
        lengths['data.max_len'] = data.max_len
    if has_meaning(OPTIONS, values, 'decode.extra_len'):
        prompted = has_meaning(OPTIONS, values, 'decode.max_source_len')
        name = 'decode.max_source_len + decode.extra_len' if prompted else 'decode.extra_len'
        lengths[name] = decode.extra_len + (decode.max_source_len if prompted else 0)
    which = max(lengths, key=lengths.get)
    if config.model.positions == 'learned' and config.model.max_len < lengths[which]:
        raise ConfigError(
            f'model.max_len={config.model.max_len}: learned positions need {lengths[which]} for {which}'
        )


def _check_steps(train: Train) -> None:
    """Raises ConfigError if averaging or the schedule of the learning rate is impossible."""
    if train.average_last and train.average_every % train.checkpoint_every:
        raise ConfigError(
            f'train.average_every={train.average_every}: must be a multiple of '
            f'train.checkpoint_every={train.checkpoint_every}'
        )
    if train.average_last and train.ema:
        raise ConfigError(
            f'train.average_last={train.average_last}: means nothing with train.ema={train.ema}, which '
            'averages parameters itself; choose one of them'
        )
    if train.decay_steps is not None and train.decay_steps <= train.warmup_steps:
        raise ConfigError(
            f'train.warmup_steps={train.warmup_steps}: must be less than '
            f'train.decay_steps={train.decay_steps} (train.steps if not given), '
            f'so that the {train.schedule} schedule can fall'
        )
    if train.decay_steps is not None and train.decay_steps < train.steps and train.epochs is None:
        raise ConfigError(
            f'train.steps={train.steps}: at most {train.decay_steps}, after which the learning rate of the '
            f'{train.schedule} schedule is 0 (train.decay_steps; by default the steps of the first training)'
        )


def derivable(config: Config) -> ml_collections.ConfigDict:
    """Turns a resolved config into an unresolved one, whose derived values will be derived again.

    A change of `model.h` then also changes `model.d_k`, unless `model.d_k` was set to another value.
    """
    values = flatten(config)
    for key, field in OPTIONS.items():
        if field.default is None and values[key] is not None:
            # Without this value the config can be invalid.
            with contextlib.suppress(ConfigError):
                reset = values | {key: None}
                values = reset if resolve_values(reset) == config else values
    return config_dict(values)


def with_steps(config: Config, steps_per_epoch: int) -> Config:
    """Returns the config with `train.steps` instead of `train.epochs`: whole updates, at least as many."""
    if config.train.epochs is None:
        return config
    # Rounded first, because 1.1 * 100 is more than 110.
    steps = math.ceil(round(config.train.epochs * steps_per_epoch, 6))
    unresolved = derivable(config)
    unresolved.train.steps, unresolved.train.epochs = steps, None
    return resolve(unresolved)


def with_classes(config: Config, names: Sequence[str]) -> Config:
    """Returns the config with the data's number of classes. Raises ConfigError if it sets another number."""
    group = TASKS[config.train.task].group
    key = f'{group}.classes'
    asked = getattr(config, group).classes
    if asked not in (None, len(names)):
        shown = ', '.join(names[:_SHOWN]) + (', ...' if len(names) > _SHOWN else '')
        raise ConfigError(f'{key}={asked}: the data has {len(names)} classes: {shown}')
    return replace(config, {key: len(names)})


def differences(old: Config, new: Config, *, free: bool = True) -> dict[str, tuple[object, object]]:
    """Returns both values of every option that differs, without `free` only if it changes what is learned."""
    before, after = flatten(old), flatten(new)
    differ = [key for key in OPTIONS if before[key] != after[key]]
    return {k: (before[k], after[k]) for k in differ if free or not OPTIONS[k].metadata['free']}


def replace(config: Config, changes: dict[str, object]) -> Config:
    """Returns the config with `changes`, such as `{'decode.beam': 1}`, checked again."""
    return resolve_values({**flatten(config), **changes})


def evaluation_options(config: Config) -> dict[str, object]:
    """Returns the options that change a trained model's evaluation."""
    values = flatten(config)
    return {key: values[key] for key, field in OPTIONS.items() if field.metadata['free'] == 'evaluation'}
