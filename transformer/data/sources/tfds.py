"""Reads TFDS datasets without TensorFlow (extra `tfds`); downloading them needs it (extra `prepare`).

A text field's language is the name of a feature of the dataset.
"""

import importlib.util
from collections.abc import Iterator

from etils import epath, epy

from transformer.config import ConfigError, Data
from transformer.config.extras import install
from transformer.data.fields import Example, Reading
from transformer.data.sources import text
from transformer.data.sources.text import SourceFile


def _missing_package(error: ImportError) -> None:
    raise ConfigError(
        f'data.source=tfds: {error}; to read prepared datasets: {install("tfds")}; '
        f'to download them, too: {install("prepare")}'
    ) from error


# Imported at its first use: the import takes a second, and other sources do not need it.
with epy.lazy_imports(error_callback=_missing_package):
    import tensorflow_datasets as tfds

FORMAT = 'array_record'

_FETCHED = 1000  # rows that are read at once


def prepare(data: Data, reading: Reading) -> None:
    """Downloads and prepares the dataset unless it is prepared already. Reuses finished downloads."""
    if _prepared(data) is not None:
        return
    if importlib.util.find_spec('tensorflow') is None:
        raise ConfigError(f'{_missing(data)}; downloading it needs TensorFlow: {install("prepare")}')
    try:
        builder = tfds.builder(data.name, data_dir=data.dir, file_format=FORMAT)
    except (ValueError, AssertionError) as error:
        reason = str(error).partition('\n')[0]
        raise ConfigError(f'data.name={data.name!r}: TFDS cannot make it: {reason}') from None
    _check_languages(data, reading, builder)
    download = tfds.download
    try:
        # The prepared copies that TFDS keeps in its bucket have another format.
        builder.download_and_prepare(download_config=download.DownloadConfig(try_download_gcs=False))
    except (
        # The errors of a builder if files are missing or do not fit together.
        AssertionError,
        ImportError,
        download.DownloadError,
        download.download_manager.NonMatchingChecksumError,
        download.extractor.ExtractError,
    ) as error:
        raise ConfigError(f'data.name={data.name!r}: TFDS cannot make it: {error}') from error


def facts(data: Data, reading: Reading) -> dict[str, dict[str, object]]:
    """Returns `dataset`: the dataset's name and version and, for a WMT set, the corpora of each split."""
    builder = _open(data, reading)
    name = '/'.join(filter(None, (builder.name, builder.builder_config_name)))
    entry = {'name': name, 'version': str(builder.version)}
    # The prepared files do not name the corpora; the code that makes WMT sets does.
    subsets = getattr(tfds.builder(name, data_dir=data.dir), 'subsets', None)
    if subsets:
        entry['corpora'] = {str(split): corpora for split, corpora in subsets.items()}
    return {'dataset': entry}


def rows(data: Data, reading: Reading, split: str) -> Iterator[Example]:
    """Yields the rows of a split, in the order of the files."""
    source = _open(data, reading, split).as_data_source(split=getattr(data, split))
    languages = {name: field.language for name, field in reading.texts().items()}
    names = dict.fromkeys(languages, f'{data.name}/{getattr(data, split)}')
    for start in range(0, len(source), _FETCHED):
        fetched = source.__getitems__(range(start, min(start + _FETCHED, len(source))))
        for line, row in enumerate(fetched, start + 1):
            texts = {name: row[language].decode().replace('\n', ' ') for name, language in languages.items()}
            yield Example(texts, names, line, 'row')


def origins(data: Data, reading: Reading, split: str) -> list[SourceFile]:
    """Describes the files of a split, each with the rows that are read from it."""
    result = []
    for part in _open(data, reading, split).info.splits[getattr(data, split)].file_instructions:
        path, read = epath.Path(part.filename), f'[{part.skip}:{part.skip + part.take}]'
        result.append(text.origin(path, f'{path.name}{read}')._replace(lines=part.take))
    return result


def _prepared(data: Data):
    """Returns the builder that reads the prepared dataset, or None if it is not prepared."""
    try:
        return tfds.core.read_only_builder.builder_from_files(data.name, data_dir=data.dir)
    except tfds.core.DatasetNotFoundError:
        return None


def _open(data: Data, reading: Reading, split: str | None = None):
    """Opens the builder of the prepared dataset, and checks its format, languages and, if given, split."""
    builder = _prepared(data)
    if builder is None:
        raise ConfigError(f'{_missing(data)}; the command prepare, with the same options, prepares it')
    if builder.info.file_format is not tfds.core.FileFormat.ARRAY_RECORD:
        raise ConfigError(
            f'data.name={data.name!r}: prepared in {_where(data)} as {builder.info.file_format.value}; '
            f'needs {FORMAT}'
        )
    _check_languages(data, reading, builder)
    if split is not None:
        try:
            builder.info.splits[getattr(data, split)]
        except ValueError:
            choices = ', '.join(builder.info.splits)
            raise ConfigError(f'data.{split}={getattr(data, split)!r}: {data.name} has {choices}') from None
    return builder


def _check_languages(data: Data, reading: Reading, builder) -> None:
    features = builder.info.features.items()
    known = [name for name, feature in features if isinstance(feature, tfds.features.Text)]
    for field in reading.texts().values():
        if field.language not in known:
            raise ConfigError(f'{field.option}={field.language!r}: {data.name} has {", ".join(known)}')


def _where(data: Data) -> str:
    return 'data.dir' if data.dir is None else f'data.dir={data.dir!r}'


def _missing(data: Data) -> str:
    return f'data.name={data.name!r}: not prepared in {_where(data)}'
