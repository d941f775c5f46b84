"""The codec of a dataset, which turns fields into numbers and back: a tokenizer, class names, or nothing."""

import hashlib
import json
from collections.abc import Mapping

from transformer.data import target_codec
from transformer.data.target_codec import TargetCodec
from transformer.data.tokenizers import base, kinds
from transformer.data.tokenizers.base import ForAllFields
from transformer.data.tokenizers.kinds import AnyTokenizer
from transformer.files import Path


class Labels(ForAllFields):
    """The names of classes in order; a class's number is its place."""

    file = 'labels.json'

    def __init__(self, names: tuple[str, ...]):
        self.names = names
        self.content = json.dumps(names, ensure_ascii=False).encode() + b'\n'
        self.sha256 = hashlib.sha256(self.content).hexdigest()
        self.size = len(names)

    def encode(self, name: str) -> int:
        """The number of a class; ValueError if there is no such class."""
        return self.names.index(name)

    def decode(self, number: int) -> str:
        """The name of a class."""
        return self.names[number]


class NoCodec(ForAllFields):
    """For data whose fields are numbers already; it has no file."""

    file = None
    content = b''
    sha256 = hashlib.sha256(content).hexdigest()
    size = 0


Codec = AnyTokenizer | TargetCodec | Labels | NoCodec

# The names that a codec's file can have.
FILES = (base.FILE, Labels.file)


def read_from(folder: Path, manifest: Mapping) -> Codec:
    """Reads the codec of a dataset that a manifest describes.

    Raises:
      RuntimeError: the codec's file is missing, damaged, or not the manifest's.
    """
    file = next((name for name in FILES if name in manifest['checksums']), None)
    try:
        codec = read(file, (folder / file).read_bytes()) if file else NoCodec()
    except (OSError, RuntimeError):
        raise RuntimeError(f'{file} is missing or damaged') from None
    if codec.sha256 != manifest['tokenizer_sha256']:
        raise RuntimeError(f'{file} does not match data.lock.json')
    return codec


def read(file: str, content: bytes) -> Codec:
    """Builds the codec that a file's name and content describe; RuntimeError if it is damaged."""
    if file != Labels.file:
        return (target_codec if content.startswith(target_codec.BEGIN) else kinds).read(content)
    try:
        return Labels(tuple(json.loads(content)))
    except (ValueError, TypeError) as error:
        raise RuntimeError(f'damaged: {error}') from None
