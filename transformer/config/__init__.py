"""Configs: all options, config files, and the frozen `Config` that the rest of the package reads.

A config file imports `config_dict` from here, or `config_beside` to start from another file.

    declare.py                the machinery of options
    tasks.py                  the tasks, with their own options
    options.py                the shared options, with model.py and decode.py
    conditions.py             where options have a meaning
    values.py                 what a config's models and rows have
    resolve.py                derives values; checks.py: checks their combinations
    devices.py                adapts a config to the devices at hand
    files.py                  reads and writes config files
    flag.py                   describes command-line flags
"""

from transformer.config.devices import check_devices, check_platform, portable, with_accumulation
from transformer.config.files import config_beside, from_json, record_differences, to_json
from transformer.config.options import OPTIONS, Config, Data, Decode, Model, Train
from transformer.config.resolve import (
    PAPER_TOKENS,
    check_search,
    config_dict,
    differences,
    evaluation_options,
    option_values,
    read_values,
    replace,
    resolve,
    resolve_values,
    set_option,
    with_classes,
    with_steps,
)
from transformer.config.tasks import FORMS, TASKS
from transformer.config.values import (
    couples_batch,
    flatten,
    form_of,
    has,
    image_tower,
    row_positions,
    sentinels,
)
from transformer.errors import ConfigError, errors_in

__all__ = [
    'check_devices', 'check_platform', 'check_search', 'Config', 'config_beside', 'config_dict',
    'ConfigError', 'couples_batch', 'Data', 'Decode', 'differences', 'errors_in', 'evaluation_options',
    'flatten', 'form_of', 'FORMS', 'from_json', 'has', 'image_tower', 'Model', 'OPTIONS', 'PAPER_TOKENS',
    'option_values', 'portable', 'read_values', 'record_differences', 'replace', 'resolve',
    'resolve_values', 'row_positions', 'sentinels', 'set_option', 'TASKS', 'to_json', 'Train',
    'with_accumulation', 'with_classes', 'with_steps',
]  # fmt: skip
