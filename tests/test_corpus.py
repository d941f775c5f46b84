"""The cache: its content, its key, its lock file, and what damage and accidents do to it."""

import dataclasses
import errno
import json
import logging
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from transformer.config import Config, ConfigError, Data
from transformer.data import build, corpus

ENGLISH = [f'{who} sees {what}.' for who in ('He', 'A cat', 'Nobody') for what in ('it', 'a dog')]
GERMAN = [f'{who} sieht {what}.' for who in ('Er', 'Das Kätzchen', 'Ob') for what in ('es', 'x')]
LONG = ' '.join(ENGLISH)
TRAIN = ([*ENGLISH, '', LONG, 'yes', 'no'], [*GERMAN, 'x', 'y', ' ', LONG])
DEV = (['', LONG, '  He\x85 sees\u2028😀 '], ['leer', '\t', 'b\rb'])


def write(folder, name, sides):
    for language, lines in zip(('en', 'de'), sides, strict=True):
        text = ''.join(f'{line}\n' for line in lines)
        (folder / f'{name}.{language}').write_bytes(text.encode())


@pytest.fixture
def config(tmp_path):
    folder = tmp_path / 'text'
    folder.mkdir()
    write(folder, 'train', TRAIN)
    write(folder, 'dev', DEV)
    write(folder, 'test', (ENGLISH[:2], GERMAN[:2]))
    return changed(Config(), source='text', dir=str(folder), dev='dev', pieces=300, max_len=30)


def changed(config, **options):
    return Config(data=Data(**{**vars(config.data), **options}))


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_arrays_hold_the_pieces_of_every_pair(config, tmp_path):
    prepared = corpus.prepare(config, tmp_path / 'cache')
    pieces = prepared.tokenizer
    train, dev = prepared.splits['train'], prepared.splits['dev']
    assert len(train) == 6
    for i in range(6):
        source, target = train.pair(i)
        assert source.tolist() == pieces.encode(ENGLISH[i])
        assert target.tolist() == pieces.encode(GERMAN[i])
        assert (train.source_lengths[i], train.target_lengths[i]) == (len(source), len(target))
    assert dev.pair(0)[0].tolist() == [1]
    decoded = [[pieces.decode(side) for side in dev.pair(i)] for i in range(len(dev))]
    assert decoded == [list(pair) for pair in zip(*DEV, strict=True)]
    assert train.source.dtype == np.uint16
    assert isinstance(train.source, np.memmap)


def test_raw_texts_are_kept_as_they_came(config, tmp_path):
    prepared = corpus.prepare(config, tmp_path / 'cache')
    assert prepared.texts('dev') == (list(DEV[0]), list(DEV[1]))
    assert prepared.texts('test') == (ENGLISH[:2], GERMAN[:2])
    assert {path.stem for path in prepared.folder.glob('*.txt')} == {
        *('dev.source', 'dev.target', 'test.source', 'test.target')
    }


def test_lock_file_counts(config, tmp_path, caplog):
    prepared = corpus.prepare(config, tmp_path / 'cache')
    lock = json.loads((prepared.folder / 'data.lock.json').read_text())
    assert lock.pop('lock_sha256')
    assert lock == prepared.lock
    train = prepared.splits['train']
    assert lock['splits']['train'] == {
        'pairs': 6,
        'source_tokens': sum(len(train.pair(i)[0]) for i in range(6)),
        'target_tokens': sum(len(train.pair(i)[1]) for i in range(6)),
        'dropped': {
            'empty': {'count': 2, 'first': ['train.en:7', 'train.de:9']},
            'long': {'count': 2, 'first': ['train.en:8', 'train.de:10']},
        },
    }
    assert lock['splits']['dev']['pairs'] == 3
    assert lock['splits']['dev']['dropped'] == {}
    assert [(f['name'], f['lines']) for f in lock['files']['dev']] == [('dev.en', 3), ('dev.de', 3)]
    assert lock['tokenizer_sha256'] == prepared.tokenizer.sha256
    assert set(lock['checksums']) | {'data.lock.json'} == set(content(prepared.folder))
    drops = (prepared.folder / 'drops.tsv').read_text()
    assert sorted(drops.splitlines()) == [
        'empty\ttrain.de\t9',
        'empty\ttrain.en\t7',
        'long\ttrain.de\t10',
        'long\ttrain.en\t8',
    ]
    assert "data.train: left out {'empty': 2, 'long': 2}" in caplog.text


