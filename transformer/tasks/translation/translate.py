"""From sentences to sentences: batches of one length over the searches of decode.py, on all devices."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from transformer import decode, parallel
from transformer.config import Config, ConfigError, Decode, replace
from transformer.data.tokenizer import EOS, PAD, UNK, Tokenizer
from transformer.nn import models

# Source positions of one device's batch; at beam 4 a base model's caches take about 1 GB of it.
BATCH_POSITIONS = 4096
MOST_ROWS = 64


class Hypothesis(NamedTuple):
    """A translation and its score: log p, length-normalised by beam search."""

    text: str
    score: float


class Translator:
    """A model that translates.

    Args:
      params: of the model that `config` describes.
      on_cut: gets the index of a sentence longer than `decode.max_source_len`, and its length.
    """

    def __init__(
        self,
        config: Config,
        params: models.Params,
        tokenizer: Tokenizer,
        on_cut: Callable[[int, int], None] = lambda index, length: None,
    ):
        self.config, self.params, self.tokenizer = config, params, tokenizer
        self.on_cut = on_cut

    def translate(self, sentences: Sequence[str], **options) -> list[str]:
        """The best translation of each sentence; `options` are those of `Decode`, as beam=1.

        Raises:
          ConfigError: an impossible option.
        """
        return [found[0].text for found in self.hypotheses(sentences, **options)]

    def hypotheses(self, sentences: Sequence[str], *, best: int = 1, **options) -> list[list[Hypothesis]]:
        """The `best` best translations of each sentence; an empty sentence stays empty.

        Raises:
          ConfigError: an impossible option, or more hypotheses than the search has.
        """
        settings = self._settings(options)
        widest = settings.beam if settings.method == 'beam' else 1
        if not 1 <= best <= widest:
            raise ConfigError(f'nbest={best}: decode.method={settings.method} has {widest} at most')
        results = [[Hypothesis('', 0.0)] * best for _ in sentences]
        tokens = self._encode(sentences, settings.max_source_len)
        for indexes, width in _batches([len(t) for t in tokens], parallel.local_devices()):
            rows = _padded([tokens[i] for i in indexes], width)
            rows['index'] = np.array(indexes + [0] * (len(rows['tokens']) - len(indexes)), np.int32)
            found = self._search(settings, best, rows)
            for row, i in enumerate(indexes):
                texts = [self.tokenizer.decode(t.tolist()) for t in found.tokens[row]]
                scores = found.scores[row].tolist()
                results[i] = [Hypothesis(*pair) for pair in zip(texts, scores, strict=True)]
        return results

    def _settings(self, options: dict[str, object]) -> Decode:
        known = {field.name for field in dataclasses.fields(Decode)}
        unknown = sorted(set(options) - known)
        if unknown:
            raise ConfigError(f'{unknown[0]}: no such option; choose among {", ".join(sorted(known))}')
        return replace(self.config, {f'decode.{k}': v for k, v in options.items()}).decode

    def _encode(self, sentences: Sequence[str], longest: int) -> list[list[int]]:
        # What is no text, as a lone surrogate, is replaced as in invalid UTF-8; blanks are nothing.
        clean = [s.encode('utf-8', 'replace').decode() if s.strip() else '' for s in sentences]
        encoded = self.tokenizer.encode_batch(clean)
        for i, tokens in enumerate(encoded):
            if len(tokens) > longest:
                self.on_cut(i, len(tokens))
                encoded[i] = tokens[: longest - 1] + [EOS]
            elif not clean[i]:
                encoded[i] = []
        return encoded

    def _search(self, settings: Decode, best: int, rows: dict[str, Int[np.ndarray, 'B ...']]):
        key = jax.random.key(self.config.train.seed)
        search = _search_program(self.config, settings, best, self.tokenizer.size)
        with jax.default_matmul_precision(self.config.train.matmul_precision):
            return search(self.params, key, rows)


@functools.lru_cache(maxsize=8)
def _search_program(config: Config, settings: Decode, best: int, pieces: int) -> Callable:
    """`(params, key, rows) -> Hypotheses`, compiled once a shape."""
    return parallel.map_rows(functools.partial(search_rows, config, settings, best, pieces))


def search_rows(
    config: Config,
    settings: Decode,
    best: int,
    pieces: int,
    params: models.Params,
    key: Array,
    rows: dict[str, Int[Array, 'B ...']],
) -> decode.Hypotheses:
    """Searches the translations of one device's rows: `tokens` and `segments` [B S], `index` [B].

    Args:
      pieces: the tokenizer's; rows of the embedding behind them are never written.
      key: of sampling; each row's own key is made of it and of its index.
    """
    model, variables = models.build(config), {'params': params}
    width = rows['tokens'].shape[1]
    positions = jnp.broadcast_to(jnp.arange(width), rows['tokens'].shape)
    source = models.Source(rows['tokens'], rows['segments'], positions)
    lengths = jnp.sum(rows['segments'], axis=1)
    max_len = width + settings.extra_len
    # A row that fills up a batch is done at once.
    limits = jnp.where(lengths > 0, lengths + settings.extra_len, 1)
    memory = model.apply(variables, source, method='encode')
    constants, state = model.apply(variables, memory, max_len, method='start')
    step = functools.partial(model.apply, variables, method='step')
    vocabulary = jnp.arange(config.model.vocab_size)
    allowed = (vocabulary < pieces) & (vocabulary != PAD) & (vocabulary != UNK)
    common = (step, constants, state, limits, max_len, allowed)
    if settings.method == 'beam':
        return decode.beam_search(*common, beam=settings.beam, alpha=settings.alpha, best=best)
    if settings.method == 'greedy':
        return decode.sample(*common, decode.likeliest)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, rows['index'])
    choose = decode.drawn(keys, settings.temperature, settings.top_k, settings.top_p)
    return decode.sample(*common, choose)


def _batches(lengths: list[int], devices: int) -> list[tuple[list[int], int]]:
    """Sentences of about one length, by index, with the width of their rows; empty ones are left out."""
    groups: dict[int, list[int]] = {}
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if lengths[i]:
            groups.setdefault(_width(lengths[i]), []).append(i)
    planned = []
    for width, indexes in groups.items():
        rows = devices * max(1, min(MOST_ROWS, BATCH_POSITIONS // width))
        planned += [(indexes[i : i + rows], width) for i in range(0, len(indexes), rows)]
    return planned


def _width(length: int) -> int:
    """The least of 8, 12, 16, 24, 32, 48, 64, ... that holds a sentence."""
    power = max(8, 2 ** math.ceil(math.log2(length)))
    return power * 3 // 4 if power > 8 and length <= power * 3 // 4 else power


def _padded(tokens: list[list[int]], width: int) -> dict[str, Int[np.ndarray, 'B S']]:
    """Rows of one width; their number is a power of two of rows a device, to meet few shapes."""
    devices = parallel.local_devices()
    count = devices * 2 ** math.ceil(math.log2(max(1, len(tokens) / devices)))
    rows = np.zeros((count, width), np.int32)
    for row, sentence in zip(rows, tokens, strict=False):
        row[: len(sentence)] = sentence
    segments = np.arange(width) < np.array([len(t) for t in tokens] + [0] * (count - len(tokens)))[:, None]
    return {'tokens': rows, 'segments': segments.astype(np.int32)}
