"""Fills gaps in texts: [MASK] stands for any number of pieces."""

from collections.abc import Iterable, Sequence

import numpy as np
from absl import logging
from jaxtyping import Float

from transformer.config import Config, ConfigError
from transformer.data.tokenizers.base import Tokenizer
from transformer.inference import generate, likelihood
from transformer.runs.restore import Trained
from transformer.tasks.contract import Hypothesis
from transformer.tasks.gaps import GAP
from transformer.tokens import EOS, PAD


def last_sentinel(config: Config, codec: Tokenizer) -> int:
    """Returns the piece that stands for the first span of a text."""
    return codec.size + config.denoise.sentinels - 1


def fill(
    trained: Trained,
    texts: Iterable[str],
    *,
    best: int = 1,
    first: int = 0,
    on_done: generate.OnDone = lambda texts: None,
    **options,
) -> list[list[Hypothesis]]:
    """Returns the `best` best texts for the gaps of each text, with tabs between the gaps' texts.

    A text without a gap, with too many gaps or with too many pieces gets an empty one, with a warning.

    Args:
      options: options of `Decode`, such as beam=1.
    """
    config, codec, texts = trained.config, trained.codecs['text'], generate.as_texts(texts, 'texts')
    if config.denoise.objective != 'spans':
        raise ConfigError(f'fill: a model of denoise.objective={config.denoise.objective} knows no gaps')
    settings = generate.settings_of(config, options)
    generate.check_counts(settings, best, 1, None, first)
    results, rows = [[Hypothesis('', 0.0)] * best for _ in texts], {}
    for i, text in enumerate(texts):
        number, gaps, most = first + i + 1, text.count(GAP), config.denoise.sentinels
        if not 1 <= gaps <= most:
            logging.warning('line %d: contains %s %d times, not from 1 to %d times', number, GAP, gaps, most)
            continue
        try:
            row = holed(trained, text)
        except ConfigError as error:
            logging.warning('line %d: %s', number, error)
            continue
        if len(row) > (longest := settings.max_source_len):
            message = 'line %d: its %d pieces exceed decode.max_source_len=%d'
            logging.warning(message, number, len(row), longest)
        else:
            rows[i] = row
    on_done(len(texts) - len(rows))
    written = generate.search(
        trained,
        generate.SearchOptions(settings, best, extend=False),
        [*rows.values()],
        [first + i for i in rows],
        generate.sampling_key(config, None),
        on_done,
        pieces=last_sentinel(config, codec) + 1,
    )
    for i, found in zip(rows, written, strict=True):
        spans = [split_spans(trained, tokens.tolist(), texts[i].count(GAP)) for tokens in found.tokens]
        lines = ['\t'.join(codec.decode(span, one_line=True) for span in one) for one in spans]
        results[i] = [Hypothesis(*pair) for pair in zip(lines, found.scores.tolist(), strict=True)]
    return results


def holed(trained: Trained, text: str) -> list[int]:
    """Encodes a text, with a sentinel in place of each [MASK]."""
    begin, *parts = trained.codecs['text'].encode_around(text, GAP)
    last = last_sentinel(trained.config, trained.codecs['text'])
    return [*begin, *(piece for number, part in enumerate(parts) for piece in (last - number, *part))]


def split_spans(trained: Trained, target: Sequence[int], gaps: int) -> list[list[int]]:
    """Returns the pieces after the sentinel of each gap, none if the target lacks the sentinel."""
    codec, spans, now = trained.codecs['text'], [[] for _ in range(gaps)], gaps
    last = last_sentinel(trained.config, codec)
    for piece in target:
        if piece in (EOS, PAD):
            break
        if piece >= codec.size:
            now = last - piece
        elif now < gaps:
            spans[now].append(piece)
    return spans


def log_p(
    trained: Trained, texts: Sequence[str], forms: Sequence[str], on_done: generate.OnDone
) -> Float[np.ndarray, ' texts']:
    """Computes log p of a form in the one gap of each text."""
    codec = trained.codecs['text']
    last = last_sentinel(trained.config, codec)
    rows = [
        {'source': holed(trained, text), 'target': [last, *codec.encode(form)]}
        for text, form in zip(texts, forms, strict=True)
    ]
    return np.array([row.sum() for row in likelihood.log_likelihoods(trained, rows, on_done)])
