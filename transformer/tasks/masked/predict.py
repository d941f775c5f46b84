"""Uses a masked language model: fills [MASK] in texts, and embeds texts as vectors."""

from collections.abc import Callable, Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from jaxtyping import Array, Float, Int

from transformer.config import Config, ConfigError
from transformer.data.rows import padded
from transformer.data.text_input import longest_read
from transformer.data.tokenizers.base import BLANK
from transformer.inference import batch_shapes
from transformer.inference.generate import OnDone, as_texts, check_best
from transformer.nn import ensemble, models
from transformer.runs.restore import Trained
from transformer.tasks.contract import Hypothesis
from transformer.tasks.gaps import GAP
from transformer.tasks.masked.masking import MASK
from transformer.tokens import Tokens


def fill(
    trained: Trained,
    texts: Iterable[str],
    *,
    best: int = 1,
    first: int = 0,
    on_done: OnDone = lambda texts: None,
) -> list[list[Hypothesis]]:
    """Returns the likeliest words for the one [MASK] in each text, with their probabilities.

    Candidates are the pieces with which the tokenizer can begin a word at this place. After a letter,
    and with some tokenizers after a bracket or at the start of the text, these are not marked as beginning
    words. A text without a [MASK], or with several, gets an empty word, with a warning.
    """
    check_best(best)
    texts = as_texts(texts, 'texts')
    results, with_gap, rows = [[Hypothesis('', 0.0)] * best for _ in texts], [], []
    for i, text in enumerate(texts):
        if text.count(GAP) != 1:
            logging.warning('line %d: contains %s %d times, not once', first + i + 1, GAP, text.count(GAP))
            continue
        try:
            rows.append(gapped(trained, text))
        except ConfigError as error:
            logging.warning('line %d: %s', first + i + 1, error)
        else:
            with_gap.append(i)
    codec = trained.codecs['text']
    pieces, begins_word = codec.marked(range(codec.size)), codec.begins_words()
    # Special pieces and bytes are written like <s>, so a piece of text that begins with < is left out, too.
    shown = lambda piece: piece not in ('', BLANK) and piece[0] != '<' and '<0x' not in piece
    is_text = np.array([*map(shown, pieces)])
    allowed = {True: begins_word & is_text, False: ~begins_word & is_text}
    words = [pieces[i].removeprefix(BLANK) for i in np.flatnonzero(allowed[True])]
    if not words:
        raise ConfigError('fill: needs a tokenizer that marks the pieces that begin words, such as BPE')
    word = min(words, key=lambda word: (not word.isalpha(), len(word)))

    def likeliest(number: int, logp: Float[np.ndarray, ' V']) -> list[Hypothesis]:
        text = texts[with_gap[number]]
        before = codec.encode(text[: text.index(GAP)] + word)[:-1]
        marked = ''.join(pieces[i] for i in before).endswith(BLANK + word)
        scores = np.where(allowed[marked], logp[: len(pieces)], -np.inf)
        order = [i for i in np.argsort(-scores, kind='stable')[:best] if np.isfinite(scores[i])]
        return [Hypothesis(pieces[i].removeprefix(BLANK), float(np.exp(scores[i]))) for i in order]

    numbers = [first + i for i in with_gap]
    on_done(len(texts) - len(with_gap))
    hypotheses = run('log_p', trained, rows, numbers, on_done, likeliest)
    for i, of_text in zip(with_gap, hypotheses, strict=True):
        results[i] = of_text
    return results


def gapped(trained: Trained, text: str) -> list[int]:
    """Encodes a text, with MASK in place of [MASK]."""
    if GAP in trained.codecs['text'].special:
        return trained.codecs['text'].encode(text)
    before, after = trained.codecs['text'].encode_around(text, GAP)
    return [*before, MASK, *after]


def embed(
    trained: Trained,
    texts: Iterable[str],
    *,
    pool: str | None = None,
    first: int = 0,
    on_done: OnDone = lambda texts: None,
) -> Float[np.ndarray, 'N D']:
    """Returns a vector for each text: the mean of the encoder's outputs, or the first output.

    Args:
      pool: mean or first; `masked.pool` if None.
    """
    pool = trained.config.masked.pool if pool is None else pool
    if pool not in ('mean', 'first'):
        raise ConfigError(f'pool={pool!r}: choose mean or first')
    if isinstance(trained.params, tuple):
        raise ConfigError('embed: an ensemble has no common vectors; choose one checkpoint')
    rows = trained.codecs['text'].encode_batch(as_texts(texts, 'texts'))
    vectors = run(pool, trained, rows, range(first, first + len(rows)), on_done)
    return np.array(vectors, np.float32).reshape(len(rows), trained.config.model.d_model)


def run(
    output: str,
    trained: Trained,
    rows: Sequence[list[int]],
    numbers: Sequence[int],
    on_done: OnDone,
    finish: Callable[[int, np.ndarray], object] = lambda index, output: output,
) -> list:
    """Computes `finish(index of the row, _output)` for each row. Warnings name a row by its number."""
    rows = [_shorten(trained, row, number) for row, number in zip(rows, numbers, strict=True)]

    def build(indexes: list[int], shape: tuple[int, int]) -> tuple[Tokens, Int[np.ndarray, ' R']]:
        text = padded([rows[i] for i in indexes], shape)
        return text, np.argmax(text.tokens == MASK, axis=1).astype(np.int32)

    program = batch_shapes.program(_output, trained.config, output)
    return batch_shapes.run(program, (trained.params, None), [*map(len, rows)], build, on_done, finish)


def _shorten(trained: Trained, row: list[int], number: int) -> list[int]:
    """Cuts a row to `longest_read`.

    The pieces around MASK stay, and those that the tokenizer puts around every text.
    """
    longest = longest_read(trained.config)
    if len(row) <= longest:
        return row
    logging.warning('line %d: only %d of its %d pieces are read', number + 1, longest, len(row))
    first = len(trained.codecs['text'].encode('')) - 1  # without the end
    text, room = row[first:-1], longest - first - 1
    middle = text.index(MASK) if MASK in text else 0
    start = min(max(middle - room // 2, 0), len(text) - room)
    return [*row[:first], *text[start : start + room], row[-1]]


def _output(
    config: Config, output: str, params: ensemble.Params, key: None, rows: tuple[Tokens, Int[Array, 'R']]
) -> Float[Array, 'R VD']:
    """Computes each row's log p of every piece at its MASK, or the mean or first of the encoder's outputs."""
    text, place = rows
    if output == 'log_p':
        logits = ensemble.logits(config, params, {'text': text, 'places': place[:, None]}, key)
        return jax.nn.log_softmax(logits[:, 0], axis=-1)
    vectors = models.build(config).apply({'params': params}, {'text': text}, method='outputs')
    vectors = vectors.astype(jnp.float32)
    if output == 'first':
        return vectors[:, 0]
    real = (text.segments > 0).astype(jnp.float32)[..., None]
    return jnp.sum(vectors * real, axis=1) / jnp.maximum(jnp.sum(real, axis=1), 1.0)