def test_a_sentence_of_max_len_is_kept(config, tmp_path):
    longest = max(
        len(side)
        for i in range(6)
        for side in corpus.prepare(config, tmp_path / 'cache').splits['train'].pair(i)
    )
    exact = corpus.prepare(changed(config, max_len=longest), tmp_path / 'cache')
    assert len(exact.splits['train']) == 6
    short = corpus.prepare(changed(config, max_len=longest - 1), tmp_path / 'cache')
    assert len(short.splits['train']) < 6


def test_grammar_has_a_pronoun_split(tmp_path, monkeypatch):
    english_german = list(zip(ENGLISH, GERMAN, strict=True))
    monkeypatch.setattr(corpus.grammar, 'sentence_pairs', lambda split: english_german)
    data = Data(source='grammar', pieces=300)
    prepared = corpus.prepare(Config(data=data), tmp_path)
    assert list(prepared.splits) == ['train', 'dev', 'test', 'pronoun']
    assert prepared.texts('pronoun') == (ENGLISH, GERMAN)
    # The pronouns that it counts are German.
    back = dataclasses.replace(data, source_language='de', target_language='en')
    backwards = corpus.prepare(Config(data=back), tmp_path)
    assert list(backwards.splits) == ['train', 'dev', 'test']
    assert backwards.texts('test') == (GERMAN, ENGLISH)
    assert prepared.lock['versions']['grammar'] == corpus.grammar.VERSION
    monkeypatch.setattr(corpus.grammar, 'VERSION', corpus.grammar.VERSION + 1)
    assert corpus.prepare(Config(data=data), tmp_path).folder != prepared.folder


def test_small_chunks_give_the_same_files(config, tmp_path, monkeypatch):
    whole = corpus.prepare(config, tmp_path / 'cache')
    monkeypatch.setattr(build, '_CHUNK', 2)
    chunked = corpus.prepare(config, tmp_path / 'other')
    assert chunked.folder.name == whole.folder.name
    before, after = content(whole.folder), content(chunked.folder)
    # Blank pairs are met when a chunk is read, long ones behind it.
    drops = [sorted(files.pop('drops.tsv').splitlines()) for files in (before, after)]
    locks = [json.loads(files.pop('data.lock.json')) for files in (before, after)]
    assert drops[0] == drops[1]
    assert locks[0]['splits'] == locks[1]['splits']
    assert after == before


def test_large_vocabularies_take_four_bytes(config, tmp_path, monkeypatch):
    class Large(build.Tokenizer):
        def __init__(self, model):
            super().__init__(model)
            self.size = 70_000

        def encode_batch(self, texts):
            return [[69_999, 1] for _ in texts]

    monkeypatch.setattr(build, 'Tokenizer', Large)
    train = corpus.prepare(config, tmp_path / 'cache').splits['train']
    assert train.source.dtype == np.int32
    assert train.pair(5)[0].tolist() == [69_999, 1]


def test_tokenizer_learns_from_evenly_spaced_pairs(config, tmp_path, monkeypatch):
    seen = []
    train = build.tokenizer.train

    def spy(sentences, pieces):
        seen.extend(sentences)
        return train(ENGLISH + GERMAN, pieces)

    monkeypatch.setattr(build.tokenizer, 'train', spy)
    # 20 sentences, of which at most 7 are taken: every third pair that has two sides.
    monkeypatch.setattr(build, '_TRAINED_ON', 7)
    corpus.prepare(config, tmp_path / 'cache')
    assert seen == [ENGLISH[0], GERMAN[0], ENGLISH[3], GERMAN[3], LONG, 'y']


def test_the_first_training_pairs(config, tmp_path):
    """So many are read, told as progress, and in the lock file with what is dropped of them."""
    seen = []
    few = changed(config, train_pairs=7)
    prepared = corpus.prepare(few, tmp_path / 'cache', progress=lambda *told: seen.append(told))
    made = prepared.lock['splits']['train']
    assert made['pairs'] + sum(drop['count'] for drop in made['dropped'].values()) == 7
    assert made['dropped']['empty']['count'] == 1
    assert {total for stage, _, total in seen if stage == 'train'} == {7}
    assert len(prepared.splits['dev']) == len(DEV[0])


def test_second_time_only_reads(config, tmp_path, monkeypatch):
    first = corpus.prepare(config, tmp_path / 'cache')
    for name in ('_build', '_alone'):
        monkeypatch.setattr(corpus, name, None)
    second = corpus.prepare(config, tmp_path / 'cache')
    assert second.lock == first.lock
    assert second.splits['dev'].pair(1)[0].tolist() == first.splits['dev'].pair(1)[0].tolist()


