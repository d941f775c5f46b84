"""The check that a claim's criterion was committed before its first result, in small git repositories."""

import json
import pathlib
import subprocess
import types

import pytest

from experiments.claims import __main__ as command
from experiments.claims import history
from transformer.config import ConfigError

FIRST = "from claims import rows\n\nLEAST = 0.5\nCRITERION = f'after {rows.UPDATES} updates above {LEAST}'\n"
TEXT = 'after 300 updates above 0.5'


class Repository:
    """A repository with a claim `first`, which takes its updates from `rows`."""

    def __init__(self, folder: pathlib.Path):
        self.modules, self.results = folder / 'claims', folder / 'results'
        self.modules.mkdir()
        self.results.mkdir()
        self.git('init', '--quiet')
        self.commit(claims={'rows.py': 'UPDATES = 300\n', 'first.py': FIRST})

    def git(self, *words: str) -> str:
        who = ('-c', 'user.name=a', '-c', 'user.email=a@b', '-c', 'commit.gpgsign=false')
        call = ('git', '-C', str(self.modules.parent), *who, *words)
        return subprocess.run(call, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, claims=(), result=None) -> str:
        for name, text in dict(claims).items():
            (self.modules / name).write_text(text)
        if result:
            (self.results / 'first.json').write_text(json.dumps({'versions': {}, **result}))
        self.git('add', '--all')
        self.git('commit', '--quiet', '--message=.')
        return self.git('rev-parse', '--short', 'HEAD')

    def check(self, criterion=TEXT, superseded=None) -> history.Checked:
        [checked] = history.check({'first': criterion}, self.modules, self.results, superseded or {})
        return checked


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


def test_a_criterion_before_its_result(repository):
    assert repository.check() == ('first', '', '')
    repository.commit(result={'criterion': TEXT})
    # The file can change where the criterion does not.
    repository.commit(claims={'first.py': FIRST + 'OTHER = 1\n'})
    repository.commit(result={'criterion': TEXT, 'number': 2})
    assert repository.check().wrong == ''


@pytest.mark.parametrize('file, text', [
    ('first.py', FIRST.replace('LEAST = 0.5', 'LEAST = 0.4')),
    ('first.py', FIRST.replace('above', 'at least')),
    ('rows.py', 'UPDATES = 200\n'),
])  # fmt: skip
def test_a_criterion_that_arrives_with_its_result(repository, file, text):
    """In the same commit, in whichever part of it."""
    commit = repository.commit(claims={file: text}, result={'criterion': 'new'})
    assert f'before its first result ({commit})' in repository.check('new').wrong
    # Measured again, it counts from there.
    repository.commit(result={'criterion': 'new', 'number': 2})
    again = repository.check('new', {'first': (commit, 'a reason')})
    assert again.wrong == '' and 'a reason' in again.code


def test_a_criterion_from_an_imported_name(repository):
    first = FIRST.replace('import rows', 'import rows\nfrom claims.rows import UPDATES').replace(
        'rows.UPDATES', 'UPDATES'
    )
    repository.commit(claims={'first.py': first, 'rows.py': 'UPDATES = 200\n'})
    commit = repository.commit(claims={'rows.py': 'UPDATES = 300\n'}, result={'criterion': TEXT})
    assert f'before its first result ({commit})' in repository.check().wrong


def test_a_result_that_was_deleted(repository):
    repository.commit(result={'criterion': TEXT})
    file = repository.results / 'first.json'
    file.unlink()
    # What counts is what was committed.
    assert repository.check() == ('first', '', 'measured by unknown code')
    repository.commit()
    repository.commit(result={'criterion': TEXT})
    assert repository.check() == ('first', '', 'measured by unknown code')


def test_a_criterion_that_is_changed_after_its_result(repository):
    first = repository.commit(result={'criterion': TEXT})
    assert f'after its first result ({first})' in repository.check('after 300 updates above 0.4').wrong
    # Changing the result as well does not hide it.
    changed = repository.commit(
        claims={'first.py': FIRST.replace('0.5', '0.4')}, result={'criterion': 'after 300 updates above 0.4'}
    )
    wrong = repository.check('after 300 updates above 0.4').wrong
    assert first in wrong and f'in {changed}' in wrong


def test_what_code_measured(repository):

    of = lambda revision: repository.commit(result={'criterion': TEXT, 'versions': {'git': revision}})
    measured = repository.git('rev-parse', 'HEAD')
    short = repository.git('rev-parse', '--short', 'HEAD')
    of(measured)
    assert repository.check().code == 'measured by the present code'
    of(measured + '+')
    assert repository.check().code == f'measured by {short} with uncommitted changes, 2 commits ago'
    of(measured)
    repository.commit(claims={'rows.py': 'UPDATES = 300\nOTHER = 1\n'})
    assert repository.check().code == f'measured by {short}, 4 commits ago'
    of('0' * 40)
    assert 'not in this history' in repository.check().code


def test_without_history(repository, tmp_path):
    repository.commit(result={'criterion': TEXT})
    clone = tmp_path / 'clone'
    repository.git('clone', '--quiet', '--depth=1', f'file://{tmp_path}', str(clone))
    for folder, missing in ((clone / 'claims', 'shallow'), (pathlib.Path('/'), 'git checkout')):
        with pytest.raises(ConfigError, match=missing) as error:
            history.check({'first': TEXT}, folder, folder.parent / 'results', {})
        assert '\n' not in str(error.value)


def test_the_command_reports_and_fails(monkeypatch, capsys, repository):
    repository.commit(result={'criterion': TEXT})
    monkeypatch.setattr(history.check, '__defaults__', (repository.modules, repository.results, {}))
    for text, status in ((TEXT, 0), ('another', 2)):
        monkeypatch.setattr(command, 'CLAIMS', {'first': types.SimpleNamespace(CRITERION=text)})
        assert command.main(['claims', '--check']) == status
        out = capsys.readouterr()
        assert out.out.startswith('first: ') and out.out.count('\n') == 1
        assert out.err.count('\n') == (status > 0) and ('first' in out.err) == (status > 0)


def test_a_check_writes_nothing(tmp_path, capsys):
    assert command.main(['claims', '--check', f'--output={tmp_path}']) == 2
    assert '--output' in capsys.readouterr().err
