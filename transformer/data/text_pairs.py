"""The fields of pairs that say what to do: a source with a prefix, and a target with several references."""

import dataclasses

from transformer.config import ConfigError
from transformer.data.codec import FieldCodec
from transformer.data.fields import Columns, Example, Learner, Text


def prefixed(prefix: str, value: str) -> str:
    """Returns a prefix, a colon and the value's texts, joined by blanks; only the texts if they are blank."""
    text = ' '.join(one for one in value.split('\t') if one)
    return f'{prefix}: {text}' if prefix and text.strip() else text


def references(value: str) -> list[str]:
    """Lists the references in a value: the texts between its tabs that are not blank, or '' if all are."""
    return [one for one in value.split('\t') if one.strip()] or ['']


@dataclasses.dataclass(frozen=True)
class Prefixed(Columns):
    """One text or several, stored as the pieces of a prefix and the texts, joined by blanks.

    Attributes:
      option: the option that sets the prefixes; errors name it.
      prefixes: the prefix of each data set, as pairs; the name '' stands for every data set.
      of: the name of the field of type `Label` that names a row's data set, if there are several.
    """

    prefixes: tuple[tuple[str, str], ...] = ()
    of: str | None = None

    encode = Text.encode  # one text, unlike the values of `Columns`

    def codec(self, name: str, learn: Learner) -> FieldCodec | None:
        """Returns the tokenizer.

        Raises:
          ConfigError: a prefix is for a data set that the training rows do not have.
        """
        known = set(learn.values(self.of)) if self.of else set()
        if unknown := [key for key, _ in self.prefixes if key and key not in known]:
            shown = ', '.join(sorted(known))
            raise ConfigError(f'{self.option}: no data set {unknown[0]!r} in data.train, only {shown}')
        return super().codec(name, learn)

    def prefix(self, data_set: str, place: str) -> str:
        """Returns the prefix of a data set. Raises ConfigError, which names the place, if it has none."""
        found = dict(self.prefixes)
        if data_set not in found and '' not in found:
            raise ConfigError(f'{place}: {self.option} has no prefix for the data set {data_set!r}')
        return found.get(data_set, found.get(''))

    def written(self, row: Example, name: str) -> str:
        """Returns a value with the prefix of its data set."""
        prefix = self.prefix(row.values[self.of] if self.of else '', row.place(name))
        return prefixed(prefix, row.values[name])


@dataclasses.dataclass(frozen=True)
class References(Columns):
    """One text or several right ones, of which a model learns the first."""

    encode = Text.encode  # one text, unlike the values of `Columns`

    def compared(self, value: str) -> str:
        """Returns the first reference."""
        return references(value)[0]
