"""WMT 2014 through TFDS's own builder: small archives of the real shape, served from loopback."""

import functools
import http.server
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import threading

import pytest

ROOT = pathlib.Path(__file__).parent.parent
MISSING = [name for name in ('tensorflow', 'importlib_resources') if not importlib.util.find_spec(name)]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}; pip install '.[prepare]'")

# Lines that readers break at the wrong place, or that TFDS leaves out.
ODD = {
    3: ('one\u0085line', 'eine\u0085Zeile'),
    4: ('and\u2028another', 'und\u2028noch eine'),
    5: ('', 'Nichts'),
    6: ('“quoted” & <b>', '„zitiert“ & <b>'),
}
SMALL = {
    'model.N': 1, 'model.d_model': 16, 'model.d_ff': 16, 'model.h': 2, 'model.vocab_size': 500,
    'data.pieces': 340, 'data.max_len': 64, 'data.batch_tokens': 1024, 'train.steps': 3,
    'train.warmup_steps': 2, 'train.eval_every': 3, 'train.checkpoint_every': 1,
    'train.average_every': 1, 'train.average_last': 2, 'decode.extra_len': 2,
}  # fmt: skip


def pairs(name: str, count: int) -> list[tuple[str, str]]:
    plain = [(f'The {name} number {i} is here.', f'Die Nummer {i} von {name} ist da.') for i in range(count)]
    return [ODD.get(i, pair) if name == 'europarl' else pair for i, pair in enumerate(plain)]


CORPORA = {
    'wmt13/training-parallel-europarl-v7.tgz': ('training/europarl-v7.de-en.', pairs('europarl', 40)),
    'wmt13/training-parallel-commoncrawl.tgz': ('commoncrawl.de-en.', pairs('crawl', 30)),
    'wmt14/training-parallel-nc-v9.tgz': ('training/news-commentary-v9.de-en.', pairs('comment', 20)),
}
DEV, TEST = pairs('dev', 10), pairs('test', 12)
TRAIN = [pair for _, corpus in CORPORA.values() for pair in corpus if all(pair)]


def archive(path: pathlib.Path, files: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, 'w:gz') as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))


def lines(corpus: list[tuple[str, str]], side: int) -> str:
    return ''.join(f'{pair[side]}\n' for pair in corpus)


def sgm(corpus: list[tuple[str, str]], side: int) -> str:
    segments = ''.join(f'<seg id="{i}">{pair[side]}</seg>\n' for i, pair in enumerate(corpus, 1))
    return f'<srcset setid="newstest2014" srclang="any">\n<doc docid="a">\n{segments}</doc>\n</srcset>\n'


@pytest.fixture(scope='module')
def served(tmp_path_factory) -> str:
    """The address of a server of the archives."""
    folder = tmp_path_factory.mktemp('statmt')
    for name, (stem, corpus) in CORPORA.items():
        archive(folder / name, {f'{stem}en': lines(corpus, 0), f'{stem}de': lines(corpus, 1)})
    archive(
        folder / 'wmt19/translation-task/dev.tgz',
        {
            'dev/newstest2013.en': lines(DEV, 0),
            'dev/newstest2013.de': lines(DEV, 1),
            'dev/newstest2014-deen-ref.en.sgm': sgm(TEST, 0),
            'dev/newstest2014-deen-src.de.sgm': sgm(TEST, 1),
        },
    )
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f'http://127.0.0.1:{server.server_address[1]}'
    server.shutdown()
    server.server_close()


def call(folder: pathlib.Path, command: str, setup: str, **changes) -> subprocess.CompletedProcess:
    """Runs a command in a process of its own, behind some lines of Python; it tells what it imported."""
    options = [f'--config.{k}={v}' for k, v in {**SMALL, 'data.dir': folder / 'data', **changes}.items()]
    code = (
        f'import sys, run\n{setup}\nstatus = run.main(sys.argv)\n'
        "print('tensorflow' in sys.modules, file=sys.stderr)\nsys.exit(status)"
    )
    argv = [command, '--config=configs/wmt14_en_de.py', f'--workdir={folder / "run"}', *options]
    environment = {**os.environ, 'TRANSFORMER_CACHE': str(folder / 'cache'), 'NO_COLOR': '1'}
    return subprocess.run(
        [sys.executable, '-c', code, *argv], cwd=ROOT, env=environment, capture_output=True, text=True
    )


