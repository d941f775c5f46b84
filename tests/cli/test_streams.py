"""Lines are answered as soon as they arrive, and their number is kept for every content."""

import concurrent.futures
import errno
import gc
import gzip
import io
import logging
import math
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from etils import epath
from odd_lines import ODD, READ

from transformer import progress
from transformer.cli import main, streams
from transformer.cli.terminal import exit_status, terminal_width
from transformer.config import ConfigError
from transformer.data.sources import text
from transformer.inference import batch_shapes
from transformer.tasks.contract import Hypothesis


class Shouts:
    """A model that answers in capitals, and records its inputs."""

    def __init__(self):
        self.asked = []

    def __call__(self, given, *, first=0, on_done=lambda count: None):
        self.asked.append((first, list(given)))
        on_done(len(given))
        return [[Hypothesis(f'{first + i} {text.upper()}', -1.0)] for i, text in enumerate(given)]


@pytest.fixture
def piped():
    """Yields the lines of a pipe, and the end that writes it."""
    read, write = os.pipe()
    with os.fdopen(read, 'rb') as stream, os.fdopen(write, 'wb', buffering=0) as pipe:
        yield streams.Lines(stream), pipe
        pipe.close()


@pytest.mark.parametrize('end', [b'', b'\n'])
@pytest.mark.parametrize('chunk', [3, 10_000])
def test_only_a_newline_ends_a_line(monkeypatch, tmp_path, piped, end, chunk):
    monkeypatch.setattr(streams, 'CHUNK', chunk)
    content = b''.join(ODD) + end
    (tmp_path / 'odd').write_bytes(content)
    with (tmp_path / 'odd').open('rb') as file:
        in_file = streams.Lines(file)
        assert in_file.total == len(READ)
        chunks = list(in_file)
    in_memory = streams.Lines(io.BytesIO(content))
    assert in_memory.total is None
    for found in (chunks, list(in_memory)):
        assert [text for part in found for text in part] == READ
        assert max(map(len, found)) <= chunk
    lines, pipe = piped
    assert lines.wait(0) is False and streams.Lines(io.BytesIO(content)).wait(60) is True
    for i in range(0, 91, 7):
        pipe.write(content[i : i + 7])
    # More than a pipe holds, while the lines are taken.
    threading.Thread(target=lambda: (pipe.write(content[91:]), pipe.close())).start()
    assert [text for part in lines for text in part] == READ


def test_lines_are_numbered_through_however_many_go_together():
    """What is sampled depends on the number of a line: with one that comes again, so would the draws."""
    count, answer = 2 * streams.CHUNK + 5, Shouts()
    streams.write(answer, streams.Lines(io.BytesIO(b'a\n' * count)), io.BytesIO())
    asked = [(first, len(given)) for first, given in answer.asked]
    assert len(asked) >= 3
    assert [first + i for first, lines in asked for i in range(lines)] == list(range(count))


@pytest.mark.parametrize('content', [b'', b'\n', b'\xef\xbb\xbf', b'a\n\n'])
def test_the_number_of_lines(tmp_path, content):
    (tmp_path / 'file').write_bytes(content)
    with (tmp_path / 'file').open('rb') as file:
        lines = streams.Lines(file)
        found = [text for part in lines for text in part]
    assert len(found) == content.count(b'\n') + (content[-1:] not in (b'', b'\n'))
    assert lines.total == len(found)


def test_each_line_is_answered_before_the_next_comes(piped):
    lines, pipe = piped
    read, write = os.pipe()
    with os.fdopen(read, 'rb') as answers, os.fdopen(write, 'wb') as output:
        thread = threading.Thread(target=streams.write, args=(Shouts(), lines, output), daemon=True)
        thread.start()
        for number, line in enumerate((b'one\n', b'two\nthr', b'ee\n', b'')):
            pipe.write(line)
            if line.endswith(b'\n') or number == 1:
                expected = [b'0 ONE\n', b'1 TWO\n', b'2 THREE\n'][number]
                assert answers.readline() == expected
        pipe.close()
        thread.join(10)
        assert not thread.is_alive()


def test_what_comes_while_one_line_is_answered_is_taken_together(monkeypatch, piped):
    monkeypatch.setattr(streams, 'CHUNK', 4)
    lines, pipe = piped
    pipe.write(b'1\n')
    chunks = iter(lines)
    assert next(chunks) == ['1']
    pipe.write(b'2\n3\n4\n')
    assert next(chunks) == ['2', '3', '4']
    pipe.write(b'5\n6\n7\n8\n9\n')
    assert next(chunks) == ['5', '6', '7', '8']
    pipe.close()
    assert next(chunks) == ['9']
    assert next(chunks, None) is None


