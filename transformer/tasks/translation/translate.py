"""From sentences to sentences."""

from collections.abc import Callable, Sequence

import jax

from transformer.runs.restore import Trained
from transformer.symbols import EOS
from transformer.tasks import generation
from transformer.tasks.contract import Hypothesis


class Translator:
    """A model that translates.

    Args:
      on_cut: gets the number of a sentence longer than `decode.max_source_len`, and its length.
    """

    def __init__(self, trained: Trained, on_cut: Callable[[int, int], None] = lambda number, length: None):
        self.trained = trained
        self.on_cut = on_cut

    def translate(self, sentences: Sequence[str], **options) -> list[str]:
        """The best translation of each sentence.

        Args:
          options: those of `Decode`, as beam=1.

        Raises:
          ConfigError: an option is impossible.
        """
        return [found[0].text for found in self.hypotheses(sentences, **options)]

    def hypotheses(
        self, sentences: Sequence[str], *, best: int = 1, first: int = 0, **options
    ) -> list[list[Hypothesis]]:
        """The `best` best translations of each sentence; an empty sentence stays empty.

        Args:
          first: the number of the first sentence, of which samples depend.

        Raises:
          ConfigError: an option is impossible, or more hypotheses are asked for than the search has.
        """
        settings = generation.settings_of(self.trained.config, options)
        generation.check_best(settings, best)
        results = [[Hypothesis('', 0.0)] * best for _ in sentences]
        tokens = self._encode(sentences, settings.max_source_len, first)
        real = [i for i, pieces in enumerate(tokens) if pieces]
        found = generation.search(
            self.trained,
            generation.Asked(settings, best, extend=False),
            [tokens[i] for i in real],
            [first + i for i in real],
            jax.random.key(self.trained.config.train.seed),
        )
        decode = self.trained.tokenizer.decode
        for i, row in zip(real, found, strict=True):
            texts = [decode(pieces.tolist(), one_line=True) for pieces in row.tokens]
            pairs = zip(texts, row.scores.tolist(), strict=True)
            results[i] = [Hypothesis(*pair) for pair in pairs]
        return results

    def _encode(self, sentences: Sequence[str], longest: int, first: int) -> list[list[int]]:
        # What is no text, as a lone surrogate, is replaced as in invalid UTF-8; blanks are nothing.
        clean = [s.encode('utf-8', 'replace').decode() if s.strip() else '' for s in sentences]
        encoded = self.trained.tokenizer.encode_batch(clean)
        for i, tokens in enumerate(encoded):
            if len(tokens) > longest:
                self.on_cut(first + i, len(tokens))
                encoded[i] = tokens[: longest - 1] + [EOS]
            elif not clean[i]:
                encoded[i] = []
        return encoded
