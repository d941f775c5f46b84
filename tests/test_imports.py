"""The architecture: which file may import which, and the fences around some libraries."""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
# The parts of the package from the ground up. A part may import those of the lines before its own, and
# what its line names besides; direct imports count.
ORDER = (
    ('symbols', set()),
    ('hypotheses', set()),
    ('files', set()),
    ('options', set()),
    ('groups', {'options'}),
    ('config', {'groups', 'options'}),
    ('data', {'config', 'options', 'symbols', 'files'}),
    ('products', set()),
    ('keys', set()),
    ('heap', set()),
    ('nn', {'config', 'symbols', 'hypotheses', 'products'}),
    ('losses', {'config', 'symbols', 'products'}),
    ('optim', {'config', 'symbols'}),
    ('decode', {'config', 'symbols', 'hypotheses'}),
    ('parallel', {'config', 'options', 'symbols'}),
    ('accounting', {'config', 'symbols'}),
    ('runs', {'*'}),
    ('training', {'*'}),
    ('evaluate', {'*'}),
    ('introspect', {'*'}),
    ('tasks', {'*'}),
    ('figures', {'*'}),
    ('texts', {'options'}),
    ('corpora', {'*'}),
    ('scoring', {'*'}),
    ('pairs', {'*'}),
    ('arguments', {'config', 'options'}),
    ('commands', {'*'}),
    ('terminal', set()),
    ('calls', {'*'}),
    ('console', {'options'}),
    ('cli', {'*'}),
    ('__init__', {'commands'}),
)
NAMES = [name for name, _ in ORDER]
# What is on one floor does not import each other.
FLOORS = ({'losses', 'optim', 'decode', 'parallel', 'accounting'}, {'training', 'evaluate', 'introspect'})
FENCES = {
    'orbax': {'transformer/runs/checkpoint.py'},
    'tensorflow_datasets': {'transformer/data/tfds_source.py'},
    'tensorflow': set(),
    'torch': {'experiments/peers.py', 'experiments/translators.py'},
    'transformers': {'experiments/translators.py'},
    'ctranslate2': {'experiments/translators.py'},
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


def allowed(name: str) -> set[str]:
    """The parts that a part may import, itself among them."""
    before = set(NAMES[: NAMES.index(name)])
    named = dict(ORDER)[name]
    return ({*before} if '*' in named else before & named) | {name}


def test_every_part_has_its_place():
    assert {part(path) for path in files('transformer')} == set(NAMES)


@pytest.mark.parametrize('path', files('transformer'), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path):
    ours = {name.split('.')[1] for name in imported(path) if name.startswith('transformer.')}
    mine = part(path)
    assert ours <= allowed(mine)
    for floor in FLOORS:
        assert mine not in floor or not ours & (floor - {mine})


def modules() -> dict[str, set[str]]:
    """Which modules of the package each one imports."""
    paths = {}
    for path in files('transformer'):
        dotted = '.'.join(path.relative_to(ROOT).with_suffix('').parts)
        paths[dotted.removesuffix('.__init__')] = path
    found = {}
    for name, path in paths.items():
        # Of `from transformer.nn import models` the module, of `from transformer.nn.models import build` too.
        candidates = {m for full in imported(path) for m in (full, full.rpartition('.')[0])}
        found[name] = {m for m in candidates if m in paths} - {name, 'transformer'}
    return found


def test_no_circle():
    waiting, done = modules(), set()
    # A package that only lists what is in it may be imported on the way to it.
    while waiting:
        free = [name for name, needs in waiting.items() if needs - {name.rpartition('.')[0]} <= done]
        assert free, f'these import each other: {sorted(waiting)}'
        for name in free:
            del waiting[name]
        done |= set(free)


def test_only_the_tasks_and_what_stands_on_them_know_a_task():
    above = ('tasks', 'figures', 'corpora', 'scoring', 'pairs', 'commands', 'calls', '__init__')
    for path in files('transformer'):
        if part(path) in above:
            continue
        assert not {name for name in imported(path) if name.startswith('transformer.tasks')}, path


def test_what_is_below_the_networks_knows_no_jax():
    names = ('symbols', 'files', 'options', 'groups', 'config')
    below = [ROOT / 'transformer' / f'{name}.py' for name in names]
    for path in [*files('transformer/data'), *below]:
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


def test_what_takes_long_to_import_waits_until_it_is_used():
    slow = "'torch', 'tensorboardX', 'sacrebleu', 'sacremoses', 'transformer.data.grammar.reader'"
    program = f'import sys; import transformer.commands; print({{{slow}}} & set(sys.modules))'
    call = [sys.executable, '-c', program]
    found = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == 'set()\n'


def test_collectives_are_named_in_parallel_alone():
    for path in [*files('transformer', 'experiments'), ROOT / 'run.py']:
        nodes = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute)]
        names = {n.attr for n in nodes if ast.unparse(n).startswith('jax.')}
        if path.name != 'parallel.py':
            assert not names & COLLECTIVES, path
        else:
            assert {'pmap', 'psum', 'axis_index', 'distributed'} <= names
