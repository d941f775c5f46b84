"""From sentences to sentences."""

from collections.abc import Callable, Sequence

from transformer.inference import generate
from transformer.runs.restore import Trained
from transformer.tasks.contract import Hypothesis
from transformer.tokens import EOS


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
          options: those of `Decode`, as beam=1, and of `hypotheses`.

        Raises:
          ConfigError: as `hypotheses`.
        """
        return [found[0].text for found in self.hypotheses(sentences, **options)]

    def hypotheses(
        self,
        sentences: Sequence[str],
        *,
        best: int = 1,
        samples: int = 1,
        first: int = 0,
        seed: int | None = None,
        on_done: generate.OnDone = lambda sentences: None,
        **options,
    ) -> list[list[Hypothesis]]:
        """The `best` best translations of each sentence, or `samples` samples; an empty one stays empty.

        Args:
          first: the number of the first sentence; what is sampled depends on it and on `seed`.
          seed: `train.seed` if None.
          on_done: gets how many more sentences are translated.

        Raises:
          ConfigError: an option is impossible or does not go with the kind of search, or the sentences
            are not a list of texts.
        """
        generate.check_texts(sentences, 'sentences')
        settings = generate.settings_of(self.trained.config, options)
        generate.check_counts(settings, best, samples, seed)
        results = [[Hypothesis('', 0.0)] * max(best, samples) for _ in sentences]
        tokens = self._encode(sentences, settings.max_source_len, first)
        places = [(i, k) for i, pieces in enumerate(tokens) if pieces for k in range(samples)]
        found = generate.search(
            self.trained,
            generate.Asked(settings, best, extend=False),
            [tokens[i] for i, _ in places],
            [(first + i) * samples + k for i, k in places],
            generate.sampling_key(self.trained.config, seed),
            lambda rows: on_done(rows / samples),
        )
        decode = self.trained.codec.of('target').decode
        for (i, k), row in zip(places, found, strict=True):
            texts = [decode(pieces.tolist(), one_line=True) for pieces in row.tokens]
            pairs = zip(texts, row.scores.tolist(), strict=True)
            results[i][k : k + best] = [Hypothesis(*pair) for pair in pairs]
        return results

    def _encode(self, sentences: Sequence[str], longest: int, first: int) -> list[list[int]]:
        # Blanks are nothing.
        texts = [sentence if sentence.strip() else '' for sentence in sentences]
        encoded = self.trained.codec.of('source').encode_batch(texts)
        for i, tokens in enumerate(encoded):
            if len(tokens) > longest:
                self.on_cut(first + i, len(tokens))
                encoded[i] = cut(tokens, longest)
            elif not texts[i]:
                encoded[i] = []
        return encoded


def cut(tokens: list[int], longest: int) -> list[int]:
    """The pieces of a sentence that has an end, at most `longest` of them with the end."""
    return tokens if len(tokens) <= longest else tokens[: longest - 1] + [EOS]
