"""The installed package: its files, with the configs, and the command `transformer`."""

import importlib
import pathlib
import shutil
import subprocess
import sys
import tomllib

import pytest

from transformer.cli import main
from transformer.config import ConfigError, extras

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope='module')
def built(tmp_path_factory) -> pathlib.Path:
    """Lets setuptools copy the files of a wheel, without a connection, and returns their folder."""
    pytest.importorskip('setuptools')
    folder = tmp_path_factory.mktemp('package')
    for name in ('transformer', 'experiments', 'configs', 'tests'):
        ignored = shutil.ignore_patterns('__pycache__', 'results')
        shutil.copytree(ROOT / name, folder / 'source' / name, ignore=ignored)
    for name in ('pyproject.toml', 'setup.py', 'README.md', 'run.py'):
        shutil.copy(ROOT / name, folder / 'source')
    command = [sys.executable, '-W', 'ignore', 'setup.py']
    command += ['--quiet', 'build', f'--build-base={folder / "base"}', f'--build-lib={folder / "built"}']
    subprocess.run(command, cwd=folder / 'source', check=True)
    return folder / 'built'


def test_the_package_is_the_only_name(built):
    assert [path.name for path in built.iterdir()] == ['transformer']
    ours = {path.relative_to(ROOT) for path in (ROOT / 'transformer').rglob('*.py')}
    configs = {'transformer' / path.relative_to(ROOT) for path in (ROOT / 'configs').glob('*.py')}
    assert {path.relative_to(built) for path in built.rglob('*.py')} == ours | configs
    assert (built / 'transformer' / 'configs' / 'wmt14_en_de.lock.json').exists()


def test_works_outside_the_checkout(built, tmp_path):
    code = 'import sys; from transformer.cli.main import main; sys.exit(main())'
    called = [sys.executable, '-c', code]
    env = {'PYTHONPATH': str(built), 'PATH': '/usr/bin:/bin', 'HOME': str(tmp_path)}
    for config, width in (('tiny', 128), ('big', 1024)):
        asked = [*called, 'config', f'--config={config}', '--config.model.h=2']
        found = subprocess.run(asked, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert found.returncode == 0 and f'model.d_model = {width} ' in found.stdout
    asked = [*called, '--config=bigger']
    found = subprocess.run(asked, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert found.returncode == 2
    assert 'did you mean --config=big?' in found.stderr and found.stderr.count('\n') == 1
    (tmp_path / 'mine.py').write_bytes((ROOT / 'configs' / 'tiny.py').read_bytes())
    asked = [*called, 'config', '--config=mine.py', '--config.train.seed=3']
    found = subprocess.run(asked, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert found.returncode == 0 and 'model.d_model = 128' in found.stdout


def test_the_command(capsys):
    project = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
    module, _, function = project['scripts']['transformer'].partition(':')
    assert (module, getattr(main, function)) == (main.__name__, main.main)
    assert main.main(['/env/bin/transformer', 'evaluate', '--help']) == 0
    assert '    transformer evaluate [--FLAG=VALUE ...]' in capsys.readouterr().out


def test_a_python_without_the_packages_is_one_line(tmp_path):
    """Without site-packages, as python3 is where only `.venv` has them."""
    done = subprocess.run([sys.executable, '-S', '-E', str(ROOT / 'run.py')], capture_output=True, text=True)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert 'absl' in done.stderr and '.venv/bin/python' in done.stderr


def test_a_missing_package_is_named_with_its_extra():
    named = r'^a figure needs no_such_package: pip install .*\[figures\]'
    with pytest.raises(ConfigError, match=named), extras.needing('a figure', 'figures'):
        importlib.import_module('no_such_package')
    # A missing module of ours is no missing package.
    with pytest.raises(ModuleNotFoundError), extras.needing('a figure', 'figures'):
        importlib.import_module('transformer.no_such_module')


def test_an_extra_is_installed_from_where_the_package_is(built, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert extras.install('export') == "pip install '.[export]'"
    monkeypatch.chdir(tmp_path)
    assert extras.install('export') == f"pip install '{ROOT}[export]'"
    (tmp_path / 'gone').mkdir()
    monkeypatch.chdir(tmp_path / 'gone')
    (tmp_path / 'gone').rmdir()
    assert extras.install('export') == f"pip install '{ROOT}[export]'"
    monkeypatch.chdir(tmp_path)
    code = 'from transformer.config import extras; print(extras.install("export"))'
    installed = subprocess.run(
        [sys.executable, '-c', code],
        cwd=tmp_path,
        env={'PYTHONPATH': str(built)},
        capture_output=True,
        text=True,
    )
    assert installed.stdout == "pip install 'transformer[export]'\n"
    # The name in pyproject.toml.
    assert tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['name'] == 'transformer'
