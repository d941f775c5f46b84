"""TFDS's own WMT14 builder over small archives from loopback: from download to trained steps."""

import contextlib
import http.server
import importlib.util
import io
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import threading

import pytest

import run
from transformer.config import Data
from transformer.data.fields import Reading, Text
from transformer.data.generated.grammar import sentences
from transformer.data.sources import reader

ROOT = pathlib.Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures('in_the_root')
CONFIG = 'configs/wmt14_en_de.py'
LOCK = 'configs/wmt14_en_de.lock.json'
TINY = {
    'model.N': 1,
    'model.d_model': 16,
    'model.d_ff': 32,
    'model.h': 2,
    'model.vocab_size': 400,
    'data.pieces': 400,
    'data.max_len': 128,
    'data.batching': 'packed',
    'data.batch_tokens': 1024,
    'train.steps': 3,
    'train.eval_every': 3,
    'train.average_last': 0,
    'train.checkpoint_every': 3,
    'decode.extra_len': 0,
    'decode.beam': 1,
}
EUROPARL_ARCHIVE = '/www.statmt.org/wmt13/training-parallel-europarl-v7.tgz'
DEV_ARCHIVE = '/data.statmt.org/wmt19/translation-task/dev.tgz'
needs_extra = pytest.mark.skipif(
    importlib.util.find_spec('tensorflow') is None, reason="needs pip install '.[prepare]'"
)
# Python's own modules warn of what TFDS and TensorFlow still use.
quiet = pytest.mark.filterwarnings('ignore::DeprecationWarning')

SENTENCES = [pair[:2] for pair in itertools.islice(sentences.sentence_pairs('dev'), 320)]
# English, German; only a newline ends a line, and TFDS leaves out a pair with an empty side.
EUROPARL = [
    *SENTENCES[:120],
    ('A next\x85line and a\u2028separator.', 'Ein\u2028Trenner und\x85mehr.'),
    ('', 'Leer auf Englisch.'),
    ('Empty in German.', ''),
    ('"Quoted", she said: \'so\'.', '„Zitiert“, sagte sie: ‚so‘.'),
]
COMMONCRAWL = [*SENTENCES[120:220], (' \t', 'Nur ein Leerraum.'), ('Windows line\r', 'Windows-Zeile\r')]
NEWS_COMMENTARY = [*SENTENCES[220:300], (' '.join(['much'] * 300), 'lang')]
NEWSTEST2013 = [*SENTENCES[300:310], ('Tab\there', 'Tab\tda')]
NEWSTEST2014 = [
    *SENTENCES[310:320],
    ('AT&amp;T &quot;said&quot; &lt;no&gt;', 'AT&amp;T sagte &quot;nein&quot;'),
    ('Two\u2028lines, one\x85segment', 'Zwei\u2028Zeilen, ein\x85Segment'),
    (' blanks ', ' Leerzeichen '),
]


def plain(pairs, side: int) -> str:
    return ''.join(f'{pair[side]}\n' for pair in pairs)


def sgm(pairs, side: int, kind: str) -> str:
    """Formats a test set as WMT publishes it, in two documents."""
    segments = [f'<seg id="{i}">{pair[side]}</seg>\n' for i, pair in enumerate(pairs, 1)]
    documents = (segments[:5], segments[5:])
    text = ''.join(f'<doc docid="{i}">\n<p>\n{"".join(d)}</p>\n</doc>\n' for i, d in enumerate(documents))
    return f'<{kind} setid="newstest2014" srclang="any" trglang="en">\n{text}</{kind}>\n'


def archive(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode='w:gz') as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


def both(stem: str, pairs) -> dict[str, str]:
    return {f'{stem}.en': plain(pairs, 0), f'{stem}.de': plain(pairs, 1)}


def archives() -> dict[str, bytes]:
    """Makes the four archives of WMT14 German-English by path, with the real names inside."""
    dev = {
        **both('dev/newstest2013', NEWSTEST2013),
        'dev/newstest2014-deen-src.de.sgm': sgm(NEWSTEST2014, 1, 'srcset'),
        'dev/newstest2014-deen-ref.en.sgm': sgm(NEWSTEST2014, 0, 'refset'),
    }
    french = {'training/europarl-v7.fr-en.en': 'not this\n', 'training/europarl-v7.fr-en.fr': 'pas ceci\n'}
    news = both('training/news-commentary-v9.de-en', NEWS_COMMENTARY)
    return {
        EUROPARL_ARCHIVE: archive({**both('training/europarl-v7.de-en', EUROPARL), **french}),
        '/www.statmt.org/wmt13/training-parallel-commoncrawl.tgz': archive(
            both('commoncrawl.de-en', COMMONCRAWL)
        ),
        '/www.statmt.org/wmt14/training-parallel-nc-v9.tgz': archive(news),
        DEV_ARCHIVE: archive(dev),
    }


