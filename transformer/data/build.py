"""Builds a dataset in a folder of the cache: the codec, the arrays of every split and the manifest."""

import contextlib
import functools
import itertools
import json
import logging
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Shaped

from transformer import files
from transformer.config import ConfigError, Data
from transformer.data import codec as codecs
from transformer.data import languages, trees, vocabulary
from transformer.data import manifest as manifests
from transformer.data.codec import Codec, Labels, NoCodec, TargetCodec
from transformer.data.dataset import Ids, ragged
from transformer.data.fields import Reading, Row, Spellings, Tree
from transformer.data.sources import reader
from transformer.data.tokenizers import kinds
from transformer.data.tokenizers.base import ForAllFields
from transformer.data.tokenizers.byte import BYTES
from transformer.data.tokenizers.sentence_piece import SentencePieceTokenizer
from transformer.progress import Progress

log = logging.getLogger(__name__)
DROPS = 'drops.tsv'
# How many rows are encoded at once: lines, whole files, or rows with images or labels.
_CHUNK, _FILES, _DENSE = 20_000, 16, 500
_REPORTED = 10_000  # rows between two reports of the tokenizer's progress
_TRAINED_ON = 4_000_000  # the most sentences that the tokenizer learns from


def write(
    data: Data,
    reading: Reading,
    identity: dict,
    folder: pathlib.Path,
    progress: Progress,
    given: Codec | None = None,
) -> None:
    """Fills a folder; the manifest, which begins with `identity`, is written last.

    If an earlier call was interrupted, its tokenizer is reused and everything else is built again.
    """
    codec = _read_codec(folder)
    for path in folder.iterdir():
        if codec is None or path.name != codec.file:
            path.unlink()
    # Read first: bad text shows before the long work on the training text.
    scored = _read_scored_splits(data, reading, identity['files']) if reading.texts() else {}
    if codec is None:
        codec = given or _make_codec(data, reading, identity, progress)
        if codec.file:
            files.write_bytes(folder / codec.file, codec.content, durable=True)
    also_in_train = {split: set() for split in scored}
    with (folder / DROPS).open('w', encoding='utf-8', newline='') as drops:
        splits = {}
        for split in identity['files']:
            report = reader.Report(drops)
            rows = reader.rows(data, reading, split, report)
            if split == 'train':
                rows = _note_scored(reading, rows, scored, also_in_train)
            splits[split] = _write_split(
                data, reading, split, rows, report, identity, codec, folder, progress
            )
    for split, examples in also_in_train.items():
        if examples:
            log.warning(
                'data.%s: %d of its %d distinct examples are in the training text too',
                split, len(examples), len(scored[split]),
            )  # fmt: skip
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
    """The codec that an interrupted call left behind, if any."""
    for name in codecs.FILES:
        with contextlib.suppress(FileNotFoundError, RuntimeError):
            return codecs.read(name, (folder / name).read_bytes())
    return None


def _read_scored_splits(
    data: Data, reading: Reading, origins: dict[str, list[dict]]
) -> dict[str, set[tuple[str, ...]]]:
    """Reads the distinct texts of every split but train."""
    examples = {}
    for split in [split for split in origins if split != 'train']:
        for origin in origins[split]:
            if not origin['lines']:
                raise ConfigError(f'data.{split}: {origin["name"]} is empty')
        rows = reader.rows(data, reading, split, reader.Report())
        examples[split] = {_texts(reading, row) for row in rows}
    return examples


def _texts(reading: Reading, row: Row) -> tuple[str, ...]:
    return tuple(row.values[field] for field in reading.texts())


def _note_scored(
    reading: Reading,
    rows: Iterator[Row],
    scored: Mapping[str, set[tuple[str, ...]]],
    also_in_train: Mapping[str, set],
) -> Iterator[Row]:
    """Yields the rows of the training text; adds the texts that other splits have too to `also_in_train`."""
    for row in rows:
        example = _texts(reading, row)
        for split, examples in scored.items():
            if example in examples:
                also_in_train[split].add(example)
        yield row


