"""The scales at which tables run: the base config of each scale, and the configs of its rows.

A row is written for one scale, and keeps its meaning at others: where the paper halves or doubles a number
of its base model, so does the row.
"""

import contextlib
import functools
import importlib
import types
from collections.abc import Mapping
from typing import NamedTuple

import ml_collections

from experiments.tables import user_files
from experiments.tables.rows import table
from experiments.tables.table import OPTIONS, Row
from transformer import config as configs
from transformer.config import Config, ConfigError, declare, errors_in
from transformer.config.files import find_config

_NOTHING: Mapping[str, object] = types.MappingProxyType({})

# Options that a row changes in proportion to the base, at scales for which it is not written. At its own
# scale only `train.steps` is, because the user may change the base's.
PROPORTIONAL = (*OPTIONS, 'train.warmup_steps', 'data.batch_tokens')


class Scale(NamedTuple):
    """A scale: the config file of its base, and the changes of that base."""

    file: str
    changes: Mapping[str, object] = _NOTHING


# Three layers, because rows of Table 3 have a third and two thirds of them.
_SMALL = {'model.N': 3, 'model.d_model': 64, 'model.d_ff': 256}
# Reset where only the Transformer's row has them.
_ROWS_OWN = {key: configs.OPTIONS[key].default for key in ('model.h', 'model.d_ff')}
# By name.
SCALES = {
    'paper': Scale('base'),
    # The factor of the learning rate is near the grammar's; the updates let three seeds of Table 3 end within
    # a working day on two cores.
    'multi30k': Scale('multi30k', {
        **_SMALL, 'model.P_drop': 0.1, 'train.lr_constant': 0.35, 'train.steps': 3000,
        'train.warmup_steps': 400, 'train.eval_every': 1000, 'train.checkpoint_every': 1000,
        'train.average_last': 0,
    }),
    # Few pairs, so that rows differ. Learning rate and updates were chosen on base, C3 and big of Table 3,
    # seed 1: in trials of 600 updates, a factor of 0.8 did not train big, and 0.2 was too slow.
    'grammar': Scale('tiny', {
        **_SMALL, 'data.train_examples': 4000, 'data.batch_tokens': 1024, 'train.lr_constant': 0.4,
        'train.steps': 1500, 'train.warmup_steps': 150, 'train.eval_every': 300,
        'train.checkpoint_every': 300,
    }),
    'language': Scale('gpt_grammar'),
    # Small batches learn more from a text that is read few times.
    'names': Scale('names', {
        **_ROWS_OWN, 'data.batch_tokens': 1024, 'train.steps': 1600, 'train.schedule': 'linear',
        'train.peak_lr': 0.0015, 'train.warmup_steps': 160, 'train.eval_every': 400,
        'train.checkpoint_every': 400, 'train.average_last': 0,
    }),
    # Treebanks, for Table 4.
    'wsj': Scale('wsj_parsing'),
    'craft': Scale('craft_parsing'),
    'genia': Scale('genia_parsing'),
    'grammar-trees': Scale('parsing_grammar'),
    # About a third of the config's updates.
    'captions': Scale('multi30k', {**_ROWS_OWN, 'train.steps': 4000}),
}  # fmt: skip


def scale_config(scale: str, different: Mapping[str, object] = _NOTHING) -> ml_collections.ConfigDict:
    """Returns the base config of a scale or of a config file, with further changes."""
    return configs.config_dict(_values(scale, different))


def _values(scale: str, different: Mapping[str, object] = _NOTHING) -> dict[str, object]:
    """Returns the options of `scale_config`, without those that the changes make meaningless."""
    if user_files.is_file(scale):
        base, of_scale = configs.option_values(user_files.scale(scale)), _NOTHING
    elif scale in SCALES:
        base, of_scale = _file_values(SCALES[scale].file), SCALES[scale].changes
    else:
        raise ConfigError(f'--scale={scale}: choose one of {", ".join(SCALES)}, or a config file')
    for changed in (of_scale, different):
        base, _ = declare.drop_unused(configs.OPTIONS, configs.read_values({**base, **changed}), changed)
    return base


@functools.lru_cache
def _file_values(file: str) -> dict[str, object]:
    return configs.option_values(importlib.import_module(f'configs.{file}').get_config())


