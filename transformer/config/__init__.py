"""Configs: all options, config files, and the frozen `Config` that the rest of the package reads.

A config file imports `config_dict` from here, or `config_beside` to start from another file. declare.py is
the machinery of options and options.py lists them; resolve.py derives and checks values, files.py reads and
writes config files, and flag.py describes flags of the command line.
"""

from transformer.config.declare import ConfigError
from transformer.config.files import config_beside, from_json, to_json
from transformer.config.options import (
    FORM,
    KINDS,
    OPTIONS,
    Config,
    Data,
    Decode,
    Images,
    Masked,
    Model,
    Train,
)
from transformer.config.resolve import (
    PAPER_TOKENS,
    check_devices,
    check_platform,
    config_dict,
    differences,
    evaluation_options,
    flatten,
    portable,
    present_values,
    replace,
    resolve,
    row_positions,
    set_option,
    with_accumulation,
    with_steps,
)

__all__ = [
    'Config', 'ConfigError', 'Data', 'Decode', 'FORM', 'Images', 'KINDS', 'Masked', 'Model', 'OPTIONS',
    'PAPER_TOKENS', 'Train', 'check_devices', 'check_platform', 'config_beside', 'config_dict', 'differences',
    'evaluation_options', 'flatten', 'from_json', 'portable', 'present_values', 'replace', 'resolve',
    'row_positions', 'set_option', 'to_json', 'with_accumulation', 'with_steps',
]  # fmt: skip
