"""Reads lines from a stream as they arrive, and writes a model's answers to a stream."""

import codecs
import collections
import contextlib
import functools
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO

import numpy as np
from absl import logging
from etils import epath

from transformer import files
from transformer.config import ConfigError
from transformer.data.sources.images import UnreadableFile
from transformer.data.sources.text import UTF_16
from transformer.progress import Heartbeat, make_bar, print_line, without_warnings

# The most lines that a model gets at once, and the most files for each device.
CHUNK, FILES = 10_000, 128
# Seconds to wait for more lines after one has arrived.
PAUSE = 0.05
_BLOCK = 1 << 16
_GZIP = b'\x1f\x8b'  # the beginning of a compressed file


class Lines:
    """The lines of a stream, in lists of the lines that have arrived, at most `CHUNK`.

    A thread reads ahead, so that no answer waits for a line that has not arrived. Only a newline ends a line;
    the last line needs none. A carriage return before the newline and a byte order mark before the first line
    are removed. Invalid UTF-8 becomes U+FFFD, and a warning counts the lines that had it.

    Args:
      on_wait: called whenever the next line has not arrived yet.
    """

    def __init__(self, stream: BinaryIO, on_wait: Callable[[], None] = lambda: None):
        self.total = _count(stream)
        self._stream, self._on_wait = stream, on_wait  # unreferenced, the stream would be closed
        self._ready: collections.deque[bytes] = collections.deque()
        self._changed, self._ended = threading.Condition(), False
        self._error: OSError | None = None
        # A daemon does not delay the end of Python while it waits for input.
        threading.Thread(target=self._fill, args=(_reader(stream),), daemon=True).start()

    def __iter__(self) -> Iterator[list[str]]:
        done, damaged, first = 0, 0, 0
        while chunk := self._take():
            if not done and chunk[0].startswith(UTF_16):
                raise ConfigError('the input is UTF-16; iconv -f utf-16 -t utf-8 makes it UTF-8')
            if not done and chunk[0].startswith(_GZIP):
                raise ConfigError('the input is compressed by gzip; zcat makes it text')
            if not done:
                chunk[0] = chunk[0].removeprefix(codecs.BOM_UTF8)
            lines = [line.removesuffix(b'\r') for line in chunk]
            texts = [line.decode('utf-8', 'replace') for line in lines]
            for number, (text, line) in enumerate(zip(texts, lines, strict=True), done + 1):
                if text.encode() != line:
                    damaged, first = damaged + 1, first or number
            yield texts
            done += len(texts)
        if damaged:
            which = f'line {first}' if damaged == 1 else f'{damaged:,} lines, the first is line {first:,}'
            logging.warning('the input: not UTF-8 in %s; U+FFFD replaces the invalid bytes', which)

    def wait(self, seconds: float) -> bool:
        """Waits at most some seconds for a line or the end, and returns whether either has arrived."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: self._ready or self._ended, seconds))

    def _take(self) -> list[bytes]:
        """Takes the lines that have arrived, at least one, or [] at the end."""
        with self._changed:
            if not self._ready and not self._ended:
                self._on_wait()
            self._changed.wait_for(lambda: self._ready or self._ended)
            # The program that writes the lines can be writing more of them.
            self._changed.wait_for(lambda: len(self._ready) >= CHUNK or self._ended, PAUSE)
            if self._error and not self._ready:
                raise self._error
            lines = [self._ready.popleft() for _ in range(min(CHUNK, len(self._ready)))]
            self._changed.notify_all()
            return lines

    def _fill(self, read: Callable[[], bytes]) -> None:
        """Reads lines until the end, in the thread."""
        begun: list[bytes] = []  # the parts of an unfinished line
        try:
            while block := read():
                *whole, last = block.split(b'\n')
                if whole:
                    self._add([b''.join([*begun, whole[0]]), *whole[1:]])
                    begun = []
                begun.append(last)
            if rest := b''.join(begun):
                self._add([rest])
        except OSError as error:
            self._error = error
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _add(self, lines: list[bytes]) -> None:
        with self._changed:
            # The limit keeps an endless input from filling the memory.
            self._changed.wait_for(lambda: len(self._ready) < CHUNK)
            self._ready.extend(lines)
            self._changed.notify_all()


def _reader(stream: BinaryIO) -> Callable[[], bytes]:
    """Returns a function that reads the bytes that have arrived, and waits only if there are none."""
    try:
        # Not through the stream: the waiting thread would hold its lock when Python ends.
        return functools.partial(os.read, stream.fileno(), _BLOCK)
    except OSError:
        return functools.partial(stream.read1, _BLOCK)


def _count(stream: BinaryIO) -> int | None:
    """Returns the number of lines from the current position of a file, or None if it is no regular file."""
    try:
        file = stream.fileno()
    except OSError:  # it lives in memory
        return None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        return None
    place, count, end = os.lseek(file, 0, os.SEEK_CUR), 0, b'\n'
    while block := os.pread(file, 1 << 20, place):
        place, count, end = place + len(block), count + block.count(b'\n'), block[-1:]
    return count + (end != b'\n')


@contextlib.contextmanager
def read_lines(path: str | None) -> Iterator[Lines]:
    """Yields the lines of a file, or of standard input, which gets a prompt if it is a terminal."""
    if path is not None:
        with open(path, 'rb') as stream:
            yield Lines(stream)
        return
    if sys.stdin is None:
        raise ConfigError('standard input is closed; it must give the texts, one per line')
    prompt = lambda: print('> ', end='', file=sys.stderr, flush=True)
    yield Lines(sys.stdin.buffer, prompt if sys.stdin.isatty() and sys.stderr.isatty() else lambda: None)


def open_output(path: str | None) -> contextlib.AbstractContextManager[BinaryIO]:
    """Returns standard output, or a file, which appears when it is complete."""
    if path is not None:
        return files.replacing(epath.Path(path))
    if sys.stdout is None:
        raise ConfigError('standard output is closed; answers are written there')
    return contextlib.nullcontext(sys.stdout.buffer)


class LineProgress(contextlib.AbstractContextManager):
    """The number of lines, or files, done of a long input, on standard error: a bar, or a line now and then.

    Args:
      total: the number of lines, if it is known.
      unit: what is counted.
      quiet: whether to hide the progress, for example while lines are typed.
    """

    def __init__(self, total: int | None = None, unit: str = 'line', *, quiet: bool = False):
        self._bar, self._unit = make_bar(unit, quiet=quiet, transient=True), unit
        self._task = self._bar.add_task('', total=total)
        self._total, self._done, self._shown = total, 0.0, False
        self._heartbeat = Heartbeat(self._show)

    def resume(self) -> None:
        """Begins to compute, after a wait for input."""
        self._heartbeat.start()

    def add(self, lines: float) -> None:
        """Counts lines that are done. A line with several texts can count in fractions."""
        self._done += lines
        self._bar.update(self._task, completed=self._done)

    def _show(self, seconds: float) -> None:
        del seconds
        self._bar.start()
        if self._bar.disable:
            self._shown = True
            self._print()

    def _print(self) -> None:
        done, of_total = round(self._done), '' if self._total is None else f' of {self._total:,}'
        units = self._unit if (self._total or done) == 1 else f'{self._unit}s'
        print_line(self._bar, f'{done:,}{of_total} {units} done')

    @contextlib.contextmanager
    def paused(self, done: int) -> Iterator[None]:
        """Removes the bar while output goes to the same terminal, and then counts `done` lines as done."""
        self._heartbeat.stop()
        self._bar.stop()
        yield
        self._done = done
        self._bar.update(self._task, completed=done)

    def __exit__(self, kind: type | None, *_):
        self._heartbeat.stop()
        self._bar.stop()
        if self._shown and kind is None:
            self._print()


def write_array(
    answer: Callable[..., Sequence],
    chunks: Iterable[list[str]],
    output: BinaryIO,
    progress: LineProgress | None = None,
) -> None:
    """Writes the vectors that answer texts as one array [texts, D] in numpy's format, like `write`."""
    parts, first = [], 0
    with progress or LineProgress(quiet=True) as progress:
        for chunk in chunks:
            progress.resume()
            parts.append(np.asarray(answer(chunk, first=first, on_done=progress.add)))
            first += len(chunk)
            with progress.paused(first):
                pass
    with files.naming(output):
        # Without a text, the shape still has the width.
        np.save(
            output, np.concatenate(parts) if parts else np.asarray(answer([], first=0, on_done=progress.add))
        )