def test_key_is_what_determines_the_content(config, tmp_path):
    def key(config, splits=None):
        return corpus.prepare(config, tmp_path / 'cache', splits).folder.name

    first = key(config)
    moved = tmp_path / 'moved'
    (tmp_path / 'text').rename(moved)
    config = changed(config, dir=str(moved))
    assert key(config) == first
    assert key(changed(config, name='unused', batch_tokens=7, row_len=999)) == first
    keys = {
        first,
        key(config, ('train', 'dev')),
        key(changed(config, pieces=301)),
        key(changed(config, max_len=29)),
        key(changed(config, train_pairs=8)),
        key(changed(config, source_language='de', target_language='en')),
        key(changed(config, test='dev')),
    }
    write(moved, 'dev', (['a', 'b', 'c'], ['x', 'y', 'z']))
    assert len(keys | {key(config)}) == 8


def flip(data):
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


FILES = [
    *('data.lock.json', 'tokenizer.model', 'drops.tsv', 'train.source.bin', 'dev.target.bin'),
    *('train.target_offsets.bin', 'test.source_offsets.bin', 'dev.source.txt', 'test.target.txt'),
]


@pytest.mark.parametrize('damage', ['flip', 'truncate', 'empty', 'remove'])
def test_damage_is_seen_and_mended(config, tmp_path, caplog, damage):
    folder = corpus.prepare(config, tmp_path / 'cache').folder
    whole = content(folder)
    for name in FILES:
        path = folder / name
        if damage == 'remove':
            path.unlink()
        else:
            cuts = {'flip': flip(whole[name]), 'truncate': whole[name][:-3], 'empty': b''}
            path.write_bytes(cuts[damage])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            again = corpus.prepare(config, tmp_path / 'cache')
        notices = [record.getMessage() for record in caplog.records]
        (notice,) = [text for text in notices if 'the cache is made again' in text]
        assert name in notice
        assert content(again.folder) == whole
        assert list((tmp_path / 'cache').iterdir()) == [folder]


def test_an_edited_lock_file_is_damage(config, tmp_path):
    folder = corpus.prepare(config, tmp_path / 'cache').folder
    lock = folder / 'data.lock.json'
    whole = lock.read_text()
    other = whole.replace('"pairs": 6', '"pairs": 7')
    for edited in (other, '[]', '{}', '7', '{"lock_sha256": 1}'):
        lock.write_text(edited)
        corpus.prepare(config, tmp_path / 'cache')
        assert lock.read_text() == whole


@pytest.mark.parametrize(
    'error',
    [
        RuntimeError,
        KeyboardInterrupt,
        OSError(errno.ENOSPC, 'full'),
        OSError(errno.EIO, 'broken', 'some file'),
    ],
)
def test_after_an_accident_it_goes_on(config, tmp_path, monkeypatch, error):
    whole = content(corpus.prepare(config, tmp_path / 'other').folder)
    cache = tmp_path / 'cache'
    encode = corpus.Tokenizer.encode_batch

    def fails(self, texts):
        if 'leer' in texts:
            raise error
        return encode(self, texts)

    with monkeypatch.context() as patch:
        patch.setattr(corpus.Tokenizer, 'encode_batch', fails)
        with pytest.raises(error if isinstance(error, type) else OSError) as caught:
            corpus.prepare(config, cache)
    if isinstance(error, OSError):
        named = {errno.ENOSPC: str(cache), errno.EIO: 'some file'}
        assert caught.value.filename == named[error.errno]
    (unfinished,) = cache.iterdir()
    assert unfinished.name.startswith('.')
    monkeypatch.setattr(build.tokenizer, 'train', None)
    prepared = corpus.prepare(config, cache)
    assert content(prepared.folder) == whole
    assert list(cache.iterdir()) == [prepared.folder]


def test_whatever_was_written_last_it_goes_on(config, tmp_path, monkeypatch):
    monkeypatch.setattr(build, '_CHUNK', 4)
    sync = os.fsync
    calls, last = 0, None

    def interrupted(handle):
        nonlocal calls
        calls += 1
        if calls == last:
            os.write(handle, b'half of what')
            raise KeyboardInterrupt
        sync(handle)

    monkeypatch.setattr(os, 'fsync', interrupted)
    whole = content(corpus.prepare(config, tmp_path / 'whole').folder)
    for number in range(1, calls + 1, 3):
        cache = tmp_path / str(number)
        calls, last = 0, number
        with pytest.raises(KeyboardInterrupt):
            corpus.prepare(config, cache)
        prepared = corpus.prepare(config, cache)
        assert content(prepared.folder) == whole
        assert list(cache.iterdir()) == [prepared.folder]


