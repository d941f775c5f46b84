"""Generates outputs for many rows of pieces, and checks the options of a search."""

import dataclasses
import functools
import io
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt8

from transformer.config import Config, ConfigError, Decode, check_search, has, replace
from transformer.data.rows import padded, stacked
from transformer.inference import batch_shapes
from transformer.inference.search import (
    Advance,
    Hypotheses,
    Room,
    beam_search,
    constrain,
    likeliest,
    restrict,
    sampler,
    write,
)
from transformer.nn import ensemble, models
from transformer.runs.restore import Trained
from transformer.tokens import PAD, UNK, Tokens

# The most samples and the largest seed.
MOST_SAMPLES, MOST_SEED = 10_000, 2**31 - 1
# The length of a search's room (`search.Room`) is the longest output's length, divided by one of these.
ROOMS = (3, 1)

# Called with the number of texts done since the last call, fractions included.
OnDone = Callable[[float], None]


@runtime_checkable
class Grammar(Protocol):
    """What a search may write; hashable, since programs are compiled for it.

    `start` computes the state before the first piece from each output's limit and a number of its row, for
    outputs of at most `longest` pieces.
    """

    def start(self, limits: Int[Array, 'B'], number: Int[Array, 'B'], longest: int) -> object: ...

    advance: Advance


class SearchOptions(NamedTuple):
    """The options of a search.

    Attributes:
      settings: the decoding options.
      best: the number of hypotheses per row.
      extend: whether outputs have at most `extra_len` pieces, instead of `extra_len` more than their row.
      grammar: allows some outputs only.
    """

    settings: Decode
    best: int
    extend: bool
    grammar: Grammar | None = None


def settings_of(config: Config, options: dict[str, object]) -> Decode:
    """Returns the config's decoding options with changes such as `{'beam': 1}`.

    Raises:
      ConfigError: there is no such option, it cannot have this value, or the method ignores it.
    """
    known = {field.name for field in dataclasses.fields(Decode)}
    unknown = sorted(set(options) - known)
    if unknown:
        raise ConfigError(f'{unknown[0]}: no such option; choose among {", ".join(sorted(known))}')
    new = replace(config, {f'decode.{k}': v for k, v in options.items()})
    check_search(config, new)
    return new.decode


def as_texts(texts: object, argument: str) -> list[str]:
    """Returns the texts of a list, a generator or an open file as a list.

    Raises:
      ConfigError: it is one text, or holds something other than texts.
    """
    shown = lambda value: repr(value)[:40] + '...' * (len(repr(value)) > 40)
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        what = 'one text' if isinstance(texts, str) else type(texts).__name__
        raise ConfigError(f'{argument}={shown(texts)}: a list of texts is expected, not {what}')
    lines = isinstance(texts, io.TextIOBase)
    texts = [line.removesuffix('\n') for line in texts] if lines else list(texts)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise ConfigError(f'{argument}[{i}]={shown(text)}: expected str, got {type(text).__name__}')
    return texts


def as_pairs(pairs: object, argument: str) -> list[tuple[str, str]]:
    """Returns pairs of texts as a list. Raises ConfigError if one is something else."""
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise ConfigError(f'{argument}={repr(pairs)[:40]}: a list of pairs is expected')
    pairs = list(pairs)
    for i, pair in enumerate(pairs):
        # Arrays are rows of a table.
        parts = list(pair) if isinstance(pair, (tuple, list, np.ndarray)) else []
        if len(parts) != 2 or not all(isinstance(part, str) for part in parts):
            raise ConfigError(f'{argument}[{i}]={repr(pair)[:40]}: expected two texts')
    return [tuple(pair) for pair in pairs]


def check_best(best: object, most: int | float = math.inf, of: str = '') -> None:
    """Raises ConfigError unless `best` is a whole number from 1 to `most`.

    Args:
      of: what `most` counts.
    """
    _check_count('nbest', best, 1, math.inf)
    if best > most:
        raise ConfigError(f'nbest={best}: at most {most}, the number of {of}')


