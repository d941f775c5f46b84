"""A model's parameters alone, in one file of safetensors by their paths (extra `export`)."""

import json
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from etils import epath

from transformer import files
from transformer.config import ConfigError
from transformer.config.extras import needing
from transformer.nn import models
from transformer.runs.checkpoint import Saved
from transformer.runs.hashes import fingerprint, named_leaves

FILE = 'parameters.safetensors'
_HEAD = {'__metadata__': {'checkpoint': str, '*': str}, '*': object}
_META = {
    'step': files.COUNT,
    'params_sha256': str,
    'averaged': [files.COUNT],
    'tokens': files.COUNT,
    '*': object,
}


def load_library():
    """Returns the module of safetensors. Raises ConfigError if it is not installed."""
    with needing('this', 'export'):
        import safetensors.numpy
    return safetensors


def write(folder: epath.Path, step: int, params: models.Params, meta: Mapping[str, object]) -> None:
    """Writes parameters, their step and `meta`, which must be JSON."""
    arrays = {path: np.asarray(leaf) for path, leaf in named_leaves(params).items()}
    described = {**meta, 'step': step, 'params_sha256': fingerprint(params)}
    content = load_library().numpy.save(arrays, {'checkpoint': json.dumps(described)})
    files.write_bytes(folder / FILE, content)


class ParametersFile:
    """The one checkpoint of a folder with `FILE`, with the reading methods of `Checkpoints`."""

    def __init__(self, folder: epath.Path):
        self._file = folder / FILE
        self._arrays, self._meta = _read(self._file)
        self._step = self._meta['step']

    def steps(self) -> list[int]:
        """Returns its step alone."""
        return [self._step]

    def best(self, steps: Sequence[int] | None = None) -> int:
        """Returns its step."""
        del steps
        return self._step

    def content(self, step: int) -> dict[str, object]:
        """Returns its meta data and the hash of its parameters, which can be a moving average."""
        del step
        sha256 = self._meta['params_sha256']
        return {'meta': self._meta, 'params': sha256, 'ema': sha256}

    def restore(self, step: int, like: Mapping[str, models.Params]) -> Saved:
        """Returns its parameters as the only item of `like`.

        Raises:
          ConfigError: `like` has other parameters, or the file is damaged.
        """
        [(item, shapes)] = like.items()
        if named_leaves(shapes).keys() != self._arrays.keys():
            raise ConfigError(f'{self._file}: has other parameters than the model of config.json')
        params = jax.tree.unflatten(
            jax.tree.structure(shapes), [self._arrays[path] for path in named_leaves(shapes)]
        )
        if fingerprint(params) != self._meta['params_sha256']:
            raise ConfigError(f'{self._file}: damaged: its parameters do not match their hash')
        return Saved(step, self._meta, **{item: params})


def _read(file: epath.Path) -> tuple[dict[str, np.ndarray], dict]:
    safetensors = load_library()
    try:
        # The library reads a file's description only from a local file.
        content = file.read_bytes()
        size = int.from_bytes(content[:8], 'little')
        head = files.parse_json(content[8 : 8 + size], _HEAD, str(file))
        meta = files.parse_json(head['__metadata__']['checkpoint'], _META, f'{file}: checkpoint')
        return safetensors.numpy.load(content), meta
    except (safetensors.SafetensorError, KeyError):
        # A KeyError is a type that numpy lacks.
        raise ConfigError(f'{file}: damaged') from None
