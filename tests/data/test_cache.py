"""The cache: its content, its key, its lock file, and the effects of damage and accidents."""

import dataclasses
import errno
import json
import logging
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from etils import epath

from transformer.config import ConfigError, Data
from transformer.data import build, cache, codec, vocabulary
from transformer.data.fields import Example, Lines, Reading, Text
from transformer.data.sources import reader
from transformer.data.spellings import Spellings
from transformer.data.text_pairs import References
from transformer.data.tokenizers import foreign, sentence_piece
from transformer.data.tokenizers.byte import ByteTokenizer
from transformer.data.tokenizers.sentence_piece import SentencePieceTokenizer

ENGLISH = [f'{who} sees {what}.' for who in ('He', 'A cat', 'Nobody') for what in ('it', 'a dog')]
GERMAN = [f'{who} sieht {what}.' for who in ('Er', 'Das Kätzchen', 'Ob') for what in ('es', 'x')]
LONG = ' '.join(ENGLISH)
TRAIN = ([*ENGLISH, '', LONG, 'yes', 'no'], [*GERMAN, 'x', 'y', ' ', LONG])
DEV = (['', LONG, '  He\x85 sees\u2028😀 '], ['leer', '\t', 'b\rb'])


def write(folder, name, sides):
    for language, lines in zip(('en', 'de'), sides, strict=True):
        text = ''.join(f'{line}\n' for line in lines)
        (folder / f'{name}.{language}').write_bytes(text.encode())


# What a translation reads, and what a language model does.
PAIRS = ('source', 'source_language', 'target_language', 'pieces', 'max_len', 'train_examples')
SEPARATE = (*PAIRS, 'vocabulary')
TEXT = ('source', 'language', 'documents', 'batching', 'tokenizer', 'pieces', 'max_len', 'train_examples')


def prepare(data, folder, **keywords):
    """Prepares the corpus of sentence pairs."""
    fields = {
        'source': Text(data.source_language, 'data.source_language'),
        'target': Text(data.target_language, 'data.target_language'),
    }
    options = PAIRS if data.vocabulary == 'joint' else SEPARATE
    return cache.prepare(data, Reading(fields, options), folder, **keywords)


def prepare_text(data, folder, **keywords):
    """Prepares the corpus of one text."""
    text = Text(data.language, 'data.language', data.documents == 'files')
    reading = Reading({'text': text}, TEXT, any_length=data.batching == 'running')
    return cache.prepare(data, reading, folder, **keywords)


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / 'text'
    folder.mkdir()
    write(folder, 'train', TRAIN)
    write(folder, 'dev', DEV)
    write(folder, 'test', (ENGLISH[:2], GERMAN[:2]))
    return Data(source='text', dir=str(folder), dev='dev', pieces=300, max_len=30)


changed = dataclasses.replace


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_arrays_hold_the_pieces_of_every_pair(data, tmp_path):
    dataset = prepare(data, tmp_path / 'cache')
    pieces = dataset.codecs['source']
    assert dataset.codecs['target'] is pieces
    train, dev = dataset.splits['train'], dataset.splits['dev']
    assert len(train) == 6
    for i in range(6):
        source, target = train.example(i).values()
        assert source.tolist() == pieces.encode(ENGLISH[i])
        assert target.tolist() == pieces.encode(GERMAN[i])
        assert [field.lengths[i] for field in train.fields.values()] == [len(source), len(target)]
    assert list(train.fields) == list(train.example(0)) == ['source', 'target']
    assert dev.example(0)['source'].tolist() == [1]
    decoded = [[pieces.decode(side) for side in dev.example(i).values()] for i in range(len(dev))]
    assert decoded == [list(pair) for pair in zip(*DEV, strict=True)]
    assert train.fields['source'].tokens.dtype == np.uint16
    assert isinstance(train.fields['source'].tokens, np.memmap)


def test_a_cache_in_the_cloud_is_refused(data):
    with pytest.raises(ConfigError, match='^gs://bucket/corpora: .*TRANSFORMER_CACHE'):
        prepare(data, epath.Path('gs://bucket/corpora'))


def test_raw_texts_are_kept_as_they_came(data, tmp_path):
    dataset = prepare(data, tmp_path / 'cache')
    assert dataset.texts('dev') == {'source': DEV[0], 'target': DEV[1]}
    assert dataset.texts('test') == {'source': ENGLISH[:2], 'target': GERMAN[:2]}
    assert dataset.raw('test', 'target') == ''.join(f'{line}\n' for line in GERMAN[:2]).encode()
    assert {path.stem for path in dataset.folder.glob('*.txt')} == {
        *('dev.source', 'dev.target', 'test.source', 'test.target')
    }


def test_scored_examples_in_the_training_text_are_counted(data, tmp_path, caplog):
    """A pair that is there as a whole counts once; one whose sides are there in other pairs does not."""
    english, german = [ENGLISH[0], ENGLISH[0], ENGLISH[1], 'New.'], [GERMAN[0], GERMAN[0], GERMAN[0], 'Neu.']
    assert (ENGLISH[0], GERMAN[0]) in zip(*TRAIN, strict=True)
    write(tmp_path / 'text', 'dev', (english, german))
    with caplog.at_level(logging.WARNING):
        prepare(data, tmp_path / 'cache')
    assert 'data.dev: 1 of its 3 distinct examples' in caplog.text


