"""Treebanks: one file, folders and patterns of files, slices, and files without a tree."""

import pytest

from transformer.config import ConfigError, Data
from transformer.data.fields import Reading, Text, Tree
from transformer.data.sources import reader, trees

READING = Reading({'source': Text(), 'target': Tree()}, ())


@pytest.fixture
def bank(tmp_path):
    """Seven trees in the three files of two sections, and files that are no part of it."""
    words = iter('abcdefg')
    for name, count in (('00/wsj_1.mrg', 2), ('00/wsj_2.mrg', 1), ('01/wsj_3.mrg', 4)):
        path = tmp_path / 'wsj' / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(''.join(f'( (S\n  (NP (NN {next(words)}))) )\n' for _ in range(count)))
    (tmp_path / 'wsj' / 'README').write_text('no tree')
    (tmp_path / 'wsj' / '._wsj_1.mrg').write_text('no tree')
    return tmp_path


def sentences(folder, name):
    data = Data(source='trees', dir=str(folder), train=name)
    rows = list(reader.rows(data, READING, 'train', reader.Report()))
    return ''.join(row.values['source'] for row in rows), trees.origins(data, READING, 'train')


@pytest.mark.parametrize(
    ('name', 'expected'),
    [
        ('wsj', 'abcdefg'),
        ('wsj/00', 'abc'),
        ('wsj/*/*.mrg', 'abcdefg'),
        ('wsj/0[1-9]/*.mrg', 'defg'),
        ('wsj[:50%]', 'abc'),
        ('wsj/*/*.mrg[50%:]', 'defg'),
        ('wsj/01,wsj/00/wsj_?.mrg[:70%]', 'defgab'),
        ('wsj/00/wsj_2.mrg', 'c'),
    ],
)
def test_folders_and_patterns_are_read_in_order(bank, name, expected):
    read, origins = sentences(bank, name)
    assert read == expected
    assert sum(origin.lines for origin in origins) == len(expected)


def test_links_to_a_folder_above_and_hidden_folders_are_not_read(bank):
    (bank / 'wsj' / '00' / 'all').symlink_to(bank / 'wsj')
    (bank / 'wsj' / '.old').mkdir()
    (bank / 'wsj' / '.old' / 'x.mrg').write_text('( (S (NN z)) )\n')
    assert sentences(bank, 'wsj')[0] == 'abcdefg'


def test_names_that_are_not_utf8_are_refused(bank):
    (bank / 'wsj' / b'\xe4.mrg'.decode(errors='surrogateescape')).write_text('( (S (NN z)) )\n')
    with pytest.raises(ConfigError, match='data.train: .*the name is not UTF-8'):
        sentences(bank, 'wsj')


def test_the_identity_of_several_files_is_their_content(bank):
    _, [before] = sentences(bank, 'wsj')
    path = bank / 'wsj' / '01' / 'wsj_3.mrg'
    path.write_text(path.read_text().replace('NN', 'NP'))
    _, [after] = sentences(bank, 'wsj')
    assert before.name == after.name == 'wsj' and before.sha256 != after.sha256


@pytest.mark.parametrize(
    ('name', 'part'),
    [
        ('wsj/no*.mrg', 'matches'),
        ('em*', 'matches'),
        ('wsj/**/*.mrg', 'folder'),
        ('empty', '.mrg'),
        ('/wsj/*.mrg', 'relative'),
        # A file of which no tree is complete is not called empty.
        ('open.trees', 'open.trees: line 1: '),
        ('words.trees', 'words.trees: line 1: '),
    ],
)
def test_names_without_a_tree(bank, name, part):
    (bank / 'empty').mkdir()
    (bank / 'open.trees').write_text('(S (NN dog)\n' * 3)
    (bank / 'words.trees').write_text('the dog\n')
    with pytest.raises(ConfigError, match=part):
        sentences(bank, name)
    with pytest.raises(ConfigError, match=part):
        trees.origins(Data(source='trees', dir=str(bank), train=name), READING, 'train')
