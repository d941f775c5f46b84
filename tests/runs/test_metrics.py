"""Progress bars and lines, and metrics.jsonl."""

import contextlib
import json
import math
import os
import re
import struct
import sys
import time

import pytest
from etils import epath

from transformer import config as configs
from transformer import files, progress
from transformer.config import ConfigError
from transformer.nn import cost, models
from transformer.runs import metrics


def test_json_is_strict(tmp_path):
    content = {'a': [math.inf, -math.inf, math.nan, 1.5], 'b': {'ä': None}}
    files.write_json(tmp_path / 'file', content)
    text = (tmp_path / 'file').read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {'a': [None, None, None, 1.5], 'b': {'ä': None}}
    assert 'ä' in text


def test_an_error_while_a_file_is_written_keeps_its_own_name(tmp_path):
    file, other = tmp_path / 'file', tmp_path / 'other'
    for name, expected in ((str(other), other), (None, file)):
        with pytest.raises(OSError) as error, files.replacing(file):
            raise OSError(28, 'no space', name)
        assert error.value.filename == str(expected)
    with pytest.raises(OSError) as error, files.replacing(tmp_path / 'no' / 'file'):
        pass
    assert error.value.filename == str(tmp_path / 'no' / 'file')
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize('full', ['metrics.jsonl', 'tensorboard'])
def test_a_full_disk_ends_a_training_with_the_name_of_what_was_written(tmp_path, monkeypatch, full):
    """At once, as writes fail; and no error hides an earlier one."""
    shown = metrics.Metrics(epath.Path(tmp_path), 0, 9)
    with pytest.raises(OSError, match='checkpoint 2'), shown:
        shown.write(1, {'loss': 1.0})
        writer, error = metrics.event_file_writer.EventsWriter, OSError(28, 'No space left on device')
        close = writer.close

        def fail(*_):
            raise error

        def close_and_fail(self):
            close(self)
            raise error

        if full == 'tensorboard':
            monkeypatch.setattr(writer, 'write_event', fail)
        else:
            monkeypatch.setattr(type(shown._file), 'open', fail)
        with pytest.raises(OSError) as found:
            shown.write(2, {'loss': 0.5})
        assert found.value.filename == str(tmp_path / full)
        monkeypatch.setattr(writer, 'close', close_and_fail)
        raise OSError('checkpoint 2 was not written')


def test_events_for_tensorboard(tmp_path):
    with metrics.Metrics(epath.Path(tmp_path), 7, 9) as shown:
        shown.write(8, {'loss': 0.25, 'dev_loss': math.nan})
        (file,) = (tmp_path / 'tensorboard').iterdir()
        # Seen while the training runs.
        assert file.stat().st_size
    content, events = file.read_bytes(), []
    while content:
        (size,) = struct.unpack('Q', content[:8])
        events.append(metrics.event_pb2.Event.FromString(content[12 : 12 + size]))
        content = content[16 + size :]
    first, start, scalars = events
    assert first.file_version == 'brain.Event:2'
    # What an interrupted training wrote from here on is hidden.
    assert (start.step, start.session_log.status) == (8, metrics.event_pb2.SessionLog.START)
    (value,) = scalars.summary.value
    assert (scalars.step, value.tag, value.simple_value) == (8, 'loss', 0.25)


def show(stages, wait=lambda: None):
    with stages:
        stages('tokenizer', 0, 99_999)
        stages('tokenizer', 99_999, 99_999)
        stages('train', 0, 100_000)
        stages('train', 60_000, 100_000)
        wait()


@pytest.fixture
def impatient(monkeypatch):
    """Reports work at once, and again and again."""
    monkeypatch.setattr(progress, 'PATIENCE', 0.05)
    monkeypatch.setattr(progress, 'EVERY', 0.05)


def wait_for(capsys, text):
    """Waits for a line on standard error that contains a text, and returns it."""
    shown, end = '', time.monotonic() + 60
    while text not in shown:
        assert time.monotonic() < end, shown
        shown += capsys.readouterr().err
    return next(line for line in shown.splitlines() if text in line)


