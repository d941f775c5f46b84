"""Sources that the package generates: the grammar's sentences and the pictures of coloured shapes."""

import hashlib
from collections.abc import Callable, Iterator

from etils import epy

from transformer.config import ConfigError, Data
from transformer.data.fields import SPLITS, Example, Gap, Reading, Tags, Tree
from transformer.data.generated import pictures
from transformer.data.generated.grammar import sentences
from transformer.data.sources import images, trees
from transformer.data.sources.text import SourceFile

# Imported at first use: the import builds tables of forms, and few programs judge sentences.
with epy.lazy_imports():
    from transformer.data.generated.grammar import articles
    from transformer.data.generated.grammar import reader as grammar_reader

LANGUAGES = ('en', 'de')


def sentence_rows(data: Data, reading: Reading, split: str) -> Iterator[Example]:
    """Yields the grammar's sentences in the languages of the fields, or its English trees."""
    del data
    if any(isinstance(field, Tree | Tags) for field in reading.fields.values()):
        names = dict.fromkeys(reading.fields, f'grammar/{split}')
        for line, tree in enumerate(sentences.sentence_trees(split), 1):
            yield trees.row(reading, tree, names, line)
        return
    _check_languages(reading)
    languages = {name: field.language for name, field in reading.texts().items()}
    names = dict.fromkeys(languages, f'grammar/{split}')
    for line, pair in enumerate(sentences.sentence_pairs(split), 1):
        by_language = dict(zip(LANGUAGES, pair, strict=True))
        yield Example({name: by_language[language] for name, language in languages.items()}, names, line)


def sentence_origins(data: Data, reading: Reading, split: str) -> list[SourceFile]:
    """Describes the generated sentences."""
    rows = list(sentence_rows(data, reading, split))
    fields = reading.fields
    text = ''.join(f'{fields[name].raw(v)}\n' for row in rows for name, v in row.values.items())
    return [SourceFile(f'grammar/{split}', len(rows), hashlib.sha256(text.encode()).hexdigest())]


def sentence_splits(reading: Reading) -> tuple[str, ...]:
    """Returns the three splits and, for translation into German, a fourth that tests pronouns."""
    return (*SPLITS, 'pronoun') if reading.languages()[1:] == ['de'] else SPLITS


def sentence_judge(reading: Reading) -> Callable[[str], bool] | None:
    """Returns a function that judges whether a German sentence is grammatical, None for other languages."""
    return grammar_reader.is_grammatical if reading.languages() == ['de'] else None


def sentence_gaps(reading: Reading) -> Callable[[str, str], list[Gap]] | None:
    """Returns a function that finds articles with one right form in a German sentence, else None."""
    return articles.article_gaps if reading.languages() == ['de'] else None


def picture_rows(data: Data, reading: Reading, split: str) -> Iterator[Example]:
    """Yields the generated pictures, each with the class of its largest object."""
    del data
    names = dict.fromkeys(reading.fields, f'pictures/{split}')
    for number, (picture, label) in enumerate(pictures.pictures(split), 1):
        yield images.row(reading, picture, label, names, number)


def picture_origins(data: Data, reading: Reading, split: str) -> list[SourceFile]:
    """Describes the generated pictures. The hash covers only the first block."""
    del data, reading
    first = pictures.draw(pictures.draw_objects(split, 0))
    return [
        SourceFile(f'pictures/{split}', pictures.PICTURES[split], hashlib.sha256(first.tobytes()).hexdigest())
    ]


def _check_languages(reading: Reading) -> None:
    if not set(reading.languages()) <= set(LANGUAGES):
        given = ', '.join(f'{field.option}={field.language!r}' for field in reading.texts().values())
        raise ConfigError(f'{given}: the grammar has en and de')
