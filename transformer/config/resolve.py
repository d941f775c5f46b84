"""Resolves configs: derives missing values, checks their combinations, and returns frozen dataclasses.

A config file returns `config_dict({...})` with its differences from the paper. `resolve` checks all of it, so
that the rest of the package never sees an invalid or missing value.
"""

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence

import ml_collections

from transformer.config import declare
from transformer.config.checks import BYTE_PIECES, check_combinations
from transformer.config.declare import ConfigError, check_meaning, check_name, check_value, has_meaning
from transformer.config.decode import METHODS
from transformer.config.model import ImageModel
from transformer.config.options import OPTIONS, Config, Data, Model, Train
from transformer.config.tasks import TASKS
from transformer.config.values import PARTS, flatten, has, sentinels

# "about 37000 tokens" (§5.1), and the released code's number of embedding rows for them.
PAPER_PIECES, PAPER_ROWS = 37_000, 40_960
# "Approximately 25000" tokens per side (§5.1). Bucketed rows end in padding, so they take more positions:
# 4,096 on each of 8 GPUs in the released code.
PAPER_TOKENS = 25_000
BUCKETED_POSITIONS = 8 * 4096

_SHOWN = 20  # the most classes that an error lists


def config_dict(changes: dict[str, object] | None = None) -> ml_collections.ConfigDict:
    """Returns the paper's base model with `changes`, such as `{'model.h': 4, ...}`, for a config file."""
    config = ml_collections.ConfigDict({group.name: {} for group in dataclasses.fields(Config)})
    for key, field in OPTIONS.items():
        group, name = key.split('.')
        config[group][name] = field.default
        if field.default is None:
            config[group][name] = ml_collections.config_dict.placeholder(declare.plain_type(field))
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
    return _resolve(option_values(config))


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
    options = {group.name: {} for group in dataclasses.fields(Config)}
    for key, value in values.items():
        group, name = PARTS[key]
        options[group][name] = value
    raw = Config(**{group.name: group.type(**options[group.name]) for group in dataclasses.fields(Config)})
    resolved = dataclasses.replace(
        raw, model=_derive_model(raw), data=_derive_data(raw), train=_derive_train(raw)
    )
    if has_meaning(OPTIONS, values, 'image_model.N'):
        resolved = _derive_image_model(resolved)
    check_combinations(resolved)
    return resolved


def option_values(config: ml_collections.ConfigDict) -> dict[str, object]:
    """Checks an unresolved config's values, and replaces earlier names and values by the present ones."""
    if not isinstance(config, Mapping | ml_collections.ConfigDict):
        raise ConfigError(f'{repr(config)[:40]}: not a config, as config_dict() and get_config() return it')
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

    rows = (config.data.pieces or _pieces(config.data, PAPER_ROWS)) + sentinels(config)
    defaults = {
        'vocab_size': rows,
        'N_decoder': model.N,
        'd_k': width,
        'd_v': width,
        'init_std_positions': model.init_std if has_meaning(OPTIONS, values, 'model.init_std') else None,
        'P_drop_embedding': model.P_drop,
        'norm_final': model.norm == 'pre',
    }
    own = {name: _derived(values, f'model.{name}', value) for name, value in defaults.items()}
    return dataclasses.replace(model, **own)


def _derived(values: Mapping[str, object], key: str, default: object) -> object:
    """Returns an option's value, `default` if it is None, or None if the option has no meaning."""
    value = default if values[key] is None else values[key]
    return value if has_meaning(OPTIONS, values, key) else None


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


def _derive_data(config: Config) -> Data:
    data, values = config.data, flatten(config)
    row_len = _derived(values, 'data.row_len', data.max_len)
    stride = _derived(values, 'data.stride', row_len)
    if stride is not None and stride > row_len:
        raise ConfigError(f'data.stride={stride}: more than a window, data.row_len={row_len}')
    batch = BUCKETED_POSITIONS if data.batching == 'bucketed' else PAPER_TOKENS
    return dataclasses.replace(
        data,
        pieces=_derived(values, 'data.pieces', _pieces(data, PAPER_PIECES)),
        row_len=row_len,
        stride=stride,
        batch_tokens=data.batch_tokens or batch,
    )


def _pieces(data: Data, of_bpe: int) -> int:
    return BYTE_PIECES if data.tokenizer == 'bytes' else of_bpe


def _derive_train(config: Config) -> Train:
    train = config.train
    by_dev = train.patience > 0 or train.best_by != OPTIONS['train.best_by'].default
    return dataclasses.replace(
        train,
        scored=train.scored or ('best' if by_dev else 'latest'),
        average_every=train.average_every or train.checkpoint_every,
        decay_steps=_derived(flatten(config), 'train.decay_steps', train.steps),
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


def check_search(old: Config, new: Config) -> None:
    """Raises ConfigError if an option of the search differs that the new config's method ignores."""
    used = new.decode.method
    for key, (_, value) in differences(old, new).items():
        if METHODS.get(key, used) != used:
            raise ConfigError(f'{key}={value}: for decode.method={METHODS[key]}, not {used}')


def evaluation_options(config: Config) -> dict[str, object]:
    """Returns the options that change a trained model's evaluation."""
    values = flatten(config)
    return {key: values[key] for key, field in OPTIONS.items() if field.metadata['free'] == 'evaluation'}