def test_interrupted_between_lock_file_and_journal(config, tmp_path, monkeypatch):
    def interrupted(path):
        raise KeyboardInterrupt

    whole = content(corpus.prepare(config, tmp_path / 'other').folder)
    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, 'unlink', interrupted)
        with pytest.raises(KeyboardInterrupt):
            corpus.prepare(config, tmp_path / 'cache')
    assert content(corpus.prepare(config, tmp_path / 'cache').folder) == whole


@pytest.mark.parametrize('name', ['tokenizer.model', 'journal.json', 'dev.source.txt'])
@pytest.mark.parametrize('damage', [lambda path: path.unlink(), lambda path: path.write_bytes(b'x')])
def test_a_damaged_beginning_is_made_again(config, tmp_path, monkeypatch, name, damage):
    whole = content(corpus.prepare(config, tmp_path / 'other').folder)

    def stop(stage, done, total):
        if stage == 'test':
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        corpus.prepare(config, tmp_path / 'cache', progress=stop)
    (unfinished,) = (tmp_path / 'cache').iterdir()
    damage(unfinished / name)
    assert content(corpus.prepare(config, tmp_path / 'cache').folder) == whole


KILLED = """
import os, signal, sys
from transformer.config import Config, Data
from transformer.data import build, corpus

folder, cache, moment, done = sys.argv[1:]
build._CHUNK = 4
data = Data(source='text', dir=folder, dev='dev', pieces=300, max_len=30)

def progress(stage, units, total):
    if (stage, units) == (moment, int(done)):
        os.kill(os.getpid(), signal.SIGKILL)

corpus.prepare(Config(data=data), cache, progress=progress)
"""


@pytest.mark.parametrize(
    'moment, trained, encoded',
    [
        # SentencePiece has read all of the text; 10 sides of chunks are to be encoded behind it.
        (('tokenizer', 10), 1, 10),
        (('train', 0), 0, 10),
        (('train', 4), 0, 8),
        (('test', 2), 0, 0),
    ],
)
def test_killed_and_restarted(config, tmp_path, monkeypatch, moment, trained, encoded):
    monkeypatch.setattr(build, '_CHUNK', 4)
    undisturbed = corpus.prepare(config, tmp_path / 'other')
    command = [sys.executable, '-c', KILLED, config.data.dir, tmp_path / 'cache', *map(str, moment)]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    (unfinished,) = (tmp_path / 'cache').iterdir()
    assert unfinished.name.startswith(f'.{undisturbed.folder.name}.')
    train, encode = build.tokenizer.train, build.Tokenizer.encode_batch
    calls = []
    spies = {
        'train': lambda *args: (calls.append('train'), train(*args))[1],
        'encode_batch': lambda *args: (calls.append('encode'), encode(*args))[1],
    }
    monkeypatch.setattr(build.tokenizer, 'train', spies['train'])
    monkeypatch.setattr(build.Tokenizer, 'encode_batch', spies['encode_batch'])
    prepared = corpus.prepare(config, tmp_path / 'cache')
    assert (calls.count('train'), calls.count('encode')) == (trained, encoded)
    assert content(prepared.folder) == content(undisturbed.folder)
    assert list((tmp_path / 'cache').iterdir()) == [prepared.folder]


def test_progress_counts_every_stage(config, tmp_path, monkeypatch):
    monkeypatch.setattr(build, '_CHUNK', 4)
    seen = []
    corpus.prepare(config, tmp_path / 'cache', progress=lambda *call: seen.append(call))
    assert seen == [
        *(('tokenizer', done, 11) for done in (0, 10, 11)),
        *(('train', done, 10) for done in (0, 4, 8, 10)),
        *(('dev', done, 3) for done in (0, 3)),
        *(('test', done, 2) for done in (0, 2)),
    ]
    corpus.prepare(config, tmp_path / 'cache', progress=lambda *call: pytest.fail('nothing is made'))