def test_blank_lines_between_documents_are_no_examples_of_train(tmp_path, caplog):
    for name, text in {'train': 'a b\n\nc d\n', 'dev': 'e f\n\ng h\n', 'test': 'i\n\nj\n'}.items():
        (tmp_path / f'{name}.en').write_text(text * 9)
    data = Data(source='text', dir=str(tmp_path), language='en', dev='dev', tokenizer='words', pieces=7)
    reading = Reading({'text': Lines('en', 'data.language')}, TEXT, any_length=True)
    with caplog.at_level(logging.WARNING):
        cache.prepare(data, reading, tmp_path / 'cache')
    assert 'distinct' not in caplog.text


def test_an_example_with_several_right_texts_is_found_by_the_first(tmp_path):
    texts = {'question': Text(None), 'answer': References(None)}
    row = Example({'question': 'Who?', 'answer': 'the dog\ta dog'}, {}, 1)
    assert build._texts(Reading(texts, ()), row) == ('Who?', 'the dog')
    assert Spellings(None).compared('dog\tHund\tHunt') == 'Hund'


def test_files_that_read_as_each_others_language(data, tmp_path, caplog):
    english, german = ['The dog of the man is here.'] * 30, ['Der Hund und das Pferd.'] * 30
    for sides, split in (((english, german), 'train'), ((german, english), 'dev')):
        write(tmp_path / 'text', split, sides)
    with caplog.at_level(logging.WARNING):
        prepare(data, tmp_path / 'cache')
    [line] = [record.getMessage() for record in caplog.records if ' reads as ' in record.getMessage()]
    assert line == (
        'data.dev: source reads as de, not as data.source_language=en; '
        'target reads as en, not as data.target_language=de'
    )


def test_lock_file_counts(data, tmp_path, caplog, monkeypatch):
    synced, sync = [], os.fsync
    monkeypatch.setattr(os, 'fsync', lambda file: (synced.append(os.fstat(file).st_size), sync(file)))
    dataset = prepare(data, tmp_path / 'cache')
    # After an interruption, the next call reads both files.
    durable = [(dataset.folder / name).stat().st_size for name in ('tokenizer.model', 'data.lock.json')]
    assert set(durable) <= set(synced)
    lock = json.loads((dataset.folder / 'data.lock.json').read_text())
    assert lock.pop('lock_sha256')
    assert lock == dataset.manifest
    train = dataset.splits['train']
    assert lock['splits']['train'] == {
        'pairs': 6,
        'source_tokens': sum(len(train.example(i)['source']) for i in range(6)),
        'target_tokens': sum(len(train.example(i)['target']) for i in range(6)),
        'dropped': {
            'empty': {'count': 2, 'first': ['train.en:7', 'train.de:9']},
            'long': {'count': 2, 'first': ['train.en:8', 'train.de:10']},
        },
    }
    assert lock['splits']['dev']['pairs'] == 3
    assert lock['splits']['dev']['dropped'] == {}
    assert [(f['name'], f['lines']) for f in lock['files']['dev']] == [('dev.en', 3), ('dev.de', 3)]
    assert lock['tokenizer_sha256'] == dataset.codecs['source'].sha256
    assert set(lock['checksums']) | {'data.lock.json'} == set(content(dataset.folder))
    drops = (dataset.folder / 'drops.tsv').read_text()
    assert sorted(drops.splitlines()) == [
        'empty\ttrain.de\t9',
        'empty\ttrain.en\t7',
        'long\ttrain.de\t10',
        'long\ttrain.en\t8',
    ]
    listed = dataset.folder / 'drops.tsv'
    assert f'data.train: left out 2 empty, 2 long; they are listed in {listed}' in caplog.text


def test_a_sentence_of_max_len_is_kept(data, tmp_path):
    longest = max(
        len(side)
        for i in range(6)
        for side in prepare(data, tmp_path / 'cache').splits['train'].example(i).values()
    )
    exact = prepare(changed(data, max_len=longest), tmp_path / 'cache')
    assert len(exact.splits['train']) == 6
    short = prepare(changed(data, max_len=longest - 1), tmp_path / 'cache')
    assert len(short.splits['train']) < 6


@pytest.mark.parametrize(
    'options, name',
    [
        ({}, '45625e5de78d33555c091033f2e18cc9'),
        (
            {'train_examples': 7, 'source_language': 'de', 'target_language': 'en'},
            'c38f6b291e2bd7e1e717b87e57e2150e',
        ),
        ({'source': 'grammar', 'max_len': 256}, '179331a8e45fc4843a1f79ede1b03994'),
    ],
)
def test_caches_of_sentence_pairs_are_found_again(data, tmp_path, monkeypatch, options, name):
    """Folders of format 3 keep their names, so that a corpus is not made again."""
    monkeypatch.setattr(cache.sentencepiece, '__version__', '0.2.3')
    monkeypatch.setattr(reader.sentences, 'VERSION', 2)
    english_german = list(zip(ENGLISH, GERMAN, strict=True))
    monkeypatch.setattr(reader.sentences, 'sentence_pairs', lambda split: english_german)
    assert prepare(changed(data, **options), tmp_path / 'cache').folder.name == name


