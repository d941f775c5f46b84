"""Computes log p of texts, each by itself or after a common prompt."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from absl import logging

from transformer.config import ConfigError
from transformer.inference import likelihood
from transformer.inference.generate import OnDone, as_texts
from transformer.runs.restore import Trained
from transformer.tasks.contract import Likelihood
from transformer.tasks.language.generator import window


def likelihoods(
    trained: Trained,
    texts: Iterable[object],
    numbers: Sequence[int] | None = None,
    on_done: OnDone = lambda texts: None,
) -> list[Likelihood]:
    """Computes log p of each text, read like a document of an evaluation in windows of `data.row_len` pieces.

    A window begins every `data.stride` pieces, and scores the pieces that no earlier window contains. With
    `data.carry` a text is read at once.
    """
    del numbers  # for warnings, of which there are none
    texts, width, tokenizer = _texts(texts), window(trained.config), trained.codecs['text']
    stride = trained.config.data.stride or width
    encoded = tokenizer.encode_batch(texts)
    windows, owners = [], []
    for i, tokens in enumerate(encoded):
        last = max(len(tokens) - width, 0)
        for begin in range(0, last + stride, stride):
            windows.append({'text': tokens[begin : begin + width]})
            owners.append(i)
    logp: list[list[np.ndarray]] = [[] for _ in texts]
    share = len(texts) / max(len(windows), 1)
    scored = likelihood.log_likelihoods(trained, windows, lambda count: on_done(count * share))
    for i, row in zip(owners, scored, strict=True):
        logp[i].append(row[width - stride if logp[i] else 0 :])
    pieces = map(tokenizer.pieces, encoded)
    return [Likelihood(*pair) for pair in zip(pieces, map(np.concatenate, logp), strict=True)]


def likelihoods_after(trained: Trained, prompt: str) -> Callable[..., list[Likelihood]]:
    """Reads a prompt, such as examples of a task, once for all texts that follow it (Brown et al. 2020).

    If the model learned lines, a newline in the prompt becomes a blank, and one at its end is left out.
    Prompt and text are cut into pieces separately.

    Returns:
      `(texts, numbers, on_done) -> likelihoods` of texts that follow the prompt. A text that does not fit
      into `data.row_len` with it is not scored: each log p is NaN, and a warning names the line.

    Raises:
      ConfigError: the prompt is empty, or leaves no room for a text.
    """
    if trained.config.data.documents == 'lines':
        prompt = prompt.removesuffix('\n').replace('\n', ' ')
    tokenizer = trained.codecs['text']
    read = tokenizer.encode(prompt)[:-1]
    most = window(trained.config) - len(read)
    if not prompt:
        raise ConfigError('--prompt: is empty')
    if most < 1:
        raise ConfigError(
            f'--prompt: {len(read)} pieces; from 1 to {window(trained.config) - 1} are possible '
            '(data.row_len, less the end of a text)'
        )
    prompted = likelihood.read_prompt(trained, read)

    def likelihoods_of(
        texts: Iterable[object], numbers: Sequence[int] | None = None, on_done: OnDone = lambda texts: None
    ) -> list[Likelihood]:
        encoded = tokenizer.encode_batch(_texts(texts))
        numbers = range(len(encoded)) if numbers is None else numbers
        for number, tokens in zip(numbers, encoded, strict=True):
            if len(tokens) > most:
                logging.warning(
                    'line %d: not scored: after the prompt, the %d pieces of a text exceed %d (data.row_len)',
                    number + 1, len(tokens), most,
                )  # fmt: skip
        scored = [i for i, tokens in enumerate(encoded) if len(tokens) <= most]
        on_done(len(encoded) - len(scored))
        logp = [np.full(len(tokens), np.nan, np.float32) for tokens in encoded]
        rows = [encoded[i] for i in scored]
        found = likelihood.log_likelihoods_after(trained, prompted, rows, on_done)
        for i, row in zip(scored, found, strict=True):
            logp[i] = row
        return [Likelihood(*pair) for pair in zip(map(tokenizer.pieces, encoded), logp, strict=True)]

    return likelihoods_of


def _texts(texts: Iterable[object]) -> list[str]:
    """Returns texts of which each can be alone in a tuple. Raises ConfigError if one is something else."""
    if not isinstance(texts, str):
        texts = [text[0] if isinstance(text, tuple) and len(text) == 1 else text for text in texts]
    return as_texts(texts, 'texts')
