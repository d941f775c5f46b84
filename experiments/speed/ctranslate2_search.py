"""Searches with our models in CTranslate2, as its users do and as `run.py translate` does (extra `export`).

CTranslate2 divides log p by n^alpha, the paper by ((5 + n)/6)^alpha.
"""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping, Sequence

import ctranslate2
import numpy as np
from etils import epath

from experiments.speed.searched import Search, never_written
from transformer.config import Config
from transformer.data.tokenizers.listed import PiecesTokenizer
from transformer.interop.ctranslate2 import engine, names, writing
from transformer.interop.foreign import NEVER
from transformer.runs.restore import Trained
from transformer.tokens import EOS, UNK

BATCH = 64  # sentences


def of_library(config: Config, params: Mapping, folder: pathlib.Path, dtype: str = 'float32') -> Search:
    """Writes the model to `folder`, and returns CTranslate2's own search of it, in float32 or int8."""
    bias = np.zeros(config.model.vocab_size, np.float32)
    bias[never_written(config)] = NEVER
    biased = dataclasses.replace(config, model=dataclasses.replace(config.model, softmax_bias=True))
    words = _words(config)
    numbers = {word: piece for piece, word in enumerate(words)}
    folder.mkdir()
    pieces = PiecesTokenizer.from_pieces(words, ' ', end=False)
    codecs = {'source': pieces, 'target': pieces}
    writing.write(biased, {**params, 'softmax_bias': bias}, codecs, epath.Path(folder))

    @functools.cache
    def translator(at_once: int) -> ctranslate2.Translator:
        threads = {'inter_threads': at_once, 'intra_threads': os.cpu_count() // at_once}
        return ctranslate2.Translator(str(folder), device='cpu', compute_type=dtype, **threads)

    def translate(rows: Sequence[list[int]]) -> list[list[int]]:
        # Batches at the same time, each on one core, are faster than batches one after the other.
        at_once = 1 if len(rows) <= BATCH else os.cpu_count()
        outputs = translator(at_once).translate_batch(
            [[words[piece] for piece in row] for row in rows],
            max_batch_size=BATCH,
            beam_size=config.decode.beam,
            length_penalty=config.decode.alpha,
            max_decoding_length=max(map(len, rows)) + config.decode.extra_len,
        )
        return [[numbers[word] for word in output.hypotheses[0]] for output in outputs]

    return translate


def of_engine(config: Config, params: Mapping, folder: pathlib.Path) -> Search:
    """Writes the model to `folder`, and returns the search of `run.py translate --engine=ctranslate2`."""
    pieces = PiecesTokenizer.from_pieces(_words(config), ' ', end=False)
    codecs = {'source': pieces, 'target': pieces}
    folder.mkdir()
    writing.write(config, params, codecs, epath.Path(folder))
    translator = engine.Translator(Trained(config, None, codecs), epath.Path(folder))

    def translate(rows: Sequence[list[int]]) -> list[list[int]]:
        found = translator.search(rows, config.decode)
        return [[piece for piece in outputs[0].pieces if piece != EOS] for outputs in found]

    return translate


def _words(config: Config) -> list[str]:
    """Returns the pieces' numbers as words, because CTranslate2 reads words."""
    return [*names.PIECES.values(), *map(str, range(UNK + 1, config.data.pieces))]