@pytest.fixture(scope='module')
def prepared(served, tmp_path_factory) -> tuple[pathlib.Path, str]:
    """A folder with what `prepare` made, and what it said."""
    folder = tmp_path_factory.mktemp('wmt14')
    setup = (
        'from tensorflow_datasets.translate import wmt\n'
        'for corpus in wmt.DATASET_MAP.values():\n'
        "    corpus._urls = tuple(url.replace('http://www.statmt.org', ADDRESS)"
        ".replace('http://data.statmt.org', ADDRESS) for url in corpus._urls)"
    )
    done = call(folder, 'prepare', setup.replace('ADDRESS', repr(served)))
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def lock_of(folder: pathlib.Path) -> tuple[pathlib.Path, dict]:
    (path,) = (folder / 'cache' / 'corpora').glob('*/data.lock.json')
    return path.parent, json.loads(path.read_text())


def test_prepare_reads_english_to_german(prepared):
    folder, lock = lock_of(prepared[0])
    assert lock['corpora'] == {
        'name': 'wmt14_translate/de-en',
        'version': '1.0.0',
        'subsets': {
            'train': ['europarl_v7', 'commoncrawl', 'newscommentary_v9'],
            'validation': ['newstest2013'],
            'test': ['newstest2014'],
        },
    }
    assert {split: counts['pairs'] for split, counts in lock['splits'].items()} == {
        'train': len(TRAIN),
        'dev': 10,
        'test': 12,
    }
    for split, expected in (('dev', DEV), ('test', TEST)):
        sides = [
            (folder / f'{split}.{side}.txt').read_text().split('\n')[:-1] for side in ('source', 'target')
        ]
        # TFDS shuffles; what counts is that English is the source.
        assert sorted(zip(*sides, strict=True)) == sorted(expected)


def test_every_training_pair_arrives_whole(prepared):
    import numpy as np

    from transformer.data.tokenizer import Tokenizer

    folder, lock = lock_of(prepared[0])
    tokenizer = Tokenizer((folder / 'tokenizer.model').read_bytes())
    sides = []
    for side in ('source', 'target'):
        tokens = np.fromfile(folder / f'train.{side}.bin', lock['dtype'])
        offsets = np.fromfile(folder / f'train.{side}_offsets.bin', '<i8')
        sides.append([tokenizer.decode(tokens[a:b]) for a, b in zip(offsets, offsets[1:], strict=False)])
    assert sorted(zip(*sides, strict=True)) == sorted(TRAIN)


def test_prepare_shows_what_differs_from_wmt14(prepared):
    out = prepared[1].splitlines()
    different = [line for line in out if line.startswith('DIFFERENT from')]
    assert [line.partition('json: ')[2] for line in different] == [
        f'data.train: {len(TRAIN)} pairs read, expected 4,508,785',
        'data.dev: 10 pairs read, expected 3,000',
        'data.test: 12 pairs read, expected 3,003',
    ]
    assert f'data.train: {len(TRAIN)} pairs read' in prepared[1]


def test_training_reads_it_without_tensorflow(prepared):
    done = call(prepared[0], 'train', '')
    assert done.returncode == 0 and done.stderr.endswith('False\n'), done.stderr
    assert f'data.train: {len(TRAIN)} pairs read, expected 4,508,785' in done.stderr
    result = json.loads((prepared[0] / 'run' / 'result.json').read_text())
    assert result['steps'] == 3 and result['scores']['test']['checkpoint'] == 'average'
    assert len((prepared[0] / 'run/translations/test.average.txt').read_text().split('\n')) == 13


def test_prepare_again_downloads_nothing(prepared):
    done = call(prepared[0], 'prepare', '')
    assert done.returncode == 0 and done.stderr.endswith('False\n'), done.stderr
    assert done.stdout == prepared[1][prepared[1].index('corpora: ') :]


def test_a_dataset_that_is_not_there(prepared):
    done = call(prepared[0], 'prepare', '', **{'data.name': 'wmt15_translatr/de-en'})
    assert done.returncode == 2
    assert done.stderr.splitlines()[-2] == (
        "error: data.name='wmt15_translatr/de-en': TFDS has no such dataset"
    ), done.stderr