def test_lines_about_a_stage_that_lasts_without_a_terminal(capsys, impatient):
    expect = lambda: wait_for(capsys, 'preparing train: 60,000 of 100,000')
    show(progress.Stages('preparing'), expect)
    capsys.readouterr()
    time.sleep(0.2)
    assert capsys.readouterr() == ('', '')


def test_no_lines_about_a_stage_that_has_ended(capsys, impatient):
    with progress.Stages('preparing') as stages:
        stages('train', 100, 100)
        time.sleep(0.2)
    assert capsys.readouterr() == ('', '')


def test_a_reader_that_leaves_ends_only_the_lines(monkeypatch):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, 'w') as closed:
        monkeypatch.setattr(sys, 'stderr', closed)
        bar = progress.make_bar('x')
        for _ in range(2):
            progress.print_line(bar, 'a line')
        monkeypatch.undo()
        # What could not be written.
        with contextlib.suppress(BrokenPipeError):
            closed.close()


@pytest.mark.skipif(not os.path.exists('/dev/full'), reason='a device of Linux')
def test_a_full_disk_under_standard_error_ends_only_the_lines(monkeypatch):
    with open('/dev/full', 'w', buffering=1) as full:
        monkeypatch.setattr(sys, 'stderr', full)
        bar = progress.make_bar('x')
        for _ in range(2):
            progress.print_line(bar, 'a line')
        monkeypatch.undo()
        with pytest.raises(OSError, match='No space'):
            full.write('a line\n')
        with contextlib.suppress(OSError):
            full.close()


def test_no_lines_about_short_stages(capsys, monkeypatch):
    monkeypatch.setattr(progress, 'PATIENCE', 60.0)
    show(progress.Stages('preparing'))
    assert capsys.readouterr() == ('', '')


def test_bars_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv('FORCE_COLOR', '1')
    show(progress.Stages('preparing'))
    shown = capsys.readouterr().err
    assert 'preparing tokenizer' in shown
    assert '99999/99999' in shown
    assert '60000/100000' in shown


@pytest.mark.parametrize('terminal', [True, False])
def test_nothing_is_shown_where_nothing_is_made(capsys, monkeypatch, terminal, impatient):
    if terminal:
        monkeypatch.setenv('FORCE_COLOR', '1')
    with progress.Stages('preparing'):
        time.sleep(0.1)
    show(progress.Stages('preparing', quiet=True), lambda: time.sleep(0.1))
    assert capsys.readouterr() == ('', '')


def test_an_error_ends_the_lines(capsys, impatient, tmp_path):
    shown = metrics.Metrics(epath.Path(tmp_path), 0, 1)
    with pytest.raises(ArithmeticError), shown, shown.doing('compiling'):
        wait_for(capsys, 'compiling')
        raise ArithmeticError
    capsys.readouterr()
    time.sleep(0.2)
    assert capsys.readouterr() == ('', '')


def test_what_a_training_does_between_updates_is_a_line_if_it_lasts(capsys, impatient, tmp_path):
    with metrics.Metrics(epath.Path(tmp_path), 0, 10) as shown:
        with shown.doing('compiling shape 2 of 3'):
            assert re.fullmatch(r'compiling shape 2 of 3 \(\d+ s\)', wait_for(capsys, 'compiling'))
        capsys.readouterr()
        time.sleep(0.2)
        assert capsys.readouterr() == ('', '')