def stored_name(scale: str) -> str:
    """Returns a scale's name in sweep.json: for a config, named or as a file, the path of its file."""
    if scale not in SCALES:
        # Names that are neither are refused where the scale is read.
        with contextlib.suppress(ConfigError):
            scale = find_config(scale)
    return user_files.stored_name(scale)


def describe(scale: str) -> str:
    """Describes the changes of a scale, or returns '' if there are none, or for a config file."""
    if user_files.is_file(scale) or not SCALES[scale].changes:
        return ''
    file, of_scale = SCALES[scale]
    changed = ', '.join(f'{key}={value}' for key, value in of_scale.items())
    return f'The scale {scale} is configs/{file}.py with {changed}.'


def default_scale(name: str) -> str:
    """Returns the default scale of a table."""
    scale = table(name).rows[0].scale
    if scale is None:
        raise ConfigError(f'--scale: missing; the rows of {name} are not written for one')
    return scale


def changes(row: Row, scale: str, different: Mapping[str, object] = _NOTHING) -> dict[str, object]:
    """Returns the changes that a row makes in the base config of a scale, such as `{'model.h': 4, ...}`.

    Numbers are in proportion to that base as changed by `different`; at the row's own scale only
    `train.steps` is.
    """
    changed = _checked(row.changes)
    for name in row.at_scale:
        if name not in SCALES and not user_files.is_file(name):
            raise ConfigError(f'at_scale={name!r}: choose one of {", ".join(SCALES)}, or a config file')
    own_changes = _checked(row.at_scale.get(scale, {}))
    further = {key: value for key, value in own_changes.items() if key not in different}
    if row.scale is None:
        return changed | further
    proportional = ('train.steps',) if row.scale == scale else PROPORTIONAL
    own, base = _values(row.scale), _values(scale, different)
    keys = changed.keys() & proportional
    if any(None in (own[key], base[key]) for key in keys):
        # Such as d_k, which follows from others.
        own, base = (configs.flatten(configs.resolve_values(values)) for values in (own, base))
    for key in keys:
        before, after = own[key], base[key]
        scaled = changed[key] * after / before if before else changed[key]
        # A count never falls below one, even if base has few heads.
        changed[key] = max(1, round(scaled)) if isinstance(before, int) else round(scaled, 6)
    return changed | further


def _checked(changes: Mapping[str, object]) -> dict[str, object]:
    """Returns the changes of a row, which can have earlier names, with present ones."""
    checked = {}
    for name, value in changes.items():
        key = declare.check_name(configs.OPTIONS, name)
        if value is None:
            raise ConfigError(f'{name}=None: a row gives values')
        if key in checked:
            raise ConfigError(f'{name}: given twice')
        checked[key] = declare.check_value(configs.OPTIONS, key, value)
    return checked


def config(row: Row, scale: str, different: Mapping[str, object] = _NOTHING) -> Config:
    """Returns the resolved config of a row at a scale."""
    base = _values(scale, different)
    with errors_in(f'row {row.name}'):
        changed = changes(row, scale, different)
        # A row of another kind of model has no use for some of the base's options.
        used, _ = declare.drop_unused(configs.OPTIONS, base | changed, changed)
        resolved = configs.resolve_values(used)
        if resolved.train.epochs is not None:
            # Plans, reports and the order of runs know the updates of a row without its data.
            raise ConfigError(f'train.epochs={resolved.train.epochs}: a table needs train.steps')
    return resolved


def options(row: Row, scale: str, different: Mapping[str, object] = _NOTHING) -> list[str]:
    """Returns the options of run.py for the config of a row at a scale."""
    file, of_scale = scale, {}
    if not user_files.is_file(scale):
        file, of_scale = f'configs/{SCALES[scale].file}.py', SCALES[scale].changes
    used, table = configs.flatten(config(row, scale, different)), configs.OPTIONS
    base_changes = {
        key: value
        for key, value in {**of_scale, **different}.items()
        if value == table[key].default or declare.has_meaning(table, used, key)
    }
    changed = {**base_changes, **changes(row, scale, different)}
    return [f'--config={file}', *(f'--config.{key}={value}' for key, value in changed.items())]
