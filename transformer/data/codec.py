"""The codec of a dataset, which turns fields into numbers and back: a tokenizer, class names, or nothing."""

import base64
import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence

from transformer.data import trees
from transformer.data.tokenizers import kinds
from transformer.data.tokenizers.base import FILE, ForAllFields, Tokenizer
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


# How the file of a `TargetCodec` begins.
_OF_PAIRS = b'{"tokenizer": "of_pairs", "target": '


def _brackets(text: str, name: str, *, tags: bool) -> str:
    tree = trees.one(text, name)
    return trees.linearize(tree, tags=tags) if tree else ''


def spellings(line: str) -> list[str]:
    """The right spellings in a line: all of it, or what follows the source and a tab, separated by tabs."""
    first, *rest = line.split('\t')
    return rest or [first]


# What the model writes of a target's text; the second argument names the text in errors.
FORMS: dict[str, Callable[[str, str], str]] = {
    'trees': functools.partial(_brackets, tags=False),
    'tagged_trees': functools.partial(_brackets, tags=True),
    'spellings': lambda text, name: spellings(text)[0],
}


class TargetTokenizer(Tokenizer):
    """Cuts what a model writes of a target's text into pieces; pieces become what it wrote."""

    def __init__(self, pieces: Tokenizer, form: str):
        super().__init__(pieces.content)
        self._pieces, self._form = pieces, FORMS[form]
        self.size, self.decode, self.pieces = pieces.size, pieces.decode, pieces.pieces

    def encode_batch(self, texts: Sequence[str], *, threads: int | None = None) -> list[list[int]]:
        """The pieces of each target, with EOS; ConfigError if one does not have the form."""
        written = [self._form(text, f'target {number}') for number, text in enumerate(texts, 1)]
        return self._pieces.encode_batch(written, threads=threads)


class TargetCodec:
    """The tokenizers of a pair's fields; `form` names the target's entry in `FORMS`."""

    file = FILE

    def __init__(self, model: bytes, form: str):
        values = json.dumps(base64.b64encode(model).decode())
        self.content = _OF_PAIRS + f'{json.dumps(form)}, "model": {values}}}\n'.encode()
        self.sha256 = hashlib.sha256(self.content).hexdigest()
        codec = kinds.read(model)
        self._source, self._target = codec.of('source'), TargetTokenizer(codec.of('target'), form)
        self.size = codec.size

    def of(self, field: str) -> Tokenizer:
        """The tokenizer of a field."""
        return self._target if field == 'target' else self._source


Codec = AnyTokenizer | TargetCodec | Labels | NoCodec

# The names that a codec's file can have.
FILES = (FILE, Labels.file)


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
        return (_read_target if content.startswith(_OF_PAIRS) else kinds.read)(content)
    try:
        return Labels(tuple(json.loads(content)))
    except (ValueError, TypeError) as error:
        raise RuntimeError(f'damaged: {error}') from None


def _read_target(content: bytes) -> TargetCodec:
    """Builds the codec that a file's content describes; RuntimeError if it is damaged."""
    try:
        values = json.loads(content)
        return TargetCodec(base64.b64decode(values['model']), values['target'])
    except (ValueError, KeyError, RuntimeError) as error:
        raise RuntimeError(f'damaged: {error}') from None
