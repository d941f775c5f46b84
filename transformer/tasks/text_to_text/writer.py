"""The writer: summarises, answers and translates with a trained model, by prefix."""

from collections.abc import Callable, Iterable

from transformer.config import ConfigError
from transformer.data.text_pairs import prefixed
from transformer.inference.generate import as_texts
from transformer.runs.restore import Trained
from transformer.tasks.contract import Hypothesis
from transformer.tasks.translation.translator import hypotheses

# The first words of the prefixes that a command stands for.
WORDS = {'summarise': ('summarise', 'summarize'), 'answer': ('answer',), 'translate': ('translate',)}


def verb_of(command: str) -> Callable[..., list[list[Hypothesis]]]:
    """Makes the verb that puts a command's prefix before each text, with options as for `hypotheses`.

    A text that begins with any prefix of the model keeps it. Of several prefixes for a command, the model's
    first is used.
    """

    def verb(trained: Trained, texts: Iterable[str], **options) -> list[list[Hypothesis]]:
        """Raises ConfigError if a text needs a prefix for the command, and the model has none."""
        prefixes = [*dict.fromkeys(trained.config.text_to_text.prefixes.values())]
        fitting = [prefix for prefix in prefixes if prefix.partition(' ')[0] in WORDS[command]]
        ready = tuple(f'{prefix}: ' for prefix in prefixes if prefix)
        prompts = as_texts(texts, 'texts')
        for place, text in enumerate(prompts):
            # The answer to a blank line is empty.
            needs_none = text.startswith(ready) or not text.strip()
            if not needs_none and not fitting:
                known = ', '.join(map(repr, filter(None, prefixes))) or 'none'
                raise ConfigError(
                    f'{command}: the model has no such prefix; text_to_text.prefix has {known}; lines that '
                    'begin with one of its prefixes are read as they are'
                )
            prompts[place] = prefixed('' if needs_none else fitting[0], text)
        return hypotheses(trained, prompts, **options)

    return verb


summarise, answer, translations = map(verb_of, WORDS)


def translate(trained: Trained, texts: Iterable[str], **options) -> list[str]:
    """Returns the best translation of each text."""
    return [best[0].text for best in translations(trained, texts, **options)]
