"""Reads CTranslate2's model.bin: the arrays by name, int8 and int16 dequantised to float32."""

import io
import struct
from collections.abc import Iterator

import numpy as np

from transformer.config import ConfigError
from transformer.interop.ctranslate2 import names
from transformer.interop.layout import Arrays

VERSIONS = range(2, 7)
_TYPES = ('float32', 'int8', 'int16', 'int32', 'float16', 'bfloat16')  # since version 4
_BY_SIZE = {4: 'float32', 2: 'int16', 1: 'int8'}  # until version 3
_SCALE_OF_INT16 = 1000.0  # if the file has none


class _Binary(io.BytesIO):
    """A binary file whose values are read one after the other.

    Raises:
      ConfigError: the file ends in the middle of a value, or a string is damaged.
    """

    def bytes(self, size: int) -> bytes:
        part = self.read(size)
        if len(part) < size:
            raise ConfigError(f'{names.FILE}: ends in the middle of a value, at byte {self.tell()}')
        return part

    def number(self, form: str) -> int:
        return struct.unpack(f'<{form}', self.bytes(struct.calcsize(form)))[0]

    def string(self) -> str:
        try:
            return self.bytes(self.number('H'))[:-1].decode()
        except UnicodeDecodeError:
            raise ConfigError(f'{names.FILE}: damaged before byte {self.tell()}') from None


def read_arrays(content: bytes) -> tuple[str, Arrays]:
    """Reads a model.bin.

    Returns:
      The name of its kind of model, and its arrays by name, int8 and int16 dequantised to float32.
    """
    binary = _Binary(content)
    version = binary.number('I')
    if version not in VERSIONS:
        raise ConfigError(f'{names.FILE}: version {version}; known are {VERSIONS[0]} to {VERSIONS[-1]}')
    kind, _ = binary.string(), binary.number('I')
    arrays = {}
    for _ in range(binary.number('I')):
        name = binary.string()
        shape = [binary.number('I') for _ in range(binary.number('B'))]
        kind_of_number, count = binary.number('B'), binary.number('I')
        size = count if version >= 4 else count * kind_of_number
        arrays[name] = _array(name, version, kind_of_number, shape, binary.bytes(size))
    if version >= 3:
        for _ in range(binary.number('I')):
            alias, name = binary.string(), binary.string()
            # The scale of an array that has an alias has one too.
            for end in ('', '_scale'):
                if name + end in arrays:
                    arrays[alias + end] = arrays[name + end]
    if rest := binary.read():
        raise ConfigError(f'{names.FILE}: has {len(rest)} bytes after its end')
    return kind, dict(_dequantized(arrays))


def _array(name: str, version: int, number: int, shape: list[int], content: bytes) -> np.ndarray:
    try:
        dtype = _TYPES[number] if version >= 4 else _BY_SIZE[number]
        array = np.frombuffer(content, np.dtype(dtype).newbyteorder('<')).reshape(shape)
        return array.astype(np.float32) if dtype == 'bfloat16' else array
    except (IndexError, KeyError, ValueError):
        raise ConfigError(f'{names.FILE}: {name}: damaged') from None


def _dequantized(arrays: Arrays) -> Iterator[tuple[str, np.ndarray]]:
    for name, array in arrays.items():
        scale = arrays.get(f'{name}_scale')
        if name.removesuffix('_scale') in arrays and name.endswith('_scale'):
            continue
        if array.ndim == 2 and array.dtype in (np.int8, np.int16):
            if scale is None and array.dtype == np.int8:
                raise ConfigError(f'{names.FILE}: {name}: has no {name}_scale')
            scale = np.float32(_SCALE_OF_INT16) if scale is None else scale
            if scale.size not in (1, len(array)) or not (np.isfinite(scale) & (scale != 0)).all():
                raise ConfigError(f'{names.FILE}: {name}_scale: damaged')
            array = array.astype(np.float32) / scale.reshape(-1, 1)
        yield name, array
