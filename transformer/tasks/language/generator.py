"""Continues texts with a trained language model."""

import dataclasses
import sys
from collections.abc import Iterable

import jax
import numpy as np
from absl import logging
from jaxtyping import Array

from transformer.config import Config, ConfigError, Decode
from transformer.inference import generate as generation
from transformer.runs.restore import Trained
from transformer.tasks.contract import Hypothesis
from transformer.tokens import EOS


def generate(trained: Trained, prompts: Iterable[str], **options) -> list[str]:
    """Returns each prompt with its best or only continuation. Options are as for `hypotheses`."""
    return [texts[0].text for texts in hypotheses(trained, prompts, **options)]


def hypotheses(
    trained: Trained,
    prompts: Iterable[str],
    *,
    best: int = 1,
    samples: int = 1,
    first: int = 0,
    seed: int | None = None,
    on_done: generation.OnDone = lambda prompts: None,
    **options,
) -> list[list[Hypothesis]]:
    """Continues each prompt: the `best` best continuations of beam search, or `samples` samples.

    The text includes the prompt, or the end of it that is read; the score does not. Without `data.carry`
    the model handles at most `data.row_len` pieces at a time: it writes a longer text half a row at a
    time, and reads the text's new end in between. Beam search does not continue longer texts. If the
    model learned lines, a newline in a text becomes a blank.

    Args:
      first: the number of the first prompt; samples depend on it and on `seed`.
      seed: `train.seed` if None.
      on_done: receives the number of further prompts that are continued.
      options: options of `Decode`, such as temperature=0.8.
    """
    prompts = generation.as_texts(prompts, 'prompts')
    settings = generation.settings_of(trained.config, options)
    generation.check_counts(settings, best, samples, seed, first)
    key = generation.sampling_key(trained.config, seed)
    prompted = _encode(trained, prompts, settings, first)
    rows = [tokens for tokens in prompted for _ in range(samples)]
    numbers = [(first + i) * samples + k for i in range(len(prompts)) for k in range(samples)]
    rows_done = lambda count: on_done(count / samples)
    if not settings.extra_len:
        on_done(len(prompts))
    if settings.method == 'beam':
        written = _beams(trained, settings, best, rows, numbers, key, rows_done)
    else:
        written = [[row] for row in _one_by_one(trained, settings, rows, numbers, key, rows_done)]
    texts = [
        Hypothesis(_text(trained, prompt, tokens), score)
        for prompt, row in zip(rows, written, strict=True)
        for tokens, score in row
    ]
    count = best if settings.method == 'beam' else samples
    return [texts[i : i + count] for i in range(0, len(texts), count)]


def _text(trained: Trained, prompt: list[int], tokens: list[int]) -> str:
    """Decodes a prompt and its continuation."""
    tokenizer, parts = trained.codecs['text'], [[]]
    for piece in prompt:
        if piece == EOS:
            parts.append([])
        else:
            parts[-1].append(piece)
    # A piece alone can lose the blank before it, or be part of a character.
    parts[-1] += tokens
    # Texts can hold the end piece of GPT-2's tokenizer.
    end = next((text for text in tokenizer.special if tokenizer.encode(text)[0] == EOS), '')
    one_line = trained.config.data.documents == 'lines'
    return end.join(tokenizer.decode(part, one_line=one_line) for part in parts)


def _encode(trained: Trained, prompts: list[str], settings: Decode, first: int) -> list[list[int]]:
    """Encodes prompts without the end piece, and keeps only the last pieces of a prompt that is too long."""
    encoded = [
        tokens[:-1] if prompt else []
        for tokens, prompt in zip(trained.codecs['text'].encode_batch(prompts), prompts, strict=True)
    ]
    blank = [first + i + 1 for i, prompt in enumerate(prompts) if prompt.endswith(' ')]
    if blank and trained.config.data.tokenizer == 'bpe':
        # A piece begins with the blank before its word.
        logging.warning(
            'prompt %d ends in a blank%s: the model has seen few texts that do; leave it out',
            blank[0], f' (and {len(blank) - 1} more)' if len(blank) > 1 else '',
        )  # fmt: skip
    for i, tokens in enumerate(encoded):
        if len(tokens) > settings.max_source_len:
            logging.warning('prompt %d: only the end of its %d pieces is read', first + i + 1, len(tokens))
            encoded[i] = tokens[-settings.max_source_len :]
    return encoded


def window(config: Config) -> int:
    """Returns the most pieces that a model reads at once: a training row, or all with `data.carry`."""
    return sys.maxsize if config.data.carry else config.data.row_len


def _beams(
    trained: Trained,
    settings: Decode,
    best: int,
    rows: list[list[int]],
    numbers: list[int],
    key: Array,
    on_done: generation.OnDone,
) -> list[list[tuple[list[int], float]]]:
    """Continues each row that fits into a training row together with its output; the others warn."""
    most, length = window(trained.config), settings.extra_len
    if length > most:
        raise ConfigError(f'decode.extra_len={length}: with method beam, at most data.row_len={most}')
    answers, asked = [[([], 0.0)] * best for _ in rows], []
    if not length:
        return answers
    for i, row in enumerate(rows):
        if len(row) + length <= most:
            asked.append(i)
            continue
        logging.warning(
            'prompt %d: not continued: with method beam, its %d pieces and decode.extra_len=%d must fit into '
            'data.row_len=%d', numbers[i] + 1, len(row), length, most,
        )  # fmt: skip
    on_done(len(rows) - len(asked))
    search, chosen = generation.SearchOptions(settings, best, extend=True), [rows[i] for i in asked]
    results = generation.search(trained, search, chosen, [numbers[i] for i in asked], key, on_done)
    for i, row in zip(asked, results, strict=True):
        answers[i] = list(zip(row.tokens.tolist(), row.scores.tolist(), strict=True))
    return answers


def _one_by_one(
    trained: Trained,
    settings: Decode,
    rows: list[list[int]],
    numbers: list[int],
    key: Array,
    on_done: generation.OnDone,
) -> list[tuple[list[int], float]]:
    """Continues each row in parts. A part and the pieces that it sees fit into a training row."""
    most = window(trained.config)
    # Decided row by row, so that a row's text does not depend on other rows.
    fits = [len(row) + settings.extra_len <= most for row in rows]
    half = max(most // 2, 1)
    written = [[] for _ in rows]
    logp = np.zeros(len(rows))
    for whole in (True, False):
        unfinished = [i for i in range(len(rows)) if fits[i] == whole]
        step = settings.extra_len if whole else half
        for number, done in enumerate(range(0, settings.extra_len, max(step, 1))):
            if not unfinished:
                break
            part = min(step, settings.extra_len - done)
            last = done + part == settings.extra_len
            results = generation.search(
                trained,
                generation.SearchOptions(dataclasses.replace(settings, extra_len=part), 1, extend=True),
                [(rows[i] + written[i])[-max(most - part, 1) :] for i in unfinished],
                [numbers[i] for i in unfinished],
                jax.random.fold_in(key, number) if number else key,
                on_done if last else lambda rows: None,
            )
            for i, row in zip(unfinished, results, strict=True):
                written[i] += row.tokens[0][:part].tolist()
                logp[i] += float(row.scores[0])
            before = len(unfinished)
            unfinished = [i for i, row in zip(unfinished, results, strict=True) if EOS not in row.tokens[0]]
            on_done(0 if last else before - len(unfinished))
    return list(zip(written, logp.tolist(), strict=True))
