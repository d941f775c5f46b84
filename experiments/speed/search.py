"""Beam searches to compare, ours and other libraries', with the same weights and sentences."""

import contextlib
import importlib.util
import itertools
import os
import pathlib
import tempfile
import types
from collections.abc import Iterator, Mapping, Sequence

import jax

from experiments.speed import subprocesses
from experiments.speed.searched import Search
from transformer import parallel
from transformer.cli import streams
from transformer.config import Config, ConfigError
from transformer.inference import generate
from transformer.runs.restore import Trained
from transformer.tokens import EOS, PAD
from transformer.training.step import initial_state

ENGINE = 'translate --engine=ctranslate2'
# The other searches, and the libraries that each needs.
OTHERS = {
    'CTranslate2, float32': ('ctranslate2',),
    'CTranslate2, int8': ('ctranslate2',),
    ENGINE: ('ctranslate2',),
    'Hugging Face': ('torch', 'transformers'),
}
# CTranslate2's wheels need the libraries of an older CUDA than JAX's.
ON_GPU = ('Hugging Face',)


def untrained(config: Config) -> Trained:
    """Returns an untrained model that never ends a sentence before its limit."""
    params = jax.device_get(initial_state(config).params)
    table = params['embedding']['table'].copy()
    # The end symbol is never likely; nor is padding, which other libraries remove before the softmax.
    table[[PAD, EOS]] = 0.0
    params = {**params, 'embedding': {'table': table}}
    # A search needs only the size of the tokenizer.
    pieces = types.SimpleNamespace(size=config.data.pieces)
    return Trained(config, parallel.replicate(params), {'source': pieces, 'target': pieces})


def ours(trained: Trained) -> Search:
    """Returns our search."""
    config = trained.config
    settings = generate.SearchOptions(config.decode, 1, extend=False)
    key = generate.sampling_key(config, None)

    def translate(rows: Sequence[list[int]]) -> list[list[int]]:
        outputs = generate.search(trained, settings, rows, range(len(rows)), key)
        best = (output.tokens[0].tolist() for output in outputs)
        return [list(itertools.takewhile(lambda piece: piece not in (EOS, PAD), row)) for row in best]

    return translate


@contextlib.contextmanager
def others(trained: Trained) -> Iterator[dict[str, Search]]:
    """Yields the searches of other libraries, by name, and prints a line if a library is missing.

    Each runs in its own process, because two CTranslate2 models in one process take twice as long.
    """
    on_gpu = parallel.platform() == 'gpu'
    compared = {name: OTHERS[name] for name in (ON_GPU if on_gpu else OTHERS)}
    installed = [name for name, needed in compared.items() if all(map(importlib.util.find_spec, needed))]
    if missing := [name for name in compared if name not in installed]:
        print(f"{'; '.join(missing)}: skipped, not installed: pip install '.[bench]'")
    model = trained.config, jax.device_get(trained.params)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield {
            name: subprocesses.start(stack, _make_search, name, *model, folder / str(number), on_gpu)
            for number, name in enumerate(installed)
        }


def _make_search(name: str, config: Config, params: Mapping, folder: pathlib.Path, on_gpu: bool) -> Search:
    if name == 'Hugging Face':
        from experiments.speed import hugging_face_search

        return hugging_face_search.of_library(config, params, folder, 'cuda' if on_gpu else 'cpu')
    from experiments.speed import ctranslate2_search

    if name == ENGINE:
        return ctranslate2_search.of_engine(config, params, folder)
    return ctranslate2_search.of_library(config, params, folder, name.partition(', ')[2])


def read_rows(trained: Trained, file: str) -> list[list[int]]:
    """Reads the sentences of a file as rows of pieces, and skips blank lines."""
    if not os.path.isfile(file):
        raise ConfigError(f'--input={file}: no such file')
    with open(file, 'rb') as stream:
        sentences = [line for lines in streams.Lines(stream) for line in lines if line.strip()]
    if not sentences:
        raise ConfigError(f'--input={file}: has no sentences')
    return trained.codecs['source'].encode_batch(sentences)
