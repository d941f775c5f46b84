"""The architecture: the imports that each file may have, and the fences around some libraries."""

import ast
import functools
import pathlib
import subprocess
import sys

import pytest

from transformer.config import TASKS

ROOT = pathlib.Path(__file__).parent.parent
# The parts of the package from the ground up: each may import those before it. A folder is one part.
ORDER = (
    'tokens',
    'errors',
    'files',
    'locks',
    'progress',
    'config',
    'nn',
    'data',
    'parallel',
    'runs',
    'training',
    'inference',
    'tasks',
    'actions',
    'interop',
    'cli',
    '__init__',
    '__main__',
)
# What these may import of ours, where that is less than all parts before them.
ONLY = {
    'errors': set(),
    'files': {'errors'},
    'locks': {'files'},
    'progress': set(),
    'config': {'errors', 'files'},
    'nn': {'tokens', 'config'},
    'data': {'tokens', 'errors', 'files', 'locks', 'progress', 'config'},
    'parallel': {'tokens', 'config'},
    '__init__': {'actions'},
    '__main__': {'cli'},
}
FENCES = {
    'orbax': {'transformer/runs/checkpoint.py'},
    'tensorflow_datasets': {'transformer/data/sources/tfds.py'},
    'tensorflow': set(),
    'torch': {
        'experiments/speed/torch_models.py',
        'experiments/speed/hugging_face_search.py',
        'transformer/interop/arrays.py',
        'transformer/interop/hugging_face/engine.py',
    },
    'transformers': {
        'experiments/speed/hugging_face_search.py',
        'transformer/interop/hugging_face/engine.py',
    },
    'safetensors': {'transformer/runs/parameters_file.py'},
    'ctranslate2': {'experiments/speed/ctranslate2_search.py', 'transformer/interop/ctranslate2/writing.py'},
}
COLLECTIVES = {'pmap', 'psum', 'pmean', 'all_gather', 'axis_index', 'distributed', 'shard_map'}


def files(*folders: str) -> list[pathlib.Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob('*.py'))]


@functools.cache
def nodes_of(path: pathlib.Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


@functools.cache
def imported(path: pathlib.Path) -> frozenset[str]:
    """Returns the modules that a file imports, `from a import b` as a.b."""
    found = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f'{node.module}.{alias.name}' for alias in node.names}
    return frozenset(found)


def room(path: pathlib.Path) -> str:
    return path.relative_to(ROOT / 'transformer').parts[0].removesuffix('.py')


def test_every_room_has_its_place():
    assert {room(path) for path in files('transformer')} == set(ORDER)


@pytest.mark.parametrize('path', files('transformer'), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path):
    ours = {name.split('.')[1] for name in imported(path) if name.startswith('transformer.')}
    mine = room(path)
    before = set(ORDER[: ORDER.index(mine)])
    assert ours <= ONLY.get(mine, before) | {mine}


def modules() -> dict[str, set[str]]:
    """Returns the package's modules, each with the modules of the package that it imports."""
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


def test_what_is_below_the_networks_knows_no_jax():
    for path in [*files('transformer/data', 'transformer/config'), ROOT / 'transformer' / 'files.py']:
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


SLOW = {'torch', 'tensorboardX', 'sacrebleu', 'sacremoses', 'transformer.data.generated.grammar.reader'}


@pytest.mark.parametrize(
    ('module', 'slow'), [('actions.train', SLOW), ('cli.main', {*SLOW, 'jax', 'flax', 'orbax'})]
)
def test_what_takes_long_to_import_waits_until_it_is_used(module, slow):
    program = f'import sys; import transformer.{module}; print({slow} & set(sys.modules))'
    call = [sys.executable, '-c', program]
    found = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == 'set()\n'


def test_the_config_is_imported_when_it_is_used():
    program = (
        'import sys, transformer; before = "transformer.config" in sys.modules; '
        'print(before, transformer.config.config_dict().model.h)'
    )
    call = [sys.executable, '-c', program]
    found = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == 'False 8\n'


def test_collectives_are_named_in_parallel_alone():
    for path in [*files('transformer', 'experiments'), ROOT / 'run.py']:
        nodes = [n for n in nodes_of(path) if isinstance(n, ast.Attribute)]
        names = {n.attr for n in nodes if ast.unparse(n).startswith('jax.')}
        if path.name != 'parallel.py':
            assert not names & COLLECTIVES, path
        else:
            assert {'pmap', 'psum', 'axis_index', 'distributed'} <= names


# The users of a task's functions outside tasks/.
USERS = {
    'experiments/claims/beams.py',
    'experiments/claims/bottleneck.py',
    'experiments/claims/composition.py',
    'experiments/evidence/omissions.py',
    'transformer/interop/ctranslate2/engine.py',
    'transformer/interop/export_model.py',
}


# A task's name that is an ordinary word elsewhere too: a tokenizer's pieces, the content of a table.
ORDINARY = {'words'}


def strings_of(path: pathlib.Path) -> set[str]:
    nodes = (node for node in nodes_of(path) if isinstance(node, ast.Constant))
    return {node.value for node in nodes if isinstance(node.value, str)}


def test_a_task_touches_its_folder_and_its_line_alone():
    """No name, import or form of a task is elsewhere: what is outside asks for what a task declares."""
    config = ROOT / 'transformer' / 'config'
    assert not strings_of(config / 'conditions.py') & set(TASKS)
    # The default of train.task.
    assert strings_of(config / 'options.py') & set(TASKS) - ORDINARY == {'translation'}
    assert set(TASKS) <= strings_of(config / 'tasks.py')
    # Of tables and scales one has the name of a task, as one source of data has.
    allowed = {'tables', 'sources', 'generated', 'tasks'}
    users = set()
    for path in files('transformer', 'experiments'):
        place = path.relative_to(ROOT)
        if 'transformer/tasks/' not in str(place):
            if any(
                f'{name}.'.startswith(tuple(f'transformer.tasks.{t}.' for t in TASKS))
                for name in imported(path)
            ):
                users.add(str(place))
            if place.parts[:2] != ('transformer', 'config') and not allowed & set(place.parts):
                assert not strings_of(path) & set(TASKS) - ORDINARY, path
    assert users == USERS


def test_every_task_is_a_folder_with_its_tests():
    for task in TASKS:
        assert (ROOT / 'transformer' / 'tasks' / task / 'task.py').exists()
        assert list((ROOT / 'tests' / 'tasks' / task).glob('test_*.py')), task
