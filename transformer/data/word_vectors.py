"""Reads and writes files of word vectors: word2vec's, as text or binary, and GloVe's."""

import gzip
import logging
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Literal, NamedTuple

import numpy as np
from etils import epath
from jaxtyping import Float, Int

from transformer import files
from transformer.config import ConfigError
from transformer.data.tokenizers.base import BLANK, Tokenizer

Layout = Literal['word2vec', 'binary', 'glove']
log = logging.getLogger(__name__)


class WordRows(NamedTuple):
    """Words, the most frequent first as programs write them, and their vectors."""

    words: list[str]
    vectors: Float[np.ndarray, 'V D']


class PieceRows(NamedTuple):
    """Numbers of pieces, and a vector for each."""

    pieces: Int[np.ndarray, ' n']
    vectors: Float[np.ndarray, 'n D']


def read(path: str) -> WordRows:
    """Reads a file in any of the layouts, plain or gzip. Of equal words the first counts.

    - word2vec: a line with the numbers of words and of dimensions; then each word and its numbers on a line.
    - binary: the same first line; then each word, a blank and its numbers as float32, little-endian.
    - glove: as word2vec, without the first line.

    Raises:
      ConfigError: the file is missing, empty or damaged; it names the line, or a binary file's word.
    """
    try:
        with gzip.open(path) if path.endswith('.gz') else open(path, 'rb') as file:
            vectors, total = {}, 0
            for word, vector in _rows(file, path):
                vectors.setdefault(word, vector)
                total += 1
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise ConfigError(f'{path}: damaged or truncated gzip file') from None
    except OSError as error:
        raise ConfigError(f'{path}: {error.strerror or error}') from None
    if not vectors:
        raise ConfigError(f'{path}: is empty; it needs a word and its numbers on each line')
    if total > len(vectors):
        log.warning('%s: %d words occur twice; their first vectors count', path, total - len(vectors))
    return WordRows([*vectors], np.stack([*vectors.values()]))


def _rows(file: BinaryIO, path: str) -> Iterator[tuple[str, Float[np.ndarray, ' D']]]:
    first = file.readline()
    header = first.split()
    if len(header) != 2 or not all(part.isdigit() and len(part) < 10 for part in header):
        file.seek(0)
        yield from _lines(file, path, None, 1)
        return
    number, width = map(int, header)
    if not width:
        raise ConfigError(f'{path}: line 1: vectors of 0 numbers')
    begin, sample = file.tell(), file.readline()
    file.seek(begin)
    rows = _lines(file, path, width, 2) if _is_text(sample, width) else _binary(file, path, number, width)
    count = 0
    for row in rows:
        yield row
        count += 1
    if count != number:
        raise ConfigError(f'{path}: has {count} words, its first line says {number}')


def _is_text(line: bytes, width: int) -> bool:
    try:
        text = line.decode()
        return text.strip().isprintable() or len([float(part) for part in text.split()[-width:]]) == width
    except ValueError:
        return False


def _lines(
    file: BinaryIO, path: str, width: int | None, first: int
) -> Iterator[tuple[str, Float[np.ndarray, ' D']]]:
    for number, line in enumerate(file, first):
        try:
            parts = line.decode().rstrip().split(' ')
            width = width or len(parts) - 1
            # A word can contain blanks.
            numbers = [_number(part) for part in parts[-width:]] if width else []
        except ValueError:
            raise ConfigError(f'{path}: line {number}: not a word and its numbers in UTF-8') from None
        with np.errstate(over='ignore'):
            vector = np.array(numbers, np.float32)
        if not width or len(parts) <= width or not np.isfinite(vector).all():
            raise ConfigError(f'{path}: line {number}: needs a word and {width or "its"} finite numbers')
        yield ' '.join(parts[:-width]), vector


def _number(text: str) -> float:
    if '_' in text:
        raise ValueError(text)  # Python reads 1_0 as 10
    return float(text)


def _binary(
    file: BinaryIO, path: str, number: int, width: int
) -> Iterator[tuple[str, Float[np.ndarray, ' D']]]:
    for place in range(1, number + 1):
        letters = bytearray()
        while (letter := file.read(1)) not in (b' ', b''):
            letters += letter
        content = file.read(4 * width)
        vector = np.frombuffer(content, '<f4') if len(content) == 4 * width else np.array([np.nan])
        if not np.isfinite(vector).all():
            raise ConfigError(f'{path}: word {place} of {number}: needs {width} finite numbers of 4 bytes')
        # word2vec ends a row with a newline, other programs do not.
        yield bytes(letters).removeprefix(b'\n').decode(errors='replace'), vector
    if file.read(2).strip():
        raise ConfigError(f'{path}: has more than {number} words, which its first line says')


def write(path: str, rows: WordRows, layout: Layout) -> None:
    """Writes a file, which appears when it is complete, in float32's shortest decimals that read the same."""
    number, width = rows.vectors.shape
    # Binary files end a word with a blank, and GloVe's first line shows how many numbers follow a word.
    checked = {'binary': rows.words, 'glove': rows.words[:1], 'word2vec': ()}[layout]
    if blanks := [word for word in checked if ' ' in word]:
        raise ConfigError(f'{path}: --layout={layout} cannot hold {blanks[0]!r}, which has a blank')
    with files.replacing(epath.Path(path)) as file:
        if layout != 'glove':
            file.write(f'{number} {width}\n'.encode())
        for word, vector in zip(rows.words, rows.vectors.astype('<f4'), strict=True):
            if layout == 'binary':
                file.write(word.encode() + b' ' + vector.tobytes() + b'\n')
            else:
                file.write(f'{word} {" ".join(map(str, vector))}\n'.encode())


def words_of(tokenizer: Tokenizer) -> dict[str, int]:
    """Returns the pieces that are words, with their numbers.

    If pieces mark the beginning of words, these are the pieces that begin one, without the mark.

    Raises:
      ConfigError: the pieces mark only the ends of words.
    """
    numbers = tokenizer.ordinary_pieces().tolist()
    pieces = dict(zip(numbers, tokenizer.readable(numbers), strict=True))
    if any(piece.startswith(BLANK) for piece in pieces.values()):
        tokenizer.begins_words()  # raises, if the marks depend on the piece before
        pieces = {n: piece[1:] for n, piece in pieces.items() if piece.startswith(BLANK) and piece != BLANK}
    found: dict[str, int] = {}
    for number, piece in pieces.items():
        found.setdefault(piece, number)
    return found


def rows_of(path: str, tokenizer: Tokenizer, width: int) -> PieceRows:
    """Reads the vectors of a tokenizer's words from a file.

    Raises:
      ConfigError: the vectors have another width, or no word of the file is a piece.
    """
    rows = read(path)
    if rows.vectors.shape[1] != width:
        raise ConfigError(
            f'model.vectors={path}: has vectors of {rows.vectors.shape[1]} numbers, model.d_model={width}'
        )
    words = words_of(tokenizer)
    places = [place for place, word in enumerate(rows.words) if word in words]
    if not places:
        raise ConfigError(f'model.vectors={path}: none of its {len(rows.words)} words is a piece')
    return PieceRows(np.array([words[rows.words[place]] for place in places]), rows.vectors[places])