def test_what_a_training_does_between_updates_stands_in_the_bar(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv('FORCE_COLOR', '1')
    with metrics.Metrics(epath.Path(tmp_path), 0, 10) as shown:
        shown.write(1, NUMBERS)
        with shown.doing('compiling shape 2 of 3'):
            wait_for(capsys, 'compiling shape 2 of 3')
        capsys.readouterr()
        shown.advance(2)
        wait_for(capsys, 'loss 4.123')


NUMBERS = {
    'loss': 4.12345,
    'objective': 3.98,
    'perplexity': 61.77,
    'gradient_norm': 0.5,
    'tokens_per_second': 12345.6,
    'learning_rate': 0.0007,
}


def test_the_progress_line_keeps_step_bar_and_time_at_80_columns(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv('FORCE_COLOR', '1')
    monkeypatch.setenv('TERM', 'xterm')
    monkeypatch.setenv('COLUMNS', '80')
    with metrics.Metrics(epath.Path(tmp_path), 0, 123_456) as shown:
        shown.write(100_000, {**NUMBERS, 'dev_loss': 4.05, 'dev_perplexity': 57.4})
        # Until the next evaluation.
        shown.write(100_001, NUMBERS)
    lines = re.split(r'[\r\n]+', re.sub(r'\x1b\[[\d;?]*\w', '', capsys.readouterr().err))
    (line,) = {line.strip() for line in lines if '100001/123456' in line}
    assert re.fullmatch(
        r'step 100001/123456 [━╸╺]{10,} loss 4.123  dev_loss 4.05  tok/s 12,346 [\d:-]+', line
    )
    assert max(map(len, lines)) <= 80


def test_as_many_numbers_as_fit():
    assert metrics.fitting(NUMBERS, 9) == ''
    assert metrics.fitting(NUMBERS, 10) == 'loss 4.123'
    assert metrics.fitting(NUMBERS, 50) == 'loss 4.123  tok/s 12,346  objective 3.98'


def test_one_line_for_each_step(capsys, tmp_path):
    """Also where an interrupted run, or an earlier version, wrote two; what came later is cut."""
    file = tmp_path / 'metrics.jsonl'
    old = [{'step': 2, 'loss': 3.0}, {'step': 4, 'loss': 2.0}, {'step': 4, 'dev_loss': 2.5}, {'step': 6}]
    file.write_text(''.join(f'{json.dumps(line)}\n' for line in old) + '{"step": 7, "lo')
    told = []
    with metrics.Metrics(
        epath.Path(tmp_path), 4, 8, lambda *seen: told.append(seen), ['[a header]']
    ) as written:
        written.write(6, {'loss': 1.5, 'dev_loss': math.nan})
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        {'step': 2, 'loss': 3.0},
        {'step': 4, 'loss': 2.0, 'dev_loss': 2.5},
        {'step': 6, 'loss': 1.5, 'dev_loss': None},
    ]
    assert len(told) == 1 and told[0][0] == 6 and told[0][1]['loss'] == 1.5
    assert capsys.readouterr().err.splitlines() == ['[a header]', 'step 6/8  loss 1.5  dev_loss nan']


def test_a_damaged_line_before_others_is_an_error_and_nothing_is_removed(tmp_path):
    file = tmp_path / 'metrics.jsonl'
    content = '{"step": 2, "loss": 3.0}\n{"step": 4, "lo\n{"step": 6, "loss": 1.0}\n'
    file.write_text(content)
    with pytest.raises(ConfigError, match=r'metrics\.jsonl: line 2'):
        metrics.Metrics(epath.Path(tmp_path), 6, 8, lambda *seen: None, [])
    assert file.read_text() == content


def test_a_slow_part_of_a_training_does_not_move_its_speed(tmp_path):
    with metrics.Metrics(epath.Path(tmp_path), 0, 8) as written:
        assert metrics.speed(epath.Path(tmp_path)) is None
        for step, speed in ((2, 900.0), (4, 10.0), (6, 1000.0), (8, 1100.0)):
            written.write(step, {'tokens_per_second': speed, 'dev_loss': 1.0})
        written.write(9, {'dev_loss': 1.0})
    assert metrics.speed(epath.Path(tmp_path)) == 950.0


def test_the_header(tmp_path):
    config = configs.resolve(
        configs.config_dict({'data.source': 'text', 'data.dir': '/texts', 'model.N': 1, 'model.d_model': 16})
    )
    side = {'pairs': 29000, 'source_tokens': 400_000, 'target_tokens': 500_000, 'dropped': {}}
    lock = {'splits': {'train': side}, 'source_language': 'en', 'target_language': 'de'}
    devices, corpus, updates, folder = metrics.header(config, epath.Path(tmp_path), lock, 400)
    assert updates == f'updates: {config.train.steps:,}, of which 400 are an epoch (250 epochs)'
    count = cost.parameters(models.parameter_shapes(config))
    assert devices == f'devices: 8 (cpu), processes: 1, parameters: {count:,}'
    assert corpus == 'corpus: train in /texts: 29,000 examples of 400,000 source and 500,000 target pieces'
    assert folder == f'work directory: {tmp_path}'