def test_grammar_has_a_pronoun_split(tmp_path, monkeypatch):
    english_german = list(zip(ENGLISH, GERMAN, strict=True))
    monkeypatch.setattr(reader.sentences, 'sentence_pairs', lambda split: english_german)
    data = Data(source='grammar', pieces=300)
    dataset = prepare(data, tmp_path)
    assert list(dataset.splits) == ['train', 'dev', 'test', 'pronoun']
    assert dataset.texts('pronoun') == {'source': ENGLISH, 'target': GERMAN}
    # The pronouns that it counts are German.
    back = dataclasses.replace(data, source_language='de', target_language='en')
    backwards = prepare(back, tmp_path)
    assert list(backwards.splits) == ['train', 'dev', 'test']
    assert backwards.texts('test') == {'source': GERMAN, 'target': ENGLISH}
    assert dataset.manifest['versions']['grammar'] == reader.sentences.VERSION
    monkeypatch.setattr(reader.sentences, 'VERSION', reader.sentences.VERSION + 1)
    assert prepare(data, tmp_path).folder != dataset.folder


def test_small_chunks_give_the_same_files(data, tmp_path, monkeypatch):
    whole = prepare(data, tmp_path / 'cache')
    monkeypatch.setattr(build, '_CHUNK', 2)
    chunked = prepare(data, tmp_path / 'other')
    assert chunked.folder.name == whole.folder.name
    before, after = content(whole.folder), content(chunked.folder)
    # Blank pairs are met when a chunk is read, long ones behind it.
    drops = [sorted(files.pop('drops.tsv').splitlines()) for files in (before, after)]
    locks = [json.loads(files.pop('data.lock.json')) for files in (before, after)]
    assert drops[0] == drops[1]
    assert locks[0]['splits'] == locks[1]['splits']
    assert after == before


def test_large_vocabularies_take_four_bytes(data, tmp_path, monkeypatch):
    class Large(SentencePieceTokenizer):
        def __init__(self, model):
            super().__init__(model)
            self.size = 70_000

        def encode_batch(self, texts):
            return [[69_999, 1] for _ in texts]

    monkeypatch.setattr(sentence_piece, 'SentencePieceTokenizer', Large)
    train = prepare(data, tmp_path / 'cache').splits['train']
    assert train.fields['source'].tokens.dtype == np.int32
    assert train.example(5)['source'].tolist() == [69_999, 1]


def test_tokenizer_learns_from_evenly_spaced_pairs(data, tmp_path, monkeypatch):
    seen = []
    train = build.vocabulary.train

    def spy(sentences, *options):
        seen.extend(sentences)
        return train(ENGLISH + GERMAN, *options)

    monkeypatch.setattr(build.vocabulary, 'train', spy)
    # 20 sentences, of which at most 7 are taken: every third pair that has two sides.
    monkeypatch.setattr(build, '_TRAINED_ON', 7)
    prepare(data, tmp_path / 'cache')
    assert seen == [ENGLISH[0], GERMAN[0], ENGLISH[3], GERMAN[3], LONG, 'y']


def test_the_first_training_pairs(data, tmp_path):
    """So many are read, told as progress, and in the lock file with what is dropped of them."""
    seen = []
    few = changed(data, train_examples=7)
    dataset = prepare(few, tmp_path / 'cache', progress=lambda *told: seen.append(told))
    made = dataset.manifest['splits']['train']
    assert made['pairs'] + sum(drop['count'] for drop in made['dropped'].values()) == 7
    assert made['dropped']['empty']['count'] == 1
    assert {total for stage, _, total in seen if stage == 'train'} == {7}
    assert len(dataset.splits['dev']) == len(DEV[0])


def test_second_time_only_reads(data, tmp_path, monkeypatch):
    first = prepare(data, tmp_path / 'cache')
    for name in ('_build', 'locks'):
        monkeypatch.setattr(cache, name, None)
    second = prepare(data, tmp_path / 'cache')
    assert second.manifest == first.manifest
    assert second.splits['dev'].example(1)['source'].tolist() == (
        first.splits['dev'].example(1)['source'].tolist()
    )


def test_key_is_what_determines_the_content(data, tmp_path):
    def key(data):
        return prepare(data, tmp_path / 'cache').folder.name

    first = key(data)
    moved = tmp_path / 'moved'
    (tmp_path / 'text').rename(moved)
    data = changed(data, dir=str(moved))
    assert key(data) == first
    assert key(changed(data, name='unused', batch_tokens=7, row_len=999)) == first
    keys = {
        first,
        key(changed(data, pieces=301)),
        key(changed(data, max_len=29)),
        key(changed(data, train_examples=8)),
        key(changed(data, source_language='de', target_language='en')),
        key(changed(data, test='dev')),
    }
    write(moved, 'dev', (['a', 'b', 'c'], ['x', 'y', 'z']))
    assert len(keys | {key(data)}) == 7


def flip(data):
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


FILES = [
    *('data.lock.json', 'tokenizer.model', 'drops.tsv', 'train.source.bin', 'dev.target.bin'),
    *('train.target_offsets.bin', 'test.source_offsets.bin', 'dev.source.txt', 'test.target.txt'),
]


