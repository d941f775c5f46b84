"""Sources that the package generates: the grammar's sentences, and pictures, also with captions."""

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from etils import epy
from jaxtyping import UInt8

from transformer import config as configs
from transformer import files
from transformer.config import ConfigError, Data
from transformer.data.fields import SPLITS, Example, Gap, Reading, Tags, Tree
from transformer.data.generated import pictures
from transformer.data.generated.grammar import sentences
from transformer.data.generated.scenes import captions, world
from transformer.data.sources import entries, images, trees
from transformer.data.sources.entries import Entry
from transformer.data.sources.text import SourceFile

# Imported at first use: the import builds tables of forms, and few programs judge sentences.
with epy.lazy_imports():
    from transformer.data.generated.grammar import articles
    from transformer.data.generated.grammar import reader as grammar_reader

LANGUAGES = ('en', 'de')
Picture = UInt8[np.ndarray, 'h w c']


def sentence_rows(data: Data, reading: Reading, split: str) -> Iterator[Example]:
    """Yields the grammar's sentences in the languages of the fields, or its English trees."""
    for entry in _entries(data, split):
        yield from _sentences(reading, entry)


def sentence_origins(data: Data, reading: Reading, split: str) -> list[SourceFile]:
    """Describes the generated sentences."""
    fields, origins = reading.fields, []
    for entry in _entries(data, split):
        rows = list(_sentences(reading, entry))
        text = ''.join(f'{fields[name].raw(v)}\n' for row in rows for name, v in row.values.items())
        name = f'grammar/{entry.name}{entry.suffix}'
        origins.append(SourceFile(name, len(rows), files.bytes_sha256(text.encode())))
    return origins


def _sentences(reading: Reading, entry: Entry) -> Iterator[Example]:
    """Yields the sentences of an entry, or their trees."""
    names = dict.fromkeys(reading.fields, f'grammar/{entry.name}')
    if any(isinstance(field, Tree | Tags) for field in reading.fields.values()):
        for line, tree in entry.numbered(sentences.sentence_trees(entry.name)):
            yield trees.row(reading, tree, names, line)
        return
    _check_languages(reading)
    languages = {name: field.language for name, field in reading.texts().items()}
    for line, pair in entry.numbered(sentences.sentence_pairs(entry.name)):
        by_language = dict(zip(LANGUAGES, pair, strict=True))
        yield Example({name: by_language[language] for name, language in languages.items()}, names, line)


def sentence_splits(reading: Reading) -> tuple[str, ...]:
    """Returns the three splits and, for translation into German, a fourth that tests pronouns."""
    return (*SPLITS, 'pronoun') if reading.languages()[1:] == ['de'] else SPLITS


def sentence_judge(data: Data, reading: Reading) -> Callable[[str], bool] | None:
    """Returns a function that judges whether the grammar's German is grammatical, None for other texts."""
    return grammar_reader.is_grammatical if _is_german(data, reading) else None


def sentence_gaps(data: Data, reading: Reading) -> Callable[[str, str], list[Gap]] | None:
    """Returns a function `(text, mark) -> gaps` at articles of the grammar's German, None for other texts."""
    return articles.article_gaps if _is_german(data, reading) else None


def _is_german(data: Data, reading: Reading) -> bool:
    return data.source == 'grammar' and reading.languages() == ['de']


def picture_rows(data: Data, reading: Reading, split: str) -> Iterator[Example]:
    """Yields the generated pictures, each with the class of its largest object."""
    for entry in _entries(data, split):
        names = dict.fromkeys(reading.fields, f'pictures/{entry.name}')
        part = entry.part(pictures.PICTURES[entry.name])
        drawn = itertools.islice(pictures.pictures(entry.name), part.start, part.stop)
        for number, (picture, label) in enumerate(drawn, part.start + 1):
            yield images.row(reading, picture, label, names, number)


def picture_origins(data: Data, reading: Reading, split: str) -> list[SourceFile]:
    """Describes the generated pictures. The hash covers only the split's first block."""
    del reading
    origins = []
    for entry in _entries(data, split):
        first = pictures.draw(pictures.draw_objects(entry.name, 0))
        part = entry.part(pictures.PICTURES[entry.name])
        name = f'pictures/{entry.name}{entry.suffix}'
        origins.append(SourceFile(name, part.stop - part.start, files.bytes_sha256(first.tobytes())))
    return origins


def scene_rows(data: Data, reading: Reading, split: str) -> Iterator[Example]:
    """Yields the scenes, each with its captions in the languages of the text fields."""
    _check_languages(reading)
    languages = {name: field.language for name, field in reading.texts().items()}
    for entry in _entries(data, split, tuple(world.SIZES)):
        names = dict.fromkeys(reading.fields, f'scenes/{entry.name}')
        part = entry.part(world.SIZES[entry.name])
        drawn = captions.scenes(entry.name, part.start, part.stop)
        for number, picture in enumerate(drawn, part.start):
            row = images.row(reading, picture, '', names, number + 1)
            for name, language in languages.items():
                row.values[name] = captions.caption(entry.name, number, language)
            yield row


def scene_origins(data: Data, reading: Reading, split: str) -> list[SourceFile]:
    """Describes the scenes. The hash covers the pictures and captions of only the first block."""
    _check_languages(reading)
    origins = []
    for entry in _entries(data, split, tuple(world.SIZES)):
        first = pictures.draw(world.draw_block(entry.name, 0).objects).tobytes()
        for language in reading.languages():
            first += ''.join(
                captions.caption(entry.name, i, language) for i in range(pictures.BLOCK)
            ).encode()
        part = entry.part(world.SIZES[entry.name])
        name = f'scenes/{entry.name}{entry.suffix}'
        origins.append(SourceFile(name, part.stop - part.start, files.bytes_sha256(first)))
    return origins


def scene_truth(data: Data, reading: Reading) -> Callable[[Picture, str], bool | None] | None:
    """Returns a function that judges whether everything that a caption states is true of a scene.

    It returns None for texts that are not of the grammar, and for pictures of other sources. For data of
    other sources, and for scenes in other sizes or in grey, there is no such function, but None.
    """
    shapes = [image.shape for image in reading.images().values()]
    if data.source != 'scenes' or shapes != [(pictures.SIZE, pictures.SIZE, 3)]:
        return None
    [language] = reading.languages()

    def judge(picture: Picture, text: str) -> bool | None:
        facts = captions.recognise(np.asarray(picture))
        return None if facts is None else captions.holds(text, facts, language)

    return judge


def _entries(data: Data, split: str, splits: Sequence[str] = SPLITS) -> Iterator[Entry]:
    """Yields the splits that an option names, each with its slice, or by default the whole split.

    Raises:
      ConfigError: the option names files, which need another source.
    """
    option = configs.OPTIONS.get(f'data.{split}')
    if option is None or getattr(data, split) == option.default:
        yield Entry(split)
        return
    for entry in entries.parse(data, split):
        if entry.name not in splits:
            raise ConfigError(
                f'data.{split}={entry.name}: data.source={data.source} has {", ".join(splits)}, each with a '
                f'slice, such as {split}[:100]; for own files choose another source, such as text'
            )
        yield entry


def _check_languages(reading: Reading) -> None:
    if not set(reading.languages()) <= set(LANGUAGES):
        given = ', '.join(f'{field.option}={field.language!r}' for field in reading.texts().values())
        raise ConfigError(f'{given}: the grammar has en and de')
