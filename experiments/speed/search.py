"""Beam searches to compare, ours and other libraries', with the same weights and sentences."""

import contextlib
import importlib.util
import itertools
import os
import pathlib
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax

from experiments.speed import subprocesses
from transformer import parallel
from transformer.cli import lines as texts
from transformer.config import Config, ConfigError
from transformer.inference import generate
from transformer.runs.restore import Trained
from transformer.tokens import EOS, PAD
from transformer.training.step import initial_state

# Maps rows of pieces to their best outputs, without the end symbol.
Search = Callable[[Sequence[list[int]]], list[list[int]]]
LIBRARIES = ('torch', 'transformers', 'ctranslate2')
OTHERS = ('CTranslate2, float32', 'CTranslate2, int8', 'Hugging Face')


def untrained(config: Config) -> Trained:
    """Returns an untrained model that never ends a sentence before its limit."""
    params = jax.device_get(initial_state(config).params)
    table = params['embedding']['table'].copy()
    # The end symbol is never likely; nor is padding, which other libraries remove before the softmax.
    table[[PAD, EOS]] = 0.0
    params = {**params, 'embedding': {'table': table}}
    # A search needs only the size of the tokenizer.
    return Trained(config, parallel.replicate(params), types.SimpleNamespace(size=config.data.pieces))


def ours(trained: Trained) -> Search:
    """Returns our search."""
    config = trained.config
    settings, key = generate.Asked(config.decode, 1, extend=False), generate.sampling_key(config, None)

    def translate(rows: Sequence[list[int]]) -> list[list[int]]:
        outputs = generate.search(trained, settings, rows, range(len(rows)), key)
        best = (output.tokens[0].tolist() for output in outputs)
        return [list(itertools.takewhile(lambda piece: piece not in (EOS, PAD), row)) for row in best]

    return translate


@contextlib.contextmanager
def others(trained: Trained) -> Iterator[dict[str, Search]]:
    """Yields the searches of other libraries, by name; if a library is missing, prints a line and yields {}.

    Each runs in its own process, because two CTranslate2 models in one process take twice as long.
    """
    if missing := [name for name in LIBRARIES if not importlib.util.find_spec(name)]:
        names = ', '.join(missing)
        print(f"Hugging Face, CTranslate2: skipped, not installed ({names}): pip install '.[bench]'")
        yield {}
        return
    model = trained.config, jax.device_get(trained.params)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield {name: subprocesses.start(stack, _make_search, name, *model, folder / name) for name in OTHERS}


def _make_search(name: str, config: Config, params: Mapping, folder: pathlib.Path) -> Search:
    from experiments.speed import translators

    library, _, dtype = name.partition(', ')
    if library == 'CTranslate2':
        return translators.ctranslate2_search(config, params, folder, dtype)
    return translators.hugging_face_search(config, params)


def read_rows(trained: Trained, file: str) -> list[list[int]]:
    """Reads the sentences of a file as rows of pieces; skips blank lines."""
    if not os.path.isfile(file):
        raise ConfigError(f'--input={file}: no such file')
    with open(file, 'rb') as stream:
        sentences = [line for lines in texts.Lines(stream) for line in lines if line.strip()]
    if not sentences:
        raise ConfigError(f'--input={file}: has no sentences')
    return trained.codec.of('source').encode_batch(sentences)
