"""Translates sentences with a trained model."""

import math
from collections.abc import Callable, Iterable, Sequence

from absl import logging

from transformer.inference import generate
from transformer.runs.restore import Trained
from transformer.tasks.contract import Hypothesis
from transformer.tokens import EOS


def translate(trained: Trained, sentences: Iterable[str], **options) -> list[str]:
    """Returns the best translation of each sentence. Options are as for `hypotheses`."""
    return [best[0].text for best in hypotheses(trained, sentences, **options)]


def hypotheses(
    trained: Trained,
    sentences: Iterable[str],
    *,
    best: int = 1,
    samples: int = 1,
    first: int = 0,
    seed: int | None = None,
    split: str | None = '',
    on_done: generate.OnDone = lambda sentences: None,
    search: Callable = generate.search,
    grammar: generate.Grammar | None = None,
    of_grammar: Sequence[int] = (),
    **options,
) -> list[list[Hypothesis]]:
    """Returns the `best` best translations of each sentence, or `samples` samples, or '' for an empty one.

    Args:
      first: the number of the first sentence; samples depend on it and on `seed`.
      seed: `train.seed` if None.
      split: the split that the sentences are, for the warnings of long ones; None warns of none.
      on_done: receives the number of further sentences that are translated.
      search: finds outputs as `inference.generate.search` does, which it replaces.
      grammar: allows some outputs only; `of_grammar` has its number of each sentence.
      options: options of `Decode`, such as beam=1.
    """
    sentences = generate.as_texts(sentences, 'sentences')
    settings = generate.settings_of(trained.config, options)
    generate.check_counts(settings, best, samples, seed, first)
    results = [[Hypothesis('', 0.0)] * max(best, samples) for _ in sentences]
    tokens = encode(trained, sentences, settings.max_source_len, first, split)
    places = [(i, k) for i, pieces in enumerate(tokens) if pieces for k in range(samples)]
    if empty := tokens.count([]):
        on_done(empty)
    rows = search(
        trained,
        generate.SearchOptions(settings, best, extend=False, grammar=grammar),
        [tokens[i] for i, _ in places],
        [(first + i) * samples + k for i, k in places],
        generate.sampling_key(trained.config, seed),
        lambda rows: on_done(rows / samples),
        **({'of_grammar': [of_grammar[i] for i, _ in places]} if grammar else {}),
    )
    decode = trained.codecs['target'].decode
    for (i, k), row in zip(places, rows, strict=True):
        texts = [decode(pieces.tolist(), one_line=True) for pieces in row.tokens]
        outputs = [Hypothesis(*pair) for pair in zip(texts, row.scores.tolist(), strict=True)]
        # A grammar can allow fewer outputs than `best`.
        results[i][k : k + best] = [one for one in outputs if one.score > -math.inf] or outputs[:1]
    return results


def encode(
    trained: Trained, sentences: list[str], longest: int, first: int, split: str | None
) -> list[list[int]]:
    """Encodes each sentence in at most `longest` pieces, one without a piece of text in none."""
    # A sentence of blanks counts as empty.
    texts = [sentence if sentence.strip() else '' for sentence in sentences]
    encoded, empty = trained.codecs['source'].encode_batch(texts), trained.codecs['source'].encode('')
    for i, tokens in enumerate(encoded):
        if len(tokens) > longest:
            if split is not None:
                warn_of_cut(first + i, len(tokens), longest, split)
            encoded[i] = cut(tokens, longest)
        elif tokens == empty:
            encoded[i] = []
    return encoded


def cut(tokens: list[int], longest: int) -> list[int]:
    """Cuts a sentence to at most `longest` pieces, its end piece included."""
    return tokens if len(tokens) <= longest else tokens[: longest - 1] + [EOS]


def warn_of_cut(number: int, length: int, longest: int, split: str = '') -> None:
    """Warns that a line, counted from 0, is too long to be translated whole."""
    line = f'{split}: line {number + 1}' if split else f'line {number + 1}'
    logging.warning('%s: cut, its %d pieces exceed decode.max_source_len=%d', line, length, longest)
