"""The codec of a dataset, which turns fields into numbers and back: a tokenizer, class names, or nothing."""

import hashlib
import json
from collections.abc import Mapping

from transformer.data import tokenizer
from transformer.data.tokenizer import ByteTokenizer, SeparateTokenizers, Tokenizer


class Labels:
    """The names of classes in order; a class's number is its place.

    Attributes:
      file: its name in a work directory.
    """

    file = 'labels.json'

    def __init__(self, names: tuple[str, ...]):
        self.names = names
        self.content = json.dumps(names, ensure_ascii=False).encode() + b'\n'
        self.sha256 = hashlib.sha256(self.content).hexdigest()
        self.size = len(names)

    def of(self, field: str) -> 'Labels':
        """The classes of a field: the same for all."""
        del field
        return self

    def encode(self, name: str) -> int:
        """The number of a class.

        Raises:
          ValueError: there is no such class.
        """
        return self.names.index(name)

    def decode(self, number: int) -> str:
        """The name of a class."""
        return self.names[number]


class NoCodec:
    """For data whose fields are numbers already; it has no file."""

    file = None
    content = b''
    sha256 = hashlib.sha256(content).hexdigest()
    size = 0

    def of(self, field: str) -> 'NoCodec':
        """The codec of a field: the same for all."""
        del field
        return self


Codec = Tokenizer | ByteTokenizer | SeparateTokenizers | Labels | NoCodec

# The names that a codec's file can have.
FILES = (tokenizer.FILE, Labels.file)


def file_of(manifest: Mapping) -> str | None:
    """The name of the codec's file in a dataset that a manifest describes; None if it has none."""
    return next((name for name in FILES if name in manifest['checksums']), None)


def read(file: str | None, content: bytes) -> Codec:
    """Builds the codec that a file's name and content describe.

    Raises:
      RuntimeError: the content is damaged.
    """
    if file is None:
        return NoCodec()
    if file != Labels.file:
        return tokenizer.read(content)
    try:
        return Labels(tuple(json.loads(content)))
    except (ValueError, TypeError) as error:
        raise RuntimeError(f'damaged: {error}') from None
