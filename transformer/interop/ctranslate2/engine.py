"""Searches with CTranslate2, by a model that `writing` wrote (extra `export`)."""

import logging
import os
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from etils import epath
from jaxtyping import Float

from transformer.config import Config, ConfigError, Decode, has
from transformer.inference import generate
from transformer.inference.search import Hypotheses, length_penalty
from transformer.interop.ctranslate2 import writing
from transformer.interop.foreign import FIELDS, of_one_length, unwritten
from transformer.runs.restore import Trained
from transformer.tasks.contract import Hypothesis
from transformer.tasks.translation import translator
from transformer.tokens import EOS

BATCH = 64  # sentences
# A beam search ends once PATIENCE * beam hypotheses have ended; all of them are ranked by our scores. With 1,
# more outputs differ from our own search's.
PATIENCE = 2


class Output(NamedTuple):
    """An output of a search; `pieces` ends with EOS unless the search reached its limit."""

    pieces: list[int]
    score: float


def check(config: Config, quantization: str | None) -> None:
    """Raises ConfigError, which names the option, if CTranslate2 cannot search as a config says."""
    writing.load_library()
    writing.check(config, quantization)
    decode = config.decode
    if decode.method == 'sample':
        raise ConfigError('decode.method=sample: CTranslate2 is used for beam and greedy search alone')
    longest = decode.max_source_len + decode.extra_len
    if config.model.positions == 'sinusoidal' and longest > writing.LONGEST:
        raise ConfigError(
            f'decode.max_source_len={decode.max_source_len}: with decode.extra_len={decode.extra_len} it '
            f'exceeds {writing.LONGEST}, the most positions with --engine=ctranslate2'
        )


class Translator:
    """CTranslate2's Translator, for texts cut by our model's tokenizer.

    Args:
      trained: the model in `folder`; its parameters are not used.
    """

    def __init__(self, trained: Trained, folder: epath.PathLike):
        self._trained = trained
        vocab_size = trained.config.model.vocab_size
        self._names = [writing.tokens(trained.codecs[field], vocab_size) for field in FIELDS]
        self._ids = {name: number for number, name in enumerate(self._names[1])}
        self._never = set(unwritten(trained.codecs['target'], trained.config))
        self._around = set(trained.codecs[FIELDS[0]].encode(''))
        self._translator = _load('Translator', folder)
        self.dtype: str = self._translator.compute_type  # in which it computes

    def hypotheses(self, texts: Sequence[str], **options) -> list[list[Hypothesis]]:
        """Searches as `tasks.translation.translator.hypotheses` does, with our own search's scores."""

        def search(trained, asked, rows, numbers, key, on_done) -> list[Hypotheses]:
            del trained, numbers, key
            found = (outputs[: asked.best] for outputs in self.search(rows, asked.settings, on_done))
            return [
                Hypotheses(
                    [np.array(output.pieces) for output in outputs],
                    np.array([output.score for output in outputs]),
                )
                for outputs in found
            ]

        return translator.hypotheses(self._trained, texts, search=search, **options)

    def likeliest(self, texts: Sequence[str]) -> list[str]:
        """Returns the translation of each text with the largest log p that the config's beam finds."""
        return [best[0].text for best in self.hypotheses(texts, method='beam', alpha=0.0)]

    def log_probabilities(self, pairs: Sequence[tuple[str, str]]) -> list[Float[np.ndarray, ' pieces']]:
        """Returns log p of every piece of each pair's target."""
        sides = zip(FIELDS, zip(*pairs, strict=True), strict=True)
        rows = [self._trained.codecs[field].encode_batch(texts) for field, texts in sides]
        targets = [[token for token in row if token != EOS] for row in rows[1]]
        return self._score(rows[0], targets)

    def search(
        self, rows: Sequence[list[int]], settings: Decode, on_done: generate.OnDone = lambda rows: None
    ) -> list[list[Output]]:
        """Returns the outputs found for each row of pieces, in our own search's order and with its scores."""
        found = self._outputs(rows, settings, (), on_done)
        # Forbidden pieces are hardly ever found, and suppressing them always would change log p.
        again = [i for i, outputs in enumerate(found) if any(self._never & {*o.pieces} for o in outputs)]
        others = self._outputs([rows[i] for i in again], settings, self._never, lambda rows: None)
        pairs = [(rows[i], o.pieces) for i, outputs in zip(again, others, strict=True) for o in outputs]
        bodies = [[token for token in pieces if token != EOS] for _, pieces in pairs]
        logp = iter(self._score([row for row, _ in pairs], bodies))
        for i, outputs in zip(again, others, strict=True):
            found[i] = [o._replace(score=float(next(logp)[: len(o.pieces)].sum())) for o in outputs]
        alpha = settings.alpha if settings.method == 'beam' else 0.0
        lengths = {len(output.pieces) for outputs in found for output in outputs}
        penalties = {length: float(length_penalty(length, alpha)) for length in lengths}
        # Complete outputs are first.
        rank = lambda output: (output.pieces[-1] == EOS, output.score)
        scored = (
            [o._replace(score=o.score / penalties[len(o.pieces)]) for o in outputs] for outputs in found
        )
        return [sorted(outputs, key=rank, reverse=True) for outputs in scored]

    def _outputs(
        self, rows: Sequence[list[int]], settings: Decode, never: Collection[int], on_done: generate.OnDone
    ) -> list[list[Output]]:
        """Returns the outputs of one search with log p. The pieces in `never` have no probability in it."""
        beam = settings.beam if settings.method == 'beam' else 1
        patience = PATIENCE if beam > 1 else 1
        found: list[list[Output]] = [[] for _ in rows]
        waiting = []
        for batch in of_one_length(rows, BATCH):
            results = self._translator.translate_batch(
                [self._source(rows[i]) for i in batch],
                asynchronous=True,
                max_input_length=0,
                min_decoding_length=0,
                max_decoding_length=len(rows[batch[0]]) + settings.extra_len,
                beam_size=beam,
                patience=patience,
                num_hypotheses=patience * beam,
                # Scores are log p, but with exactly 0 a search can end before it has found the best.
                length_penalty=1e-9,
                suppress_sequences=[[self._names[1][token]] for token in sorted(never)] or None,
                return_scores=True,
                return_end_token=True,
            )
            waiting.append((batch, results))
        for batch, results in waiting:
            for i, result in zip(batch, results, strict=True):
                one = result.result()
                pieces = ([self._ids[name] for name in hypothesis] for hypothesis in one.hypotheses)
                found[i] = list(map(Output, pieces, one.scores))
            on_done(len(batch))
        return found

    def _score(
        self, rows: Sequence[list[int]], targets: Sequence[list[int]]
    ) -> list[Float[np.ndarray, ' pieces']]:
        """Returns log p of every piece of each target, and of the end after it."""
        sources = [self._source(row) for row in rows]
        written = [[self._names[1][token] for token in target] for target in targets]
        scores = self._translator.score_batch(sources, written, max_batch_size=BATCH, max_input_length=0)
        return [np.array(one.log_probs) for one in scores]

    def _source(self, row: list[int]) -> list[str]:
        """Returns the names of a source's pieces, without the start and the end that CTranslate2 adds."""
        return [self._names[0][token] for token in row if token not in self._around]


