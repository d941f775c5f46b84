"""Searches what follows many rows of pieces, in batches of rows of about one length."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from transformer import decode, parallel
from transformer.config import Config, Decode, replace
from transformer.nn import models
from transformer.options import ConfigError
from transformer.runs.restore import Trained
from transformer.symbols import PAD, UNK, Tokens

# Source positions of one device's batch; at beam 4 the caches of a base model then take about 1 GB.
BATCH_POSITIONS = 4096
MOST_ROWS = 64


class Asked(NamedTuple):
    """What is asked of a search, apart from the rows.

    settings: options of decoding. best: hypotheses for each row. extend: whether outputs have at most
    `extra_len` pieces; otherwise they may have as many as their row, and `extra_len` more.
    """

    settings: Decode
    best: int
    extend: bool


class Found(NamedTuple):
    """The hypotheses of one row, best first."""

    tokens: Int[np.ndarray, 'W L']
    scores: Float[np.ndarray, 'W']


def settings_of(config: Config, options: dict[str, object]) -> Decode:
    """The config's options of decoding with changes, as `{'beam': 1}`.

    Raises:
      ConfigError: there is no such option, or its value is impossible.
    """
    known = {field.name for field in dataclasses.fields(Decode)}
    unknown = sorted(set(options) - known)
    if unknown:
        raise ConfigError(f'{unknown[0]}: no such option; choose among {", ".join(sorted(known))}')
    return replace(config, {f'decode.{k}': v for k, v in options.items()}).decode


def check_best(settings: Decode, best: int) -> None:
    """Raises ConfigError where a search gives fewer than `best` hypotheses."""
    widest = settings.beam if settings.method == 'beam' else 1
    if not 1 <= best <= widest:
        raise ConfigError(f'nbest={best}: decode.method={settings.method} has {widest} at most')


def search(
    trained: Trained, asked: Asked, rows: Sequence[list[int]], numbers: Sequence[int], key: Array
) -> list[Found]:
    """Searches what follows each row of pieces.

    Args:
      rows: sentences to translate, or prompts to continue.
      numbers: of the rows; what is sampled for a row depends on its number, not on other rows.
      key: of the sampling.
    """
    results: list[Found | None] = [None] * len(rows)
    program = _program(trained.config, asked, trained.tokenizer.size)
    for indexes, width in _batches([len(row) for row in rows], parallel.local_devices()):
        chosen = [rows[i] for i in indexes]
        batch = _padded(chosen, [numbers[i] for i in indexes], width)
        with jax.default_matmul_precision(trained.config.train.matmul_precision):
            found = program(trained.params, key, batch)
        for row, i in enumerate(indexes):
            results[i] = Found(found.tokens[row], found.scores[row])
    return results


@functools.lru_cache(maxsize=8)
def _program(config: Config, asked: Asked, pieces: int) -> Callable:
    """`(params, key, rows) -> Hypotheses`, compiled once for each shape."""
    return parallel.map_rows(functools.partial(search_rows, config, asked, pieces))


def search_rows(
    config: Config,
    asked: Asked,
    pieces: int,
    params: models.Params,
    key: Array,
    rows: dict[str, Int[Array, 'B ...']],
) -> decode.Hypotheses:
    """Searches one device's rows: `tokens` and `segments` [B S], `number` [B], -1 where there is no row.

    Args:
      pieces: how many the tokenizer has; rows of the embedding beyond them are never written.
      key: of the sampling; with a row's number it makes the row's own key.
    """
    model, variables, settings = models.build(config), {'params': params}, asked.settings
    width = rows['tokens'].shape[1]
    positions = jnp.broadcast_to(jnp.arange(width), rows['tokens'].shape)
    lengths = jnp.sum(rows['segments'], axis=1)
    counted = jnp.zeros_like(lengths) if asked.extend else lengths
    max_len = settings.extra_len + (0 if asked.extend else width)
    # A row that only fills up the batch is done after one step.
    limits = jnp.where(rows['number'] >= 0, counted + settings.extra_len, 1)
    memory = model.apply(variables, Tokens(rows['tokens'], rows['segments'], positions), method='encode')
    constants, state = model.apply(variables, memory, max_len, method='start')
    step = functools.partial(model.apply, variables, method='step')
    vocabulary = jnp.arange(config.model.vocab_size)
    allowed = (vocabulary < pieces) & (vocabulary != PAD) & (vocabulary != UNK)
    common = (step, constants, state, limits, max_len, allowed)
    if settings.method == 'beam':
        return decode.beam_search(*common, beam=settings.beam, alpha=settings.alpha, best=asked.best)
    if settings.method == 'greedy':
        return decode.sample(*common, decode.likeliest)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, rows['number'])
    choose = decode.drawn(keys, settings.temperature, settings.top_k, settings.top_p)
    return decode.sample(*common, choose)


def _batches(lengths: list[int], devices: int) -> list[tuple[list[int], int]]:
    """Groups rows of about one length: the indexes of each batch's rows, and the width that they get."""
    groups: dict[int, list[int]] = {}
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        groups.setdefault(_width(lengths[i]), []).append(i)
    planned = []
    for width, indexes in groups.items():
        rows = devices * max(1, min(MOST_ROWS, BATCH_POSITIONS // width))
        planned += [(indexes[i : i + rows], width) for i in range(0, len(indexes), rows)]
    return planned


def _width(length: int) -> int:
    """The least of 8, 12, 16, 24, 32, 48, 64, ... that a row fits into."""
    power = max(8, 2 ** math.ceil(math.log2(max(length, 1))))
    return power * 3 // 4 if power > 8 and length <= power * 3 // 4 else power


def _padded(rows: list[list[int]], numbers: list[int], width: int) -> dict[str, Int[np.ndarray, 'B ...']]:
    """Rows of one width, filled up to a power of two on each device, so that there are few shapes."""
    devices = parallel.local_devices()
    count = devices * 2 ** math.ceil(math.log2(max(1, len(rows) / devices)))
    missing = count - len(rows)
    tokens = np.zeros((count, width), np.int32)
    for row, pieces in zip(tokens, rows, strict=False):
        row[: len(pieces)] = pieces
    segments = np.arange(width) < np.array([len(row) for row in rows] + [0] * missing)[:, None]
    return {
        'tokens': tokens,
        'segments': segments.astype(np.int32),
        'number': np.array([*numbers, *[-1] * missing], np.int32),
    }