def answer_readable(answer: Callable[..., Sequence], names: Sequence[str], **options) -> list:
    """Answers several files. One that cannot be read gets None and a warning."""
    readable = [*range(len(names))]
    while True:
        try:
            answers = answer([names[i] for i in readable], **options)
            break
        except UnreadableFile as error:
            logging.warning('%s; it has no answer', error)
            del readable[error.number]
    by_place = dict(zip(readable, answers, strict=True))
    return [by_place.get(i) for i in range(len(names))]


def write(
    answer: Callable[..., Sequence],
    chunks: Iterable[list[str]],
    output: BinaryIO,
    *,
    scores: bool = False,
    as_json: bool = False,
    names: Sequence[str] | None = None,
    numbered: bool = True,
    separator: str | None = None,
    progress: LineProgress | None = None,
    arrives: Callable[[float], bool] = lambda seconds: True,
) -> int:
    """Writes a model's answer to each text, in order.

    Args:
      answer: `(texts, first=, on_done=)`, which returns an answer for each text: a list of `(text, score)`,
        best first, a vector, or None, which is not written.
      scores: whether a tab and the score follow each text.
      as_json: whether to write objects with `line` (or `file`), `text` and `score`. Vectors always are JSON.
      names: the file names, if the texts are files; a line of output begins with the name and a tab.
      numbered: whether each of several hypotheses begins with the number of its line, from 0, and a tab.
      separator: a line between hypotheses that can have several lines.
      arrives: `seconds -> whether the first text arrives in that time`; if it does not, the programs for a
        short text are compiled meanwhile.

    Returns:
      The number of texts without an answer.
    """
    if not arrives(PAUSE):
        # Of a text that nobody wrote, which can lack what the lines have.
        with without_warnings(), contextlib.suppress(ConfigError):
            answer(['.'])

    def lines_of(i: int, hypotheses) -> Iterator[str]:
        place = {'line': i} if names is None else {'file': names[i]}
        if not isinstance(hypotheses, list):
            yield files.json_text({**place, 'vector': [float(f'{x:.7g}') for x in hypotheses]})
            return
        for rank, (text, score) in enumerate(hypotheses):
            if as_json:
                yield files.json_text({**place, 'text': text, 'score': score})
                continue
            if separator and i + rank:
                yield separator
            start = f'{names[i]}\t' if names else f'{i}\t' if numbered and len(hypotheses) > 1 else ''
            yield start + text + (f'\t{score:.4f}' if scores else '')

    first = lacking = 0
    with progress or LineProgress(quiet=True) as progress:
        for chunk in chunks:
            progress.resume()
            answers = answer(chunk, first=first, on_done=progress.add)
            with progress.paused(first + len(chunk)), files.naming(output):
                for i, hypotheses in enumerate(answers, start=first):
                    if hypotheses is None:
                        lacking += 1
                        continue
                    text = ''.join(f'{line}\n' for line in lines_of(i, hypotheses))
                    # Names of files can hold bytes that are not UTF-8.
                    output.write(text.encode(errors='surrogateescape'))
                output.flush()
            first += len(chunk)
    return lacking
