"""The codec of pairs whose target is no plain text: trees, or several right spellings."""

import base64
import functools
import hashlib
import json
from collections.abc import Callable, Sequence

from transformer.data import trees
from transformer.data.tokenizers import kinds
from transformer.data.tokenizers.base import FILE, Tokenizer

BEGIN = b'{"tokenizer": "of_pairs", "target": '


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
        self.content = BEGIN + f'{json.dumps(form)}, "model": {values}}}\n'.encode()
        self.sha256 = hashlib.sha256(self.content).hexdigest()
        codec = kinds.read(model)
        self._source, self._target = codec.of('source'), TargetTokenizer(codec.of('target'), form)
        self.size = codec.size

    def of(self, field: str) -> Tokenizer:
        """The tokenizer of a field."""
        return self._target if field == 'target' else self._source


def read(content: bytes) -> TargetCodec:
    """Builds the codec that a file's content describes; RuntimeError if it is damaged."""
    try:
        values = json.loads(content)
        return TargetCodec(base64.b64decode(values['model']), values['target'])
    except (ValueError, KeyError, RuntimeError) as error:
        raise RuntimeError(f'damaged: {error}') from None
