"""The codecs of a dataset's fields: each turns values into numbers and back."""

import base64
import json
from collections.abc import Mapping

from transformer import files
from transformer.data.tokenizers import kinds
from transformer.data.tokenizers.base import FILE, Tokenizer
from transformer.errors import ConfigError

# How tokenizer files of earlier versions begin: for pairs whose target is no plain text, and with a tokenizer
# for each field.
_OF_PAIRS, _SEPARATE = b'{"tokenizer": "of_pairs", ', b'{"tokenizer": "separate", '


class Labels:
    """The names of classes in order. A class's number is its place."""

    file = 'labels.json'

    def __init__(self, names: tuple[str, ...]):
        self.names = names
        self.content = json.dumps(names, ensure_ascii=False).encode() + b'\n'
        self.sha256 = files.bytes_sha256(self.content)
        self.size = len(names)
        self._numbers = {name: number for number, name in enumerate(names)}

    def encode(self, name: str) -> int:
        """Returns the number of a class, or raises KeyError if there is no such class."""
        return self._numbers[name]

    def decode(self, number: int) -> str:
        """Returns the name of a class."""
        return self.names[number]


FieldCodec = Tokenizer | Labels
# The codec of each field, None for fields whose values are numbers already. Fields can share one.
Codecs = Mapping[str, FieldCodec | None]


def files_of(codecs: Codecs) -> dict[str, str | None]:
    """Returns the name of each field's file: one for equal codecs, with the field's name if it is taken."""
    first: dict[str, str] = {}
    names = {}
    for field, codec in codecs.items():
        if codec is not None and codec.sha256 not in first:
            taken = codec.file in first.values()
            first[codec.sha256] = f'{field}.{codec.file}' if taken else codec.file
        names[field] = first[codec.sha256] if codec else None
    return names


def contents(codecs: Codecs) -> dict[str, bytes]:
    """Returns the content of each file of `files_of`."""
    return {name: codecs[field].content for field, name in files_of(codecs).items() if name}


def tokenizers(codecs: Codecs) -> dict[str, Tokenizer]:
    """Returns the tokenizers among the codecs."""
    return {field: codec for field, codec in codecs.items() if isinstance(codec, Tokenizer)}


def size(codecs: Codecs) -> int:
    """Returns the number of pieces of the largest tokenizer."""
    return max(one.size for one in tokenizers(codecs).values())


def sha256(codecs: Codecs) -> str | None:
    """Returns the hash of the tokenizer, or of all tokenizers if there are several, or None without any."""
    digests = list(dict.fromkeys(one.sha256 for one in tokenizers(codecs).values()))
    return digests[0] if len(digests) == 1 else files.json_sha256(digests) if digests else None


def same(one: Codecs, other: Codecs) -> bool:
    """Returns whether the fields that both have also have equal codecs."""
    digest = lambda codec: codec and codec.sha256
    return all(digest(one[field]) == digest(other[field]) for field in one.keys() & other.keys())


def read_from(folder: files.Path, manifest: Mapping) -> Codecs:
    """Reads the codecs of a dataset that a manifest describes.

    Raises:
      RuntimeError: a file is missing, damaged, or not the manifest's.
    """
    names = manifest.get('codecs')
    if names is None:
        return _read_earlier(folder, manifest)
    by_name = {name: read(name, _read_file(folder, name, manifest)) for name in {*names.values()} - {None}}
    return {field: name and by_name[name] for field, name in names.items()}


def read(file: str, content: bytes) -> FieldCodec:
    """Builds the codec that a file's name and content describe.

    Raises:
      RuntimeError, ValueError: the content is damaged.
      ConfigError: a library that it needs is not installed.
    """
    if not file.endswith(Labels.file):
        return kinds.read(content)
    try:
        return Labels(tuple(files.parse_json(content, [str], Labels.file)))
    except ConfigError as error:
        raise RuntimeError(str(error)) from None


def _read_file(folder: files.Path, name: str, manifest: Mapping) -> bytes:
    try:
        content = (folder / name).read_bytes()
    except (OSError, ValueError):  # a name that no file can have
        raise RuntimeError(f'{name} is missing or damaged') from None
    if files.bytes_sha256(content) != manifest['checksums'].get(name):
        raise RuntimeError(f'{name} does not match data.lock.json')
    return content


def _read_earlier(folder: files.Path, manifest: Mapping) -> Codecs:
    """Reads what an earlier version kept: names of classes, or the tokenizers of all fields in one file."""
    if Labels.file in manifest['checksums']:
        return {'image': None, 'label': read(Labels.file, _read_file(folder, Labels.file, manifest))}
    content = _read_file(folder, FILE, manifest)
    try:
        if content.startswith(_OF_PAIRS):
            shape = {'tokenizer': str, 'target': str, 'model': str}
            content = base64.b64decode(files.parse_json(content, shape, FILE)['model'])
        if content.startswith(_SEPARATE):
            shape = {'tokenizer': str, 'models': {'*': str}}
            models = files.parse_json(content, shape, FILE)['models']
            return {field: kinds.read(base64.b64decode(model)) for field, model in models.items()}
    except ValueError as error:
        raise RuntimeError(f'{FILE} is damaged: {error}') from None
    return dict.fromkeys(('source', 'target', 'text'), kinds.read(content))
