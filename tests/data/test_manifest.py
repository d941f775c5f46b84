"""The command `prepare`, its report, and a lock file beside the config file."""

import json
import pathlib
import shutil

import pytest

import run
from transformer.data import manifest

ROOT = pathlib.Path(__file__).parents[2]
SPLITS = {
    'train': (['A dog.', '', 'A cat.', 'Two dogs.'], ['Ein Hund.', 'x', 'Eine Katze.', 'Zwei Hunde.']),
    'val': (['A dog.'], ['Ein Hund.']),
    'test': (['A cat.', ''], ['Eine Katze.', 'x']),
}
READ = {'train': 4, 'dev': 1, 'test': 2}


@pytest.fixture
def config(tmp_path, monkeypatch) -> pathlib.Path:
    """Copies a config file to an empty folder."""
    monkeypatch.chdir(tmp_path)
    return pathlib.Path(shutil.copy(ROOT / 'configs/multi30k.py', 'mine.py'))


def prepare(config: pathlib.Path) -> int:
    folder = config.with_name('text')
    folder.mkdir(exist_ok=True)
    for split, sides in SPLITS.items():
        for language, lines in zip(('en', 'de'), sides, strict=True):
            (folder / f'{split}.{language}').write_text(''.join(f'{line}\n' for line in lines))
    changes = {'data.dir': folder, 'data.test': 'test', 'data.pieces': 290}
    flags = [f'--config.{key}={value}' for key, value in changes.items()]
    return run.main(['run.py', 'prepare', f'--config={config}', *flags])


def test_report(config, capfd):
    assert prepare(config) == 0
    printed = capfd.readouterr().out.splitlines()
    made = json.loads(pathlib.Path(printed[-1].removeprefix('lock file: ')).read_text())
    tokens = made['splits']['train']
    assert printed[:2] == [
        'data.train: from train.en (4 lines), train.de (4 lines)',
        f'data.train: 4 examples read, 1 empty left out; 3 examples of {tokens["source_tokens"]} source and '
        f'{tokens["target_tokens"]} target pieces',
    ]
    assert printed[3].startswith('data.dev: 1 examples read, none left out; 1 examples of ')
    versions = made['versions']
    assert printed[-3] == f'versions: format {versions["format"]}, sentencepiece {versions["sentencepiece"]}'
    assert printed[-2] == f'tokenizer: 290 pieces, sha256 {made["tokenizer_sha256"]}'


def test_report_of_one_text():
    made = {
        'pieces': 259,
        'versions': {'format': 2},
        'files': {'train': [{'name': 'input.txt[:90%]', 'lines': 1234}]},
        'splits': {
            'train': {'pairs': 20, 'text_tokens': 7000, 'dropped': {'empty': {'count': 3, 'first': []}}}
        },
        'tokenizer_sha256': 'abc',
    }
    assert list(manifest.describe(made)) == [
        'data.train: from input.txt[:90%] (1,234 lines)',
        'data.train: 23 examples read, 3 empty left out; 20 examples of 7,000 text pieces',
        'versions: format 2',
        'tokenizer: 259 pieces, sha256 abc',
    ]
    said = {'dataset': {}, 'pairs_read': {'train': 24}}
    assert manifest.differences(made, said, 'x.json') == ['data.train: 23 examples read, x.json says 24']


@pytest.mark.parametrize(
    'said, expected',
    [
        ({'pairs_read': READ}, ['all as mine.lock.json says']),
        ({'pairs_read': {'dev': 1}}, ['all as mine.lock.json says']),
        (
            {'pairs_read': {**READ, 'train': 4_508_785}},
            ['data.train: 4 examples read, mine.lock.json says 4,508,785'],
        ),
        (
            {'dataset': {'version': '1.0.0', 'corpora': {'train': ['a', 'b']}}},
            [
                'dataset version: none, mine.lock.json says 1.0.0',
                'dataset corpora of train: none, mine.lock.json says a, b',
            ],
        ),
    ],
)
def test_lock_file_beside_the_config(config, capfd, said, expected):
    pathlib.Path('mine.lock.json').write_text(json.dumps(said))
    assert prepare(config) == 0
    printed = capfd.readouterr().out.splitlines()
    assert [line for line in printed if 'mine.lock.json' in line] == expected


@pytest.mark.parametrize('content', ['{', '[]', '{"dataset": 3}'])
def test_bad_lock_file(config, capfd, content):
    pathlib.Path('mine.lock.json').write_text(content)
    assert prepare(config) == 2
    out, err = capfd.readouterr()
    assert out == '' and err.startswith('error: mine.lock.json: ') and err.count('\n') == 1


def test_report_of_pictures():
    field = {'dtype': '|u1', 'shape': [2, 2, 1]}
    made = {
        'source': 'folders',
        'fields': {'image': field},
        'versions': {'format': 2},
        'files': {'train': [{'name': 'train/cat', 'lines': 1234}]},
        'splits': {'train': {'pairs': 1234, 'dropped': {}}},
    }
    assert list(manifest.describe(made)) == [
        'data.train: from train/cat (1,234 examples)',
        'data.train: 1,234 examples read, none left out; 1,234 examples',
        'versions: format 2',
    ]
