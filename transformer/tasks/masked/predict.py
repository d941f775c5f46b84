"""What a model of masked words does with a text: it fills [MASK], chooses among forms, embeds."""

import functools
from collections.abc import Callable, Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from jaxtyping import Array, Float, Int

from transformer import parallel
from transformer.config import Config, ConfigError
from transformer.inference import batch_shapes
from transformer.inference.generate import OnDone, as_texts
from transformer.nn import ensemble, models
from transformer.runs.restore import Trained
from transformer.tasks.contract import Hypothesis
from transformer.tasks.masked.masking import MASK
from transformer.tokens import Tokens

GAP = '[MASK]'
_NUL = '\0'  # takes the gap's place in the tokenizer: it is never part of a longer piece
_BLANK = '▁'  # begins a piece that begins a word


def fill(
    trained: Trained,
    texts: Iterable[str],
    *,
    best: int = 1,
    first: int = 0,
    on_done: OnDone = lambda texts: None,
) -> list[list[Hypothesis]]:
    """The likeliest words for the one [MASK] in each text, with their probabilities.

    A word is a piece that begins a word; after a letter, a piece that continues one. A text without a [MASK],
    or with several, gets an empty word, with a warning.

    Args:
      best: how many words for each text.
      first: the number of the first text, for warnings.
    """
    texts = as_texts(texts, 'texts')
    results = [[Hypothesis('', 0.0)] * best for _ in texts]
    for i, text in enumerate(texts):
        if text.count(GAP) != 1:
            logging.warning('line %d: %d times %s instead of once', first + i + 1, text.count(GAP), GAP)
    chosen = [i for i, text in enumerate(texts) if text.count(GAP) == 1]
    pieces = trained.codec.pieces(range(trained.codec.size))
    begins = np.array([piece.startswith(_BLANK) and piece != _BLANK for piece in pieces])
    real = np.array([len(piece) > 0 and not piece.startswith('<') for piece in pieces])
    allowed = {True: begins & real, False: ~begins & real}

    def likeliest(number: int, logp: Float[np.ndarray, ' V']) -> list[Hypothesis]:
        text = texts[chosen[number]]
        at_start = not text[: text.index(GAP)][-1:].isalnum()
        scores = np.where(allowed[at_start], logp[: len(pieces)], -np.inf)
        order = np.argsort(-scores, kind='stable')[:best]
        return [Hypothesis(pieces[i].removeprefix(_BLANK), float(np.exp(scores[i]))) for i in order]

    numbers = [first + i for i in chosen]
    rows = [gapped(trained, texts[i]) for i in chosen]
    on_done(len(texts) - len(chosen))
    for i, words in zip(chosen, predictions(trained, rows, likeliest, on_done, numbers), strict=True):
        results[i] = words
    return results


def gapped(trained: Trained, text: str) -> list[int]:
    """The pieces of a text, with MASK for [MASK]."""
    tokens = trained.codec.encode(text.replace(GAP, _NUL))
    [nul] = trained.codec.encode(_NUL)[-2:-1]
    if tokens.count(nul) != 1:
        raise ConfigError(f'{text!r}: the tokenizer has no piece for a gap')
    place = tokens.index(nul)
    # A piece that begins a word brings the blank before it along.
    lone = place > 0 and trained.codec.pieces([tokens[place - 1]]) == [_BLANK]
    return [*tokens[: place - lone], MASK, *tokens[place + 1 :]]


def predictions(
    trained: Trained,
    rows: Sequence[list[int]],
    choose: Callable[[int, Float[np.ndarray, ' V']], object],
    on_done: OnDone,
    numbers: Sequence[int],
) -> list:
    """What `choose(row, log p of every piece at its MASK)` returns, for each row."""
    rows = [_shortened(trained.config, row, number) for row, number in zip(rows, numbers, strict=True)]
    places = np.array([row.index(MASK) for row in rows], np.int32)

    def build(indexes: list[int], shape: tuple[int, int]):
        tokens, segments = batch_shapes.padded([rows[i] for i in indexes], shape)
        place = np.zeros((shape[0], 1), np.int32)
        place[: len(indexes), 0] = places[indexes]
        return {'tokens': tokens, 'segments': segments, 'places': place}

    program = _program(trained.config, _log_p)
    return batch_shapes.run(program, (trained.params, None), [*map(len, rows)], build, choose, on_done)