def _make_codec(data: Data, reading: Reading, identity: dict, progress: Progress) -> Codec:
    """Makes class names, no codec, one tokenizer of all text fields, or one per field."""
    if not reading.texts():
        labels = [field['names'] for field in identity['fields'].values() if 'names' in field]
        return Labels(tuple(labels[0])) if labels else NoCodec()
    learn = functools.partial(
        _learn_model, data, reading, origins=identity['files']['train'], progress=progress
    )
    names = [*reading.texts()]
    for name in names:
        if isinstance(reading.fields[name], Tree):
            found = (trees.one(row[name], f'data.train: {name}') for row in _sentences(data, reading))
            words = trees.symbols(found, tags=data.tags)
            codec = kinds.read(learn([other for other in names if other != name], words=words))
            return with_form(codec, reading, data)
    if data.vocabulary == 'joint':
        codec = kinds.read(learn(names))
    else:
        codec = kinds.SeparateTokenizers({name: SentencePieceTokenizer(learn([name])) for name in names})
    return with_form(codec, reading, data)


def with_form(codec: Codec, reading: Reading, data: Data) -> Codec:
    """Returns the codec of a reading's fields, from one for plain texts."""
    for field in reading.texts().values():
        if isinstance(field, Spellings):
            return TargetCodec(codec.content, 'spellings')
        if isinstance(field, Tree):
            return TargetCodec(codec.content, 'tagged_trees' if data.tags else 'trees')
    return codec


