"""Builds a dataset in a folder of the cache: the codecs, the arrays of every split and the manifest."""

import itertools
import json
import logging
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Shaped

from transformer import files
from transformer.config import ConfigError, Data
from transformer.data import codec as codec_files
from transformer.data import languages, vocabulary
from transformer.data import manifest as manifests
from transformer.data.arrays import Dense, Ragged, ragged
from transformer.data.codec import Codecs, FieldCodec
from transformer.data.fields import Example, Reading, Tree
from transformer.data.sources import reader
from transformer.data.tokenizers import kinds
from transformer.data.tokenizers.base import FILE, Tokenizer
from transformer.data.tokenizers.byte import BYTES
from transformer.progress import Progress

log = logging.getLogger(__name__)
DROPS = 'drops.tsv'
# The numbers of rows that are encoded at once: lines, whole files, or rows with images or without texts.
_CHUNK, _FILES, _DENSE = 20_000, 16, 500
_REPORTED = 10_000  # rows between two reports of the tokenizer's progress
_TRAINED_ON = 4_000_000  # the most values that a tokenizer learns from; one can have several texts


def write(
    data: Data, reading: Reading, identity: dict, folder: pathlib.Path, progress: Progress, given: Codecs
) -> None:
    """Fills a folder, and writes the manifest, which begins with `identity`, last.

    If an earlier call was interrupted, its tokenizers are reused and everything else is built again.
    """
    for path in folder.iterdir():
        if not path.name.endswith(FILE):
            path.unlink()
    _check_not_empty(reading, identity['files'])
    # Read first: bad text shows before the long work on the training text.
    scored = _read_scored_splits(data, reading, identity['files']) if reading.texts() else {}
    learn = _Learner(data, reading, identity['files']['train'], progress, folder, given)
    # Trees first: their brackets are pieces of the tokenizer that they share.
    order = sorted(reading.fields, key=lambda name: not isinstance(reading.fields[name], Tree))
    made = {name: reading.fields[name].codec(name, learn) for name in order}
    codecs = {name: made[name] for name in reading.fields}
    contents = codec_files.contents(codecs)
    for name, content in contents.items():
        files.write_bytes(folder / name, content, durable=True)
    also_in_train = {split: set() for split in scored}
    with (folder / DROPS).open('w', encoding='utf-8', newline='') as drops:
        splits = {}
        for split in identity['files']:
            report = reader.Report(drops)
            rows = reader.rows(data, reading, split, report)
            if split == 'train':
                rows = _note_scored(reading, rows, scored, also_in_train)
            splits[split] = _write_split(
                data, reading, split, rows, report, identity, codecs, folder, progress
            )
    for split, examples in also_in_train.items():
        if examples:
            kinds_of_data = ('pictures', 'pictures') if reading.images() else ('examples', 'text')
            log.warning(
                'data.%s: %d of its %d distinct %s are in the training %s too',
                split, len(examples), len(scored[split]), *kinds_of_data,
            )  # fmt: skip
    # Removes learned tokenizers that another file now contains; last, for calls that are interrupted.
    for path in [path for path in folder.glob(f'*{FILE}') if path.name not in contents]:
        path.unlink()
    digest = codec_files.sha256(codecs)
    manifest = {
        **identity,
        'fields': {name: _describe(reading, codecs, name) for name in reading.fields},
        'codecs': codec_files.files_of(codecs),
        **({'tokenizer_sha256': digest} if digest else {}),
        'splits': splits,
        'checksums': {name: files.sha256(folder / name) for name in sorted(p.name for p in folder.iterdir())},
    }
    manifest['lock_sha256'] = files.json_sha256(manifest)
    content = json.dumps(manifest, indent=2, ensure_ascii=False) + '\n'
    files.write_bytes(folder / manifests.FILE, content.encode(), durable=True)


def _describe(reading: Reading, codecs: Codecs, name: str) -> dict[str, object]:
    """Describes a field and the type of its array."""
    field = reading.fields[name]
    empty = field.encode(name, codecs, [])
    dtype = (empty.tokens if isinstance(empty, Ragged) else empty.values).dtype.str
    shape = {} if field.shape is None else {'shape': [*field.shape]}
    return {**field.identity(), 'dtype': dtype, **shape}


def _check_not_empty(reading: Reading, origins: dict[str, list[dict]]) -> None:
    """Raises ConfigError if a file, or the folder of a class, is empty; dev and test may lack a class."""
    for split in origins if reading.texts() else ('train',):
        for origin in origins[split]:
            if not origin['lines']:
                raise ConfigError(f'data.{split}: {origin["name"]} is empty')


def _read_scored_splits(
    data: Data, reading: Reading, origins: dict[str, list[dict]]
) -> dict[str, set[tuple[str, ...]]]:
    """Reads what distinguishes the examples of every split but train."""
    examples = {}
    for split in [split for split in origins if split != 'train']:
        rows = reader.rows(data, reading, split, reader.Report())
        found = {_distinction(reading, row) for row in rows}
        examples[split] = {one for one in found if any(map(str.strip, one))}  # no blank lines
    return examples