@pytest.mark.parametrize('damage', ['flip', 'truncate', 'empty', 'remove'])
def test_damage_is_seen_and_mended(data, tmp_path, caplog, damage):
    folder = prepare(data, tmp_path / 'cache').folder
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
            again = prepare(data, tmp_path / 'cache')
        notices = [record.getMessage() for record in caplog.records]
        (notice,) = [text for text in notices if 'the cache is made again' in text]
        assert name in notice
        assert content(again.folder) == whole
        assert list((tmp_path / 'cache').iterdir()) == [folder]


def test_an_edited_lock_file_is_damage(data, tmp_path):
    folder = prepare(data, tmp_path / 'cache').folder
    lock = folder / 'data.lock.json'
    whole = lock.read_text()
    other = whole.replace('"pairs": 6', '"pairs": 7')
    for edited in (other, '[]', '{}', '7', '{"lock_sha256": 1}'):
        lock.write_text(edited)
        prepare(data, tmp_path / 'cache')
        assert lock.read_text() == whole


@pytest.mark.parametrize(
    'error',
    [
        RuntimeError,
        KeyboardInterrupt,
        OSError(errno.ENOSPC, 'full'),
        OSError(errno.EIO, 'broken', 'some file'),
        OSError('no server'),
    ],
)
def test_after_an_accident_it_goes_on(data, tmp_path, monkeypatch, error):
    whole = content(prepare(data, tmp_path / 'other').folder)
    folder = tmp_path / 'cache'
    encode = SentencePieceTokenizer.encode_batch

    def fails(self, texts):
        if 'leer' in texts:
            raise error
        return encode(self, texts)

    with monkeypatch.context() as patch:
        patch.setattr(SentencePieceTokenizer, 'encode_batch', fails)
        with pytest.raises(error if isinstance(error, type) else OSError) as caught:
            prepare(data, folder)
    if isinstance(error, OSError):
        named = {errno.ENOSPC: str(folder), errno.EIO: 'some file', None: None}
        assert caught.value.filename == named[error.errno]
    (unfinished,) = folder.iterdir()
    assert unfinished.name.startswith('.')
    monkeypatch.setattr(build.vocabulary, 'train', None)
    dataset = prepare(data, folder)
    assert content(dataset.folder) == whole
    assert list(folder.iterdir()) == [dataset.folder]


@pytest.mark.parametrize('name', ['tokenizer.model', 'dev.source.txt'])
@pytest.mark.parametrize('damage', [lambda path: path.unlink(), lambda path: path.write_bytes(b'x')])
def test_a_damaged_beginning_is_made_again(data, tmp_path, monkeypatch, name, damage):
    whole = content(prepare(data, tmp_path / 'other').folder)

    def stop(stage, done, total):
        if stage == 'test':
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(data, tmp_path / 'cache', progress=stop)
    (unfinished,) = (tmp_path / 'cache').iterdir()
    damage(unfinished / name)
    assert content(prepare(data, tmp_path / 'cache').folder) == whole


def test_two_learned_tokenizers_survive_an_accident(data, tmp_path, monkeypatch):
    """Both, although one is called otherwise in the end."""
    separate, learned = changed(data, vocabulary='separate', pieces=290), []
    train = build.vocabulary.train
    monkeypatch.setattr(
        build.vocabulary, 'train', lambda *how, **more: learned.append(1) or train(*how, **more)
    )
    whole = content(prepare(separate, tmp_path / 'other').folder)
    assert len(learned) == 2

    def stop(stage, done, total):
        if stage == 'train':
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(separate, tmp_path / 'cache', progress=stop)
    assert len(learned) == 4
    assert content(prepare(separate, tmp_path / 'cache').folder) == whole
    assert len(learned) == 4


def test_an_unfinished_folder_is_checked_before_it_gets_its_name(data, tmp_path):
    """After a power failure a folder can have its manifest, but not all of its arrays."""
    whole = prepare(data, tmp_path / 'cache').folder
    before = content(whole)
    unfinished = whole.with_name(f'.{whole.name}.{platform.node()}')
    whole.rename(unfinished)
    (unfinished / 'train.source.bin').write_bytes(b'')
    assert content(prepare(data, tmp_path / 'cache').folder) == before


KILLED = """
import os, signal, sys
from transformer.config import Data
from transformer.data import build, cache
from transformer.data.fields import Reading, Text

folder, place, moment, done = sys.argv[1:]
build._CHUNK = 4
data = Data(source='text', dir=folder, dev='dev', pieces=300, max_len=30)

def progress(stage, units, total):
    if (stage, units) == (moment, int(done)):
        os.kill(os.getpid(), signal.SIGKILL)

options = ('source', 'source_language', 'target_language', 'pieces', 'max_len', 'train_examples')
fields = {'source': Text('en', ''), 'target': Text('de', '')}
cache.prepare(data, Reading(fields, options), place, progress=progress)
"""


