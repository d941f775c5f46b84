"""Reads the pooling of a sentence encoder: a text's vectors become one (Reimers and Gurevych 2019)."""

from collections.abc import Mapping

from etils import epath

from transformer.config import ConfigError
from transformer.interop.foreign import check_name, json_object

MODULES, _POOLING, _MODE = 'modules.json', '1_Pooling', 'pooling_mode_'
# Their names of the two ways that `embed` has.
_POOLS = {'mean': 'mean', 'mean_tokens': 'mean', 'cls': 'first', 'cls_token': 'first'}
_SHAPE = {'pooling_mode?': ('mean', 'cls', None), '*': object}
# Settings beside the model that would change a text.
_TEXTS = {
    'sentence_bert_config.json': {'do_lower_case?': (False, None), '*': object},
    'config_sentence_transformers.json': {'default_prompt_name?': None, '*': object},
}
# The settings that are read of all files.
_MODES = 'cls_token', 'mean_tokens', 'max_tokens', 'mean_sqrt_len_tokens', 'weightedmean_tokens', 'lasttoken'
SHAPES = _TEXTS | {
    f'{_POOLING}/config.json': dict.fromkeys(('pooling_mode', *(_MODE + mode for mode in _MODES)), object)
}


def read(folder: epath.Path) -> dict[str, object]:
    """Returns the option for the vector of a text, empty if the folder has no sentence encoder.

    Raises:
      ConfigError: the vector is neither the mean of the encoder's outputs nor the first output.
    """
    for name, shape in _TEXTS.items():
        json_object(folder / name, shape, {})
    path = _POOLING if (folder / _POOLING).is_dir() else None
    if (folder / MODULES).exists():
        path = _pooling(json_object(folder / MODULES, [{'type': str, 'path': str, '*': object}]))
    if path is None:
        return {}
    name = f'{path}/config.json'
    settings = json_object(folder / path / 'config.json', _SHAPE)
    chosen = [key for key, value in settings.items() if value is True]
    modes = [key.removeprefix(_MODE) for key in chosen if key.startswith(_MODE)]
    if settings.get('pooling_mode'):
        modes = [settings['pooling_mode']]
    if len(modes) != 1 or modes[0] not in _POOLS:
        how = ' and '.join(modes) or 'none'
        raise ConfigError(f'{name}: pooling_mode={how}: no model here has it, only mean or cls_token')
    return {'masked.pool': _POOLS[modes[0]]}


def _pooling(modules: list[Mapping[str, object]]) -> str | None:
    """Returns the folder of the module that makes one vector, if there is one.

    Raises:
      ConfigError: a module is unknown here.
    """
    kinds = {one['type'].rpartition('.')[2]: one for one in modules}
    # A normalised vector differs in its length alone.
    if unknown := kinds.keys() - {'Transformer', 'Pooling', 'Normalize'}:
        raise ConfigError(f'{MODULES}: {min(unknown)}: no model here has it')
    return check_name(kinds['Pooling']['path'], f'{MODULES}: path') if 'Pooling' in kinds else None
