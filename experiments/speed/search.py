"""Searches that are timed beside each other: models, sentences, and who searches them."""

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

# From rows of pieces to their best outputs, without the end of the sentence.
Search = Callable[[Sequence[list[int]]], list[list[int]]]
LIBRARIES = ('torch', 'transformers', 'ctranslate2')
OTHERS = ('CTranslate2, float32', 'CTranslate2, int8', 'Hugging Face')


def untrained(config: Config) -> Trained:
    """An untrained model none of whose sentences ends before its limit."""
    params = jax.device_get(initial_state(config).params)
    table = params['embedding']['table'].copy()
    # Without an end in reach; padding likewise, which other libraries leave out before the softmax.
    table[[PAD, EOS]] = 0.0
    params = {**params, 'embedding': {'table': table}}
    # A search asks a tokenizer for its size only.
    return Trained(config, parallel.replicate(params), types.SimpleNamespace(size=config.data.pieces))


def ours(trained: Trained) -> Search:
    """Our search of many rows of pieces."""
    config = trained.config
    asked, key = generate.Asked(config.decode, 1, extend=False), generate.sampling_key(config, None)

    def translate(rows: Sequence[list[int]]) -> list[list[int]]:
        found = generate.search(trained, asked, rows, range(len(rows)), key)
        best = (each.tokens[0].tolist() for each in found)
        return [list(itertools.takewhile(lambda piece: piece not in (EOS, PAD), row)) for row in best]

    return translate


@contextlib.contextmanager
def others(trained: Trained) -> Iterator[dict[str, Search]]:
    """The searches of other libraries with the same weights, by name; none, and a line, if one is missing.

    Each has a process of its own: two models of CTranslate2 in one process take twice as long as alone.

    Raises:
      ConfigError: the model is not the paper's.
    """
    if missing := [name for name in LIBRARIES if not importlib.util.find_spec(name)]:
        named = ', '.join(missing)
        print(f"Hugging Face, CTranslate2: skipped, not installed ({named}): pip install '.[bench]'")
        yield {}
        return
    model = trained.config, jax.device_get(trained.params)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield {name: subprocesses.start(stack, _of_library, name, *model, folder / name) for name in OTHERS}


def _of_library(name: str, config: Config, params: Mapping, folder: pathlib.Path) -> Search:
    from experiments.speed import translators

    library, _, kind = name.partition(', ')
    if library == 'CTranslate2':
        return translators.ctranslate2_of(config, params, folder, kind)
    return translators.hugging_face(config, params)


def read(trained: Trained, file: str) -> list[list[int]]:
    """The sentences of a file as rows of pieces, without blank lines.

    Raises:
      ConfigError: there is no such file, or nothing in it.
    """
    if not os.path.isfile(file):
        raise ConfigError(f'--input={file}: no such file')
    with open(file, 'rb') as stream:
        sentences = [line for lines in texts.Lines(stream) for line in lines if line.strip()]
    if not sentences:
        raise ConfigError(f'--input={file}: holds no sentence')
    return trained.codec.of('source').encode_batch(sentences)