def _learn_model(
    data: Data,
    reading: Reading,
    fields: list[str],
    origins: list[dict],
    progress: Progress,
    words: Sequence[str] = (),
) -> bytes:
    """Returns the byte model, or a model learned from the training text (evenly spaced rows if it is long).

    SentencePiece holds its sentences in memory: WMT's 9 million take 4.7 GiB, every third (read here)
    1.6 GiB, and 2.9 GiB if five million words are distinct.
    """
    if data.tokenizer == 'bytes':
        return BYTES
    lines = [origin['lines'] for origin in origins]
    if data.documents == 'files':
        number = sum(lines[: data.train_pairs])
    else:
        number = reader.count(data, reading, 'train', lines)
    every = max(-(-len(fields) * number // _TRAINED_ON), 1)
    # Progress counts the rows kept; the last unit stands for learning from them.
    total = -(-number // every) + 1

    def sentences() -> Iterator[str]:
        thinned = itertools.islice(_sentences(data, reading), 0, None, every)
        for index, texts in enumerate(thinned):
            if index % _REPORTED == 0:
                progress('tokenizer', index, total)
            yield from (texts[field] for field in fields)
        progress('tokenizer', total - 1, total)

    model = vocabulary.train(sentences(), data.pieces, data.tokenizer, words)
    progress('tokenizer', total, total)
    return model


def _sentences(data: Data, reading: Reading) -> Iterator[Mapping[str, str]]:
    """Yields the texts of each training row, or each line of whole files, which have one field."""
    for row in reader.rows(data, reading, 'train', reader.Report()):
        if data.documents == 'files':
            [(field, text)] = row.values.items()
            yield from ({field: line} for line in text.removesuffix('\n').split('\n'))
        else:
            yield row.values


def _write_split(
    data: Data,
    reading: Reading,
    split: str,
    rows: Iterator[Row],
    report: reader.Report,
    identity: dict,
    codec: Codec,
    folder: pathlib.Path,
    progress: Progress,
) -> dict[str, object]:
    """Encodes and writes the rows of a split, chunk by chunk; returns the manifest's entry.

    The entry's `pairs` counts examples of any kind.
    """
    total = reader.count(data, reading, split, [origin['lines'] for origin in identity['files'][split]])
    size = _DENSE if reading.dense() else _FILES if data.documents == 'files' else _CHUNK
    texts, described, dtype = reading.texts(), identity.get('fields', {}), dtype_of(codec)
    done = count = 0
    progress(split, done, total)
    while chunk := list(itertools.islice(rows, size)):
        if not done:
            _warn_of_languages(reading, split, chunk)
            _warn_of_cut_words(split, [row.values[field] for row in chunk for field in texts])
        done += len(chunk)
        encoded = {
            field: encode(data, codec.of(field), [row.values[field] for row in chunk])
            if field in texts
            else _to_numbers(chunk, field, described[field].get('names'))
            for field in reading.fields
        }
        # Rows of running text ignore where examples end, so examples may have any length.
        if split == 'train' and data.batching != 'running':
            short = _short_rows(chunk, {field: encoded[field] for field in texts}, data.max_len, report)
            chunk = [chunk[i] for i in short]
            encoded = {field: [values[i] for i in short] for field, values in encoded.items()}
        count += len(chunk)
        for field, values in encoded.items():
            name = f'{split}.{field}'
            if field in texts:
                _append_sequences(folder / f'{name}.bin', folder / f'{name}_offsets.bin', values, dtype)
            else:
                _append(folder / f'{name}.bin', np.asarray(values, described[field]['dtype']))
            if field in texts and split != 'train':
                _append_raw(data, folder, name, [row.values[field] for row in chunk])
        if done % size == 0:
            progress(split, done, total)
    progress(split, total, total)
    if not count:
        raise ConfigError(f'data.{split}: no example is left; left out {manifests.drops_text(report.counts)}')
    bytes_of = {field: (folder / f'{split}.{field}.bin').stat().st_size for field in texts}
    tokens = {f'{field}_tokens': size // dtype.itemsize for field, size in bytes_of.items()}
    dropped = {rule: {'count': number, 'first': report.first[rule]} for rule, number in report.counts.items()}
    return {'pairs': count, **tokens, 'dropped': dropped}


def _warn_of_languages(reading: Reading, split: str, rows: Sequence[Row]) -> None:
    """Warns of texts that read as another language than the config says, such as swapped files."""
    read = {name: languages.recognise(row.values[name] for row in rows) for name in reading.texts()}
    wrong = [
        f'{name} reads as {read[name]}, not as {field.option}={field.language}'
        for name, field in reading.texts().items()
        if field.language in languages.FUNCTION_WORDS and read[name] not in (None, field.language)
    ]
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


def _to_numbers(rows: Sequence[Row], field: str, classes: list[str] | None) -> list:
    """The values of a dense field; classes become their numbers."""
    values = [row.values[field] for row in rows]
    if classes is None:
        return values
    numbers = {name: number for number, name in enumerate(classes)}
    for row, value in zip(rows, values, strict=True):
        if value not in numbers:
            raise ConfigError(f'{row.files[field]}: {value!r} is not among the classes {", ".join(classes)}')
    return [numbers[value] for value in values]


def _short_rows(
    rows: Sequence[Row], encoded: Mapping[str, list[Ids]], longest: int, report: reader.Report
) -> list[int]:
    """The indexes of rows whose texts all have at most `longest` pieces; reports the other rows."""
    short = []
    for i, row in enumerate(rows):
        long = next((field for field, ids in encoded.items() if len(ids[i]) > longest), None)
        if long:
            report.drop('long', row.files[long], row.line)
        else:
            short.append(i)
    return short


def _append(path: pathlib.Path, array: Shaped[np.ndarray, '...']) -> None:
    with path.open('ab') as file:
        file.write(array.tobytes())


def _append_sequences(
    content: pathlib.Path, offsets: pathlib.Path, sequences: Sequence[Ids], dtype: np.dtype
) -> None:
    """Appends sequences to one file, and the offsets of their ends to another, which begins with a 0."""
    added = ragged(sequences, dtype)
    content.touch()
    ends = (content.stat().st_size // dtype.itemsize + added.offsets).astype('<i8')
    _append(offsets, ends[1:] if offsets.exists() else ends)
    _append(content, added.tokens)


def _append_raw(data: Data, folder: pathlib.Path, name: str, texts: Sequence[str]) -> None:
    """Appends raw texts: lines, or whole files with the offsets of their ends."""
    if data.documents == 'files':
        contents = [np.frombuffer(text.encode(), np.uint8) for text in texts]
        offsets = folder / f'{name}_text_offsets.bin'
        _append_sequences(folder / f'{name}.txt', offsets, contents, np.dtype(np.uint8))
    else:
        lines = ''.join(f'{text}\n' for text in texts).encode()
        _append(folder / f'{name}.txt', np.frombuffer(lines, np.uint8))


def dtype_of(codec: Codec) -> np.dtype:
    """The integer type in which pieces are stored."""
    return np.dtype('<u2' if codec.size <= 1 << 16 else '<i4')


def encode(data: Data, pieces: ForAllFields, texts: list[str]) -> list[Ids]:
    """The pieces of lines, or of whole files."""
    if data.documents == 'files':
        return [pieces.encode_document(text) for text in texts]
    return pieces.encode_batch(texts)
