"""Builds a dataset in a folder of the cache: the codec, the arrays of every split and the manifest."""

import contextlib
import io
import itertools
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import BinaryIO

import numpy as np
from jaxtyping import Shaped

from transformer import files
from transformer.config import ConfigError, Data
from transformer.data import codec as codecs
from transformer.data import manifest as manifests
from transformer.data import tokenizer
from transformer.data.codec import Codec, Labels, NoCodec
from transformer.data.fields import Reading, Row, Text
from transformer.data.sources import reader
from transformer.data.sources import text as text_files
from transformer.data.tokenizer import AnyTokenizer

DROPS = 'drops.tsv'
# How many rows are encoded at once: lines, whole files, or rows with images or labels.
_CHUNK, _FILES, _DENSE = 20_000, 16, 500
_REPORTED = 10_000  # rows between two reports of what the tokenizer has read
_TRAINED_ON = 4_000_000  # the most sentences that the tokenizer learns from

Progress = Callable[[str, int, int], None]
Ids = Sequence[int] | np.ndarray
OpenFile = Callable[[str], BinaryIO]


def write(
    data: Data,
    reading: Reading,
    identity: dict,
    folder: pathlib.Path,
    progress: Progress,
    given: AnyTokenizer | None = None,
) -> None:
    """Fills a folder; the manifest is written last.

    If an earlier call was interrupted, its tokenizer is used again and everything else is made anew.

    Args:
      identity: what determines the content; the manifest begins with it.
      progress, given: as for `cache.prepare`.

    Raises:
      ConfigError: bad or too little data.
    """
    codec = _read_codec(folder)
    for path in folder.iterdir():
        if codec is None or path.name != codec.file:
            path.unlink()
    if codec is None:
        if reading.texts():
            _check_scored_splits(data, reading, identity['files'])
        codec = given or _make_codec(data, reading, identity, progress)
        if codec.file:
            files.write_bytes(folder / codec.file, codec.content, durable=True)
    splits = {}
    with (folder / DROPS).open('w', encoding='utf-8', newline='') as drops:
        for split, origins in identity['files'].items():
            total = _count(data, reading, split, origins)
            with contextlib.ExitStack() as stack:
                open_file = lambda name, stack=stack: stack.enter_context((folder / name).open('wb'))
                writer = _SplitWriter(data, reading, split, codec, identity, open_file)
                splits[split] = _write_split(writer, total, drops, progress)
    manifest = {
        **identity,
        'tokenizer_sha256': codec.sha256,
        **({'dtype': dtype_of(codec).str} if reading.texts() else {}),
        'splits': splits,
        'checksums': {name: files.sha256(folder / name) for name in sorted(p.name for p in folder.iterdir())},
    }
    manifest['lock_sha256'] = files.json_sha256(manifest)
    content = json.dumps(manifest, indent=2, ensure_ascii=False) + '\n'
    files.write_bytes(folder / manifests.FILE, content.encode(), durable=True)


def _read_codec(folder: pathlib.Path) -> Codec | None:
    """The codec that an interrupted call has left, if any."""
    for name in codecs.FILES:
        with contextlib.suppress(FileNotFoundError, RuntimeError):
            return codecs.read(name, (folder / name).read_bytes())
    return None


def _check_scored_splits(data: Data, reading: Reading, origins: dict[str, list[dict]]) -> None:
    """Reads every split but train, to find bad text before the long preparation of the training text.

    Raises:
      ConfigError: a file is empty, not UTF-8, or has fewer lines than the other fields' files.
    """
    for split, files_read in origins.items():
        if split == 'train':
            continue
        for origin in files_read:
            if not origin['lines']:
                raise ConfigError(f'data.{split}: {origin["name"]} is empty')
        for _ in reader.rows(data, reading, split, reader.Report()):
            pass


def _count(data: Data, reading: Reading, split: str, origins: list[dict]) -> int:
    return reader.count(data, reading, split, [text_files.Origin(**origin) for origin in origins])


