"""The architecture: which file may import which, and the fences around some libraries."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
LOWER = {
    'config',
    'data',
    'nn',
    'losses',
    'optim',
    'decode',
    'parallel',
    'checkpoint',
    'accounting',
    'metrics',
}
MIDDLE = LOWER | {'translate'}
# A part of the package, and the other parts that it may import.
ALLOWED = {
    'config': set(),
    'data': {'config'},
    'nn': {'config'},
    'losses': {'config'},
    'optim': {'config'},
    'decode': {'config'},
    'parallel': {'config'},
    'checkpoint': {'config'},
    'accounting': {'config'},
    'metrics': {'config', 'workdir'},
    'bleu': set(),
    'console': {'config'},
    'workdir': {'config', 'data'},
    'restore': LOWER | {'workdir'},
    'diagnose': {'config', 'data', 'bleu'},
    'translate': LOWER,
    'train': MIDDLE,
    'evaluate': MIDDLE,
    'introspect': MIDDLE,
    'commands': MIDDLE | {'train', 'evaluate', 'workdir', 'bleu', 'restore', 'diagnose'},
    '__init__': {'commands'},
}
FENCES = {
    'orbax': {'transformer/checkpoint.py'},
    'tensorflow_datasets': {'transformer/data/tfds_source.py'},
    'tensorflow': set(),
    'torch': set(),
}
COLLECTIVES = {'pmap', 'psum', 'pmean', 'all_gather', 'axis_index', 'distributed', 'shard_map'}


def files(*folders: str) -> list[pathlib.Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob('*.py'))]


def imported(path: pathlib.Path) -> set[str]:
    """The modules that a file imports, `from a import b` as a.b."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f'{node.module}.{alias.name}' for alias in node.names}
    return found


def part(path: pathlib.Path) -> str:
    inside = path.relative_to(ROOT / 'transformer')
    return inside.parts[0].removesuffix('.py')


@pytest.mark.parametrize('path', files('transformer'), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path):
    ours = {name.split('.')[1] for name in imported(path) if name.startswith('transformer.')}
    assert ours - {part(path)} <= ALLOWED[part(path)]


def test_data_and_config_know_no_jax():
    for path in [*files('transformer/data'), ROOT / 'transformer' / 'config.py']:
        assert not {name for name in imported(path) if name.split('.')[0] in ('jax', 'flax')}, path


def test_config_files_import_the_config_only():
    for path in files('configs'):
        assert {name.rsplit('.', 1)[0] for name in imported(path)} == {'transformer.config'}, path


@pytest.mark.parametrize('library', FENCES)
def test_fenced_libraries(library):
    everything = [*files('transformer', 'experiments', 'configs'), ROOT / 'run.py']
    users = {
        str(path.relative_to(ROOT))
        for path in everything
        if any(name.split('.')[0] == library for name in imported(path))
    }
    assert users == FENCES[library]


def test_collectives_are_named_in_parallel_alone():
    for path in [*files('transformer', 'experiments'), ROOT / 'run.py']:
        nodes = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute)]
        names = {n.attr for n in nodes if ast.unparse(n).startswith('jax.')}
        if path.name != 'parallel.py':
            assert not names & COLLECTIVES, path
        else:
            assert {'pmap', 'psum', 'axis_index', 'distributed'} <= names
