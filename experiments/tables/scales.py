"""The scales that tables run at: the base config of each, and the configs of rows there.

A row is written for one scale. At another one it keeps its meaning: where the paper halves or doubles a
number of its base model, so does the row.
"""

import importlib
import types
from collections.abc import Mapping
from typing import NamedTuple

import ml_collections

from experiments.tables import user_files
from experiments.tables.rows import Row, table
from transformer import config as configs
from transformer.config import Config, ConfigError, declare

_NOTHING: Mapping[str, object] = types.MappingProxyType({})

# Options that a row changes in proportion to the base at a scale that it is not written for.
PROPORTIONAL = (
    'model.N', 'model.d_model', 'model.d_ff', 'model.h', 'model.d_k', 'model.d_v', 'model.P_drop',
    'train.eps_ls', 'train.warmup_steps', 'train.steps',
)  # fmt: skip
# Options in proportion at the row's own scale too, where the user changes the base.
PROPORTIONAL_AT_HOME = ('train.steps',)


class Scale(NamedTuple):
    """A scale: the config file of its base, the changes of that base, and the reasons for them."""

    file: str
    changes: Mapping[str, object] = _NOTHING
    why: str = ''


# By name. Three layers, because rows of Table 3 have a third and two thirds of them.
SCALES = {
    'paper': Scale('base'),
    'multi30k': Scale(
        'multi30k',
        {
            'model.N': 3,
            'model.d_model': 64,
            'model.d_ff': 256,
            'model.P_drop': 0.1,
            'train.lr_constant': 0.35,
            'train.steps': 3000,
            'train.warmup_steps': 400,
            'train.eval_every': 1000,
            'train.checkpoint_every': 1000,
            'train.average_last': 0,
        },
        "The factor of the learning rate is near that of the grammar's scale; three seeds of Table 3 were to "
        'end within a working day on two cores.',
    ),
    'grammar': Scale(
        'tiny',
        {
            'model.N': 3,
            'model.d_model': 64,
            'model.d_ff': 256,
            'data.train_pairs': 4000,
            'data.batch_tokens': 1024,
            'train.lr_constant': 0.4,
            'train.steps': 1500,
            'train.warmup_steps': 150,
            'train.eval_every': 300,
            'train.checkpoint_every': 300,
        },
        'There are few pairs, so that rows differ. The learning rate and the updates were chosen on base, C3 '
        'and big of Table 3 with seed 1: within 600 updates a factor of 0.8 does not train big, and 0.2 is '
        'too slow.',
    ),
    'language': Scale('gpt_grammar'),
    'captions': Scale(
        'multi30k',
        {
            'model.h': configs.OPTIONS['model.h'].default,
            'model.d_ff': configs.OPTIONS['model.d_ff'].default,
            'train.steps': 4000,
        },
        "4,000 updates are a third of the config's; h and d_ff are the defaults, because only the "
        'Transformer has them, whose row sets them.',
    ),
}


def scale_config(scale: str, different: Mapping[str, object] = _NOTHING) -> ml_collections.ConfigDict:
    """The base config of a scale, or of a config file, with further changes.

    Raises:
      ConfigError: there is no such scale, or its file is wrong.
    """
    if user_files.is_file(scale):
        return _with(user_files.scale(scale), different)
    if scale not in SCALES:
        raise ConfigError(f'--scale={scale}: choose one of {", ".join(SCALES)}, or a config file')
    file, of_scale, _ = SCALES[scale]
    base = importlib.import_module(f'configs.{file}').get_config()
    return _with(base, {**of_scale, **different})


def describe(scale: str, different: Mapping[str, object] = _NOTHING) -> str:
    """Describes the changes of a scale and the reasons; empty without changes, or for a config file.

    Args:
      different: further changes; the ones that replace the scale's are named.
    """
    if user_files.is_file(scale) or not SCALES[scale].changes:
        return ''
    file, of_scale, why = SCALES[scale]
    changed = ', '.join(f'{key}={value}' for key, value in of_scale.items())
    replaced = [key for key in of_scale if key in different]
    start = f'But for {", ".join(replaced)}, the' if replaced else 'The'
    return f'{start} scale {scale} is configs/{file}.py with {changed}. {why}'


def default_scale(name: str) -> str:
    """The default scale of a table.

    Raises:
      ConfigError: it has none.
    """
    scale = table(name).rows[0].scale
    if scale is None:
        raise ConfigError(f'--scale: missing; the rows of {name} are not written for one')
    return scale


def changes(row: Row, scale: str, different: Mapping[str, object] = _NOTHING) -> dict[str, object]:
    """The changes of a row in the base config of a scale, such as `{'model.h': 4, ...}`.

    Args:
      different: changes of that base; the row is in proportion to the changed base. At its own scale its
        numbers hold, except for updates.

    Raises:
      ConfigError: an option of the row or its value is impossible.
    """
    for key, value in row.changes.items():
        if value is None:
            raise ConfigError(f'{key}=None: a row gives values')
        declare.check_value(configs.OPTIONS, declare.check_name(configs.OPTIONS, key), value)
    at_home = row.scale in (scale, None)
    here = {k: v for k, v in row.only_at_scale.items() if k not in different} if at_home else {}
    if row.scale is None:
        return row.changes | here
    proportional = PROPORTIONAL_AT_HOME if at_home else PROPORTIONAL
    own, base = configs.flatten(scale_config(row.scale)), configs.flatten(scale_config(scale, different))
    changed = {
        key: _in_proportion(value, _known(own, key), _known(base, key)) if key in proportional else value
        for key, value in row.changes.items()
    }
    return changed | here


def config(row: Row, scale: str, different: Mapping[str, object] = _NOTHING) -> Config:
    """The resolved config of a row at a scale.

    Raises:
      ConfigError: the row is impossible there.
    """
    base = scale_config(scale, different)
    try:
        return configs.resolve(_with(base, changes(row, scale, different)))
    except ConfigError as error:
        raise ConfigError(f'row {row.name}: {error}') from None


def options(row: Row, scale: str, different: Mapping[str, object] = _NOTHING) -> list[str]:
    """The options of run.py that give the same config."""
    file, of_scale = (
        (scale, {})
        if user_files.is_file(scale)
        else (f'configs/{SCALES[scale].file}.py', SCALES[scale].changes)
    )
    all_of_them = {**of_scale, **different, **changes(row, scale, different)}
    return [
        f'--config={file}',
        *(f'--config.{key}={value}' for key, value in all_of_them.items()),
    ]


def _with(base: ml_collections.ConfigDict, different: Mapping[str, object]) -> ml_collections.ConfigDict:
    """Changes a config, before any option is derived from others."""
    for key, value in different.items():
        configs.set_option(base, key, value)
    return base


def _known(flat: dict[str, object], key: str) -> int | float:
    """The value of an option; d_k and d_v may still have to be derived."""
    if flat[key] is not None:
        return flat[key]
    return flat['model.d_model'] // flat['model.h']


def _in_proportion(value, own, base):
    scaled = value * base / own if own else value
    # One head stays one head if base has few.
    return max(1, round(scaled)) if isinstance(own, int) else round(scaled, 6)