@pytest.mark.parametrize(
    'moment, trained', [(('tokenizer', 10), 1), (('train', 0), 0), (('train', 4), 0), (('test', 2), 0)]
)
def test_killed_and_restarted(data, tmp_path, monkeypatch, moment, trained):
    """The learned tokenizer is used again; the splits are read again."""
    monkeypatch.setattr(build, '_CHUNK', 4)
    undisturbed = prepare(data, tmp_path / 'other')
    command = [sys.executable, '-c', KILLED, data.dir, tmp_path / 'cache', *map(str, moment)]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    (unfinished,) = (tmp_path / 'cache').iterdir()
    assert unfinished.name.startswith(f'.{undisturbed.folder.name}.')
    train, calls = build.vocabulary.train, []
    monkeypatch.setattr(build.vocabulary, 'train', lambda *args: (calls.append(1), train(*args))[1])
    dataset = prepare(data, tmp_path / 'cache')
    assert len(calls) == trained
    assert content(dataset.folder) == content(undisturbed.folder)
    assert list((tmp_path / 'cache').iterdir()) == [dataset.folder]


def test_progress_counts_every_stage(data, tmp_path, monkeypatch):
    monkeypatch.setattr(build, '_CHUNK', 4)
    seen = []
    prepare(data, tmp_path / 'cache', progress=lambda *call: seen.append(call))
    assert seen == [
        *(('tokenizer', done, 11) for done in (0, 10, 11)),
        *(('train', done, 10) for done in (0, 4, 8, 10)),
        *(('dev', done, 3) for done in (0, 3)),
        *(('test', done, 2) for done in (0, 2)),
    ]
    prepare(data, tmp_path / 'cache', progress=lambda *call: pytest.fail('nothing is made'))


def test_threads_change_nothing(data, tmp_path, monkeypatch):
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(os, 'cpu_count', lambda: threads)
        dataset = prepare(data, tmp_path / str(threads))
        found.append(content(dataset.folder))
    assert found[0] == found[1]


def test_unfinished_folders_do_not_gather(data, tmp_path):
    folder = tmp_path / 'cache'
    names = ('.0123.host', '.0123.host.89ab', '.0123.host.damaged', '.4567.host')
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / 'train.source.bin').write_bytes(b'x')
    week = 7 * 24 * 3600
    for name in names[:3]:
        os.utime(folder / name, (0, time.time() - week - 60))
    os.utime(folder / names[3], (0, time.time() - week + 60))
    dataset = prepare(data, folder)
    assert {path.name for path in folder.iterdir()} == {dataset.folder.name, names[3]}


def test_a_cache_that_cannot_be_a_folder(data, tmp_path):
    (tmp_path / 'cache').write_text('')
    with pytest.raises(OSError) as error:
        prepare(data, tmp_path / 'cache')
    assert str(tmp_path / 'cache') in str(error.value.filename)