def test_threads_change_nothing(config, tmp_path, monkeypatch):
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(os, 'cpu_count', lambda: threads)
        prepared = corpus.prepare(config, tmp_path / str(threads))
        found.append(content(prepared.folder))
    assert found[0] == found[1]


def test_unfinished_folders_do_not_gather(config, tmp_path):
    cache = tmp_path / 'cache'
    names = ('.0123.host', '.0123.host.89ab', '.0123.host.damaged', '.4567.host')
    for name in names:
        (cache / name).mkdir(parents=True)
        (cache / name / 'train.source.bin').write_bytes(b'x')
    week = 7 * 24 * 3600
    for name in names[:3]:
        os.utime(cache / name, (0, time.time() - week - 60))
    os.utime(cache / names[3], (0, time.time() - week + 60))
    prepared = corpus.prepare(config, cache)
    assert {path.name for path in cache.iterdir()} == {prepared.folder.name, names[3]}


def test_a_cache_that_cannot_be_a_folder(config, tmp_path):
    (tmp_path / 'cache').write_text('')
    with pytest.raises(OSError) as error:
        corpus.prepare(config, tmp_path / 'cache')
    assert str(tmp_path / 'cache') in str(error.value.filename)


def prepare_twice_at_once(config, cache):
    found = []
    threads = [threading.Thread(target=lambda: found.append(corpus.prepare(config, cache))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_processes_wait_for_each_other(config, tmp_path, monkeypatch, caplog):
    calls = []
    write = build.write
    monkeypatch.setattr(build, 'write', lambda *args: (calls.append(1), write(*args)))
    first, second = prepare_twice_at_once(config, tmp_path / 'cache')
    assert first.lock == second.lock
    assert len(calls) == 1
    assert 'waiting for another process' in caplog.text


def test_without_locks_both_end_well(config, tmp_path, monkeypatch):
    def refuses(handle, operation):
        raise OSError(errno.ENOLCK, 'no locks')

    write = build.write
    meet = threading.Barrier(2)
    monkeypatch.setattr(corpus.fcntl, 'flock', refuses)
    monkeypatch.setattr(build, 'write', lambda *args: (write(*args), meet.wait(20)))
    first, second = prepare_twice_at_once(config, tmp_path / 'cache')
    assert first.lock == second.lock
    assert list((tmp_path / 'cache').iterdir()) == [first.folder]


def test_without_locks_an_accident_leaves_nothing(config, tmp_path, monkeypatch):
    def refuses(handle, operation):
        raise OSError(errno.ENOLCK, 'no locks')

    def stop(stage, done, total):
        raise KeyboardInterrupt

    monkeypatch.setattr(corpus.fcntl, 'flock', refuses)
    with pytest.raises(KeyboardInterrupt):
        corpus.prepare(config, tmp_path / 'cache', progress=stop)
    assert list((tmp_path / 'cache').iterdir()) == []


def test_a_faster_process_wins(config, tmp_path, monkeypatch):
    rename = pathlib.Path.rename

    def after_another(path, target):
        shutil.copytree(path, target)
        return rename(path, target)

    monkeypatch.setattr(pathlib.Path, 'rename', after_another)
    prepared = corpus.prepare(config, tmp_path / 'cache')
    assert len(prepared.splits['train']) == 6
    assert list((tmp_path / 'cache').iterdir()) == [prepared.folder]


def test_a_rename_that_fails_is_told(config, tmp_path, monkeypatch):
    def fails(path, target):
        raise OSError(errno.EROFS, 'read-only', str(target))

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, 'rename', fails)
        with pytest.raises(OSError, match='read-only'):
            corpus.prepare(config, tmp_path / 'cache')
    # The folder lacks its name only.
    monkeypatch.setattr(build, 'write', None)
    assert len(corpus.prepare(config, tmp_path / 'cache').splits['train']) == 6


@pytest.mark.parametrize(
    'options, expected',
    [
        ({'max_len': 2}, "data.train: no pair to use; dropped {'empty': 2, 'long': 8}"),
        ({'dev': 'nothing'}, 'data.dev: no pair to use; dropped {}'),
        ({'pieces': 37_000}, 'data.pieces=37000: the training text allows'),
    ],
)
def test_too_little_data(config, tmp_path, options, expected):
    write(tmp_path / 'text', 'nothing', ([], []))
    with pytest.raises(ConfigError) as error:
        corpus.prepare(changed(config, **options), tmp_path / 'cache')
    assert str(error.value).startswith(expected)
    assert list((tmp_path / 'cache').iterdir()) == []