def _texts(reading: Reading, row: Example) -> tuple[str, ...]:
    return tuple(field.compared(row.values[name]) for name, field in reading.texts().items())


def _distinction(reading: Reading, row: Example) -> tuple[str, ...]:
    """Returns an example's texts or, if it has pictures, their hashes: one picture can have several texts."""
    pixels = [row.values[name].tobytes() for name in reading.images()]
    return tuple(map(files.bytes_sha256, pixels)) or _texts(reading, row)


def _note_scored(
    reading: Reading,
    rows: Iterator[Example],
    scored: Mapping[str, set[tuple[str, ...]]],
    also_in_train: Mapping[str, set],
) -> Iterator[Example]:
    """Yields the training rows, and adds examples that other splits also have to `also_in_train`."""
    for row in rows:
        example = _distinction(reading, row)
        for split, examples in scored.items():
            if example in examples:
                also_in_train[split].add(example)
        yield row


class _Learner:
    """A learner of codecs from the training rows, which reuses tokenizers that an interrupted call left."""

    def __init__(
        self,
        data: Data,
        reading: Reading,
        origins: list[dict],
        progress: Progress,
        folder: pathlib.Path,
        given: Codecs,
    ):
        self._data, self._reading, self._origins, self._progress = data, reading, origins, progress
        self._folder, self._given = folder, given
        self._learned: dict[tuple[str, ...], Tokenizer] = {}

    def tokenizer(self, name: str, words: Sequence[str] = ()) -> FieldCodec:
        """Returns the tokenizer of a field: given, left behind, or learned from all fields that share it."""
        if name in self._given:
            return self._given[name]
        texts = [*self._reading.texts()]
        fields = (name,) if self._data.vocabulary == 'separate' else tuple(texts)
        if fields not in self._learned:
            path = self._folder / (FILE if len(fields) > 1 or len(texts) == 1 else f'{name}.{FILE}')
            try:
                self._learned[fields] = kinds.read(path.read_bytes())
            except (FileNotFoundError, RuntimeError):
                content = self._learn(fields, words)
                files.write_bytes(path, content, durable=True)
                self._learned[fields] = kinds.read(content)
        return self._learned[fields]

    def values(self, name: str) -> Iterator[Any]:
        """Yields a field's values in the training rows."""
        for row in reader.rows(self._data, self._reading, 'train', reader.Report()):
            yield row.values[name]

    def classes(self) -> tuple[str, ...]:
        """Returns the source's own classes."""
        return tuple(reader.READERS[self._data.source].classes(self._data))

    def _learn(self, fields: Sequence[str], words: Sequence[str]) -> bytes:
        """Returns the byte model, or one learned from the training text (evenly spaced rows if it is long).

        SentencePiece holds its sentences in memory: WMT's 9 million take 4.7 GiB, every third (read here)
        1.6 GiB, and 2.9 GiB if five million words are distinct.
        """
        data, progress = self._data, self._progress
        if data.tokenizer == 'bytes':
            return BYTES
        lines = [origin['lines'] for origin in self._origins]
        if data.documents == 'files':
            number = sum(lines[: data.train_examples])
        else:
            number = reader.count(data, self._reading, 'train', lines)
        texts = {name: field for name, field in self._reading.texts().items() if name in fields}
        learned = [name for name, field in texts.items() if not isinstance(field, Tree)]
        every = max(-(-len(learned) * number // _TRAINED_ON), 1)
        # Progress counts the rows kept; the last unit stands for learning from them.
        total = -(-number // every) + 1

        def lines_of_rows() -> Iterator[list[str]]:
            for row in reader.rows(data, self._reading, 'train', reader.Report()):
                columns = [texts[name].learned(row.values[name]) for name in learned]
                if data.documents == 'files':
                    yield from ([line] for column in columns for line in column)
                else:
                    yield [line for column in columns for line in column]

        def sentences() -> Iterator[str]:
            for index, of_row in enumerate(itertools.islice(lines_of_rows(), 0, None, every)):
                if index % _REPORTED == 0:
                    progress('tokenizer', index, total)
                yield from of_row
            progress('tokenizer', total - 1, total)

        model = vocabulary.train(sentences(), data.pieces, data.tokenizer, words)
        progress('tokenizer', total, total)
        return model


def _write_split(
    data: Data,
    reading: Reading,
    split: str,
    rows: Iterator[Example],
    report: reader.Report,
    identity: dict,
    codecs: Codecs,
    folder: pathlib.Path,
    progress: Progress,
) -> dict[str, object]:
    """Encodes and writes the rows of a split, chunk by chunk, and returns the manifest's entry.

    The entry's `pairs` counts examples of any kind.
    """
    total = reader.count(data, reading, split, [origin['lines'] for origin in identity['files'][split]])
    texts = reading.texts()
    size = _DENSE if reading.images() or not texts else _FILES if data.documents == 'files' else _CHUNK
    done = count = 0
    progress(split, done, total)
    while chunk := list(itertools.islice(rows, size)):
        if not done:
            _warn_of_languages(reading, split, chunk)
            _warn_of_cut_words(split, [text for row in chunk for text in _texts(reading, row)])
        done += len(chunk)
        encoded = {name: field.encode(name, codecs, chunk) for name, field in reading.fields.items()}
        if split == 'train' and not reading.any_length:
            short = _short_rows(chunk, {name: encoded[name] for name in texts}, data.max_len, report)
            if len(short) < len(chunk):
                chunk = [chunk[i] for i in short]
                encoded = {name: values.take(short) for name, values in encoded.items()}
        count += len(chunk)
        for name, field in reading.fields.items():
            file = folder / f'{split}.{name}'
            _append_array(file, encoded[name])
            if field.kept and split != 'train':
                _append_raw(data, file, [field.raw(row.values[name]) for row in chunk])
        if done % size == 0:
            progress(split, done, total)
    progress(split, total, total)
    if not count:
        limit = f' (above data.max_len={data.max_len} pieces)' if 'long' in report.counts else ''
        why = f'; left out {manifests.drops_text(report.counts)}{limit}' if report.counts else ''
        raise ConfigError(f'data.{split}: no example is left{why or f" in {getattr(data, split)}"}')
    stored = {name: field for name, field in reading.fields.items() if field.shape is None}
    ends = {name: np.fromfile(folder / f'{split}.{name}_offsets.bin', '<i8')[-1] for name in stored}
    tokens = {f'{name}_tokens': int(end) for name, end in ends.items()}
    dropped = {rule: {'count': number, 'first': report.first[rule]} for rule, number in report.counts.items()}
    return {'pairs': count, **tokens, 'dropped': dropped}


def _warn_of_languages(reading: Reading, split: str, rows: Sequence[Example]) -> None:
    """Warns of texts that read as another language than the config's, such as swapped files."""
    wrong = []
    for name, field in reading.texts().items():
        if field.language in languages.FUNCTION_WORDS:
            language = languages.recognise(field.raw(row.values[name]) for row in rows)
            if language not in (None, field.language):
                wrong.append(f'{name} reads as {language}, not as {field.option}={field.language}')
    if wrong:
        log.warning('data.%s: %s', split, '; '.join(wrong))


def _warn_of_cut_words(split: str, texts: Sequence[str]) -> None:
    """Warns of texts that subword-nmt has cut."""
    if sum('@@ ' in text for text in texts) > len(texts) / 4:
        log.warning(
            'data.%s: seems to be cut by subword-nmt; join it with '
            "sed -r 's/(@@ )|(@@ ?$)//g' and give the codes as data.tokenizer_model",
            split,
        )


def _short_rows(
    rows: Sequence[Example], encoded: Mapping[str, Ragged], longest: int, report: reader.Report
) -> list[int]:
    """Returns the indexes of rows whose texts all have at most `longest` pieces, and reports the others."""
    short = []
    for i, row in enumerate(rows):
        long = next((name for name, field in encoded.items() if field.lengths[i] > longest), None)
        if long:
            report.drop('long', row.files[long], row.line)
        else:
            short.append(i)
    return short


def _append(path: pathlib.Path, array: Shaped[np.ndarray, '...']) -> None:
    with path.open('ab') as file:
        file.write(array.tobytes())


def _append_array(file: pathlib.Path, array: Ragged | Dense) -> None:
    """Appends to a field's file and, if it is ragged, to the offsets of its ends, which begin with a 0."""
    content = file.with_name(f'{file.name}.bin')
    if isinstance(array, Dense):
        _append(content, array.values)
        return
    content.touch()
    offsets = file.with_name(f'{file.name}_offsets.bin')
    ends = (content.stat().st_size // array.tokens.dtype.itemsize + array.offsets).astype('<i8')
    _append(offsets, ends[1:] if offsets.exists() else ends)
    _append(content, array.tokens)


def _append_raw(data: Data, file: pathlib.Path, texts: Sequence[str]) -> None:
    """Appends raw texts: lines, or whole files with the offsets of their ends."""
    content = file.with_name(f'{file.name}.txt')
    if data.documents != 'files':
        lines = ''.join(f'{text}\n' for text in texts).encode()
        _append(content, np.frombuffer(lines, np.uint8))
        return
    contents = [np.frombuffer(text.encode(), np.uint8) for text in texts]
    bytes_before = content.stat().st_size if content.exists() else 0
    offsets = file.with_name(f'{file.name}_text_offsets.bin')
    ends = (bytes_before + ragged(contents, np.dtype(np.uint8)).offsets).astype('<i8')
    _append(offsets, ends[1:] if offsets.exists() else ends)
    _append(content, np.concatenate([np.empty(0, np.uint8), *contents]))