def test_what_answers_a_short_text_is_made_ready_only_while_none_comes(caplog):
    for comes, ready in ((True, []), (False, [['.']])):
        answer, output = Shouts(), io.BytesIO()

        def warn(texts, answer=answer, **options):
            logging.warning('%s', texts)
            return answer(texts, **options)

        streams.write(warn, [['a'], ['b']], output, arrives=lambda seconds, comes=comes: comes)
        assert [given for _, given in answer.asked] == [*ready, ['a'], ['b']]
        assert output.getvalue() == b'0 A\n1 B\n'
    # None of the text that nobody wrote.
    assert caplog.messages == ["['a']", "['b']"] * 2


def test_lines_that_come_one_by_one_have_the_same_few_shapes():
    lengths = [1 + 7 * i % 64 for i in range(batch_shapes.FEW_ROWS)]
    planned = [batch_shapes.batches(lengths[:count], 1) for count in range(1, len(lengths) + 1)]
    assert {shape for batches in planned for _, shape in batches} == {(4, 32), (4, 128), (32, 32)}
    # Many of one length at once do not wait for each other.
    assert [shape for _, shape in batch_shapes.batches([9] * 32, 1)] == [(32, 32)]
    for batches in (*planned, batch_shapes.batches(lengths * 101, 1)):
        found = sorted(i for indexes, _ in batches for i in indexes)
        assert found == list(range(len(found)))
        assert all(lengths[i % 32] <= width for indexes, (_, width) in batches for i in indexes)
        assert all(len(indexes) <= rows for indexes, (rows, _) in batches)
    # A file has little padding, and one shape for each width but for its last, shortest rows.
    *most, last = [shape for _, shape in batch_shapes.batches(lengths * 101, 1)]
    assert len({width for _, width in most}) == len(set(most)) == 7
    assert last == (32, 8)
    for width in (90, 150, 300):
        assert all(
            rows * width <= batch_shapes.BATCH_POSITIONS
            for _, (rows, width) in batch_shapes.batches([width] * 99, 1)
        )
    # However long a row is, its batch has about as many positions as others, unless it is alone too long.
    for length in (1, 100, 1000, 10_000):
        (_, (rows, width)), *_ = batch_shapes.batches([length] * 8, 1)
        assert rows * width <= batch_shapes.BATCH_POSITIONS or rows == 1


def test_tpus_take_twice_as_many_short_rows_at_once(monkeypatch):
    shapes = lambda width: [shape for _, shape in batch_shapes.batches([width] * 300, 1)]
    assert (shapes(32)[0], shapes(64)[0]) == ((64, 32), (64, 64))
    monkeypatch.setattr(batch_shapes.parallel, 'platform', lambda: 'tpu')
    assert (shapes(32), shapes(64)[0]) == ([(128, 32), (128, 32), (64, 32)], (64, 64))


@pytest.fixture
def said(monkeypatch):
    """Returns the lines of progress, which are always due, and an event that is set at each new one."""
    lines, new = [], threading.Event()

    def say(bar, line):
        del bar
        lines.append(line)
        new.set()

    monkeypatch.setattr(streams, 'print_line', say)
    monkeypatch.setattr(progress, 'PATIENCE', 0.01)
    monkeypatch.setattr(progress, 'EVERY', 0.01)
    return lines, new


def test_lines_of_progress_while_a_model_computes_and_not_while_input_is_waited_for(said):
    lines, new = said
    counts = lambda line: [int(number) for number in re.findall(r'\d+', line)]

    def slow():
        for chunk in (['a'] * 3, ['b'] * 2):
            new.clear()
            time.sleep(0.1)
            assert not new.is_set()
            yield chunk

    def answer(chunk, first=0, on_done=None):
        on_done(1)
        new.clear()
        assert new.wait(60) and counts(lines[-1]) == [first + 1, 5]
        return Shouts()(chunk)

    streams.write(answer, slow(), io.BytesIO(), progress=streams.LineProgress(5))
    assert counts(lines[-1]) == [5, 5]


@pytest.mark.parametrize(
    ('total', 'done', 'unit'), [(None, 1, 'line'), (None, 2, 'lines'), (1, 0, 'line'), (6, 1, 'lines')]
)
def test_one_line_is_no_lines(said, total, done, unit):
    (lines, _), progress = said, streams.LineProgress(total)
    progress.add(done)
    progress._print()
    assert lines[-1].split()[-2:] == [unit, 'done']


def test_no_progress_of_a_quick_answer_or_of_typed_lines(capfd, monkeypatch):
    streams.write(Shouts(), [['a'] * 3], io.BytesIO(), progress=streams.LineProgress(3))
    monkeypatch.setattr(progress, 'PATIENCE', 0.01)

    def slow(chunk, first=0, on_done=None):
        time.sleep(0.1)
        return Shouts()(chunk)

    streams.write(slow, [['a'] * 3], io.BytesIO(), progress=streams.LineProgress(quiet=True))
    assert capfd.readouterr().err == ''