@contextlib.contextmanager
def serving(content: dict[str, bytes]):
    """Runs a server on loopback, and yields its address and the list of requested paths."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            found = content.get(self.path)
            self.send_response(200 if found else 404)
            self.send_header('Content-Length', str(len(found or b'')))
            self.end_headers()
            self.wfile.write(found or b'')

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f'http://127.0.0.1:{server.server_port}', asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def redirect(monkeypatch, address: str) -> None:
    """Lets TFDS's WMT builders download from `address`, with the host's name in the path.

    They download from www.statmt.org one archive after the other.
    """
    from tensorflow_datasets.translate import wmt

    monkeypatch.setenv('NO_PROXY', '127.0.0.1')
    for subset in wmt.DATASET_MAP.values():
        urls = tuple(url.replace('http://', f'{address}/') for url in subset._urls)
        monkeypatch.setattr(subset, '_urls', urls)


def command(*words: str, **changes) -> list[str]:
    options = {**TINY, **changes}
    return ['run.py', *words, f'--config={CONFIG}', *(f'--config.{k}={v}' for k, v in options.items())]


@pytest.fixture(scope='module')
def prepared(tmp_path_factory):
    """Runs `prepare`, and returns its data folder and the end of its output."""
    folder = tmp_path_factory.mktemp('wmt14')
    with pytest.MonkeyPatch.context() as patch, serving(archives()) as (address, asked):
        patch.chdir(ROOT)
        redirect(patch, address)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            assert run.main(command('prepare', **{'data.dir': folder})) == 0
        assert sorted(asked) == sorted(archives())
    # TFDS prints its own progress first.
    printed = output.getvalue().splitlines()
    return folder, printed[printed.index('dataset name: wmt14_translate/de-en') :]


def pairs(folder, split: str, **changes) -> list[tuple[str, str]]:
    data = Data(dir=str(folder), **changes)
    languages = {'source': data.source_language, 'target': data.target_language}
    reading = Reading({side: Text(language, '') for side, language in languages.items()}, ())
    return sorted(tuple(row.values.values()) for row in reader.rows(data, reading, split, reader.Report()))


@needs_extra
@quiet
def test_pairs_are_exact_and_english_is_the_source(prepared):
    folder, _ = prepared
    whole = [pair for pair in EUROPARL + COMMONCRAWL + NEWS_COMMENTARY if all(map(str.strip, pair))]
    assert pairs(folder, 'train') == sorted(whole)
    assert pairs(folder, 'dev') == sorted(NEWSTEST2013)
    # Entities stay as they are.
    assert pairs(folder, 'test') == sorted(NEWSTEST2014)
    german_first = {'source_language': 'de', 'target_language': 'en'}
    assert pairs(folder, 'test', **german_first) == sorted(pair[::-1] for pair in NEWSTEST2014)


@needs_extra
@quiet
def test_lock_file_and_differences(prepared):
    folder, printed = prepared
    (path,) = (line.removeprefix('lock file: ') for line in printed if line.startswith('lock file: '))
    lock = json.loads(pathlib.Path(path).read_text())
    expected = json.loads((ROOT / LOCK).read_text())
    assert lock['dataset'] == expected['dataset']
    # Two pairs have an empty side: TFDS leaves them out. One is blank and one too long: we do.
    read = len(EUROPARL + COMMONCRAWL + NEWS_COMMENTARY) - 2
    assert [file['lines'] for file in lock['files']['train']] == [read]
    assert lock['splits']['train']['pairs'] == read - 2
    dropped = {rule: drop['count'] for rule, drop in lock['splits']['train']['dropped'].items()}
    assert dropped == {'empty': 1, 'long': 1}
    assert lock['splits']['dev']['pairs'] == len(NEWSTEST2013)
    assert lock['splits']['test']['pairs'] == len(NEWSTEST2014)
    assert (
        f'data.train: {read} examples read, 1 empty, 1 long left out; {read - 2} examples of '
        in '\n'.join(printed)
    )
    assert 'dataset corpora of train: europarl_v7, commoncrawl, newscommentary_v9' in printed
    assert f'tokenizer: 400 pieces, sha256 {lock["tokenizer_sha256"]}' in printed
    assert [line for line in printed if LOCK in line] == [
        f'data.train: {read} examples read, {LOCK} says 4,508,785',
        f'data.dev: {len(NEWSTEST2013)} examples read, {LOCK} says 3,000',
        f'data.test: {len(NEWSTEST2014)} examples read, {LOCK} says 3,003',
    ]


@needs_extra
@quiet
def test_prepare_again_needs_nothing(prepared, monkeypatch, capfd):
    folder, printed = prepared
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    assert run.main(command('prepare', **{'data.dir': folder})) == 0
    assert capfd.readouterr().out.splitlines() == printed


@needs_extra
@quiet
def test_training_steps(prepared, tmp_path, caplog):
    folder, _ = prepared
    workdir = tmp_path / 'w'
    assert run.main(command('train', f'--workdir={workdir}', **{'data.dir': folder})) == 0
    assert f'data.dev: {len(NEWSTEST2013)} examples read, {LOCK} says 3,000' in caplog.messages
    result = json.loads((workdir / 'result.json').read_text())
    assert result['steps'] == 3
    assert (workdir / 'translations/test.latest.txt').read_text().count('\n') == len(NEWSTEST2014)
    assert json.loads((workdir / 'data.lock.json').read_text())['dataset']['version'] == '1.0.0'


@needs_extra
@quiet
def test_reading_without_tensorflow(prepared, tmp_path):
    folder, printed = prepared
    (tmp_path / 'tensorflow.py').write_text('raise ImportError("TensorFlow is not to be imported")\n')
    environment = {**os.environ, 'PYTHONPATH': str(tmp_path), 'TRANSFORMER_CACHE': str(tmp_path / 'cache')}
    done = subprocess.run(
        [sys.executable, *command('prepare', **{'data.dir': folder})],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    # Made anew, in another cache.
    changed = set(done.stdout.splitlines()) ^ set(printed)
    assert [line.partition('/')[0] for line in changed] == ['lock file: '] * 2


def error_line(capfd, *words: str, **changes) -> str:
    """Returns the one line of a user's mistake, below TFDS's own output."""
    assert run.main(command(*words, **changes)) == 2
    lines = capfd.readouterr().err.splitlines()
    assert lines[-1].startswith('error: ') and 'Traceback (most recent call last):' not in lines
    return lines[-1]


@needs_extra
@quiet
@pytest.mark.parametrize(
    'damaged, expected',
    [
        (None, 'Failed to get url'),
        (archives()[EUROPARL_ARCHIVE][:-100], 'Error while extracting'),
        (archive(both('training/europarl-v7.de-en', [('a', 'x\ny')])), 'Sizes do not match: 3 vs 2'),
        (archive(both('europarl-v7.de-en', EUROPARL)), 'No matching files found'),
    ],
    ids=['missing', 'truncated', 'unequal', 'renamed'],
)
def test_bad_downloads(tmp_path, monkeypatch, capfd, damaged, expected):
    with serving({**archives(), EUROPARL_ARCHIVE: damaged}) as (address, _):
        redirect(monkeypatch, address)
        error = error_line(capfd, 'prepare', **{'data.dir': tmp_path})
    assert error.startswith("error: data.name='wmt14_translate/de-en': TFDS cannot make it: ")
    assert expected in error


@needs_extra
@quiet
def test_finished_downloads_are_kept(tmp_path, monkeypatch, capfd):
    content = {**archives(), DEV_ARCHIVE: None}
    with serving(content) as (address, asked):
        redirect(monkeypatch, address)
        error_line(capfd, 'prepare', **{'data.dir': tmp_path})
        assert sorted(asked) == sorted(archives())
        content.update(archives())
        asked.clear()
        assert run.main(command('prepare', **{'data.dir': tmp_path})) == 0
    assert asked == [DEV_ARCHIVE]


def test_training_names_the_command_that_prepares(tmp_path, capfd):
    error = error_line(capfd, 'train', f'--workdir={tmp_path / "w"}', **{'data.dir': tmp_path})
    assert error == (
        f"error: data.name='wmt14_translate/de-en': not prepared in data.dir='{tmp_path}'; "
        'the command prepare, with the same options, prepares it'
    )
    assert not (tmp_path / 'w').exists()


def test_without_tfds_one_line_names_the_extras(tmp_path):
    # As if it were not installed.
    missing = 'raise ModuleNotFoundError("No module named \'tensorflow_datasets\'")\n'
    (tmp_path / 'tensorflow_datasets.py').write_text(missing)
    environment = {**os.environ, 'PYTHONPATH': str(tmp_path), 'TRANSFORMER_CACHE': str(tmp_path / 'cache')}
    asked = command('train', f'--workdir={tmp_path / "w"}', **{'data.dir': tmp_path})
    done = subprocess.run([sys.executable, *asked], env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count('\n') == 1
    for part in ('data.source=tfds', "'tensorflow_datasets'", "'.[tfds]'", "'.[prepare]'"):
        assert part in done.stderr
    assert not (tmp_path / 'w').exists()


def test_prepare_without_the_extra(tmp_path, monkeypatch, capfd):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, 'find_spec', lambda name: None if name == 'tensorflow' else find(name)
    )
    error = error_line(capfd, 'prepare', **{'data.dir': tmp_path})
    assert error == (
        f"error: data.name='wmt14_translate/de-en': not prepared in data.dir='{tmp_path}'; "
        "downloading it needs TensorFlow: pip install '.[prepare]'"
    )


@needs_extra
@quiet
@pytest.mark.parametrize(
    'name, language, expected',
    [
        ('wmt14_translate/de-en', 'fr', "data.target_language='fr': wmt14_translate/de-en has de, en"),
        ('wmt14_translate/xx-en', 'de', 'BuilderConfig xx-en not found'),
        ('no_such_set', 'de', 'Dataset no_such_set not found'),
        ('wmt14_translate/de-en:7.0.0', 'de', 'cannot be loaded at version 7.0.0'),
    ],
)
def test_what_tfds_cannot_prepare(tmp_path, capfd, name, language, expected):
    changes = {'data.dir': tmp_path, 'data.name': name, 'data.target_language': language}
    assert expected in error_line(capfd, 'prepare', **changes)