class Generator:
    """CTranslate2's Generator, for the texts of a language model here. Arguments are as for `Translator`."""

    def __init__(self, trained: Trained, folder: epath.PathLike):
        self._config, self._tokenizer = trained.config, trained.codecs['text']
        size = trained.config.model.vocab_size
        self._names = writing.tokens(self._tokenizer, size)
        self._ids = {name: number for number, name in enumerate(self._names)}
        self._never = [[self._names[token]] for token in unwritten(self._tokenizer, trained.config)]
        self._generator = _load('Generator', folder)
        self.dtype: str = self._generator.compute_type  # in which it computes

    def likeliest(self, texts: Sequence[str]) -> list[str]:
        """Returns the continuation of each text that greedy search finds."""
        prompts = [row[:-1] for row in self._tokenizer.encode_batch(texts)]
        results = [''] * len(prompts)
        # In a batch of several prompt lengths, CTranslate2 would count the ends of longer prompts as written.
        for batch in of_one_length(prompts, BATCH):
            found = self._generator.generate_batch(
                [[self._names[token] for token in (EOS, *prompts[i])] for i in batch],
                max_length=self._config.decode.extra_len,
                length_penalty=0.0,
                suppress_sequences=self._never or None,
                include_prompt_in_result=False,
            )
            for i, one in zip(batch, found, strict=True):
                written = [self._ids[name] for name in one.sequences[0]]
                one_line = self._config.data.documents == 'lines'
                results[i] = self._tokenizer.decode([*prompts[i], *written], one_line=one_line)
        return results

    def log_probabilities(self, texts: Sequence[tuple[str]]) -> list[Float[np.ndarray, ' pieces']]:
        """Returns log p of every piece of each text."""
        rows = self._tokenizer.encode_batch([text for (text,) in texts])
        named = [[self._names[token] for token in (EOS, *row)] for row in rows]
        return [np.array(one.log_probs) for one in self._generator.score_batch(named, max_batch_size=BATCH)]


def model(trained: Trained, folder: epath.PathLike) -> Translator | Generator:
    """Loads the model in a folder into CTranslate2's Translator or Generator."""
    kind = Translator if has(trained.config, 'pair') else Generator
    return kind(trained, folder)


def _load(kind: str, folder: epath.PathLike):
    """Loads the model in a folder into CTranslate2's class for a kind of models."""
    ctranslate2 = writing.load_library()
    # CTranslate2 warns of types that this processor lacks; `dtype` is the type that it uses.
    ctranslate2.set_log_level(logging.ERROR)
    # Batches at the same time, each on one core, are faster than one after the other.
    threads = {'inter_threads': os.cpu_count() or 1, 'intra_threads': 1}
    return getattr(ctranslate2, kind)(str(folder), device='cpu', **threads)