def test_standard_input_that_is_closed_or_a_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, 'stdin', None)
    monkeypatch.setattr(sys, 'stdout', None)
    for opened in (streams.open_output, streams.read_lines):
        with pytest.raises(ConfigError), opened(None):
            pass
    monkeypatch.delenv('COLUMNS', raising=False)
    assert terminal_width() == math.inf
    monkeypatch.setattr(sys, 'stderr', None)
    monkeypatch.setattr(sys, '__stderr__', None)
    assert main.main(['run.py', '--version']) == 0
    with sys.stderr as opened:
        assert opened is sys.__stderr__
    folder = os.open(tmp_path, os.O_RDONLY)
    with os.fdopen(os.dup(1), 'rb') as stream, pytest.raises(IsADirectoryError):
        os.dup2(folder, stream.fileno())
        list(streams.Lines(stream))


@pytest.fixture
def terminal(monkeypatch):
    """Yields a terminal's screen, and standard input and standard error on it."""
    monkeypatch.setenv('TERM', 'xterm')
    screen, end = os.openpty()
    with (
        os.fdopen(screen, 'rb+', buffering=0) as screen,
        os.fdopen(os.dup(end), 'w') as write,
        os.fdopen(end, 'rb') as read,
    ):
        yield screen, io.TextIOWrapper(read), write


def assert_shown(screen, expected):
    """Waits until the screen has shown a text, which can arrive in pieces."""
    shown = b''
    while expected not in shown:
        assert select.select([screen], [], [], 60)[0], shown
        shown += screen.read(10_000)


@pytest.mark.parametrize('both', [True, False])
def test_a_terminal_is_prompted(monkeypatch, terminal, both):
    screen, stdin, stderr = terminal
    monkeypatch.setattr(sys, 'stdin', stdin)
    # Where standard error is a file, a prompt would be no help.
    monkeypatch.setattr(sys, 'stderr', stderr if both else io.StringIO())
    with streams.read_lines(None) as read:
        lines = iter(read)
    with concurrent.futures.ThreadPoolExecutor(1) as reader:
        for typed, expected in ((b'one\n', ['one']), (b'two\n', ['two']), (b'\x04', None)):
            answer = reader.submit(next, lines, None)
            if both:
                # A line that comes before it is asked for needs no prompt.
                assert_shown(screen, b'> ')
            screen.write(typed)
            assert answer.result(60) == expected
    if not both:
        assert sys.stderr.getvalue() == ''


def test_progress_is_a_bar_on_a_terminal(monkeypatch, terminal):
    screen, _, stderr = terminal
    monkeypatch.setattr(sys, 'stderr', stderr)
    monkeypatch.setattr(progress, 'PATIENCE', 0.01)
    with streams.LineProgress(5) as bar:
        bar.resume()
        bar.add(3)
        assert_shown(screen, b'3/5')


def test_a_compressed_input_is_refused(tmp_path):
    (tmp_path / 'x.gz').write_bytes(gzip.compress(b'a\nb\n'))
    with streams.read_lines(str(tmp_path / 'x.gz')) as lines, pytest.raises(ConfigError, match='gzip'):
        next(iter(lines))


@pytest.mark.parametrize('encoding', ['utf-16-le', 'utf-16-be'])
def test_utf_16_is_refused_by_its_mark(tmp_path, encoding):
    content = '\ufeffein Hund\nzwei Hunde\n'.encode(encoding)
    path = epath.Path(tmp_path / 'a.de')
    path.write_bytes(content)
    for read in (lambda: list(text.lines(path)), lambda: text.whole(path)):
        with pytest.raises(ConfigError) as caught:
            read()
        assert 'UTF-16' in str(caught.value) and 'Latin-1' not in str(caught.value)
    with pytest.raises(ConfigError, match='UTF-16'):
        list(streams.Lines(io.BytesIO(content)))
    path.write_bytes('für\n'.encode('latin-1'))
    with pytest.raises(ConfigError, match='Latin-1'):
        list(text.lines(path))


def test_lines_that_are_not_utf_8_are_counted_and_the_first_is_named(caplog, monkeypatch):
    monkeypatch.setattr(streams, 'CHUNK', 2)
    surrogate = '\ud800'.encode(errors='surrogatepass')
    for content, texts, damaged in (
        (b'one\n\xff two\n' + surrogate + b'\n', ['one', '\ufffd two', '\ufffd' * 3], (2, 2)),
        (b'a\nb\nc\xff\nd\n', ['a', 'b', 'c\ufffd', 'd'], (3,)),
        ('one\n\ufffd\n'.encode(), ['one', '\ufffd'], None),
    ):
        caplog.clear()
        assert [text for chunk in streams.Lines(io.BytesIO(content)) for text in chunk] == texts
        found = [tuple(map(int, re.findall(r'\d+', *record.args))) for record in caplog.records]
        assert found == ([damaged] if damaged else [])


