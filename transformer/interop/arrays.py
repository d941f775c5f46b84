"""Reads files of named arrays: safetensors (extra `export`), and state dicts of PyTorch (extra `torch`)."""

import io

import numpy as np
from etils import epath

from transformer.config import ConfigError
from transformer.config.extras import needing
from transformer.interop.layout import Arrays
from transformer.runs import parameters_file

TORCH_ENDS = '.bin', '.pt', '.pth', '.ckpt'
# Types of safetensors that numpy has, with bfloat16, which JAX adds.
_TYPES = {
    'F64': '<f8', 'F32': '<f4', 'F16': '<f2', 'I64': '<i8', 'I32': '<i4', 'I16': '<i2', 'I8': 'i1',
    'U64': '<u8', 'U32': '<u4', 'U16': '<u2', 'U8': 'u1', 'BOOL': '?', 'BF16': 'bfloat16',
}  # fmt: skip


def read(file: epath.Path) -> Arrays:
    """Reads a file of arrays, of PyTorch if its name ends like one in `TORCH_ENDS`, else of safetensors."""
    return (read_torch if file.suffix in TORCH_ENDS else read_safetensors)(file)


def read_safetensors(file: epath.Path) -> Arrays:
    """Reads a file of safetensors, with float16 and bfloat16 as float32.

    Raises:
      ConfigError: the file is missing, damaged or of an unknown type, or the library is not installed.
    """
    safetensors = parameters_file.load_library()
    content = content_of(file)
    try:
        found = safetensors.deserialize(content)
    except safetensors.SafetensorError as error:
        raise ConfigError(f'{file.name}: damaged: {error}') from None
    arrays = {}
    for name, array in found:
        if array['dtype'] not in _TYPES:
            raise ConfigError(f'{file.name}: {name}: has the type {array["dtype"]}, which numpy lacks')
        values = np.frombuffer(array['data'], _TYPES[array['dtype']])
        try:
            values = values.reshape(array['shape'])
        except ValueError as error:  # numpy has at most 64 axes
            raise ConfigError(f'{file.name}: {name}: {error}') from None
        arrays[name] = values.astype(np.float32) if array['dtype'] in ('F16', 'BF16') else values
    return arrays


def read_torch(file: epath.Path) -> Arrays:
    """Reads a state dict that PyTorch's `save` wrote, with all floating-point types as float32.

    Raises:
      ConfigError: the file is missing or damaged, holds code or no state dict, or torch is not installed.
    """
    with needing(file.name, 'torch'):
        import torch
    content = io.BytesIO(content_of(file))
    try:
        found = torch.load(content, weights_only=True, map_location='cpu')
    except Exception:  # Damaged files raise almost anything, with several lines of advice.
        raise ConfigError(f'{file.name}: damaged, or holds more than arrays by name') from None
    if not isinstance(found, dict) or not found:
        raise ConfigError(f'{file.name}: holds a {type(found).__name__}, not arrays by name')
    for name, array in found.items():
        if not isinstance(name, str):
            raise ConfigError(f'{file.name}: {name!r}: the name of an array must be a text')
        if not isinstance(array, torch.Tensor):
            kind = type(array).__name__
            raise ConfigError(
                f'{file.name}: {name}: a {kind}, no array; save the state dict of the model alone'
            )
        if array.layout != torch.strided or array.is_quantized or array.is_complex():
            raise ConfigError(f'{file.name}: {name}: no dense array of real numbers')
    wide = lambda array: array.float() if array.is_floating_point() else array
    return {name: wide(array.detach()).numpy() for name, array in found.items()}


def content_of(file: epath.Path) -> bytes:
    """Returns the bytes of a file, or raises ConfigError if there is none."""
    try:
        return file.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        raise ConfigError(f'{file.name}: no such file') from None