def embed(
    trained: Trained,
    texts: Iterable[str],
    *,
    pool: str = 'mean',
    first: int = 0,
    on_done: OnDone = lambda texts: None,
) -> Float[np.ndarray, 'N D']:
    """A vector for each text: the mean of the encoder's outputs, or the first of them.

    Args:
      pool: 'mean' of all pieces, the end among them, or 'first'.
    """
    if pool not in ('mean', 'first'):
        raise ConfigError(f'pool={pool!r}: choose mean or first')
    if isinstance(trained.params, tuple):
        raise ConfigError('embed: an ensemble has no vectors of its own; choose one checkpoint')
    encoded = trained.codec.encode_batch(as_texts(texts, 'texts'))
    rows = [_shortened(trained.config, row, first + i) for i, row in enumerate(encoded)]

    def build(indexes: list[int], shape: tuple[int, int]):
        tokens, segments = batch_shapes.padded([rows[i] for i in indexes], shape)
        return {'tokens': tokens, 'segments': segments}

    program = _program(trained.config, _mean if pool == 'mean' else _first)
    lengths, finish = [*map(len, rows)], lambda _, vector: vector
    vectors = batch_shapes.run(program, (trained.params, None), lengths, build, finish, on_done)
    return np.array(vectors, np.float32).reshape(len(rows), trained.config.model.d_model)


def _shortened(config: Config, row: list[int], number: int) -> list[int]:
    """A row that learned positions have room for; pieces around the MASK are kept."""
    longest = config.model.max_len if config.model.positions == 'learned' else len(row)
    if len(row) <= longest:
        return row
    logging.warning('line %d: only %d of its %d pieces are read', number + 1, longest, len(row))
    middle = row.index(MASK) if MASK in row else 0
    start = min(max(middle - longest // 2, 0), len(row) - longest)
    return row[start : start + longest]


@functools.lru_cache(maxsize=8)
def _program(config: Config, function: Callable) -> Callable:
    """`(params, None, batches of rows) -> outputs of each`, compiled once for each shape."""
    return parallel.map_rows(functools.partial(function, config), config.train.matmul_precision)


def _text(rows: dict[str, Int[Array, 'R ...']]) -> dict[str, Tokens]:
    positions = jnp.broadcast_to(jnp.arange(rows['tokens'].shape[1]), rows['tokens'].shape)
    return {'text': Tokens(rows['tokens'], rows['segments'], positions)}


def _log_p(
    config: Config, params: ensemble.Params, key: None, rows: dict[str, Int[Array, 'R ...']]
) -> Float[Array, 'R V']:
    logits = ensemble.logits(config, params, {**_text(rows), 'places': rows['places']}, key)[:, 0]
    return jax.nn.log_softmax(logits, axis=-1)


def _outputs(
    config: Config, params: models.Params, rows: dict[str, Int[Array, 'R S']]
) -> Float[Array, 'R S D']:
    return models.build(config).apply({'params': params}, _text(rows), method='outputs').astype(jnp.float32)


def _mean(
    config: Config, params: models.Params, key: None, rows: dict[str, Int[Array, 'R S']]
) -> Float[Array, 'R D']:
    del key
    real = (rows['segments'] > 0).astype(jnp.float32)[..., None]
    return jnp.sum(_outputs(config, params, rows) * real, axis=1) / jnp.maximum(jnp.sum(real, axis=1), 1.0)


def _first(
    config: Config, params: models.Params, key: None, rows: dict[str, Int[Array, 'R S']]
) -> Float[Array, 'R D']:
    del key
    return _outputs(config, params, rows)[:, 0]
