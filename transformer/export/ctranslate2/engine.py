"""Translates with CTranslate2, by a model that `writing` wrote (extra `export`)."""

import logging
import os
from collections.abc import Sequence

import numpy as np
from etils import epath
from jaxtyping import Float

from transformer.config import ConfigError
from transformer.export.ctranslate2 import names
from transformer.runs.restore import Trained
from transformer.tokens import EOS

BATCH = 64  # sentences


class Translator:
    """CTranslate2's Translator, for texts cut by our model's tokenizer."""

    def __init__(self, trained: Trained, folder: epath.PathLike):
        try:
            import ctranslate2
        except ModuleNotFoundError:
            raise ConfigError("--check needs ctranslate2: pip install '.[export]'") from None
        self._decode = trained.config.decode
        self._source, self._target = (trained.codec.of(field) for field in names.FIELDS)
        pieces = self._target.pieces(range(self._target.size))
        self._ids = {piece: number for number, piece in enumerate(pieces)}
        # It warns of types that this processor lacks; `dtype` says which it computes in.
        ctranslate2.set_log_level(logging.ERROR)
        self._translator = ctranslate2.Translator(str(folder), device='cpu', intra_threads=os.cpu_count())

    @property
    def dtype(self) -> str:
        """The type of its computations."""
        return self._translator.compute_type

    def likeliest(self, texts: Sequence[str], method: str) -> list[str]:
        """The translation of each text with the largest log p that a search finds.

        Args:
          method: greedy, or beam with the config's beam.
        """
        beam = self._decode.beam if method == 'beam' else 1
        sources = self._pieces(self._source, texts)
        outputs = self._translator.translate_batch(
            sources,
            beam_size=beam,
            # Without any penalty, a search may end before it has found the best.
            length_penalty=1e-9,
            patience=beam,
            min_decoding_length=0,
            max_decoding_length=self._decode.extra_len + max(map(len, sources), default=0),
            max_batch_size=BATCH,
        )
        ids = ([self._ids[piece] for piece in output.hypotheses[0]] for output in outputs)
        return [self._target.decode(row, one_line=True) for row in ids]

    def log_probabilities(self, pairs: Sequence[tuple[str, str]]) -> list[Float[np.ndarray, ' pieces']]:
        """log p of every piece of each pair's target."""
        sources, targets = zip(*pairs, strict=True)
        rows = self._pieces(self._source, sources), self._pieces(self._target, targets)
        return [np.array(one.log_probs) for one in self._translator.score_batch(*rows, max_batch_size=BATCH)]

    def _pieces(self, tokenizer, texts: Sequence[str]) -> list[list[str]]:
        """The pieces of each text, without the end, which CTranslate2 adds."""
        rows = tokenizer.encode_batch(texts)
        return [tokenizer.pieces([token for token in row if token != EOS]) for row in rows]