def _check_count(name: str, value: object, low: int, high: int | float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ConfigError(f'{name}={value!r}: expected int, got {type(value).__name__}')
    if not low <= value <= high:
        within = f'at least {low}' if high == math.inf else f'from {low} to {high}'
        raise ConfigError(f'{name}={value}: must be {within}')


def check_counts(settings: Decode, best: object, samples: object, seed: object, first: object) -> None:
    """Raises ConfigError if a search cannot give that many hypotheses or samples, or ignores the seed.

    Args:
      first: the number of the first row.
    """
    method, sampling = settings.method, '--config.decode.method=sample'
    check_best(best)
    _check_count('samples', samples, 1, MOST_SAMPLES)
    _check_count('first', first, 0, math.inf)
    _check_count('seed', 0 if seed is None else seed, 0, MOST_SEED)
    if best > 1 and method != 'beam':
        instead = 'set --samples' if method == 'sample' else f'set {sampling} and --samples'
        raise ConfigError(
            f'nbest={best}: decode.method={method} finds only one; set --config.decode.method=beam, or for '
            f'different samples {instead}={best}'
        )
    if method == 'beam' and best > settings.beam:
        raise ConfigError(
            f'nbest={best}: decode.beam={settings.beam} finds only {settings.beam}; set '
            f'--config.decode.beam={best}'
        )
    if samples > 1 and method != 'sample':
        raise ConfigError(f'samples={samples}: decode.method={method} gives only one; set {sampling}')
    if seed is not None and method != 'sample':
        raise ConfigError(
            f'seed={seed}: decode.method={method} draws nothing at random; a seed is for sampling: set '
            f'{sampling}'
        )


def sampling_key(config: Config, seed: int | None) -> Array:
    """Returns the random key of `seed`, or of `train.seed` if None."""
    return jax.random.key(config.train.seed if seed is None else seed)


def search(
    trained: Trained,
    options: SearchOptions,
    rows: Sequence[list[int]] | Sequence[UInt8[np.ndarray, 'h w c']],
    numbers: Sequence[int],
    key: Array,
    on_done: OnDone = lambda rows: None,
    of_grammar: Sequence[int] | None = None,
    pieces: int | None = None,
) -> list[Hypotheses]:
    """Searches for the outputs, the hypotheses, of each row of pieces or of each image.

    A row's samples depend on the key and the row's number, not on other rows. `on_done` is called with the
    number of rows of each finished batch. `of_grammar` has each row's number for the grammar. Pieces from
    `pieces` on, by default those that the tokenizer lacks, are never written.
    """
    images = has(trained.config, 'image')

    def build(indexes: list[int], shape: tuple[int, int]) -> tuple:
        column = lambda values, empty: np.array(
            [values[i] for i in indexes] + [empty] * (shape[0] - len(indexes)), np.int32
        )
        more = () if of_grammar is None else (column(of_grammar, 0),)
        chosen = [rows[i] for i in indexes]
        source = stacked(chosen, shape[0], chosen[0].shape) if images else padded(chosen, shape)
        # Numbers of 32 bits begin again.
        return source, column([number % 2**31 for number in numbers], -1), *more

    pieces = pieces or trained.codecs[models.fields(trained.config)[-1]].size
    program = batch_shapes.program(search_rows, trained.config, options, pieces)
    lengths = [trained.config.images.positions] * len(rows) if images else [*map(len, rows)]
    return batch_shapes.run(program, (trained.params, key), lengths, build, on_done)


def search_rows(
    config: Config, options: SearchOptions, pieces: int, params: ensemble.Params, key: Array, rows: tuple
) -> Hypotheses:
    """Searches for outputs of one device's rows: sources, numbers (-1 for an empty row), and a grammar's."""
    settings, grammar, (source, number, *of_grammar) = options.settings, options.grammar, rows
    width, lengths = _sizes(source)
    counted = jnp.zeros_like(lengths) if options.extend else lengths
    max_len = settings.extra_len + (0 if options.extend else width)
    # An empty row is done after one step.
    limits = jnp.where(number >= 0, counted + settings.extra_len, 1)
    memory = ensemble.encode(config, params, source)
    # In a smaller room, early steps attend to fewer places. But for a single line, compiling a second room
    # takes longer than it saves.
    alone = lengths.shape[0] <= batch_shapes.SMALL and width <= batch_shapes.NARROW * batch_shapes.WIDER
    parts = ROOMS[-1:] if alone else ROOMS
    sizes = sorted({math.ceil(max_len / part) for part in parts})
    rooms = [Room(size, *ensemble.start(config, params, memory, size)) for size in sizes]
    step = functools.partial(ensemble.step, config, params)
    vocabulary = jnp.arange(config.model.vocab_size)
    allowed = (vocabulary < pieces) & (vocabulary != PAD) & (vocabulary != UNK)
    step = restrict(step, allowed)
    if grammar:
        written = grammar.start(limits, *of_grammar, max_len)
        rooms = [room._replace(state=(written, room.state)) for room in rooms]
        step = constrain(step, grammar.advance)
    common = (step, rooms, limits)
    if settings.method == 'beam':
        return beam_search(*common, beam=settings.beam, alpha=settings.alpha, best=options.best)
    if settings.method == 'greedy':
        return write(*common, likeliest)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, number)
    choose = sampler(settings.temperature, settings.top_k, settings.top_p)
    return write(*common, choose, keys)


def _sizes(source: Tokens | UInt8[Array, 'B h w c']) -> tuple[int, Int[Array, 'B']]:
    """Returns the width of a batch in pieces, and the pieces of each row; an image has none."""
    if isinstance(source, Tokens):
        return source.tokens.shape[1], jnp.sum(source.segments, axis=1)
    return 0, jnp.zeros(source.shape[0], jnp.int32)