def _make_codec(data: Data, reading: Reading, identity: dict, progress: Progress) -> Codec:
    """The class names, or the tokenizer of all text fields, or one for each, learned from its own texts."""
    if not reading.texts():
        labels = [field['names'] for field in identity['fields'].values() if 'names' in field]
        return Labels(tuple(labels[0])) if labels else NoCodec()
    learn = lambda names: _learn_model(data, reading, names, identity['files']['train'], progress)
    names = [*reading.texts()]
    if data.vocabulary == 'joint':
        return tokenizer.read(learn(names))
    return tokenizer.SeparateTokenizers({name: tokenizer.Tokenizer(learn([name])) for name in names})


def _learn_model(
    data: Data, reading: Reading, fields: list[str], origins: list[dict], progress: Progress
) -> bytes:
    """The model of bytes, or a model learned from the training text, of evenly spaced rows if it is long.

    SentencePiece holds its sentences in memory. WMT's 9 million take 4.7 GiB; every third of them,
    as here, 1.6 GiB, or 2.9 GiB with five million different words.
    """
    if data.tokenizer == 'bytes':
        return tokenizer.BYTES
    if data.documents == 'files':
        number = sum(origin['lines'] for origin in origins[: data.train_pairs])
    else:
        number = _count(data, reading, 'train', origins)
    every = max(-(-len(fields) * number // _TRAINED_ON), 1)
    # Progress counts the rows read; the last unit stands for learning from them.
    total = -(-number // every) + 1

    def sentences() -> Iterator[str]:
        thinned = itertools.islice(_sentences(data, reading), 0, None, every)
        for index, texts in enumerate(thinned):
            if index % _REPORTED == 0:
                progress('tokenizer', index, total)
            yield from (texts[field] for field in fields)
        progress('tokenizer', total - 1, total)

    model = tokenizer.train(sentences(), data.pieces)
    progress('tokenizer', total, total)
    return model


def _sentences(data: Data, reading: Reading) -> Iterator[Mapping[str, str]]:
    """The texts of each training row, or each line of whole files, of which there is one field."""
    for row in reader.rows(data, reading, 'train', reader.Report()):
        if data.documents == 'files':
            [(field, text)] = row.values.items()
            yield from ({field: line} for line in text.removesuffix('\n').split('\n'))
        else:
            yield row.values


class _Sequences:
    """Writes sequences one after the other, and the offsets at which they end, after a 0."""

    def __init__(self, content: BinaryIO, offsets: BinaryIO, dtype: np.dtype):
        self._content, self._offsets, self._dtype = content, offsets, dtype
        self.size = 0
        offsets.write(np.zeros(1, '<i8').tobytes())

    def append(self, sequences: Sequence[Ids]) -> None:
        """Writes further sequences."""
        lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
        self._offsets.write((self.size + np.cumsum(lengths)).astype('<i8').tobytes())
        arrays = [np.empty(0, self._dtype), *(np.asarray(each, self._dtype) for each in sequences)]
        self._content.write(np.concatenate(arrays).tobytes())
        self.size += int(lengths.sum())


class _TextWriter:
    """Writes a text field: its pieces and, outside training, the texts as they came."""

    def __init__(self, data: Data, codec: Codec, open_file: OpenFile, name: str, keep: bool):
        self._data, self._tokenizer = data, codec.of(name.partition('.')[2])
        self._pieces = _Sequences(open_file(f'{name}.bin'), open_file(f'{name}_offsets.bin'), dtype_of(codec))
        self._lines = self._documents = None
        if keep and data.documents == 'files':
            offsets = open_file(f'{name}_text_offsets.bin')
            self._documents = _Sequences(open_file(f'{name}.txt'), offsets, np.dtype(np.uint8))
        elif keep:
            self._lines = open_file(f'{name}.txt')

    @property
    def tokens(self) -> int:
        """The pieces written."""
        return self._pieces.size

    def encode(self, rows: Sequence[Row], field: str) -> list[Ids]:
        """The pieces of each row's text."""
        return encode(self._data, self._tokenizer, [row.values[field] for row in rows])

    def append(self, encoded: list[Ids], texts: Sequence[str]) -> None:
        """Writes pieces and texts."""
        self._pieces.append(encoded)
        if self._lines:
            self._lines.write(''.join(f'{text}\n' for text in texts).encode())
        if self._documents:
            self._documents.append([np.frombuffer(text.encode(), np.uint8) for text in texts])


class _DenseWriter:
    """Writes a field that has the same shape in every example."""

    tokens = None

    def __init__(self, described: dict, file: BinaryIO):
        self._dtype, self._file = np.dtype(described['dtype']), file
        self._numbers = {name: number for number, name in enumerate(described.get('names', ()))}

    def encode(self, rows: Sequence[Row], field: str) -> list[Shaped[np.ndarray, '...'] | int]:
        """The arrays, or the numbers of the classes."""
        if not self._numbers:
            return [row.values[field] for row in rows]
        for row in rows:
            if row.values[field] not in self._numbers:
                raise ConfigError(
                    f'{row.files[field]}: {row.values[field]!r} is not among the classes '
                    f'{", ".join(self._numbers)}'
                )
        return [self._numbers[row.values[field]] for row in rows]

    def append(self, encoded: list, values: Sequence) -> None:
        """Writes arrays or numbers."""
        del values
        self._file.write(np.asarray(encoded, self._dtype).tobytes())


class _SplitWriter:
    """Writes the rows of a split, each field to its own files."""

    def __init__(
        self, data: Data, reading: Reading, split: str, codec: Codec, identity: dict, open_file: OpenFile
    ):
        self.data, self.reading, self.split, self.count = data, reading, split, 0
        self._writers = {
            field: _TextWriter(data, codec, open_file, f'{split}.{field}', split != 'train')
            if isinstance(kind, Text)
            else _DenseWriter(identity['fields'][field], open_file(f'{split}.{field}.bin'))
            for field, kind in reading.fields.items()
        }

    def append(self, rows: Sequence[Row], report: reader.Report) -> None:
        """Encodes and writes rows, without those that are too long for training."""
        encoded = {field: writer.encode(rows, field) for field, writer in self._writers.items()}
        kept = range(len(rows))
        # Rows that are cut from running text have room for an example of any length.
        if self.split == 'train' and self.data.batching != 'running':
            texts = {field: encoded[field] for field in self.reading.texts()}
            kept = _drop_long(rows, texts, self.data.max_len, report)
        for field, writer in self._writers.items():
            values = [rows[i].values[field] for i in kept]
            writer.append([encoded[field][i] for i in kept], values)
        self.count += len(kept)

    def tokens(self) -> dict[str, int]:
        """The manifest's counts of pieces."""
        return {f'{field}_tokens': self._writers[field].tokens for field in self.reading.texts()}


def _write_split(
    writer: _SplitWriter, total: int, drops: io.TextIOBase, progress: Progress
) -> dict[str, object]:
    """Reads, encodes and writes a split, chunk by chunk.

    Returns:
      The manifest's entry; `pairs` counts the examples, whatever their fields.
    """
    data, reading, split = writer.data, writer.reading, writer.split
    report = reader.Report(drops)
    rows = reader.rows(data, reading, split, report)
    size = _DENSE if reading.dense() else _FILES if data.documents == 'files' else _CHUNK
    done = 0
    progress(split, done, total)
    while chunk := list(itertools.islice(rows, size)):
        writer.append(chunk, report)
        done += len(chunk)
        if len(chunk) == size:
            progress(split, done, total)
    progress(split, total, total)
    if not writer.count:
        raise ConfigError(f'data.{split}: no example is left; left out {manifests.left_out(report.counts)}')
    dropped = {rule: {'count': count, 'first': report.first[rule]} for rule, count in report.counts.items()}
    return {'pairs': writer.count, **writer.tokens(), 'dropped': dropped}


def _drop_long(
    rows: Sequence[Row], encoded: Mapping[str, list[Ids]], longest: int, report: reader.Report
) -> list[int]:
    """The numbers of the rows in which every text has at most `longest` pieces; the others are reported."""
    kept = []
    for i, row in enumerate(rows):
        long = next((field for field, ids in encoded.items() if len(ids[i]) > longest), None)
        if long:
            report.drop('long', row.files[long], row.line)
        else:
            kept.append(i)
    return kept


def dtype_of(codec: Codec) -> np.dtype:
    """The type that holds every piece."""
    return np.dtype('<u2' if codec.size <= 1 << 16 else '<i4')


def encode(data: Data, pieces: AnyTokenizer, texts: list[str]) -> list[Ids]:
    """The pieces of lines, or of whole files."""
    if data.documents == 'files':
        return [pieces.encode_document(text) for text in texts]
    return pieces.encode_batch(texts)