@pytest.mark.skipif(not os.path.exists('/dev/full'), reason='no device that is always full')
def test_a_full_disk_names_the_output():
    for write in (
        lambda output: streams.write(Shouts(), [['a']], output),
        lambda output: streams.write_array(lambda texts, **_: np.zeros((1, 2)), [['a']], output),
    ):
        with pytest.raises(OSError) as caught, open('/dev/full', 'wb', buffering=0) as output:
            write(output)
        assert caught.value.filename == '/dev/full'
    program = 'from transformer.cli import terminal; terminal.exit_status(lambda: print("text") or 0)'
    buffered = {key: value for key, value in os.environ.items() if key != 'PYTHONUNBUFFERED'}
    with open('/dev/full', 'wb') as output:
        done = subprocess.run(
            [sys.executable, '-c', program], stdout=output, stderr=subprocess.PIPE, env=buffered, text=True
        )
    assert done.stderr.splitlines() == [f'error: <stdout>: {os.strerror(errno.ENOSPC)}']


def test_errors_without_a_number_keep_their_text(capsys):
    for named, line in ((None, 'no server'), ('/a  b', '/a  b: no server')):

        def fails(named=named):
            error = OSError('no\n  server')
            error.filename = named
            raise error

        assert exit_status(fails) == 2
        assert capsys.readouterr().err == f'error: {line}\n'


@pytest.mark.parametrize(
    ('error', 'line'),
    [
        (MemoryError('Unable to allocate 4.00 GiB for an array'), 'Unable to allocate 4.00 GiB for an array'),
        (MemoryError(), 'out of memory'),
        (
            RuntimeError('RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nmore'),
            'Out of memory allocating',
        ),
    ],
)
def test_a_lack_of_memory_is_one_line(capsys, error, line):
    def fails():
        raise error

    assert exit_status(fails) == 2
    shown = capsys.readouterr().err
    assert line in shown and shown.count('\n') == 1


def test_a_full_disk_under_what_is_printed_is_named(capsys, monkeypatch):
    def fails():
        raise OSError(errno.ENOSPC, 'No space left')

    with open(os.devnull, 'w') as output, monkeypatch.context() as patch:
        patch.setattr(sys, 'stdout', output)
        assert exit_status(fails) == 2
    assert f'{os.devnull}: No space left' in capsys.readouterr().err


def test_an_interrupt_that_a_callback_loses_stops_the_program(capsys):
    def lose(phase, info):
        gc.callbacks.remove(lose)
        signal.raise_signal(signal.SIGINT)

    def program():
        gc.callbacks.append(lose)
        gc.collect()
        time.sleep(20)

    hook, start = sys.unraisablehook, time.monotonic()
    # The program is woken: it does not sleep to its end.
    assert exit_status(program) == 130 and time.monotonic() - start < 15
    assert capsys.readouterr().err == 'stopped\n' and sys.unraisablehook is hook


def test_another_runtime_error_is_no_lack_of_memory():
    def fails():
        raise RuntimeError('a bug')

    with pytest.raises(RuntimeError, match='a bug'):
        exit_status(fails)


def test_the_first_program_is_compiled_without_a_line_and_can_be_refused(capsys):
    """While no line has arrived, a text that nobody wrote is answered; it can lack a prefix."""
    seen = []

    def answer(texts, first=0, on_done=None):
        seen.append(texts)
        if texts == ['.']:
            raise ConfigError('no prefix')
        return [[Hypothesis(text, 0.0)] for text in texts]

    output = io.BytesIO()
    assert streams.write(answer, [['p: a']], output, arrives=lambda seconds: False) == 0
    assert seen == [['.'], ['p: a']] and output.getvalue() == b'p: a\n'


def test_numpy_arrays_have_a_row_for_each_text():
    output, seen = io.BytesIO(), []

    def answer(texts, first, on_done):
        seen.append(first)
        return np.array([[len(text), first] for text in texts], np.float32).reshape(-1, 2)

    streams.write_array(answer, [['a', 'bcd'], ['ef']], output)
    np.testing.assert_array_equal(np.load(io.BytesIO(output.getvalue())), [[1, 0], [3, 0], [2, 2]])
    assert seen == [0, 2]
    output = io.BytesIO()
    streams.write_array(answer, [], output)
    assert np.load(io.BytesIO(output.getvalue())).shape == (0, 2)