def prepare_twice_at_once(data, cache):
    found = []
    threads = [threading.Thread(target=lambda: found.append(prepare(data, cache))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_processes_wait_for_each_other(data, tmp_path, monkeypatch, caplog):
    calls = []
    write = build.write
    monkeypatch.setattr(build, 'write', lambda *args: (calls.append(1), write(*args)))
    first, second = prepare_twice_at_once(data, tmp_path / 'cache')
    assert first.manifest == second.manifest
    assert len(calls) == 1
    assert 'waiting for another process' in caplog.text


def test_without_locks_both_end_well(data, tmp_path, monkeypatch):
    def refuses(handle, operation):
        raise OSError(errno.ENOLCK, 'no locks')

    write = build.write
    meet = threading.Barrier(2)
    monkeypatch.setattr(cache.locks.fcntl, 'flock', refuses)
    monkeypatch.setattr(build, 'write', lambda *args: (write(*args), meet.wait(20)))
    first, second = prepare_twice_at_once(data, tmp_path / 'cache')
    assert first.manifest == second.manifest
    assert list((tmp_path / 'cache').iterdir()) == [first.folder]


def test_without_locks_an_accident_leaves_nothing(data, tmp_path, monkeypatch):
    def refuses(handle, operation):
        raise OSError(errno.ENOLCK, 'no locks')

    def stop(stage, done, total):
        raise KeyboardInterrupt

    monkeypatch.setattr(cache.locks.fcntl, 'flock', refuses)
    with pytest.raises(KeyboardInterrupt):
        prepare(data, tmp_path / 'cache', progress=stop)
    assert list((tmp_path / 'cache').iterdir()) == []


def test_a_faster_process_wins(data, tmp_path, monkeypatch):
    rename = pathlib.Path.rename

    def after_another(path, target):
        shutil.copytree(path, target)
        return rename(path, target)

    monkeypatch.setattr(pathlib.Path, 'rename', after_another)
    dataset = prepare(data, tmp_path / 'cache')
    assert len(dataset.splits['train']) == 6
    assert list((tmp_path / 'cache').iterdir()) == [dataset.folder]


def test_a_rename_that_fails_is_told(data, tmp_path, monkeypatch):
    def fails(path, target):
        raise OSError(errno.EROFS, 'read-only', str(target))

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, 'rename', fails)
        with pytest.raises(OSError, match='read-only'):
            prepare(data, tmp_path / 'cache')
    # The folder lacks its name only.
    monkeypatch.setattr(build, 'write', None)
    assert len(prepare(data, tmp_path / 'cache').splits['train']) == 6


@pytest.mark.parametrize(
    'options, expected',
    [
        ({'max_len': 2}, 'data.train: no example is left; left out 2 empty, 8 long (above data.max_len=2'),
        ({'dev': 'nothing'}, 'data.dev: nothing.en is empty'),
        ({'train': 'nothing'}, 'data.train: nothing.en is empty'),
        ({'train': 'blank'}, 'data.train: its text is empty'),
        ({'pieces': 37_000}, 'data.pieces=37000: the training text allows'),
    ],
)
def test_too_little_data(data, tmp_path, options, expected):
    write(tmp_path / 'text', 'nothing', ([], []))
    write(tmp_path / 'text', 'blank', ([' '] * 9, [' '] * 9))
    with pytest.raises(ConfigError) as error:
        prepare(changed(data, **options), tmp_path / 'cache')
    assert str(error.value).startswith(expected)
    assert list((tmp_path / 'cache').iterdir()) == []


@pytest.fixture
def text(tmp_path):
    """Returns the options of a language model of bytes on two files of verse."""
    folder = tmp_path / 'verse'
    folder.mkdir()
    (folder / 'a.txt').write_bytes(VERSE[0].encode())
    (folder / 'b.txt').write_bytes(VERSE[1].encode())
    return Data(
        **{'source': 'text', 'dir': str(folder), 'documents': 'files', 'batching': 'running'},
        **{'train': 'a.txt,b.txt', 'dev': 'b.txt', 'test': 'a.txt[50%:],b.txt'},
        **{'tokenizer': 'bytes', 'pieces': 259, 'max_len': 4},
    )


VERSE = ('Ein Vögel-\r\n\nchen 😀', '\n  of two\nlines\n')


def bytes_of(text):
    return [byte + 3 for byte in text.encode()] + [1]


def test_a_file_is_a_document(text, tmp_path, caplog):
    dataset = prepare_text(text, tmp_path / 'cache')
    half = VERSE[0][9:]
    assert len(VERSE[0]) == 19
    documents = {'train': VERSE, 'dev': VERSE[1:], 'test': (half, VERSE[1])}
    for split, expected in documents.items():
        made = dataset.splits[split]
        assert [made.example(i)['text'].tolist() for i in range(len(made))] == list(map(bytes_of, expected))
        assert list(made.fields) == ['text']
        assert dataset.manifest['splits'][split] == {
            'pairs': len(expected),
            'text_tokens': sum(len(bytes_of(document)) for document in expected),
            'dropped': {},
        }
    assert dataset.texts('dev') == {'text': [VERSE[1]]}
    assert dataset.texts('test') == {'text': [half, VERSE[1]]}
    assert dataset.raw('test', 'text') == (half + VERSE[1]).encode()
    assert not list(dataset.folder.glob('train*.txt'))
    assert dataset.codecs['text'].size == 259
    assert [(f['name'], f['lines']) for f in dataset.manifest['files']['test']] == [
        ('a.txt[50%:]', 3),
        ('b.txt', 3),
    ]
    # The file of dev is one of the training text's.
    assert {record.name for record in caplog.records} == {'transformer.data.build'}


def test_chunks_of_files_give_the_same_folder(text, tmp_path, monkeypatch):
    whole = content(prepare_text(text, tmp_path / 'cache').folder)
    monkeypatch.setattr(build, '_FILES', 1)
    encode = ByteTokenizer.encode_document
    calls = []

    def interrupted(self, document):
        calls.append(document)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return encode(self, document)

    with monkeypatch.context() as patch:
        patch.setattr(ByteTokenizer, 'encode_document', interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepare_text(text, tmp_path / 'other')
    assert content(prepare_text(text, tmp_path / 'other').folder) == whole


def test_whole_files_in_learned_pieces(text, tmp_path, monkeypatch):
    learned = []
    train = vocabulary.train

    def spy(sentences, *options):
        learned.extend(sentences)
        return train(learned, *options)

    monkeypatch.setattr(vocabulary, 'train', spy)
    seen = []
    bpe = changed(text, tokenizer='bpe', pieces=290)
    dataset = prepare_text(bpe, tmp_path / 'cache', progress=lambda *told: seen.append(told))
    assert learned == ['Ein Vögel-\r', '', 'chen 😀', '', '  of two', 'lines']
    assert seen[:3] == [('tokenizer', done, 7) for done in (0, 6, 7)]
    made = dataset.splits['train']
    assert [dataset.codecs['text'].decode(made.example(i)['text']) for i in range(2)] == list(VERSE)
    assert all(made.example(i)['text'].tolist().count(1) == 1 for i in range(2))
    # So many files, not lines; the first has three.
    learned.clear()
    seen.clear()
    few = changed(bpe, train_examples=1, pieces=280)
    few = prepare_text(few, tmp_path / 'cache', progress=lambda *told: seen.append(told))
    assert len(learned) == 3
    assert seen[:3] == [('tokenizer', done, 4) for done in (0, 3, 4)]
    assert (len(few.splits['train']), len(few.splits['test'])) == (1, 2)


def test_a_language_model_of_lines(data, tmp_path):
    """One sentence a document; long ones are left out unless the text is cut into rows anyway."""
    lines = changed(data, language='de', max_len=30)
    dataset = prepare_text(lines, tmp_path / 'cache')
    train = dataset.splits['train']
    decoded = [dataset.codecs['text'].decode(train.example(i)['text']) for i in range(len(train))]
    assert decoded == [*GERMAN, 'x', 'y']
    assert dataset.manifest['splits']['train']['dropped'] == {
        'empty': {'count': 1, 'first': ['train.de:9']},
        'long': {'count': 1, 'first': ['train.de:10']},
    }
    assert dataset.texts('dev') == {'text': DEV[1]}
    assert dataset.raw('dev', 'text') == ''.join(f'{line}\n' for line in DEV[1]).encode()
    cut = prepare_text(changed(lines, batching='running'), tmp_path / 'cache')
    assert len(cut.splits['train']) == 9
    assert list(cut.manifest['splits']['train']['dropped']) == ['empty']


def test_bytes_need_no_learning(data, tmp_path):
    seen = []
    options = changed(data, tokenizer='bytes', pieces=259, language='en')
    dataset = prepare_text(options, tmp_path / 'cache', progress=lambda *told: seen.append(told))
    assert {stage for stage, *_ in seen} == {'train', 'dev', 'test'}
    assert dataset.splits['dev'].example(0)['text'].tolist() == [1]
    assert dataset.splits['test'].example(0)['text'].tolist() == bytes_of(ENGLISH[0])
    assert dataset.manifest['tokenizer_sha256'] == dataset.codecs['text'].sha256
    again = prepare_text(options, tmp_path / 'cache', progress=lambda *told: pytest.fail('nothing is made'))
    assert again.codecs['text'].decode(again.splits['test'].example(1)['text']) == ENGLISH[1]


def test_characters_of_the_training_text(data, tmp_path):
    options = changed(data, tokenizer='characters', pieces=270, language='en', max_len=1000)
    dataset = prepare_text(options, tmp_path / 'cache')
    assert dataset.codecs['text'].size == 270
    # Each character is at least one piece, as are the blank before the first word and the end.
    assert len(dataset.splits['test'].example(0)['text']) >= len(ENGLISH[0]) + 2
    with pytest.raises(ConfigError, match=r'data.pieces=9999: the training text allows \d+ at most'):
        prepare_text(changed(options, pieces=9999), tmp_path / 'cache')


def test_a_corpus_that_is_named_twice_counts_twice(data, tmp_path):
    write(tmp_path / 'text', 'talks', (['Hello there.'], ['Hallo.']))
    once = prepare(changed(data, train='train,talks'), tmp_path / 'cache')
    thrice = prepare(changed(data, train='train,talks,talks,talks'), tmp_path / 'cache')
    assert len(thrice.splits['train']) == len(once.splits['train']) + 2
    train = thrice.splits['train']
    assert [thrice.codecs['target'].decode(train.example(len(train) - i)['target']) for i in (3, 2, 1)] == [
        'Hallo.'
    ] * 3
    assert thrice.folder != once.folder


def test_text_that_subword_nmt_has_cut(data, tmp_path, caplog):
    write(tmp_path / 'text', 'train', (['the lo@@ w house'] * 9, ['das nied@@ rige Haus'] * 9))
    with caplog.at_level(logging.WARNING):
        prepare(data, tmp_path / 'cache')
    cut = [record.getMessage() for record in caplog.records if 'subword-nmt' in record.getMessage()]
    assert len(cut) == 1 and cut[0].startswith('data.train: ') and 'data.tokenizer_model' in cut[0]


def test_a_grammar_of_one_language(tmp_path, monkeypatch):
    english_german = list(zip(ENGLISH, GERMAN, strict=True))
    monkeypatch.setattr(reader.sentences, 'sentence_pairs', lambda split: english_german)
    dataset = prepare_text(Data(source='grammar', language='de', pieces=290), tmp_path)
    assert list(dataset.splits) == ['train', 'dev', 'test']
    assert dataset.texts('test') == {'text': GERMAN}


def test_what_determines_a_text(text, tmp_path):
    """A slice counts by its name, the content of its file and what is done with it."""
    keys = [
        prepare_text(changed(text, **options), tmp_path / 'cache').folder.name
        for options in (
            {},
            {'test': 'a.txt[50%:],b.txt[0%:]'},
            {'test': 'a.txt[51%:],b.txt'},
            {'documents': 'lines'},
            {'documents': 'lines', 'batching': 'packed', 'max_len': 30},
            {'documents': 'lines', 'batching': 'bucketed', 'max_len': 30},
            {'tokenizer': 'bpe', 'pieces': 290},
        )
    ]
    assert len(set(keys)) == 7
    assert prepare_text(changed(text, batch_tokens=7, row_len=9), tmp_path / 'cache').folder.name == keys[0]


def test_damage_to_the_offsets_of_files_is_mended(text, tmp_path):
    folder = prepare_text(text, tmp_path / 'cache').folder
    whole = content(folder)
    for name in ('dev.text_text_offsets.bin', 'dev.text.txt', 'tokenizer.model'):
        (folder / name).write_bytes(flip(whole[name]))
        assert content(prepare_text(text, tmp_path / 'cache').folder) == whole


def test_a_tokenizer_that_is_given(data, tmp_path, monkeypatch):
    learned = prepare(data, tmp_path / 'learned')
    monkeypatch.setattr(build.vocabulary, 'train', None)
    given = prepare(data, tmp_path / 'given', given=learned.codecs)
    tokenizer = learned.codecs['source']
    assert given.manifest['given_tokenizer_sha256'] == dict.fromkeys(('source', 'target'), tokenizer.sha256)
    assert given.manifest['tokenizer_sha256'] == tokenizer.sha256
    assert 'given_tokenizer_sha256' not in learned.manifest
    assert given.folder.name != learned.folder.name
    assert {name: given.manifest['checksums'][name] for name in learned.manifest['checksums']} == (
        learned.manifest['checksums']
    )
    # The same from a file; the folder is found again.
    (tmp_path / 'own.model').write_bytes(tokenizer.content)
    from_file = changed(data, tokenizer_model=str(tmp_path / 'own.model'))
    again = prepare(from_file, tmp_path / 'given')
    same = foreign.with_symbols_first(tokenizer.content)
    assert again.codecs['source'].content == same
    assert prepare(from_file, tmp_path / 'given').folder == again.folder
    with pytest.raises(ConfigError, match='data.pieces=290: data.tokenizer_model=.*own.model has 300 pieces'):
        prepare(changed(from_file, pieces=290), tmp_path / 'given')


@pytest.mark.parametrize(
    ('split', 'side', 'content', 'told'),
    [
        ('dev', 'de', b'gut\nschlecht \xff\nx\n', r'dev.de: line 2 is not UTF-8'),
        ('test', 'en', b'one\n', r'test.en has 1 lines, .*test.de has 2'),
    ],
)
def test_dev_and_test_are_read_before_anything_is_made(
    data, tmp_path, monkeypatch, split, side, content, told
):
    (tmp_path / 'text' / f'{split}.{side}').write_bytes(content)
    monkeypatch.setattr(build.vocabulary, 'train', None)
    with pytest.raises(ConfigError, match=told):
        prepare(data, tmp_path / 'cache')


def test_an_empty_dev_is_named(data, tmp_path, monkeypatch):
    for side in ('en', 'de'):
        (tmp_path / 'text' / f'dev.{side}').write_bytes(b'')
    monkeypatch.setattr(build.vocabulary, 'train', None)
    with pytest.raises(ConfigError, match='data.dev: dev.en is empty'):
        prepare(data, tmp_path / 'cache')


def test_separate_vocabularies_are_learned_each_from_its_side(data, tmp_path):
    made = prepare(changed(data, vocabulary='separate', pieces=290), tmp_path / 'cache')
    for field, side in (('source', 0), ('target', 1)):
        texts = [pair[side] for pair in zip(*TRAIN, strict=True) if all(text.strip() for text in pair)]
        assert made.codecs[field].content == vocabulary.train(texts, 290)
        example = made.splits['test'].example(1)[field]
        assert made.codecs[field].decode(example) == (ENGLISH, GERMAN)[side][1]
    assert made.manifest['codecs'] == {'source': 'tokenizer.model', 'target': 'target.tokenizer.model'}
    again = codec.read_from(made.folder, made.manifest)
    assert [one.sha256 for one in again.values()] == [one.sha256 for one in made.codecs.values()]
    assert again['source'].sha256 != again['target'].sha256
    for damage in (
        {'checksums': made.manifest['checksums'] | {'target.tokenizer.model': ''}},
        {'codecs': {'source': 'a\0', 'target': 'a\0'}},
    ):
        with pytest.raises(RuntimeError):
            codec.read_from(made.folder, made.manifest | damage)
    # A run has its own copies, whatever became of the files.
    lost = changed(data, vocabulary='separate', pieces=290, tokenizer_model='lost,gone')
    assert prepare(lost, tmp_path / 'cache', given=made.codecs).codecs.keys() == made.codecs.keys()
    # The same from two files, without learning.
    for field in ('source', 'target'):
        (tmp_path / field).write_bytes(made.codecs[field].content)
    both = f'{tmp_path / "source"},{tmp_path / "target"}'
    given = changed(data, vocabulary='separate', pieces=290, tokenizer_model=both)
    assert prepare(given, tmp_path / 'cache').splits['train'].example(0)['target'].tolist() == (
        made.splits['train'].example(0)['target'].tolist()
    )
    with pytest.raises(ConfigError, match='needs 2 files, has 1'):
        prepare(changed(given, tokenizer_model=str(tmp_path / 'source')), tmp_path / 'cache')


def test_other_columns_of_a_table_are_other_content(tmp_path):
    rows = [f'title {n}\tbody {n}' for n in range(60)]
    (tmp_path / 'a.tsv').write_text('\n'.join(['title\tbody', *rows]))
    table = Data(source='table', dir=str(tmp_path), train='a.tsv', dev='a.tsv', test='a.tsv', pieces=275)
    for column in ('title', 'body'):
        made = prepare_text(changed(table, columns=f'text={column}'), tmp_path / 'cache')
        assert made.texts('dev')['text'][0] == f'{column} 0'


def test_a_file_that_changes_meanwhile_is_not_cached(data, tmp_path):
    old = content(tmp_path / 'text')

    def edit(stage, done, total):
        if stage == 'train':
            write(tmp_path / 'text', 'dev', (['new'] * 3, ['neu'] * 3))

    with pytest.raises(ConfigError, match=r'^data\.dev: '):
        prepare(data, tmp_path / 'cache', progress=edit)
    assert not list((tmp_path / 'cache').iterdir())
    for name, before in old.items():
        (tmp_path / 'text' / name).write_bytes(before)
    assert prepare(data, tmp_path / 'cache').texts('dev')['target'] == DEV[1]
